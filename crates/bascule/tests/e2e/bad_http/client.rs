//! The client library over HTTP: retries and log lines.

use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bascule_client::{
    CallToolOptions, CallToolResult, ConnectOptions, McpBridge, McpBridgeError, call_tool, connect_to_server,
};
use bascule_testkit::{HttpFault, ScriptedHttp};

use super::echoing;
use crate::embedded::within_timeout;

/// Connects and records the log lines.
async fn connect(server: &ScriptedHttp) -> (McpBridge, Arc<Mutex<Vec<String>>>) {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let log = lines.clone();
    let options = ConnectOptions {
        environment: Some(Default::default()),
        logger: Some(Arc::new(move |_, line: &str| log.lock().unwrap().push(line.to_owned()))),
        ..ConnectOptions::default()
    };
    (within_timeout(connect_to_server(&server.url(), options)).await.unwrap(), lines)
}

async fn call(bridge: &McpBridge, timeout: Duration) -> Result<CallToolResult, McpBridgeError> {
    let options = CallToolOptions { timeout: Some(timeout), ..CallToolOptions::default() };
    within_timeout(call_tool(bridge, "x", r#"{"n":1.0}"#, options)).await
}

const LONG_TIMEOUT: Duration = Duration::from_secs(60);

/// Checks that a call with one failed attempt is retried.
async fn check_retried(fault: HttpFault) {
    let server = ScriptedHttp::start(echoing());
    let (bridge, log) = connect(&server).await;
    server.fail_next("tools/call", fault.clone());
    assert_eq!(call(&bridge, LONG_TIMEOUT).await.unwrap().text(), r#"{"n":1.0}"#, "{fault:?}");
    let log = log.lock().unwrap().join("\n");
    assert!(log.contains("callTool x attempt 2/3") && log.contains("retrying in 1000ms (error: "), "{log}");
    bridge.close().await;
}

// req: CL-05
// req: CL-09
#[tokio::test]
async fn retries_transient_failures() {
    let faults = [
        HttpFault::status(502, ""),
        HttpFault::status(503, "busy"),
        HttpFault::status(504, ""),
        HttpFault::CutBody,
        HttpFault::CutChunks,
        HttpFault::CutStream,
    ];
    let [a, b, c, d, e, f] = faults.map(check_retried);
    tokio::join!(a, b, c, d, e, f);
}

// req: CL-05
// req: CL-07
#[tokio::test]
async fn cancels_and_retries_timed_out_call() {
    let server = ScriptedHttp::start(echoing());
    let (bridge, log) = connect(&server).await;
    server.fail_next("tools/call", HttpFault::Silence);
    assert!(call(&bridge, Duration::from_millis(1500)).await.is_ok());
    assert!(log.lock().unwrap().iter().any(|line| line.contains("no response within 1500 ms")));
    server.wait_for("notifications/cancelled");
    bridge.close().await;
}

// req: CL-05
// req: CL-06
#[tokio::test]
async fn does_not_retry_permanent_failures() {
    for (fault, message) in [
        (HttpFault::status(400, "odd"), "HTTP 400: odd"),
        (HttpFault::unauthorised("Bearer"), "authorisation"),
        (HttpFault::status(403, ""), "HTTP 403"),
        (HttpFault::status(404, ""), "HTTP 404"),
        (HttpFault::status(500, ""), "HTTP 500"),
        (HttpFault::html(), "text/html"),
    ] {
        let server = ScriptedHttp::start(echoing());
        let (bridge, log) = connect(&server).await;
        server.fail_always("tools/call", fault);
        let failed = call(&bridge, LONG_TIMEOUT).await.unwrap_err();
        assert_eq!((failed.attempts, failed.retryable), (1, false), "{failed}");
        assert!(failed.to_string().contains(message), "{failed}");
        let last = log.lock().unwrap().last().unwrap().clone();
        assert_eq!(last, format!("callTool x non-retryable error: {failed}"));
        bridge.close().await;
    }
}

// req: CL-05
// req: CL-06
#[tokio::test]
async fn retries_stopped_server_up_to_max_attempts() {
    let mut server = ScriptedHttp::start(echoing());
    let (bridge, log) = connect(&server).await;
    server.stop();
    let options =
        CallToolOptions { timeout: Some(LONG_TIMEOUT), max_attempts: Some(2), ..CallToolOptions::default() };
    let failed = within_timeout(call_tool(&bridge, "x", "{}", options)).await.unwrap_err();
    assert_eq!((failed.attempts, failed.retryable), (2, true), "{failed}");
    assert_eq!(log.lock().unwrap().last().unwrap(), "callTool x failed after 2 attempt(s)");
    bridge.close().await;
}

// req: CL-01
#[tokio::test]
async fn does_not_retry_connecting() {
    for fault in [HttpFault::status(503, "busy"), HttpFault::CutBody, HttpFault::unauthorised("Bearer")] {
        let server = ScriptedHttp::start(echoing());
        server.fail_always("initialize", fault.clone());
        let options = ConnectOptions { timeout: Some(LONG_TIMEOUT), ..ConnectOptions::default() };
        let failed = within_timeout(connect_to_server(&server.url(), options)).await.err().unwrap();
        assert_eq!((failed.attempts, server.requests().len()), (1, 1), "{fault:?}: {failed}");
    }
}

// req: CL-08
#[tokio::test]
async fn closing_twice_ends_session_once() {
    let server = ScriptedHttp::start(echoing().session("a"));
    let (bridge, _log) = connect(&server).await;
    bridge.close().await;
    bridge.close().await;
    let deletes = server.requests().iter().filter(|request| request.method == "DELETE").count();
    assert_eq!(deletes, 1);
    assert_eq!(call(&bridge, LONG_TIMEOUT).await.unwrap_err().to_string(), "the bridge is closed");
}

// req: CL-08
#[tokio::test]
async fn closing_does_not_wait_for_silent_server() {
    let server = ScriptedHttp::start(echoing().session("a"));
    let (bridge, _log) = connect(&server).await;
    server.fail_always("*", HttpFault::Silence);
    let close = async {
        while !server.methods().contains(&"tools/call".to_owned()) {
            tokio::task::yield_now().await;
        }
        within_timeout(bridge.close()).await;
    };
    let (called, ()) = tokio::join!(call(&bridge, LONG_TIMEOUT), close);
    assert_eq!(called.unwrap_err().attempts, 1);
}

/// Passes the server's URL to this test when it runs in a process of its own.
const SERVER_URL: &str = "BASCULE_TEST_SERVER_URL";

// req: CL-02
// req: CL-09
#[test]
fn never_writes_to_stdout() {
    if let Ok(url) = std::env::var(SERVER_URL) {
        return use_library(&url);
    }
    let server = ScriptedHttp::start(echoing());
    server.fail_next("tools/call", HttpFault::status(503, "busy"));
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "bad_http::client::never_writes_to_stdout", "--nocapture", "--quiet"])
        .env(SERVER_URL, server.url())
        .output()
        .unwrap();
    let (stdout, stderr) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{stdout}{stderr}");
    let ours = |line: &&str| line.contains("mcp-bridge") || line.contains("callTool");
    assert_eq!(stdout.lines().filter(ours).count(), 0, "{stdout}");
    // Without a logger and a `tracing` subscriber the lines go to stderr.
    let lines: Vec<&str> = stderr.lines().filter(ours).collect();
    let url = server.url();
    assert_eq!(
        lines[..2],
        [format!("[mcp-bridge] connecting to {url}"), format!("[mcp-bridge] connected to {url}")]
    );
    assert_eq!(lines[2], "[mcp-bridge] callTool x attempt 1/3");
    assert!(lines[3].starts_with("[mcp-bridge] retrying in 1000ms (error: "), "{stderr}");
    assert_eq!(
        lines.last(),
        Some(&"[mcp-bridge] callTool nothing non-retryable error: no such tool (JSON-RPC error -32602)")
    );
}

fn use_library(url: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let bridge = connect_to_server(url, ConnectOptions::default()).await.unwrap();
        call(&bridge, LONG_TIMEOUT).await.unwrap();
        assert!(call_tool(&bridge, "nothing", "{}", CallToolOptions::default()).await.is_err());
        bridge.close().await;
    });
}
