//! Spans on their way to an OpenTelemetry collector, as the protocol's own library reads them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::fleet::serve_process::ServeProcess;
use crate::metrics::Metrics;
use crate::support::{Bascule, demo_server, eventually, test_env, wait_for_output};

/// Reads requests on stdin, one in each line, and prints their spans. The JSON parser takes the ids for Base64: encoding them again
/// gives their text.
const PARSE: &str = "
import base64, json, sys
from google.protobuf.json_format import Parse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
text = lambda data: base64.b64encode(data).decode()
spans = []
for line in sys.stdin:
    for resource in Parse(line, ExportTraceServiceRequest()).resource_spans:
        service = {a.key: a.value.string_value for a in resource.resource.attributes}['service.name']
        for span in resource.scope_spans[0].spans:
            assert 0 < span.start_time_unix_nano <= span.end_time_unix_nano
            spans.append({'service': service, 'name': span.name, 'kind': span.kind, 'trace': text(span.trace_id),
                          'span': text(span.span_id), 'parent': text(span.parent_span_id), 'status': span.status.code})
print(json.dumps(spans))
";

const RESPONSE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";

/// A collector that records requests and accepts them.
struct Collector {
    address: SocketAddr,
    /// The heads and bodies.
    requests: Arc<Mutex<Vec<(String, String)>>>,
}

impl Collector {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, requests) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<_>>>::default());
        let recorded = requests.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let request = receive(&mut stream);
                // Recorded before the response: the bridge may end with it.
                recorded.lock().unwrap().push(request);
                stream.write_all(RESPONSE.as_bytes()).unwrap();
            }
        });
        Self { address, requests }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn heads(&self) -> Vec<String> {
        self.requests.lock().unwrap().iter().map(|(head, _)| head.clone()).collect()
    }

    /// The spans that have arrived, as the library of OpenTelemetry reads them.
    fn spans(&self) -> Vec<Value> {
        let bodies: Vec<String> =
            self.requests.lock().unwrap().iter().map(|(_, body)| body.clone()).collect();
        let mut python = Command::new(test_env("operators").join("bin/python"))
            .args(["-c", PARSE])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        python.stdin.take().unwrap().write_all(bodies.join("\n").as_bytes()).unwrap();
        let output = wait_for_output(python);
        assert_eq!(output.code, Some(0), "{output:?}\n{bodies:?}");
        serde_json::from_str(&output.stdout).unwrap()
    }
}

fn receive(stream: &mut TcpStream) -> (String, String) {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).unwrap() > 0 {}
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    reader.read_exact(&mut body).unwrap();
    (head, String::from_utf8(body).unwrap())
}

// req: TR-01, BR-06
#[test]
fn spans_of_scripts_and_calls_reach_the_collector() {
    let collector = Collector::start();
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &*collector.url()),
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20secret"),
    ];
    let bridge = ServeProcess::start_with_env(json!({ "clock": demo_server("clock") }), &variables);
    let code =
        "await mcp.clock.now({ timezone: 'UTC' }); await mcp.clock.now({ timezone: 'Nowhere/At_all' });";
    bridge.bascule.run_with_input(&["run", "-"], code);
    let sent = || Metrics::scrape(&bridge).get("bascule_otlp_spans_sent_total", json!({}));
    eventually("three spans are sent", || sent() == Some(3.0));
    let spans = collector.spans();
    let script = spans.iter().find(|span| span["name"].as_str().unwrap().starts_with("script ")).unwrap();
    assert_eq!(
        (&script["service"], &script["parent"], &script["kind"]),
        (&json!("bascule"), &json!(""), &json!(1))
    );
    let calls: Vec<_> = spans.iter().filter(|span| span["name"] == "tools/call clock:now").collect();
    assert_eq!((spans.len(), calls.len()), (3, 2), "{spans:?}");
    for call in &calls {
        assert_eq!((&call["parent"], &call["trace"]), (&script["span"], &script["trace"]), "{spans:?}");
        assert_eq!((call["span"].as_str().unwrap().len(), &call["kind"]), (16, &json!(3)));
    }
    assert_eq!(calls.iter().filter(|call| call["status"] == 2).count(), 1, "one call failed: {spans:?}");
    for head in collector.heads() {
        assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{head}");
        assert!(head.contains("authorization: Bearer secret\r\n"), "{head}");
        assert!(head.contains("content-type: application/json\r\n"), "{head}");
    }
}

// req: TR-01
#[test]
fn one_shot_command_sends_its_span_before_it_ends() {
    let collector = Collector::start();
    let bascule = Bascule::with_server("clock", demo_server("clock"));
    let bascule = bascule.env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &format!("{}/own", collector.url()));
    bascule.call("clock:now", r#"{"timezone":"UTC"}"#);
    assert_eq!(collector.spans().len(), 1);
    assert!(collector.heads()[0].starts_with("POST /own HTTP/1.1\r\n"));
}

// req: TR-01
#[test]
fn calls_work_without_the_collector_and_lost_spans_are_counted() {
    // Accepts connections and never responds.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let clock = json!({ "clock": demo_server("clock") });
    let url = |address: SocketAddr| format!("http://{address}");
    let start =
        |url: &str| ServeProcess::start_with_env(clock.clone(), &[("OTEL_EXPORTER_OTLP_ENDPOINT", url)]);
    let (waiting, refused) = (start(&url(silent.local_addr().unwrap())), start(&url(closed)));
    for _ in 0..3 {
        waiting.bascule.call("clock:now", r#"{"timezone":"UTC"}"#);
        refused.bascule.call("clock:now", r#"{"timezone":"UTC"}"#);
    }
    eventually("the lost spans are counted", || {
        Metrics::scrape(&refused).get("bascule_otlp_spans_dropped_total", json!({})) == Some(3.0)
    });
    refused.wait_for_stderr("could not send spans");
    let invalid = start("collector:4317");
    invalid.wait_for_stderr("spans are not sent");
    invalid.bascule.call("clock:now", r#"{"timezone":"UTC"}"#);
}
