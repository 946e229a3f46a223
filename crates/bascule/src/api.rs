//! The operations of a bridge as plain functions with typed parameters and results.
//!
//! This module knows no sockets, no framing and no HTTP. The control socket encodes these results for other processes, and
//! the command line uses the same functions when it starts a bridge of its own.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bascule_bus::{EmbeddedBus, SubscribeOptions, Subscription, SubscriptionItem, TopicError, TopicPattern};
use bascule_catalog::CatalogTool;
use bascule_model::{
    BridgeError, BridgeResult, CallOutcome, CallRequest, CorrelationId, ProviderAdapter, ServerHealth,
    ServerName, ToolId,
};
use bascule_sandbox::Confinement;
use bascule_store::StoreStatus;
use serde::{Deserialize, Serialize};

use crate::blocking::run_blocking;
use crate::bus_face::status::BusStatus;
use crate::call::CallContext;
use crate::call_record::{Caller, Face};
use crate::config::{self, ConfigError, ConfigLocation, LoadedConfig};
use crate::fleet::request::ProgressSink;
use crate::normalise::error_chain;
use crate::trust_store;
use crate::{McpBridgeAdapter, Reloaded, ScriptOutcome, ScriptRequest};

/// A listing waits this long for servers that are still starting.
const FIRST_START_TIMEOUT: Duration = Duration::from_secs(30);

/// The tools of a bridge, and the servers that have none because they did not start, or not yet.
pub(crate) struct AvailableTools {
    pub(crate) tools: Vec<Arc<CatalogTool>>,
    pub(crate) start_failures: Vec<BridgeError>,
    /// The number of servers that were asked for.
    pub(crate) requested: usize,
    /// Servers that the configuration disables, if all were asked for.
    pub(crate) disabled: Vec<ServerName>,
}

/// A tool, and the limits of a call of it.
pub(crate) struct FoundTool {
    pub(crate) tool: Arc<CatalogTool>,
    pub(crate) limits: CallLimits,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CallLimits {
    pub(crate) timeout_ms: u64,
    pub(crate) max_execution_ms: u64,
}

/// Lists the tools of one server, or of all.
pub(crate) async fn list_tools(
    bridge: &McpBridgeAdapter,
    server: Option<&ServerName>,
) -> BridgeResult<AvailableTools> {
    server.map_or(Ok(()), |server| bridge.require_server(server))?;
    bridge.wait_for_tools(server, FIRST_START_TIMEOUT).await;
    let is_wanted = |name: &str| server.is_none_or(|server| server.as_str() == name);
    let mut tools = bridge.list_tools();
    tools.retain(|tool| is_wanted(tool.id().server()));
    let mut servers: Vec<_> = bridge.health().into_iter().map(|server| server.name).collect();
    servers.retain(|name| is_wanted(name.as_str()));
    let failure = |name: &ServerName| {
        let failure = bridge.start_failure(name.as_str()).or_else(|| bridge.unfinished_start(name.as_str()));
        failure.map(|error| BridgeError::clone(&error))
    };
    let start_failures = servers.iter().filter_map(failure).collect();
    let disabled = if server.is_none() { bridge.disabled_servers() } else { Vec::new() };
    Ok(AvailableTools { tools, start_failures, requested: servers.len(), disabled })
}

/// Returns one tool, or the error that a call of it would meet.
pub(crate) async fn find_tool(bridge: &McpBridgeAdapter, id: &ToolId) -> BridgeResult<FoundTool> {
    let tool = match bridge.get_tool(id) {
        Ok(known) => known,
        // A server that is starting may have more tools than it had.
        Err(_) => {
            bridge.wait_for_first_start(id.server(), FIRST_START_TIMEOUT).await;
            bridge.get_tool(id)?
        }
    };
    Ok(FoundTool { tool, limits: bridge.call_limits(id)? })
}

/// Calls a tool. Dropping the future cancels the call.
pub(crate) async fn call_tool(
    bridge: &McpBridgeAdapter,
    face: Face,
    request: CallRequest,
    correlation_id: Option<CorrelationId>,
    progress: Option<ProgressSink>,
) -> BridgeResult<CallOutcome> {
    let caller = Caller::of_face(face);
    let context = CallContext { caller, progress, ..CallContext::default() };
    bridge.call_with(request, context, correlation_id).await
}

/// The status of all servers, in the order of the configuration.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BridgeStatus {
    pub(crate) servers: Vec<ServerStatus>,
    /// The reason for which the bridge does not use the configuration file as it is now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) refused_reload: Option<String>,
    /// Servers that the configuration disables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) disabled: Vec<ServerName>,
    /// The recording of calls; `None` if it is off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) traces: Option<TraceStatus>,
    /// The bus that the bridge serves an agent on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) bus: Option<BusStatus>,
}

/// The recording of calls and server logs since the bridge started.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TraceStatus {
    pub(crate) path: PathBuf,
    pub(crate) written: u64,
    /// Entries that were lost: there was no room, or the file could not be written.
    pub(crate) dropped: u64,
    /// The reason why nothing is recorded at the moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stopped: Option<String>,
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
    BridgeStatus {
        servers: servers.collect(),
        refused_reload: bridge.refused_reload(),
        disabled: bridge.disabled_servers(),
        traces: bridge.fleet.traces.as_ref().map(|traces| trace_status(traces.status())),
        bus: bridge.bus.get().map(|bus| bus.status()),
    }
}

fn trace_status(status: StoreStatus) -> TraceStatus {
    let StoreStatus { path, written, dropped, stopped } = status;
    TraceStatus { path, written, dropped, stopped }
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
            SubscriptionItem::Message(message) if is_about_call(message.topic.as_str()) => {}
            _ => return Some(()),
        }
    }
}

fn is_about_call(topic: &str) -> bool {
    topic.starts_with("provider.mcp.tool.") || topic.starts_with("provider.mcp.result.")
}

/// Reads the configuration file again and applies it to the bridge. `on_loaded` runs before the servers change. A file that
/// cannot be used, or that the user does not trust, changes nothing: the status says so, and an event.
pub(crate) async fn reload(
    bridge: &McpBridgeAdapter,
    location: &ConfigLocation,
    grace: Duration,
    on_loaded: impl FnOnce(&LoadedConfig),
) -> Result<Reloaded, ConfigError> {
    let location = location.clone();
    let loaded = run_blocking(move || {
        let loaded = config::load_located(&location, &config::process_environment)?;
        trust_store::check(&location, &loaded).map(|()| loaded)
    });
    let loaded = loaded.await.inspect_err(|error| bridge.refuse_reload(error_chain(error)))?;
    on_loaded(&loaded);
    Ok(bridge.reload(loaded.settings, grace).await)
}
