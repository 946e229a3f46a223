//! The actor against servers in memory and a clock that the tests move: exact where real processes cannot be.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use bascule_mcp::Transport;
use bascule_model::{BridgeResult, CallRequest, ErrorCode, Event, EventSink, Health, ServerName, ToolId};
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::{Instant, advance};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::call::CallContext;
use crate::config::{RetryPolicy, ServerSettings, Settings, ToolSettings, TransportSettings};
use crate::fleet::backend::Backend;
use crate::fleet::client_profile::ClientProfile;
use crate::fleet::server::Server;
use crate::fleet::snapshot::Snapshot;
use crate::fleet::start_clock::StartClock;
use crate::fleet::upstream::{StartContext, Upstream};
use crate::fleet::{Fleet, Start};
use crate::normalise;
use crate::{McpBridgeAdapter, Plan, Reloaded};

/// The behaviour of the servers of a test, and a record of their lives.
#[derive(Default)]
struct ScriptedServers {
    refuses: AtomicBool,
    is_silent: AtomicBool,
    /// The ids of calls that arrived while it was silent. They are answered with the next message.
    late: Mutex<Vec<Value>>,
    starts: Mutex<Vec<Instant>>,
    /// The number of servers that were alive at each start.
    alive_at_start: Mutex<Vec<usize>>,
    alive: AtomicUsize,
    most_alive: AtomicUsize,
    served: AtomicUsize,
    tools: Mutex<Vec<&'static str>>,
    /// Ends the server that is up.
    end: Mutex<CancellationToken>,
    events: Mutex<Vec<Event>>,
}

impl EventSink for ScriptedServers {
    fn offer(&self, event: Event) {
        self.events.lock().unwrap().push(event);
    }
}

impl ScriptedServers {
    fn kill(&self) {
        self.end.lock().unwrap().cancel();
    }

    fn starts_since(&self, begin: Instant) -> Vec<u128> {
        self.starts.lock().unwrap().iter().map(|at| (*at - begin).as_millis()).collect()
    }

    fn named(&self, name: &str) -> Vec<Event> {
        self.events.lock().unwrap().iter().filter(|event| event.name() == name).cloned().collect()
    }

    /// Serves in memory until the server is ended.
    fn serve(self: &Arc<Self>) -> Transport {
        let (transport, mut far) = Transport::pair();
        let (servers, end) = (self.clone(), CancellationToken::new());
        *self.end.lock().unwrap() = end.clone();
        let alive = self.alive.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_alive.fetch_max(alive, Ordering::SeqCst);
        tokio::spawn(async move {
            while let Some(Some(frame)) = end.run_until_cancelled(far.incoming.recv()).await {
                let answer = servers.answer(&serde_json::from_slice(&frame).unwrap());
                for answer in servers.late_answers().into_iter().chain(answer) {
                    let _ = far.outgoing.send(answer.to_string().into_bytes()).await;
                }
            }
            servers.alive.fetch_sub(1, Ordering::SeqCst);
        });
        transport
    }

    fn answer(&self, asked: &Value) -> Option<Value> {
        let result = match asked["method"].as_str()? {
            "initialize" => json!({ "protocolVersion": "2025-11-25", "capabilities": {},
                                    "serverInfo": { "name": "scripted", "version": "1" } }),
            "tools/list" => {
                let schema = json!({ "type": "object" });
                let tool = |name: &&str| json!({ "name": name, "inputSchema": schema });
                json!({ "tools": self.tools.lock().unwrap().iter().map(tool).collect::<Vec<_>>() })
            }
            "ping" if !self.is_silent.load(Ordering::SeqCst) => json!({}),
            "tools/call" if !self.is_silent.load(Ordering::SeqCst) => {
                self.served.fetch_add(1, Ordering::SeqCst);
                json!({ "content": [] })
            }
            "tools/call" => {
                self.late.lock().unwrap().push(asked["id"].clone());
                return None;
            }
            _ => return None,
        };
        Some(json!({ "jsonrpc": "2.0", "id": asked["id"], "result": result }))
    }

    fn late_answers(&self) -> Vec<Value> {
        if self.is_silent.load(Ordering::SeqCst) {
            return Vec::new();
        }
        let late = std::mem::take(&mut *self.late.lock().unwrap());
        late.iter().map(|id| json!({ "jsonrpc": "2.0", "id": id, "result": { "content": [] } })).collect()
    }
}

struct TestBridge {
    servers: Arc<ScriptedServers>,
    bridge: McpBridgeAdapter,
    begin: Instant,
}

impl TestBridge {
    async fn start(change: impl FnOnce(&mut ServerSettings)) -> Self {
        let transport =
            TransportSettings::Stdio { command: "x".into(), args: vec![], env: vec![], cwd: None };
        let mut server = ServerSettings::new(ServerName::parse("s").unwrap(), transport);
        change(&mut server);
        let servers =
            Arc::new(ScriptedServers { tools: Mutex::new(vec!["t"]), ..ScriptedServers::default() });
        let fleet = Arc::new(Fleet {
            snapshot: ArcSwap::from_pointee(Snapshot::default()),
            events: servers.clone(),
            traces: None,
            audit: None,
            metrics: crate::metrics::CallMetrics::default(),
            start: starter(servers.clone()),
            random: || 0.0,
            in_flight: Arc::default(),
            observers: std::sync::Mutex::default(),
            reconnect: true,
            starts_on_demand: true,
            last_listings: None,
            starting: Arc::new(Semaphore::new(1)),
            actors: TaskTracker::new(),
            stop: CancellationToken::new(),
            serials: AtomicU64::new(0),
        });
        let one = Server::spawn(Arc::new(server.clone()), ClientProfile::default(), &fleet);
        let settings = Settings { servers: vec![server], ..Settings::default() };
        let by_name = HashMap::from_iter([(one.settings.name.clone(), one)]);
        fleet.snapshot.store(Arc::new(Snapshot::new(Arc::new(settings), by_name)));
        let (bridge, begin) = (McpBridgeAdapter::of(fleet, false), Instant::now());
        // Takes no time on the clock. A test that kills the server needs it to be up.
        bridge.wait_for_first_starts(Duration::from_secs(1)).await;
        settle().await;
        Self { servers, bridge, begin }
    }

    fn health(&self) -> Health {
        use bascule_model::ProviderAdapter;
        self.bridge.health()[0].health
    }

    async fn call(&self) -> Result<(), (ErrorCode, Option<u32>)> {
        self.call_with("{}", None).await.map_err(|error| (error.code, error.attempts))
    }

    /// Calls the tool, at a given server or at the bridge's own.
    async fn call_with(&self, arguments: &str, server: Option<&Arc<Server>>) -> BridgeResult<()> {
        let arguments = serde_json::value::RawValue::from_string(arguments.into()).unwrap();
        let request = CallRequest { tool: ToolId::parse("s:t").unwrap(), arguments, timeout: None };
        let context = CallContext { server: server.cloned().map(Ok), ..CallContext::default() };
        self.bridge.call_with(request, context, None).await.map(drop)
    }

    fn server(&self) -> Arc<Server> {
        self.bridge.fleet.snapshot.load().servers["s"].clone()
    }

    async fn end(self) {
        use bascule_model::ProviderAdapter;
        self.bridge.terminate().await;
        settle().await;
        assert_eq!(self.servers.alive.load(Ordering::SeqCst), 0, "a server still runs");
    }
}

fn starter(servers: Arc<ScriptedServers>) -> Start {
    Box::new(move |settings, profile, abandoned, stop, progress| {
        let servers = servers.clone();
        Box::pin(async move {
            servers.starts.lock().unwrap().push(Instant::now());
            servers.alive_at_start.lock().unwrap().push(servers.alive.load(Ordering::SeqCst));
            if servers.refuses.load(Ordering::SeqCst) {
                return Err(normalise::start_error(&settings.name, "refused by the test"));
            }
            // A server in memory ends when its task runs next; a process has ended before `stop` returns.
            settle().await;
            let frame = StartContext {
                message_limit: 1 << 20,
                timeout: None,
                jailer: None,
                stop,
                profile,
                abandoned,
                progress,
                traces: None,
                trace: None,
                logged: Arc::default(),
            };
            let mut clock = StartClock::start(&settings, &frame);
            let upstream = Upstream::handshake(&mut clock, settings, servers.serve(), None, &frame).await?;
            let listed = upstream.list_tools().await?;
            Ok((Backend::Shared(upstream), listed))
        })
    })
}

/// Runs all tasks until they wait, without advancing the clock.
async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

// req: BR-09
#[tokio::test(start_paused = true)]
async fn retries_a_lost_server_with_backoff_and_then_gives_it_up() {
    let test = TestBridge::start(|server| server.keep_alive = None).await;
    advance(Duration::from_secs(60)).await;
    test.servers.refuses.store(true, Ordering::SeqCst);
    test.servers.kill();
    settle().await;
    let lost = Instant::now();
    assert_eq!(test.health(), Health::Degraded);
    let mut status = test.bridge.fleet.snapshot.load().servers["s"].watch();
    status.wait_for(|status| status.state.health() == Health::Unavailable).await.unwrap();
    let after: Vec<u128> =
        test.servers.starts.lock().unwrap()[1..].iter().map(|at| (*at - lost).as_millis()).collect();
    let expected = [1, 3, 7, 15, 31, 61, 91, 121, 151, 181].map(|seconds: u128| seconds * 1_000);
    // The clock of tokio ticks in milliseconds, and never early.
    assert!(after.iter().zip(expected).all(|(at, due)| (due..due + 20).contains(at)), "{after:?}");
    assert_eq!(after.len(), 10);
    assert!(matches!(
        &test.servers.named("provider.mcp.reconnect.exhausted")[..],
        [Event::ReconnectExhausted { attempts: 10, .. }]
    ));
    assert_eq!(test.call().await, Err((ErrorCode::ProviderUnavailable, None)));
    test.servers.refuses.store(false, Ordering::SeqCst);
    test.bridge.refresh(&ServerName::parse("s").unwrap()).await.unwrap();
    assert_eq!(test.health(), Health::Healthy);
    test.end().await;
}

// req: BR-08
#[tokio::test(start_paused = true)]
async fn restarts_an_idle_server_only_if_it_does_not_answer_a_ping() {
    let test = TestBridge::start(|_| {}).await;
    advance(Duration::from_secs(300)).await;
    settle().await;
    assert_eq!(test.servers.starts_since(test.begin).len(), 1);
    test.servers.is_silent.store(true, Ordering::SeqCst);
    let mut status = test.bridge.fleet.snapshot.load().servers["s"].watch();
    status.wait_for(|status| status.state.health() == Health::Degraded).await.unwrap();
    assert!(
        matches!(&test.servers.named("provider.mcp.disconnected")[..], [Event::Disconnected { cause, .. }] if cause.contains("ping"))
    );
    test.servers.is_silent.store(false, Ordering::SeqCst);
    status.wait_for(|status| status.state.health() == Health::Healthy).await.unwrap();
    assert_eq!(test.servers.named("provider.mcp.reconnected").len(), 1);
    test.end().await;
}

// req: SB-03
#[tokio::test(start_paused = true)]
async fn restarts_a_server_that_ignores_two_cancellations() {
    let test = TestBridge::start(|server| server.keep_alive = None).await;
    advance(Duration::from_secs(60)).await;
    test.servers.is_silent.store(true, Ordering::SeqCst);
    assert_eq!(test.call().await, Err((ErrorCode::ProviderTimeout, Some(1))));
    advance(Duration::from_secs(6)).await;
    settle().await;
    assert_eq!(test.health(), Health::Healthy, "once is not enough");
    assert_eq!(test.call().await, Err((ErrorCode::ProviderTimeout, Some(1))));
    let mut status = test.bridge.fleet.snapshot.load().servers["s"].watch();
    settle().await;
    // It responds again, but the earlier pings have no response.
    test.servers.is_silent.store(false, Ordering::SeqCst);
    status.wait_for(|status| status.restarts == 1).await.unwrap();
    let events = test.servers.named("provider.mcp.disconnected");
    assert!(
        matches!(&events[..], [Event::Disconnected { cause, .. }] if cause.contains("2 cancellations")),
        "{events:?}"
    );
    assert_eq!(test.call().await, Ok(()));
    test.end().await;
}

// req: BR-14
#[tokio::test(start_paused = true)]
async fn restarted_server_replaces_its_tools() {
    let test = TestBridge::start(|_| {}).await;
    *test.servers.tools.lock().unwrap() = vec!["u", "t"];
    test.servers.kill();
    let mut status = test.bridge.fleet.snapshot.load().servers["s"].watch();
    status.wait_for(|status| status.restarts == 1).await.unwrap();
    let names: Vec<String> = test.bridge.list_tools().iter().map(|tool| tool.id().to_string()).collect();
    assert_eq!(names, ["s:u", "s:t"]);
    let events = test.servers.named("provider.mcp.tools.refreshed");
    assert!(
        matches!(&events[..], [Event::ToolsRefreshed { added, removed, unchanged: 1, .. }] if added == &["u"] && removed.is_empty()),
        "{events:?}"
    );
    test.end().await;
}

const GRACE: Duration = Duration::from_secs(10);

// req: BR-13
#[tokio::test(start_paused = true)]
async fn retiring_server_waits_for_call_whose_arguments_are_being_checked() {
    let test = TestBridge::start(|_| {}).await;
    let server = test.server();
    // Long arguments are checked on a thread of the runtime, for which the paused clock waits. Large ones would use another.
    let arguments = json!({ "text": "x".repeat(128 << 10) }).to_string();
    let mut call = Box::pin(test.call_with(&arguments, Some(&server)));
    assert!(futures_util::poll!(&mut call).is_pending());
    let ((), called) = tokio::join!(server.retire(GRACE), call);
    called.unwrap();
    test.end().await;
}

// req: BR-13
#[tokio::test(start_paused = true)]
async fn retiring_server_waits_for_call_that_waits_for_its_first_start() {
    let test = TestBridge::start(|_| {}).await;
    let starting =
        Server::spawn(test.server().settings.clone(), ClientProfile::default(), &test.bridge.fleet);
    let mut call = Box::pin(test.call_with("{}", Some(&starting)));
    assert!(futures_util::poll!(&mut call).is_pending());
    let ((), called) = tokio::join!(starting.retire(GRACE), call);
    called.unwrap();
    test.end().await;
}

// req: US-01, BR-10
#[tokio::test(start_paused = true)]
async fn listing_names_server_that_is_still_starting() {
    let test = TestBridge::start(|_| {}).await;
    let fleet = &test.bridge.fleet;
    let slot = fleet.starting.clone().acquire_owned().await.unwrap();
    let starting = Server::spawn(test.server().settings.clone(), ClientProfile::default(), fleet);
    let servers = HashMap::from_iter([(starting.settings.name.clone(), starting)]);
    fleet.snapshot.store(Arc::new(Snapshot::new(fleet.snapshot.load().settings.clone(), servers)));
    let listing = crate::api::list_tools(&test.bridge, None).await.unwrap();
    assert_eq!(listing.start_failures[0].message, "server `s` has not started yet");
    drop(slot);
    let listing = crate::api::list_tools(&test.bridge, None).await.unwrap();
    assert_eq!((listing.tools.len(), listing.start_failures.len()), (1, 0));
    test.end().await;
}

impl TestBridge {
    /// Reloads with another timeout of the server.
    async fn reload(&self, call_timeout: u64) -> Reloaded {
        let mut settings = Settings::clone(&self.bridge.fleet.snapshot.load().settings);
        settings.servers[0].call_timeout = Duration::from_secs(call_timeout);
        self.bridge.reload(settings, GRACE).await
    }
}

// req: BR-13
#[tokio::test(start_paused = true)]
async fn later_reload_is_applied_after_an_earlier_one_and_stops_its_first_attempt() {
    let test = TestBridge::start(|_| {}).await;
    let (mut earlier, mut later) = (Box::pin(test.reload(1)), Box::pin(test.reload(2)));
    assert!(futures_util::poll!(&mut earlier).is_pending() && futures_util::poll!(&mut later).is_pending());
    settle().await;
    let reloaded = [earlier.await, later.await];
    assert!(reloaded.iter().all(|one| one.plan.changed.len() == 1 && !one.is_superseded), "{reloaded:?}");
    assert_eq!(test.server().settings.call_timeout, Duration::from_secs(2));
    // The later one starts its server twice: beside the old and the earlier one, then beside the earlier one alone.
    assert_eq!(*test.servers.alive_at_start.lock().unwrap(), [0, 1, 2, 1]);
    test.end().await;
}

// req: BR-13
#[tokio::test(start_paused = true)]
async fn earlier_reload_does_not_undo_a_later_one() {
    let test = TestBridge::start(|_| {}).await;
    let (mut earlier, mut later) = (Box::pin(test.reload(1)), Box::pin(test.reload(2)));
    assert!(futures_util::poll!(&mut earlier).is_pending() && futures_util::poll!(&mut later).is_pending());
    assert!(!later.await.is_superseded);
    let reloaded = earlier.await;
    assert!(reloaded.is_superseded && reloaded.plan == Plan::default(), "{reloaded:?}");
    assert_eq!(test.server().settings.call_timeout, Duration::from_secs(2));
    settle().await;
    assert_eq!(test.servers.alive.load(Ordering::SeqCst), 1);
    test.end().await;
}

// req: GW-04, BR-11
#[tokio::test(start_paused = true)]
async fn caller_that_leaves_before_a_retry_has_abandoned_nothing() {
    let test = TestBridge::start(|server| {
        let tool = ToolSettings {
            limits: server.limits.clone(),
            call_timeout: server.call_timeout,
            retry: RetryPolicy::Always,
        };
        server.tools.insert("t".into(), tool);
    })
    .await;
    let (in_flight, serial) = (&test.bridge.fleet.in_flight, test.server().serial);
    let counts = || (in_flight.has_requests_to(serial), in_flight.origins(serial).len());
    test.servers.is_silent.store(true, Ordering::SeqCst);
    let mut call = Box::pin(test.call());
    assert!(futures_util::poll!(&mut call).is_pending());
    settle().await;
    assert_eq!(counts(), (true, 1));
    test.servers.refuses.store(true, Ordering::SeqCst);
    test.servers.kill();
    settle().await;
    assert!(futures_util::poll!(&mut call).is_pending(), "it waits for the restart");
    assert_eq!((test.health(), counts()), (Health::Degraded, (true, 0)), "no process works on it");
    drop(call);
    assert_eq!(counts(), (false, 0));
    test.end().await;
}

// req: GW-04
#[tokio::test(start_paused = true)]
async fn late_response_ends_an_abandoned_call_without_a_client() {
    let test = TestBridge::start(|_| {}).await;
    let origins = || test.bridge.fleet.in_flight.origins(test.server().serial).len();
    test.servers.is_silent.store(true, Ordering::SeqCst);
    let mut call = Box::pin(test.call());
    assert!(futures_util::poll!(&mut call).is_pending());
    settle().await;
    drop(call);
    assert_eq!(origins(), 1);
    test.servers.is_silent.store(false, Ordering::SeqCst);
    test.call().await.unwrap();
    assert_eq!(origins(), 0);
    test.end().await;
}

#[derive(Debug, Clone)]
enum Action {
    Kill,
    Refuse(bool),
    Silence(bool),
    Wait(u64),
    Call,
    Refresh,
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        2 => Just(Action::Kill),
        1 => any::<bool>().prop_map(Action::Refuse),
        1 => any::<bool>().prop_map(Action::Silence),
        4 => (0..40_000u64).prop_map(Action::Wait),
        3 => Just(Action::Call),
        1 => Just(Action::Refresh),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    // req: BR-08
    // req: BR-11
    /// Health changes form a chain, at most one server runs at a time, every call has one end, only a call that a server ran
    /// succeeds, and no server is left at the end.
    #[test]
    fn keeps_its_invariants_in_any_sequence_of_actions(actions in prop::collection::vec(action(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let test = TestBridge::start(|server| {
                server.max_retries = 3;
                server.call_timeout = Duration::from_secs(2);
            }).await;
            let (mut made, mut answered) = (0, 0);
            for action in actions {
                match action {
                    Action::Kill => test.servers.kill(),
                    Action::Refuse(refuses) => test.servers.refuses.store(refuses, Ordering::SeqCst),
                    Action::Silence(silent) => test.servers.is_silent.store(silent, Ordering::SeqCst),
                    Action::Wait(millis) => tokio::time::sleep(Duration::from_millis(millis)).await,
                    Action::Call => {
                        made += 1;
                        answered += usize::from(test.call().await.is_ok());
                    }
                    Action::Refresh => {
                        let name = ServerName::parse("s").unwrap();
                        let refreshed = tokio::time::timeout(Duration::from_secs(300), test.bridge.refresh(&name));
                        prop_assert!(refreshed.await.is_ok(), "a refresh hangs");
                    }
                }
                settle().await;
            }
            prop_assert_eq!(test.servers.most_alive.load(Ordering::SeqCst), 1);
            prop_assert!(test.servers.served.load(Ordering::SeqCst) >= answered);
            let ends = test.servers.named("provider.mcp.tool.completed").len() + test.servers.named("provider.mcp.tool.failed").len();
            prop_assert_eq!(ends, made);
            let mut was = Health::Starting;
            for event in test.servers.named("provider.mcp.health.changed") {
                let Event::HealthChanged { from, to, .. } = event else { unreachable!() };
                prop_assert_eq!(from, was);
                was = to;
            }
            test.end().await;
            Ok(())
        })?;
    }
}

mod on_demand;
