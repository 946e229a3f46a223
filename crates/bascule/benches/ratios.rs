//! Fails if a call through the bridge, from a script, or beside a server that floods the bridge or is faulty, costs too much
//! relative to a direct call of the same server, or to a call without that server.
//!
//! Absolute times depend on the machine, so both sides are measured in turn in one run, and only their ratio is
//! checked. The best of several rounds counts for each side. The limits are generous. The figures themselves are in the
//! benches `bridge` and `scripts`. `make test-full` runs this.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "figures go to stdout; a bench that cannot continue should panic"
)]

#[path = "ratios/faulty_servers.rs"]
mod faulty_servers;

use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use bascule::config::{BridgeSettings, ServerSettings, Settings, TransportSettings};
use bascule::{BridgeConfig, McpBridgeAdapter, ScriptRequest, ToolSelection};
use bascule_client::{ClientOptions, McpClient};
use bascule_mcp::{ShutdownTimeouts, StdioChild, Transport};
use bascule_model::{CallRequest, ProviderAdapter, ServerName, ToolId};
use bascule_testkit::binary;
use serde_json::value::RawValue;

use faulty_servers::{call_faulty_servers, faulty_servers, lying_server, wait_for_calls};

const ROUNDS: usize = 7;
const FLOOD_ROUNDS: usize = 2;
const CALLS: usize = 400;
const ARGUMENTS: &str = r#"{"message":"hello"}"#;
const SCRIPT: &str = "for (let n = 0; n < 400; n++) await e.echo({ message: 'hello' }); return 1";

/// Messages of a server that floods the bridge, with their names.
const FLOODS: [(&str, &str); 5] = [
    (
        "progress",
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}"#,
    ),
    ("log", r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}"#),
    ("ping", r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#),
    ("list_changed", r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#),
    ("blank lines", ""),
];

/// The times of one round, sorted.
struct Times(Vec<Duration>);

/// The same calls in one round, by each way.
struct Round {
    direct: Times,
    bridge: Times,
    script: Times,
}

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let rounds = runtime.block_on(measure());
    let mut floods = Vec::new();
    for (name, line) in FLOODS {
        floods.push((name, runtime.block_on(measure_flood(line))));
    }
    let faulty = runtime.block_on(measure_faulty_servers());
    // Noise only adds time, so the smallest value of each side is the least disturbed one.
    let best = |way: fn(&Round) -> &Times, share: f64| {
        rounds.iter().map(|round| way(round).at(share)).fold(f64::INFINITY, f64::min)
    };
    let (direct_p50, direct_p95) = (best(|round| &round.direct, 0.5), best(|round| &round.direct, 0.95));
    let (bridge_p50, bridge_p95) = (best(|round| &round.bridge, 0.5), best(|round| &round.bridge, 0.95));
    let script_p50 = best(|round| &round.script, 0.5);
    let checks = [
        // req: BR-15
        check("bridge call / direct call, p50", bridge_p50 / direct_p50, 2.5),
        check("bridge call / direct call, p95", bridge_p95 / direct_p95, 4.0),
        check("bridge call, added at p95, in ms", bridge_p95 - direct_p95, 10.0),
        // req: CM-12
        check("script call / direct call, p50", script_p50 / direct_p50, 25.0),
        check("script call, added at p50, in ms", script_p50 - direct_p50, 10.0),
        // req: BR-12
        check("beside faulty servers, p50", faulty, 5.0),
    ];
    // req: BR-12
    let floods =
        floods.iter().map(|(name, ratio)| check(&format!("beside a flood of {name}, p50"), *ratio, 3.0));
    let floods: Vec<bool> = floods.collect();
    if [&checks[..], &floods[..]].concat().contains(&false) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn check(what: &str, measured: f64, limit: f64) -> bool {
    let is_met = measured <= limit;
    println!("{what:40}{measured:8.2}  limit {limit}: {}", if is_met { "met" } else { "MISSED" });
    is_met
}

async fn measure() -> Vec<Round> {
    let server = Command::new(binary("echo-server"));
    let child = StdioChild::spawn(server, ShutdownTimeouts::default(), None).unwrap();
    let client = McpClient::connect(Transport::Stdio(child), ClientOptions::default()).await.unwrap();
    let bridge = McpBridgeAdapter::init(configuration(&[])).await.unwrap();
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let direct = direct_calls(&client).await;
        let bridged = bridge_calls(&bridge).await;
        let script = script_calls(&bridge).await;
        rounds.push(Round { direct, bridge: bridged, script });
    }
    bridge.terminate().await;
    client.close().await;
    rounds
}

/// Returns the ratio of the medians with and without a flood. Both bridges run in turn, so that the machine is the same.
async fn measure_flood(line: &str) -> f64 {
    let quiet = McpBridgeAdapter::init(configuration(&[])).await.unwrap();
    let (mut without, mut with) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..FLOOD_ROUNDS {
        without = without.min(bridge_calls(&quiet).await.at(0.5));
        let bridge =
            McpBridgeAdapter::init(configuration(&[echo_server("f", &["--flood", line])])).await.unwrap();
        // Spends what a server may send at once.
        tokio::time::sleep(Duration::from_secs(2)).await;
        with = with.min(bridge_calls(&bridge).await.at(0.5));
        bridge.terminate().await;
    }
    quiet.terminate().await;
    with / without
}

/// Returns the ratio of the medians with and without faulty servers that are called all the time.
async fn measure_faulty_servers() -> f64 {
    let quiet = McpBridgeAdapter::init(configuration(&[])).await.unwrap();
    let (mut without, mut with) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..FLOOD_ROUNDS {
        without = without.min(bridge_calls(&quiet).await.at(0.5));
        let lying = lying_server();
        let bridge = McpBridgeAdapter::init(configuration(&faulty_servers(&lying))).await.unwrap();
        let times = tokio::select! {
            () = call_faulty_servers(&bridge) => unreachable!("the loop is endless"),
            times = async {
                wait_for_calls(&lying, 20).await;
                bridge_calls(&bridge).await
            } => times,
        };
        with = with.min(times.at(0.5));
        bridge.terminate().await;
    }
    quiet.terminate().await;
    with / without
}

async fn direct_calls(client: &McpClient) -> Times {
    let mut times = Vec::new();
    for _ in 0..CALLS {
        let start = Instant::now();
        client.call("echo", ARGUMENTS).response().await.unwrap();
        times.push(start.elapsed());
    }
    Times::new(times)
}

async fn bridge_calls(bridge: &McpBridgeAdapter) -> Times {
    let arguments = RawValue::from_string(ARGUMENTS.into()).unwrap();
    let request = CallRequest { tool: ToolId::parse("e:echo").unwrap(), arguments, timeout: None };
    let mut times = Vec::new();
    for _ in 0..CALLS {
        let start = Instant::now();
        bridge.execute(request.clone(), None).await.unwrap();
        times.push(start.elapsed());
    }
    Times::new(times)
}

/// Measures from the start of one call to the start of the next, so that the whole cost is included.
async fn script_calls(bridge: &McpBridgeAdapter) -> Times {
    let tools = ToolSelection::parse(["e:*"]).unwrap();
    let outcome = bridge.run_script(ScriptRequest { tools, ..ScriptRequest::new(SCRIPT) }).await.unwrap();
    assert!(outcome.error.is_none(), "{:?}", outcome.error);
    let starts = outcome.traces.iter().filter(|trace| trace.duration_ms.is_none()).map(|trace| trace.ts);
    let starts: Vec<f64> = starts.collect();
    assert_eq!(starts.len(), CALLS);
    Times::new(starts.windows(2).map(|pair| Duration::from_secs_f64((pair[1] - pair[0]) / 1e3)).collect())
}

fn configuration(others: &[ServerSettings]) -> BridgeConfig {
    let servers = [&[echo_server("e", &[])], others].concat();
    let settings = Settings { servers, disabled: Vec::new(), bridge: BridgeSettings::default() };
    let jailer = Some(env!("CARGO_BIN_EXE_bascule").into());
    BridgeConfig { jailer, ..BridgeConfig::new(settings) }
}

fn echo_server(name: &str, arguments: &[&str]) -> ServerSettings {
    let command = binary("echo-server").display().to_string();
    let args = arguments.iter().map(|argument| (*argument).to_owned()).collect();
    let transport = TransportSettings::Stdio { command, args, env: Vec::new(), cwd: None };
    ServerSettings::new(ServerName::parse(name).unwrap(), transport)
}

impl Times {
    fn new(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Self(times)
    }

    /// Returns the quantile in milliseconds.
    fn at(&self, share: f64) -> f64 {
        self.0[((self.0.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3
    }
}
