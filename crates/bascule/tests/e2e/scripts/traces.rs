//! Tests the traces of the calls of scripts.

use serde_json::json;

use super::{bridge, demo_bridge, demo_servers, error_name, run, value};
use crate::embedded::terminate;

// req: TR-01, CM-03
#[tokio::test]
async fn traces_every_call() {
    let bridge = demo_bridge().await;
    let outcome = run(&bridge, "return [await clock.now({}), await counter.increment({})].length").await;
    assert_eq!(value(&outcome), 2);
    let traces = serde_json::to_value(&outcome.traces).unwrap();
    let kinds: Vec<_> =
        traces.as_array().unwrap().iter().map(|t| (t["type"].clone(), t["tool"].clone())).collect();
    let expected = [
        ("tool_start", "clock:now"),
        ("tool_end", "clock:now"),
        ("tool_start", "counter:increment"),
        ("tool_end", "counter:increment"),
    ];
    assert_eq!(kinds, expected.map(|(kind, tool)| (json!(kind), json!(tool))));
    let script = outcome.correlation_id.to_string();
    for trace in traces.as_array().unwrap() {
        assert_eq!(trace["parent_trace_id"], json!(script));
        assert!(trace["trace_id"].as_str().unwrap().starts_with(&script));
        assert!(trace["ts"].as_f64().unwrap() > 1.7e12);
    }
    assert_eq!(traces[1]["success"], true);
    assert_eq!(traces[0]["trace_id"], traces[1]["trace_id"]);
    assert_ne!(traces[0]["trace_id"], traces[2]["trace_id"]);
    assert!(traces[1]["duration_ms"].is_number());
    terminate(&bridge).await;
}

// req: TR-01, CM-05
#[tokio::test]
async fn traces_failures_with_reason() {
    let bridge = demo_bridge().await;
    let code = "
        const seen = [];
        for (const call of [() => trouble.fail({}), () => notes.addNote({ title: 7 }), () => trouble.rpcError({}), () => trouble.lie({})]) {
          try { await call() } catch (e) { seen.push(e.code) }
        }
        return seen";
    let outcome = run(&bridge, code).await;
    assert_eq!(value(&outcome), json!(["TOOL_ERROR", "INVALID_INPUT", "PROVIDER_ERROR", "INVALID_OUTPUT"]));
    let errors: Vec<_> = outcome.traces.iter().filter_map(|trace| trace.error.clone()).collect();
    assert_eq!(errors.len(), 4, "{errors:?}");
    assert!(errors[1].starts_with("INVALID_INPUT: "), "{errors:?}");
    terminate(&bridge).await;
}

// req: CM-11, TR-01
#[tokio::test]
async fn failure_of_script_cancels_calls() {
    let bridge = demo_bridge().await;
    let outcome =
        run(&bridge, "trouble.sleep({ ms: 60000 }); await clock.now({}); throw new RangeError('x')").await;
    assert_eq!(error_name(&outcome), "RangeError");
    let last = outcome.traces.last().unwrap();
    assert_eq!((last.tool.as_str(), last.success), ("trouble:sleep", Some(false)));
    assert!(last.error.as_deref().unwrap().starts_with("CANCELLED"));
    // A server that is still sleeping would delay this.
    terminate(&bridge).await;
}

// req: CM-11
#[tokio::test]
async fn unanswered_call_times_out() {
    let bridge =
        bridge(json!({ "mcpServers": demo_servers(), "bascule": { "scripts": { "callTimeoutMs": 200 } } }))
            .await;
    let outcome =
        run(&bridge, "try { await trouble.silence({}) } catch (e) { return [e.name, e.code, e.retryable] }")
            .await;
    assert_eq!(value(&outcome), json!(["MCPToolError", "PROVIDER_TIMEOUT", true]));
    terminate(&bridge).await;
}

// req: CM-03
#[tokio::test]
async fn calls_run_concurrently() {
    let bridge = demo_bridge().await;
    let code = "await Promise.all(Array.from({ length: 10 }, () => trouble.sleep({ ms: 300 })))";
    let outcome = run(&bridge, code).await;
    let started = outcome.traces.iter().position(|trace| trace.success.is_some()).unwrap();
    assert_eq!(started, 10, "all ten start before the first ends: {:?}", outcome.traces);
    terminate(&bridge).await;
}
