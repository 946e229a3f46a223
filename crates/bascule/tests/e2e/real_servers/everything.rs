//! npm `@modelcontextprotocol/server-everything`, over stdio, Streamable HTTP and HTTP+SSE.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bascule_client::{CallToolOptions, ConnectOptions, ErrorCause, McpBridge, call_tool, connect_to_server};
use serde_json::{Value, json};

use super::{HttpServer, START, check_catalog, check_rejected, list_directly, node};
use crate::support::{Bascule, text, with_settings};

const NAME: &str = "mcp-servers/everything";

fn over_stdio(settings: Value) -> Bascule {
    with(node("server-everything", &[]), settings)
}

fn over_http(server: &HttpServer, settings: Value) -> Bascule {
    with(json!({ "url": server.url(), "startTimeoutMs": START }), settings)
}

fn with(entry: Value, settings: Value) -> Bascule {
    Bascule::with_server("everything", with_settings(entry, settings))
}

// req: BR-01, BR-02, BR-03
#[test]
fn catalog_matches_over_both_transports() {
    let own = list_directly(&node("server-everything", &[]));
    check_catalog(&over_stdio(json!({})), "everything", NAME, &own);
    let server = HttpServer::start();
    check_catalog(&over_http(&server, json!({})), "everything", NAME, &own);
    // `check`, `tools` and `describe` have each ended their session.
    server.wait_for_log("Session initialized with ID", 3);
    server.wait_for_log("Received session termination request", 3);
}

fn check_calls(bascule: &Bascule) {
    assert_eq!(
        text(&bascule.call("everything:echo", r#"{"message":"héllo\n\"you\""}"#)),
        "Echo: héllo\n\"you\""
    );
    assert_eq!(
        text(&bascule.call("everything:get-sum", r#"{"a":2,"b":40.5}"#)),
        "The sum of 2 and 40.5 is 42.5."
    );
    let weather = bascule.call("everything:get-structured-content", r#"{"location":"Chicago"}"#);
    assert_eq!(
        weather["structuredContent"],
        json!({ "temperature": 36, "conditions": "Light rain / drizzle", "humidity": 82 })
    );
    check_rejected(bascule, "everything:get-sum", r#"{"a":"2"}"#, &["/a", "/b"]);
    check_rejected(
        bascule,
        "everything:get-structured-content",
        r#"{"location":"Atlantis"}"#,
        &["/location"],
    );
}

// req: BR-04
#[test]
fn calls_work_over_stdio() {
    check_calls(&over_stdio(json!({})));
}

// req: BR-04
#[test]
fn calls_work_over_http() {
    check_calls(&over_http(&HttpServer::start(), json!({})));
}

// req: BR-01, BR-04
#[test]
fn calls_work_over_sse() {
    let server = HttpServer::start_sse();
    check_calls(&over_http(&server, json!({ "type": "sse" })));
    // Every command has closed its stream.
    let connected = server.log().matches("Client Connected").count();
    server.wait_for_log("Client Disconnected", connected);
}

// req: BR-01
#[test]
fn detects_sse_transport() {
    let server = HttpServer::start_sse();
    let bascule = over_http(&server, json!({}));
    assert_eq!(text(&bascule.call("everything:echo", r#"{"message":"hello"}"#)), "Echo: hello");
    let own = list_directly(&node("server-everything", &[]));
    check_catalog(&bascule, "everything", NAME, &own);
}

// req: BR-01, BR-05
#[test]
fn progress_keeps_a_long_call_alive_over_sse() {
    let server = HttpServer::start_sse();
    check_progress(|settings| over_http(&server, settings));
}

#[test]
fn returns_every_kind_of_content() {
    let bascule = over_stdio(json!({}));
    let result =
        bascule.call("everything:get-annotated-message", r#"{"messageType":"error","includeImage":true}"#);
    assert_eq!(
        result["content"][0]["annotations"],
        json!({ "priority": 1, "audience": ["user", "assistant"] })
    );
    assert_eq!(
        (&result["content"][1]["type"], &result["content"][1]["mimeType"]),
        (&json!("image"), &json!("image/png"))
    );
    let result = bascule.call("everything:get-resource-links", r#"{"count":2}"#);
    assert_eq!(
        (&result["content"][1]["type"], &result["content"][2]["type"]),
        (&json!("resource_link"), &json!("resource_link"))
    );
    let result =
        bascule.call("everything:get-resource-reference", r#"{"resourceType":"Text","resourceId":7}"#);
    assert_eq!(result["content"][1]["resource"]["uri"], "demo://resource/dynamic/text/7");
    let output = bascule.run(&["call", "everything:get-tiny-image"]);
    assert!(
        output.stdout.contains("[image image/png, ") && output.stdout.contains("The image above"),
        "{output:?}"
    );
}

// req: BR-01
#[test]
fn server_gets_configured_environment() {
    let bascule = over_stdio(json!({ "env": { "GIVEN": "${OUTSIDE}, ${ABSENT:-else}" } }))
        .env("OUTSIDE", "from outside");
    let environment: Value = serde_json::from_str(&text(&bascule.call("everything:get-env", "{}"))).unwrap();
    assert_eq!(environment["GIVEN"], "from outside, else");
    assert!(environment["PATH"].is_string() && environment["OUTSIDE"].is_null(), "{environment}");
}

/// Checks an operation that takes longer than `timeoutMs` and reports progress.
fn check_progress(with: impl Fn(Value) -> Bascule) {
    let long = r#"{"duration":7,"steps":14}"#;
    let result = with(json!({ "timeoutMs": 5000 })).call("everything:trigger-long-running-operation", long);
    assert_eq!(text(&result), "Long running operation completed. Duration: 7 seconds, Steps: 14.");
    let silent = r#"{"duration":60,"steps":1}"#;
    let error =
        with(json!({ "timeoutMs": 1000 })).call_error("everything:trigger-long-running-operation", silent);
    assert_eq!(
        (&error["code"], &error["retryable"], &error["delivery"]),
        (&json!("PROVIDER_TIMEOUT"), &json!(true), &json!("unknown"))
    );
    assert!(error["message"].as_str().unwrap().contains("within 1000 ms (`timeoutMs`)"), "{error}");
}

// req: BR-01, BR-05
#[test]
fn progress_keeps_a_long_call_alive_over_stdio() {
    check_progress(over_stdio);
}

// req: BR-01, BR-05
#[test]
fn progress_keeps_a_long_call_alive_over_http() {
    let server = HttpServer::start();
    check_progress(|settings| over_http(&server, settings));
}

async fn connect(server: &HttpServer) -> (McpBridge, Arc<Mutex<Vec<String>>>) {
    let lines = Arc::<Mutex<Vec<String>>>::default();
    let log = lines.clone();
    let options = ConnectOptions {
        logger: Some(Arc::new(move |_, line| log.lock().unwrap().push(line.to_owned()))),
        timeout: Some(Duration::from_millis(START)),
        ..ConnectOptions::default()
    };
    (connect_to_server(&server.url(), options).await.unwrap(), lines)
}

/// One attempt with this timeout.
fn once(timeout: Duration) -> CallToolOptions {
    CallToolOptions { timeout: Some(timeout), max_attempts: Some(1), ..CallToolOptions::default() }
}

// req: CL-01, CL-03, CL-08, CL-09
#[tokio::test]
async fn client_library_connects_calls_and_closes() {
    let server = HttpServer::start();
    let (bridge, lines) = connect(&server).await;
    assert_eq!((bridge.url(), bridge.client().info().name.as_str()), (server.url().as_str(), NAME));
    let (tools, odd) = bridge.client().list_tools().await.unwrap();
    assert!(tools.iter().any(|tool| tool.name == "echo") && odd.is_empty());

    let patient = || once(Duration::from_secs(60));
    let result = call_tool(&bridge, "echo", r#"{"message":"hello"}"#, patient()).await.unwrap();
    assert_eq!((result.text().as_str(), result.is_error()), ("Echo: hello", false));
    let result =
        call_tool(&bridge, "get-structured-content", r#"{"location":"New York"}"#, patient()).await.unwrap();
    let structured: Value = serde_json::from_str(result.structured_content().unwrap().get()).unwrap();
    assert_eq!(structured["conditions"], "Cloudy");
    // The server validates the arguments itself and returns an error result.
    let result = call_tool(&bridge, "get-sum", r#"{"a":"2"}"#, patient()).await.unwrap();
    assert!(result.is_error() && result.text().contains("-32602"), "{}", result.raw());

    bridge.close().await;
    bridge.close().await;
    server.wait_for_log("Received session termination request", 1);
    let closed = call_tool(&bridge, "echo", r#"{"message":"late"}"#, patient()).await.unwrap_err();
    assert!(matches!(closed.cause, ErrorCause::Closed));
    let url = server.url();
    let lines = lines.lock().unwrap();
    assert_eq!(
        lines[..3],
        [format!("connecting to {url}"), format!("connected to {url}"), "callTool echo attempt 1/1".into()]
    );
}

// req: CL-05, CL-06
#[tokio::test]
async fn client_library_detects_slow_and_stopped_server() {
    let server = HttpServer::start();
    let (bridge, _) = connect(&server).await;
    let long = r#"{"duration":60,"steps":1}"#;
    let late = call_tool(&bridge, "trigger-long-running-operation", long, once(Duration::from_secs(2))).await;
    let late = late.unwrap_err();
    assert!(
        matches!(late.cause, ErrorCause::TimedOut(_)) && late.retryable && late.attempts == 1,
        "{late:?}"
    );
    let still =
        call_tool(&bridge, "echo", r#"{"message":"there?"}"#, once(Duration::from_secs(60))).await.unwrap();
    assert_eq!(still.text(), "Echo: there?");
    let url = server.url();
    drop(server);
    let gone =
        call_tool(&bridge, "echo", r#"{"message":"?"}"#, once(Duration::from_secs(60))).await.unwrap_err();
    assert!(gone.retryable && gone.attempts == 1, "{gone:?}");
    bridge.close().await;
    let quiet = ConnectOptions { logger: Some(Arc::new(|_, _| {})), ..ConnectOptions::default() };
    let refused = connect_to_server(&url, quiet).await.err().expect("the server has stopped");
    assert!(matches!(refused.cause, ErrorCause::Connect(_)) && refused.attempts == 1, "{refused:?}");
}
