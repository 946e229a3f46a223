//! Cost of calls through the client library and the bridge, compared with a bare pipe or socket, and cost of
//! sandboxed servers, compared with unsandboxed ones.
//!
//! `make bench`. Calls are measured on an idle machine, where every answer wakes a sleeping core, and under background
//! load of the lowest priority, where the work itself dominates. CPU time is that of this process
//! (CLOCK_PROCESS_CPUTIME_ID), without the server's. A missed target is printed as missed.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "figures go to stdout; a bench that cannot continue should panic"
)]

#[path = "bridge/fleet.rs"]
mod fleet;
mod machine;
mod tools;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bascule::config::{ServerSettings, Settings, TransportSettings};
use bascule::{BridgeConfig, McpBridgeAdapter};
use bascule_catalog::{Catalog, ServerTools, ToolFilter};
use bascule_client::{ClientOptions, McpClient};
use bascule_mcp::{HttpEndpoint, ShutdownTimeouts, StdioChild, Transport};
use bascule_model::{CallRequest, ProviderAdapter, ServerName, ToolDefinition, ToolId};
use bascule_testkit::binary;
use machine::{BackgroundLoad, MachineReport, target};
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use serde_json::value::RawValue;

const ARGUMENTS: &str = r#"{"message":"hello"}"#;
/// As long as the request of the client library, so that the bare echo transfers the same.
const LINE: &str = r#"{"jsonrpc":"2.0","id":1000,"method":"tools/call","params":{"name":"echo","arguments":{"message":"hello"},"_meta":{"progressToken":1000}}}"#;

fn main() {
    let _report = MachineReport::start();
    let quick = std::env::var_os("BASCULE_BENCH_QUICK").is_some();
    let calls = if quick { 300 } else { 20_000 };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _guard = runtime.enter();
    println!("{calls} calls each, one at a time; times in microseconds");
    measure_calls("idle machine", &runtime, calls);
    let load = BackgroundLoad::start();
    measure_calls("busy machine", &runtime, calls);
    drop(load);

    println!();
    let tools = defined(tools::real_tools(1_000));
    let assembled = assemble(&tools);
    let resident = resident_of_one_call();
    target("1,000 real tools assembled and compiled", assembled.as_secs_f64() * 1e3, 50.0, "ms");
    target("peak resident memory of `bascule call` with one server", resident, 12.0, "MB");

    // Last: after the first sandboxed server, the CPU time of this process includes the watchdog.
    println!();
    runtime.block_on(measure_starts(if quick { 20 } else { 300 }));
    let idle = Duration::from_secs(if quick { 2 } else { 20 });
    let share = runtime.block_on(share_while_idle(WATCHED, idle));
    target(&format!("watchdog over {WATCHED} idle servers, share of a core"), share * 100.0, 1.0, "%");

    println!();
    runtime.block_on(fleet::measure_isolation(if quick { 20 } else { 500 }));
    println!();
    runtime.block_on(fleet::measure_reload(calls / 10));
    println!();
    fleet::measure_idle(idle);
}

/// Number of servers in the measurements of many servers.
const WATCHED: usize = 50;

/// Starts unsandboxed and sandboxed servers in turn, so that both see the same load.
async fn measure_starts(starts: usize) {
    let (mut unsandboxed, mut sandboxed) = (Vec::new(), Vec::new());
    for _ in 0..starts {
        unsandboxed.push(start(None).await);
        sandboxed.push(start(Some(env!("CARGO_BIN_EXE_bascule"))).await);
    }
    println!("{:34}{:>10}{:>10}", format!("{starts} starts each; milliseconds"), "p50", "p99");
    let show = |name: &str, times: &mut Vec<Duration>| {
        times.sort_unstable();
        let at = |share: f64| micros(times[((times.len() - 1) as f64 * share) as usize]) / 1e3;
        println!("{name:34}{:10.2}{:10.2}", at(0.5), at(0.99));
        at(0.5)
    };
    let unsandboxed = show("unsandboxed server", &mut unsandboxed);
    let more = show("sandboxed server", &mut sandboxed) - unsandboxed;
    target("start of a sandboxed server, added time at p50", more, 5.0, "ms");
}

/// Time until a server is initialized and has listed its tool.
async fn start(jailer: Option<&str>) -> Duration {
    let begin = Instant::now();
    let bridge = McpBridgeAdapter::init(echo_servers(1, jailer)).await.unwrap();
    let took = begin.elapsed();
    assert_eq!(bridge.list_tools().len(), 1);
    bridge.terminate().await;
    took
}

/// Share of a core that this process uses with this many idle sandboxed servers.
async fn share_while_idle(servers: usize, idle: Duration) -> f64 {
    let jailer = Some(env!("CARGO_BIN_EXE_bascule"));
    let bridge = McpBridgeAdapter::init(echo_servers(servers, jailer)).await.unwrap();
    assert_eq!(bridge.list_tools().len(), servers);
    let (begin, before) = (Instant::now(), cpu_time());
    std::thread::sleep(idle);
    let share = (cpu_time() - before).as_secs_f64() / begin.elapsed().as_secs_f64();
    bridge.terminate().await;
    share
}

fn measure_calls(when: &str, runtime: &tokio::runtime::Runtime, calls: usize) {
    println!("\n{when:34}{:>10}{:>10}{:>14}", "p50", "p99", "CPU time");
    let pipe = bare_pipe(calls);
    pipe.print("bare pipe echo");
    let stdio = runtime.block_on(library_over_stdio(calls));
    stdio.print("library call over stdio");
    let bridge = runtime.block_on(bridge_over_stdio(calls));
    bridge.print("bridge call over stdio");
    let socket = bare_socket(calls);
    socket.print("bare socket echo");
    let http = runtime.block_on(library_over_http(calls));
    http.print("library call over HTTP");
    target("library call over stdio, CPU time", stdio.cpu, 20.0, "µs");
    target("  beyond the bare pipe", stdio.cpu - pipe.cpu, f64::NAN, "µs");
    let added = bridge.cpu - stdio.cpu;
    // req: BR-15
    target("bridge call over stdio, CPU time beyond the library", added, 8.0, "µs");
    target("library call over HTTP, CPU time beyond the bare socket", http.cpu - socket.cpu, f64::NAN, "µs");
}

/// Latencies and CPU time per call, in microseconds.
struct Cost {
    p50: f64,
    p99: f64,
    cpu: f64,
}

impl Cost {
    fn print(&self, name: &str) {
        println!("{name:34}{:10.1}{:10.1}{:14.1}", self.p50, self.p99, self.cpu);
    }
}

/// Collects the latency of each call and the CPU time of all.
struct Stopwatch {
    each: Vec<Duration>,
    cpu: Duration,
}

impl Stopwatch {
    fn start() -> Self {
        Self { each: Vec::with_capacity(20_000), cpu: cpu_time() }
    }

    fn stop(mut self) -> Cost {
        let cpu = cpu_time() - self.cpu;
        self.each.sort_unstable();
        let at = |share: f64| micros(self.each[((self.each.len() - 1) as f64 * share) as usize]);
        Cost { p50: at(0.5), p99: at(0.99), cpu: micros(cpu) / self.each.len() as f64 }
    }
}

fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

fn bare_pipe(calls: usize) -> Cost {
    let mut child = echo(&["raw"], Stdio::piped(), Stdio::inherit());
    let (mut input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let cost = echo_lines(calls, &mut input, &mut BufReader::new(output));
    drop(input);
    child.wait().unwrap();
    cost
}

fn bare_socket(calls: usize) -> Cost {
    let (mut child, address) = listening_echo(&["raw-tcp", "127.0.0.1:0"]);
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    let cost = echo_lines(calls, &mut stream.try_clone().unwrap(), &mut BufReader::new(stream));
    child.kill().unwrap();
    child.wait().unwrap();
    cost
}

fn echo_lines(calls: usize, input: &mut impl Write, output: &mut impl BufRead) -> Cost {
    let mut line = String::new();
    let mut once = || {
        line.clear();
        input.write_all(format!("{LINE}\n").as_bytes()).unwrap();
        output.read_line(&mut line).unwrap();
    };
    (0..calls / 10).for_each(|_| once());
    let mut stopwatch = Stopwatch::start();
    for _ in 0..calls {
        let begin = Instant::now();
        once();
        stopwatch.each.push(begin.elapsed());
    }
    stopwatch.stop()
}

async fn library_over_stdio(calls: usize) -> Cost {
    let child =
        StdioChild::spawn(Command::new(binary("echo-server")), ShutdownTimeouts::default(), None).unwrap();
    library(Transport::Stdio(child), calls).await
}

async fn library_over_http(calls: usize) -> Cost {
    let (mut child, address) = listening_echo(&["http", "127.0.0.1:0"]);
    let endpoint = HttpEndpoint::new(&format!("http://{address}/mcp"), []).unwrap();
    let cost = library(Transport::Http(endpoint), calls).await;
    child.kill().unwrap();
    child.wait().unwrap();
    cost
}

async fn library(transport: Transport, calls: usize) -> Cost {
    let client = McpClient::connect(transport, ClientOptions::default()).await.unwrap();
    for _ in 0..calls / 10 {
        client.call("echo", ARGUMENTS).response().await.unwrap();
    }
    let mut stopwatch = Stopwatch::start();
    for _ in 0..calls {
        let begin = Instant::now();
        client.call("echo", ARGUMENTS).response().await.unwrap();
        stopwatch.each.push(begin.elapsed());
    }
    let cost = stopwatch.stop();
    client.close().await;
    cost
}

async fn bridge_over_stdio(calls: usize) -> Cost {
    let bridge = McpBridgeAdapter::init(echo_servers(1, None)).await.unwrap();
    let request = CallRequest {
        tool: ToolId::parse("echo-0:echo").unwrap(),
        arguments: RawValue::from_string(ARGUMENTS.into()).unwrap(),
        timeout: None,
    };
    for _ in 0..calls / 10 {
        bridge.execute(request.clone(), None).await.unwrap();
    }
    let mut stopwatch = Stopwatch::start();
    for _ in 0..calls {
        let begin = Instant::now();
        bridge.execute(request.clone(), None).await.unwrap();
        stopwatch.each.push(begin.elapsed());
    }
    let cost = stopwatch.stop();
    bridge.terminate().await;
    cost
}

/// Configures echo servers `echo-0`, `echo-1` and so on, sandboxed if there is a jailer.
fn echo_servers(count: usize, jailer: Option<&str>) -> BridgeConfig {
    let command = binary("echo-server").display().to_string();
    let server = |n| {
        let (command, args) = (command.clone(), Vec::new());
        let transport = TransportSettings::Stdio { command, args, env: Vec::new(), cwd: None };
        ServerSettings::new(ServerName::parse(&format!("echo-{n}")).unwrap(), transport)
    };
    let servers = (0..count).map(server).collect();
    let settings = Settings { servers, disabled: Vec::new(), bridge: Default::default() };
    BridgeConfig { jailer: jailer.map(Into::into), ..BridgeConfig::new(settings) }
}

fn defined(tools: Vec<serde_json::Value>) -> Vec<ToolDefinition> {
    let defined = |tool: serde_json::Value| {
        ToolDefinition::parse(RawValue::from_string(tool.to_string()).unwrap()).unwrap()
    };
    tools.into_iter().map(defined).collect()
}

/// Fastest of five runs, to exclude the load of the machine.
fn assemble(tools: &[ToolDefinition]) -> Duration {
    let once = || {
        let tools = tools.to_vec();
        let begin = Instant::now();
        let server = ServerName::parse("real").unwrap();
        let catalog = Catalog::from_iter([ServerTools::new(server, ToolFilter::default(), tools)]);
        let unchecked = catalog.tools().flat_map(|tool| tool.warnings()).count();
        let took = begin.elapsed();
        assert!(catalog.tools().count() == 1_000 && unchecked == 0);
        took
    };
    (0..5).map(|_| once()).min().unwrap()
}

/// Peak resident memory of the program during a call, in MB.
fn resident_of_one_call() -> f64 {
    let folder = std::env::temp_dir().join(format!("bascule-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let program = env!("CARGO_BIN_EXE_bascule");
    let config = folder.join("mcp.json");
    let server = json!({ "command": binary("bascule-demo"), "args": ["trouble"] });
    let text = json!({ "mcpServers": { "trouble": server } }).to_string();
    std::fs::write(&config, text).unwrap();
    let mut child = Command::new(program)
        .args(["--config", config.to_str().unwrap(), "call", "trouble:sleep", r#"{"ms":700}"#])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut peak = 0.0;
    while child.try_wait().unwrap().is_none() {
        peak = peak_of(child.id()).unwrap_or(peak);
        std::thread::sleep(Duration::from_millis(5));
    }
    std::fs::remove_dir_all(&folder).unwrap();
    peak
}

fn peak_of(pid: u32) -> Option<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<f64>().ok()? / 1000.0)
}

fn echo(arguments: &[&str], stdin: Stdio, stderr: Stdio) -> Child {
    let mut command = Command::new(binary("echo-server"));
    command.args(arguments).stdin(stdin).stdout(Stdio::piped()).stderr(stderr).spawn().unwrap()
}

/// Starts a listening echo server. Returns it and its address.
fn listening_echo(arguments: &[&str]) -> (Child, String) {
    let mut child = echo(arguments, Stdio::null(), Stdio::piped());
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    (child, line.trim().to_owned())
}
