//! A long time of bad luck: servers are killed, stopped, changed, added and removed at random while calls are made
//! whose side effects are counted. Nothing may be lost, done twice, or left over.
//!
//! A short time by default; `make soak` takes `SOAK_SECONDS`. `SOAK_SEED` repeats a sequence, as far as processes do.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    dead_code,
    unreachable_pub,
    reason = "a test may fail where it stands, its figures are worth a look, and it uses what it needs of `support`"
)]

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

use support::{
    cgroups_of, children, demo_program, eventually, has_no_new_descriptors, open_descriptors, program,
    resident_kb,
};

/// How many names there are for servers; not all have one all the time.
const SERVERS: u64 = 5;
/// How many call at the same time.
const CALLERS: u64 = 6;
/// How much more memory there may be in use afterwards, in kB.
const MORE_MEMORY: u64 = 24 << 10;

// req: BR-07, BR-09, BR-11, BR-13, SB-05
#[test]
fn bad_luck_loses_nothing_does_nothing_twice_and_leaves_nothing() {
    let seconds = std::env::var("SOAK_SECONDS").map_or(15, |seconds| seconds.parse().unwrap());
    let seed =
        std::env::var("SOAK_SEED").map_or_else(|_| std::process::id().into(), |seed| seed.parse().unwrap());
    println!("{seconds} seconds, SOAK_SEED={seed}");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(soak(Duration::from_secs(seconds), seed));
}

async fn soak(time: Duration, seed: u64) {
    // What is made once and kept (the runtime's own, the watchdog) is there after the first.
    live(Duration::from_secs(1), seed).await;
    let (before, memory) = (open_descriptors(), resident_kb());
    let tasks = alive_tasks();
    live(time, seed).await;
    // What the system has still to close, it closes.
    eventually("no descriptor is left", || has_no_new_descriptors(&before));
    eventually("no task is left", || alive_tasks() <= tasks);
    let more = resident_kb().saturating_sub(memory);
    println!("{more} kB more memory, {tasks} tasks, {} descriptors", before.len());
    assert!(more < MORE_MEMORY, "{more} kB");
}

fn alive_tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// The life of one bridge.
async fn live(time: Duration, seed: u64) {
    let folder = tempfile::tempdir().unwrap();
    let ledger = Arc::<Ledger>::default();
    let mut luck = Luck(seed | 1);
    let mut world = World::new(folder.path());
    let config = BridgeConfig {
        jailer: Some(program().into()),
        events: ledger.clone(),
        ..BridgeConfig::new(world.settings())
    };
    let bridge = Arc::new(McpBridgeAdapter::init(config).await.unwrap());
    let until = Instant::now() + time;
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        callers.spawn(call_until(until, bridge.clone(), ledger.clone(), Luck(luck.next() | 1)));
    }
    let mischief = mischief(until, &bridge, &mut world, &mut luck).await;
    callers.join_all().await;
    bridge.terminate().await;
    assert_eq!(children(std::process::id()), [] as [u32; 0], "no process is left, not even as a zombie");
    // The watchdog may be looking at the last of them.
    eventually("no control group is left", || cgroups_of(std::process::id()).is_empty());
    ledger.balance(&side_effects(folder.path()), &mischief);
}

/// A number after another, the same ones for the same seed.
struct Luck(u64);

impl Luck {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16
    }

    fn below(&mut self, most: u64) -> u64 {
        self.next() % most
    }

    async fn pause(&mut self, most_millis: u64) {
        sleep(Duration::from_millis(self.below(most_millis))).await;
    }
}

/// The configuration as it is meant to be: which servers there are, and which version of each.
struct World {
    folder: PathBuf,
    servers: BTreeMap<String, u64>,
    versions: u64,
}

impl World {
    fn new(folder: &Path) -> Self {
        let servers = (0..SERVERS).map(|n| (format!("c{n}"), n)).collect();
        Self { folder: folder.to_owned(), servers, versions: SERVERS }
    }

    /// Adds, changes or removes one.
    fn change(&mut self, luck: &mut Luck) -> &'static str {
        let name = format!("c{}", luck.below(SERVERS));
        self.versions += 1;
        let known = self.servers.contains_key(&name);
        if known && luck.below(3) == 0 {
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

    /// Each version counts in a file of its own: a server that starts reads what was counted before.
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

/// Until the time has come: one misfortune after another. Says how many of each there were.
async fn mischief(
    until: Instant,
    bridge: &Arc<McpBridgeAdapter>,
    world: &mut World,
    luck: &mut Luck,
) -> BTreeMap<&'static str, u32> {
    let (mut done, mut going_on) = (BTreeMap::new(), JoinSet::new());
    while Instant::now() < until {
        luck.pause(400).await;
        let what = match luck.below(8) {
            0..3 => hit(bridge, luck, Signal::KILL).map(|_| "killed"),
            3..5 => hit(bridge, luck, Signal::STOP).map(|pid| {
                let wait = Duration::from_millis(luck.below(3_000));
                // Some wake up by themselves; the others have to be found out.
                if luck.below(2) == 0 {
                    going_on.spawn(async move {
                        sleep(wait).await;
                        let _ = kill_process(pid, Signal::CONT);
                    });
                }
                "stopped"
            }),
            5..7 => {
                let what = world.change(luck);
                bridge.reload(world.settings(), Duration::from_secs(1)).await;
                Some(what)
            }
            _ => {
                let server =
                    bridge.health().get(luck.below(SERVERS) as usize).map(|server| server.name.clone());
                if let Some(server) = server {
                    let _ = timeout(Duration::from_secs(1), bridge.refresh(&server)).await;
                }
                Some("refreshed")
            }
        };
        what.into_iter().for_each(|what| *done.entry(what).or_default() += 1);
    }
    going_on.join_all().await;
    done
}

/// Sends a signal to a server, or to the jail it is in.
fn hit(bridge: &McpBridgeAdapter, luck: &mut Luck, signal: Signal) -> Option<Pid> {
    let jails: Vec<u32> = bridge.health().iter().filter_map(|server| server.pid).collect();
    let jail = *jails.get(luck.below(jails.len().max(1) as u64) as usize)?;
    let of_jail = luck.below(4) == 0;
    let pid = if of_jail { jail } else { *children(jail).first()? };
    let pid = Pid::from_raw(pid as i32)?;
    // It may be gone by itself.
    kill_process(pid, signal).ok().map(|()| pid)
}

/// Calls with tokens of its own until the time has come.
async fn call_until(until: Instant, bridge: Arc<McpBridgeAdapter>, ledger: Arc<Ledger>, mut luck: Luck) {
    while Instant::now() < until {
        let (server, token) = (luck.below(SERVERS), ledger.open());
        let duration = Duration::from_millis(if luck.below(4) == 0 { luck.below(30) } else { 5_000 });
        let request = CallRequest {
            tool: ToolId::parse(&format!("c{server}:increment")).unwrap(),
            arguments: RawValue::from_string(json!({ "token": token.to_string() }).to_string()).unwrap(),
            timeout: Some(CallTimeout { since: Instant::now(), duration }),
        };
        let id = CorrelationId::parse(&token.to_string()).unwrap();
        let calling = bridge.execute(request, Some(id));
        let ended = if luck.below(10) == 0 {
            // Some leave.
            timeout(Duration::from_micros(luck.below(5_000)), calling).await.ok()
        } else {
            Some(calling.await)
        };
        ledger.close(token, ended.map(|ended| ended.map(drop)));
        luck.pause(20).await;
    }
}

/// What came of a call, as its caller knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Succeeded,
    NotSent,
    /// Sent, and nobody knows whether it ran; or the caller left.
    Open,
}

/// The calls, in the order of their tokens.
#[derive(Default)]
struct Ledger(Mutex<Vec<Entry>>);

#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    end: Option<End>,
    code: Option<ErrorCode>,
    /// How many events told of its end.
    told: u8,
}

impl EventSink for Ledger {
    fn offer(&self, event: Event) {
        if let Event::ToolCompleted { correlation_id, .. } | Event::ToolFailed { correlation_id, .. } = event
        {
            let token: usize = correlation_id.as_str().parse().unwrap();
            self.0.lock().unwrap()[token].told += 1;
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
        assert_eq!(entry.end, None, "one outcome");
        entry.code = ended.as_ref().and_then(|ended| ended.as_ref().err()).map(|error| error.code);
        entry.end = Some(match ended {
            Some(Ok(())) => End::Succeeded,
            Some(Err(error)) if error.delivery == Delivery::NotSent => End::NotSent,
            _ => End::Open,
        });
    }

    /// Every call ended once, was told of once, and did what its end says.
    fn balance(&self, effects: &HashMap<usize, u32>, mischief: &BTreeMap<&'static str, u32>) {
        let entries = self.0.lock().unwrap();
        let mut ends = BTreeMap::<String, u32>::new();
        for (token, entry) in entries.iter().enumerate() {
            let times = effects.get(&token).copied().unwrap_or(0);
            let end = entry.end.expect("every call ended");
            // A caller who left before the call began was never told of; it left nothing either.
            let untold = end == End::Open && entry.code.is_none() && entry.told == 0 && times == 0;
            assert!(entry.told == 1 || untold, "call {token} was told of {} times: {entry:?}", entry.told);
            let right = match end {
                End::Succeeded => times == 1,
                End::NotSent => times == 0,
                End::Open => times <= 1,
            };
            assert!(right, "call {token} ran {times} times: {entry:?}");
            let how = entry.code.map_or_else(|| format!("{end:?}"), |code| format!("{end:?} {code:?}"));
            *ends.entry(how).or_default() += 1;
        }
        println!("{} calls: {ends:?}; {mischief:?}", entries.len());
        assert!(effects.keys().all(|token| *token < entries.len()), "no token came from nowhere");
    }
}

/// How often each token was counted, over all servers and all their lives.
fn side_effects(folder: &Path) -> HashMap<usize, u32> {
    let mut effects = HashMap::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        for line in text.lines() {
            // What was killed while it wrote may have left half a line, which the next one goes on.
            let whole = line.rfind(r#"{"by""#).map_or("", |at| &line[at..]);
            let Ok(line) = serde_json::from_str::<Value>(whole) else { continue };
            *effects.entry(line["token"].as_str().unwrap().parse().unwrap()).or_default() += 1;
        }
    }
    effects
}
