//! Tests `connect_to_server` and `call_tool` with a scripted server in memory and a paused clock.

#![allow(clippy::unwrap_used, reason = "test helpers may panic")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bascule_client::{
    CallToolOptions, ConnectOptions, Environment, ErrorCause, LogLevel, McpBridge, McpBridgeError, Transport,
    call_tool, connect_to_server,
};
use serde_json::{Value, json};
use tokio::time::Instant;

/// The scripted server's reaction to a message: a response or none.
type Script = Box<dyn FnMut(&Value) -> Option<Value> + Send>;

/// A scripted server in memory that records received messages and log lines.
struct ScriptedServer {
    options: ConnectOptions,
    received: Arc<Mutex<Vec<Value>>>,
    log: Arc<Mutex<Vec<String>>>,
    connects: Arc<Mutex<u32>>,
}

impl ScriptedServer {
    fn new(mut script: impl FnMut(&Value) -> Option<Value> + Send + 'static) -> Self {
        let received = Arc::<Mutex<Vec<Value>>>::default();
        let log = Arc::<Mutex<Vec<String>>>::default();
        let connects = Arc::<Mutex<u32>>::default();
        let mut script: Option<Script> =
            Some(Box::new(move |message: &Value| match message["method"].as_str() {
                Some("initialize") => {
                    script(message).or_else(|| Some(json!({ "result": initialize_result("2025-11-25") })))
                }
                _ => script(message),
            }));
        let scripts = Mutex::new(move || script.take().expect("connected once"));
        let (messages, count) = (received.clone(), connects.clone());
        let factory = move |_: &str| {
            *count.lock().unwrap() += 1;
            Ok(serve((scripts.lock().unwrap())(), messages.clone()))
        };
        let lines = log.clone();
        let options = ConnectOptions {
            transport: Some(Arc::new(factory)),
            environment: Some(Environment::new()),
            logger: Some(Arc::new(move |_: LogLevel, line: &str| {
                lines.lock().unwrap().push(line.to_owned())
            })),
            ..ConnectOptions::default()
        };
        Self { options, received, log, connects }
    }

    async fn connect(&self) -> Result<McpBridge, McpBridgeError> {
        connect_to_server("http://scripted/mcp", self.options.clone()).await
    }

    fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    fn methods(&self) -> Vec<String> {
        self.received.lock().unwrap().iter().map(|m| m["method"].as_str().unwrap().to_owned()).collect()
    }
}

fn serve(mut script: Script, received: Arc<Mutex<Vec<Value>>>) -> Transport {
    let (transport, mut far) = Transport::pair();
    tokio::spawn(async move {
        while let Some(frame) = far.incoming.recv().await {
            let message: Value = serde_json::from_slice(&frame).unwrap();
            received.lock().unwrap().push(message.clone());
            if let Some(mut answer) = script(&message) {
                answer["jsonrpc"] = "2.0".into();
                answer["id"] = message["id"].clone();
                far.outgoing.send(answer.to_string().into_bytes()).await.unwrap();
            }
        }
    });
    transport
}

fn initialize_result(version: &str) -> Value {
    json!({ "protocolVersion": version, "capabilities": {}, "serverInfo": { "name": "scripted", "version": "1" } })
}

fn text(text: &str) -> Value {
    json!({ "result": { "content": [{ "type": "text", "text": text }] } })
}

fn error(code: i64) -> Value {
    json!({ "error": { "code": code, "message": "boom" } })
}

/// Answers calls with these in order and ignores all other messages.
fn respond_to_calls(answers: Vec<Option<Value>>) -> ScriptedServer {
    let mut answers = answers.into_iter();
    ScriptedServer::new(move |message| match message["method"].as_str() {
        Some("tools/call") => answers.next().expect("no further call"),
        _ => None,
    })
}

async fn call(bridge: &McpBridge) -> Result<bascule_client::CallToolResult, McpBridgeError> {
    let options = CallToolOptions { environment: Some(Environment::new()), ..CallToolOptions::default() };
    call_tool(bridge, "add", r#"{"a":1.0}"#, options).await
}

// req: CL-01, CL-02, CL-09
#[tokio::test(start_paused = true)]
async fn connects_and_logs() {
    let server = respond_to_calls(vec![]);
    let bridge = server.connect().await.unwrap();
    assert_eq!(bridge.url(), "http://scripted/mcp");
    assert_eq!(bridge.client().info().name, "scripted");
    bridge.close().await;
    assert_eq!(server.methods(), ["initialize", "notifications/initialized"]);
    assert_eq!(server.log(), ["connecting to http://scripted/mcp", "connected to http://scripted/mcp"]);
}

// req: CL-01
#[tokio::test(start_paused = true)]
async fn does_not_retry_connecting() {
    let server = ScriptedServer::new(|message| (message["method"] == "initialize").then(|| error(-32603)));
    let failed = server.connect().await.err().expect("it fails");
    assert_eq!((failed.attempts, *server.connects.lock().unwrap()), (1, 1));
    assert_eq!(failed.to_string(), "the handshake failed: boom (JSON-RPC error -32603)");
    assert_eq!(server.log(), ["connecting to http://scripted/mcp"]);
}

// req: BR-02
#[tokio::test(start_paused = true)]
async fn refuses_unknown_protocol_version() {
    let server = ScriptedServer::new(|message| {
        (message["method"] == "initialize").then(|| json!({ "result": initialize_result("2030-01-01") }))
    });
    let message = server.connect().await.err().expect("it fails").to_string();
    assert!(message.contains("2030-01-01") && message.contains("2025-11-25"), "{message}");
}

// req: CL-02, CL-04, CL-07
#[tokio::test(start_paused = true)]
async fn handshake_times_out_without_cancellation() {
    let mut server = ScriptedServer::new(|_| None);
    // The default script answers `initialize`: use a transport that never responds.
    let (received, far_ends) = (server.received.clone(), Arc::new(Mutex::new(Vec::new())));
    let keep = far_ends.clone();
    server.options.transport = Some(Arc::new(move |_| {
        let (transport, mut far) = Transport::pair();
        let received = received.clone();
        keep.lock().unwrap().push(far.outgoing.clone());
        tokio::spawn(async move {
            while let Some(frame) = far.incoming.recv().await {
                received.lock().unwrap().push(serde_json::from_slice(&frame).unwrap());
            }
        });
        Ok(transport)
    }));
    server.options.environment = Some(Environment::from([("BASCULE_MCP_TIMEOUT".into(), "1234".into())]));
    let begin = Instant::now();
    let failed = server.connect().await.err().expect("it fails");
    assert_eq!(begin.elapsed(), Duration::from_millis(1234));
    assert_eq!(failed.to_string(), "the server did not respond to `initialize` within 1234 ms");
    assert_eq!(server.methods(), ["initialize"]);
}

// req: CL-03
#[tokio::test(start_paused = true)]
async fn returns_tool_failure_as_result() {
    let server = respond_to_calls(vec![Some(json!({ "result": { "content": [], "isError": true } }))]);
    let bridge = server.connect().await.unwrap();
    assert!(call(&bridge).await.unwrap().is_error());
    let sent = server.received.lock().unwrap()[2]["params"].clone();
    assert_eq!(sent, json!({ "name": "add", "arguments": { "a": 1.0 }, "_meta": { "progressToken": 2 } }));
}

// req: CL-05, CL-09
#[tokio::test(start_paused = true)]
async fn retries_transient_failure_after_one_then_two_seconds() {
    let server = respond_to_calls(vec![Some(error(-32603)), Some(error(-32001)), Some(text("3"))]);
    let bridge = server.connect().await.unwrap();
    let begin = Instant::now();
    assert_eq!(call(&bridge).await.unwrap().text(), "3");
    assert_eq!(begin.elapsed(), Duration::from_millis(1000 + 2000));
    assert_eq!(
        server.log()[2..],
        [
            "callTool add attempt 1/3",
            "retrying in 1000ms (error: boom (JSON-RPC error -32603))",
            "callTool add attempt 2/3",
            "retrying in 2000ms (error: boom (JSON-RPC error -32001))",
            "callTool add attempt 3/3",
        ]
    );
}

// req: CL-05, CL-06, CL-09
#[tokio::test(start_paused = true)]
async fn returns_last_cause_after_last_attempt() {
    let server = respond_to_calls(vec![Some(error(-32603)), Some(error(-32603)), Some(error(-32000))]);
    let bridge = server.connect().await.unwrap();
    let begin = Instant::now();
    let failed = call(&bridge).await.unwrap_err();
    assert_eq!(begin.elapsed(), Duration::from_millis(3000), "no delay after the last failure");
    assert_eq!((failed.attempts, failed.retryable), (3, true));
    assert_eq!(failed.to_string(), "boom (JSON-RPC error -32000)");
    assert_eq!(server.log().last().unwrap(), "callTool add failed after 3 attempt(s)");
}

// req: CL-05, CL-06, CL-09
#[tokio::test(start_paused = true)]
async fn does_not_retry_permanent_failure() {
    for code in [-32600, -32601, -32602, -31999] {
        let server = respond_to_calls(vec![Some(error(code))]);
        let bridge = server.connect().await.unwrap();
        let begin = Instant::now();
        let failed = call(&bridge).await.unwrap_err();
        assert_eq!(begin.elapsed(), Duration::ZERO);
        assert_eq!((failed.attempts, failed.retryable), (1, false));
        let line = format!("callTool add non-retryable error: boom (JSON-RPC error {code})");
        assert_eq!(*server.log().last().unwrap(), line);
    }
}

// req: CL-03, CL-04, CL-05, CL-07
#[tokio::test(start_paused = true)]
async fn cancels_and_retries_call_after_timeout() {
    let server = respond_to_calls(vec![None, Some(text("late"))]);
    let bridge = server.connect().await.unwrap();
    let begin = Instant::now();
    let options = CallToolOptions {
        timeout: Some(Duration::from_millis(500)),
        max_attempts: Some(2),
        ..CallToolOptions::default()
    };
    assert_eq!(call_tool(&bridge, "add", "{}", options).await.unwrap().text(), "late");
    assert_eq!(begin.elapsed(), Duration::from_millis(500 + 1000));
    assert_eq!(
        server.methods()[2..],
        ["tools/call", "notifications/cancelled", "tools/call"],
        "cancelled before the retry"
    );
    let received = server.received.lock().unwrap();
    assert_eq!(received[3]["params"]["requestId"], received[2]["id"]);
}

// req: CL-07
#[tokio::test(start_paused = true)]
async fn dropping_the_call_cancels_it() {
    let server = respond_to_calls(vec![None]);
    let bridge = server.connect().await.unwrap();
    let dropped = tokio::time::timeout(Duration::from_millis(10), call(&bridge)).await;
    assert!(dropped.is_err());
    bridge.close().await;
    assert_eq!(server.methods().last().unwrap(), "notifications/cancelled");
}

// req: CL-08
#[tokio::test(start_paused = true)]
async fn calls_after_close_fail_at_once() {
    let server = respond_to_calls(vec![]);
    let bridge = server.connect().await.unwrap();
    bridge.close().await;
    bridge.close().await;
    let begin = Instant::now();
    let failed = call(&bridge).await.unwrap_err();
    assert_eq!((begin.elapsed(), failed.retryable), (Duration::ZERO, false));
    assert_eq!(failed.to_string(), "the bridge is closed");
}

// req: CL-08
#[tokio::test(start_paused = true)]
async fn close_ends_retry_delay() {
    let server = respond_to_calls(vec![Some(error(-32603))]);
    let bridge = Arc::new(server.connect().await.unwrap());
    let waiting = tokio::spawn({
        let bridge = bridge.clone();
        async move { (call(&bridge).await, Instant::now()) }
    });
    while !server.log().iter().any(|line| line.starts_with("retrying")) {
        tokio::task::yield_now().await;
    }
    let begin = Instant::now();
    bridge.close().await;
    let (ended, at) = waiting.await.unwrap();
    assert_eq!(
        (ended.unwrap_err().to_string().as_str(), at - begin),
        ("the bridge is closed", Duration::ZERO)
    );
}

// req: CL-08
#[tokio::test(start_paused = true)]
async fn sends_nothing_after_close() {
    let server = respond_to_calls(vec![]);
    let bridge = server.connect().await.unwrap();
    bridge.close().await;
    let failed = bridge.client().call("add", "{}").response().await.unwrap_err();
    assert_eq!(failed.delivery(), bascule_model::Delivery::NotSent);
    tokio::task::yield_now().await;
    assert!(!server.methods().contains(&"tools/call".to_owned()));
}

// req: CL-08
#[tokio::test(start_paused = true)]
async fn close_ends_calls_in_flight() {
    let server = respond_to_calls(vec![None]);
    let bridge = Arc::new(server.connect().await.unwrap());
    let waiting = tokio::spawn({
        let bridge = bridge.clone();
        async move { call(&bridge).await }
    });
    while server.methods().len() < 3 {
        tokio::task::yield_now().await;
    }
    bridge.close().await;
    let failed = waiting.await.unwrap().unwrap_err();
    assert_eq!((failed.to_string().as_str(), failed.attempts), ("the connection is closed", 1));
}

#[tokio::test(start_paused = true)]
async fn refuses_invalid_options_before_sending() {
    let server = respond_to_calls(vec![]);
    let bridge = server.connect().await.unwrap();
    for arguments in ["[1]", "7", "{", ""] {
        let failed = call_tool(&bridge, "add", arguments, CallToolOptions::default()).await.unwrap_err();
        assert!(matches!(failed.cause, ErrorCause::InvalidArguments(_)), "{arguments:?}: {failed}");
    }
    let environment = Some(Environment::from([("BASCULE_MCP_TIMEOUT".into(), "soon".into())]));
    let options = CallToolOptions { environment, ..CallToolOptions::default() };
    let failed = call_tool(&bridge, "add", "{}", options).await.unwrap_err();
    assert!(matches!(failed.cause, ErrorCause::InvalidTimeout(_)), "{failed}");
    bridge.close().await;
    assert!(!server.methods().contains(&"tools/call".to_owned()));
    for url in ["ftp://x/", "nonsense", "http://user:secret@x/", ""] {
        let failed = connect_to_server(url, ConnectOptions::default()).await.err().expect("it fails");
        assert!(matches!(failed.cause, ErrorCause::InvalidUrl(_)), "{url:?}: {failed}");
        assert!(!failed.to_string().contains("secret"), "{failed}");
    }
}

// req: CL-10
#[test]
fn depends_on_no_code_of_the_bridge() {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let tree = std::process::Command::new(cargo)
        .args(["tree", "--offline", "-p", "bascule-client", "-e", "normal", "--prefix", "none"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(tree.status.success());
    let tree = String::from_utf8(tree.stdout).unwrap();
    let ours = |line: &&str| line.starts_with("bascule");
    let mut names: Vec<&str> =
        tree.lines().filter(ours).map(|line| line.split(' ').next().unwrap()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names, ["bascule-client", "bascule-mcp", "bascule-model"]);
    for heavy in ["axum", "rusqlite", "async-nats", "lapin", "clap", "jsonschema"] {
        assert!(!tree.lines().any(|line| line.starts_with(&format!("{heavy} "))), "{heavy}");
    }
}
