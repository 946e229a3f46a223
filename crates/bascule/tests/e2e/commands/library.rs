//! `McpBridgeAdapter` as a library, over real processes, with recorded events.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bascule::{BridgeConfig, McpBridgeAdapter, config};
use bascule_model::{
    BridgeError, CallOutcome, CallRequest, CorrelationId, ErrorCode, Event, EventSink, Health,
    ProviderAdapter, ToolId,
};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::demo_with;
use crate::support::{Bascule, demo_server, is_running};

/// Records all events.
#[derive(Default)]
pub(crate) struct RecordedEvents(Mutex<Vec<Value>>);

impl EventSink for RecordedEvents {
    fn offer(&self, event: Event) {
        self.0.lock().unwrap().push(serde_json::to_value(event).unwrap());
    }
}

impl RecordedEvents {
    fn of_type(&self, kind: &str) -> Vec<Value> {
        self.0.lock().unwrap().iter().filter(|event| event["type"] == kind).cloned().collect()
    }

    /// Final events of one call. A result that violates its schema has another event, `result.drifted`.
    fn of_call(&self, correlation_id: &str) -> Vec<Value> {
        self.0
            .lock()
            .unwrap()
            .iter()
            .filter(|event| event["correlationId"] == correlation_id)
            .filter(|event| event["type"].as_str().unwrap().starts_with("provider.mcp.tool."))
            .cloned()
            .collect()
    }
}

/// Starts a bridge with the `mcp.json` of this folder.
pub(crate) async fn start(folder: &Path) -> (McpBridgeAdapter, Arc<RecordedEvents>) {
    let loaded = config::load(&folder.join("mcp.json"), &|_| None).unwrap();
    let events = Arc::<RecordedEvents>::default();
    let config = BridgeConfig { events: events.clone(), ..BridgeConfig::new(loaded.settings) };
    (McpBridgeAdapter::init(config).await.unwrap(), events)
}

async fn start_demo(servers: Value) -> (McpBridgeAdapter, Arc<RecordedEvents>) {
    start(Bascule::with_servers(servers).folder()).await
}

fn request(tool: &str, arguments: &Value) -> CallRequest {
    let arguments = RawValue::from_string(arguments.to_string()).unwrap();
    CallRequest { tool: ToolId::parse(tool).unwrap(), arguments, timeout: None }
}

fn correlation(text: &str) -> Option<CorrelationId> {
    Some(CorrelationId::parse(text).unwrap())
}

/// Calls a tool and returns its result, which must not be an error.
pub(crate) async fn call(bridge: &McpBridgeAdapter, tool: &str, arguments: Value) -> Value {
    let outcome =
        bridge.execute(request(tool, &arguments), None).await.unwrap_or_else(|error| panic!("{error:?}"));
    assert!(!outcome.result.is_error, "{}", outcome.result.raw);
    serde_json::from_str(outcome.result.raw.get()).unwrap()
}

async fn execute(
    bridge: &McpBridgeAdapter,
    tool: &str,
    arguments: Value,
    id: &str,
) -> Result<CallOutcome, Box<BridgeError>> {
    bridge.execute(request(tool, &arguments), correlation(id)).await
}

// req: BR-03
#[tokio::test]
async fn publishes_discovered_tools_once_per_started_server() {
    let servers = json!({ "clock": demo_server("clock"), "gone": { "command": "./not-there" }, "counter": demo_server("counter") });
    let (bridge, events) = start_demo(servers).await;
    let discovered = |server: &str, names: [&str; 3]| json!({ "type": "provider.mcp.tools.discovered", "server": server, "count": 3, "names": names });
    // The servers start concurrently.
    let mut all = events.of_type("provider.mcp.tools.discovered");
    all.sort_by_key(|event| event["server"].to_string());
    assert_eq!(
        all,
        [
            discovered("clock", ["now", "convert", "list_timezones"]),
            discovered("counter", ["increment", "read", "seen"])
        ]
    );
    bridge.terminate().await;
}

// req: BR-16, BR-03
#[tokio::test]
async fn adapter_lists_describes_calls_and_reports_health() {
    let (bridge, _) =
        start_demo(json!({ "counter": demo_server("counter"), "gone": { "command": "./not-there" } })).await;
    let health = bridge.health();
    assert_eq!((health[0].health, health[0].tools, health[0].pid.is_some()), (Health::Healthy, 3, true));
    assert_eq!((health[1].health, health[1].pid), (Health::Degraded, None));
    assert!(health[1].cause.as_deref().unwrap().contains("not-there"), "{health:?}");
    let ids: Vec<String> = bridge.list_tools().iter().map(|tool| tool.id().to_string()).collect();
    assert_eq!(ids, ["counter:increment", "counter:read", "counter:seen"]);
    let schema = bridge.get_tool_schema(&ToolId::parse("counter:seen").unwrap()).unwrap();
    assert!(schema.definition().input_schema.get().contains(r#""required":["token"]"#));
    assert!(bridge.get_tool_schema(&ToolId::parse("counter:nothing").unwrap()).is_none());
    let outcome = execute(&bridge, "counter:increment", json!({ "by": 2 }), "mine").await.unwrap();
    assert_eq!((outcome.tool.as_str(), outcome.correlation_id.as_str()), ("counter:increment", "mine"));
    assert!(outcome.result.raw.get().contains(r#""value":2"#) && !outcome.duration.is_zero());
    assert_eq!(call(&bridge, "counter:read", json!({})).await["structuredContent"]["increments"], 1);
    bridge.terminate().await;
}

// req: BR-16, BR-11
#[tokio::test]
async fn terminate_stops_servers_and_fails_later_calls() {
    let (bridge, events) =
        start_demo(json!({ "notes": demo_server("notes"), "trouble": demo_server("trouble") })).await;
    let pids: Vec<u32> = bridge.health().iter().filter_map(|server| server.pid).collect();
    assert_eq!(pids.iter().filter(|pid| is_running(**pid)).count(), 2);
    bridge.terminate().await;
    bridge.terminate().await;
    assert!(bridge.list_tools().is_empty());
    assert!(pids.iter().all(|pid| !is_running(*pid)));
    assert!(bridge.health().iter().all(|server| server.health == Health::Stopped && server.tools == 0));
    let error = execute(&bridge, "notes:list_notes", json!({}), "late").await.unwrap_err();
    assert_eq!(error.code, ErrorCode::ProviderUnavailable);
    assert_eq!(events.of_call("late").len(), 1);
}

// req: BR-11
#[tokio::test]
async fn terminate_does_not_wait_for_calls() {
    let (bridge, events) = start_demo(json!({ "trouble": demo_server("trouble") })).await;
    let (ended, ()) = tokio::join!(execute(&bridge, "trouble:silence", json!({}), "cut"), async {
        tokio::task::yield_now().await;
        bridge.terminate().await;
    });
    assert!(ended.is_err());
    assert_eq!(events.of_call("cut").len(), 1);
}

/// Calls a tool with correlation id `call` and checks its only event.
async fn check_event(
    bridge: &McpBridgeAdapter,
    events: &RecordedEvents,
    tool: &str,
    arguments: Value,
    expected: &str,
) {
    let before = events.of_call("call").len();
    let ended = execute(bridge, tool, arguments, "call").await;
    let recorded = events.of_call("call");
    assert_eq!(recorded.len(), before + 1, "{tool}: {recorded:?}");
    let event = recorded.last().unwrap();
    assert_eq!((&event["tool"], event["correlationId"].as_str()), (&json!(tool), Some("call")));
    let summary = match &ended {
        Ok(_) => format!("{} {}", event["type"], event["isError"]),
        Err(error) => {
            assert_eq!(event["message"], error.message);
            format!("{} {} {}", event["type"], event["code"], event["retryable"])
        }
    };
    assert_eq!(summary.replace('"', "").replace("provider.mcp.tool.", ""), expected);
}

// req: BR-06, BR-07
#[tokio::test]
async fn publishes_one_final_event_per_call() {
    let short = json!({ "limits": { "maxExecutionMs": 300 } });
    let settings = json!({ "deniedTools": ["leak"], "tools": { "silence": short } });
    let (bridge, events) = start_demo(
        json!({ "trouble": demo_with("trouble", settings), "gone": { "command": "./not-there" } }),
    )
    .await;
    for (tool, arguments, expected) in [
        ("trouble:junk", json!({}), "completed false"),
        ("trouble:fail", json!({}), "completed true"),
        ("trouble:fail", json!({ "x": 1 }), "failed INVALID_INPUT false"),
        ("trouble:fail", json!([]), "failed INVALID_INPUT false"),
        ("trouble:nothing", json!({}), "failed TOOL_NOT_FOUND false"),
        ("nobody:nothing", json!({}), "failed TOOL_NOT_FOUND false"),
        ("gone:x", json!({}), "failed PROVIDER_INIT_FAILED true"),
        ("trouble:leak", json!({ "mb": 1 }), "failed POLICY_DENIED false"),
        ("trouble:lie", json!({}), "failed INVALID_OUTPUT false"),
        ("trouble:rpc_error", json!({}), "failed PROVIDER_ERROR false"),
        ("trouble:silence", json!({}), "failed PROVIDER_TIMEOUT true"),
        ("trouble:crash", json!({}), "failed PROVIDER_CRASHED true"),
        ("trouble:junk", json!({}), "failed PROVIDER_UNAVAILABLE true"),
    ] {
        check_event(&bridge, &events, tool, arguments, expected).await;
    }
    bridge.terminate().await;
}

// req: BR-07
#[tokio::test]
async fn event_summary_is_short() {
    let (bridge, events) = start_demo(json!({ "notes": demo_server("notes") })).await;
    let note = json!({ "title": "long", "text": "é".repeat(5_000) });
    check_event(&bridge, &events, "notes:add_note", note, "completed false").await;
    let event = &events.of_call("call")[0];
    assert!(event["durationMs"].as_f64().unwrap() > 0.0);
    let summary = event["summary"].as_str().unwrap();
    assert!(summary.len() < 300 && summary.ends_with('…'), "{summary}");
    bridge.terminate().await;
}

// req: BR-07
#[tokio::test]
async fn publishes_cancelled_once_when_caller_leaves() {
    let (bridge, events) = start_demo(json!({ "trouble": demo_server("trouble") })).await;
    // Polled once, so that the call is under way, then dropped.
    let left =
        tokio::time::timeout(Duration::ZERO, execute(&bridge, "trouble:silence", json!({}), "left")).await;
    assert!(left.is_err());
    let recorded = events.of_call("left");
    assert_eq!(
        (recorded.len(), &recorded[0]["type"], &recorded[0]["code"]),
        (1, &json!("provider.mcp.tool.failed"), &json!("CANCELLED"))
    );
    drop(execute(&bridge, "trouble:silence", json!({}), "never"));
    assert!(events.of_call("never").is_empty(), "a call that was never polled has no event");
    assert!(!call(&bridge, "trouble:junk", json!({})).await["content"].as_array().unwrap().is_empty());
    bridge.terminate().await;
}

// req: BR-07
#[tokio::test]
async fn publishes_cancelled_once_when_task_is_aborted() {
    let (bridge, events) = start_demo(json!({ "trouble": demo_server("trouble") })).await;
    let bridge = Arc::new(bridge);
    let (started_sender, started) = tokio::sync::oneshot::channel();
    let task = tokio::spawn({
        let bridge = bridge.clone();
        async move {
            started_sender.send(()).unwrap();
            execute(&bridge, "trouble:sleep", json!({ "ms": 600_000 }), "aborted").await.is_ok()
        }
    });
    started.await.unwrap();
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    assert_eq!(
        events.of_call("aborted").iter().map(|event| &event["code"]).collect::<Vec<_>>(),
        [&json!("CANCELLED")]
    );
    bridge.terminate().await;
}

// req: BR-06
#[tokio::test]
async fn concurrent_calls_keep_their_correlation_ids() {
    let (bridge, events) = start_demo(json!({ "counter": demo_server("counter") })).await;
    let calls = (0..50).map(|n| {
        let (bridge, id) = (&bridge, format!("id-{n}"));
        async move { (execute(bridge, "counter:increment", json!({ "token": id }), &id).await.unwrap(), id) }
    });
    for (outcome, id) in futures_util::future::join_all(calls).await {
        assert_eq!((outcome.correlation_id.as_str(), events.of_call(&id).len()), (id.as_str(), 1));
        assert_eq!(
            call(&bridge, "counter:seen", json!({ "token": id })).await["structuredContent"]["times"],
            1
        );
    }
    let completed = events.of_type("provider.mcp.tool.completed");
    assert_eq!(completed.len(), 100, "calls without an id have a generated one");
    assert!(completed[50..].iter().all(|event| event["correlationId"].as_str().unwrap().len() == 32));
    bridge.terminate().await;
}

// req: BR-10, BR-12
#[tokio::test]
async fn crashed_server_does_not_affect_others() {
    let mut trouble = demo_server("trouble");
    trouble["reconnectBackoffMs"] = 30_000.into();
    let (bridge, _) = start_demo(json!({ "notes": demo_server("notes"), "trouble": trouble })).await;
    let crash = execute(&bridge, "trouble:crash", json!({ "code": 3 }), "a").await.unwrap_err();
    assert_eq!(
        (crash.code, crash.stderr.as_deref()),
        (ErrorCode::ProviderCrashed, Some("trouble: crashing with code 3, as asked"))
    );
    let health = bridge.health();
    assert_eq!((health[0].health, health[1].health), (Health::Healthy, Health::Degraded));
    assert!(health[1].cause.as_deref().unwrap().contains("exit code 3"), "{health:?}");
    let next = execute(&bridge, "trouble:fail", json!({}), "b").await.unwrap_err();
    assert_eq!((next.code, next.retryable), (ErrorCode::ProviderUnavailable, true));
    assert!(call(&bridge, "notes:list_notes", json!({})).await["structuredContent"]["notes"].is_array());
    bridge.terminate().await;
}
