//! Measures the time and memory of scripts and their calls, and compares them with Deno if it is installed.
//!
//! Run it with `make bench`; `make bench-peers` installs Deno. The bridge runs in this process on one thread, as in the
//! program, with real workers. Times are measured twice: on an idle machine, where every message wakes a sleeping core, and on
//! one kept busy by processes of the lowest priority, which shows the work itself.
//!
//! A call is timed from its start to the start of the next, which includes all of its work. The tool is that of the echo
//! server. The overhead of the script is the difference to the same call made directly, measured in the same run. Missed
//! targets are printed as missed.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "figures go to stdout; a bench that cannot continue should panic"
)]

#[path = "scripts/check.rs"]
mod check;
#[path = "scripts/deno.rs"]
mod deno;
mod machine;
#[path = "scripts/processes.rs"]
mod processes;
mod tools;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use bascule::config::{BridgeSettings, ScriptSettings, ServerSettings, Settings, TransportSettings};
use bascule::{BridgeConfig, McpBridgeAdapter, ScriptMode, ScriptOutcome, ScriptRequest, ToolSelection};
use bascule_model::{CallRequest, ProviderAdapter, ServerName, ToolId};
use bascule_testkit::binary;
use futures_util::future::join_all;
use machine::{BackgroundLoad, MachineReport, target};
use serde_json::value::RawValue;

const ONE: &str = "const one: number = 1; return one satisfies number";
const CALLS: &str = "for (let n: number = 0; n < 1000; n++) await e.echo({ message: 'hello' }); return 1";
/// The bridge itself refuses these: nothing leaves the process.
const REFUSED: &str =
    "for (let n: number = 0; n < 1000; n++) try { await e.echo({ message: n }) } catch {} return 1";
const HUNDREDS: &str = "for (let n: number = 0; n < 40; n++)
    await Promise.all(Array.from({ length: 100 }, () => e.echo({ message: 'hello' }))); return 1";
/// Size of the worker pool: large enough that a worker is always ready.
const POOL_SIZE: u32 = 4;
/// Number of concurrent scripts for the throughput.
const CONCURRENT: usize = 8;

fn main() {
    let _report = MachineReport::start();
    let quick = std::env::var_os("BASCULE_BENCH_QUICK").is_some();
    let scripts = if quick { 20 } else { 300 };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let list = RealTools::write(600);
    runtime.block_on(async {
        let bridge = McpBridgeAdapter::init(configuration(&list)).await.unwrap();
        println!("{scripts} scripts each, one at a time; p50 in microseconds");
        // req: CM-12
        measure("idle machine", &bridge, scripts).await;
        let load = BackgroundLoad::start();
        measure("busy machine", &bridge, scripts).await;
        drop(load);
        println!();
        memory(&bridge).await;
        sustained(&bridge, Duration::from_secs(if quick { 1 } else { 5 })).await;
        bridge.terminate().await;
    });
}

async fn measure(when: &str, bridge: &McpBridgeAdapter, scripts: usize) {
    println!("\n{when}");
    let nothing = || ScriptRequest { tools: ToolSelection::parse([]).unwrap(), ..ScriptRequest::new(ONE) };
    let warm = median_of(bridge, scripts, nothing).await;
    let cold =
        median_of(bridge, scripts, || ScriptRequest { mode: ScriptMode::Subprocess, ..nothing() }).await;
    let five = real_ids(5);
    let with = |tools: &[String]| ScriptRequest {
        tools: ToolSelection::parse(tools.iter().map(String::as_str)).unwrap(),
        ..ScriptRequest::new(ONE)
    };
    let five = median_of(bridge, scripts, || with(&five)).await;
    let all = median_of(bridge, scripts, || with(&["real:*".into()])).await;
    let called = real_ids(check::TOOLS);
    let called = median_of(bridge, scripts, || with(&called)).await;
    let stopped = check::stopped_script(bridge, scripts).await;
    let (cold_types, cached_types) = check::signatures(scripts);
    let direct = direct_call(bridge).await;
    let call = between_calls(bridge, CALLS, 1).await;
    let refused = between_calls(bridge, REFUSED, 1).await;
    let direct_hundred = direct_hundred(bridge).await;
    let hundred = between_calls(bridge, HUNDREDS, 100).await;
    let deno = deno::measure(scripts.min(100));

    target("request to value, warm", warm, 500.0, "µs");
    target("request to value, cold", cold, 5_000.0, "µs");
    target("five real tools given, beyond none", five - warm, 1_000.0, "µs");
    target("600 real tools given, beyond none", all - warm, f64::NAN, "µs");
    target("100 lines parsed, checked and stopped, beyond one line", stopped - called, 2_000.0, "µs");
    target("types of five real tools, cold", cold_types, 1_000.0, "µs");
    target("types of five real tools, cached", cached_types, 100.0, "µs");
    target("a call made directly", direct, f64::NAN, "µs");
    target("the same by a script", call, f64::NAN, "µs");
    target("  of which the script's", call - direct, 60.0, "µs");
    target("a call that the bridge refuses, by a script", refused, f64::NAN, "µs");
    target("100 calls at once, made directly", direct_hundred, f64::NAN, "µs");
    target("Promise.all of 100 calls", hundred, 2_000.0, "µs");
    match deno {
        Some(deno) => deno.print(),
        None => println!("Deno is not installed: `make bench-peers` does that"),
    }
}

fn real_ids(count: usize) -> Vec<String> {
    tools::real_tools(count).iter().map(|tool| format!("real:{}", tool["name"].as_str().unwrap())).collect()
}

/// Returns the median time from the request to the value. The pauses give new workers time to start.
async fn median_of(bridge: &McpBridgeAdapter, scripts: usize, request: impl Fn() -> ScriptRequest) -> f64 {
    let mut each = Vec::with_capacity(scripts);
    for _ in 0..scripts {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let begin = Instant::now();
        let outcome = bridge.run_script(request()).await.unwrap();
        each.push(micros(begin.elapsed()));
        assert_eq!(value(&outcome), "1");
    }
    median(each)
}

/// Returns the median time between the starts of calls, or of rounds of `at_once` calls.
async fn between_calls(bridge: &McpBridgeAdapter, code: &str, at_once: usize) -> f64 {
    let tools = ToolSelection::parse(["e:*"]).unwrap();
    let outcome = bridge.run_script(ScriptRequest { tools, ..ScriptRequest::new(code) }).await.unwrap();
    assert_eq!(value(&outcome), "1");
    let began = outcome.traces.iter().filter(|trace| trace.duration_ms.is_none()).map(|trace| trace.ts * 1e3);
    let began: Vec<f64> = began.step_by(at_once).collect();
    median(began.windows(2).map(|two| two[1] - two[0]).collect())
}

async fn direct_call(bridge: &McpBridgeAdapter) -> f64 {
    let mut each = Vec::new();
    for _ in 0..1000 {
        let begin = Instant::now();
        bridge.execute(echo(), None).await.unwrap();
        each.push(micros(begin.elapsed()));
    }
    median(each)
}

async fn direct_hundred(bridge: &McpBridgeAdapter) -> f64 {
    let mut each = Vec::new();
    for _ in 0..40 {
        let begin = Instant::now();
        let all = join_all((0..100).map(|_| bridge.execute(echo(), None))).await;
        each.push(micros(begin.elapsed()));
        assert!(all.iter().all(Result::is_ok));
    }
    median(each)
}

fn echo() -> CallRequest {
    let arguments = RawValue::from_string(r#"{"message":"hello"}"#.into()).unwrap();
    CallRequest { tool: ToolId::parse("e:echo").unwrap(), arguments, timeout: None }
}

/// Prints the memory of an idle worker.
async fn memory(bridge: &McpBridgeAdapter) {
    bridge.run_script(ScriptRequest::new(ONE)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let idle: Vec<_> = processes::children_called("__worker").collect();
    let (resident, own) = idle.iter().map(|worker| worker.memory()).unzip();
    target("an idle worker's resident memory", median(resident), 5.0, "MB");
    target("  of which is its own", median(own), f64::NAN, "MB");
}

/// Prints the throughput with concurrent scripts.
async fn sustained(bridge: &McpBridgeAdapter, span: Duration) {
    let (begin, before) = (Instant::now(), processes::processor_time());
    let run_scripts = || async {
        let mut done = 0_u32;
        while begin.elapsed() < span {
            let tools = ToolSelection::parse([]).unwrap();
            let outcome =
                bridge.run_script(ScriptRequest { tools, ..ScriptRequest::new(ONE) }).await.unwrap();
            assert_eq!(value(&outcome), "1");
            done += 1;
        }
        done
    };
    let done = join_all((0..CONCURRENT).map(|_| run_scripts())).await.into_iter().sum::<u32>();
    let rate = f64::from(done) / begin.elapsed().as_secs_f64();
    let after = processes::processor_time();
    let each = |time: Duration| time.as_secs_f64() * 1e3 / f64::from(done);
    let verdict = if rate >= 200.0 { "met" } else { "MISSED" };
    println!("{:62}{rate:8.0} /s  target 200 /s: {verdict}", "scripts, sustained");
    target("  processor time of each: bridge", each(after.own - before.own), f64::NAN, "ms");
    target(
        "  processor time of each: worker, from start to end",
        each(after.children - before.children),
        f64::NAN,
        "ms",
    );
}

fn configuration(list: &RealTools) -> BridgeConfig {
    let server = |name: &str, args: Vec<String>| {
        let command = binary("echo-server").display().to_string();
        let transport = TransportSettings::Stdio { command, args, env: Vec::new(), cwd: None };
        ServerSettings::new(ServerName::parse(name).unwrap(), transport)
    };
    let servers =
        vec![server("e", Vec::new()), server("real", vec!["--list".into(), list.0.display().to_string()])];
    let scripts = ScriptSettings { pool_size: POOL_SIZE, ..ScriptSettings::default() };
    let bridge = BridgeSettings { scripts, ..BridgeSettings::default() };
    let settings = Settings { servers, disabled: Vec::new(), bridge };
    let jailer = Some(env!("CARGO_BIN_EXE_bascule").into());
    BridgeConfig { jailer, keep_workers: true, ..BridgeConfig::new(settings) }
}

/// A file with the tools of the echo server. Dropping it deletes the file.
struct RealTools(PathBuf);

impl RealTools {
    fn write(count: usize) -> Self {
        let file = std::env::temp_dir().join(format!("bascule-bench-scripts-{}.json", std::process::id()));
        std::fs::write(&file, serde_json::to_vec(&tools::real_tools(count)).unwrap()).unwrap();
        Self(file)
    }
}

impl Drop for RealTools {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn value(outcome: &ScriptOutcome) -> &str {
    outcome.result.as_ref().unwrap_or_else(|| panic!("{:?}", outcome.error)).get()
}

fn median(mut each: Vec<f64>) -> f64 {
    each.sort_unstable_by(f64::total_cmp);
    each.get(each.len() / 2).copied().unwrap_or(f64::NAN)
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}
