//! Servers built with rmcp, behind our client library and behind `bascule`.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bascule_client::{CallToolOptions, ConnectOptions, ErrorCause, McpBridge, call_tool, connect_to_server};
use bascule_mcp::Failure;
use serde_json::{Value, json};

use super::rmcp_server::{Served, Workshop, in_memory};
use crate::support::{Bascule, text};

/// Connects the library, over HTTP or through the given transport.
async fn connect(url: &str, workshop: Option<Workshop>) -> McpBridge {
    let waiting = Mutex::new(workshop);
    let in_memory: bascule_client::TransportFactory =
        Arc::new(move |_| Ok(in_memory(waiting.lock().unwrap().take().expect("connecting is not retried"))));
    let transport = (url == "memory:").then_some(in_memory);
    let logger: bascule_client::Logger = Arc::new(|_, _| {});
    let options = ConnectOptions { transport, logger: Some(logger), ..ConnectOptions::default() };
    connect_to_server(url, options).await.unwrap()
}

fn within(millis: u64) -> CallToolOptions {
    CallToolOptions {
        timeout: Some(Duration::from_millis(millis)),
        max_attempts: Some(1),
        ..CallToolOptions::default()
    }
}

/// Everything a client does, through the library, whatever the way to the server.
async fn check_library(bridge: McpBridge, workshop: &Workshop) {
    assert_eq!(
        (bridge.client().info().name.as_str(), bridge.client().info().protocol.as_str()),
        ("workshop", "2025-11-25")
    );
    workshop.has_noted("hello bascule 2025-11-25", 1);
    let (tools, odd) = bridge.client().list_tools().await.unwrap();
    let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(
        (names, odd),
        (vec!["add", "lie", "fail", "refuse", "work", "wait", "rename"], vec![]),
        "both pages"
    );

    let patient = || within(60_000);
    let sum = call_tool(&bridge, "add", r#"{"a":2,"b":0.5}"#, patient()).await.unwrap();
    assert_eq!((sum.structured_content().unwrap().get(), sum.is_error()), (r#"{"sum":2.5}"#, false));
    let failed = call_tool(&bridge, "fail", "{}", patient()).await.unwrap();
    assert_eq!((failed.text().as_str(), failed.is_error()), ("the anvil broke", true));
    let refused = call_tool(&bridge, "refuse", "{}", patient()).await.unwrap_err();
    let ErrorCause::Failed(Failure::Answered(fault)) = refused.cause else { panic!("{refused:?}") };
    assert_eq!((fault.code, fault.message.as_str(), refused.retryable), (-32042, "out of iron", false));
    assert_eq!(fault.data.unwrap().get(), r#"{"left":0}"#);

    let worked = call_tool(&bridge, "work", r#"{"steps":3,"pauseMs":1}"#, patient()).await.unwrap();
    assert_eq!(worked.text(), "finished", "its progress disturbed nobody");
    let renamed = call_tool(&bridge, "rename", "{}", patient()).await.unwrap();
    assert_eq!(renamed.text(), "or so they say", "nor did `list_changed`");
    let late = call_tool(&bridge, "wait", "{}", within(2_000)).await.unwrap_err();
    assert!(matches!(late.cause, ErrorCause::TimedOut(_)), "{late:?}");
    workshop.has_noted("cancelled: the time-out was reached", 1);
    let after = call_tool(&bridge, "add", r#"{"a":1,"b":1}"#, patient()).await.unwrap();
    assert_eq!(after.structured_content().unwrap().get(), r#"{"sum":2.0}"#);
    bridge.close().await;
}

// req: CL-02, CL-03, CL-07
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_rmcp_server_in_memory_is_a_server_like_any_other() {
    let workshop = Workshop::default();
    check_library(connect("memory:", Some(workshop.clone())).await, &workshop).await;
    workshop.has_noted("no longer waiting", 1);
}

// req: CL-01, CL-03, CL-07
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_rmcp_server_over_http_is_reached_by_the_library() {
    let server = Served::with_sessions();
    check_library(connect(&server.url, None).await, &server.workshop).await;
    server.workshop.has_noted("no longer waiting", 1);
}

// req: CL-01, CL-07
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_who_leaves_is_noticed_by_an_rmcp_server() {
    let server = Served::with_sessions();
    let bridge = connect(&server.url, None).await;
    let workshop = server.workshop.clone();
    tokio::select! {
        answer = call_tool(&bridge, "wait", "{}", within(60_000)) => panic!("{answer:?}"),
        begun = tokio::task::spawn_blocking(move || workshop.has_noted("waiting", 1)) => begun.unwrap(),
    }
    server.workshop.has_noted("cancelled: the caller left", 1);
    server.workshop.has_noted("no longer waiting", 1);
    bridge.close().await;
}

fn over_http(server: &Served, settings: Value) -> Bascule {
    let mut entry = json!({ "type": "http", "url": server.url });
    entry.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    Bascule::with_server("workshop", entry)
}

fn check_commands(server: &Served) {
    let bascule = over_http(server, json!({}));
    let (code, report) = bascule.run_json(&["check"]);
    let shown = &report["servers"][0];
    assert_eq!((code, &shown["health"], &shown["tools"]), (0, &json!("healthy"), &json!(7)), "{report}");
    assert_eq!(shown["serverInfo"], json!({ "name": "workshop", "version": "3.8" }));
    assert_eq!(
        bascule.call("workshop:add", r#"{"a":40,"b":2}"#)["structuredContent"],
        json!({ "sum": 42.0 })
    );
    let (code, failed) = bascule.run_json(&["call", "workshop:fail"]);
    assert_eq!((code, text(&failed["result"]).as_str()), (1, "the anvil broke"));
    let refused = bascule.call_error("workshop:refuse", "{}");
    assert_eq!((&refused["code"], &refused["delivery"]), (&json!("PROVIDER_ERROR"), &json!("answered")));
    assert_eq!(
        refused["providerError"],
        json!({ "code": -32042, "message": "out of iron", "data": { "left": 0 } })
    );
    assert_eq!(bascule.call_error("workshop:lie", "{}")["code"], "INVALID_OUTPUT");
    assert_eq!(bascule.call_error("workshop:add", r#"{"a":"1","b":2}"#)["violations"][0]["pointer"], "/a");
    assert_eq!(text(&bascule.call("workshop:rename", "{}")), "or so they say");
}

// req: BR-01, BR-04, BR-05
#[test]
fn an_rmcp_server_with_sessions_is_reached_by_the_command_line() {
    check_commands(&Served::with_sessions());
}

// req: BR-01, BR-04, BR-05
#[test]
fn an_rmcp_server_without_sessions_is_reached_by_the_command_line() {
    check_commands(&Served::stateless());
}

// req: BR-01, CL-07
#[test]
fn progress_and_cancellation_cross_http() {
    let server = Served::with_sessions();
    // Together its steps take longer than it may be silent, and each is far from it.
    let bascule = over_http(&server, json!({ "timeoutMs": 5000 }));
    assert_eq!(text(&bascule.call("workshop:work", r#"{"steps":14,"pauseMs":500}"#)), "finished");
    let error = bascule.call_error("workshop:wait", "{}");
    assert_eq!(
        (&error["code"], &error["delivery"]),
        (&json!("PROVIDER_TIMEOUT"), &json!("unknown")),
        "{error}"
    );
    server.workshop.has_noted("waiting", 1);
    server.workshop.has_noted("cancelled: the deadline has passed", 1);
    server.workshop.has_noted("no longer waiting", 1);
}
