//! The pages for operators: `/metrics` as the parser of Prometheus reads it, and `/readyz`.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use bascule_testkit::{NatsServer, Script, ScriptedStdio};
use serde_json::{Value, json};

use crate::fleet::held_server::HeldServer;
use crate::fleet::serve_process::ServeProcess;
use crate::gateway::client::{Client, connect};
use crate::support::{
    Bascule, demo_server, eventually, project_file, test_env, wait_for_output, with_settings,
};

/// Reads metrics on stdin, and prints each sample as `[name, labels, value]`.
const PARSE: &str = "
import json, sys
from prometheus_client.parser import text_string_to_metric_families as parse
samples = [s for family in parse(sys.stdin.read()) for s in family.samples]
keys = [(s.name, tuple(sorted(s.labels.items()))) for s in samples]
assert len(keys) == len(set(keys)), 'a sample occurs twice'
print(json.dumps([[s.name, s.labels, s.value] for s in samples]))
";

/// Returns the status and the whole response.
fn get(address: SocketAddr, path: &str, headers: &str) -> (u16, String) {
    let mut stream = connect(address);
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    (response[9..12].parse().unwrap(), response)
}

/// Metrics, parsed by the library of Prometheus.
pub struct Metrics(Vec<(String, Value, f64)>);

impl Metrics {
    pub fn scrape(bridge: &ServeProcess) -> Self {
        let (status, response) = get(bridge.address(), "/metrics", "");
        assert_eq!(status, 200, "{response}");
        assert!(
            response.contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"),
            "{response}"
        );
        Self::parse(response.split_once("\r\n\r\n").unwrap().1)
    }

    fn parse(text: &str) -> Self {
        let mut python = Command::new(test_env("operators").join("bin/python"))
            .args(["-c", PARSE])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        python.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let output = wait_for_output(python);
        assert_eq!(output.code, Some(0), "{output:?}\n{text}");
        Self(serde_json::from_str(&output.stdout).unwrap())
    }

    /// The sum of the samples of this name with at least these labels; `None` without any.
    pub fn get(&self, name: &str, labels: Value) -> Option<f64> {
        let wanted = labels.as_object().unwrap();
        let has_labels = |labels: &Value| wanted.iter().all(|(label, value)| labels[label] == *value);
        let found = self.0.iter().filter(|(sample, labels, _)| sample == name && has_labels(labels));
        found.map(|(.., value)| *value).reduce(|sum, value| sum + value)
    }

    #[track_caller]
    fn check(&self, name: &str, labels: Value, expected: f64) {
        assert_eq!(self.get(name, labels.clone()), Some(expected), "{name} {labels}");
    }
}

fn spawn_call(bridge: &ServeProcess, tool: &str) -> Child {
    bridge.bascule.command(&["call", tool, "{}"]).stderr(Stdio::null()).spawn().unwrap()
}

// req: BR-06, TR-01
#[test]
fn figures_match_the_calls() {
    let clock = with_settings(demo_server("clock"), json!({ "deniedTools": ["convert"] }));
    let bridge = ServeProcess::start(json!({ "clock": clock, "files": demo_server("files") }));
    let client = Client::connect(bridge.address(), "/mcp");
    for _ in 0..3 {
        let response = client.call("clock__now", &json!({ "timezone": "UTC" }));
        assert_eq!(response["result"]["isError"], false, "{response:#}");
    }
    client.call("clock__now", &json!({ "timezone": 7 }));
    client.call("clock__now", &json!({ "timezone": "Nowhere/At_all" }));
    bridge.bascule.call("clock:now", r#"{"timezone":"UTC"}"#);
    for tool in ["clock:convert", "clock:invented-1", "clock:invented-2"] {
        bridge.bascule.call_error(tool, "{}");
    }
    let metrics = Metrics::scrape(&bridge);
    let now = || json!({ "server": "clock", "tool": "now" });
    metrics.check("bascule_calls_total", now(), 6.0);
    metrics.check("bascule_call_duration_seconds_count", now(), 6.0);
    metrics.check(
        "bascule_call_duration_seconds_bucket",
        json!({ "server": "clock", "tool": "now", "le": "+Inf" }),
        6.0,
    );
    assert!(metrics.get("bascule_call_duration_seconds_sum", now()).is_some_and(|seconds| seconds > 0.0));
    metrics.check("bascule_call_errors_total", now(), 2.0);
    metrics.check("bascule_call_errors_total", json!({ "tool": "now", "code": "INVALID_INPUT" }), 1.0);
    metrics.check("bascule_call_errors_total", json!({ "tool": "now", "code": "TOOL_ERROR" }), 1.0);
    let other = |code: &str| json!({ "server": "clock", "tool": "other", "code": code });
    metrics.check("bascule_call_errors_total", other("POLICY_DENIED"), 1.0);
    metrics.check("bascule_call_errors_total", other("TOOL_NOT_FOUND"), 2.0);
    metrics.check("bascule_calls_total", json!({}), 9.0);
    metrics.check("bascule_calls_in_flight", json!({}), 0.0);
    metrics.check("bascule_scripts_running", json!({}), 0.0);
    metrics.check("bascule_trace_entries_dropped_total", json!({}), 0.0);
}

// req: BR-06
#[test]
fn calls_of_scripts_are_counted_and_workers_shown() {
    let bridge = ServeProcess::start(json!({ "clock": demo_server("clock") }));
    let code = r#"for (let i = 0; i < 5; i++) await mcp.clock.now({ timezone: "UTC" });"#;
    let output = bridge.bascule.run_with_input(&["run", "-"], code);
    assert_eq!(output.code, Some(0), "{output:?}");
    Metrics::scrape(&bridge).check("bascule_calls_total", json!({ "server": "clock", "tool": "now" }), 5.0);
    eventually("workers are ready for the next script", || {
        Metrics::scrape(&bridge)
            .get("bascule_script_workers_ready", json!({}))
            .is_some_and(|count| count > 0.0)
    });
}

// req: BR-06, BR-17
#[test]
fn shows_calls_in_flight_and_in_the_queue() {
    let server = HeldServer::new();
    let limits = json!({ "limits": { "maxConcurrent": 1, "maxQueue": 5 } });
    let bridge = ServeProcess::start(json!({ "s": with_settings(server.entry(), limits) }));
    let first = spawn_call(&bridge, "s:x");
    server.wait_for_call();
    let mut second = spawn_call(&bridge, "s:x");
    eventually("the second call waits", || {
        Metrics::scrape(&bridge).get("bascule_calls_waiting", json!({ "server": "s" })) == Some(1.0)
    });
    Metrics::scrape(&bridge).check("bascule_calls_in_flight", json!({ "server": "s" }), 1.0);
    second.kill().unwrap();
    second.wait().unwrap();
    server.release();
    assert_eq!(wait_for_output(first).code, Some(0));
    let metrics = Metrics::scrape(&bridge);
    metrics.check("bascule_calls_in_flight", json!({ "server": "s" }), 0.0);
    eventually("the abandoned call is counted", || {
        let code = json!({ "server": "s", "tool": "x", "code": "CANCELLED" });
        Metrics::scrape(&bridge).get("bascule_call_errors_total", code) == Some(1.0)
    });
    eventually("its wait is recorded", || {
        let spans = bridge.bascule.run_json(&["traces", "--failed"]).1;
        spans[0]["code"] == "CANCELLED" && spans[0]["waitedMs"].as_f64() > Some(0.0)
    });
}

// req: BR-06, BR-08
#[test]
fn shows_health_and_restarts() {
    let server = ScriptedStdio::new(Script::new().tools(["x"]));
    let lost = json!({ "command": "/nonexistent/program" });
    let bridge = ServeProcess::start(json!({ "s": server.entry(), "lost": lost }));
    let is = |server: &str, state: &str| {
        let labels = json!({ "server": server, "state": state });
        Metrics::scrape(&bridge).get("bascule_server_health", labels) == Some(1.0)
    };
    eventually("the server is healthy", || is("s", "healthy"));
    server.kill();
    eventually("the server was restarted", || {
        let restarts =
            Metrics::scrape(&bridge).get("bascule_server_restarts_total", json!({ "server": "s" }));
        restarts == Some(1.0) && is("s", "healthy")
    });
    let metrics = Metrics::scrape(&bridge);
    metrics.check("bascule_server_health", json!({ "server": "s" }), 1.0);
    metrics.check("bascule_server_health", json!({ "server": "lost" }), 1.0);
    assert!(!is("lost", "healthy") && !is("lost", "starting"));
    let process = bridge.server_status("s")["pid"].clone();
    let changed = with_settings(server.entry(), json!({ "env": { "CHANGED": "1" } }));
    bridge.configure(&json!({ "s": changed }));
    eventually("the server was replaced", || {
        let replacement = bridge.server_status("s")["pid"].clone();
        replacement.is_number() && replacement != process
    });
    Metrics::scrape(&bridge).check("bascule_server_restarts_total", json!({ "server": "s" }), 1.0);
}

// req: BR-06, GW-03
#[test]
fn unusual_names_of_tools_parse() {
    let long = "x".repeat(300);
    let names = ["a \"quoted\" \\ name", "two\nlines", "é-世界", "other", &long];
    let server = ScriptedStdio::new(Script::new().tools(names));
    let bridge = ServeProcess::start(json!({ "s": server.entry() }));
    for name in names {
        let output = bridge.bascule.run(&["call", &format!("s:{name}"), "{}"]);
        assert_eq!(output.code, Some(0), "{name}: {output:?}");
    }
    let metrics = Metrics::scrape(&bridge);
    for name in [names[0], names[2]] {
        metrics.check("bascule_calls_total", json!({ "server": "s", "tool": name }), 1.0);
    }
    // The tool of that name, the one with a line break, and the long one.
    metrics.check("bascule_calls_total", json!({ "server": "s", "tool": "other" }), 3.0);
}

// req: GW-07
#[test]
fn pages_need_token_host_and_origin() {
    let token = "0123456789abcdef0123456789abcdef";
    let text = json!({ "mcpServers": {}, "bascule": { "tokens": [token] } }).to_string();
    let bridge = ServeProcess::start_with_config(&text, &[]);
    let (address, authorized) = (bridge.address(), format!("authorization: Bearer {token}\r\n"));
    for path in ["/metrics", "/readyz"] {
        assert_eq!(get(address, path, "").0, 401, "{path}");
        assert_eq!(get(address, path, "authorization: Bearer 00000000000000000000000000000000\r\n").0, 401);
        assert_eq!(get(address, path, &authorized).0, 200, "{path}");
        let foreign = format!("{authorized}origin: http://evil.example\r\n");
        assert_eq!(get(address, path, &foreign).0, 403, "{path}");
    }
    assert_eq!(get(address, "/healthz", "").0, 200);
}

// req: BR-06, GW-07
#[test]
fn metrics_have_a_port_of_their_own() {
    let token = "0123456789abcdef0123456789abcdef";
    let bascule = json!({ "tokens": [token], "metrics": { "listen": "127.0.0.1:0" } });
    let text = json!({ "mcpServers": { "clock": demo_server("clock") }, "bascule": bascule }).to_string();
    let bridge = ServeProcess::start_with_config(&text, &[]);
    bridge.wait_for_stderr("/metrics\n");
    let stderr = bridge.stderr();
    let own =
        stderr.split_once("metrics at http://").unwrap().1.split_once("/metrics").unwrap().0.parse().unwrap();
    let authorized = format!("authorization: Bearer {token}\r\n");
    assert_eq!(get(own, "/metrics", "").0, 401);
    let (status, page) = get(own, "/metrics", &authorized);
    assert!(status == 200 && page.contains("\nbascule_build_info{"), "{page}");
    assert_eq!((get(own, "/healthz", "").0, get(own, "/readyz", "").0), (200, 401));
    assert!([200, 503].contains(&get(own, "/readyz", &authorized).0));
    assert_eq!(get(own, "/mcp", &authorized).0, 404, "clients are served elsewhere");
    assert_eq!(get(bridge.address(), "/metrics", &authorized).0, 404);
    assert_eq!(get(bridge.address(), "/healthz", "").0, 200);
}

// req: BR-06, BU-06, GW-07
#[test]
fn bridge_on_the_bus_opens_a_port_for_metrics_alone() {
    let nats = NatsServer::start();
    let token = "0123456789abcdef0123456789abcdef";
    let bascule = json!({ "tokens": [token], "metrics": { "listen": "127.0.0.1:0" } });
    let text = json!({ "mcpServers": { "clock": demo_server("clock") }, "bascule": bascule }).to_string();
    let bascule = Bascule::with_text(&text);
    let mut command = bascule.command(&["serve", "--agent", "a", "--bus", &nats.url()]);
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let line = lines.find_map(|line| line.strip_prefix("metrics at http://").map(str::to_owned)).unwrap();
    let address = line.strip_suffix("/metrics").unwrap().parse().unwrap();
    let authorized = format!("authorization: Bearer {token}\r\n");
    assert_eq!(get(address, "/metrics", "").0, 401);
    assert_eq!(get(address, "/metrics", &authorized).0, 200);
    assert_eq!(get(address, "/mcp", &authorized).0, 404);
    child.kill().unwrap();
    child.wait().unwrap();
}

// req: GW-07
#[test]
fn metrics_that_other_machines_reach_need_a_token() {
    let text = r#"{ "mcpServers": {}, "bascule": { "metrics": { "listen": "0.0.0.0:0" } } }"#;
    let bascule = Bascule::with_text(text);
    let output = bascule.run(&["serve", "--listen", "127.0.0.1:0", "--auth", "none"]);
    assert!(output.code == Some(2) && output.stderr.contains("a token is needed"), "{output:?}");
}

// req: BR-06
#[test]
fn is_ready_once_eager_servers_have_started_or_failed() {
    let server = ScriptedStdio::new(Script::new().tools(["x"]));
    let gate = tempfile::tempdir().unwrap();
    let go = gate.path().join("go");
    let entry = server.entry();
    let start = r#"while [ ! -e "$0" ]; do sleep 0.02; done; exec "$@""#;
    let program = entry["args"].as_array().unwrap().iter().map(|argument| argument.as_str().unwrap());
    let command = ["-c", start, go.to_str().unwrap(), entry["command"].as_str().unwrap()];
    let arguments: Vec<&str> = command.into_iter().chain(program).collect();
    let held = with_settings(entry.clone(), json!({ "command": "sh", "args": arguments }));
    let lost = json!({ "command": "/nonexistent/program" });
    let bridge = ServeProcess::start(json!({ "held": held, "lost": lost }));
    eventually("only the held server is starting", || {
        let (status, response) = get(bridge.address(), "/readyz", "");
        status == 503 && response.ends_with("\r\n\r\nstarting: held")
    });
    fs::write(go, "").unwrap();
    eventually("the bridge is ready", || get(bridge.address(), "/readyz", "").0 == 200);
}

/// Metrics that a text names.
fn named_metrics(text: &str) -> Vec<String> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words.filter(|word| word.starts_with("bascule_")).map(str::to_owned).collect()
}

// req: BR-06
#[test]
fn dashboard_shows_every_metric_and_no_other() {
    let text = fs::read_to_string(project_file("contrib/grafana-dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let queries = dashboard["panels"].as_array().unwrap().iter().flat_map(|panel| {
        panel["targets"].as_array().unwrap().iter().map(|target| target["expr"].as_str().unwrap())
    });
    let named: BTreeSet<String> = queries.flat_map(named_metrics).collect();
    let collector = [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")];
    let bridge = ServeProcess::start_with_env(json!({ "clock": demo_server("clock") }), &collector);
    bridge.bascule.call_error("clock:now", r#"{"timezone":7}"#);
    let existing: BTreeSet<String> = Metrics::scrape(&bridge).0.into_iter().map(|(name, ..)| name).collect();
    assert_eq!(named, existing);
}

// req: BR-06
#[test]
fn documentation_lists_every_metric() {
    let documentation = fs::read_to_string(project_file("docs/configuration.md")).unwrap();
    let listed: BTreeSet<String> = named_metrics(&documentation).into_iter().collect();
    let dashboard = fs::read_to_string(project_file("contrib/grafana-dashboard.json")).unwrap();
    let base = |name: String| match name.strip_prefix("bascule_call_duration_seconds") {
        Some(_) => "bascule_call_duration_seconds".to_owned(),
        None => name,
    };
    let shown: BTreeSet<String> = named_metrics(&dashboard).into_iter().map(base).collect();
    assert_eq!(listed, shown);
}
