//! Cost of `bascule serve` for its clients, HTTP in front and stdio behind, compared with direct calls.
//!
//! `make bench`. `make bench-peers` adds other bridges (`--peer NAME URL PID`, repeated). The measured program is the one
//! of this profile, or BASCULE_BENCH_BINARY. A missed target is printed as missed.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "figures go to stdout; a bench that cannot continue should panic"
)]

#[path = "gateway/client.rs"]
mod client;
mod machine;
#[path = "gateway/processes.rs"]
mod processes;

use std::io;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use bascule_testkit::binary;
use client::{LoadClient, Target};
use machine::{BackgroundLoad, MachineReport, target};
use processes::{Process, ServeProcess, listening_echo};

const CLIENTS: usize = 16;
/// The peer that the targets of `make bench-peers` refer to.
const REFERENCE_PEER: &str = "mcp-proxy (Rust)";

fn main() {
    let _report = MachineReport::start();
    let quick = std::env::var_os("BASCULE_BENCH_QUICK").is_some();
    let span = Duration::from_millis(if quick { 100 } else { 2_000 });
    let peers = peers();
    let has_peers = !peers.is_empty();

    let echo = listening_echo(&[]);
    let bridge = ServeProcess::start(&[("e", &[])]);
    let at_bridge = |name: &str, path: &str| CallPath::http(name, bridge.url(path), Some(bridge.process()));
    let mut paths = vec![
        CallPath::stdio("direct stdio"),
        CallPath::http("direct HTTP", echo.url(), None),
        at_bridge("bascule, /servers/e/mcp", "/servers/e/mcp"),
        at_bridge("bascule, /mcp", "/mcp"),
    ];
    paths.extend(peers);
    measure(&mut paths, span);
    drop((bridge, echo));
    print(&paths);
    assert!(paths[..4].iter().all(|path| path.failure.is_none()), "a call of our own failed");
    println!();
    match has_peers {
        true => compare_with_peers(&paths),
        false => {
            check_cpu(&paths[2]);
            check_memory(span);
            check_large_result(span);
        }
    }
}

/// Peers from the arguments: `--peer NAME URL PID`, repeated.
fn peers() -> Vec<CallPath> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let named = arguments.split(|argument| argument == "--peer").skip(1);
    let peer = |words: &[String]| {
        let [name, url, pid, ..] = words else { panic!("a peer has a name, a URL and a process id") };
        CallPath::http(name, url.clone(), Some(Process(pid.parse().expect("a process id is a number"))))
    };
    named.map(peer).collect()
}

/// A path to the tool of the echo server, and its measured cost.
struct CallPath {
    name: String,
    server: Target,
    /// The bridge on the path, if there is one.
    bridge: Option<Process>,
    /// Median latency in microseconds.
    idle: f64,
    busy: f64,
    /// Calls per second of many clients, and CPU time of the bridge per call in microseconds.
    rate: f64,
    cpu: f64,
    resident: f64,
    failure: Option<String>,
}

impl CallPath {
    fn new(name: &str, server: Target, bridge: Option<Process>) -> Self {
        let name = name.to_owned();
        let none = f64::NAN;
        let (idle, busy, rate, cpu, resident) = (none, none, none, none, none);
        Self { name, server, bridge, idle, busy, rate, cpu, resident, failure: None }
    }

    fn stdio(name: &str) -> Self {
        Self::new(name, Target::Stdio(vec![binary("echo-server").display().to_string()]), None)
    }

    fn http(name: &str, url: String, bridge: Option<Process>) -> Self {
        Self::new(name, Target::Http(url), bridge)
    }

    /// Runs a measurement unless an earlier one failed.
    fn attempt(&mut self, work: impl FnOnce(&mut Self) -> io::Result<()>) {
        if self.failure.is_none() {
            self.failure = work(self).err().map(|error| error.to_string());
        }
    }
}

/// Measures each figure for all paths before the next figure, so that they are compared at nearly the same time.
fn measure(paths: &mut [CallPath], span: Duration) {
    for path in paths.iter_mut() {
        path.attempt(|path| median(&path.server, span).map(|p50| path.idle = p50));
    }
    let load = BackgroundLoad::start();
    for path in paths.iter_mut() {
        path.attempt(|path| median(&path.server, span).map(|p50| path.busy = p50));
    }
    drop(load);
    // Over stdio every client has its own server, so there is nothing to compare.
    for path in paths.iter_mut().filter(|path| matches!(path.server, Target::Http(_))) {
        path.attempt(|path| measure_concurrent(path, span));
    }
}

/// Median latency of one client with one call at a time, in microseconds.
fn median(server: &Target, span: Duration) -> io::Result<f64> {
    let mut client = LoadClient::open(server)?;
    call_for(&mut client, span / 5)?;
    let mut each = call_for(&mut client, span)?;
    each.sort_unstable();
    Ok(each[each.len() / 2].as_secs_f64() * 1e6)
}

fn call_for(client: &mut LoadClient, span: Duration) -> io::Result<Vec<Duration>> {
    let (begin, mut each) = (Instant::now(), Vec::with_capacity(1 << 16));
    while begin.elapsed() < span {
        let called = Instant::now();
        client.call()?;
        each.push(called.elapsed());
    }
    Ok(each)
}

/// Measures many concurrent clients, each with its own connection.
fn measure_concurrent(path: &mut CallPath, span: Duration) -> io::Result<()> {
    let gate = Arc::new(Barrier::new(CLIENTS + 1));
    let start = |_| {
        let (gate, server) = (gate.clone(), path.server.clone());
        std::thread::spawn(move || {
            let ready = LoadClient::open(&server).and_then(|mut client| {
                call_for(&mut client, span / 5)?;
                Ok(client)
            });
            // A failed client waits, too, or the others would block.
            gate.wait();
            Ok(call_for(&mut ready?, span)?.len())
        })
    };
    let clients: Vec<_> = (0..CLIENTS).map(start).collect();
    gate.wait();
    let (begin, before) = (Instant::now(), path.bridge.map(Process::cpu_time));
    let calls: io::Result<Vec<usize>> =
        clients.into_iter().map(|client| client.join().expect("a client returns its errors")).collect();
    let (took, calls) = (begin.elapsed(), calls?.into_iter().sum::<usize>() as f64);
    path.rate = calls / took.as_secs_f64();
    if let (Some(process), Some(before)) = (path.bridge, before) {
        path.cpu = (process.cpu_time() - before).as_secs_f64() * 1e6 / calls;
        path.resident = process.resident();
    }
    Ok(())
}

fn print(paths: &[CallPath]) {
    println!(
        "HTTP in front, stdio behind. One client: p50 in µs, on an idle machine and under load. {CLIENTS} clients:"
    );
    println!("calls per second, CPU time of the bridge per call in µs, and its resident memory in MB");
    println!();
    let title = |words: [&str; 6]| {
        let [name, idle, busy, rate, cpu, resident] = words;
        println!("{name:28}{idle:>10}{busy:>10}{rate:>12}{cpu:>12}{resident:>10}");
    };
    title(["", "idle", "load", "calls/s", "CPU/call", "resident"]);
    for path in paths {
        let figure = |figure: f64, digits| match figure.is_nan() {
            true => "-".to_owned(),
            false => format!("{figure:.digits$}"),
        };
        title([
            &path.name,
            &figure(path.idle, 1),
            &figure(path.busy, 1),
            &figure(path.rate, 0),
            &figure(path.cpu, 1),
            &figure(path.resident, 1),
        ]);
        if let Some(failure) = &path.failure {
            println!("    failed: {}", failure.chars().take(200).collect::<String>());
        }
    }
}

fn check_cpu(bridge: &CallPath) {
    target(&format!("CPU time per call with {CLIENTS} clients"), bridge.cpu, 45.0, "µs");
}

fn compare_with_peers(paths: &[CallPath]) {
    let [stdio, http, bridge, ..] = paths else { unreachable!("four paths are always measured") };
    let Some(peer) = paths.iter().find(|path| path.name == REFERENCE_PEER && path.failure.is_none()) else {
        return println!("{REFERENCE_PEER} was not measured: no targets");
    };
    for (when, of) in [("idle", (|path| path.idle) as fn(&CallPath) -> f64), ("busy", |path| path.busy)] {
        let added = |path: &CallPath| of(path) - of(stdio) - of(http);
        println!(
            "{when}: added to the two direct hops: bascule {:.1} µs, {REFERENCE_PEER} {:.1} µs",
            added(bridge),
            added(peer)
        );
        // A negative difference counts as zero.
        let share = added(bridge).max(0.0) / added(peer).max(f64::MIN_POSITIVE);
        target("  latency added by bascule / added by the Rust mcp-proxy", share * 100.0, 33.3, "%");
    }
    let share = peer.rate / bridge.rate;
    target(&format!("calls/s with {CLIENTS} clients, {REFERENCE_PEER} / bascule"), share * 100.0, 50.0, "%");
}

/// Measures memory with ten servers of sixty tools, after clients have listed and called them.
fn check_memory(span: Duration) {
    let names: Vec<String> = (0..10).map(|n| format!("e{n}")).collect();
    let servers: Vec<_> = names.iter().map(|name| (name.as_str(), &["--tools", "60"][..])).collect();
    let bridge = ServeProcess::start(&servers);
    let tools: usize = names
        .iter()
        .map(|name| {
            let server = Target::Http(bridge.url(&format!("/servers/{name}/mcp")));
            let mut client = LoadClient::open(&server).unwrap();
            call_for(&mut client, span / 20).unwrap();
            client.tools().unwrap().len()
        })
        .sum();
    LoadClient::open(&Target::Http(bridge.url("/mcp"))).unwrap().call().unwrap();
    assert_eq!(tools, 600);
    target("resident memory with 10 servers and 600 tools", bridge.process().resident(), 20.0, "MB");
}

fn check_large_result(span: Duration) {
    const LARGE: [&str; 2] = ["--size", "1000000"];
    let (echo, bridge) = (listening_echo(&LARGE), ServeProcess::start(&[("e", &LARGE)]));
    let command = [binary("echo-server").display().to_string()];
    let stdio = Target::Stdio(command.into_iter().chain(LARGE.map(String::from)).collect());
    let millis = |server: &Target| {
        let mut client = LoadClient::open(server).unwrap();
        client.call().unwrap();
        assert!(client.received() > 1_000_000);
        median(server, span).unwrap() / 1e3
    };
    let (stdio, http) = (millis(&stdio), millis(&Target::Http(echo.url())));
    let through = millis(&Target::Http(bridge.url("/servers/e/mcp")));
    println!(
        "a result of 1 MB: direct stdio {stdio:.2} ms, direct HTTP {http:.2} ms, bascule {through:.2} ms"
    );
    target("  added by bascule to direct HTTP", through - http, 2.0, "ms");
}
