//! Tests the limits of scripts and the names of their errors.

use std::time::Duration;

use serde_json::json;

use super::{bridge, demo_bridge, demo_servers, empty_bridge, error_name, run, run_with, value};
use crate::embedded::terminate;

// req: CM-01
#[tokio::test]
async fn time_limit_ends_every_kind_of_loop() {
    let bridge = empty_bridge().await;
    for code in [
        "for (;;) {}",
        "console.log('kept'); for (;;) 'x'.repeat(5e8).indexOf('y')",
        "console.log('kept'); const a = new Array(1e6).fill(1); for (;;) a.sort()",
        "/(a+)+b/.test('a'.repeat(60))",
        "(function f() { Promise.resolve().then(f) })(); await new Promise(() => {})",
        "const f = async () => { for (;;) { try { await null } catch {} } }; await f()",
        "for (;;) { try { (() => { for (;;) {} })() } catch {} }",
        "for (;;) await bascule.sleep(1)",
    ] {
        let logged = code.contains("kept");
        // The script must have logged before the time limit.
        let time = Duration::from_millis(if logged { 5_000 } else { 1_500 });
        let outcome = run_with(&bridge, code, |request| request.timeout = Some(time)).await;
        assert_eq!(error_name(&outcome), "TimeLimitError", "{code}");
        assert_eq!(outcome.logs.iter().any(|line| line.text == "kept"), logged, "{code}");
    }
    assert_eq!(value(&run(&bridge, "return 'next'").await), "next");
    terminate(&bridge).await;
}

// req: CM-01
#[tokio::test]
async fn memory_limit_covers_every_kind_of_allocation() {
    let bridge = empty_bridge().await;
    for code in [
        "const a = []; for (;;) a.push({ a: 1 })",
        "const a = []; for (;;) a.push(new Uint8Array(1e6).fill(1))",
        "let s = 'x'; for (;;) s = (s + s).split('').join('')",
        "const m = new Map(); for (let n = 0;; n++) m.set(n, [n])",
        "const b = new ArrayBuffer(2e9); return b.byteLength",
        "const all = []; for (;;) all.push((async () => await new Promise(() => {}))())",
        "const a = []; const n = null; for (;;) a.push([1])",
        "let x = null; for (;;) x = { x }",
        "if (globalThis.never) throw 1; const a = []; for (;;) a.push([1])",
        "const f = async () => { const k = [null]; for (;;) { k.push(new Array(10)); await 1 } }; await f()",
        "const a = []; try { for (;;) a.push(new Array(1e5).fill(a)) } catch { } for (;;) a.push(new Array(1e5).fill(a))",
    ] {
        let outcome = run_with(&bridge, code, |request| {
            request.memory_mb = Some(64);
            request.timeout = Some(Duration::from_secs(60));
        })
        .await;
        assert_eq!(error_name(&outcome), "MemoryLimitError", "{code}: {:?}", outcome.error);
    }
    // The language limits the size of a bigint.
    let outcome = run(&bridge, "let big = 2n; for (;;) big = big * big").await;
    assert_eq!(error_name(&outcome), "RangeError", "{:?}", outcome.error);
    assert_eq!(value(&run(&bridge, "return 'next'").await), "next");
    terminate(&bridge).await;
}

// req: CM-01
#[tokio::test]
async fn value_and_console_are_limited() {
    let configuration = json!({ "mcpServers": {}, "bascule": { "scripts": { "maxOutputBytes": 1000, "maxLogBytes": 1000 } } });
    let bridge = bridge(configuration).await;
    assert_eq!(error_name(&run(&bridge, "return 'x'.repeat(2000)").await), "OutputLimitError");
    let outcome = run(&bridge, "for (let n = 0; n < 1e5; n++) console.log('line', n); return 1").await;
    assert_eq!(value(&outcome), 1);
    let kept: usize = outcome.logs.iter().map(|line| line.text.len()).sum();
    assert!(kept < 1_500, "{kept}");
    assert!(outcome.logs.last().unwrap().text.contains("more lines"));
    terminate(&bridge).await;
}

// req: CM-01
#[tokio::test]
async fn number_of_calls_is_limited() {
    let scripts = json!({ "maxCalls": 5, "maxConcurrentCalls": 2 });
    let bridge = bridge(json!({ "mcpServers": demo_servers(), "bascule": { "scripts": scripts } })).await;
    let code = "
        const ended = await Promise.allSettled(Array.from({ length: 8 }, () => clock.now({})));
        return ended.map((e) => e.status === 'fulfilled' ? 'ok' : e.reason.code)";
    let outcome = run(&bridge, code).await;
    let flood = run(&bridge, "for (;;) { clock.now({}).catch(() => {}); await null }").await;
    assert_eq!(error_name(&flood), "CallLimitError");
    let message = flood.error.unwrap().message;
    assert!(message.starts_with("the script has reached its limit of 5 calls, and went on"), "{message}");
    let many =
        "for (let n = 0; n < 20; n++) trouble.sleep({ ms: 5000 }).catch(() => {}); throw new Error('x')";
    let log = run(&bridge, many).await.logs;
    assert!(log.iter().any(|line| line.text.contains("`trouble:sleep` (5 calls)")), "{log:?}");
    let seen = value(&outcome);
    assert_eq!(seen.as_array().unwrap().iter().filter(|s| **s == "ok").count(), 5);
    assert_eq!(seen[7], "POLICY_DENIED");
    let (mut out, mut most) = (0, 0);
    for trace in &outcome.traces {
        out = if trace.success.is_none() { out + 1 } else { out - 1 };
        most = most.max(out);
    }
    assert_eq!(most, 2);
    terminate(&bridge).await;
}

// req: CM-01
#[tokio::test]
async fn call_that_ends_with_the_script_names_its_time_limit() {
    let bridge = demo_bridge().await;
    for (code, tool) in [
        ("while (true) await clock.now({})", "clock:now"),
        ("await trouble.sleep({ ms: 5000 })", "trouble:sleep"),
    ] {
        let outcome =
            run_with(&bridge, code, |request| request.timeout = Some(Duration::from_millis(1_500))).await;
        let message = outcome.error.unwrap().message;
        let expected = format!("the script exceeded its time limit of 1500 ms; `{tool}` was under way");
        assert!(message.starts_with(&expected), "{message}");
    }
    terminate(&bridge).await;
}

// req: CM-01
#[tokio::test]
async fn reports_deadlock_only_if_nothing_is_pending() {
    let bridge = demo_bridge().await;
    assert_eq!(error_name(&run(&bridge, "await new Promise(() => {})").await), "DeadlockError");
    let code = "await Promise.race([trouble.sleep({ ms: 100 }), new Promise(() => {})]); return 1";
    assert_eq!(value(&run(&bridge, code).await), 1);
    terminate(&bridge).await;
}

// req: CM-01
#[tokio::test]
async fn local_time_uses_configured_zone() {
    // Without zone files on the machine, local time is UTC.
    let has_zones = std::path::Path::new("/usr/share/zoneinfo/Asia/Tokyo").exists();
    assert!(has_zones, "no zone files in `/usr/share/zoneinfo`: install tzdata");
    let zone = json!({ "mcpServers": {}, "bascule": { "scripts": { "timeZone": "Asia/Tokyo" } } });
    let tokyo = bridge(zone).await;
    let code =
        "return [new Date(0).getHours(), new Date(0).toString(), typeof new Date().toLocaleTimeString()]";
    let there = value(&run(&tokyo, code).await);
    terminate(&tokyo).await;
    let plain = empty_bridge().await;
    let here = value(&run(&plain, code).await);
    terminate(&plain).await;
    assert_eq!(here[0], 0);
    assert_eq!(there[0], 9);
}

// req: CM-10
#[tokio::test]
async fn scripts_share_no_state() {
    let bridge = empty_bridge().await;
    for mode in [bascule::ScriptMode::Worker, bascule::ScriptMode::Subprocess] {
        for _ in 0..3 {
            let code = "const before = globalThis.left; globalThis.left = 1; Object.prototype.left2 = 1; return [before, ({}).left2 === 1]";
            let outcome = run_with(&bridge, code, |request| request.mode = mode).await;
            assert_eq!(value(&outcome), json!([null, true]));
        }
    }
    terminate(&bridge).await;
}
