//! Fails if a call through the bridge, or from a script, costs too much relative to a direct call of the same server.
//!
//! Absolute times depend on the machine, so both sides are measured in turn in one run, and only their ratio is
//! checked. The best of several rounds counts, because a busy machine disturbs single rounds. The limits are generous:
//! on an idle machine the bridge's ratio is about 1.3 and the script's 2 to 5, on a machine with a load of four per core
//! 1.2 and 9. The figures themselves are in the benches `bridge` and `scripts`. `make test-full` runs this.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "figures go to stdout; a bench that cannot continue should panic"
)]

use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use bascule::config::{BridgeSettings, ServerSettings, Settings, TransportSettings};
use bascule::{BridgeConfig, McpBridgeAdapter, ScriptRequest, ToolSelection};
use bascule_client::{ClientOptions, McpClient};
use bascule_mcp::{Grace, StdioChild, Transport};
use bascule_model::{CallRequest, ProviderAdapter, ServerName, ToolId};
use bascule_testkit::binary;
use serde_json::value::RawValue;

const ROUNDS: usize = 7;
const CALLS: usize = 400;
const ARGUMENTS: &str = r#"{"message":"hello"}"#;
const SCRIPT: &str = "for (let n = 0; n < 400; n++) await e.echo({ message: 'hello' }); return 1";

/// The times of one round, sorted.
struct Times(Vec<Duration>);

/// The costs relative to a direct call in the same round.
struct Ratios {
    bridge_p50: f64,
    bridge_p95: f64,
    script_p50: f64,
    /// The time that the bridge adds at p95, in milliseconds.
    bridge_added_ms: f64,
    /// The time that a script adds to a call at the median, in milliseconds.
    script_added_ms: f64,
}

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let rounds = runtime.block_on(measure());
    let best = |ratio: fn(&Ratios) -> f64| rounds.iter().map(ratio).fold(f64::INFINITY, f64::min);
    let checks = [
        // req: BR-15
        check("bridge call / direct call, p50", best(|r| r.bridge_p50), 2.5),
        check("bridge call / direct call, p95", best(|r| r.bridge_p95), 4.0),
        check("bridge call, added at p95, in ms", best(|r| r.bridge_added_ms), 10.0),
        // req: CM-12
        check("script call / direct call, p50", best(|r| r.script_p50), 15.0),
        check("script call, added at p50, in ms", best(|r| r.script_added_ms), 10.0),
    ];
    if checks.contains(&false) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn check(what: &str, measured: f64, limit: f64) -> bool {
    let is_met = measured <= limit;
    println!("{what:40}{measured:8.2}  limit {limit}: {}", if is_met { "met" } else { "MISSED" });
    is_met
}

async fn measure() -> Vec<Ratios> {
    let server = Command::new(binary("echo-server"));
    let child = StdioChild::spawn(server, Grace::default(), None).unwrap();
    let client = McpClient::connect(Transport::Stdio(child), ClientOptions::default()).await.unwrap();
    let bridge = McpBridgeAdapter::init(configuration()).await.unwrap();
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let direct = direct_calls(&client).await;
        let bridged = bridge_calls(&bridge).await;
        let scripted = script_calls(&bridge).await;
        rounds.push(Ratios {
            bridge_p50: bridged.at(0.5) / direct.at(0.5),
            bridge_p95: bridged.at(0.95) / direct.at(0.95),
            script_p50: scripted.at(0.5) / direct.at(0.5),
            bridge_added_ms: bridged.at(0.95) - direct.at(0.95),
            script_added_ms: scripted.at(0.5) - direct.at(0.5),
        });
    }
    bridge.terminate().await;
    client.close().await;
    rounds
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

fn configuration() -> BridgeConfig {
    let command = binary("echo-server").display().to_string();
    let transport = TransportSettings::Stdio { command, args: Vec::new(), env: Vec::new(), cwd: None };
    let servers = vec![ServerSettings::new(ServerName::parse("e").unwrap(), transport)];
    let settings = Settings { servers, disabled: Vec::new(), bridge: BridgeSettings::default() };
    let jailer = Some(env!("CARGO_BIN_EXE_bascule").into());
    BridgeConfig { jailer, ..BridgeConfig::new(settings) }
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
