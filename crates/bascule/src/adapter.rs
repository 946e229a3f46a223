//! The bridge as a library (BR-16): starts the servers, keeps the catalog of their tools, stops them.
//!
//! `call` has the pipeline of a call, `fleet` keeps servers up, `reload` changes the configuration.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use bascule_catalog::{Catalog, CatalogTool};
use bascule_client::ServerInfo;
use bascule_model::{
    BridgeError, BridgeResult, CallOutcome, CallRequest, CorrelationId, DiscardEvents, EventSink,
    ProviderAdapter, ServerHealth, ServerName, ToolId,
};
use bascule_sandbox::Confinement;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::call::CallContext;
use crate::config::{ScriptSettings, Settings};
use crate::fleet::backend::Backend;
use crate::fleet::client_profile::ClientProfile;
use crate::fleet::server::Server;
use crate::fleet::snapshot::Snapshot;
use crate::fleet::upstream::{StartContext, Upstream};
use crate::fleet::{Fleet, Start};
use crate::normalise::addressed;
use crate::reload::ReloadTickets;
use crate::script::Scripts;

/// The most servers that start at the same time: each may be an `npx` that installs a package.
const MAX_STARTING: usize = 8;
/// Bounds the wait for first starts. Each server has a start timeout of its own.
const FIRST_STARTS: Duration = Duration::from_secs(24 * 3600);

/// The configuration of a bridge.
pub struct BridgeConfig {
    pub settings: Settings,
    /// Start only these servers. Default: all.
    pub only: Option<Vec<ServerName>>,
    /// The longest start, if shorter than a server's `startTimeoutMs`.
    pub start_timeout: Option<Duration>,
    /// The `bascule` program, which starts servers in a sandbox. Without it servers are not confined.
    pub jailer: Option<PathBuf>,
    pub events: Arc<dyn EventSink>,
    /// Restart servers that are lost or could not be started.
    pub reconnect: bool,
    /// Let `init` wait for the first start of every server. Otherwise calls wait for their own server.
    pub wait_for_servers: bool,
    /// Keep workers ready after the first script.
    pub keep_workers: bool,
}

impl BridgeConfig {
    /// Starts all servers and keeps them up; events are discarded.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            only: None,
            start_timeout: None,
            jailer: None,
            events: Arc::new(DiscardEvents),
            reconnect: true,
            wait_for_servers: true,
            keep_workers: true,
        }
    }
}

/// Many servers, one catalog.
pub struct McpBridgeAdapter {
    pub(crate) fleet: Arc<Fleet>,
    confines: bool,
    pub(crate) reloads: Mutex<ReloadTickets>,
    pub(crate) scripts: Scripts,
}

impl ProviderAdapter for McpBridgeAdapter {
    type Config = BridgeConfig;
    type Input = CallRequest;
    type Output = CallOutcome;

    async fn init(config: BridgeConfig) -> BridgeResult<Self> {
        let wait = config.wait_for_servers;
        let bridge = Self::open(config);
        if wait {
            bridge.first_starts(FIRST_STARTS).await;
        }
        Ok(bridge)
    }

    fn health(&self) -> Vec<ServerHealth> {
        let snapshot = self.fleet.snapshot.load();
        let tools = |server: &Server| snapshot.catalog.tools_of(server.settings.name.as_str()).len();
        snapshot.in_order().map(|server| server.health(tools(server))).collect()
    }

    async fn execute(
        &self,
        request: CallRequest,
        correlation_id: Option<CorrelationId>,
    ) -> BridgeResult<CallOutcome> {
        self.call_with(request, CallContext::default(), correlation_id).await
    }

    async fn terminate(&self) {
        self.fleet.stop.cancel();
        self.fleet.snapshot.rcu(|snapshot| Snapshot { catalog: Arc::default(), ..Snapshot::clone(snapshot) });
        self.scripts.close().await;
        self.fleet.actors.close();
        self.fleet.actors.wait().await;
        // A server may have listed its tools before it stopped.
        self.fleet.snapshot.rcu(|snapshot| Snapshot { catalog: Arc::default(), ..Snapshot::clone(snapshot) });
    }
}

impl McpBridgeAdapter {
    /// Spawns the servers.
    fn open(config: BridgeConfig) -> Self {
        let BridgeConfig { settings, only, start_timeout, jailer, events, reconnect, keep_workers, .. } =
            config;
        let confines = jailer.is_some();
        let scripts = Scripts::new(jailer.clone(), &settings.bridge.scripts, keep_workers);
        let message_limit = settings.bridge.max_message_bytes;
        let fleet = Arc::new(Fleet {
            snapshot: ArcSwap::from_pointee(Snapshot::default()),
            events,
            start: starter(message_limit, start_timeout, jailer),
            random,
            in_flight: Arc::default(),
            observer: OnceLock::new(),
            reconnect,
            starting: Semaphore::new(MAX_STARTING),
            actors: TaskTracker::new(),
            stop: CancellationToken::new(),
            serials: AtomicU64::new(0),
        });
        let wanted = |name: &ServerName| only.as_ref().is_none_or(|only| only.contains(name));
        let chosen = settings.servers.iter().filter(|server| wanted(&server.name));
        let spawn = |server| Server::spawn(server, ClientProfile::default(), &fleet);
        let servers = chosen.map(|server| (server.name.clone(), spawn(Arc::new(server.clone())))).collect();
        // On another thread, an actor may have listed its tools already.
        fleet.snapshot.store(Arc::new(Snapshot::of(Arc::new(settings), servers)));
        fleet.catch_up();
        let mut bridge = Self::of(fleet, confines);
        bridge.scripts = scripts;
        bridge
    }

    /// Makes a bridge of spawned servers.
    pub(crate) fn of(fleet: Arc<Fleet>, confines: bool) -> Self {
        let scripts = Scripts::new(None, &ScriptSettings::default(), false);
        Self { fleet, confines, reloads: Mutex::default(), scripts }
    }

    /// Waits for the first start of every server. Returns false if one takes longer than `at_most`.
    pub async fn first_starts(&self, at_most: Duration) -> bool {
        let (snapshot, by) = (self.fleet.snapshot.load_full(), Instant::now() + at_most);
        let starts = snapshot.in_order().map(|server| server.first_start(by));
        futures_util::future::join_all(starts).await.into_iter().all(|started| started)
    }

    /// Waits for the first start of one server. Returns false if it takes longer than `at_most`.
    pub async fn first_start_of(&self, server: &str, at_most: Duration) -> bool {
        let server = self.fleet.snapshot.load().servers.get(server).cloned();
        match server {
            Some(server) => server.first_start(Instant::now() + at_most).await,
            None => true,
        }
    }

    /// Waits for the calls in flight, at most for `grace`, then terminates. The caller must make no new calls.
    pub async fn shut_down(&self, grace: Duration) {
        let snapshot = self.fleet.snapshot.load_full();
        futures_util::future::join_all(snapshot.in_order().map(|server| server.retire(grace))).await;
        self.terminate().await;
    }

    /// Lists a server's tools again, or starts a server that is down.
    pub async fn refresh(&self, server: &ServerName) -> BridgeResult<()> {
        let snapshot = self.fleet.snapshot.load_full();
        match snapshot.servers.get(server) {
            Some(server) => server.refresh().await,
            None => Err(crate::normalise::start_error(
                server,
                crate::normalise::no_server(&snapshot.settings, server.as_str()),
            )),
        }
    }

    /// Returns all allowed tools, in the order of the configuration.
    pub fn list_tools(&self) -> Vec<Arc<CatalogTool>> {
        self.catalog().tools().cloned().collect()
    }

    /// Returns one tool with its schemas.
    pub fn get_tool_schema(&self, tool: &ToolId) -> Option<Arc<CatalogTool>> {
        self.catalog().get(tool).cloned()
    }

    /// Returns one tool, or the error that a call of it would get.
    pub fn get_tool(&self, tool: &ToolId) -> BridgeResult<Arc<CatalogTool>> {
        let snapshot = self.fleet.snapshot.load();
        snapshot.tool(tool).map(|(_, tool)| tool.clone()).map_err(|error| addressed(error, tool))
    }

    /// Returns warnings about the schemas of a server's tools. Compiles all of them.
    pub fn schema_warnings(&self, server: &str) -> Vec<String> {
        self.catalog().tools_of(server).iter().flat_map(|tool| tool.warnings()).collect()
    }

    /// Returns the error of a server that is down.
    pub fn start_failure(&self, server: &str) -> Option<Arc<BridgeError>> {
        self.fleet.snapshot.load().servers.get(server)?.state().cause().cloned()
    }

    /// Returns the confinement of a server's process, where the bridge starts one.
    pub fn confinement(&self, server: &str) -> Option<Confinement> {
        let snapshot = self.fleet.snapshot.load();
        snapshot.settings.server(server).filter(|_| self.confines).and_then(Upstream::confinement)
    }

    /// Returns the servers whose processes may write a file, such as the configuration.
    pub fn servers_that_can_write(&self, file: &Path) -> Vec<ServerName> {
        let snapshot = self.fleet.snapshot.load();
        let may = |server: &&Arc<Server>| Upstream::may_write(&server.settings, file);
        snapshot.in_order().filter(may).map(|server| server.settings.name.clone()).collect()
    }

    /// Returns a server's `initialize` result.
    pub fn server_info(&self, server: &str) -> Option<ServerInfo> {
        let state = self.fleet.snapshot.load().servers.get(server)?.state();
        state.backend().map(|backend| backend.info().clone())
    }

    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        self.fleet.snapshot.load().catalog.clone()
    }
}

impl Drop for McpBridgeAdapter {
    fn drop(&mut self) {
        self.fleet.stop.cancel();
    }
}

fn starter(message_limit: usize, start_timeout: Option<Duration>, jailer: Option<PathBuf>) -> Start {
    Box::new(move |settings, profile, abandoned, stop| {
        let (timeout, jailer) = (start_timeout, jailer.clone());
        let context = StartContext { message_limit, timeout, jailer, stop, profile, abandoned };
        Box::pin(async move { Backend::start(settings, &context).await })
    })
}

/// Returns a random number from 0 up to 1.
fn random() -> f64 {
    crate::call::random_u64() as f64 / (u64::MAX as f64 + 1.0)
}
