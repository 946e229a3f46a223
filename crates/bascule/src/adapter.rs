//! The bridge as a library (BR-16): starts the servers, keeps the catalog of their tools, ends them.
//!
//! How a call travels is `call`; how a server is kept up is `fleet`; how the configuration changes is `reload`.

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
use crate::script::Scripts;

/// How many servers are started at a time: each may be an `npx` that installs a package.
const STARTING_AT_ONCE: usize = 8;
/// No first start is waited for longer than this; each server has a bound of its own.
const FIRST_STARTS: Duration = Duration::from_secs(24 * 3600);

/// What the bridge needs to start.
pub struct BridgeConfig {
    /// Every server there is.
    pub settings: Settings,
    /// Start these alone; all where there is no list.
    pub only: Option<Vec<ServerName>>,
    /// No start may outlast this, whatever the server's own `startTimeoutMs`.
    pub start_timeout: Option<Duration>,
    /// The program that understands `__jail`, which is `bascule`. Without it, in another program, children are
    /// not confined.
    pub jailer: Option<PathBuf>,
    /// Is told what happens.
    pub events: Arc<dyn EventSink>,
    /// Whether servers that are lost, or could not be started, are tried again.
    pub reconnect: bool,
    /// Whether `init` waits until every server has been tried once. Otherwise they join as they come, and calls
    /// wait for theirs.
    pub wait_for_servers: bool,
    /// Whether workers are kept ready for scripts, once there has been one.
    pub keep_workers: bool,
}

impl BridgeConfig {
    /// All servers, kept up, and nobody who listens.
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
    /// Whether children are confined at all.
    confines: bool,
    /// Orders the commits of concurrent reloads.
    pub(crate) reloading: Mutex<()>,
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
        // A listing may have come in while they ended.
        self.fleet.snapshot.rcu(|snapshot| Snapshot { catalog: Arc::default(), ..Snapshot::clone(snapshot) });
    }
}

impl McpBridgeAdapter {
    /// Starts to start the servers.
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
            starting: Semaphore::new(STARTING_AT_ONCE),
            actors: TaskTracker::new(),
            stop: CancellationToken::new(),
            serials: AtomicU64::new(0),
        });
        let wanted = |name: &ServerName| only.as_ref().is_none_or(|only| only.contains(name));
        let chosen = settings.servers.iter().filter(|server| wanted(&server.name));
        let servers = chosen
            .map(|server| {
                (
                    server.name.clone(),
                    Server::spawn(Arc::new(server.clone()), ClientProfile::default(), &fleet),
                )
            })
            .collect();
        // An actor may have listed its tools by now, on another thread: the snapshot is made of what it has.
        fleet.snapshot.store(Arc::new(Snapshot::of(Arc::new(settings), servers)));
        fleet.catch_up();
        let mut bridge = Self::of(fleet, confines);
        bridge.scripts = scripts;
        bridge
    }

    /// A bridge of servers that are being kept already.
    pub(crate) fn of(fleet: Arc<Fleet>, confines: bool) -> Self {
        let scripts = Scripts::new(None, &ScriptSettings::default(), false);
        Self { fleet, confines, reloading: Mutex::default(), scripts }
    }

    /// Waits until every server has been tried once, or that long. Says whether they all have.
    pub async fn first_starts(&self, at_most: Duration) -> bool {
        let (snapshot, by) = (self.fleet.snapshot.load_full(), Instant::now() + at_most);
        let starts = snapshot.in_order().map(|server| server.first_start(by));
        futures_util::future::join_all(starts).await.into_iter().all(|started| started)
    }

    /// Waits until one server has been tried once, or that long. Says whether it has.
    pub async fn first_start_of(&self, server: &str, at_most: Duration) -> bool {
        let server = self.fleet.snapshot.load().servers.get(server).cloned();
        match server {
            Some(server) => server.first_start(Instant::now() + at_most).await,
            None => true,
        }
    }

    /// Waits for the calls under way, at most so long, then ends everything. Whoever calls should have stopped to.
    pub async fn shut_down(&self, grace: Duration) {
        let snapshot = self.fleet.snapshot.load_full();
        futures_util::future::join_all(snapshot.in_order().map(|server| server.retire(grace))).await;
        self.terminate().await;
    }

    /// Lists a server's tools again; one that is down is started.
    pub async fn refresh(&self, server: &ServerName) -> BridgeResult<()> {
        let snapshot = self.fleet.snapshot.load_full();
        match snapshot.servers.get(server) {
            Some(server) => server.refresh().await,
            None => Err(crate::normalise::not_started(
                server,
                crate::normalise::no_server(&snapshot.settings, server.as_str()),
            )),
        }
    }

    /// Every tool that may be used, in the order of the configuration.
    pub fn list_tools(&self) -> Vec<Arc<CatalogTool>> {
        self.catalog().tools().cloned().collect()
    }

    /// One tool with its schemas.
    pub fn get_tool_schema(&self, tool: &ToolId) -> Option<Arc<CatalogTool>> {
        self.catalog().get(tool).cloned()
    }

    /// One tool, or the error that a call of it would meet.
    pub fn get_tool(&self, tool: &ToolId) -> BridgeResult<Arc<CatalogTool>> {
        let snapshot = self.fleet.snapshot.load();
        snapshot.tool(tool).map(|(_, tool)| tool.clone()).map_err(|error| addressed(error, tool))
    }

    /// What is odd about the schemas of a server's tools. Compiles all of them, which calls do one by one.
    pub fn schema_warnings(&self, server: &str) -> Vec<String> {
        self.catalog().tools_of(server).iter().flat_map(|tool| tool.warnings()).collect()
    }

    /// Why a server is not there, if that is so.
    pub fn start_failure(&self, server: &str) -> Option<Arc<BridgeError>> {
        self.fleet.snapshot.load().servers.get(server)?.state().why().cloned()
    }

    /// What confines a server's process, where it has one that we started.
    pub fn confinement(&self, server: &str) -> Option<Confinement> {
        let snapshot = self.fleet.snapshot.load();
        snapshot.settings.server(server).filter(|_| self.confines).and_then(Upstream::confinement)
    }

    /// The servers whose processes may write a file, such as the configuration.
    pub fn writers_of(&self, file: &Path) -> Vec<ServerName> {
        let snapshot = self.fleet.snapshot.load();
        let may = |server: &&Arc<Server>| Upstream::may_write(&server.settings, file);
        snapshot.in_order().filter(may).map(|server| server.settings.name.clone()).collect()
    }

    /// What a server said of itself.
    pub fn server_info(&self, server: &str) -> Option<ServerInfo> {
        let state = self.fleet.snapshot.load().servers.get(server)?.state();
        state.backend().map(|backend| backend.info().clone())
    }

    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        self.fleet.snapshot.load().catalog.clone()
    }
}

/// What nobody holds any more nobody can terminate.
impl Drop for McpBridgeAdapter {
    fn drop(&mut self) {
        self.fleet.stop.cancel();
    }
}

fn starter(message_limit: usize, start_timeout: Option<Duration>, jailer: Option<PathBuf>) -> Start {
    Box::new(move |settings, profile, stop| {
        let frame =
            StartContext { message_limit, timeout: start_timeout, jailer: jailer.clone(), stop, profile };
        Box::pin(async move { Backend::start(settings, &frame).await })
    })
}

/// From 0 up to 1.
fn random() -> f64 {
    crate::call::random_u64() as f64 / (u64::MAX as f64 + 1.0)
}
