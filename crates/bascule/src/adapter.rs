//! The bridge as a library: starts the servers, keeps the catalog of their tools, stops them.
//!
//! `call` has the pipeline of a call, `fleet` keeps servers up, `reload` changes the configuration.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use bascule_catalog::{Catalog, CatalogTool};
use bascule_client::ServerInfo;
use bascule_model::{
    BridgeError, BridgeResult, CallOutcome, CallRequest, CorrelationId, Delivery, DiscardEvents, ErrorCode,
    EventSink, ProviderAdapter, ServerHealth, ServerName, ToolId,
};
use bascule_sandbox::{Confinement, LockedFolder, TraceLog};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::warn;

use crate::api::CallLimits;
use crate::audit::AuditLog;
use crate::bus_face::status::BusMonitor;
use crate::call::CallContext;
use crate::call_record::{Caller, Face};
use crate::config::{ScriptSettings, ServerSettings, Settings, TraceSettings};
use crate::fleet::backend::Backend;
use crate::fleet::client_profile::ClientProfile;
use crate::fleet::server::Server;
use crate::fleet::snapshot::Snapshot;
use crate::fleet::stray_output::LoggedLines;
use crate::fleet::upstream::{StartContext, Upstream};
use crate::fleet::{Fleet, Start, on_demand};
use crate::listing_store::ListingStore;
use crate::metrics::CallMetrics;
use crate::normalise::{self, addressed};
use crate::observation_store::ObservationStore;
use crate::otlp::OtlpSettings;
use crate::reload::ReloadTickets;
use crate::script::Scripts;
use crate::search::ToolSearch;
use crate::trace_recorder::TraceRecorder;

/// The most servers that start at the same time: each may be an `npx` that installs a package.
const MAX_STARTING: usize = 8;
/// Bounds the wait for first starts. Each server has a start timeout of its own.
const FIRST_STARTS: Duration = Duration::from_secs(24 * 3600);

/// The use of the tools that servers have listed in earlier runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LastListings {
    /// None. All servers start at once.
    #[default]
    Unused,
    /// Listings are stored in the user's data folder. All servers start at once.
    Stored,
    /// Listings are stored. Until a server is up, its tools are those of its last listing; a lazy one starts at its first call.
    Shown,
}

/// The configuration of a bridge.
pub struct BridgeConfig {
    pub settings: Settings,
    /// Start only these servers. Default: all.
    pub only: Option<Vec<ServerName>>,
    /// The longest start, if shorter than a server's `startTimeoutMs`. It includes the installation of a package.
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
    /// Record what is refused to confined servers. They are slower.
    pub trace: Option<Arc<TraceLog>>,
    pub last_listings: LastListings,
    /// The file that calls and the logs of servers are recorded in, as `settings.bridge.traces` says. Default: none.
    pub traces: Option<PathBuf>,
    /// The collector that gets the recorded calls and scripts. Default: none.
    pub otlp: Option<OtlpSettings>,
}

impl BridgeConfig {
    /// Starts all servers and keeps them up; events are discarded, and listings are not stored.
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
            trace: None,
            last_listings: LastListings::Unused,
            traces: None,
            otlp: None,
        }
    }
}

/// Many servers, one catalog.
pub struct McpBridgeAdapter {
    pub(crate) fleet: Arc<Fleet>,
    confines: bool,
    pub(crate) reloads: Mutex<ReloadTickets>,
    /// The reason for which the last reload was refused.
    pub(crate) refused_reload: Mutex<Option<String>>,
    pub(crate) scripts: Scripts,
    pub(crate) search: Arc<ToolSearch>,
    /// The bus that the bridge serves an agent on, if any.
    pub(crate) bus: OnceLock<Arc<BusMonitor>>,
}

impl ProviderAdapter for McpBridgeAdapter {
    type Config = BridgeConfig;
    type Input = CallRequest;
    type Output = CallOutcome;

    async fn init(config: BridgeConfig) -> BridgeResult<Self> {
        let wait = config.wait_for_servers;
        let bridge = Self::open(config);
        if wait {
            bridge.wait_for_first_starts(FIRST_STARTS).await;
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
        if let Some(traces) = &self.fleet.traces {
            traces.close().await;
        }
        if let Some(audit) = &self.fleet.audit {
            audit.flush().await;
        }
        // A server may have listed its tools before it stopped.
        self.fleet.snapshot.rcu(|snapshot| Snapshot { catalog: Arc::default(), ..Snapshot::clone(snapshot) });
    }
}

impl McpBridgeAdapter {
    /// Makes a call of an agent's session, which the graph of tools observes with its values.
    #[doc(hidden)]
    pub async fn execute_in_session_for_benchmark(&self, request: CallRequest) -> BridgeResult<CallOutcome> {
        let caller = Caller { agent: Some("bench".into()), ..Caller::of_face(Face::Bus) };
        self.call_with(request, CallContext { caller, ..CallContext::default() }, None).await
    }

    /// Spawns the servers.
    fn open(config: BridgeConfig) -> Self {
        let BridgeConfig {
            settings,
            only,
            start_timeout,
            jailer,
            events,
            reconnect,
            keep_workers,
            trace,
            last_listings,
            traces,
            otlp,
            ..
        } = config;
        let traces = traces.and_then(|path| open_traces(path, &settings.bridge.traces, otlp.as_ref()));
        let confines = jailer.is_some();
        let scripts = Scripts::new(jailer.clone(), &settings.bridge.scripts, keep_workers);
        let fleet = Arc::new(Fleet {
            snapshot: ArcSwap::from_pointee(Snapshot::default()),
            events,
            traces: traces.clone(),
            audit: open_audit(&settings),
            metrics: CallMetrics::default(),
            start: starter(settings.bridge.max_message_bytes, start_timeout, jailer, trace, traces),
            random,
            in_flight: Arc::default(),
            observers: Mutex::default(),
            reconnect,
            starts_on_demand: last_listings == LastListings::Shown,
            last_listings: open_store(last_listings),
            starting: Arc::new(Semaphore::new(MAX_STARTING)),
            actors: TaskTracker::new(),
            stop: CancellationToken::new(),
            serials: AtomicU64::new(0),
        });
        spawn_servers(&fleet, settings, only.as_deref());
        let mut bridge = Self::of(fleet, confines);
        bridge.scripts = scripts;
        bridge
    }

    /// Makes a bridge of spawned servers.
    pub(crate) fn of(fleet: Arc<Fleet>, confines: bool) -> Self {
        let scripts = Scripts::new(None, &ScriptSettings::default(), false);
        Self {
            fleet,
            confines,
            reloads: Mutex::default(),
            refused_reload: Mutex::default(),
            scripts,
            search: Arc::default(),
            bus: OnceLock::new(),
        }
    }

    /// Waits for the first start of every server. Returns false if one takes longer than `at_most`.
    pub async fn wait_for_first_starts(&self, at_most: Duration) -> bool {
        let (snapshot, by) = (self.fleet.snapshot.load_full(), Instant::now() + at_most);
        let starts = snapshot.in_order().map(|server| server.wait_for_first_start(by));
        futures_util::future::join_all(starts).await.into_iter().all(|started| started)
    }

    /// Waits for the first start of one server. Returns false if it takes longer than `at_most`.
    pub async fn wait_for_first_start(&self, server: &str, at_most: Duration) -> bool {
        let server = self.fleet.snapshot.load().servers.get(server).cloned();
        match server {
            Some(server) => server.wait_for_first_start(Instant::now() + at_most).await,
            None => true,
        }
    }

    /// Returns a future that waits for the next change of a server's status, counted from this call.
    pub(crate) fn next_server_change(&self) -> impl Future<Output = ()> + use<> {
        let snapshot = self.fleet.snapshot.load();
        let servers = snapshot.in_order().map(|server| server.watch());
        let mut changes: FuturesUnordered<_> =
            servers.map(|mut server| async move { server.changed().await }).collect();
        async move {
            // A server that has ended does not change any more.
            while let Some(changed) = changes.next().await {
                if changed.is_ok() {
                    return;
                }
            }
            std::future::pending().await
        }
    }

    /// Waits until the tools of one server, or of all, are known from this run or an earlier one. Returns false if that takes
    /// longer than `at_most`.
    pub(crate) async fn wait_for_tools(&self, server: Option<&ServerName>, at_most: Duration) -> bool {
        let (snapshot, by) = (self.fleet.snapshot.load_full(), Instant::now() + at_most);
        let wanted =
            snapshot.in_order().filter(|one| server.is_none_or(|server| *server == one.settings.name));
        let known = wanted.map(|server| server.tools_known(by));
        futures_util::future::join_all(known).await.into_iter().all(|known| known)
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
            None => Err(normalise::unknown_server_name(&snapshot.settings, server)),
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
        snapshot.known_tool(tool).cloned().map_err(|error| addressed(error, tool))
    }

    /// Fails with the nearest name if there is no such server.
    pub(crate) fn require_server(&self, server: &ServerName) -> BridgeResult<()> {
        let snapshot = self.fleet.snapshot.load();
        match snapshot.servers.contains_key(server) {
            true => Ok(()),
            false => Err(normalise::unknown_server_name(&snapshot.settings, server)),
        }
    }

    /// Returns the limits of a call.
    pub(crate) fn call_limits(&self, tool: &ToolId) -> BridgeResult<CallLimits> {
        let snapshot = self.fleet.snapshot.load();
        let settings = &snapshot.server(tool)?.settings;
        Ok(CallLimits {
            timeout_ms: settings.call_timeout_for(tool.tool()).as_millis() as u64,
            max_execution_ms: settings.limits_for(tool.tool()).max_execution.as_millis() as u64,
        })
    }

    /// Returns warnings about the schemas of a server's tools. Compiles all of them.
    pub fn schema_warnings(&self, server: &str) -> Vec<String> {
        self.catalog().tools_of(server).iter().flat_map(|tool| tool.warnings()).collect()
    }

    /// Returns warnings about a server's list of tools, and about settings for tools that it does not have.
    pub fn list_warnings(&self, server: &str) -> Vec<String> {
        let tools = self.fleet.snapshot.load().servers.get(server).and_then(|server| server.tools());
        tools.map(|tools| tools.warnings().to_vec()).unwrap_or_default()
    }

    /// Returns the names of the servers that the configuration disables.
    pub fn disabled_servers(&self) -> Vec<ServerName> {
        self.fleet.snapshot.load().settings.disabled.clone()
    }

    /// Returns the error of a server that is down.
    pub fn start_failure(&self, server: &str) -> Option<Arc<BridgeError>> {
        self.fleet.snapshot.load().servers.get(server)?.failure()
    }

    /// Returns the error of a server that is still starting and has no tools of an earlier run.
    pub(crate) fn unfinished_start(&self, server: &str) -> Option<Arc<BridgeError>> {
        let snapshot = self.fleet.snapshot.load();
        let server = snapshot.servers.get(server).filter(|server| server.is_starting_first())?.clone();
        let name = server.settings.name.clone();
        let installing = server.installing().map(|progress| format!(": {progress}")).unwrap_or_default();
        let message = format!("server `{name}` has not started yet{installing}");
        let mut error = BridgeError::new(ErrorCode::ProviderUnavailable, Delivery::NotSent, message);
        error.server = Some(name);
        Some(Arc::from(error))
    }

    /// Returns the confinement of a server's process, where the bridge starts one.
    pub fn confinement(&self, server: &str) -> Option<Confinement> {
        let snapshot = self.fleet.snapshot.load();
        snapshot.settings.server(server).filter(|_| self.confines).and_then(Upstream::confinement)
    }

    /// Returns the writable folders of a server in which it can create or remove nothing, because a file in them is closed.
    /// Searches folders, so it may block.
    pub fn locked_folders(&self, server: &str) -> Vec<LockedFolder> {
        let snapshot = self.fleet.snapshot.load();
        let settings = snapshot.settings.server(server).filter(|_| self.confines);
        settings.map_or_else(Vec::new, Upstream::locked_folders)
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

/// Spawns the servers in `only`, or all if it is `None`.
fn spawn_servers(fleet: &Arc<Fleet>, settings: Settings, only: Option<&[ServerName]>) {
    let is_wanted = |name: &ServerName| only.is_none_or(|only| only.contains(name));
    let chosen = settings.servers.iter().filter(|server| is_wanted(&server.name));
    let spawn = |server| Server::spawn(server, ClientProfile::default(), fleet);
    let servers = chosen.map(|server| (server.name.clone(), spawn(Arc::new(server.clone())))).collect();
    // On another thread, an actor may have listed its tools already.
    fleet.snapshot.store(Arc::new(Snapshot::new(Arc::new(settings), servers)));
    fleet.catch_up();
}

/// Without its store the bridge works, and servers have no last listings.
fn open_store(wanted: LastListings) -> Option<on_demand::ListingStores> {
    let are_shown = match wanted {
        LastListings::Unused => return None,
        LastListings::Stored => false,
        LastListings::Shown => true,
    };
    let open = || io::Result::Ok((ListingStore::open()?, ObservationStore::open()?));
    match open() {
        Ok((store, observations)) => Some(on_demand::ListingStores { store, observations, are_shown }),
        Err(error) => {
            warn!("the tools of servers are not stored for the next start: {error}");
            None
        }
    }
}

/// A bridge without traces is better than none.
fn open_traces(
    path: PathBuf,
    settings: &TraceSettings,
    otlp: Option<&OtlpSettings>,
) -> Option<Arc<TraceRecorder>> {
    if settings.is_off {
        return None;
    }
    let opened = TraceRecorder::new(path, settings, otlp).map(Arc::new);
    opened.inspect_err(|error| warn!("calls are not recorded: {error}")).ok()
}

/// Opens the audit log, if there is to be one.
fn open_audit(settings: &Settings) -> Option<AuditLog> {
    let config = settings.servers.iter().find_map(ServerSettings::config_file).map(Path::to_owned);
    settings.bridge.audit.as_ref().map(|audit| AuditLog::open(audit, config))
}

fn starter(
    message_limit: usize,
    start_timeout: Option<Duration>,
    jailer: Option<PathBuf>,
    trace: Option<Arc<TraceLog>>,
    traces: Option<Arc<TraceRecorder>>,
) -> Start {
    let logged = Arc::new(LoggedLines::default());
    Box::new(move |settings, profile, abandoned, stop, progress| {
        let context = StartContext {
            message_limit,
            timeout: start_timeout,
            jailer: jailer.clone(),
            stop,
            profile,
            abandoned,
            progress,
            trace: trace.clone(),
            logged: logged.clone(),
            traces: traces.clone(),
        };
        Box::pin(async move { Backend::start(settings, &context).await })
    })
}

/// Returns a random number from 0 up to 1.
fn random() -> f64 {
    crate::unique_number::random_u64() as f64 / (u64::MAX as f64 + 1.0)
}
