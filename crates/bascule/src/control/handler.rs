//! Decodes one control request, runs the operation of `api`, and encodes its result.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bascule_bus::{EmbeddedBus, Subscription, SubscriptionItem};
use bascule_model::{
    BridgeError, BridgeResult, CallRequest, CallTimeout, CorrelationId, Delivery, ErrorCode, ServerName,
    ToolId,
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use tokio::io::AsyncWriteExt;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{CallOperation, ControlRequest, ControlResponse, FoundToolRecord, Operation, ToolListingRecord};
use crate::McpBridgeAdapter;
use crate::api;
use crate::call_record::Face;
use crate::fleet::request::ProgressSink;

pub(super) struct ControlHandler {
    pub(super) bridge: Arc<McpBridgeAdapter>,
    pub(super) bus: Arc<EmbeddedBus>,
    pub(super) config: PathBuf,
    /// Ends event streams when the bridge stops.
    pub(super) closing: CancellationToken,
}

/// The parameters of every operation except `call` and `run`.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Params {
    server: Option<ServerName>,
    tool: Option<ToolId>,
    watch: bool,
    pattern: Option<String>,
    replay: usize,
}

enum OperationOutput {
    Document(Box<RawValue>),
    StatusChanges(Subscription),
    Events(Subscription),
}

impl ControlHandler {
    pub(super) async fn handle(
        &self,
        request: ControlRequest,
        writer: &mut OwnedWriteHalf,
    ) -> io::Result<()> {
        let raw = request.params.as_deref().unwrap_or(RawValue::NULL);
        if request.operation == Operation::Call {
            return match parse(raw) {
                Ok(params) => self.call(params, writer).await,
                Err(error) => send(writer, Err(error)).await,
            };
        }
        match self.run(request.operation, raw).await {
            Ok(OperationOutput::Document(document)) => send(writer, Ok(document)).await,
            Ok(OperationOutput::StatusChanges(changes)) => self.send_status(changes, writer).await,
            Ok(OperationOutput::Events(events)) => self.send_events(events, writer).await,
            Err(error) => send(writer, Err(error)).await,
        }
    }

    async fn run(&self, operation: Operation, raw: &RawValue) -> BridgeResult<OperationOutput> {
        let bridge = &*self.bridge;
        let document = match operation {
            Operation::Call => unreachable!("handled by `call`"),
            Operation::Run => encode(&api::run_script(bridge, Face::Cli, parse(raw)?).await?),
            Operation::Identity => encode(&json!({ "pid": std::process::id(), "config": self.config })),
            Operation::Refresh => encode(&api::refresh(bridge, params(raw)?.server.as_ref()).await?),
            Operation::Tools => {
                let listing = api::list_tools(bridge, params(raw)?.server.as_ref()).await?;
                encode(&ToolListingRecord::new(listing))
            }
            Operation::Tool => {
                let id = params(raw)?.tool.ok_or_else(|| invalid("`tool` is missing"))?;
                encode(&FoundToolRecord::new(&api::find_tool(bridge, &id).await?))
            }
            Operation::Status => match params(raw)?.watch {
                true => {
                    let changes = api::events(&self.bus, "provider.mcp.#", 0).map_err(invalid)?;
                    return Ok(OperationOutput::StatusChanges(changes));
                }
                false => encode(&api::status(bridge)),
            },
            Operation::Events => {
                let Params { pattern, replay, .. } = params(raw)?;
                let pattern = pattern.as_deref().unwrap_or("#");
                return api::events(&self.bus, pattern, replay).map(OperationOutput::Events).map_err(invalid);
            }
        };
        document.map(OperationOutput::Document)
    }

    /// Makes a call. Sends its progress, if the caller wants it, and then its response.
    async fn call(&self, params: CallOperation, writer: &mut OwnedWriteHalf) -> io::Result<()> {
        // Of more notifications than the caller reads, only some are shown.
        let (sender, mut notifications) = mpsc::channel(16);
        let sink = move |params: &RawValue, _: Option<&str>| drop(sender.try_send(params.to_owned()));
        let progress = params.progress.then(|| Arc::new(sink) as ProgressSink);
        let (request, correlation_id) = call_request(params);
        let call = api::call_tool(&self.bridge, Face::Cli, request, correlation_id, progress);
        tokio::pin!(call);
        loop {
            tokio::select! {
                biased;
                Some(params) = notifications.recv() => write(writer, &ControlResponse::Progress(params)).await?,
                outcome = &mut call => return send(writer, outcome.and_then(|outcome| encode(&outcome))).await,
            }
        }
    }

    async fn send_status(&self, mut changes: Subscription, writer: &mut OwnedWriteHalf) -> io::Result<()> {
        loop {
            let server_change = self.bridge.next_server_change();
            send(writer, encode(&api::status(&self.bridge))).await?;
            let is_open = tokio::select! {
                () = self.closing.cancelled() => false,
                // Servers may come and go.
                change = api::next_status_change(&mut changes) => change.is_some(),
                () = server_change => true,
            };
            if !is_open {
                return Ok(());
            }
        }
    }

    async fn send_events(&self, mut events: Subscription, writer: &mut OwnedWriteHalf) -> io::Result<()> {
        while let Some(Some(item)) = self.closing.run_until_cancelled(events.next()).await {
            let event = match item {
                SubscriptionItem::Message(message) => encode(&**message.envelope),
                SubscriptionItem::Lost(count) => encode(&json!({ "lost": count })),
            };
            send(writer, event).await?;
        }
        Ok(())
    }
}

fn call_request(params: CallOperation) -> (CallRequest, Option<CorrelationId>) {
    let now = Instant::now();
    let since = now.checked_sub(Duration::from_millis(params.waited_ms)).unwrap_or(now);
    let timeout = params.timeout_ms.map(|ms| CallTimeout { since, duration: Duration::from_millis(ms) });
    let request = CallRequest { tool: params.tool, arguments: params.arguments, timeout };
    (request, params.correlation_id)
}

pub(super) async fn send(writer: &mut OwnedWriteHalf, result: BridgeResult<Box<RawValue>>) -> io::Result<()> {
    write(writer, &result.map_or_else(ControlResponse::Error, ControlResponse::Ok)).await
}

async fn write(writer: &mut OwnedWriteHalf, response: &ControlResponse) -> io::Result<()> {
    let mut line = serde_json::to_vec(response)?;
    line.push(b'\n');
    writer.write_all(&line).await
}

fn parse<T: for<'a> Deserialize<'a>>(params: &RawValue) -> BridgeResult<T> {
    serde_json::from_str(params.get()).map_err(invalid)
}

fn params(raw: &RawValue) -> BridgeResult<Params> {
    parse::<Option<Params>>(raw).map(Option::unwrap_or_default)
}

fn encode(value: &impl Serialize) -> BridgeResult<Box<RawValue>> {
    to_raw_value(value).map_err(|error| {
        let message = format!("could not encode the response: {error}");
        BridgeError::new(ErrorCode::OutcomeUnknown, Delivery::Answered, message)
    })
}

fn invalid(cause: impl std::fmt::Display) -> Box<BridgeError> {
    let message = format!("invalid control request: {cause}");
    BridgeError::new(ErrorCode::InvalidInput, Delivery::NotSent, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeout_includes_the_wait_before_the_request() {
        let params = r#"{"tool":"s:x","arguments":{},"timeoutMs":9000,"waitedMs":500}"#;
        let (request, _) = call_request(serde_json::from_str(params).unwrap());
        let timeout = request.timeout.unwrap();
        assert_eq!(timeout.duration, Duration::from_secs(9));
        assert!(timeout.since.elapsed() >= Duration::from_millis(500));
    }
}
