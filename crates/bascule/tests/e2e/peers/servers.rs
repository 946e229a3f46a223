//! Servers built with rmcp, behind the client library and behind `bascule`.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bascule_client::{CallToolOptions, ConnectOptions, ErrorCause, McpBridge, call_tool, connect_to_server};
use bascule_mcp::Failure;
use serde_json::{Value, json};

use super::rmcp_server::{RmcpHttpServer, RmcpServer, in_memory};
use crate::support::{Bascule, text};

/// Connects the client library over HTTP, or in memory for `memory:`.
async fn connect(url: &str, server: Option<RmcpServer>) -> McpBridge {
    let waiting = Mutex::new(server);
    let in_memory: bascule_client::TransportFactory =
        Arc::new(move |_| Ok(in_memory(waiting.lock().unwrap().take().expect("connecting is not retried"))));
    let transport = (url == "memory:").then_some(in_memory);
    let logger: bascule_client::Logger = Arc::new(|_, _| {});
    let options = ConnectOptions { transport, logger: Some(logger), ..ConnectOptions::default() };
    connect_to_server(url, options).await.unwrap()
}

fn once_within(millis: u64) -> CallToolOptions {
    CallToolOptions {
        timeout: Some(Duration::from_millis(millis)),
        max_attempts: Some(1),
        ..CallToolOptions::default()
    }
}

/// Uses every operation of the client library.
async fn check_library(bridge: McpBridge, server: &RmcpServer) {
    assert_eq!(
        (bridge.client().info().name.as_str(), bridge.client().info().protocol.as_str()),
        ("workshop", "2025-11-25")
    );
    server.wait_for_line("hello bascule 2025-11-25", 1);
    let (tools, odd) = bridge.client().list_tools().await.unwrap();
    let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(
        (names, odd),
        (vec!["add", "lie", "fail", "refuse", "work", "wait", "rename"], vec![]),
        "both pages"
    );

    let patient = || once_within(60_000);
    let sum = call_tool(&bridge, "add", r#"{"a":2,"b":0.5}"#, patient()).await.unwrap();
    assert_eq!((sum.structured_content().unwrap().get(), sum.is_error()), (r#"{"sum":2.5}"#, false));
    let failed = call_tool(&bridge, "fail", "{}", patient()).await.unwrap();
    assert_eq!((failed.text().as_str(), failed.is_error()), ("the anvil broke", true));
    let refused = call_tool(&bridge, "refuse", "{}", patient()).await.unwrap_err();
    let ErrorCause::Failed(Failure::ErrorResponse(fault)) = refused.cause else { panic!("{refused:?}") };
    assert_eq!((fault.code, fault.message.as_str(), refused.retryable), (-32042, "out of iron", false));
    assert_eq!(fault.data.unwrap().get(), r#"{"left":0}"#);

    let worked = call_tool(&bridge, "work", r#"{"steps":3,"pauseMs":1}"#, patient()).await.unwrap();
    assert_eq!(worked.text(), "finished", "progress notifications do not disturb the call");
    let renamed = call_tool(&bridge, "rename", "{}", patient()).await.unwrap();
    assert_eq!(renamed.text(), "or so they say", "`list_changed` does not disturb the call");
    let late = call_tool(&bridge, "wait", "{}", once_within(2_000)).await.unwrap_err();
    assert!(matches!(late.cause, ErrorCause::TimedOut(_)), "{late:?}");
    server.wait_for_line("cancelled: the timeout was reached", 1);
    let after = call_tool(&bridge, "add", r#"{"a":1,"b":1}"#, patient()).await.unwrap();
    assert_eq!(after.structured_content().unwrap().get(), r#"{"sum":2.0}"#);
    bridge.close().await;
}

// req: CL-02, CL-03, CL-07
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn library_uses_rmcp_server_in_memory() {
    let server = RmcpServer::default();
    check_library(connect("memory:", Some(server.clone())).await, &server).await;
    server.wait_for_line("no longer waiting", 1);
}

// req: CL-01, CL-03, CL-07
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn library_uses_rmcp_server_over_http() {
    let server = RmcpHttpServer::with_sessions();
    check_library(connect(&server.url, None).await, &server.server).await;
    server.server.wait_for_line("no longer waiting", 1);
}

// req: CL-01, CL-07
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rmcp_server_receives_cancellation_when_caller_leaves() {
    let server = RmcpHttpServer::with_sessions();
    let bridge = connect(&server.url, None).await;
    let handler = server.server.clone();
    tokio::select! {
        answer = call_tool(&bridge, "wait", "{}", once_within(60_000)) => panic!("{answer:?}"),
        waiting = tokio::task::spawn_blocking(move || handler.wait_for_line("waiting", 1)) => waiting.unwrap(),
    }
    server.server.wait_for_line("cancelled: the caller left", 1);
    server.server.wait_for_line("no longer waiting", 1);
    bridge.close().await;
}

fn over_http(server: &RmcpHttpServer, settings: Value) -> Bascule {
    let mut entry = json!({ "type": "http", "url": server.url });
    entry.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    Bascule::with_server("workshop", entry)
}

fn check_commands(server: &RmcpHttpServer) {
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
fn commands_use_rmcp_server_with_sessions() {
    check_commands(&RmcpHttpServer::with_sessions());
}

// req: BR-01, BR-04, BR-05
#[test]
fn commands_use_stateless_rmcp_server() {
    check_commands(&RmcpHttpServer::stateless());
}

// req: BR-01, CL-07
#[test]
fn forwards_progress_and_cancellation_over_http() {
    let server = RmcpHttpServer::with_sessions();
    // The steps add up to more than `timeoutMs`; each is far shorter.
    let bascule = over_http(&server, json!({ "timeoutMs": 5000 }));
    assert_eq!(text(&bascule.call("workshop:work", r#"{"steps":14,"pauseMs":500}"#)), "finished");
    let error = bascule.call_error("workshop:wait", "{}");
    assert_eq!(
        (&error["code"], &error["delivery"]),
        (&json!("PROVIDER_TIMEOUT"), &json!("unknown")),
        "{error}"
    );
    server.server.wait_for_line("waiting", 1);
    server.server.wait_for_line("cancelled: the deadline has passed", 1);
    server.server.wait_for_line("no longer waiting", 1);
}
