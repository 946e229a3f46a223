//! The command line's side of the control socket: the operations of `api` on a bridge in another process.

use std::io;
use std::time::Duration;

use bascule_client::CallToolResult;
use bascule_model::{
    BridgeError, BridgeResult, CallOutcome, CallRequest, CorrelationId, Delivery, ErrorCode, ServerName,
    ToolId, ToolResult,
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::{
    CallOperation, ControlRequest, ControlResponse, FoundToolRecord, Operation, SocketPath, ToolListingRecord,
};
use crate::api::{AvailableTools, FoundTool};
use crate::fleet::request::ProgressSink;
use crate::{ScriptOutcome, ScriptRequest};

/// A bridge that does not identify itself within this time is treated as absent.
const IDENTITY_TIMEOUT: Duration = Duration::from_secs(2);

/// A bridge that runs in another process.
#[derive(Debug, Clone)]
pub(crate) struct RunningBridge {
    path: SocketPath,
    pub(crate) pid: u32,
}

impl RunningBridge {
    /// Returns the bridge that serves this configuration, if one runs. A stale socket is ignored.
    pub(crate) async fn connect(path: &SocketPath) -> Option<Self> {
        #[derive(Deserialize)]
        struct Identity {
            pid: u32,
        }
        let bridge = Self { path: path.clone(), pid: 0 };
        let identity = timeout(IDENTITY_TIMEOUT, bridge.request::<Identity>(Operation::Identity, json!({})));
        let Identity { pid } = identity.await.ok()?.ok()?;
        Some(Self { pid, ..bridge })
    }

    pub(crate) async fn list_tools(&self, server: Option<&ServerName>) -> BridgeResult<AvailableTools> {
        let listing: ToolListingRecord = self.request(Operation::Tools, json!({ "server": server })).await?;
        listing.parse().map_err(invalid_response)
    }

    pub(crate) async fn find_tool(&self, id: &ToolId) -> BridgeResult<FoundTool> {
        let found: FoundToolRecord = self.request(Operation::Tool, json!({ "tool": id })).await?;
        Ok(FoundTool { tool: found.tool.parse().map_err(invalid_response)?, limits: found.limits })
    }

    /// Calls a tool. Dropping the future cancels the call there.
    pub(crate) async fn call_tool(
        &self,
        request: CallRequest,
        id: CorrelationId,
        progress: Option<ProgressSink>,
    ) -> BridgeResult<CallOutcome> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Outcome {
            duration_ms: f64,
            result: Box<RawValue>,
            #[serde(default)]
            hint: Option<String>,
        }
        let CallRequest { tool, arguments, timeout } = request;
        let params = CallOperation {
            tool: tool.clone(),
            arguments,
            timeout_ms: timeout.map(|timeout| timeout.duration.as_millis() as u64),
            waited_ms: timeout.map_or(0, |timeout| timeout.since.elapsed().as_millis() as u64),
            correlation_id: Some(id.clone()),
            progress: progress.is_some(),
        };
        let mut responses = self.subscribe(Operation::Call, params).await?;
        let report = |params: &RawValue| progress.iter().for_each(|progress| progress(params, None));
        let Outcome { duration_ms, result, hint } = parse_response(responses.next_with(report).await?)?;
        let is_error = CallToolResult::parse(result.clone()).is_ok_and(|result| result.is_error());
        Ok(CallOutcome {
            tool,
            result: ToolResult { raw: result, is_error },
            duration: Duration::from_secs_f64(duration_ms.max(0.0) / 1_000.0),
            correlation_id: id,
            hint,
        })
    }

    /// Runs a script. Dropping the future kills it there.
    pub(crate) async fn run_script(&self, request: &ScriptRequest) -> BridgeResult<ScriptOutcome> {
        self.request(Operation::Run, request).await
    }

    /// Sends a request that has one response.
    pub(crate) async fn request<T: for<'a> Deserialize<'a>>(
        &self,
        operation: Operation,
        params: impl Serialize,
    ) -> BridgeResult<T> {
        let mut responses = self.subscribe(operation, params).await?;
        parse_response(responses.next().await?)
    }

    /// Sends a request that may have many responses.
    pub(crate) async fn subscribe(
        &self,
        operation: Operation,
        params: impl Serialize,
    ) -> BridgeResult<ControlResponses> {
        self.send(operation, params).await.map_err(|error| {
            // The bridge ignores a request that was not sent completely.
            let mut error = connection_failed(error);
            (error.delivery, error.code) = (Delivery::NotSent, ErrorCode::ProviderUnavailable);
            error.retryable = true;
            error
        })
    }

    async fn send(&self, operation: Operation, params: impl Serialize) -> io::Result<ControlResponses> {
        let mut stream = UnixStream::connect(self.path.socket()).await?;
        let mut lines = self.path.read_token()?.into_bytes();
        lines.push(b'\n');
        serde_json::to_writer(
            &mut lines,
            &ControlRequest { operation, params: Some(to_raw_value(&params)?) },
        )?;
        lines.push(b'\n');
        stream.write_all(&lines).await?;
        Ok(ControlResponses { stream: BufReader::new(stream) })
    }
}

/// The responses to one request, as they arrive.
pub(crate) struct ControlResponses {
    stream: BufReader<UnixStream>,
}

impl ControlResponses {
    /// Waits for the next response. Returns `None` when the bridge has closed the connection.
    pub(crate) async fn next(&mut self) -> BridgeResult<Option<Box<RawValue>>> {
        self.next_with(|_| {}).await
    }

    /// Like `next`, and passes on the progress before the response.
    async fn next_with(&mut self, report: impl Fn(&RawValue)) -> BridgeResult<Option<Box<RawValue>>> {
        loop {
            let mut line = Vec::new();
            match self.stream.read_until(b'\n', &mut line).await {
                Ok(0) => return Ok(None),
                Ok(_) => match serde_json::from_slice(&line).map_err(invalid_response)? {
                    ControlResponse::Ok(document) => return Ok(Some(document)),
                    ControlResponse::Error(error) => return Err(error),
                    ControlResponse::Progress(params) => report(&params),
                },
                Err(error) => return Err(connection_failed(error)),
            }
        }
    }
}

fn parse_response<T: for<'a> Deserialize<'a>>(response: Option<Box<RawValue>>) -> BridgeResult<T> {
    let response = response.ok_or_else(|| connection_failed("it was closed before the response"))?;
    serde_json::from_str(response.get()).map_err(invalid_response)
}

fn connection_failed(cause: impl std::fmt::Display) -> Box<BridgeError> {
    let message = format!("the connection to the running bridge failed: {cause}");
    BridgeError::new(ErrorCode::OutcomeUnknown, Delivery::Unknown, message)
}

fn invalid_response(error: serde_json::Error) -> Box<BridgeError> {
    connection_failed(format!("invalid response: {error}"))
}
