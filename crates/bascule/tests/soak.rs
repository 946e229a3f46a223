//! Soak test: servers are killed, stopped, changed, added and removed at random during calls whose side effects are
//! counted. No call may be lost or run twice, and no resource may leak.
//!
//! Runs for a short time by default, or for `SOAK_SECONDS` (`make soak`). `SOAK_SEED` repeats a random sequence.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    dead_code,
    unreachable_pub,
    reason = "tests may panic, print figures and use only parts of `support`"
)]

mod soak_support;
#[path = "e2e/support.rs"]
mod support;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bascule::config::{Settings, SourceFile, parse};
use bascule::{BridgeConfig, McpBridgeAdapter};
use bascule_model::{
    BridgeError, CallRequest, CallTimeout, CorrelationId, Delivery, ErrorCode, Event, EventSink,
    ProviderAdapter, ToolId,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use soak_support::{Random, count_side_effects};
use support::{
    cgroups_of, children, demo_program, eventually, has_no_new_descriptors, open_descriptors, program,
    resident_kb,
};

/// Number of server names; not all are configured all the time.
const SERVERS: u64 = 5;
/// Number of concurrent callers.
const CALLERS: u64 = 6;
/// Allowed growth of resident memory in kB.
const MORE_MEMORY: u64 = 24 << 10;

// req: BR-07, BR-09, BR-11, BR-13, SB-05
#[test]
fn random_faults_lose_no_call_and_leak_nothing() {
    let (time, random) = soak_support::settings(15);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(soak(time, &random));
}

async fn soak(time: Duration, random: &Random) {
    // The first run creates what is kept for the whole process (runtime, watchdog).
    run_bridge(Duration::from_secs(1), random.clone()).await;
    let (before, memory) = (open_descriptors(), resident_kb());
    let tasks = alive_tasks();
    run_bridge(time, random.clone()).await;
    // The system may still be closing descriptors.
    eventually("no descriptor is left", || has_no_new_descriptors(&before));
    eventually("no task is left", || alive_tasks() <= tasks);
    let more = resident_kb().saturating_sub(memory);
    println!("{more} kB more memory, {tasks} tasks, {} descriptors", before.len());
    assert!(more < MORE_MEMORY, "{more} kB");
}

fn alive_tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// Runs one bridge with random faults and checks the outcome of every call.
async fn run_bridge(time: Duration, mut random: Random) {
    let folder = tempfile::tempdir().unwrap();
    let ledger = Arc::<Ledger>::default();
    let mut config_state = RandomConfig::new(folder.path());
    let config = BridgeConfig {
        jailer: Some(program().into()),
        events: ledger.clone(),
        ..BridgeConfig::new(config_state.settings())
    };
    let bridge = Arc::new(McpBridgeAdapter::init(config).await.unwrap());
    let deadline = Instant::now() + time;
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        callers.spawn(call_until(deadline, bridge.clone(), ledger.clone(), random.split()));
    }
    let faults = inject_faults(deadline, &bridge, &mut config_state, &mut random).await;
    callers.join_all().await;
    bridge.terminate().await;
    assert_eq!(children(std::process::id()), [] as [u32; 0], "a process or zombie is left");
    // The watchdog may still be reading the last group.
    eventually("no control group is left", || cgroups_of(std::process::id()).is_empty());
    ledger.check(&side_effects(folder.path()), &faults);
}

/// The current configuration: names of servers and the version of each.
struct RandomConfig {
    folder: PathBuf,
    servers: BTreeMap<String, u64>,
    versions: u64,
}

impl RandomConfig {
    fn new(folder: &Path) -> Self {
        let servers = (0..SERVERS).map(|n| (format!("c{n}"), n)).collect();
        Self { folder: folder.to_owned(), servers, versions: SERVERS }
    }

    /// Adds, changes or removes a server.
    fn change(&mut self, random: &mut Random) -> &'static str {
        let name = format!("c{}", random.below(SERVERS));
        self.versions += 1;
        let known = self.servers.contains_key(&name);
        if known && random.below(3) == 0 {
            self.servers.remove(&name);
            return "removed";
        }
        self.servers.insert(name, self.versions);
        if known { "changed" } else { "added" }
    }

    fn settings(&self) -> Settings {
        let servers: Value =
            self.servers.iter().map(|(name, version)| (name.clone(), self.entry(*version))).collect();
        let origin = SourceFile { name: "mcp.json".into(), directory: self.folder.clone() };
        parse(&json!({ "mcpServers": servers }).to_string(), &origin, &|_| None).unwrap().settings
    }

    /// Each version counts in its own file, which a restarted server reads.
    fn entry(&self, version: u64) -> Value {
        json!({
            "command": demo_program(), "args": ["counter"], "cwd": self.folder,
            "env": { "BASCULE_DEMO_COUNTER_FILE": self.folder.join(format!("{version}.count")) },
            "isolation": if version % 4 == 3 { "per-call" } else { "shared" },
            "timeoutMs": 2_000, "startTimeoutMs": 20_000, "cancelGraceMs": 300, "keepAliveMs": 500,
            "reconnectBackoffMs": 10, "maxRetries": 1_000,
        })
    }
}

/// Injects random faults until the deadline. Returns the number of each kind.
async fn inject_faults(
    deadline: Instant,
    bridge: &Arc<McpBridgeAdapter>,
    config_state: &mut RandomConfig,
    random: &mut Random,
) -> BTreeMap<&'static str, u32> {
    let (mut done, mut wakeups) = (BTreeMap::new(), JoinSet::new());
    while Instant::now() < deadline {
        random.pause(400).await;
        let what = match random.below(8) {
            0..3 => signal_random(bridge, random, Signal::KILL).map(|_| "killed"),
            3..5 => signal_random(bridge, random, Signal::STOP).map(|pid| {
                let wait = Duration::from_millis(random.below(3_000));
                // Half of them continue by themselves; the bridge must detect the others.
                if random.below(2) == 0 {
                    wakeups.spawn(async move {
                        sleep(wait).await;
                        let _ = kill_process(pid, Signal::CONT);
                    });
                }
                "stopped"
            }),
            5..7 => {
                let what = config_state.change(random);
                bridge.reload(config_state.settings(), Duration::from_secs(1)).await;
                Some(what)
            }
            _ => {
                let server =
                    bridge.health().get(random.below(SERVERS) as usize).map(|server| server.name.clone());
                if let Some(server) = server {
                    let _ = timeout(Duration::from_secs(1), bridge.refresh(&server)).await;
                }
                Some("refreshed")
            }
        };
        what.into_iter().for_each(|what| *done.entry(what).or_default() += 1);
    }
    wakeups.join_all().await;
    done
}

/// Sends a signal to a random server or to its jail.
fn signal_random(bridge: &McpBridgeAdapter, random: &mut Random, signal: Signal) -> Option<Pid> {
    let jails: Vec<u32> = bridge.health().iter().filter_map(|server| server.pid).collect();
    let jail = *jails.get(random.below(jails.len().max(1) as u64) as usize)?;
    let of_jail = random.below(4) == 0;
    let pid = if of_jail { jail } else { *children(jail).first()? };
    let pid = Pid::from_raw(pid as i32)?;
    // The process may have exited already.
    kill_process(pid, signal).ok().map(|()| pid)
}

/// Makes calls with unique tokens until the deadline.
async fn call_until(
    deadline: Instant,
    bridge: Arc<McpBridgeAdapter>,
    ledger: Arc<Ledger>,
    mut random: Random,
) {
    while Instant::now() < deadline {
        let (server, token) = (random.below(SERVERS), ledger.open());
        let duration = Duration::from_millis(if random.below(4) == 0 { random.below(30) } else { 5_000 });
        let request = CallRequest {
            tool: ToolId::parse(&format!("c{server}:increment")).unwrap(),
            arguments: RawValue::from_string(json!({ "token": token.to_string() }).to_string()).unwrap(),
            timeout: Some(CallTimeout { since: Instant::now(), duration }),
        };
        let id = CorrelationId::parse(&token.to_string()).unwrap();
        let calling = bridge.execute(request, Some(id));
        let ended = if random.below(10) == 0 {
            // Some callers drop the call.
            timeout(Duration::from_micros(random.below(5_000)), calling).await.ok()
        } else {
            Some(calling.await)
        };
        ledger.close(token, ended.map(|ended| ended.map(drop)));
        random.pause(20).await;
    }
}

/// Outcome of a call as its caller sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Succeeded,
    NotSent,
    /// The call may have run, or its caller left.
    Unknown,
}

/// All calls, indexed by token.
#[derive(Default)]
struct Ledger(Mutex<Vec<Entry>>);

#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    outcome: Option<Outcome>,
    code: Option<ErrorCode>,
    /// Number of final events.
    events: u8,
}

impl EventSink for Ledger {
    fn offer(&self, event: Event) {
        if let Event::ToolCompleted { correlation_id, .. } | Event::ToolFailed { correlation_id, .. } = event
        {
            let token: usize = correlation_id.as_str().parse().unwrap();
            self.0.lock().unwrap()[token].events += 1;
        }
    }
}

impl Ledger {
    fn open(&self) -> usize {
        let mut entries = self.0.lock().unwrap();
        entries.push(Entry::default());
        entries.len() - 1
    }

    fn close(&self, token: usize, ended: Option<Result<(), Box<BridgeError>>>) {
        let entry = &mut self.0.lock().unwrap()[token];
        assert_eq!(entry.outcome, None, "one outcome");
        entry.code = ended.as_ref().and_then(|ended| ended.as_ref().err()).map(|error| error.code);
        entry.outcome = Some(match ended {
            Some(Ok(())) => Outcome::Succeeded,
            Some(Err(error)) if error.delivery == Delivery::NotSent => Outcome::NotSent,
            _ => Outcome::Unknown,
        });
    }

    /// Checks that every call has one outcome and one event, and that its side effects match the outcome.
    fn check(&self, effects: &HashMap<usize, u32>, faults: &BTreeMap<&'static str, u32>) {
        let entries = self.0.lock().unwrap();
        let mut ends = BTreeMap::<String, u32>::new();
        for (token, entry) in entries.iter().enumerate() {
            let times = effects.get(&token).copied().unwrap_or(0);
            let end = entry.outcome.expect("every call ended");
            // A call that was dropped before its first poll has no event and no side effect.
            let is_dropped =
                end == Outcome::Unknown && entry.code.is_none() && entry.events == 0 && times == 0;
            assert!(
                entry.events == 1 || is_dropped,
                "call {token} has {} final events: {entry:?}",
                entry.events
            );
            let right = match end {
                Outcome::Succeeded => times == 1,
                Outcome::NotSent => times == 0,
                Outcome::Unknown => times <= 1,
            };
            assert!(right, "call {token} ran {times} times: {entry:?}");
            let how = entry.code.map_or_else(|| format!("{end:?}"), |code| format!("{end:?} {code:?}"));
            *ends.entry(how).or_default() += 1;
        }
        println!("{} calls: {ends:?}; {faults:?}", entries.len());
        assert!(effects.keys().all(|token| *token < entries.len()), "unknown token");
    }
}

/// Number of side effects of each token, over all servers and restarts.
fn side_effects(folder: &Path) -> HashMap<usize, u32> {
    let mut effects = HashMap::new();
    for file in std::fs::read_dir(folder).unwrap() {
        count_side_effects(&file.unwrap().path(), &mut effects);
    }
    effects
}
