//! Cost of many servers, and of a new process for each call.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bascule::McpBridgeAdapter;
use bascule::config::{Isolation, ServerSettings, TransportSettings};
use bascule_model::{CallRequest, ProviderAdapter, ToolId};
use bascule_testkit::binary;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{WATCHED, echo_servers, micros, target};

const PROGRAM: &str = env!("CARGO_BIN_EXE_bascule");

/// Sorted durations.
struct Times(Vec<Duration>);

impl Times {
    fn new(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Self(times)
    }

    /// Quantile in microseconds.
    fn at(&self, share: f64) -> f64 {
        micros(self.0[((self.0.len() - 1) as f64 * share) as usize])
    }
}

/// Compares calls in a new process from the pool with calls in a shared process of the same sandboxed server.
pub(super) async fn measure_isolation(calls: usize) {
    let demo = |isolation| {
        let (command, args) = (binary("bascule-demo").display().to_string(), vec!["counter".to_owned()]);
        let transport = TransportSettings::Stdio { command, args, env: Vec::new(), cwd: None };
        move |server: &mut ServerSettings| {
            server.transport = transport.clone();
            server.isolation = isolation;
        }
    };
    let (mut shared, mut fresh) = (Vec::new(), Vec::new());
    let [one, many] = [Isolation::Shared, Isolation::PerCall].map(demo);
    let (one, many) = (sandboxed(1, one).await, sandboxed(1, many).await);
    for _ in 0..calls {
        shared.push(call(&one, "echo-0:increment", "{}").await);
        while many.health()[0].pid.is_none() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // By then the previous process has exited, too.
        tokio::time::sleep(Duration::from_millis(2)).await;
        fresh.push(call(&many, "echo-0:increment", "{}").await);
    }
    one.terminate().await;
    many.terminate().await;
    let (shared, fresh) = (Times::new(shared), Times::new(fresh));
    println!("{:34}{:>10}{:>10}", format!("{calls} sandboxed calls each; microseconds"), "p50", "p99");
    println!("{:34}{:10.1}{:10.1}", "  in a shared process", shared.at(0.5), shared.at(0.99));
    println!("{:34}{:10.1}{:10.1}", "  in a new process from the pool", fresh.at(0.5), fresh.at(0.99));
    target("call in a new process from the pool, p50", fresh.at(0.5) / 1e3, 3.0, "ms");
}

/// Measures calls of other servers while one of many servers is replaced.
pub(super) async fn measure_reload(calls: usize) {
    let bridge = sandboxed(WATCHED, |_| {}).await;
    let others: Vec<String> = (1..WATCHED).map(|n| format!("echo-{n}:echo")).collect();
    let mut other = others.iter().cycle();
    let mut call_next = async || call(&bridge, other.next().unwrap(), super::ARGUMENTS).await;
    for _ in 0..calls / 10 {
        call_next().await;
    }
    let mut quiet = Vec::new();
    for _ in 0..calls {
        quiet.push(call_next().await);
    }
    let (mut during, mut took) = (Vec::new(), Vec::new());
    for round in 0..10 {
        let begin = Instant::now();
        let mut next = echo_servers(WATCHED, None).settings;
        next.servers[0].call_timeout = Duration::from_secs(100 + round);
        let reloading = bridge.reload(next, Duration::from_secs(5));
        tokio::pin!(reloading);
        loop {
            tokio::select! {
                biased;
                reloaded = &mut reloading => {
                    assert!(reloaded.plan.changed.len() == 1 && reloaded.refused.is_empty());
                    break;
                }
                time = call_next() => during.push(time),
            }
        }
        took.push(begin.elapsed());
    }
    bridge.terminate().await;
    let (quiet, during, took) = (Times::new(quiet), Times::new(during), Times::new(took));
    let title = format!("{WATCHED} servers, calls in microseconds");
    println!("{title:34}{:>10}{:>10}{:>10}", "p50", "p99", "slowest");
    for (name, times) in [("  without reload", &quiet), ("  during reload of one server", &during)] {
        println!("{name:34}{:10.1}{:10.1}{:10.1}", times.at(0.5), times.at(0.99), times.at(1.0));
    }
    println!("{:62}{:8.2} ms", "reload of one server, p50", took.at(0.5) / 1e3);
    let slower = during.at(1.0) / quiet.at(0.5);
    target("slowest call during reload / p50 without reload", slower, 2.0, "×");
    target("  p99 during reload / p50 without reload", during.at(0.99) / quiet.at(0.5), f64::NAN, "×");
    target("  slowest without reload / p50 without reload", quiet.at(1.0) / quiet.at(0.5), f64::NAN, "×");
}

/// Measures an idle `bascule serve` with many servers.
pub(super) fn measure_idle(idle: Duration) {
    let process = ServeProcess::start(WATCHED, 20);
    let (begin, before) = (Instant::now(), process.ticks());
    std::thread::sleep(idle);
    let share = (process.ticks() - before) as f64 / 100.0 / begin.elapsed().as_secs_f64();
    let what = format!("`bascule serve`, {WATCHED} servers with 20 tools each, idle");
    target(&format!("{what}: resident memory"), process.resident(), 25.0, "MB");
    target(&format!("{what}: share of a core"), share * 100.0, 0.5, "%");
}

/// A running `bascule serve` in a temporary folder.
struct ServeProcess {
    bridge: Child,
    folder: PathBuf,
}

impl ServeProcess {
    /// Returns after all servers are healthy.
    fn start(servers: usize, tools: usize) -> Self {
        let folder = std::env::temp_dir().join(format!("bascule-bench-serve-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let entry = json!({ "command": binary("echo-server"), "args": ["--tools", tools.to_string()] });
        let servers: Value = (0..servers).map(|n| (format!("echo-{n}"), entry.clone())).collect();
        std::fs::write(folder.join("mcp.json"), json!({ "mcpServers": servers }).to_string()).unwrap();
        let bridge = bascule(&folder, &["serve", "--auth", "none", "--listen", "127.0.0.1:0"])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let process = Self { bridge, folder };
        while !process.is_ready() {
            std::thread::sleep(Duration::from_millis(100));
        }
        process
    }

    fn is_ready(&self) -> bool {
        let status = bascule(&self.folder, &["status", "--json"]).output().unwrap();
        let status: Value = serde_json::from_slice(&status.stdout).unwrap_or_default();
        let healthy = |server: &Value| server["health"] == "healthy" && server["tools"] == 20;
        status["servers"].as_array().is_some_and(|servers| servers.iter().all(healthy))
    }

    /// CPU time of the process in hundredths of a second.
    fn ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.bridge.id())).unwrap();
        let fields = stat.rsplit_once(") ").unwrap().1.split(' ').skip(11).take(2);
        fields.map(|field| field.parse::<u64>().unwrap()).sum()
    }

    /// Resident memory in MB.
    fn resident(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.bridge.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1000.0
    }
}

impl Drop for ServeProcess {
    fn drop(&mut self) {
        // SIGTERM, so that the bridge stops its servers and removes its socket.
        let _ = Command::new("kill").arg(self.bridge.id().to_string()).status();
        let _ = self.bridge.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn bascule(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(["--config", "mcp.json"]).args(arguments).current_dir(folder);
    command.envs(["XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"].map(|name| (name, folder)));
    command
}

/// Starts a bridge with this many sandboxed servers and applies a change to each.
async fn sandboxed(servers: usize, change: impl Fn(&mut ServerSettings)) -> McpBridgeAdapter {
    let mut config = echo_servers(servers, Some(PROGRAM));
    config.settings.servers.iter_mut().for_each(change);
    let bridge = McpBridgeAdapter::init(config).await.unwrap();
    assert!(bridge.list_tools().len() >= servers);
    bridge
}

async fn call(bridge: &McpBridgeAdapter, tool: &str, arguments: &str) -> Duration {
    let arguments = RawValue::from_string(arguments.to_owned()).unwrap();
    let request = CallRequest { tool: ToolId::parse(tool).unwrap(), arguments, timeout: None };
    let begin = Instant::now();
    bridge.execute(request, None).await.unwrap();
    begin.elapsed()
}
