//! Agents in Python, with the clients of NATS and RabbitMQ, which share no code with ours. They check every message that they
//! receive against `docs/asyncapi.yaml`.

use std::process::Stdio;
use std::sync::Arc;

use bascule::{BusService, BusServiceOptions, McpBridgeAdapter};
use bascule_bus::{AgentName, Bus, BusOptions, BusUrl, ReceivedItem, TopicPattern};
use bascule_model::ProviderAdapter;
use bascule_testkit::{Behaviour, NatsServer, RabbitMqServer, Script, ScriptedStdio};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::embedded::{bridge_with_config, within_timeout};
use crate::support::{demo_servers, project_file, test_env, with_settings};

const AGENT: &str = "python";
/// Longer results do not fit into one message.
const MAX_MESSAGE_BYTES: usize = 64 << 10;

/// A running agent.
struct PythonAgent {
    _process: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl PythonAgent {
    async fn start(program: &str, url: &str) -> Self {
        let mut process = Command::new(test_env("agents/bin").join("python"))
            .arg(project_file(&format!("tests/clients/{program}")))
            .args([url, AGENT])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let stdin = process.stdin.take().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut agent = Self { _process: process, stdin, lines };
        assert_eq!(agent.next_line().await, json!({"ready": true}));
        agent
    }

    async fn next_line(&mut self) -> Value {
        let line = within_timeout(self.lines.next_line()).await.unwrap();
        serde_json::from_str(&line.expect("the agent has failed: its reason is on stderr")).unwrap()
    }

    /// Runs a command. All messages so far must be those that the document describes.
    async fn run(&mut self, command: Value) -> Value {
        self.stdin.write_all(format!("{command}\n").as_bytes()).await.unwrap();
        let mut line = self.next_line().await;
        assert_eq!(line["problems"], json!([]), "{command}");
        line["outcome"].take()
    }

    async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.run(json!({"do": "call", "tool": tool, "arguments": arguments})).await
    }
}

async fn start_bridge(url: &str, large: &ScriptedStdio) -> (Arc<McpBridgeAdapter>, BusService, Bus) {
    let options = BusOptions {
        max_message_bytes: Some(MAX_MESSAGE_BYTES),
        ..BusOptions::new(BusUrl::parse(url).unwrap())
    };
    let bus = Bus::connect(&options).await.unwrap();
    let mut servers = demo_servers();
    servers["trouble"] = with_settings(servers["trouble"].take(), json!({"deniedTools": ["leak"]}));
    servers["large"] = large.entry();
    let bridge = Arc::new(bridge_with_config(json!({ "mcpServers": servers })).await);
    let options = BusServiceOptions::new(AgentName::parse(AGENT).unwrap());
    let service = within_timeout(BusService::start(bridge.clone(), bus.clone(), options)).await.unwrap();
    (bridge, service, bus)
}

fn large_text() -> String {
    "äöü \"😀\" ".repeat(50_000)
}

/// A server with a long result, and with more tools than fit into one message.
fn large_server() -> ScriptedStdio {
    let result = json!({"content": [{"type": "text", "text": large_text()}]}).to_string();
    let tool = |n: usize| json!({"name": format!("t{n}"), "description": "x".repeat(1_000), "inputSchema": {"type": "object"}});
    let script = Script::new().tool(json!({"name": "read", "inputSchema": {"type": "object"}}));
    let script = (0..100).fold(script, |script, n| script.tool(tool(n)));
    ScriptedStdio::new(script.calls("read", [Behaviour::result(result.as_str())]))
}

/// Everything that an agent does.
async fn check_agent(program: &str, url: &str, large_way: &str) {
    let large = large_server();
    let (bridge, service, bus) = start_bridge(url, &large).await;
    let mut agent = PythonAgent::start(program, url).await;
    check_discovery(&mut agent).await;
    check_calls(&mut agent).await;
    check_errors(&mut agent).await;
    check_cancellation(&mut agent).await;
    check_duplicates(&mut agent).await;

    let answer = agent.call("large:read", json!({})).await;
    assert_eq!(
        (&answer["way"], &answer["result"]["content"][0]["text"]),
        (&json!(large_way), &json!(large_text()))
    );

    check_dead_letters(&mut agent, &bus).await;
    service.close(std::time::Duration::from_secs(5)).await;
    bridge.terminate().await;
}

async fn check_discovery(agent: &mut PythonAgent) {
    let available = agent.run(json!({"do": "refresh"})).await;
    let ids: Vec<_> =
        available["tools"].as_array().unwrap().iter().map(|tool| tool["id"].as_str().unwrap()).collect();
    assert!(ids.contains(&"notes:search_notes") && ids.contains(&"large:t99"), "{ids:?}");
    assert!(!ids.contains(&"trouble:leak"));
    assert_eq!(available["agent"], AGENT);
    assert_eq!(available["servers"].as_array().unwrap().len(), 5);
    let one = agent.run(json!({"do": "refresh", "server": "clock"})).await;
    assert_eq!(one["tools"].as_array().unwrap().len(), ids.len());
}

async fn check_calls(agent: &mut PythonAgent) {
    let answer = agent.call("clock:now", json!({"timezone": "Asia/Tokyo"})).await;
    assert_eq!((&answer["type"], &answer["isError"]), (&json!("ToolInvokeResponse"), &json!(false)));
    assert_eq!((&answer["trust"], &answer["correlated"]), (&json!("tool-output"), &json!(true)));
    assert_eq!(answer["result"]["structuredContent"]["timezone"], "Asia/Tokyo");
    let failed = agent.call("trouble:fail", json!({})).await;
    assert_eq!((&failed["type"], &failed["isError"]), (&json!("ToolInvokeResponse"), &json!(true)));
    let shared = agent
        .run(json!({"do": "call", "tool": "clock:now", "arguments": {"timezone": "UTC"}, "shared": true}))
        .await;
    assert_eq!(shared["result"]["structuredContent"]["timezone"], "UTC");
    let calls: Vec<_> = (0..50)
        .map(|n| json!({"tool": "counter:increment", "arguments": {"token": format!("p{n}")}}))
        .collect();
    let answers = agent.run(json!({"do": "calls", "calls": calls})).await;
    let mut values: Vec<_> = answers
        .as_array()
        .unwrap()
        .iter()
        .map(|answer| answer["result"]["structuredContent"]["value"].as_i64().unwrap())
        .collect();
    values.sort_unstable();
    assert_eq!(values, (1..=50).collect::<Vec<_>>());
}

async fn check_errors(agent: &mut PythonAgent) {
    let no_arguments = json!({});
    for (tool, arguments, code, retryable) in [
        ("clock:nwo", &no_arguments, "tool_not_found", false),
        ("trouble:leak", &json!({"mb": 1}), "policy_denied", false),
        ("notes:search_notes", &json!({"query": 7}), "invalid_input", false),
        ("trouble:rpc_error", &no_arguments, "provider_error", false),
    ] {
        let answer = agent.call(tool, arguments.clone()).await;
        assert_eq!(
            (&answer["type"], &answer["code"], &answer["retryable"]),
            (&json!("ToolError"), &json!(code), &json!(retryable)),
            "{answer}"
        );
        assert_eq!((&answer["trust"], &answer["correlated"]), (&json!("tool-output"), &json!(true)));
    }
    let expired = agent.run(json!({"do": "call", "tool": "counter:increment", "deadline": -5})).await;
    assert_eq!((&expired["code"], &expired["retryable"]), (&json!("timeout"), &json!(true)));
    let count = agent.call("counter:read", json!({})).await;
    assert_eq!(count["result"]["structuredContent"]["value"], 50, "an expired request has run: {count}");
}

async fn check_cancellation(agent: &mut PythonAgent) {
    let sleep = json!({"do": "call", "tool": "trouble:sleep", "arguments": {"ms": 600_000}, "progress": true, "cancel": "progress"});
    let cancelled = agent.run(sleep).await;
    assert_eq!((&cancelled["type"], &cancelled["code"]), (&json!("ToolError"), &json!("cancelled")));
    assert!(!cancelled["progress"].as_array().unwrap().is_empty());
}

async fn check_duplicates(agent: &mut PythonAgent) {
    let repeated =
        json!({"do": "call", "tool": "counter:increment", "arguments": {"token": "twice"}, "repeat": 3});
    let answer = agent.run(repeated).await;
    // A broker may deliver an answer twice.
    assert!(answer["answers"].as_u64() >= Some(3), "{answer}");
    assert_eq!(answer["result"]["structuredContent"]["value"], 51, "{answer}");
    let seen = agent.call("counter:seen", json!({"token": "twice"})).await;
    assert_eq!(seen["result"]["structuredContent"]["times"], 1, "{seen}");
}

async fn check_dead_letters(agent: &mut PythonAgent, bus: &Bus) {
    let mut letters = bus.subscribe(&TopicPattern::parse("tool.dead.mcp").unwrap()).await.unwrap();
    let topic = format!("tool.invoke.mcp.{AGENT}");
    for (payload, reason) in [
        ("no JSON", "the message is not an envelope"),
        (r#"{"version":7}"#, "the message has envelope version 7"),
    ] {
        agent.run(json!({"do": "publish", "topic": topic, "payload": payload})).await;
        let Some(ReceivedItem::Message(message)) = within_timeout(letters.next()).await else {
            panic!("nothing came")
        };
        let body: Value = serde_json::from_str(message.content.unwrap().body.get()).unwrap();
        assert!(body["reason"].as_str().unwrap().starts_with(reason), "{body}");
        assert_eq!((&body["message"], &body["topic"]), (&json!(payload), &json!(topic)));
    }
}

// req: BU-01
// req: BU-02
// req: BU-03
// req: BU-05
// req: BU-09
#[tokio::test(flavor = "multi_thread")]
async fn agent_in_python_uses_tools_over_nats() {
    let server = NatsServer::start();
    check_agent("bus_nats.py", &server.url(), "object").await;
}

// req: BU-01
// req: BU-02
// req: BU-03
// req: BU-05
// req: BU-09
#[tokio::test(flavor = "multi_thread")]
async fn agent_in_python_uses_tools_over_rabbitmq() {
    let server = RabbitMqServer::shared();
    check_agent("bus_rabbitmq.py", &server.vhost_url(), "parts").await;
}

/// Runs a program of the page as it stands there, and returns its output.
async fn run_example(program: &str, url: &str) -> String {
    let python = test_env("agents/bin").join("python");
    let mut command = Command::new(python);
    command.args(["-c", program, url, AGENT, "clock:now", r#"{"timezone": "UTC"}"#]).kill_on_drop(true);
    let output = within_timeout(command.output()).await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

// req: BU-03
#[tokio::test(flavor = "multi_thread")]
async fn agents_of_the_documentation_work() {
    let page = std::fs::read_to_string(project_file("docs/bus.md")).unwrap();
    let examples = page.split("```python\n").skip(1);
    let examples: Vec<&str> = examples.map(|rest| rest.split("```").next().unwrap()).collect();
    let nats = NatsServer::start();
    let urls = [nats.url(), RabbitMqServer::shared().vhost_url()];
    assert_eq!(examples.len(), urls.len());
    let server = ScriptedStdio::new(Script::new().tools(["x"]));
    for (program, url) in examples.into_iter().zip(urls) {
        let (bridge, service, _bus) = start_bridge(&url, &server).await;
        let output = run_example(program, &url).await;
        assert!(output.starts_with("['") && output.contains("'clock:now'"), "{output}");
        assert!(
            output.contains("\nToolInvokeResponse ") && output.contains(r#""isError": false"#),
            "{output}"
        );
        service.close(std::time::Duration::from_secs(5)).await;
        bridge.terminate().await;
    }
}
