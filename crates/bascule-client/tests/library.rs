//! The two functions against a server played in memory, under a clock that only moves when everyone waits.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should not")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bascule_client::{
    CallToolOptions, Cause, ConnectOptions, Environment, LogLevel, McpBridge, McpBridgeError, Transport,
    call_tool, connect_to_server,
};
use serde_json::{Value, json};
use tokio::time::Instant;

/// What the played server does with a message: an answer, or silence.
type Play = Box<dyn FnMut(&Value) -> Option<Value> + Send>;

/// A server in memory: everything it received, everything that was logged.
struct Stage {
    options: ConnectOptions,
    received: Arc<Mutex<Vec<Value>>>,
    log: Arc<Mutex<Vec<String>>>,
    connects: Arc<Mutex<u32>>,
}

impl Stage {
    fn new(mut play: impl FnMut(&Value) -> Option<Value> + Send + 'static) -> Self {
        let received = Arc::<Mutex<Vec<Value>>>::default();
        let log = Arc::<Mutex<Vec<String>>>::default();
        let connects = Arc::<Mutex<u32>>::default();
        let mut play: Option<Play> =
            Some(Box::new(move |message: &Value| match message["method"].as_str() {
                Some("initialize") => {
                    play(message).or_else(|| Some(json!({ "result": hello("2025-11-25") })))
                }
                _ => play(message),
            }));
        let plays = Mutex::new(move || play.take().expect("connected once"));
        let (seen, count) = (received.clone(), connects.clone());
        let factory = move |_: &str| {
            *count.lock().unwrap() += 1;
            Ok(perform((plays.lock().unwrap())(), seen.clone()))
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
        connect_to_server("http://played/mcp", self.options.clone()).await
    }

    fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    fn methods(&self) -> Vec<String> {
        self.received.lock().unwrap().iter().map(|m| m["method"].as_str().unwrap().to_owned()).collect()
    }
}

fn perform(mut play: Play, received: Arc<Mutex<Vec<Value>>>) -> Transport {
    let (transport, mut far) = Transport::pair();
    tokio::spawn(async move {
        while let Some(frame) = far.incoming.recv().await {
            let message: Value = serde_json::from_slice(&frame).unwrap();
            received.lock().unwrap().push(message.clone());
            if let Some(mut answer) = play(&message) {
                answer["jsonrpc"] = "2.0".into();
                answer["id"] = message["id"].clone();
                far.outgoing.send(answer.to_string().into_bytes()).await.unwrap();
            }
        }
    });
    transport
}

fn hello(version: &str) -> Value {
    json!({ "protocolVersion": version, "capabilities": {}, "serverInfo": { "name": "played", "version": "1" } })
}

fn text(text: &str) -> Value {
    json!({ "result": { "content": [{ "type": "text", "text": text }] } })
}

fn error(code: i64) -> Value {
    json!({ "error": { "code": code, "message": "boom" } })
}

/// Answers calls with these, one after the other; listens to everything else in silence.
fn calls(answers: Vec<Option<Value>>) -> Stage {
    let mut answers = answers.into_iter();
    Stage::new(move |message| match message["method"].as_str() {
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
async fn connecting_does_the_handshake_and_says_so() {
    let stage = calls(vec![]);
    let bridge = stage.connect().await.unwrap();
    assert_eq!(bridge.url(), "http://played/mcp");
    assert_eq!(bridge.client().info().name, "played");
    bridge.close().await;
    assert_eq!(stage.methods(), ["initialize", "notifications/initialized"]);
    assert_eq!(stage.log(), ["connecting to http://played/mcp", "connected to http://played/mcp"]);
}

// req: CL-01
#[tokio::test(start_paused = true)]
async fn connecting_is_never_retried() {
    let stage = Stage::new(|message| (message["method"] == "initialize").then(|| error(-32603)));
    let failed = stage.connect().await.err().expect("it fails");
    assert_eq!((failed.attempts, *stage.connects.lock().unwrap()), (1, 1));
    assert_eq!(failed.to_string(), "the handshake failed: boom (JSON-RPC error -32603)");
    assert_eq!(stage.log(), ["connecting to http://played/mcp"]);
}

// req: BR-02
#[tokio::test(start_paused = true)]
async fn a_server_of_another_version_is_refused_naming_both() {
    let stage = Stage::new(|message| {
        (message["method"] == "initialize").then(|| json!({ "result": hello("2030-01-01") }))
    });
    let said = stage.connect().await.err().expect("it fails").to_string();
    assert!(said.contains("2030-01-01") && said.contains("2025-11-25"), "{said}");
}

// req: CL-02, CL-04, CL-07
#[tokio::test(start_paused = true)]
async fn a_handshake_that_takes_too_long_fails_and_is_not_cancelled() {
    let mut stage = Stage::new(|_| None);
    // `initialize` is answered by default: swap in a transport that never says anything.
    let (received, far_ends) = (stage.received.clone(), Arc::new(Mutex::new(Vec::new())));
    let keep = far_ends.clone();
    stage.options.transport = Some(Arc::new(move |_| {
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
    stage.options.environment = Some(Environment::from([("BASCULE_MCP_TIMEOUT".into(), "1234".into())]));
    let begin = Instant::now();
    let failed = stage.connect().await.err().expect("it fails");
    assert_eq!(begin.elapsed(), Duration::from_millis(1234));
    assert_eq!(failed.to_string(), "the server did not answer `initialize` within 1234 ms");
    assert_eq!(stage.methods(), ["initialize"]);
}

// req: CL-03
#[tokio::test(start_paused = true)]
async fn a_tool_that_reports_failure_is_a_result() {
    let stage = calls(vec![Some(json!({ "result": { "content": [], "isError": true } }))]);
    let bridge = stage.connect().await.unwrap();
    assert!(call(&bridge).await.unwrap().is_error());
    let sent = stage.received.lock().unwrap()[2]["params"].clone();
    assert_eq!(sent, json!({ "name": "add", "arguments": { "a": 1.0 }, "_meta": { "progressToken": 2 } }));
}

// req: CL-05, CL-09
#[tokio::test(start_paused = true)]
async fn what_may_pass_is_tried_again_after_one_then_two_seconds() {
    let stage = calls(vec![Some(error(-32603)), Some(error(-32001)), Some(text("3"))]);
    let bridge = stage.connect().await.unwrap();
    let begin = Instant::now();
    assert_eq!(call(&bridge).await.unwrap().text(), "3");
    assert_eq!(begin.elapsed(), Duration::from_millis(1000 + 2000));
    assert_eq!(
        stage.log()[2..],
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
async fn after_the_last_attempt_the_last_cause_remains() {
    let stage = calls(vec![Some(error(-32603)), Some(error(-32603)), Some(error(-32000))]);
    let bridge = stage.connect().await.unwrap();
    let begin = Instant::now();
    let failed = call(&bridge).await.unwrap_err();
    assert_eq!(begin.elapsed(), Duration::from_millis(3000), "no wait after the last failure");
    assert_eq!((failed.attempts, failed.retryable), (3, true));
    assert_eq!(failed.to_string(), "boom (JSON-RPC error -32000)");
    assert_eq!(stage.log().last().unwrap(), "callTool add failed after 3 attempt(s)");
}

// req: CL-05, CL-06, CL-09
#[tokio::test(start_paused = true)]
async fn what_will_not_pass_is_not_tried_again() {
    for code in [-32600, -32601, -32602, -31999] {
        let stage = calls(vec![Some(error(code))]);
        let bridge = stage.connect().await.unwrap();
        let begin = Instant::now();
        let failed = call(&bridge).await.unwrap_err();
        assert_eq!(begin.elapsed(), Duration::ZERO);
        assert_eq!((failed.attempts, failed.retryable), (1, false));
        let said = format!("callTool add non-retryable error: boom (JSON-RPC error {code})");
        assert_eq!(*stage.log().last().unwrap(), said);
    }
}

// req: CL-03, CL-04, CL-05, CL-07
#[tokio::test(start_paused = true)]
async fn a_call_that_takes_too_long_is_cancelled_at_the_server_and_tried_again() {
    let stage = calls(vec![None, Some(text("late"))]);
    let bridge = stage.connect().await.unwrap();
    let begin = Instant::now();
    let options = CallToolOptions {
        timeout: Some(Duration::from_millis(500)),
        max_attempts: Some(2),
        ..CallToolOptions::default()
    };
    assert_eq!(call_tool(&bridge, "add", "{}", options).await.unwrap().text(), "late");
    assert_eq!(begin.elapsed(), Duration::from_millis(500 + 1000));
    assert_eq!(
        stage.methods()[2..],
        ["tools/call", "notifications/cancelled", "tools/call"],
        "cancelled before it is tried again"
    );
    let received = stage.received.lock().unwrap();
    assert_eq!(received[3]["params"]["requestId"], received[2]["id"]);
}

// req: CL-07
#[tokio::test(start_paused = true)]
async fn a_caller_who_leaves_cancels_too() {
    let stage = calls(vec![None]);
    let bridge = stage.connect().await.unwrap();
    let left = tokio::time::timeout(Duration::from_millis(10), call(&bridge)).await;
    assert!(left.is_err());
    bridge.close().await;
    assert_eq!(stage.methods().last().unwrap(), "notifications/cancelled");
}

// req: CL-08
#[tokio::test(start_paused = true)]
async fn closing_twice_is_fine_and_calls_after_it_fail_at_once() {
    let stage = calls(vec![]);
    let bridge = stage.connect().await.unwrap();
    bridge.close().await;
    bridge.close().await;
    let begin = Instant::now();
    let failed = call(&bridge).await.unwrap_err();
    assert_eq!((begin.elapsed(), failed.retryable), (Duration::ZERO, false));
    assert_eq!(failed.to_string(), "the bridge is closed");
}

// req: CL-08
#[tokio::test(start_paused = true)]
async fn closing_ends_the_wait_between_two_attempts() {
    let stage = calls(vec![Some(error(-32603))]);
    let bridge = Arc::new(stage.connect().await.unwrap());
    let waiting = tokio::spawn({
        let bridge = bridge.clone();
        async move { (call(&bridge).await, Instant::now()) }
    });
    while !stage.log().iter().any(|line| line.starts_with("retrying")) {
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
async fn after_closing_nothing_is_sent() {
    let stage = calls(vec![]);
    let bridge = stage.connect().await.unwrap();
    bridge.close().await;
    let failed = bridge.client().call("add", "{}").answer().await.unwrap_err();
    assert_eq!(failed.delivery(), bascule_model::Delivery::NotSent);
    tokio::task::yield_now().await;
    assert!(!stage.methods().contains(&"tools/call".to_owned()));
}

// req: CL-08
#[tokio::test(start_paused = true)]
async fn closing_ends_calls_under_way() {
    let stage = calls(vec![None]);
    let bridge = Arc::new(stage.connect().await.unwrap());
    let waiting = tokio::spawn({
        let bridge = bridge.clone();
        async move { call(&bridge).await }
    });
    while stage.methods().len() < 3 {
        tokio::task::yield_now().await;
    }
    bridge.close().await;
    let failed = waiting.await.unwrap().unwrap_err();
    assert_eq!((failed.to_string().as_str(), failed.attempts), ("the connection is closed", 1));
}

#[tokio::test(start_paused = true)]
async fn impossible_wishes_fail_before_anything_is_sent() {
    let stage = calls(vec![]);
    let bridge = stage.connect().await.unwrap();
    for arguments in ["[1]", "7", "{", ""] {
        let failed = call_tool(&bridge, "add", arguments, CallToolOptions::default()).await.unwrap_err();
        assert!(matches!(failed.cause, Cause::Arguments(_)), "{arguments:?}: {failed}");
    }
    let environment = Some(Environment::from([("BASCULE_MCP_TIMEOUT".into(), "soon".into())]));
    let options = CallToolOptions { environment, ..CallToolOptions::default() };
    let failed = call_tool(&bridge, "add", "{}", options).await.unwrap_err();
    assert!(matches!(failed.cause, Cause::Settings(_)), "{failed}");
    bridge.close().await;
    assert!(!stage.methods().contains(&"tools/call".to_owned()));
    for url in ["ftp://x/", "nonsense", "http://user:secret@x/", ""] {
        let failed = connect_to_server(url, ConnectOptions::default()).await.err().expect("it fails");
        assert!(matches!(failed.cause, Cause::Address(_)), "{url:?}: {failed}");
        assert!(!failed.to_string().contains("secret"), "{failed}");
    }
}

// req: CL-10
#[test]
fn the_library_pulls_in_nothing_of_the_bridge() {
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
