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
use tokio_util::sync::CancellationToken;

use super::{CallParams, ControlRequest, ControlResponse, Operation, ToolListingRecord, ToolRecord};
use crate::McpBridgeAdapter;
use crate::api;
use crate::call_record::Face;

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
            Operation::Call => {
                let (request, correlation_id) = call_request(parse(raw)?);
                encode(&api::call_tool(bridge, Face::Cli, request, correlation_id).await?)
            }
            Operation::Run => encode(&api::run_script(bridge, Face::Cli, parse(raw)?).await?),
            Operation::Identity => encode(&json!({ "pid": std::process::id(), "config": self.config })),
            Operation::Refresh => encode(&api::refresh(bridge, params(raw)?.server.as_ref()).await?),
            Operation::Tools => {
                let listing = api::list_tools(bridge, params(raw)?.server.as_ref()).await;
                encode(&ToolListingRecord::new(listing))
            }
            Operation::Tool => {
                let id = params(raw)?.tool.ok_or_else(|| invalid("`tool` is missing"))?;
                encode(&ToolRecord::new(&*api::find_tool(bridge, &id).await?))
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

    async fn send_status(&self, mut changes: Subscription, writer: &mut OwnedWriteHalf) -> io::Result<()> {
        loop {
            send(writer, encode(&api::status(&self.bridge))).await?;
            let Some(Some(())) =
                self.closing.run_until_cancelled(api::next_status_change(&mut changes)).await
            else {
                return Ok(());
            };
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

fn call_request(params: CallParams) -> (CallRequest, Option<CorrelationId>) {
    let now = Instant::now();
    let since = now.checked_sub(Duration::from_millis(params.waited_ms)).unwrap_or(now);
    let timeout = params.timeout_ms.map(|ms| CallTimeout { since, duration: Duration::from_millis(ms) });
    let request = CallRequest { tool: params.tool, arguments: params.arguments, timeout };
    (request, params.correlation_id)
}

pub(super) async fn send(writer: &mut OwnedWriteHalf, result: BridgeResult<Box<RawValue>>) -> io::Result<()> {
    let response = result.map_or_else(ControlResponse::Error, ControlResponse::Ok);
    let mut line = serde_json::to_vec(&response)?;
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
