//! Servers behind a URL whose connection is cut, refused or stalled: Streamable HTTP, and HTTP+SSE as it was before.

use bascule_testkit::{Behaviour, Script, ScriptedHttp};
use serde_json::{Value, json};
use tokio::task::block_in_place;

use super::listening::Fleet;
use super::proxy::Proxy;
use super::{count, eager, harmless, with};
use crate::bad_stdio::check;
use crate::support::text;

const UNKNOWN: &str = "OUTCOME_UNKNOWN unknown false";

/// How a server is spoken to.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Wire {
    Streamable,
    Legacy,
}

const BOTH: [Wire; 2] = [Wire::Streamable, Wire::Legacy];

/// A server behind a proxy, and a bridge that reaches it through that.
async fn behind_proxy(wire: Wire, script: Script, settings: Value) -> (ScriptedHttp, Proxy, Fleet) {
    let (script, kind) = match wire {
        Wire::Streamable => (script, "http"),
        Wire::Legacy => (script.legacy("/messages"), "sse"),
    };
    let server = ScriptedHttp::start(script);
    let proxy = Proxy::to(&server.url()).await;
    let entry = eager(json!({ "type": kind, "url": proxy.url(), "keepAliveMs": 0 }));
    let fleet = Fleet::start(json!({ "s": with(entry, settings) })).await;
    (server, proxy, fleet)
}

// req: BR-05
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_cut_in_the_middle_of_its_answer_has_an_unknown_outcome() {
    for wire in BOTH {
        let half = Behaviour::silence().after_log("half of it");
        let script = Script::new().tools(["x"]).tool(harmless("y", "readOnlyHint")).calls("x", [half]);
        let (server, proxy, mut fleet) = behind_proxy(wire, script, json!({})).await;
        let calling = fleet.calling("s:x");
        block_in_place(|| server.wait_for("tools/call"));
        proxy.cut().await;
        let error = calling.await.unwrap().unwrap_err();
        check(&error, UNKNOWN, &[]);
        assert_eq!(error["attempts"], 1, "{wire:?}");
        if wire == Wire::Legacy {
            // There the stream is the connection.
            fleet.until("reconnected").await;
        }
        fleet.call("s:y", "{}").await.unwrap();
        fleet.end().await;
    }
}

// req: BR-09
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_harmless_call_that_is_cut_is_made_again() {
    for wire in BOTH {
        let script = Script::new()
            .tool(harmless("x", "readOnlyHint"))
            .calls("x", [Behaviour::silence(), Behaviour::text("fine")]);
        let (server, proxy, fleet) = behind_proxy(wire, script, json!({})).await;
        let calling = fleet.calling("s:x");
        block_in_place(|| server.wait_for("tools/call"));
        proxy.cut().await;
        assert_eq!(text(&calling.await.unwrap().unwrap()), "fine", "{wire:?}");
        assert_eq!(count(&server.methods(), "tools/call"), 2);
        fleet.end().await;
    }
}

// req: BR-08, BR-09
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_refuses_is_lost_and_comes_back() {
    for wire in BOTH {
        let (_server, mut proxy, mut fleet) =
            behind_proxy(wire, Script::new().tools(["x"]), json!({ "keepAliveMs": 50, "maxRetries": 1000 }))
                .await;
        proxy.refuse().await;
        fleet.until_health("s", "degraded").await;
        fleet.until("disconnected").await;
        check(
            &fleet.call("s:x", "{}").await.unwrap_err(),
            "PROVIDER_UNAVAILABLE not_sent true",
            &["`s` is down"],
        );
        proxy.recover().await;
        fleet.until("tools.refreshed").await;
        fleet.until_health("s", "healthy").await;
        fleet.until("reconnected").await;
        assert_eq!(fleet.health("s")["restarts"], 1, "{wire:?}");
        fleet.call("s:x", "{}").await.unwrap();
        fleet.end().await;
    }
}

// req: BR-09, BR-10
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_harmless_call_that_finds_its_server_gone_waits_for_it() {
    let script = Script::new().tool(harmless("x", "idempotentHint"));
    let (server, mut proxy, mut fleet) =
        behind_proxy(Wire::Streamable, script, json!({ "maxRetries": 1000 })).await;
    proxy.refuse().await;
    let calling = fleet.calling("s:x");
    fleet.until("disconnected").await;
    proxy.recover().await;
    calling.await.unwrap().unwrap();
    assert_eq!(count(&server.methods(), "tools/call"), 1);
    fleet.end().await;
}

// req: BR-09
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_refuses_for_too_long_is_given_up_until_it_is_asked_for() {
    for wire in BOTH {
        let (_server, mut proxy, mut fleet) =
            behind_proxy(wire, Script::new().tools(["x"]), json!({ "keepAliveMs": 50, "maxRetries": 2 }))
                .await;
        proxy.refuse().await;
        let exhausted = fleet.until("reconnect.exhausted").await;
        assert!(exhausted["cause"].as_str().unwrap().contains("refused"), "{exhausted}");
        assert_eq!(fleet.health("s")["health"], "unavailable");
        proxy.recover().await;
        fleet.refresh("s").await.unwrap();
        fleet.call("s:x", "{}").await.unwrap();
        fleet.end().await;
    }
}

// req: BR-08
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_way_on_which_nothing_passes_is_found_out_by_a_ping() {
    let (_server, mut proxy, mut fleet) = behind_proxy(
        Wire::Streamable,
        Script::new().tools(["x"]),
        json!({ "keepAliveMs": 50, "maxRetries": 1000 }),
    )
    .await;
    proxy.stall();
    let lost = fleet.until("disconnected").await;
    assert!(lost["cause"].as_str().unwrap().contains("ping"), "{lost}");
    proxy.recover().await;
    fleet.until("reconnected").await;
    fleet.call("s:x", "{}").await.unwrap();
    fleet.end().await;
}

// req: BR-08, BR-09
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_is_cut_is_a_server_that_is_lost_where_the_stream_is_the_connection() {
    let (server, proxy, mut fleet) = behind_proxy(Wire::Legacy, Script::new().tools(["x"]), json!({})).await;
    server.change(Script::new().tools(["x", "y"]).legacy("/messages"));
    proxy.cut().await;
    fleet.until("disconnected").await;
    let refreshed = fleet.until("tools.refreshed").await;
    assert_eq!(refreshed["added"], json!(["y"]));
    fleet.until("reconnected").await;
    fleet.call("s:y", "{}").await.unwrap();
    fleet.end().await;
}

// req: BR-09
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_that_are_cut_do_not_matter_to_streamable_http() {
    // Harmless, because a request may meet the cut on its way: then nobody knows how far it got.
    let script = Script::new().tool(harmless("x", "readOnlyHint"));
    let (_server, proxy, fleet) = behind_proxy(Wire::Streamable, script, json!({})).await;
    for _ in 0..5 {
        fleet.call("s:x", "{}").await.unwrap();
        proxy.cut().await;
    }
    fleet.call("s:x", "{}").await.unwrap();
    assert!(fleet.told("disconnected").is_empty());
    fleet.end().await;
}

// req: BR-14
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_behind_a_url_says_that_its_tools_have_changed() {
    for wire in BOTH {
        let (server, _proxy, mut fleet) = behind_proxy(wire, Script::new().tools(["x"]), json!({})).await;
        let script = Script::new().tools(["x", "y"]).calls("x", [Behaviour::text("ok").after_list_changed()]);
        server.change(if wire == Wire::Legacy { script.legacy("/messages") } else { script });
        fleet.call("s:x", "{}").await.unwrap();
        assert_eq!(fleet.until("tools.refreshed").await["added"], json!(["y"]), "{wire:?}");
        assert_eq!(fleet.tools(), ["s:x", "s:y"]);
        fleet.end().await;
    }
}

// req: BR-09
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forgotten_session_is_begun_anew() {
    let (server, _proxy, mut fleet) =
        behind_proxy(Wire::Streamable, Script::new().tools(["x"]).session("one"), json!({})).await;
    // It also asks for what the server says unasked, and must not be the first to find out.
    block_in_place(|| server.wait_until(|request| request.method == "GET"));
    server.change(Script::new().tools(["x"]).session("two"));
    fleet.call("s:x", "{}").await.unwrap();
    fleet.until("reconnected").await;
    fleet.call("s:x", "{}").await.unwrap();
    fleet.end().await;
}
