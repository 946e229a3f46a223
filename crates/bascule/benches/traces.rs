//! Cost of recording calls: the same calls with tracing on and off, in turn, in one run.
//!
//! `make bench`. Processor time is that of this process, the store's thread included, without the server's. Noise only adds
//! time, so the least of several rounds counts.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "figures go to stdout; a bench that cannot continue should panic"
)]

#[allow(dead_code, reason = "shared with other benches")]
mod machine;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bascule::config::{ServerSettings, Settings, TransportSettings};
use bascule::{BridgeConfig, McpBridgeAdapter};
use bascule_model::{CallRequest, ProviderAdapter, ServerName, ToolId};
use bascule_store::{Outcome, Reader, SpanFilter};
use bascule_testkit::binary;
use futures_util::future::join_all;
use machine::{MachineReport, target};
use rustix::time::{ClockId, clock_gettime};
use serde_json::value::RawValue;

const ROUNDS: usize = 15;
/// The store's thread writes a batch after this time.
const SETTLED: Duration = Duration::from_millis(150);

/// The cost of one call.
#[derive(Clone, Copy)]
struct Cost {
    cpu: f64,
    p50: f64,
}

fn main() {
    let _report = MachineReport::start();
    let quick = std::env::var_os("BASCULE_BENCH_QUICK").is_some();
    let calls = if quick { 200 } else { 4_000 };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let folder = tempfile::tempdir().unwrap();
    runtime.block_on(async {
        let on = bridge(Some(folder.path().join("traces.db"))).await;
        let off = bridge(None).await;
        for together in [1, 16] {
            println!("{calls} calls a round, {together} at a time, {ROUNDS} rounds; microseconds a call");
            let (mut with, mut without) = (Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                without.push(round(&off, calls, together).await);
                with.push(round(&on, calls, together).await);
            }
            show(&with, &without, together);
        }
        on.terminate().await;
        assert_eq!(written(&folder.path().join("traces.db")), 2 * ROUNDS * (calls / 16 * 16));
        off.terminate().await;
    });
}

fn show(with: &[Cost], without: &[Cost], together: usize) {
    let least = |all: &[Cost], of: fn(&Cost) -> f64| all.iter().map(of).fold(f64::INFINITY, f64::min);
    let [on, off] = [with, without].map(|all| (least(all, |cost| cost.cpu), least(all, |cost| cost.p50)));
    println!("{:34}{:>10}{:>14}", "", "p50", "CPU time");
    println!("{:34}{:10.1}{:14.2}", "tracing on", on.1, on.0);
    println!("{:34}{:10.1}{:14.2}", "tracing off", off.1, off.0);
    target(&format!("processor time of tracing a call, {together} at a time"), on.0 - off.0, 3.0, "µs");
}

async fn round(bridge: &McpBridgeAdapter, calls: usize, together: usize) -> Cost {
    let request = CallRequest {
        tool: ToolId::parse("echo:echo").unwrap(),
        arguments: RawValue::from_string(r#"{"message":"hello"}"#.into()).unwrap(),
        timeout: None,
    };
    let (before, mut times) = (cpu_time(), Vec::with_capacity(calls));
    for _ in 0..calls / together {
        let begin = Instant::now();
        let all = (0..together).map(|_| bridge.execute(request.clone(), None));
        for outcome in join_all(all).await {
            let result = outcome.unwrap().result;
            // A refused or failed call is cheap, and would be a wrong figure.
            assert!(!result.is_error && result.raw.get().contains("hello"), "{}", result.raw);
        }
        times.push(begin.elapsed());
    }
    std::thread::sleep(SETTLED);
    let cpu = (cpu_time() - before).as_secs_f64() * 1e6 / calls as f64;
    times.sort_unstable();
    Cost { cpu, p50: times[times.len() / 2].as_secs_f64() * 1e6 }
}

async fn bridge(traces: Option<PathBuf>) -> McpBridgeAdapter {
    let command = binary("echo-server").display().to_string();
    let transport = TransportSettings::Stdio { command, args: Vec::new(), env: Vec::new(), cwd: None };
    let servers = vec![ServerSettings::new(ServerName::parse("echo").unwrap(), transport)];
    let settings = Settings { servers, ..Settings::default() };
    McpBridgeAdapter::init(BridgeConfig { traces, ..BridgeConfig::new(settings) }).await.unwrap()
}

/// The number of completed calls in the file.
fn written(path: &Path) -> usize {
    let spans = Reader::open(path).unwrap().spans(&SpanFilter::default()).unwrap();
    spans.iter().filter(|(_, span)| span.outcome == Outcome::Ok && span.attempts == 1).count()
}

fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}
