//! What `bascule serve` costs its clients, HTTP in front and stdio behind, beside the same calls without it: in one run.
//!
//! `make bench`; `make bench-peers` gives it the addresses of others who do the same (`--peer NAME URL PID`, as often
//! as there are peers). The program is the one of this profile, or the one that BASCULE_BENCH_BINARY names. A target
//! that is missed is printed as missed.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "figures go to stdout; a bench that cannot go on should not"
)]

#[path = "gateway/client.rs"]
mod client;
mod machine;
#[path = "gateway/serving.rs"]
mod serving;

use std::io;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use bascule_testkit::binary;
use client::{Client, Door};
use machine::{Neighbours, Others, target};
use serving::{Process, Serving, listening_echo};

const CLIENTS: usize = 16;
/// The one that the targets of `make bench-peers` are measured by.
const YARDSTICK: &str = "mcp-proxy (Rust)";

fn main() {
    let _neighbours = Neighbours::watch();
    let quick = std::env::var_os("BASCULE_BENCH_QUICK").is_some();
    let span = Duration::from_millis(if quick { 100 } else { 2_000 });
    let peers = peers();
    let compared = !peers.is_empty();

    let echo = listening_echo(&[]);
    let bridge = Serving::start(&[("e", &[])]);
    let at_bridge = |name: &str, path: &str| Way::http(name, bridge.url(path), Some(bridge.process()));
    let mut ways = vec![
        Way::stdio("direct stdio"),
        Way::http("direct HTTP", echo.url(), None),
        at_bridge("bascule, /servers/e/mcp", "/servers/e/mcp"),
        at_bridge("bascule, /mcp", "/mcp"),
    ];
    ways.extend(peers);
    measure(&mut ways, span);
    drop((bridge, echo));
    print(&ways);
    assert!(ways[..4].iter().all(|way| way.failure.is_none()), "a call of our own failed");
    println!();
    match compared {
        true => judge_beside_peers(&ways),
        false => {
            judge_alone(&ways[2]);
            judge_memory(span);
            judge_large_result(span);
        }
    }
}

/// What the arguments name: `--peer NAME URL PID`, again and again.
fn peers() -> Vec<Way> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let named = arguments.split(|argument| argument == "--peer").skip(1);
    let peer = |words: &[String]| {
        let [name, url, pid, ..] = words else { panic!("a peer has a name, a URL and a process id") };
        Way::http(name, url.clone(), Some(Process(pid.parse().expect("a process id is a number"))))
    };
    named.map(peer).collect()
}

/// One way to the echo server's tool, and what it was found to cost.
struct Way {
    name: String,
    door: Door,
    /// Who stands between, where somebody does.
    between: Option<Process>,
    /// Microseconds.
    idle: f64,
    busy: f64,
    /// Calls a second of many clients together, and microseconds of `between`'s processor time for each.
    rate: f64,
    processor: f64,
    resident: f64,
    failure: Option<String>,
}

impl Way {
    fn new(name: &str, door: Door, between: Option<Process>) -> Self {
        let name = name.to_owned();
        let none = f64::NAN;
        let (idle, busy, rate, processor, resident) = (none, none, none, none, none);
        Self { name, door, between, idle, busy, rate, processor, resident, failure: None }
    }

    fn stdio(name: &str) -> Self {
        Self::new(name, Door::Stdio(vec![binary("echo-server").display().to_string()]), None)
    }

    fn http(name: &str, url: String, between: Option<Process>) -> Self {
        Self::new(name, Door::Http(url), between)
    }

    /// A peer that fails is left out of what follows; of ourselves that would be the end.
    fn attempt(&mut self, work: impl FnOnce(&mut Self) -> io::Result<()>) {
        if self.failure.is_none() {
            self.failure = work(self).err().map(|error| error.to_string());
        }
    }
}

/// Each figure of all ways before the next figure, so that they are compared at nearly the same time.
fn measure(ways: &mut [Way], span: Duration) {
    for way in ways.iter_mut() {
        way.attempt(|way| median(&way.door, span).map(|p50| way.idle = p50));
    }
    let others = Others::start();
    for way in ways.iter_mut() {
        way.attempt(|way| median(&way.door, span).map(|p50| way.busy = p50));
    }
    drop(others);
    // Over stdio every client has a server of its own: nothing to compare with.
    for way in ways.iter_mut().filter(|way| matches!(way.door, Door::Http(_))) {
        way.attempt(|way| together(way, span));
    }
}

/// One client, one call at a time, for so long: half of the calls take at most so many microseconds.
fn median(door: &Door, span: Duration) -> io::Result<f64> {
    let mut client = Client::open(door)?;
    call_for(&mut client, span / 5)?;
    let mut each = call_for(&mut client, span)?;
    each.sort_unstable();
    Ok(each[each.len() / 2].as_secs_f64() * 1e6)
}

fn call_for(client: &mut Client, span: Duration) -> io::Result<Vec<Duration>> {
    let (begin, mut each) = (Instant::now(), Vec::with_capacity(1 << 16));
    while begin.elapsed() < span {
        let called = Instant::now();
        client.call()?;
        each.push(called.elapsed());
    }
    Ok(each)
}

/// Many clients at once, each on a connection of its own.
fn together(way: &mut Way, span: Duration) -> io::Result<()> {
    let gate = Arc::new(Barrier::new(CLIENTS + 1));
    let start = |_| {
        let (gate, door) = (gate.clone(), way.door.clone());
        std::thread::spawn(move || {
            let ready = Client::open(&door).and_then(|mut client| {
                call_for(&mut client, span / 5)?;
                Ok(client)
            });
            // Also who is not ready: the others would wait for ever.
            gate.wait();
            Ok(call_for(&mut ready?, span)?.len())
        })
    };
    let clients: Vec<_> = (0..CLIENTS).map(start).collect();
    gate.wait();
    let (begin, before) = (Instant::now(), way.between.map(Process::processor_time));
    let calls: io::Result<Vec<usize>> =
        clients.into_iter().map(|client| client.join().expect("a client returns its errors")).collect();
    let (took, calls) = (begin.elapsed(), calls?.into_iter().sum::<usize>() as f64);
    way.rate = calls / took.as_secs_f64();
    if let (Some(process), Some(before)) = (way.between, before) {
        way.processor = (process.processor_time() - before).as_secs_f64() * 1e6 / calls;
        way.resident = process.resident();
    }
    Ok(())
}

fn print(ways: &[Way]) {
    println!("HTTP in front, stdio behind; one client: p50 in µs; {CLIENTS} clients: calls a second,");
    println!("processor time of the process between in µs a call, and what it then holds in MB");
    println!();
    let title = |words: [&str; 6]| {
        let [name, idle, busy, rate, processor, resident] = words;
        println!("{name:28}{idle:>10}{busy:>10}{rate:>12}{processor:>12}{resident:>10}");
    };
    title(["", "idle", "busy", "calls/s", "processor", "resident"]);
    for way in ways {
        let figure = |figure: f64, digits| match figure.is_nan() {
            true => "-".to_owned(),
            false => format!("{figure:.digits$}"),
        };
        title([
            &way.name,
            &figure(way.idle, 1),
            &figure(way.busy, 1),
            &figure(way.rate, 0),
            &figure(way.processor, 1),
            &figure(way.resident, 1),
        ]);
        if let Some(failure) = &way.failure {
            println!("    failed: {}", failure.chars().take(200).collect::<String>());
        }
    }
}

fn judge_alone(bridge: &Way) {
    target(&format!("processor time of a call with {CLIENTS} clients"), bridge.processor, 45.0, "µs");
}

fn judge_beside_peers(ways: &[Way]) {
    let [stdio, http, bridge, ..] = ways else { unreachable!("four ways are always measured") };
    let Some(peer) = ways.iter().find(|way| way.name == YARDSTICK && way.failure.is_none()) else {
        return println!("{YARDSTICK} was not measured: no targets");
    };
    for (when, of) in [("idle", (|way| way.idle) as fn(&Way) -> f64), ("busy", |way| way.busy)] {
        let added = |way: &Way| of(way) - of(stdio) - of(http);
        println!(
            "{when}: beyond the two direct hops, bascule {:.1} µs, {YARDSTICK} {:.1} µs",
            added(bridge),
            added(peer)
        );
        // Less than the two hops by themselves is as good as nothing.
        let share = added(bridge).max(0.0) / added(peer).max(f64::MIN_POSITIVE);
        target("  that is, of what the Rust mcp-proxy adds", share * 100.0, 33.3, "%");
    }
    let share = peer.rate / bridge.rate;
    target(
        &format!("calls a second of {YARDSTICK} with {CLIENTS} clients, of ours"),
        share * 100.0,
        50.0,
        "%",
    );
}

/// Ten servers of sixty tools, after clients have listed and called them.
fn judge_memory(span: Duration) {
    let names: Vec<String> = (0..10).map(|n| format!("e{n}")).collect();
    let servers: Vec<_> = names.iter().map(|name| (name.as_str(), &["--tools", "60"][..])).collect();
    let bridge = Serving::start(&servers);
    let tools: usize = names
        .iter()
        .map(|name| {
            let door = Door::Http(bridge.url(&format!("/servers/{name}/mcp")));
            let mut client = Client::open(&door).unwrap();
            call_for(&mut client, span / 20).unwrap();
            client.tools().unwrap().len()
        })
        .sum();
    Client::open(&Door::Http(bridge.url("/mcp"))).unwrap().call().unwrap();
    assert_eq!(tools, 600);
    target("resident with 10 servers and 600 tools", bridge.process().resident(), 20.0, "MB");
}

fn judge_large_result(span: Duration) {
    const LARGE: [&str; 2] = ["--size", "1000000"];
    let (echo, bridge) = (listening_echo(&LARGE), Serving::start(&[("e", &LARGE)]));
    let command = [binary("echo-server").display().to_string()];
    let stdio = Door::Stdio(command.into_iter().chain(LARGE.map(String::from)).collect());
    let millis = |door: &Door| {
        let mut client = Client::open(door).unwrap();
        client.call().unwrap();
        assert!(client.received() > 1_000_000);
        median(door, span).unwrap() / 1e3
    };
    let (stdio, http) = (millis(&stdio), millis(&Door::Http(echo.url())));
    let through = millis(&Door::Http(bridge.url("/servers/e/mcp")));
    println!(
        "a result of 1 MB: direct stdio {stdio:.2} ms, direct HTTP {http:.2} ms, bascule {through:.2} ms"
    );
    target("  bascule beyond direct HTTP", through - http, 2.0, "ms");
}
