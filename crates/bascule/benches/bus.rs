//! Measures calls of an agent through two replicas of its bridge over NATS: `cargo bench -p bascule --bench bus`. Bridges, echo
//! servers and `nats-server` are processes of their own; the agent is this process. The broker is that of `scripts/test-env`.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "the program prints its measurements")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bascule_agent::{AgentName, Bus, BusOptions, BusUrl, McpToolProxy, ProxyOptions};
use bascule_testkit::{NatsServer, binary};
use serde_json::json;
use tokio::task::JoinSet;

const REPLICAS: usize = 2;
/// The agents of the measurement of throughput, with calls in flight for each.
const AGENTS: usize = 2;
const IN_FLIGHT: usize = 64;
const TARGET_RATE: f64 = 10_000.0;

/// `read` is safe to repeat: it begins before its claim is known.
const TOOLS: &str = r#"[{"name":"read","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}},{"name":"write","inputSchema":{"type":"object"}}]"#;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.unwrap().block_on(run());
}

async fn run() {
    let quick = std::env::var_os("BASCULE_BENCH_QUICK").is_some();
    let (rounds, calls) = if quick { (100, 2_000) } else { (2_000, 60_000) };
    let server = NatsServer::start();
    let _replicas: Vec<_> = (0..REPLICAS).map(|number| BusBridge::start(number, &server.url())).collect();
    for tool in ["echo:read", "echo:write"] {
        let proxy = connect(&server).await;
        wait_for(&proxy, tool).await;
        one_by_one(&proxy, tool, rounds).await;
        throughput(&server, tool, calls).await;
    }
}

async fn connect(server: &NatsServer) -> McpToolProxy {
    let bus = Bus::connect(&BusOptions::new(BusUrl::parse(&server.url()).unwrap())).await.unwrap();
    McpToolProxy::connect(&bus, &AgentName::parse("bench").unwrap(), ProxyOptions::default()).await.unwrap()
}

/// A bridge whose server is still starting does not know the tool yet.
async fn wait_for(proxy: &McpToolProxy, tool: &str) {
    let mut successes = 0;
    while successes < 50 * REPLICAS {
        successes = if call(proxy, tool).await { successes + 1 } else { 0 };
    }
}

async fn call(proxy: &McpToolProxy, tool: &str) -> bool {
    proxy.call(tool, &json!({ "message": "x".repeat(200) })).await.is_ok()
}

async fn one_by_one(proxy: &McpToolProxy, tool: &str, rounds: usize) {
    let mut durations = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let started = Instant::now();
        assert!(call(proxy, tool).await);
        durations.push(started.elapsed());
    }
    durations.sort();
    let (median, late) = (durations[rounds / 2], durations[rounds * 99 / 100]);
    println!("{:<56} p50 {median:>9.1?}  p99 {late:>9.1?}", format!("{tool}, one call at a time"));
}

async fn throughput(server: &NatsServer, tool: &'static str, calls: usize) {
    let share = calls / (AGENTS * IN_FLIGHT);
    let mut proxies = Vec::new();
    for _ in 0..AGENTS {
        proxies.push(connect(server).await);
    }
    let (started, mut callers) = (Instant::now(), JoinSet::new());
    for proxy in proxies.iter().flat_map(|proxy| std::iter::repeat_n(proxy, IN_FLIGHT)) {
        let proxy = proxy.clone();
        callers.spawn(async move {
            let mut failures = 0;
            for _ in 0..share {
                failures += usize::from(!call(&proxy, tool).await);
            }
            failures
        });
    }
    let failures: usize = callers.join_all().await.into_iter().sum();
    let rate = (share * AGENTS * IN_FLIGHT) as f64 / started.elapsed().as_secs_f64();
    let verdict = if rate >= TARGET_RATE && failures == 0 { "met" } else { "MISSED" };
    let title = format!("{tool}, {REPLICAS} replicas, {} calls in flight", AGENTS * IN_FLIGHT);
    println!("{title:<56} {rate:>8.0} calls/s, {failures} failed   target {TARGET_RATE}: {verdict}");
}

/// `bascule serve --agent` with an echo server, in a folder of its own.
struct BusBridge {
    process: Child,
    folder: PathBuf,
}

impl BusBridge {
    /// Returns once the bridge serves the bus.
    fn start(number: usize, url: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("bascule-bench-bus-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let tools = folder.join("tools.json");
        std::fs::write(&tools, TOOLS).unwrap();
        let echo = json!({ "command": binary("echo-server"), "args": ["--list", tools] });
        let config = json!({ "mcpServers": { "echo": echo }, "bascule": { "bus": { "prefetch": 128 } } });
        std::fs::write(folder.join("mcp.json"), config.to_string()).unwrap();
        let mut process = bascule(&folder, url).spawn().unwrap();
        let mut stderr = BufReader::new(process.stderr.take().unwrap());
        let (begin, mut text) = (Instant::now(), String::new());
        while !text.contains("serving agent") {
            assert!(stderr.read_line(&mut text).unwrap() > 0, "the bridge has ended:\n{text}");
            assert!(begin.elapsed() < Duration::from_secs(60), "the bridge does not serve the bus:\n{text}");
        }
        // Drains the pipe.
        std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
        Self { process, folder }
    }
}

impl Drop for BusBridge {
    fn drop(&mut self) {
        // SIGTERM, so that the bridge stops its server.
        let _ = Command::new("kill").arg(self.process.id().to_string()).status();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn bascule(folder: &Path, url: &str) -> Command {
    let other = std::env::var_os("BASCULE_BENCH_BINARY");
    let mut command = Command::new(other.unwrap_or_else(|| env!("CARGO_BIN_EXE_bascule").into()));
    command.args(["--config", "mcp.json", "serve", "--agent", "bench", "--bus", url]).current_dir(folder);
    command.envs(["XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"].map(|name| (name, folder)));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}
