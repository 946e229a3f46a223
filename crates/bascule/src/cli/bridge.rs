//! The bridge that a command uses: a running one, or one in its own process.

use bascule_model::{BridgeResult, CallOutcome, CallRequest, CorrelationId, ServerName, ToolId};

use crate::api::{self, AvailableTools, FoundTool};
use crate::call_record::Face;
use crate::control::RunningBridge;
use crate::fleet::request::ProgressSink;
use crate::{McpBridgeAdapter, ScriptOutcome, ScriptRequest};

/// A bridge in this process or in another one.
pub(crate) enum BridgeHandle<'a> {
    /// Started for this command, and stopped with it.
    InProcess(&'a McpBridgeAdapter),
    /// Reached over the control socket.
    Running(RunningBridge),
}

impl BridgeHandle<'_> {
    /// Lists the tools of one server (`None`: all servers), and the errors of servers that are down.
    pub(crate) async fn list_tools(&self, server: Option<&ServerName>) -> BridgeResult<AvailableTools> {
        match self {
            Self::InProcess(bridge) => api::list_tools(bridge, server).await,
            Self::Running(bridge) => bridge.list_tools(server).await,
        }
    }

    /// Returns one tool, or the error that a call of it would return.
    pub(crate) async fn find_tool(&self, id: &ToolId) -> BridgeResult<FoundTool> {
        match self {
            Self::InProcess(bridge) => api::find_tool(bridge, id).await,
            Self::Running(bridge) => bridge.find_tool(id).await,
        }
    }

    /// Calls a tool. Dropping the future cancels the call.
    pub(crate) async fn call_tool(
        &self,
        request: CallRequest,
        id: CorrelationId,
        progress: Option<ProgressSink>,
    ) -> BridgeResult<CallOutcome> {
        match self {
            Self::InProcess(bridge) => api::call_tool(bridge, Face::Cli, request, Some(id), progress).await,
            Self::Running(bridge) => bridge.call_tool(request, id, progress).await,
        }
    }

    /// Runs a script. Dropping the future kills it.
    pub(crate) async fn run_script(&self, request: ScriptRequest) -> BridgeResult<ScriptOutcome> {
        match self {
            Self::InProcess(bridge) => api::run_script(bridge, Face::Cli, request).await,
            Self::Running(bridge) => bridge.run_script(&request).await,
        }
    }
}
