//! The bridge as a library (BR-16): starts the servers, keeps the catalog of their tools, ends them.
//!
//! How a call travels is `call`; how a server is started and spoken to is `upstream`.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bascule_catalog::{Catalog, CatalogTool, Pattern, ServerTools, ToolFilter};
use bascule_client::TransportError;
use bascule_model::{
    BridgeError, BridgeResult, CallOutcome, CallRequest, CorrelationId, DiscardEvents, Event, EventSink,
    Health, ProviderAdapter, ServerHealth, ServerName, ToolDefinition, ToolId,
};
use bascule_sandbox::Confinement;
use futures_util::StreamExt;
use tracing::{info, warn};

use crate::config::{ServerSettings, Settings};
use crate::normalise::{addressed, unknown_server, unknown_tool};
use crate::upstream::{Frame, Started, Upstream};

/// How many servers are started at a time: each may be an `npx` that installs a package.
const STARTING_AT_ONCE: usize = 8;

/// What the bridge needs to start.
pub struct BridgeConfig {
    /// Every server there is.
    pub settings: Settings,
    /// Start these alone; all where there is no list.
    pub only: Option<Vec<ServerName>>,
    /// No start may outlast this, whatever the server's own `startTimeoutMs`.
    pub patience: Option<Duration>,
    /// The program that understands `__jail`, which is `bascule`. Without it, in another program, children are
    /// not confined.
    pub jailer: Option<PathBuf>,
    /// Is told what happens.
    pub events: Arc<dyn EventSink>,
}

impl BridgeConfig {
    /// All servers, and nobody who listens.
    pub fn new(settings: Settings) -> Self {
        Self { settings, only: None, patience: None, jailer: None, events: Arc::new(DiscardEvents) }
    }
}

/// Many servers, one catalog.
pub struct McpBridgeAdapter {
    servers: HashMap<ServerName, Server>,
    /// Those of them in the order of the configuration, for those who list.
    order: Vec<ServerName>,
    /// All that is configured, started or not.
    settings: Settings,
    /// Whether children are confined at all.
    confines: bool,
    pub(crate) catalog: ArcSwap<Catalog>,
    pub(crate) events: Arc<dyn EventSink>,
}

/// Either a server runs, or we know why not.
pub(crate) type Server = Result<Upstream, Box<BridgeError>>;

impl ProviderAdapter for McpBridgeAdapter {
    type Config = BridgeConfig;
    type Input = CallRequest;
    type Output = CallOutcome;

    async fn init(config: BridgeConfig) -> BridgeResult<Self> {
        let BridgeConfig { settings, only, patience, jailer, events } = config;
        let frame = Frame { message_limit: settings.bridge.max_message_bytes, patience, jailer };
        let frame = &frame;
        let starting = chosen(&settings, only.as_deref()).into_iter().map(|server| async move {
            let started = Upstream::start(server.clone(), frame).await;
            (server, started)
        });
        // In order, so that the catalog's order is the file's.
        let results: Vec<_> = futures_util::stream::iter(starting).buffered(STARTING_AT_ONCE).collect().await;
        Ok(Self::assemble(settings, frame.jailer.is_some(), results, events))
    }

    fn health(&self) -> Vec<ServerHealth> {
        let catalog = self.catalog.load();
        self.order
            .iter()
            .map(|name| {
                let tools = catalog.tools_of(name.as_str()).len();
                health_of(name, &self.servers[name], tools)
            })
            .collect()
    }

    async fn execute(
        &self,
        request: CallRequest,
        correlation_id: Option<CorrelationId>,
    ) -> BridgeResult<CallOutcome> {
        self.call(request, correlation_id).await
    }

    async fn terminate(&self) {
        self.catalog.store(Arc::new(Catalog::default()));
        let running = self.servers.values().filter_map(|server| server.as_ref().ok());
        futures_util::future::join_all(running.map(Upstream::stop)).await;
    }
}

impl McpBridgeAdapter {
    /// Every tool that may be used, in the order of the configuration.
    pub fn list_tools(&self) -> Vec<Arc<CatalogTool>> {
        self.catalog.load().tools().cloned().collect()
    }

    /// One tool with its schemas.
    pub fn get_tool_schema(&self, tool: &ToolId) -> Option<Arc<CatalogTool>> {
        self.catalog.load().get(tool).cloned()
    }

    /// One tool, or the error that a call of it would meet.
    pub fn get_tool(&self, tool: &ToolId) -> BridgeResult<Arc<CatalogTool>> {
        let found = self.resolve(&self.catalog.load(), tool).map(|(_, tool)| tool.clone());
        found.map_err(|error| addressed(error, tool))
    }

    /// What is odd about the schemas of a server's tools. Compiles all of them, which calls do one by one.
    pub fn schema_warnings(&self, server: &str) -> Vec<String> {
        self.catalog.load().tools_of(server).iter().flat_map(|tool| tool.warnings()).collect()
    }

    /// Why a server could not be started, if that is so.
    pub fn start_failure(&self, server: &str) -> Option<&BridgeError> {
        self.servers.get(server)?.as_ref().err().map(|error| &**error)
    }

    /// What confines a server's process, where it has one that we started.
    pub fn confinement(&self, server: &str) -> Option<Confinement> {
        self.settings.server(server).filter(|_| self.confines).and_then(Upstream::confinement)
    }

    /// What a server said of itself.
    pub fn server_info(&self, server: &str) -> Option<&bascule_client::ServerInfo> {
        Some(self.servers.get(server)?.as_ref().ok()?.info())
    }

    /// Who would serve a call, and what it would call.
    pub(crate) fn resolve<'a>(
        &'a self,
        catalog: &'a Catalog,
        id: &ToolId,
    ) -> BridgeResult<(&'a Upstream, &'a Arc<CatalogTool>)> {
        let upstream = match self.servers.get(id.server()) {
            Some(Ok(upstream)) => upstream,
            Some(Err(error)) => return Err(error.clone()),
            None => return Err(unknown_server(&self.settings, id)),
        };
        if let Some(why) = upstream.ended() {
            return Err(upstream.unavailable(&why));
        }
        let tool = catalog.resolve(id).map_err(|miss| unknown_tool(id, miss))?;
        Ok((upstream, tool))
    }

    fn assemble(
        settings: Settings,
        confines: bool,
        results: Vec<(Arc<ServerSettings>, BridgeResult<Started>)>,
        events: Arc<dyn EventSink>,
    ) -> Self {
        let (mut servers, mut order, mut catalog) = (HashMap::new(), Vec::new(), Catalog::default());
        for (server, result) in results {
            let name = server.name.clone();
            let started = result.map(|Started { upstream, tools, notes }| {
                events.offer(discovered(&name, &tools));
                catalog = with_tools(&catalog, &server, tools, notes);
                upstream
            });
            if let Err(error) = &started {
                info!(server = %name, %error, "a server could not be started");
            }
            order.push(name.clone());
            servers.insert(name, started);
        }
        Self { servers, order, settings, confines, catalog: ArcSwap::from_pointee(catalog), events }
    }
}

fn chosen(settings: &Settings, only: Option<&[ServerName]>) -> Vec<Arc<ServerSettings>> {
    let wanted = |server: &&ServerSettings| only.is_none_or(|only| only.contains(&server.name));
    settings.servers.iter().filter(wanted).cloned().map(Arc::new).collect()
}

fn with_tools(
    catalog: &Catalog,
    settings: &ServerSettings,
    tools: Vec<ToolDefinition>,
    notes: Vec<String>,
) -> Catalog {
    let name = &settings.name;
    info!(server = %name, tools = tools.len(), "tools listed");
    let tools = ServerTools::new(name.clone(), filter_of(settings), tools);
    for warning in notes.iter().chain(tools.list_warnings()) {
        warn!(server = %name, "{warning}");
    }
    catalog.with_server(tools)
}

fn filter_of(settings: &ServerSettings) -> ToolFilter {
    let patterns = |texts: &Vec<String>| texts.iter().map(|text| Pattern::parse(text)).collect();
    ToolFilter { allowed: settings.allowed.as_ref().map(patterns), denied: patterns(&settings.denied) }
}

fn discovered(server: &ServerName, tools: &[ToolDefinition]) -> Event {
    let names: Vec<String> = tools.iter().map(|tool| tool.name.clone()).collect();
    Event::ToolsDiscovered { server: server.clone(), count: names.len(), names }
}

fn health_of(name: &ServerName, server: &Server, tools: usize) -> ServerHealth {
    let (health, cause, pid) = match server {
        Err(error) => (Health::Unavailable, Some(error.message.clone()), None),
        Ok(upstream) => match upstream.ended() {
            None => (Health::Healthy, None, upstream.pid()),
            Some(why) if matches!(*why, TransportError::Closed) => (Health::Stopped, None, None),
            Some(why) => (Health::Unavailable, Some(why.to_string()), None),
        },
    };
    ServerHealth { name: name.clone(), health, cause, pid, tools }
}
