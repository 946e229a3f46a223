//! Cost of recording calls: the same calls with traces, with an audit log and with neither, in turn, in one run.
//!
//! `make bench`. Processor time is that of this process, the threads of store and audit log included, without the server's. Noise
//! only adds time, so the least of several rounds counts. The calls are those of a session, and their values are telling: the graph of
//! tools observes them. Metrics cannot be switched off: their cost is measured by itself.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "figures go to stdout; a bench that cannot continue should panic"
)]

#[allow(dead_code, reason = "shared with other benches")]
mod machine;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bascule::config::{AuditSettings, BridgeSettings, ServerSettings, Settings, TransportSettings};
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

/// One measurement.
struct Case {
    arguments: fn() -> Box<RawValue>,
    /// The number of calls at a time.
    together: usize,
    /// The target of tracing: 3 µs, and 20 µs more for the graph where there are values.
    limit: f64,
}

const CASES: [Case; 3] = [
    Case { arguments: greeting, together: 1, limit: 3.0 },
    Case { arguments: greeting, together: 16, limit: 3.0 },
    Case { arguments: issues, together: 16, limit: 23.0 },
];

fn greeting() -> Box<RawValue> {
    RawValue::from_string(r#"{"message":"hello"}"#.into()).unwrap()
}

/// Twenty issues as JSON in a text, as many servers answer them: 4 KB.
fn issues() -> Box<RawValue> {
    let issue = |n: u64| {
        let sha = n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        format!(
            r#"{{"id":{},"title":"hello: the build of branch feature-{n} fails since last night","author":"user{n}@example.org","sha":"{sha:016x}","url":"https://example.org/issues/{n}"}}"#,
            48_213 + n
        )
    };
    let text = format!("[{}]", (0..20).map(issue).collect::<Vec<_>>().join(","));
    RawValue::from_string(serde_json::json!({ "message": text }).to_string()).unwrap()
}

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
        let traced = bridge(Some(folder.path().join("traces.db")), None).await;
        let audited = bridge(None, Some(folder.path().join("audit.jsonl"))).await;
        let plain = bridge(None, None).await;
        let mut made = 0;
        for Case { arguments, together, limit } in CASES {
            let arguments = arguments();
            let length = arguments.get().len();
            println!("{calls} calls a round, {together} at a time, {length} bytes there and back; microseconds a call");
            let mut costs = [Vec::new(), Vec::new(), Vec::new()];
            for _ in 0..ROUNDS {
                for (costs, bridge) in costs.iter_mut().zip([&plain, &traced, &audited]) {
                    costs.push(round(bridge, &arguments, calls, together).await);
                }
            }
            made += ROUNDS * (calls / together * together);
            show(&costs, &format!("{together} at a time, {length} bytes"), limit);
        }
        traced.terminate().await;
        assert_eq!(written(&folder.path().join("traces.db")), made);
        audited.terminate().await;
        let lines = std::fs::read_to_string(folder.path().join("audit.jsonl")).unwrap().lines().count();
        assert!(lines >= 2 * made, "{lines}");
        plain.terminate().await;
    });
    measure_metrics(if quick { 10_000 } else { 5_000_000 });
}

fn show(costs: &[Vec<Cost>; 3], case: &str, limit: f64) {
    let least = |all: &[Cost], of: fn(&Cost) -> f64| all.iter().map(of).fold(f64::INFINITY, f64::min);
    let costs = costs.each_ref().map(|all| (least(all, |cost| cost.p50), least(all, |cost| cost.cpu)));
    println!("{:34}{:>10}{:>14}", "", "p50", "CPU time");
    for (name, (p50, cpu)) in ["neither", "traces, with the graph", "audit log"].iter().zip(costs) {
        println!("{name:34}{p50:10.1}{cpu:14.2}");
    }
    let [plain, traced, audited] = costs.map(|(_, cpu)| cpu);
    target(&format!("processor time of tracing a call, {case}"), traced - plain, limit, "µs");
    let [plain_p50, traced_p50, _] = costs.map(|(p50, _)| p50);
    target(&format!("median with traces by that without, {case}"), traced_p50 / plain_p50, 1.05, "");
    target(&format!("processor time of the audit log, {case}"), audited - plain, f64::NAN, "µs");
}

/// The cost of counting one call of one of 200 tools.
fn measure_metrics(calls: u64) {
    let count = |calls| {
        let before = cpu_time();
        bascule::count_calls_for_benchmark(200, calls);
        cpu_time() - before
    };
    let cost = (0..5).map(|_| count(calls)).min().unwrap().as_secs_f64() * 1e6 / calls as f64;
    println!("{:62}{cost:12.3} µs", "processor time of the metrics of a call");
}

async fn round(bridge: &McpBridgeAdapter, arguments: &RawValue, calls: usize, together: usize) -> Cost {
    let tool = ToolId::parse("echo:echo").unwrap();
    let request = CallRequest { tool, arguments: arguments.to_owned(), timeout: None };
    let (before, mut times) = (cpu_time(), Vec::with_capacity(calls));
    for _ in 0..calls / together {
        let begin = Instant::now();
        let all = (0..together).map(|_| bridge.execute_in_session_for_benchmark(request.clone()));
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

async fn bridge(traces: Option<PathBuf>, audit: Option<PathBuf>) -> McpBridgeAdapter {
    let command = binary("echo-server").display().to_string();
    let transport = TransportSettings::Stdio { command, args: Vec::new(), env: Vec::new(), cwd: None };
    let servers = vec![ServerSettings::new(ServerName::parse("echo").unwrap(), transport)];
    let audit = audit.map(|path| AuditSettings { path, fsync: false });
    let bridge = BridgeSettings { audit, ..BridgeSettings::default() };
    let settings = Settings { servers, bridge, ..Settings::default() };
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
