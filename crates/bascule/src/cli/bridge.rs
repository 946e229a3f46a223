//! The bridge that a command uses: one that is running already, else one of its own for as long as it takes.

use std::sync::Arc;

use bascule_catalog::CatalogTool;
use bascule_model::{
    BridgeError, BridgeResult, CallOutcome, CallRequest, CallTimeout, CorrelationId, ProviderAdapter,
    ServerName, ToolId,
};
use serde_json::json;
use serde_json::value::RawValue;

use crate::control::{ListedTool, Listing, RunningBridge, What};
use crate::{McpBridgeAdapter, ScriptOutcome, ScriptRequest};

/// Either.
pub(crate) enum Bridge {
    Own(McpBridgeAdapter),
    Running(RunningBridge),
}

/// A call as it was typed.
pub(crate) struct TypedCall {
    pub(crate) tool: ToolId,
    pub(crate) arguments: Box<RawValue>,
    /// How long the user is willing to wait, and since when.
    pub(crate) timeout: Option<CallTimeout>,
    pub(crate) correlation_id: CorrelationId,
}

impl Bridge {
    /// The tools of one server or of all, and why others are missing.
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

    /// One tool, or the error that a call of it would meet.
    pub(crate) async fn tool(&self, id: &ToolId) -> BridgeResult<Arc<CatalogTool>> {
        match self {
            Self::Own(bridge) => bridge.get_tool(id),
            Self::Running(bridge) => {
                bridge.ask::<ListedTool>(What::Tool, json!({ "tool": id })).await?.tool()
            }
        }
    }

    /// Makes a call. Dropped, it is cancelled.
    pub(crate) async fn call(&self, call: TypedCall) -> BridgeResult<CallOutcome> {
        let TypedCall { tool, arguments, timeout, correlation_id } = call;
        match self {
            Self::Own(bridge) => {
                bridge.execute(CallRequest { tool, arguments, timeout }, Some(correlation_id)).await
            }
            Self::Running(bridge) => bridge.call(&tool, &arguments, timeout, &correlation_id).await,
        }
    }

    /// Runs a script. Dropped, it is killed.
    pub(crate) async fn run_script(&self, request: ScriptRequest) -> BridgeResult<ScriptOutcome> {
        match self {
            Self::Own(bridge) => bridge.run_script(request).await,
            Self::Running(bridge) => bridge.ask(What::Run, &request).await,
        }
    }

    /// Ends what was started for this command alone.
    pub(crate) async fn leave(&self) {
        match self {
            Self::Own(bridge) => bridge.terminate().await,
            Self::Running(_) => {}
        }
    }
}
