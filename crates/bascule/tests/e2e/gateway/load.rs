//! Clients and servers that take more than their share: the others are still served.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};

use bascule_testkit::{Behaviour, IdPosition, Script, ScriptedStdio};
use serde_json::json;

use super::client::{Client, connect, post_request, read_response};
use super::{AGGREGATE_PATH, call, parse, peak_mb};
use crate::fleet::serve_process::{ServeProcess, config_text};
use crate::support::eventually;

/// Opens connections that send nothing, as many as the bridge has open files and more.
fn flood(address: SocketAddr) -> Vec<TcpStream> {
    (0..400).map(|_| connect(address)).collect()
}

// req: GW-07
#[test]
fn command_line_and_clients_are_served_during_flood_with_few_open_files() {
    let server = ScriptedStdio::new(Script::new().tools(["t"]).calls("t", [Behaviour::text("served")]));
    let serving = ServeProcess::start_with_ulimit(&config_text(&json!({ "s": server.entry() })), "-n 128");
    let before = Client::connect(serving.address(), AGGREGATE_PATH);
    for _ in 0..3 {
        let _silent = flood(serving.address());
        assert_eq!(serving.server_status("s")["health"], "healthy");
        assert_eq!(serving.bascule.call("s:t", "{}")["content"][0]["text"], "served");
        let newcomer = Client::connect(serving.address(), AGGREGATE_PATH);
        for client in [&before, &newcomer] {
            assert_eq!(client.call("s__t", &json!({}))["result"]["content"][0]["text"], "served");
        }
    }
    assert!(!serving.stderr().contains("could not accept"), "{}", serving.stderr());
}

// req: SB-02, GW-07
#[test]
fn bridge_raises_its_limit_on_open_files_and_servers_do_not_inherit_it() {
    let folder = tempfile::tempdir().unwrap();
    let reported = folder.path().join("limit");
    let script = format!("ulimit -n > {}; exec sleep 600", reported.display());
    let server = json!({ "command": "sh", "args": ["-c", script], "sandbox": "off" });
    let serving = ServeProcess::start_with_ulimit(&config_text(&json!({ "s": server })), "-S -n 300");
    let limit = || std::fs::read_to_string(&reported).unwrap_or_default();
    eventually("the server has reported its limit", || limit().ends_with('\n'));
    assert_eq!(limit().trim(), "300");
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", serving.pid())).unwrap();
    let open_files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let values: Vec<&str> = open_files.split_whitespace().skip(3).take(2).collect();
    assert_eq!(values[0], values[1], "{open_files}");
}

// req: CM-01, GW-08
#[test]
fn script_of_another_client_starts_while_loops_of_one_wait() {
    let server = ScriptedStdio::new(Script::new().tools(["mark"]));
    let mut configured = json!({ "mcpServers": { "s": server.entry() } });
    configured["bascule"] = json!({ "scripts": { "maxScripts": 3, "timeoutMs": 600_000 } });
    let serving = ServeProcess::start_with_config(&configured.to_string(), &[]);
    let greedy = Client::with_name(serving.address(), AGGREGATE_PATH, "greedy");
    let loops: Vec<TcpStream> = (0..40)
        .map(|n| {
            let code = json!({ "code": "await s.mark({}); for (;;) {}" });
            let request = json!({ "jsonrpc": "2.0", "id": n, "method": "tools/call", "params": call("execute_code", &code) });
            let mut stream = connect(serving.address());
            let request = post_request(AGGREGATE_PATH, &[&greedy.session_header()], &request.to_string());
            stream.write_all(request.as_bytes()).unwrap();
            stream
        })
        .collect();
    let marks = || server.methods().iter().filter(|method| *method == "tools/call").count();
    eventually("all slots but one are taken", || marks() == 2);
    let other = Client::with_name(serving.address(), AGGREGATE_PATH, "other");
    let answer = other.call("execute_code", &json!({ "code": "return 7" }));
    assert_eq!(answer["result"]["structuredContent"]["result"], 7, "{answer}");
    let is_unanswered = |stream: &TcpStream| {
        stream.set_nonblocking(true).unwrap();
        stream.peek(&mut [0]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    };
    assert!(loops.iter().all(is_unanswered), "no loop has ended");
    assert_eq!(marks(), 2);
}

/// Makes small calls until a large request is answered, which must be refused. Returns their number.
fn calls_during_large_request(serving: &ServeProcess, client: &Client, request: &str) -> usize {
    let mut large = connect(serving.address());
    large.write_all(post_request(AGGREGATE_PATH, &[&client.session_header()], request).as_bytes()).unwrap();
    large.set_nonblocking(true).unwrap();
    let mut served = 0;
    while large.peek(&mut [0]).is_err() {
        assert_eq!(client.call("s__t", &json!({ "m": "x" }))["result"]["content"][0]["text"], "served");
        served += 1;
    }
    large.set_nonblocking(false).unwrap();
    let answer = read_response(large).unwrap().result();
    assert_eq!(answer["isError"], true);
    let text = answer["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("too large to validate"), "{text}");
    served
}

// req: BR-12, BR-04
#[test]
fn others_are_served_while_large_arguments_are_validated() {
    let schema = json!({ "type": "object", "properties": { "m": { "type": "string" } } });
    let script = Script::new().tool(json!({ "name": "t", "inputSchema": schema }));
    let server = ScriptedStdio::new(script.calls("t", [Behaviour::text("served")]));
    let serving = ServeProcess::start(json!({ "s": server.entry() }));
    let client = Client::connect(serving.address(), AGGREGATE_PATH);
    let arguments = format!(r#"{{"a":[{{}}{}]}}"#, ",{}".repeat(10_000_000));
    let request = format!(
        r#"{{"jsonrpc":"2.0","id":"large","method":"tools/call","params":{{"arguments":{arguments},"name":"s__t"}}}}"#
    );
    // On a busy machine the large request may be answered before the first small one: then the round shows nothing.
    let is_served = (0..5).any(|_| calls_during_large_request(&serving, &client, &request) > 1);
    assert!(is_served, "the small calls waited for the large one");
    let peak = peak_mb(serving.pid());
    assert!(peak < 700, "the bridge used {peak} MB");
}

// req: BR-12, GW-03
#[test]
fn large_result_follows_its_progress_and_precedes_later_messages() {
    let script = Script::new().tools(["big", "t"]).calls("t", [Behaviour::text("later")]);
    let server = ScriptedStdio::new(
        script.calls("big", [Behaviour::big(20_000_000, IdPosition::After).after_progress(3)]),
    );
    let serving = ServeProcess::start(json!({ "s": server.entry() }));
    let client = Client::connect(serving.address(), AGGREGATE_PATH);
    let params = r#"{"name":"s__big","arguments":{},"_meta":{"progressToken":"p"}}"#;
    let mut response = client.send_request("7", "tools/call", params);
    for _ in 0..3 {
        assert_eq!(parse(&response.next_message())["method"], "notifications/progress");
    }
    let result = response.last_message();
    assert!(result.len() > 19_000_000 && result.contains(r#""id":7"#), "{} bytes", result.len());
    assert_eq!(client.call("s__t", &json!({}))["result"]["content"][0]["text"], "later");
}
