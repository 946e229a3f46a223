//! The actor against servers in memory and a clock that the tests move: exact where real processes could not be.

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
use crate::fleet::upstream::{StartContext, Upstream};
use crate::fleet::{Fleet, Start};
use crate::normalise;
use crate::{McpBridgeAdapter, Plan, Reloaded};

/// What the servers of a test do, and what becomes of them.
#[derive(Default)]
struct Stage {
    refuses: AtomicBool,
    deaf: AtomicBool,
    /// The ids of calls that were not answered while it was deaf. They are answered with the next message.
    late: Mutex<Vec<Value>>,
    starts: Mutex<Vec<Instant>>,
    /// The number of servers that were alive at each start.
    alive_at_start: Mutex<Vec<usize>>,
    alive: AtomicUsize,
    most_alive: AtomicUsize,
    served: AtomicUsize,
    tools: Mutex<Vec<&'static str>>,
    /// Ends the one that is up.
    end: Mutex<CancellationToken>,
    events: Mutex<Vec<Event>>,
}

impl EventSink for Stage {
    fn offer(&self, event: Event) {
        self.events.lock().unwrap().push(event);
    }
}

impl Stage {
    fn kill(&self) {
        self.end.lock().unwrap().cancel();
    }

    fn starts_since(&self, begin: Instant) -> Vec<u128> {
        self.starts.lock().unwrap().iter().map(|at| (*at - begin).as_millis()).collect()
    }

    fn named(&self, name: &str) -> Vec<Event> {
        self.events.lock().unwrap().iter().filter(|event| event.name() == name).cloned().collect()
    }

    /// Plays a server until it is ended.
    fn play(self: &Arc<Self>) -> Transport {
        let (transport, mut far) = Transport::pair();
        let (stage, end) = (self.clone(), CancellationToken::new());
        *self.end.lock().unwrap() = end.clone();
        let alive = self.alive.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_alive.fetch_max(alive, Ordering::SeqCst);
        tokio::spawn(async move {
            while let Some(Some(frame)) = end.run_until_cancelled(far.incoming.recv()).await {
                let answer = stage.answer(&serde_json::from_slice(&frame).unwrap());
                for answer in stage.late_answers().into_iter().chain(answer) {
                    let _ = far.outgoing.send(answer.to_string().into_bytes()).await;
                }
            }
            stage.alive.fetch_sub(1, Ordering::SeqCst);
        });
        transport
    }

    fn answer(&self, asked: &Value) -> Option<Value> {
        let result = match asked["method"].as_str()? {
            "initialize" => json!({ "protocolVersion": "2025-11-25", "capabilities": {},
                                    "serverInfo": { "name": "stage", "version": "1" } }),
            "tools/list" => {
                let schema = json!({ "type": "object" });
                let tool = |name: &&str| json!({ "name": name, "inputSchema": schema });
                json!({ "tools": self.tools.lock().unwrap().iter().map(tool).collect::<Vec<_>>() })
            }
            "ping" if !self.deaf.load(Ordering::SeqCst) => json!({}),
            "tools/call" if !self.deaf.load(Ordering::SeqCst) => {
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
        if self.deaf.load(Ordering::SeqCst) {
            return Vec::new();
        }
        let late = std::mem::take(&mut *self.late.lock().unwrap());
        late.iter().map(|id| json!({ "jsonrpc": "2.0", "id": id, "result": { "content": [] } })).collect()
    }
}

struct Play {
    stage: Arc<Stage>,
    bridge: McpBridgeAdapter,
    begin: Instant,
}

impl Play {
    async fn start(change: impl FnOnce(&mut ServerSettings)) -> Self {
        let transport =
            TransportSettings::Stdio { command: "x".into(), args: vec![], env: vec![], cwd: None };
        let mut server = ServerSettings::new(ServerName::parse("s").unwrap(), transport);
        change(&mut server);
        let stage = Arc::new(Stage { tools: Mutex::new(vec!["t"]), ..Stage::default() });
        let fleet = Arc::new(Fleet {
            snapshot: ArcSwap::from_pointee(Snapshot::default()),
            events: stage.clone(),
            start: starter(stage.clone()),
            random: || 0.0,
            in_flight: Arc::default(),
            observer: std::sync::OnceLock::new(),
            reconnect: true,
            starting: Semaphore::new(1),
            actors: TaskTracker::new(),
            stop: CancellationToken::new(),
            serials: AtomicU64::new(0),
        });
        let one = Server::spawn(Arc::new(server.clone()), ClientProfile::default(), &fleet);
        let settings = Settings { servers: vec![server], ..Settings::default() };
        let servers = HashMap::from([(one.settings.name.clone(), one)]);
        fleet.snapshot.store(Arc::new(Snapshot::of(Arc::new(settings), servers)));
        let (bridge, begin) = (McpBridgeAdapter::of(fleet, false), Instant::now());
        // Takes turns, not time: who kills it must find it there.
        bridge.first_starts(Duration::from_secs(1)).await;
        settle().await;
        Self { stage, bridge, begin }
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
        assert_eq!(self.stage.alive.load(Ordering::SeqCst), 0, "nothing is left over");
    }
}

fn starter(stage: Arc<Stage>) -> Start {
    Box::new(move |settings, profile, abandoned, stop| {
        let stage = stage.clone();
        Box::pin(async move {
            stage.starts.lock().unwrap().push(Instant::now());
            stage.alive_at_start.lock().unwrap().push(stage.alive.load(Ordering::SeqCst));
            if stage.refuses.load(Ordering::SeqCst) {
                return Err(normalise::start_error(&settings.name, "it does not want to"));
            }
            // A server in memory learns of its end only when it is its turn; a process has ended before `stop` returns.
            settle().await;
            let frame = StartContext {
                message_limit: 1 << 20,
                timeout: None,
                jailer: None,
                stop,
                profile,
                abandoned,
            };
            let upstream = Upstream::handshake(settings, stage.play(), None, &frame).await?;
            let listed = upstream.list_tools().await?;
            Ok((Backend::Shared(upstream), listed))
        })
    })
}

/// Lets everybody do what they can do without time passing.
async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

// req: BR-09
#[tokio::test(start_paused = true)]
async fn a_server_that_stays_away_is_tried_at_the_promised_moments_and_then_given_up() {
    let play = Play::start(|server| server.keep_alive = None).await;
    advance(Duration::from_secs(60)).await;
    play.stage.refuses.store(true, Ordering::SeqCst);
    play.stage.kill();
    settle().await;
    let lost = Instant::now();
    assert_eq!(play.health(), Health::Degraded);
    let mut status = play.bridge.fleet.snapshot.load().servers["s"].watch();
    status.wait_for(|status| status.state.health() == Health::Unavailable).await.unwrap();
    let after: Vec<u128> =
        play.stage.starts.lock().unwrap()[1..].iter().map(|at| (*at - lost).as_millis()).collect();
    let expected = [1, 3, 7, 15, 31, 61, 91, 121, 151, 181].map(|seconds: u128| seconds * 1_000);
    // The clock of tokio ticks in milliseconds, and never early.
    assert!(after.iter().zip(expected).all(|(at, due)| (due..due + 20).contains(at)), "{after:?}");
    assert_eq!(after.len(), 10);
    assert!(matches!(
        &play.stage.named("provider.mcp.reconnect.exhausted")[..],
        [Event::ReconnectExhausted { attempts: 10, .. }]
    ));
    assert_eq!(play.call().await, Err((ErrorCode::ProviderUnavailable, None)));
    play.stage.refuses.store(false, Ordering::SeqCst);
    play.bridge.refresh(&ServerName::parse("s").unwrap()).await.unwrap();
    assert_eq!(play.health(), Health::Healthy);
    play.end().await;
}

// req: BR-08
#[tokio::test(start_paused = true)]
async fn an_idle_server_that_does_not_answer_is_lost_and_a_living_one_is_left_alone() {
    let play = Play::start(|_| {}).await;
    advance(Duration::from_secs(300)).await;
    settle().await;
    assert_eq!(play.stage.starts_since(play.begin).len(), 1);
    play.stage.deaf.store(true, Ordering::SeqCst);
    let mut status = play.bridge.fleet.snapshot.load().servers["s"].watch();
    status.wait_for(|status| status.state.health() == Health::Degraded).await.unwrap();
    assert!(
        matches!(&play.stage.named("provider.mcp.disconnected")[..], [Event::Disconnected { cause, .. }] if cause.contains("ping"))
    );
    play.stage.deaf.store(false, Ordering::SeqCst);
    status.wait_for(|status| status.state.health() == Health::Healthy).await.unwrap();
    assert_eq!(play.stage.named("provider.mcp.reconnected").len(), 1);
    play.end().await;
}

// req: SB-03
#[tokio::test(start_paused = true)]
async fn a_server_that_ignores_two_cancellations_is_restarted() {
    let play = Play::start(|server| server.keep_alive = None).await;
    advance(Duration::from_secs(60)).await;
    play.stage.deaf.store(true, Ordering::SeqCst);
    assert_eq!(play.call().await, Err((ErrorCode::ProviderTimeout, Some(1))));
    advance(Duration::from_secs(6)).await;
    settle().await;
    assert_eq!(play.health(), Health::Healthy, "once is not enough");
    assert_eq!(play.call().await, Err((ErrorCode::ProviderTimeout, Some(1))));
    let mut status = play.bridge.fleet.snapshot.load().servers["s"].watch();
    settle().await;
    // It may hear again by now: what it was asked before, it has not answered.
    play.stage.deaf.store(false, Ordering::SeqCst);
    status.wait_for(|status| status.restarts == 1).await.unwrap();
    let told = play.stage.named("provider.mcp.disconnected");
    assert!(
        matches!(&told[..], [Event::Disconnected { cause, .. }] if cause.contains("2 cancellations")),
        "{told:?}"
    );
    assert_eq!(play.call().await, Ok(()));
    play.end().await;
}

// req: BR-14
#[tokio::test(start_paused = true)]
async fn what_a_server_lists_after_its_return_is_what_there_is() {
    let play = Play::start(|_| {}).await;
    *play.stage.tools.lock().unwrap() = vec!["u", "t"];
    play.stage.kill();
    let mut status = play.bridge.fleet.snapshot.load().servers["s"].watch();
    status.wait_for(|status| status.restarts == 1).await.unwrap();
    let names: Vec<String> = play.bridge.list_tools().iter().map(|tool| tool.id().to_string()).collect();
    assert_eq!(names, ["s:u", "s:t"]);
    let told = play.stage.named("provider.mcp.tools.refreshed");
    assert!(
        matches!(&told[..], [Event::ToolsRefreshed { added, removed, unchanged: 1, .. }] if added == &["u"] && removed.is_empty()),
        "{told:?}"
    );
    play.end().await;
}

const GRACE: Duration = Duration::from_secs(10);

// req: BR-13
#[tokio::test(start_paused = true)]
async fn retiring_server_waits_for_call_whose_arguments_are_being_checked() {
    let play = Play::start(|_| {}).await;
    let server = play.server();
    // Long arguments are checked on another thread.
    let arguments = json!({ "text": "x".repeat(1 << 20) }).to_string();
    let mut call = Box::pin(play.call_with(&arguments, Some(&server)));
    assert!(futures_util::poll!(&mut call).is_pending());
    let ((), called) = tokio::join!(server.retire(GRACE), call);
    called.unwrap();
    play.end().await;
}

// req: BR-13
#[tokio::test(start_paused = true)]
async fn retiring_server_waits_for_call_that_waits_for_its_first_start() {
    let play = Play::start(|_| {}).await;
    let starting =
        Server::spawn(play.server().settings.clone(), ClientProfile::default(), &play.bridge.fleet);
    let mut call = Box::pin(play.call_with("{}", Some(&starting)));
    assert!(futures_util::poll!(&mut call).is_pending());
    let ((), called) = tokio::join!(starting.retire(GRACE), call);
    called.unwrap();
    play.end().await;
}

impl Play {
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
    let play = Play::start(|_| {}).await;
    let (mut earlier, mut later) = (Box::pin(play.reload(1)), Box::pin(play.reload(2)));
    assert!(futures_util::poll!(&mut earlier).is_pending() && futures_util::poll!(&mut later).is_pending());
    settle().await;
    let reloaded = [earlier.await, later.await];
    assert!(reloaded.iter().all(|one| one.plan.changed.len() == 1 && !one.is_superseded), "{reloaded:?}");
    assert_eq!(play.server().settings.call_timeout, Duration::from_secs(2));
    // The later one starts its server twice: beside the old and the earlier one, then beside the earlier one alone.
    assert_eq!(*play.stage.alive_at_start.lock().unwrap(), [0, 1, 2, 1]);
    play.end().await;
}

// req: BR-13
#[tokio::test(start_paused = true)]
async fn earlier_reload_does_not_undo_a_later_one() {
    let play = Play::start(|_| {}).await;
    let (mut earlier, mut later) = (Box::pin(play.reload(1)), Box::pin(play.reload(2)));
    assert!(futures_util::poll!(&mut earlier).is_pending() && futures_util::poll!(&mut later).is_pending());
    assert!(!later.await.is_superseded);
    let reloaded = earlier.await;
    assert!(reloaded.is_superseded && reloaded.plan == Plan::default(), "{reloaded:?}");
    assert_eq!(play.server().settings.call_timeout, Duration::from_secs(2));
    settle().await;
    assert_eq!(play.stage.alive.load(Ordering::SeqCst), 1);
    play.end().await;
}

// req: GW-04, BR-11
#[tokio::test(start_paused = true)]
async fn caller_that_leaves_before_a_retry_has_abandoned_nothing() {
    let play = Play::start(|server| {
        let tool = ToolSettings {
            limits: server.limits.clone(),
            call_timeout: server.call_timeout,
            retry: RetryPolicy::Always,
        };
        server.tools.insert("t".into(), tool);
    })
    .await;
    let origins = || play.bridge.fleet.in_flight.origins(play.server().serial).len();
    play.stage.deaf.store(true, Ordering::SeqCst);
    let mut call = Box::pin(play.call());
    assert!(futures_util::poll!(&mut call).is_pending());
    settle().await;
    play.stage.refuses.store(true, Ordering::SeqCst);
    play.stage.kill();
    settle().await;
    assert!(futures_util::poll!(&mut call).is_pending(), "it waits for the restart");
    assert_eq!((play.health(), origins()), (Health::Degraded, 1));
    drop(call);
    assert_eq!(origins(), 0);
    play.end().await;
}

// req: GW-04
#[tokio::test(start_paused = true)]
async fn late_response_ends_an_abandoned_call_without_a_client() {
    let play = Play::start(|_| {}).await;
    let origins = || play.bridge.fleet.in_flight.origins(play.server().serial).len();
    play.stage.deaf.store(true, Ordering::SeqCst);
    let mut call = Box::pin(play.call());
    assert!(futures_util::poll!(&mut call).is_pending());
    settle().await;
    drop(call);
    assert_eq!(origins(), 1);
    play.stage.deaf.store(false, Ordering::SeqCst);
    play.call().await.unwrap();
    assert_eq!(origins(), 0);
    play.end().await;
}

#[derive(Debug, Clone)]
enum Happening {
    Kill,
    Refuse(bool),
    Deaf(bool),
    Wait(u64),
    Call,
    Refresh,
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        2 => Just(Happening::Kill),
        1 => any::<bool>().prop_map(Happening::Refuse),
        1 => any::<bool>().prop_map(Happening::Deaf),
        4 => (0..40_000u64).prop_map(Happening::Wait),
        3 => Just(Happening::Call),
        1 => Just(Happening::Refresh),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    // req: BR-08
    // req: BR-11
    /// Whatever happens: states follow each other without a gap, no two servers live at once, every call comes to
    /// one end, a call is answered only by a server that ran it, and nothing is left over.
    #[test]
    fn no_sequence_of_events_confuses_an_actor(happenings in prop::collection::vec(happening(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let play = Play::start(|server| {
                server.max_retries = 3;
                server.call_timeout = Duration::from_secs(2);
            }).await;
            let (mut made, mut answered) = (0, 0);
            for happening in happenings {
                match happening {
                    Happening::Kill => play.stage.kill(),
                    Happening::Refuse(refuses) => play.stage.refuses.store(refuses, Ordering::SeqCst),
                    Happening::Deaf(deaf) => play.stage.deaf.store(deaf, Ordering::SeqCst),
                    Happening::Wait(millis) => tokio::time::sleep(Duration::from_millis(millis)).await,
                    Happening::Call => {
                        made += 1;
                        answered += usize::from(play.call().await.is_ok());
                    }
                    Happening::Refresh => {
                        let name = ServerName::parse("s").unwrap();
                        let refreshed = tokio::time::timeout(Duration::from_secs(300), play.bridge.refresh(&name));
                        prop_assert!(refreshed.await.is_ok(), "a refresh hangs");
                    }
                }
                settle().await;
            }
            prop_assert_eq!(play.stage.most_alive.load(Ordering::SeqCst), 1);
            prop_assert!(play.stage.served.load(Ordering::SeqCst) >= answered);
            let ends = play.stage.named("provider.mcp.tool.completed").len() + play.stage.named("provider.mcp.tool.failed").len();
            prop_assert_eq!(ends, made);
            let mut was = Health::Starting;
            for event in play.stage.named("provider.mcp.health.changed") {
                let Event::HealthChanged { from, to, .. } = event else { unreachable!() };
                prop_assert_eq!(from, was);
                was = to;
            }
            play.end().await;
            Ok(())
        })?;
    }
}
