//! The operations of a bridge as plain functions with typed parameters and results.
//!
//! This module knows no sockets, no framing and no HTTP. The control socket encodes these results for other processes, and
//! the command line uses the same functions when it starts a bridge of its own.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bascule_bus::{EmbeddedBus, SubscribeOptions, Subscription, SubscriptionItem, TopicError, TopicPattern};
use bascule_catalog::CatalogTool;
use bascule_model::{
    BridgeError, BridgeResult, CallOutcome, CallRequest, CorrelationId, ProviderAdapter, ServerHealth,
    ServerName, ToolId,
};
use bascule_sandbox::Confinement;
use serde::{Deserialize, Serialize};

use crate::blocking::run_blocking;
use crate::call::CallContext;
use crate::call_record::{Caller, Face};
use crate::config::{self, ConfigError, LoadedConfig};
use crate::{McpBridgeAdapter, Reloaded, ScriptOutcome, ScriptRequest};

/// A listing waits this long for servers that are still starting.
const FIRST_START_TIMEOUT: Duration = Duration::from_secs(30);

/// The tools of a bridge, and the servers that have none because they did not start.
pub(crate) struct AvailableTools {
    pub(crate) tools: Vec<Arc<CatalogTool>>,
    pub(crate) start_failures: Vec<BridgeError>,
}

/// Lists the tools of one server, or of all.
pub(crate) async fn list_tools(bridge: &McpBridgeAdapter, server: Option<&ServerName>) -> AvailableTools {
    match server {
        Some(server) => bridge.first_start_of(server.as_str(), FIRST_START_TIMEOUT).await,
        None => bridge.first_starts(FIRST_START_TIMEOUT).await,
    };
    let is_wanted = |name: &str| server.is_none_or(|server| server.as_str() == name);
    let mut tools = bridge.list_tools();
    tools.retain(|tool| is_wanted(tool.id().server()));
    let servers = bridge.health().into_iter().map(|server| server.name);
    let start_failures = servers
        .filter(|name| is_wanted(name.as_str()))
        .filter_map(|name| Some(BridgeError::clone(&*bridge.start_failure(name.as_str())?)))
        .collect();
    AvailableTools { tools, start_failures }
}

/// Returns one tool, or the error that a call of it would meet.
pub(crate) async fn find_tool(bridge: &McpBridgeAdapter, id: &ToolId) -> BridgeResult<Arc<CatalogTool>> {
    bridge.first_start_of(id.server(), FIRST_START_TIMEOUT).await;
    bridge.get_tool(id)
}

/// Calls a tool. Dropping the future cancels the call.
pub(crate) async fn call_tool(
    bridge: &McpBridgeAdapter,
    face: Face,
    request: CallRequest,
    correlation_id: Option<CorrelationId>,
) -> BridgeResult<CallOutcome> {
    let caller = Caller { face, ..Caller::default() };
    bridge.call_with(request, CallContext { caller, ..CallContext::default() }, correlation_id).await
}

/// The status of all servers, in the order of the configuration.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct BridgeStatus {
    pub(crate) servers: Vec<ServerStatus>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ServerStatus {
    #[serde(flatten)]
    pub(crate) health: ServerHealth,
    /// The confinement of the server's process; null without a process of the bridge.
    pub(crate) confinement: Option<Confinement>,
}

pub(crate) fn status(bridge: &McpBridgeAdapter) -> BridgeStatus {
    let servers = bridge.health().into_iter().map(|health| {
        let confinement = bridge.confinement(health.name.as_str());
        ServerStatus { health, confinement }
    });
    BridgeStatus { servers: servers.collect() }
}

/// Lists the tools of one server again, or of all, and starts servers that are down.
pub(crate) async fn refresh(
    bridge: &McpBridgeAdapter,
    server: Option<&ServerName>,
) -> BridgeResult<BridgeStatus> {
    match server {
        Some(server) => bridge.refresh(server).await?,
        // The status shows the failures.
        None => {
            let names: Vec<_> = bridge.health().into_iter().map(|server| server.name).collect();
            futures_util::future::join_all(names.iter().map(|name| bridge.refresh(name))).await;
        }
    }
    Ok(status(bridge))
}

/// Runs a script.
pub(crate) async fn run_script(
    bridge: &McpBridgeAdapter,
    face: Face,
    request: ScriptRequest,
) -> BridgeResult<ScriptOutcome> {
    bridge.run_script_of(face, request).await
}

/// Subscribes to the events whose topic matches `pattern`, after up to `replay` recent ones.
pub(crate) fn events(bus: &EmbeddedBus, pattern: &str, replay: usize) -> Result<Subscription, TopicError> {
    let options = SubscribeOptions { replay, ..SubscribeOptions::default() };
    Ok(bus.subscribe(TopicPattern::parse(pattern)?, options))
}

/// Waits for the next change of the status in a subscription to `provider.mcp.#`. Returns `None` when the bus is closed.
/// Subscribe before reading the first status, so that no change is missed.
pub(crate) async fn next_status_change(events: &mut Subscription) -> Option<()> {
    loop {
        // Calls do not change the status.
        match events.next().await? {
            SubscriptionItem::Message(message)
                if message.topic.as_str().starts_with("provider.mcp.tool.") => {}
            _ => return Some(()),
        }
    }
}

/// Reads the configuration file again and applies it to the bridge. `on_loaded` runs before the servers change. A file that
/// cannot be used changes nothing.
pub(crate) async fn reload(
    bridge: &McpBridgeAdapter,
    file: &Path,
    grace: Duration,
    on_loaded: impl FnOnce(&LoadedConfig),
) -> Result<Reloaded, ConfigError> {
    let file = file.to_owned();
    let loaded = run_blocking(move || config::load(&file, &|name: &str| std::env::var(name).ok())).await?;
    on_loaded(&loaded);
    Ok(bridge.reload(loaded.settings, grace).await)
}
