//! Remote servers whose connections are cut, refused or stalled, over Streamable HTTP and the older HTTP+SSE.

use bascule_testkit::{Behaviour, Script, ScriptedHttp};
use serde_json::{Value, json};
use tokio::task::block_in_place;

use super::observed_bridge::ObservedBridge;
use super::proxy::Proxy;
use super::{count, tool_with_hint, with_fast_reconnect, with_settings};
use crate::bad_stdio::check;
use crate::support::{eventually, text};

const UNKNOWN: &str = "OUTCOME_UNKNOWN unknown false";

/// Transport of a remote server.
#[derive(Debug, Clone, Copy, PartialEq)]
enum RemoteTransport {
    Streamable,
    Legacy,
}

const BOTH_TRANSPORTS: [RemoteTransport; 2] = [RemoteTransport::Streamable, RemoteTransport::Legacy];

/// Starts a server, a proxy in front of it, and a bridge that connects through the proxy.
async fn behind_proxy(
    transport: RemoteTransport,
    script: Script,
    settings: Value,
) -> (ScriptedHttp, Proxy, ObservedBridge) {
    let (script, kind) = match transport {
        RemoteTransport::Streamable => (script, "http"),
        RemoteTransport::Legacy => (script.legacy("/messages"), "sse"),
    };
    let server = ScriptedHttp::start(script);
    let proxy = Proxy::start(&server.url()).await;
    let entry = with_fast_reconnect(json!({ "type": kind, "url": proxy.url(), "keepAliveMs": 0 }));
    let bridge = ObservedBridge::start(json!({ "s": with_settings(entry, settings) })).await;
    (server, proxy, bridge)
}

// req: BR-05
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outcome_is_unknown_if_response_is_cut() {
    for transport in BOTH_TRANSPORTS {
        let half = Behaviour::silence().after_log("half of it");
        let script = Script::new().tools(["x"]).tool(tool_with_hint("y", "readOnlyHint")).calls("x", [half]);
        let (server, proxy, mut bridge) = behind_proxy(transport, script, json!({})).await;
        let call = bridge.spawn_call("s:x");
        block_in_place(|| server.wait_for("tools/call"));
        proxy.cut().await;
        let error = call.await.unwrap().unwrap_err();
        check(&error, UNKNOWN, &[]);
        assert_eq!(error["attempts"], 1, "{transport:?}");
        if transport == RemoteTransport::Legacy {
            // With HTTP+SSE the stream is the connection.
            bridge.wait_for_event("reconnected").await;
        }
        bridge.call("s:y", "{}").await.unwrap();
        bridge.terminate().await;
    }
}

// req: BR-09
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retries_read_only_call_after_cut() {
    for transport in BOTH_TRANSPORTS {
        let script = Script::new()
            .tool(tool_with_hint("x", "readOnlyHint"))
            .calls("x", [Behaviour::silence(), Behaviour::text("fine")]);
        let (server, proxy, bridge) = behind_proxy(transport, script, json!({})).await;
        let call = bridge.spawn_call("s:x");
        block_in_place(|| server.wait_for("tools/call"));
        proxy.cut().await;
        assert_eq!(text(&call.await.unwrap().unwrap()), "fine", "{transport:?}");
        assert_eq!(count(&server.methods(), "tools/call"), 2);
        bridge.terminate().await;
    }
}

// req: BR-12
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sends_call_at_most_three_times_over_a_connection_that_stays_up() {
    let script =
        Script::new().tool(tool_with_hint("x", "readOnlyHint")).calls("x", vec![Behaviour::silence(); 9]);
    let (server, proxy, bridge) =
        behind_proxy(RemoteTransport::Streamable, script, json!({ "timeoutMs": 20_000 })).await;
    let call = bridge.spawn_call("s:x");
    for sends in 1..=3 {
        let is_sent = || count(&server.methods(), "tools/call") == sends;
        block_in_place(|| eventually("the call is sent", is_sent));
        proxy.cut().await;
    }
    check(&call.await.unwrap().unwrap_err(), "OUTCOME_UNKNOWN unknown false", &[]);
    assert_eq!(count(&server.methods(), "tools/call"), 3);
    bridge.terminate().await;
}

// req: BR-08, BR-09
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reconnects_after_refused_connections() {
    for transport in BOTH_TRANSPORTS {
        let (_server, mut proxy, mut bridge) = behind_proxy(
            transport,
            Script::new().tools(["x"]),
            json!({ "keepAliveMs": 50, "maxRetries": 1000 }),
        )
        .await;
        proxy.refuse().await;
        bridge.wait_for_health("s", "degraded").await;
        bridge.wait_for_event("disconnected").await;
        check(
            &bridge.call("s:x", "{}").await.unwrap_err(),
            "PROVIDER_UNAVAILABLE not_sent true",
            &["`s` is down"],
        );
        proxy.recover().await;
        bridge.wait_for_event("tools.refreshed").await;
        bridge.wait_for_health("s", "healthy").await;
        bridge.wait_for_event("reconnected").await;
        assert_eq!(bridge.health("s")["restarts"], 1, "{transport:?}");
        bridge.call("s:x", "{}").await.unwrap();
        bridge.terminate().await;
    }
}

// req: BR-09, BR-10
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idempotent_call_waits_for_reconnect() {
    let script = Script::new().tool(tool_with_hint("x", "idempotentHint"));
    let (server, mut proxy, mut bridge) =
        behind_proxy(RemoteTransport::Streamable, script, json!({ "reconnectBackoffMs": 30_000 })).await;
    proxy.refuse().await;
    let call = bridge.spawn_call("s:x");
    bridge.wait_for_event("disconnected").await;
    proxy.recover().await;
    bridge.refresh("s").await.unwrap();
    call.await.unwrap().unwrap();
    assert_eq!(count(&server.methods(), "tools/call"), 1);
    bridge.terminate().await;
}

// req: BR-10
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_that_finds_server_refusing_waits_for_first_restart_only() {
    for transport in BOTH_TRANSPORTS {
        let script = Script::new().tools(["x"]);
        // The call may take far longer than the test.
        let patient =
            json!({ "maxRetries": 1000, "timeoutMs": 600_000, "limits": { "maxExecutionMs": 600_000 } });
        let (_server, mut proxy, bridge) = behind_proxy(transport, script, patient).await;
        proxy.refuse().await;
        let mut error = bridge.call("s:x", "{}").await.unwrap_err();
        // The proxy may cut the connection in the middle of the first call.
        if error["code"] == "OUTCOME_UNKNOWN" {
            error = bridge.call("s:x", "{}").await.unwrap_err();
        }
        check(&error, "PROVIDER_UNAVAILABLE not_sent true", &[]);
        assert!(error["retryAfterMs"].is_u64(), "{error:#}");
        bridge.terminate().await;
    }
}

// req: BR-09
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gives_up_refusing_server_until_refresh() {
    for transport in BOTH_TRANSPORTS {
        let (_server, mut proxy, mut bridge) = behind_proxy(
            transport,
            Script::new().tools(["x"]),
            json!({ "keepAliveMs": 50, "maxRetries": 2 }),
        )
        .await;
        proxy.refuse().await;
        let exhausted = bridge.wait_for_event("reconnect.exhausted").await;
        assert!(exhausted["cause"].as_str().unwrap().contains("refused"), "{exhausted}");
        assert_eq!(bridge.health("s")["health"], "unavailable");
        proxy.recover().await;
        bridge.refresh("s").await.unwrap();
        bridge.call("s:x", "{}").await.unwrap();
        bridge.terminate().await;
    }
}

// req: BR-08
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn detects_stalled_connection_by_ping() {
    let (_server, mut proxy, mut bridge) = behind_proxy(
        RemoteTransport::Streamable,
        Script::new().tools(["x"]),
        json!({ "keepAliveMs": 50, "maxRetries": 1000 }),
    )
    .await;
    proxy.stall();
    let lost = bridge.wait_for_event("disconnected").await;
    assert!(lost["cause"].as_str().unwrap().contains("ping"), "{lost}");
    proxy.recover().await;
    bridge.wait_for_event("reconnected").await;
    bridge.call("s:x", "{}").await.unwrap();
    bridge.terminate().await;
}

// req: BR-08, BR-09
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cut_sse_stream_is_a_lost_connection() {
    let (server, proxy, mut bridge) =
        behind_proxy(RemoteTransport::Legacy, Script::new().tools(["x"]), json!({})).await;
    server.set_script(Script::new().tools(["x", "y"]).legacy("/messages"));
    proxy.cut().await;
    bridge.wait_for_event("disconnected").await;
    let refreshed = bridge.wait_for_event("tools.refreshed").await;
    assert_eq!(refreshed["added"], json!(["y"]));
    bridge.wait_for_event("reconnected").await;
    bridge.call("s:y", "{}").await.unwrap();
    bridge.terminate().await;
}

// req: BR-09
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streamable_http_survives_cut_idle_connections() {
    // Read-only, because a cut may hit a request under way, whose delivery is then unknown.
    let script = Script::new().tool(tool_with_hint("x", "readOnlyHint"));
    let (_server, proxy, bridge) = behind_proxy(RemoteTransport::Streamable, script, json!({})).await;
    for _ in 0..5 {
        bridge.call("s:x", "{}").await.unwrap();
        proxy.cut().await;
    }
    bridge.call("s:x", "{}").await.unwrap();
    assert!(bridge.events("disconnected").is_empty());
    bridge.terminate().await;
}

// req: BR-14
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_tools_again_after_list_changed() {
    for transport in BOTH_TRANSPORTS {
        let (server, _proxy, mut bridge) =
            behind_proxy(transport, Script::new().tools(["x"]), json!({})).await;
        let script = Script::new().tools(["x", "y"]).calls("x", [Behaviour::text("ok").after_list_changed()]);
        server.set_script(if transport == RemoteTransport::Legacy {
            script.legacy("/messages")
        } else {
            script
        });
        bridge.call("s:x", "{}").await.unwrap();
        assert_eq!(bridge.wait_for_event("tools.refreshed").await["added"], json!(["y"]), "{transport:?}");
        assert_eq!(bridge.tools(), ["s:x", "s:y"]);
        bridge.terminate().await;
    }
}

// req: BR-09
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn starts_new_session_after_404() {
    let (server, _proxy, mut bridge) =
        behind_proxy(RemoteTransport::Streamable, Script::new().tools(["x"]).session("one"), json!({})).await;
    // The GET stream must be open before the session ends, or it would detect the end first.
    block_in_place(|| server.wait_until(|request| request.method == "GET"));
    server.set_script(Script::new().tools(["x"]).session("two"));
    bridge.call("s:x", "{}").await.unwrap();
    bridge.wait_for_event("reconnected").await;
    bridge.call("s:x", "{}").await.unwrap();
    bridge.terminate().await;
}
