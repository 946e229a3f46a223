//! Spans and metrics on their way to an OpenTelemetry collector, which is built on the libraries of the protocol.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::fleet::serve_process::ServeProcess;
use crate::gateway::client::Client;
use crate::metrics::Metrics;
use crate::support::{Bascule, demo_server, eventually, test_env};

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const PROTOCOL: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";

/// A collector that parses requests, reports and accepts them. Killed when dropped.
struct Collector {
    child: Child,
    /// The collector ends with it.
    _stdin: ChildStdin,
    http: u64,
    grpc: u64,
    requests: Arc<Mutex<Vec<Value>>>,
}

impl Collector {
    fn start() -> Self {
        Self::with_arguments(&["0"])
    }

    fn with_arguments(arguments: &[&str]) -> Self {
        let mut child = Command::new(test_env("operators").join("bin/python"))
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/collector.py"))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = lines.next().expect("the collector prints its ports").unwrap();
        let ports: Value = serde_json::from_str(&first).unwrap();
        let requests = Arc::<Mutex<Vec<Value>>>::default();
        let received = requests.clone();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                received.lock().unwrap().push(serde_json::from_str(&line).unwrap());
            }
        });
        let port = |name: &str| ports[name].as_u64().unwrap();
        let (http, grpc) = (port("http"), port("grpc"));
        Self { _stdin: child.stdin.take().unwrap(), child, http, grpc, requests }
    }

    /// The base URL for a protocol.
    fn url(&self, protocol: &str) -> String {
        format!("http://127.0.0.1:{}", if protocol == "grpc" { self.grpc } else { self.http })
    }

    fn requests(&self) -> Vec<Value> {
        self.requests.lock().unwrap().clone()
    }

    /// All spans or metrics that have arrived.
    fn all(&self, signal: &str) -> Vec<Value> {
        let of_request = |request: Value| request[signal].as_array().unwrap().clone();
        self.requests().into_iter().flat_map(of_request).collect()
    }

    /// The last values of a metric.
    fn metric(&self, name: &str) -> Value {
        let metrics = self.all("metrics");
        metrics
            .into_iter()
            .rfind(|metric| metric["name"] == name)
            .unwrap_or_else(|| panic!("no metric `{name}`"))
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn call_from_script_and_client(bridge: &ServeProcess) {
    let code =
        "await mcp.clock.now({ timezone: 'UTC' }); await mcp.clock.now({ timezone: 'Nowhere/At_all' });";
    bridge.bascule.run_with_input(&["run", "-"], code);
    let client = Client::connect(bridge.address(), "/mcp");
    client.call("clock__now", &json!({ "timezone": "UTC" }));
    client.call("clock__now", &json!({ "timezone": 7 }));
}

#[track_caller]
fn check_spans(spans: &[Value]) {
    let script = spans.iter().find(|span| span["name"] == "script script.ts").unwrap();
    assert_eq!((&script["parent"], &script["kind"]), (&json!(""), &json!(1)));
    assert_eq!(script["span"].as_str().unwrap().len(), 16, "{script}");
    let calls: Vec<_> = spans.iter().filter(|span| span["name"] == "tools/call now").collect();
    assert_eq!((spans.len(), calls.len()), (5, 4), "{spans:?}");
    let of_script: Vec<_> =
        calls.iter().filter(|call| call["attributes"]["bascule.face"] == "script").collect();
    assert_eq!(of_script.len(), 2, "{spans:?}");
    for call in &of_script {
        assert_eq!((&call["parent"], &call["trace"]), (&script["span"], &script["trace"]), "{spans:?}");
    }
    let failures: Vec<_> = calls.iter().filter(|call| call["status"] == 2).collect();
    let mut types: Vec<_> =
        failures.iter().map(|call| call["attributes"]["error.type"].as_str().unwrap()).collect();
    types.sort_unstable();
    assert_eq!(types, ["INVALID_INPUT", "tool_error"], "{failures:?}");
    for call in &calls {
        let expected = json!({ "mcp.method.name": "tools/call", "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "now", "bascule.server": "clock" });
        for (key, value) in expected.as_object().unwrap() {
            assert_eq!(call["attributes"][key], *value, "{call}");
        }
        assert_eq!(call["kind"], 3);
        // The session with the server is another one than that of the client.
        assert!(call["attributes"]["mcp.session.id"].is_null(), "{call}");
    }
    let of_client = calls.iter().find(|call| call["attributes"]["bascule.face"] == "mcp").unwrap();
    assert_eq!(of_client["attributes"]["bascule.client.session"].as_str().unwrap().len(), 12);
}

/// The counts of a histogram by outcome.
fn counts(metric: &Value) -> Value {
    assert_eq!(
        (&metric["kind"], &metric["unit"], &metric["temporality"]),
        (&json!("histogram"), &json!("s"), &json!(2))
    );
    let points = metric["points"].as_array().unwrap().iter().map(|point| {
        assert!(point["sum"].as_f64().unwrap() >= 0.0 && point["bounds"][3] == 0.01, "{point}");
        let attributes = &point["attributes"];
        assert_eq!(
            (&attributes["gen_ai.tool.name"], &attributes["mcp.method.name"]),
            (&json!("now"), &json!("tools/call"))
        );
        (attributes["error.type"].as_str().unwrap_or("ok").to_owned(), point["count"].clone())
    });
    points.collect::<serde_json::Map<_, _>>().into()
}

#[track_caller]
fn check_metrics(collector: &Collector, scraped: &Metrics) {
    let all = json!({ "ok": 2, "tool_error": 1, "INVALID_INPUT": 1 });
    assert_eq!(counts(&collector.metric("mcp.client.operation.duration")), all);
    let of_clients = json!({ "ok": 1, "INVALID_INPUT": 1 });
    assert_eq!(counts(&collector.metric("mcp.server.operation.duration")), of_clients);
    assert_eq!(scraped.get("bascule_calls_total", json!({})), Some(4.0), "the same as on the page");
    let tools = collector.metric("bascule.server.tools");
    let expected = json!([{ "attributes": { "bascule.server": "clock" }, "value": 3 }]);
    assert_eq!((&tools["kind"], &tools["points"]), (&json!("gauge"), &expected));
    let restarts = collector.metric("bascule.server.restarts");
    assert_eq!((&restarts["kind"], &restarts["monotonic"]), (&json!("sum"), &json!(true)));
    assert_eq!(restarts["points"][0]["value"], 0);
}

// req: TR-01, BR-06
#[test]
fn spans_and_metrics_reach_the_collector_over_every_protocol() {
    for protocol in ["grpc", "http/protobuf", "http/json"] {
        let collector = Collector::start();
        let url = collector.url(protocol);
        let variables = [
            (ENDPOINT, &*url),
            (PROTOCOL, protocol),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20secret"),
            ("OTEL_SERVICE_NAME", "tested"),
        ];
        let mut bridge = ServeProcess::start_with_env(json!({ "clock": demo_server("clock") }), &variables);
        call_from_script_and_client(&bridge);
        eventually("the spans are sent", || {
            Metrics::scrape(&bridge).get("bascule_otlp_spans_sent_total", json!({})) == Some(5.0)
        });
        let scraped = Metrics::scrape(&bridge);
        // Metrics are sent once a minute, and at the end.
        bridge.signal("TERM");
        bridge.wait_for_exit();
        eventually("the metrics arrive", || !collector.all("metrics").is_empty());
        check_spans(&collector.all("spans"));
        check_metrics(&collector, &scraped);
        for request in collector.requests() {
            let signal = if request["spans"].as_array().unwrap().is_empty() { "metrics" } else { "traces" };
            let way = if protocol == "grpc" { "grpc".into() } else { format!("http /v1/{signal}") };
            assert_eq!(request["way"], way, "{protocol}");
            assert_eq!(request["headers"]["authorization"], "Bearer secret", "{request}");
            let resource = &request["resource"];
            assert_eq!(resource["service.name"], "tested");
            assert_eq!(resource["service.instance.id"].as_str().unwrap().len(), 32);
        }
    }
}

// req: TR-01
#[test]
fn metrics_are_sent_from_time_to_time() {
    let collector = Collector::start();
    let url = collector.url("grpc");
    let variables = [
        (ENDPOINT, &*url),
        (PROTOCOL, "grpc"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "100"),
        ("OTEL_TRACES_EXPORTER", "none"),
    ];
    let bridge = ServeProcess::start_with_env(json!({ "clock": demo_server("clock") }), &variables);
    bridge.bascule.call("clock:now", r#"{"timezone":"UTC"}"#);
    eventually("the call is in the metrics", || {
        let metrics = collector.all("metrics");
        let calls = |metric: &Value| metric["points"][0]["count"] == 1;
        metrics.iter().any(|metric| metric["name"] == "mcp.client.operation.duration" && calls(metric))
    });
    assert!(collector.all("spans").is_empty());
}

// req: TR-01
#[test]
fn one_shot_command_sends_its_span_before_it_ends() {
    let collector = Collector::start();
    let bascule = Bascule::with_server("clock", demo_server("clock"));
    let url = format!("{}/own", collector.url("http/protobuf"));
    let bascule = bascule.env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &url);
    bascule.call("clock:now", r#"{"timezone":"UTC"}"#);
    eventually("the span arrives", || collector.all("spans").len() == 1);
    assert_eq!(collector.requests()[0]["way"], "http /own");
}

// req: TR-01
#[test]
fn busy_collector_gets_the_spans_later() {
    for protocol in ["grpc", "http/protobuf"] {
        let collector = Collector::with_arguments(&["2"]);
        let url = collector.url(protocol);
        let variables = [(ENDPOINT, &*url), (PROTOCOL, protocol), ("OTEL_METRICS_EXPORTER", "none")];
        let bridge = ServeProcess::start_with_env(json!({ "clock": demo_server("clock") }), &variables);
        bridge.bascule.call("clock:now", r#"{"timezone":"UTC"}"#);
        eventually("the span is sent", || {
            Metrics::scrape(&bridge).get("bascule_otlp_spans_sent_total", json!({})) == Some(1.0)
        });
        assert_eq!(collector.all("spans").len(), 1, "{protocol}");
        assert_eq!(Metrics::scrape(&bridge).get("bascule_otlp_spans_dropped_total", json!({})), Some(0.0));
    }
}

// req: TR-01
#[test]
fn grpc_with_tls_checks_the_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let [certificate, key] = ["ca.pem", "key.pem"].map(|name| folder.path().join(name));
    let [certificate, key] = [&certificate, &key].map(|path| path.to_str().unwrap());
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
        ])
        .args([
            "-subj",
            "/CN=collector",
            "-addext",
            "subjectAltName=IP:127.0.0.1",
            "-addext",
            "basicConstraints=critical,CA:FALSE",
            "-out",
            certificate,
            "-keyout",
            key,
        ])
        .output()
        .expect("`openssl` is missing: install it");
    assert!(made.status.success(), "{made:?}");
    let collector = Collector::with_arguments(&["0", certificate, key]);
    let target = format!("127.0.0.1:{}", collector.grpc);
    let start = |roots: &str| {
        let variables =
            [("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &*target), (PROTOCOL, "grpc"), ("SSL_CERT_FILE", roots)];
        let bridge = ServeProcess::start_with_env(json!({ "clock": demo_server("clock") }), &variables);
        bridge.bascule.call("clock:now", r#"{"timezone":"UTC"}"#);
        bridge
    };
    let trusting = start(certificate);
    eventually("the span is sent", || {
        Metrics::scrape(&trusting).get("bascule_otlp_spans_sent_total", json!({})) == Some(1.0)
    });
    assert_eq!(collector.all("spans").len(), 1);
    // An empty file: no certificate is trusted.
    let empty = folder.path().join("empty.pem");
    std::fs::write(&empty, "").unwrap();
    let suspicious = start(empty.to_str().unwrap());
    suspicious.wait_for_stderr("could not send spans");
    assert_eq!(collector.all("spans").len(), 1);
}

// req: TR-01
#[test]
fn calls_work_without_the_collector_and_lost_spans_are_counted() {
    // Accepts connections and never responds.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let clock = json!({ "clock": demo_server("clock") });
    let url = |address: SocketAddr| format!("http://{address}");
    let start = |url: &str, protocol: &str| {
        ServeProcess::start_with_env(clock.clone(), &[(ENDPOINT, url), (PROTOCOL, protocol)])
    };
    for protocol in ["grpc", "http/protobuf"] {
        let (waiting, refused) =
            (start(&url(silent.local_addr().unwrap()), protocol), start(&url(closed), protocol));
        for _ in 0..3 {
            waiting.bascule.call("clock:now", r#"{"timezone":"UTC"}"#);
            refused.bascule.call("clock:now", r#"{"timezone":"UTC"}"#);
        }
        eventually("the lost spans are counted", || {
            Metrics::scrape(&refused).get("bascule_otlp_spans_dropped_total", json!({})) == Some(3.0)
        });
        refused.wait_for_stderr("could not send spans");
    }
    let invalid = start("collector:4318", "http/protobuf");
    invalid.wait_for_stderr("nothing is sent to a collector: `OTEL_EXPORTER_OTLP_ENDPOINT`");
    invalid.bascule.call("clock:now", r#"{"timezone":"UTC"}"#);
}
