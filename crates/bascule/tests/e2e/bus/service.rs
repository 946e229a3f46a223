//! `bascule serve --agent` with a real `nats-server`, and the other commands of the bus.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use bascule_bus::{Bus, BusOptions, BusUrl, Topic};
use bascule_testkit::{
    Behaviour, NatsServer, NatsSetting, Script, ScriptedStdio, TestCertificates, broker_program,
};
use serde_json::{Value, json};

use super::replicas::Replicas;
use super::test_agent::{TestAgent, TestMessage, in_seconds};
use crate::support::{Bascule, demo_servers, eventually, project_file, signal};

pub(super) async fn agent_on(nats: &NatsServer, name: &str) -> TestAgent {
    let url = BusUrl::parse(&nats.url()).unwrap();
    TestAgent::subscribe(&Bus::connect(&BusOptions::new(url)).await.unwrap(), name).await
}

pub(super) fn script() -> Script {
    let tool = |name: &str, read_only: bool| json!({ "name": name, "inputSchema": { "type": "object" }, "annotations": { "readOnlyHint": read_only } });
    Script::new().tool(tool("read", true)).tool(tool("write", false))
}

pub(super) fn scripted(server: &ScriptedStdio) -> Value {
    json!({ "mcpServers": { "s": server.entry() } })
}

fn tools(available: &Value) -> Vec<String> {
    let tools = available["body"]["tools"].as_array().unwrap();
    tools.iter().map(|tool| tool["id"].as_str().unwrap().to_owned()).collect()
}

/// Returns the number of TCP ports that a process listens on.
fn listening_ports(pid: u32) -> usize {
    let links = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let own: BTreeSet<String> = links
        .filter_map(|entry| std::fs::read_link(entry.path()).ok()?.to_str().map(str::to_owned))
        .filter_map(|target| Some(target.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let listens = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields.get(3) == Some(&"0A") && fields.get(9).is_some_and(|inode| own.contains(*inode))
    };
    let tables =
        ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| std::fs::read_to_string(path).unwrap_or_default());
    tables.iter().flat_map(|table| table.lines()).filter(|line| listens(line)).count()
}

// req: BU-01
// req: BU-05
#[tokio::test]
async fn bridge_serves_an_agent_over_nats_and_opens_no_port() {
    let nats = NatsServer::start();
    let mut agent = agent_on(&nats, "a").await;
    let mut replicas = Replicas::new(&json!({ "mcpServers": demo_servers() }), "a", &nats.url());
    let first = replicas.start();
    let available = agent.next(&["McpToolsAvailable"]).await;
    assert!(
        tools(&available.envelope).contains(&"notes:search_notes".to_owned()),
        "{:#}",
        available.envelope
    );
    let answer = agent.call("counter:increment", json!({ "by": 2 })).await;
    assert_eq!(answer.body()["result"]["structuredContent"]["value"], 2, "{:#}", answer.envelope);
    assert_eq!(answer.envelope["headers"]["rb-content-trust"], "tool-output");
    for (tool, code) in [
        ("trouble:rpc_error", "provider_error"),
        ("trouble:nothing", "tool_not_found"),
        ("trouble:crash", "provider_crashed"),
    ] {
        assert_eq!(agent.call(tool, json!({})).await.body()["code"], code);
    }
    assert_eq!(listening_ports(replicas.pid(first)), 0);
    let (code, status) = replicas.bascule.run_json(&["status"]);
    assert_eq!((code, &status["bus"]["connected"]), (0, &json!(true)), "{status:#}");
    assert_eq!(status["bus"]["url"], nats.url());
    assert_eq!(status["bus"]["agent"], "a");
    let shown = replicas.bascule.run(&["status"]).stdout;
    assert!(shown.contains("agent a") && shown.contains("connected"), "{shown}");
    // The bridge writes its spans in batches, and the calls do not wait for them.
    let mut traces = Value::Null;
    eventually("the calls are stored", || {
        traces = replicas.bascule.run_json(&["traces"]).1;
        traces.as_array().is_some_and(|spans| spans.len() >= 4)
    });
    assert_eq!((&traces[0]["face"], &traces[0]["agent"]), (&json!("bus"), &json!("a")));
    signal(replicas.pid(first), "TERM");
    replicas.wait_for_exit(first);
}

// req: BU-08
// req: BU-02
#[tokio::test]
async fn slow_call_times_out_and_a_cancelled_one_ends() {
    let nats = NatsServer::start();
    let server = ScriptedStdio::new(
        script().calls("read", [Behaviour::silence()]).calls("write", [Behaviour::silence()]),
    );
    let mut config = scripted(&server);
    config["bascule"] = json!({ "bus": { "timeoutMs": 1500, "agentTimeoutMs": 60000 } });
    let mut agent = agent_on(&nats, "a").await;
    let mut replicas = Replicas::new(&config, "a", &nats.url());
    replicas.start();
    let answer = agent.call("s:read", json!({})).await;
    assert_eq!((&answer.body()["code"], &answer.body()["isRetryable"]), (&json!("timeout"), &json!(true)));
    let body = agent.call_body("s:write", json!({}));
    agent.send(&agent.request(body.clone())).await;
    eventually("the server has the call", || server.received().iter().any(|line| line.contains("\"write\"")));
    agent.tell("tool.cancel.mcp.a", "ToolCancelRequest", json!({ "toolCallId": body["toolCallId"] })).await;
    assert_eq!(agent.answer().await.body()["code"], "cancelled");
    server.wait_for("notifications/cancelled");
}

// req: BU-05
#[tokio::test]
async fn refresh_and_reload_publish_the_tools_once() {
    let nats = NatsServer::start();
    let server = ScriptedStdio::new(Script::new().tools(["x"]));
    let mut agent = agent_on(&nats, "a").await;
    let mut replicas = Replicas::new(&scripted(&server), "a", &nats.url());
    replicas.start();
    assert_eq!(tools(&agent.next(&["McpToolsAvailable"]).await.envelope), ["s:x"]);
    server.set_script(Script::new().tools(["x", "y"]));
    agent.tell("tool.meta.mcp.refresh", "McpMetadataRefreshRequest", json!({ "agent": "a" })).await;
    assert_eq!(tools(&agent.next(&["McpToolsAvailable"]).await.envelope), ["s:x", "s:y"]);
    let config = json!({ "mcpServers": { "s": server.entry(), "t": server.entry() } });
    std::fs::write(replicas.bascule.folder().join("mcp.json"), config.to_string()).unwrap();
    let reloaded = agent.next(&["McpToolsAvailable"]).await;
    assert_eq!(tools(&reloaded.envelope), ["s:x", "s:y", "t:x", "t:y"]);
    assert!(agent.rest("McpToolsAvailable").await.is_empty());
}

// req: BU-06
#[tokio::test]
async fn agents_on_one_broker_see_only_their_own() {
    let nats = NatsServer::start();
    let (one, two) =
        (ScriptedStdio::new(Script::new().tools(["x"])), ScriptedStdio::new(Script::new().tools(["y"])));
    let (mut a, b) = (agent_on(&nats, "a").await, agent_on(&nats, "b").await);
    let mut first = Replicas::new(&scripted(&one), "a", &nats.url());
    let mut second = Replicas::new(&scripted(&two), "b", &nats.url());
    first.start();
    second.start();
    let request = b.request(b.call_body("s:y", json!({})));
    b.publish("tool.invoke.mcp", &request).await;
    let answer = a.answer().await;
    assert_eq!(
        (answer.topic.as_str(), &answer.envelope["type"]),
        ("tool.result.b", &json!("ToolInvokeResponse"))
    );
    assert_eq!(a.call("s:y", json!({})).await.body()["code"], "tool_not_found");
    assert!(!one.received().iter().any(|line| line.contains("tools/call")));
}

// req: BU-09
#[tokio::test]
async fn garbage_becomes_dead_letters_that_can_be_queued_again() {
    let nats = NatsServer::start();
    let server = ScriptedStdio::new(script());
    let mut agent = agent_on(&nats, "a").await;
    let mut replicas = Replicas::new(&scripted(&server), "a", &nats.url());
    replicas.start();
    let url = nats.url();
    let letters = |arguments: &[&str]| {
        replicas.bascule.run_json(&[&["deadletters"], arguments, &["--bus", &url]].concat())
    };
    assert_eq!(letters(&["list"]), (0, json!([])));
    let empty = replicas.bascule.run(&["deadletters", "list", "--bus", &url]);
    assert!(empty.stderr.contains("no dead letters"), "{empty:?}");
    let topic = Topic::parse("tool.invoke.mcp.a").unwrap();
    let mut old = agent.request(agent.call_body("s:read", json!({})));
    old["version"] = 7.into();
    for garbage in [&b"not JSON"[..], b"\xff\xfe", old.to_string().as_bytes()] {
        agent.bus.publish_bytes(&topic, garbage).await.unwrap();
        agent.next(&["DeadLetter"]).await;
    }
    // The bridge goes on.
    assert_eq!(agent.call("s:read", json!({})).await.envelope["type"], "ToolInvokeResponse");
    let (_, listed) = letters(&["list"]);
    let reasons: Vec<&str> =
        listed.as_array().unwrap().iter().map(|one| one["reason"].as_str().unwrap()).collect();
    assert_eq!(reasons.len(), 3, "{listed:#}");
    assert!(reasons[0].contains("not an envelope") && reasons[2].contains("version 7"), "{reasons:?}");
    let id = listed[1]["id"].as_str().unwrap();
    let (code, shown) = letters(&["show", id]);
    assert_eq!((code, &shown["message"], &shown["base64"]), (0, &json!("//4="), &json!(true)));
    assert_eq!(letters(&["show", "999"]).0, 2);
    let (code, requeued) = letters(&["requeue", id]);
    assert_eq!((code, requeued["requeued"].as_array().map(Vec::len)), (0, Some(1)), "{requeued:#}");
    // It is as unreadable as before.
    agent.next(&["DeadLetter"]).await;
    let (_, all) = letters(&["requeue", "--all"]);
    assert_eq!(all["requeued"].as_array().map(Vec::len), Some(3), "{all:#}");
}

// req: BU-01
#[test]
fn command_line_gives_credentials_and_an_authority() {
    let script = project_file("tests/servers/nats_credentials.py");
    let output = Command::new(broker_program("python")).arg(script).output().unwrap();
    let keys: Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |key: &str| keys[key].as_str().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (seed, creds) = (file("seed", &format!("{}\n", text("seed"))), file("creds", text("credentials")));
    let bascule = Bascule::with_text(r#"{"mcpServers": {}}"#);
    let list = |nats: &NatsServer, options: &[&str]| {
        let url = nats.url();
        bascule.run(&[&["deadletters", "list", "--bus", &url], options].concat())
    };

    let nats = NatsServer::start_with([NatsSetting::NKey(text("public").into())]);
    assert_eq!(list(&nats, &["--nkey-file", &seed]).code, Some(0));
    assert_eq!(list(&nats, &[]).code, Some(3));

    let (operator, account, jwt) = (text("operator"), text("account"), text("account_jwt"));
    let lines = format!(
        "operator: {operator}\nresolver: MEMORY\nresolver_preload: {{ {account}: {jwt} }}\njetstream: disabled"
    );
    let nats = NatsServer::start_with([NatsSetting::Lines(lines)]);
    // The server has no JetStream, so the command gets past the proof of identity and no further.
    let output = list(&nats, &["--creds", &creds]);
    assert!(!output.stderr.contains("refused") && output.stderr.contains("JetStream"), "{output:?}");
    assert!(list(&nats, &[]).stderr.contains("the server refused a connection"));

    let files = TestCertificates::create();
    let (certificate, key) = (files.server_certificate(), files.server_key());
    let nats = NatsServer::start_with([NatsSetting::Tls { certificate, key, client_ca: None }]);
    let ca = files.ca();
    assert_eq!(list(&nats, &["--ca-file", ca.to_str().unwrap()]).code, Some(0));
    assert_eq!(list(&nats, &[]).code, Some(3));
}

/// Makes the stream of requests with at most so many for each agent.
fn create_requests_stream(nats: &NatsServer, limit: u32) {
    let stream = json!({ "name": "BASCULE_REQUESTS", "subjects": ["tool.invoke.mcp", "tool.invoke.mcp.>"],
        "retention": "workqueue", "storage": "file", "discard": "new", "discard_new_per_subject": true,
        "max_msgs_per_subject": limit })
    .to_string();
    let mut socket = TcpStream::connect(("127.0.0.1", nats.port())).unwrap();
    let length = stream.len();
    let publish = format!("PUB $JS.API.STREAM.CREATE.BASCULE_REQUESTS created {length}\r\n{stream}\r\n");
    socket.write_all(format!("CONNECT {{}}\r\nSUB created 1\r\n{publish}").as_bytes()).unwrap();
    let mut lines = BufReader::new(socket).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.starts_with("MSG created")));
    assert!(lines.next().unwrap().contains(r#""did_create":true"#));
}

// req: BU-09
#[tokio::test]
async fn full_queue_does_not_keep_the_letters_of_other_agents_from_being_queued() {
    let nats = NatsServer::start();
    create_requests_stream(&nats, 1);
    let agent = agent_on(&nats, "a").await;
    let dead = Topic::parse("tool.dead.mcp").unwrap();
    for (id, topic) in [("1", "a"), ("2", "a"), ("3", "a"), ("4", "b")] {
        let topic = format!("tool.invoke.mcp.{topic}");
        let body = json!({ "reason": "test", "topic": topic, "message": "{}" });
        let letter = json!({ "messageId": id, "type": "DeadLetter", "source": "test",
            "timestamp": "2026-03-01T12:00:00Z", "body": body });
        agent.bus.publish_bytes(&dead, letter.to_string().as_bytes()).await.unwrap();
    }
    let bascule = Bascule::with_text(r#"{"mcpServers": {}}"#);
    let (code, all) = bascule.run_json(&["deadletters", "requeue", "--all", "--bus", &nats.url()]);
    let (requeued, failed) = (all["requeued"].as_array().unwrap(), all["failed"].as_array().unwrap());
    assert_eq!((code, requeued.len(), failed.len()), (3, 2, 2), "{all:#}");
    assert!(failed[1]["cause"].as_str().unwrap().contains("the queue of requests is full"), "{all:#}");
    let (_, left) = bascule.run_json(&["deadletters", "list", "--bus", &nats.url()]);
    let topics: Vec<&Value> = left.as_array().unwrap().iter().map(|letter| &letter["topic"]).collect();
    assert_eq!(topics, ["tool.invoke.mcp.a"; 2]);
}

// req: BU-08
#[tokio::test]
async fn clock_of_an_agent_without_deadlines_does_not_matter_on_nats() {
    let nats = NatsServer::start();
    let server = ScriptedStdio::new(script());
    let mut agent = agent_on(&nats, "a").await;
    let mut replicas = Replicas::new(&scripted(&server), "a", &nats.url());
    replicas.start();
    for offset in [-3_600, 3_600] {
        let mut request = agent.request(agent.call_body("s:read", json!({})));
        request["timestamp"] = in_seconds(offset).into();
        agent.send(&request).await;
        assert_eq!(agent.answer().await.envelope["type"], "ToolInvokeResponse", "{offset} s");
    }
}

// req: BU-03
#[tokio::test]
async fn wrong_field_of_a_request_is_named_in_the_answer() {
    let nats = NatsServer::start();
    let server = ScriptedStdio::new(script());
    let mut agent = agent_on(&nats, "a").await;
    let mut replicas = Replicas::new(&scripted(&server), "a", &nats.url());
    replicas.start();
    for (field, value) in
        [("replyTo", json!("no topic")), ("replyTo", json!(7)), ("correlationId", json!(""))]
    {
        let mut request = agent.request(agent.call_body("s:write", json!({})));
        request[field] = value;
        let topic = Topic::parse("tool.invoke.mcp.a").unwrap();
        agent.bus.publish_bytes(&topic, request.to_string().as_bytes()).await.unwrap();
        let answer = agent.answer().await;
        assert_eq!(
            (answer.topic.as_str(), &answer.body()["code"]),
            ("tool.result.a", &json!("invalid_input"))
        );
        assert_eq!(answer.body()["toolCallId"], request["body"]["toolCallId"]);
        assert!(answer.body()["message"].as_str().unwrap().contains(field), "{:#}", answer.envelope);
    }
    assert!(!server.methods().contains(&"tools/call".to_owned()));
    assert_eq!(replicas.bascule.run_json(&["deadletters", "list", "--bus", &nats.url()]), (0, json!([])));
}

// req: BU-06
// req: BU-09
#[tokio::test]
async fn killed_replica_leaves_its_requests_to_the_others() {
    let nats = NatsServer::start();
    let slow = || Behaviour::text("done").after_delay(Duration::from_secs(3));
    let server = ScriptedStdio::new(script().calls("read", [slow()]).calls("write", [slow()]));
    let mut agent = agent_on(&nats, "a").await;
    let mut replicas = Replicas::new(&scripted(&server), "a", &nats.url());
    let first = replicas.start();
    let mut expected = BTreeSet::new();
    for tool in ["s:read", "s:write"] {
        let request = agent.request(agent.call_body(tool, json!({})));
        expected.insert((request["correlationId"].as_str().unwrap().to_owned(), tool));
        agent.send(&request).await;
    }
    let calls = |name: &str| {
        server.received().iter().filter(|line| line.contains(&format!("\"name\":\"{name}\""))).count()
    };
    eventually("both calls have begun", || calls("read") == 1 && calls("write") == 1);
    replicas.kill(first);
    // With the same configuration file, while the socket of the killed one is still there.
    replicas.start();
    for _ in 0..2 {
        let answer = agent.answer().await;
        let id = answer.envelope["correlationId"].as_str().unwrap().to_owned();
        match answer.body()["toolName"].as_str().unwrap() {
            "s:read" => {
                assert_eq!(answer.envelope["type"], "ToolInvokeResponse", "{:#}", answer.envelope);
                assert!(expected.remove(&(id, "s:read")));
            }
            _ => {
                assert_eq!(answer.body()["code"], "outcome_unknown", "{:#}", answer.envelope);
                assert!(expected.remove(&(id, "s:write")));
            }
        }
    }
    assert_eq!((calls("read"), calls("write")), (2, 1));
}

// req: BU-06
#[tokio::test]
async fn status_finds_the_replica_that_is_left() {
    let nats = NatsServer::start();
    let server = ScriptedStdio::new(script());
    let mut replicas = Replicas::new(&scripted(&server), "a", &nats.url());
    let (first, second) = (replicas.start(), replicas.start());
    let third = replicas.start();
    assert_eq!(replicas.bascule.run_json(&["status"]).0, 0);
    // One replica dies, another one ends in order: each time a replica that is left has the socket.
    replicas.kill(first);
    let next = replicas.wait_for_one_line(&[second, third], "took over the control socket");
    let last = second + third - next;
    let (code, status) = replicas.bascule.run_json(&["status"]);
    assert_eq!((code, &status["bus"]["connected"]), (0, &json!(true)), "{status:#}");
    signal(replicas.pid(next), "TERM");
    replicas.wait_for_exit(next);
    replicas.wait_for_line(last, "took over the control socket");
    let (code, status) = replicas.bascule.run_json(&["status"]);
    assert_eq!((code, &status["bus"]["connected"]), (0, &json!(true)), "{status:#}");
}

// req: BU-06
#[tokio::test]
async fn replicas_share_the_work_and_nothing_runs_twice() {
    let nats = NatsServer::start();
    let server = ScriptedStdio::new(script());
    let mut agent = agent_on(&nats, "a").await;
    let mut replicas = Replicas::new(&scripted(&server), "a", &nats.url());
    let (first, second) = (replicas.start(), replicas.start());
    assert!(replicas.pid(first) != replicas.pid(second));
    let mut expected = BTreeSet::new();
    for n in 0..60 {
        let request = agent.request(agent.call_body("s:write", json!({ "n": format!("call-{n}.") })));
        expected.insert(request["correlationId"].as_str().unwrap().to_owned());
        agent.send(&request).await;
        if n == 30 {
            replicas.kill(first);
        }
    }
    let mut unknown = 0;
    while !expected.is_empty() {
        let answer = agent.answer().await;
        assert!(expected.remove(answer.envelope["correlationId"].as_str().unwrap()), "{:#}", answer.envelope);
        unknown += usize::from(answer.body()["code"] == "outcome_unknown");
    }
    let received = server.received();
    for n in 0..60 {
        let times = received.iter().filter(|line| line.contains(&format!("call-{n}."))).count();
        assert!(times <= 1, "call {n} ran {times} times");
    }
    let ran = received.iter().filter(|line| line.contains("tools/call")).count();
    assert!(ran + unknown >= 60, "{ran} calls ran, {unknown} are unknown");
    assert!(agent.rest("ToolError").await.is_empty());
}

// req: BU-06
// req: BU-09
#[tokio::test]
async fn replica_that_was_stopped_in_a_call_gives_no_second_answer() {
    for (tool, answered_by_other) in [("s:write", "ToolError"), ("s:read", "ToolInvokeResponse")] {
        let nats = NatsServer::start();
        let slow = |text: &str| Behaviour::text(text).after_delay(Duration::from_secs(1));
        let script = script().calls("write", [slow("first")]).calls("read", [slow("first")]);
        let server = ScriptedStdio::new(script);
        let mut agent = agent_on(&nats, "a").await;
        let mut replicas = Replicas::new(&scripted(&server), "a", &nats.url());
        let first = replicas.start();
        let request = agent.request(agent.call_body(tool, json!({})));
        agent.send(&request).await;
        eventually("the call has begun", || server.received().iter().any(|line| line.contains("tools/call")));
        // Longer than the broker waits for it: another replica takes over.
        signal(replicas.pid(first), "STOP");
        let second = replicas.start();
        let answer = agent.answer().await;
        assert_eq!(answer.envelope["type"], answered_by_other, "{:#}", answer.envelope);
        assert_eq!(answer.envelope["correlationId"], request["correlationId"]);
        signal(replicas.pid(first), "CONT");
        replicas.kill(second);
        // The first replica has its result, and goes on with the next request.
        let next = agent.call("s:read", json!({})).await;
        assert_ne!(next.envelope["correlationId"], request["correlationId"], "{:#}", next.envelope);
        let same = |message: &TestMessage| message.envelope["correlationId"] == request["correlationId"];
        assert!(!agent.rest("ToolInvokeResponse").await.iter().any(same));
        let runs = server.received().iter().filter(|line| line.contains("tools/call")).count();
        assert_eq!(runs, if tool == "s:write" { 2 } else { 3 });
    }
}

// req: BU-09
#[tokio::test]
async fn broker_that_is_absent_or_lost_is_waited_for() {
    let mut nats = NatsServer::start();
    nats.stop();
    let server = ScriptedStdio::new(script());
    let mut replicas = Replicas::new(&scripted(&server), "a", &nats.url());
    let replica = replicas.spawn();
    replicas.wait_for_line(replica, "trying again in");
    let (_, status) = replicas.bascule.run_json(&["status"]);
    assert_eq!(status["bus"]["connected"], false, "{status:#}");
    assert!(status["bus"]["cause"].as_str().unwrap().contains("could not connect"), "{status:#}");
    nats.restart();
    replicas.wait_for_line(replica, "serving agent");
    let mut agent = agent_on(&nats, "a").await;
    assert_eq!(agent.call("s:read", json!({})).await.envelope["type"], "ToolInvokeResponse");
    nats.restart();
    replicas.wait_for_line(replica, "connected to the bus at");
    let mut agent = agent_on(&nats, "a").await;
    assert_eq!(agent.call("s:write", json!({})).await.envelope["type"], "ToolInvokeResponse");
}

// req: BU-01
#[tokio::test]
async fn secrets_of_the_bus_come_from_variables_and_are_not_shown() {
    let password = NatsSetting::Password { user: "u".into(), password: "hunter2-hunter2".into() };
    let nats = NatsServer::start_with([password]);
    let server = ScriptedStdio::new(script());
    let mut config = scripted(&server);
    config["bascule"] =
        json!({ "bus": { "url": nats.url(), "agent": "a", "user": "u", "password": "${BUS_PASSWORD}" } });
    let bascule = Bascule::with_text(&config.to_string()).env("BUS_PASSWORD", "hunter2-hunter2");
    let mut child = bascule.command(&["serve"]).stdout(Stdio::null()).spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let serving = lines.map_while(Result::ok).inspect(|line| assert!(!line.contains("hunter2"), "{line}"));
    assert!(serving.into_iter().any(|line| line.contains("serving agent `a`")));
    let shown = bascule.run(&["status"]);
    assert!(shown.stdout.contains("connected") && !shown.stdout.contains("hunter2"), "{shown:?}");
    assert_eq!(bascule.run_json(&["deadletters", "list"]), (0, json!([])));
    child.kill().unwrap();
    child.wait().unwrap();
}

// req: BU-08
// req: BU-02
#[test]
fn wrong_options_are_refused_with_the_reason() {
    let bascule = Bascule::with_text(r#"{"mcpServers": {}}"#);
    for (arguments, reason) in [
        (&["serve", "--bus", "nats://127.0.0.1:1"][..], "--agent"),
        (&["serve", "--agent", "a"], "--bus"),
        (&["serve", "--agent", "a", "--bus", "embedded"], "inside one program"),
        (&["serve", "--agent", "refresh", "--bus", "nats://127.0.0.1:1"], "refresh"),
        (&["serve", "--agent", "a", "--bus", "http://x"], "a bus is"),
        (&["serve", "--agent", "a", "--bus", "nats://127.0.0.1:99999"], "the port"),
        (&["serve", "--agent", "a", "--bus", "amqp://127.0.0.1:x"], "the port"),
        (&["serve", "--agent", "a", "--bus", "amqp://:5672"], "the host"),
        (&["serve", "--agent", "a", "--bus", "amqp://127.0.0.1/v?heartbeat=x"], "a parameter after `?`"),
        (&["serve", "--agent", "a.b", "--bus", "nats://127.0.0.1:1"], "letters, digits"),
        (&["serve", "--agent", "", "--bus", "nats://127.0.0.1:1"], "letters, digits"),
        (&["connect", "--agent", "a", "--bus", "nats://127.0.0.1:0"], "the port"),
        (&["serve", "--agent", "a", "--bus", "nats://h", "--creds", "/none"], "could not read `/none`"),
        (&["connect", "--agent", "a", "--bus", "nats://h", "--nkey-file", "/none"], "could not read `/none`"),
        (&["deadletters", "list", "--bus", "nats://h", "--ca-file", "/none"], "could not read `/none`"),
        (
            &["deadletters", "list", "--bus", "nats://h", "--creds", "a", "--nkey-file", "b"],
            "cannot be used with",
        ),
        (&["deadletters", "list", "--bus", "amqp://h", "--creds", "/dev/null"], "RabbitMQ takes a user"),
        (&["deadletters", "list"], "--bus"),
        (&["connect", "--bus", "nats://127.0.0.1:1"], "--agent"),
    ] {
        let output = bascule.run(arguments);
        assert_eq!(output.code, Some(2), "{arguments:?} {output:?}");
        assert!(output.stderr.contains(reason), "{arguments:?} {output:?}");
    }
    let secret = bascule.run(&["serve", "--agent", "a", "--bus", "nats://u:hunter2@h:99999"]);
    assert!(secret.code == Some(2) && !secret.stderr.contains("hunter2"), "{secret:?}");
    let nothing = bascule.run(&["deadletters", "requeue", "--bus", "nats://127.0.0.1:1"]);
    assert!(nothing.code == Some(2) && nothing.stderr.contains("--all"), "{nothing:?}");
    for command in ["list", "requeue --all", "requeue 1", "show 1"] {
        let arguments: Vec<&str> =
            format!("deadletters {command} --bus nats://127.0.0.1:1").leak().split(' ').collect();
        let (code, error) = bascule.run_json(&arguments);
        assert_eq!((code, &error["error"]["retryable"]), (3, &json!(true)), "{arguments:?} {error:#}");
    }
    let slow = Bascule::with_text(r#"{"mcpServers": {}, "bascule": {"bus": {"timeoutMs": 60000}}}"#);
    let refused = slow.run(&["serve", "--agent", "a", "--bus", "nats://127.0.0.1:1"]);
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("must be shorter than `agentTimeoutMs`"), "{refused:?}");
}
