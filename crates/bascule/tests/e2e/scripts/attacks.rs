//! Tests scripts that attack the sandbox, the bridge or tools that they may not call.

use std::time::Duration;

use serde_json::json;

use super::{bridge, demo_bridge, demo_servers, error_name, run, run_with, value};
use crate::embedded::terminate;
use crate::support::{eventually, has_no_new_descriptors, is_alone, open_descriptors};

/// Scripts with the names of the errors they may end with; none if they return a value. Some may exceed one of two limits first.
const ATTACKS: [(&str, &[&str]); 24] = [
    ("const f = () => f() + 1; f()", &["RangeError"]),
    ("const f = (n) => [n, JSON.stringify({ get a() { return f(n + 1) } })]; f(0)", &["RangeError"]),
    ("let a = {}; for (let n = 0; n < 1e6; n++) a = { a }; return a", &["MemoryLimitError"]),
    ("return JSON.parse('['.repeat(1e6))", &["RangeError"]),
    ("Object.prototype.__defineGetter__('type', () => { throw 1 }); return await clock.now({})", &[]),
    ("Promise.prototype.then = () => { throw 1 }; return await clock.now({})", &[]),
    (
        "JSON.stringify = () => '{}{}'; Array.prototype.toJSON = () => 'x'; return await clock.now({ a: [1] })",
        &["MCPToolError"],
    ),
    ("const a = {}; a.a = a; return a", &["TypeError"]),
    ("return { toJSON() { for (;;) {} } }", TIME),
    ("throw { get stack() { for (;;) {} }, __proto__: Error.prototype }", &["Error", "TimeLimitError"]),
    ("Promise.reject(new Error('nobody hears')); return 1", &["Error"]),
    ("new WeakRef({}); new FinalizationRegistry(() => { for (;;) {} }).register({}, 1); return 1", &[]),
    ("Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0)", &["TypeError"]),
    (
        "for (let n = 0; n < 20; n++) setInterval(() => { for (let k = 0; k < 1e5; k++); }, 0); await new Promise(() => {})",
        TIME,
    ),
    ("while (true) console.log('x'.repeat(1e5))", TIME),
    (
        "const c = []; for (;;) c.push(clock.now({}))",
        &["CallLimitError", "MemoryLimitError", "TimeLimitError"],
    ),
    (
        "await Promise.all(Array.from({ length: 10000 }, () => trouble.sleep({ ms: 100000 })))",
        &["MCPToolError", "TimeLimitError"],
    ),
    ("return 'x'.repeat(1e8)", &["MemoryLimitError"]),
    ("return new Proxy({}, { ownKeys() { for (;;) {} } })", TIME),
    ("return await clock.now({ timezone: 'x'.repeat(5e7) })", &["MemoryLimitError"]),
    ("class A { static { for (;;) {} } }", TIME),
    ("`${{ toString() { for (;;) {} } }}`", TIME),
    ("new Function('return process')()", &["TypeError"]),
    ("return [...(function* () { for (;;) yield 1 })()]", &["MemoryLimitError"]),
];

const TIME: &[&str] = &["TimeLimitError"];

/// `concurrent` tests that no worker is left over.
#[tokio::test]
async fn next_script_runs_after_every_attack() {
    let bridge = demo_bridge().await;
    run(&bridge, "return 1").await;
    for (code, names) in ATTACKS {
        // Only attacks that may run out of time get little of it.
        let seconds = if names.contains(&"TimeLimitError") { 2 } else { 60 };
        let outcome = run_with(&bridge, code, |request| {
            request.timeout = Some(Duration::from_secs(seconds));
            request.memory_mb = Some(64);
        })
        .await;
        match names {
            [] => drop(value(&outcome)),
            _ => assert!(names.contains(&error_name(&outcome).as_str()), "{code}: {:?}", outcome.error),
        }
        let next = run(&bridge, "return (await clock.now({ timezone: 'UTC' })).timezone").await;
        assert_eq!(value(&next), "UTC", "after {code}");
    }
    terminate(&bridge).await;
}

// req: CM-01
#[tokio::test]
async fn deeply_nested_source_kills_only_its_worker() {
    let bridge = demo_bridge().await;
    for code in [
        format!("return {}1{}", "(".repeat(200_000), ")".repeat(200_000)),
        format!("return {}1", "!".repeat(500_000)),
        format!("return {}[]{}", "[".repeat(100_000), "]".repeat(100_000)),
        format!("return 1{}", "+1".repeat(200_000)),
    ] {
        assert_eq!(error_name(&run(&bridge, &code).await), "RangeError");
        assert_eq!(value(&run(&bridge, "return 2").await), 2);
    }
    terminate(&bridge).await;
}

// req: CM-02, CM-09
#[tokio::test]
async fn script_calls_only_selected_tools() {
    let servers = json!({ "mcpServers": demo_servers() });
    let bridge = bridge(servers).await;
    let code = "const seen = [];
        for (const call of [() => mcp.notes.listNotes({}), () => bascule.call('notes:list_notes', {}), () => clock.convert({})]) {
          try { await call(); seen.push('called') } catch (e) { seen.push(e.code) }
        }
        return [seen, bascule.tools, typeof globalThis.notes]";
    let outcome = run_with(&bridge, code, |request| {
        request.tools = bascule::ToolSelection::parse(["clock:now"]).unwrap();
    })
    .await;
    let not_found = ["TOOL_NOT_FOUND"; 3];
    assert_eq!(value(&outcome), json!([not_found, ["clock:now"], "undefined"]));
    let ends: Vec<bool> = outcome.traces.iter().filter_map(|trace| trace.success).collect();
    assert_eq!(ends, [false; 3]);
    terminate(&bridge).await;
}

// req: CM-04
#[tokio::test]
async fn denied_tools_and_limits_apply_to_scripts() {
    let mut servers = demo_servers();
    servers["notes"]["deniedTools"] = json!(["delete_*"]);
    servers["trouble"]["tools"] = json!({ "sleep": { "limits": { "maxExecutionMs": 100 } } });
    let bridge = bridge(json!({ "mcpServers": servers })).await;
    let outcome = run(&bridge, "try { await notes.deleteNote({ id: 1 }) } catch (e) { return e.code }").await;
    assert_eq!(value(&outcome), "POLICY_DENIED");
    let outcome =
        run(&bridge, "try { await trouble.sleep({ ms: 60000 }) } catch (e) { return e.code }").await;
    assert_eq!(value(&outcome), "PROVIDER_TIMEOUT");
    terminate(&bridge).await;
}

// req: CM-01
#[test]
fn hundred_scripts_leak_no_descriptors() {
    if !is_alone("scripts::attacks::hundred_scripts_leak_no_descriptors") {
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    // The first scripts open the descriptors that the process keeps.
    runtime.block_on(run_scripts(5));
    let before = open_descriptors();
    runtime.block_on(run_scripts(100));
    eventually("the descriptors of ended workers are closed", || has_no_new_descriptors(&before));
}

async fn run_scripts(scripts: usize) {
    let bridge = demo_bridge().await;
    for n in 0..scripts {
        let code = if n % 3 == 0 { "throw 1" } else { "return await clock.now({})" };
        run(&bridge, code).await;
    }
    terminate(&bridge).await;
}

// req: CM-09
#[tokio::test]
async fn refuses_code_from_text() {
    let bridge = demo_bridge().await;
    for code in ["eval('1')", "new Function('return 1')()", "(async () => {}).constructor('1')()"] {
        assert_eq!(error_name(&run(&bridge, code).await), "TypeError", "{code}");
    }
    terminate(&bridge).await;
}
