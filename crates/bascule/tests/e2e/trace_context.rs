//! W3C trace context on its way from a client's headers or `_meta`, through the bridge's span, to the server.

use bascule_testkit::{Script, ScriptedStdio};
use serde_json::{Value, json};

use crate::fleet::serve_process::ServeProcess;
use crate::gateway::client::{Client, post};
use crate::support::eventually;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

struct Setup {
    server: ScriptedStdio,
    bridge: ServeProcess,
    client: Client,
}

impl Setup {
    fn start(path: &str) -> Self {
        Self::start_with_env(path, &[])
    }

    fn start_with_env(path: &str, variables: &[(&str, &str)]) -> Self {
        let server = ScriptedStdio::new(Script::new().tools(["x"]));
        let bridge = ServeProcess::start_with_env(json!({ "s": server.entry() }), variables);
        let client = Client::connect(bridge.address(), path);
        Self { server, bridge, client }
    }

    /// Calls a tool with these headers. Returns the `_meta` that the server received, without the progress token.
    fn call(&self, tool: &str, meta: Value, headers: &[&str]) -> Value {
        let params = json!({ "name": tool, "arguments": {}, "_meta": meta });
        self.send(&params, headers);
        let line = self.server.received().into_iter().rfind(|line| line.contains("tools/call")).unwrap();
        let mut meta = serde_json::from_str::<Value>(&line).unwrap()["params"]["_meta"].take();
        meta.as_object_mut().unwrap().remove("progressToken");
        meta
    }

    fn send(&self, params: &Value, headers: &[&str]) -> String {
        let request = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        let session = self.client.session_header();
        let headers = [&[session.as_str()], headers].concat();
        post(self.client.address, &self.client.path, &headers, &request.to_string()).last_message()
    }

    fn spans(&self, count: usize) -> Vec<Value> {
        let mut spans = Vec::new();
        eventually("the spans are written", || {
            spans = self.bridge.bascule.run_json(&["traces"]).1.as_array().unwrap().clone();
            spans.len() == count
        });
        spans
    }
}

fn parent_header() -> String {
    format!("traceparent: 00-{TRACE}-{PARENT}-01")
}

// req: TR-01
#[test]
fn trace_of_headers_is_recorded_and_passed_on() {
    let setup = Setup::start("/mcp");
    let headers =
        [&*parent_header(), "tracestate: a=1", "tracestate: b=2", "baggage: user=a", "baggage: k=v;p=1"];
    let passed = setup.call("s__x", json!({ "own": 7 }), &headers);
    let spans = setup.spans(1);
    assert_eq!((&spans[0]["traceId"], &spans[0]["parentSpanId"]), (&json!(TRACE), &json!(PARENT)));
    assert_eq!(spans[0]["correlationId"], TRACE);
    let below = format!("00-{TRACE}-{}-01", spans[0]["spanId"].as_str().unwrap());
    assert_eq!(
        passed,
        json!({ "own": 7, "traceparent": below, "tracestate": "a=1,b=2", "baggage": "user=a,k=v;p=1" })
    );
}

// req: TR-01, GW-03
#[test]
fn own_trace_of_a_client_gets_the_span_of_the_call() {
    let setup = Setup::start("/servers/s/mcp");
    let meta = |parent: &str| json!({ "traceparent": format!("00-{TRACE}-{parent}-00"), "tracestate": "c=3", "baggage": "k=v" });
    let other = format!("traceparent: 00-{}-{PARENT}-01", "1".repeat(32));
    let passed = setup.call("x", meta(PARENT), &[&other, "tracestate: a=1", "baggage: k=w"]);
    let spans = setup.spans(1);
    assert_eq!(spans[0]["traceId"], TRACE, "`_meta` counts before the headers");
    assert_eq!(passed, meta(spans[0]["spanId"].as_str().unwrap()));
    assert_eq!(setup.call("x", json!({}), &[]), json!({}));
    assert_eq!(setup.call("x", json!({}), &["traceparent: nonsense", "tracestate: a=1"]), json!({}));
}

// req: TR-01
#[test]
fn span_that_goes_to_a_collector_is_the_parent_of_the_servers() {
    // Nobody has to receive it.
    let setup = Setup::start_with_env("/mcp", &[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")]);
    let passed = setup.call("s__x", json!({ "own": 7 }), &[]);
    let span = &setup.spans(1)[0];
    let [trace, id] = ["traceId", "spanId"].map(|key| span[key].as_str().unwrap());
    assert_eq!(passed, json!({ "own": 7, "traceparent": format!("00-{trace}-{id}-01") }));
}

// req: TR-01
#[test]
fn calls_of_a_script_carry_the_trace_of_its_client() {
    let setup = Setup::start("/mcp");
    let code = json!({ "code": "await mcp.s.x({})" });
    let meta = json!({ "baggage": "user=a" });
    let headers = [&*parent_header(), "tracestate: a=1"];
    let answer = setup.send(&json!({ "name": "execute_code", "arguments": code, "_meta": meta }), &headers);
    let spans = setup.spans(2);
    let call = spans.iter().find(|span| span["kind"] == "call").unwrap_or_else(|| panic!("{answer}"));
    let below = format!("00-{TRACE}-{}-01", call["spanId"].as_str().unwrap());
    let received = setup.server.wait_for("tools/call");
    for part in [&*below, r#""tracestate":"a=1""#, r#""baggage":"user=a""#] {
        assert!(received.contains(part), "{part}: {received}");
    }
    assert!(spans.iter().all(|span| span["traceId"] == TRACE), "{spans:?}");
}

// req: TR-01, GW-03
#[test]
fn hostile_values_reach_no_server() {
    let setup = Setup::start("/mcp");
    let long = |name: &str, length: usize| format!("{name}: k={}", "x".repeat(length));
    let (state, baggage) = (long("tracestate", 511), long("baggage", 8_191));
    let passed = setup.call("s__x", json!({}), &[&parent_header(), &state, &baggage]);
    let keys: Vec<&String> = passed.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["traceparent"], "too long values are left out");
    assert_eq!(setup.call("s__x", json!({}), &["baggage: k=\u{e9}"]), json!({}), "no ASCII");
    let quoted = setup.call("s__x", json!({}), &[r#"baggage: k="}},"x":{"y":""#]);
    assert_eq!(quoted, json!({ "baggage": r#"k="}},"x":{"y":""# }));
}
