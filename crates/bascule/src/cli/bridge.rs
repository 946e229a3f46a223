//! The bridge that a command uses: a running one, or one of its own.

use std::sync::Arc;

use bascule_catalog::CatalogTool;
use bascule_model::{
    BridgeError, BridgeResult, CallOutcome, CallRequest, CorrelationId, ProviderAdapter, ServerName, ToolId,
};
use serde_json::json;

use crate::control::{ListedTool, Listing, RunningBridge, What};
use crate::{McpBridgeAdapter, ScriptOutcome, ScriptRequest};

/// The same operations on both kinds of bridge.
pub(crate) enum BridgeHandle {
    /// Started for this command, and stopped with it.
    Own(McpBridgeAdapter),
    /// Reached over the control socket.
    Running(RunningBridge),
}

impl BridgeHandle {
    /// Lists the tools of one server (`None`: all servers), and the errors of servers that are down.
    pub(crate) async fn tools(
        &self,
        server: Option<&ServerName>,
    ) -> BridgeResult<(Vec<Arc<CatalogTool>>, Vec<BridgeError>)> {
        let Listing { tools, missing } = match self {
            Self::Own(bridge) => Listing::of(bridge, server),
            Self::Running(bridge) => bridge.ask(What::Tools, json!({ "server": server })).await?,
        };
        let tools = tools.into_iter().map(ListedTool::tool).collect::<BridgeResult<_>>()?;
        Ok((tools, missing))
    }

    /// Returns one tool, or the error that a call of it would return.
    pub(crate) async fn tool(&self, id: &ToolId) -> BridgeResult<Arc<CatalogTool>> {
        match self {
            Self::Own(bridge) => bridge.get_tool(id),
            Self::Running(bridge) => {
                bridge.ask::<ListedTool>(What::Tool, json!({ "tool": id })).await?.tool()
            }
        }
    }

    /// Calls a tool. Dropping the future cancels the call.
    pub(crate) async fn call(&self, request: CallRequest, id: CorrelationId) -> BridgeResult<CallOutcome> {
        match self {
            Self::Own(bridge) => bridge.execute(request, Some(id)).await,
            Self::Running(bridge) => {
                bridge.call(&request.tool, &request.arguments, request.timeout, &id).await
            }
        }
    }

    /// Runs a script. Dropping the future kills it.
    pub(crate) async fn run_script(&self, request: ScriptRequest) -> BridgeResult<ScriptOutcome> {
        match self {
            Self::Own(bridge) => bridge.run_script(request).await,
            Self::Running(bridge) => bridge.ask(What::Run, &request).await,
        }
    }

    /// Stops the command's own bridge.
    pub(crate) async fn stop(&self) {
        match self {
            Self::Own(bridge) => bridge.terminate().await,
            Self::Running(_) => {}
        }
    }
}
