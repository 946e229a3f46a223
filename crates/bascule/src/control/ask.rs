//! The command line's side of the control socket.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bascule_catalog::CatalogTool;
use bascule_client::CallToolResult;
use bascule_model::{
    BridgeError, BridgeResult, CallOutcome, CallTimeout, CorrelationId, Delivery, ErrorCode, ServerName,
    ToolDefinition, ToolId, ToolResult,
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::{Place, Question, Reply, What};
use crate::McpBridgeAdapter;

/// A bridge that does not say who it is within this is as good as none.
const IDENTITY_WITHIN: Duration = Duration::from_secs(2);

/// A bridge that runs in another process.
#[derive(Debug, Clone)]
pub(crate) struct RunningBridge {
    place: Place,
    pub(crate) pid: u32,
}

/// The tools of a bridge, and what keeps it from having more.
#[derive(Serialize, Deserialize)]
pub(crate) struct Listing {
    pub(crate) tools: Vec<ListedTool>,
    pub(crate) missing: Vec<BridgeError>,
}

/// A tool as its server defined it.
#[derive(Serialize, Deserialize)]
pub(crate) struct ListedTool {
    server: ServerName,
    definition: Box<RawValue>,
}

impl ListedTool {
    pub(crate) fn of(tool: &CatalogTool) -> Self {
        let server = ServerName::parse(tool.id().server()).expect("a tool is named by its server");
        Self { server, definition: tool.definition().raw.clone() }
    }

    pub(crate) fn tool(self) -> BridgeResult<Arc<CatalogTool>> {
        let definition = ToolDefinition::parse(self.definition).map_err(garbled)?;
        Ok(Arc::new(CatalogTool::new(&self.server, definition)))
    }
}

impl Listing {
    /// What a bridge has, of one server or of all.
    pub(crate) fn of(bridge: &McpBridgeAdapter, server: Option<&ServerName>) -> Self {
        let wanted = |name: &str| server.is_none_or(|server| server.as_str() == name);
        let tools = bridge.list_tools();
        let health = bascule_model::ProviderAdapter::health(bridge);
        let missing = health.iter().filter(|server| wanted(server.name.as_str()));
        Self {
            tools: tools
                .iter()
                .filter(|tool| wanted(tool.id().server()))
                .map(|tool| ListedTool::of(tool))
                .collect(),
            missing: missing
                .filter_map(|server| Some(bridge.start_failure(server.name.as_str())?.as_ref().clone()))
                .collect(),
        }
    }
}

impl RunningBridge {
    /// The bridge that serves this configuration, if one runs. What answers no more is ignored.
    pub(crate) async fn at(place: &Place) -> Option<Self> {
        #[derive(Deserialize)]
        struct Identity {
            pid: u32,
        }
        let bridge = Self { place: place.clone(), pid: 0 };
        let asked = timeout(IDENTITY_WITHIN, bridge.ask::<Identity>(What::Identity, json!({})));
        let Identity { pid } = asked.await.ok()?.ok()?;
        Some(Self { pid, ..bridge })
    }

    /// Asks something that has one answer.
    pub(crate) async fn ask<T: for<'a> Deserialize<'a>>(
        &self,
        what: What,
        params: impl Serialize,
    ) -> BridgeResult<T> {
        let mut answers = self.listen(what, params).await?;
        let answer = answers.next().await?.ok_or_else(|| unreachable("it hung up"))?;
        serde_json::from_str(answer.get()).map_err(garbled)
    }

    /// Asks something that is answered again and again.
    pub(crate) async fn listen(&self, what: What, params: impl Serialize) -> BridgeResult<Answers> {
        self.open(what, params).await.map_err(|error| {
            // A question that could not be asked in full is none.
            let mut error = unreachable(error);
            (error.delivery, error.code) = (Delivery::NotSent, ErrorCode::ProviderUnavailable);
            error.retryable = true;
            error
        })
    }

    async fn open(&self, what: What, params: impl Serialize) -> io::Result<Answers> {
        let mut stream = UnixStream::connect(self.place.socket()).await?;
        let mut lines = self.place.token()?.into_bytes();
        lines.push(b'\n');
        serde_json::to_writer(&mut lines, &Question { what, params: Some(to_raw_value(&params)?) })?;
        lines.push(b'\n');
        stream.write_all(&lines).await?;
        Ok(Answers { stream: BufReader::new(stream) })
    }

    /// Makes a call. Dropped, it is cancelled there.
    pub(crate) async fn call(
        &self,
        tool: &ToolId,
        arguments: &RawValue,
        timeout: Option<CallTimeout>,
        correlation_id: &CorrelationId,
    ) -> BridgeResult<CallOutcome> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Params<'a> {
            tool: &'a ToolId,
            arguments: &'a RawValue,
            timeout_ms: Option<u64>,
            waited_ms: u64,
            correlation_id: &'a CorrelationId,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Answer {
            duration_ms: f64,
            result: Box<RawValue>,
        }
        let timeout_ms = timeout.map(|timeout| timeout.duration.as_millis() as u64);
        let waited_ms = timeout.map_or(0, |timeout| timeout.since.elapsed().as_millis() as u64);
        let params = Params { tool, arguments, timeout_ms, waited_ms, correlation_id };
        let Answer { duration_ms, result } = self.ask(What::Call, params).await?;
        let is_error = CallToolResult::parse(result.clone()).is_ok_and(|result| result.is_error());
        Ok(CallOutcome {
            tool: tool.clone(),
            result: ToolResult { raw: result, is_error },
            duration: Duration::from_secs_f64(duration_ms.max(0.0) / 1_000.0),
            correlation_id: correlation_id.clone(),
        })
    }
}

/// Answers as they come.
pub(crate) struct Answers {
    stream: BufReader<UnixStream>,
}

impl Answers {
    /// The next one; none when the bridge has hung up.
    pub(crate) async fn next(&mut self) -> BridgeResult<Option<Box<RawValue>>> {
        let mut line = Vec::new();
        match self.stream.read_until(b'\n', &mut line).await {
            Ok(0) => Ok(None),
            Ok(_) => match serde_json::from_slice(&line).map_err(garbled)? {
                Reply::Ok(answer) => Ok(Some(answer)),
                Reply::Error(error) => Err(error),
            },
            Err(error) => Err(unreachable(error)),
        }
    }
}

fn unreachable(why: impl std::fmt::Display) -> Box<BridgeError> {
    let said = format!("the connection to the running bridge failed: {why}");
    BridgeError::new(ErrorCode::OutcomeUnknown, Delivery::Unknown, said)
}

fn garbled(error: serde_json::Error) -> Box<BridgeError> {
    unreachable(format!("its answer is not understood: {error}"))
}
