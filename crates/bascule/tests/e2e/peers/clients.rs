//! rmcp's client against the servers that come with the program.

use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResult, ClientRequest, ErrorData, PingRequest, ProgressNotificationParam,
    ProgressToken, ProtocolVersion, Request, object,
};
use rmcp::service::{NotificationContext, PeerRequestOptions, RunningService};
use rmcp::transport::TokioChildProcess;
use rmcp::{ClientHandler, ClientLifecycleMode, ClientServiceExt, RoleClient, ServiceError, ServiceExt};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::support::demo_program;

/// A client that records the tokens of progress notifications.
#[derive(Clone, Default)]
struct ProgressRecorder {
    progress: Arc<Mutex<Vec<ProgressToken>>>,
}

impl ClientHandler for ProgressRecorder {
    async fn on_progress(&self, notification: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.progress.lock().unwrap().push(notification.progress_token);
    }
}

impl ProgressRecorder {
    fn count(&self, token: &ProgressToken) -> usize {
        self.progress.lock().unwrap().iter().filter(|received| *received == token).count()
    }

    async fn wait_for_progress(&self, token: &ProgressToken) {
        let received = async {
            while self.count(token) == 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), received).await.expect("progress is reported");
    }
}

type RmcpClient = RunningService<RoleClient, ProgressRecorder>;

fn process(name: &str) -> TokioChildProcess {
    let mut command = Command::new(demo_program());
    command.arg(name);
    TokioChildProcess::builder(command).stderr(Stdio::null()).spawn().unwrap().0
}

async fn connect(name: &str) -> RmcpClient {
    ProgressRecorder::default().serve(process(name)).await.unwrap()
}

fn request(tool: &str, arguments: Value) -> CallToolRequestParams {
    CallToolRequestParams::new(tool.to_owned()).with_arguments(object(arguments))
}

async fn call(server: &RmcpClient, tool: &str, arguments: Value) -> CallToolResult {
    server.call_tool(request(tool, arguments)).await.unwrap()
}

/// Structured content of a call; its text must be equal.
async fn structured_content(server: &RmcpClient, tool: &str, arguments: Value) -> Value {
    let result = call(server, tool, arguments).await;
    let text = &result.content[0].as_text().unwrap().text;
    let structure = result.structured_content.unwrap();
    assert_eq!(
        (serde_json::from_str::<Value>(text).unwrap(), result.is_error),
        (structure.clone(), Some(false))
    );
    structure
}

async fn error(server: &RmcpClient, tool: &str) -> ErrorData {
    match server.call_tool(request(tool, json!({}))).await {
        Err(ServiceError::McpError(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn demo_servers_initialize_and_list_tools() {
    for (name, expected) in [
        ("notes", "add_note get_note list_notes search_notes delete_note"),
        ("clock", "now convert list_timezones"),
        ("counter", "increment read seen"),
        ("trouble", "sleep crash abort leak junk lie fail rpc_error silence flood_stderr"),
    ] {
        let server = connect(name).await;
        let info = server.peer_info().unwrap();
        assert_eq!(info.server_info.as_ref().unwrap().name, format!("bascule-demo-{name}"));
        assert_eq!(info.protocol_version, ProtocolVersion::LATEST_WITH_INITIALIZE);
        assert!(info.capabilities.tools.is_some() && info.capabilities.prompts.is_none());
        let tools = server.list_all_tools().await.unwrap();
        assert_eq!(tools.iter().map(|tool| &*tool.name).collect::<Vec<_>>().join(" "), expected);
        assert!(tools.iter().all(|tool| tool.description.is_some() && tool.annotations.is_some()));
        server.send_request(ClientRequest::PingRequest(PingRequest::default())).await.unwrap();
        server.cancel().await.unwrap();
    }
}

#[tokio::test]
async fn notes_server_works() {
    let server = connect("notes").await;
    let note = structured_content(
        &server,
        "add_note",
        json!({ "title": "Rust", "text": "never sleeps", "tags": ["metal"] }),
    )
    .await;
    assert_eq!((&note["id"], &note["tags"]), (&json!(4), &json!(["metal"])));
    assert_eq!(structured_content(&server, "get_note", json!({ "id": 4 })).await, note);
    assert_eq!(
        structured_content(&server, "search_notes", json!({ "query": "metal" })).await["matches"][0]["id"],
        4
    );
    assert_eq!(structured_content(&server, "delete_note", json!({ "id": 4 })).await, json!({ "id": 4 }));
    assert_eq!(
        structured_content(&server, "list_notes", json!({})).await["notes"].as_array().unwrap().len(),
        3
    );
    assert_eq!(call(&server, "get_note", json!({ "id": 4 })).await.is_error, Some(true));
    assert_eq!(call(&server, "get_note", json!({ "id": "four" })).await.is_error, Some(true));
    server.cancel().await.unwrap();
}

#[tokio::test]
async fn clock_and_counter_servers_work() {
    let clock = connect("clock").await;
    assert_eq!(structured_content(&clock, "now", json!({})).await["timezone"], "UTC");
    let zones = json!({ "time": "2026-07-01T08:00", "from": "Europe/Zurich", "to": "UTC" });
    assert_eq!(structured_content(&clock, "convert", zones).await["to"]["time"], "2026-07-01T06:00:00+00:00");
    assert_eq!(
        structured_content(&clock, "list_timezones", json!({ "contains": "zurich" })).await["timezones"],
        json!(["Europe/Zurich"])
    );
    clock.cancel().await.unwrap();
    let counter = connect("counter").await;
    structured_content(&counter, "increment", json!({ "by": 3, "token": "t" })).await;
    assert_eq!(structured_content(&counter, "read", json!({})).await, json!({ "value": 3, "increments": 1 }));
    assert_eq!(structured_content(&counter, "seen", json!({ "token": "t" })).await["times"], 1);
    counter.cancel().await.unwrap();
}

#[tokio::test]
async fn trouble_server_fails_as_described() {
    let server = connect("trouble").await;
    assert_eq!(call(&server, "fail", json!({})).await.is_error, Some(true));
    assert_eq!(error(&server, "rpc_error").await.code.0, -32050);
    assert_eq!(error(&server, "no_such_tool").await.code.0, -32602);
    assert!(
        structured_content(&server, "sleep", json!({ "ms": 10 })).await["sleptMs"].as_u64().unwrap() >= 10
    );
    assert_eq!(structured_content(&server, "leak", json!({ "mb": 2 })).await, json!({ "leakedMb": 2 }));
    assert_eq!(structured_content(&server, "lie", json!({})).await, json!({ "value": "not a number" }));
    let flood = call(&server, "flood_stderr", json!({ "kb": 256 })).await;
    assert_eq!(flood.content[0].as_text().unwrap().text, "printed 256 kB on stderr");
    let junk = call(&server, "junk", json!({ "lines": 2 })).await;
    assert_eq!(junk.content[0].as_text().unwrap().text, "printed 2 lines of junk");
    server.cancel().await.unwrap();
}

#[tokio::test]
async fn cancelled_call_stops_reporting_progress() {
    let server = connect("trouble").await;
    let sleep = ClientRequest::CallToolRequest(Request::new(request("sleep", json!({ "ms": 600_000 }))));
    let cancellable = server.send_cancellable_request(sleep, PeerRequestOptions::no_options()).await.unwrap();
    let token = cancellable.progress_token.clone();
    server.service().wait_for_progress(&token).await;
    cancellable.cancel(Some("enough".into())).await.unwrap();
    // Progress sent before the cancellation arrives before this response.
    call(&server, "sleep", json!({ "ms": 300 })).await;
    let received = server.service().count(&token);
    call(&server, "sleep", json!({ "ms": 300 })).await;
    assert_eq!(server.service().count(&token), received);
    server.cancel().await.unwrap();
}

#[tokio::test]
async fn crash_closes_the_transport() {
    let server = connect("trouble").await;
    let ended = server.call_tool(request("crash", json!({ "code": 9 }))).await.unwrap_err();
    assert!(matches!(ended, ServiceError::TransportClosed | ServiceError::Cancelled { .. }), "{ended:?}");
    assert!(server.call_tool(request("fail", json!({}))).await.is_err());
    server.waiting().await.unwrap();
}

#[tokio::test]
async fn newer_client_falls_back_to_older_version() {
    let lifecycle = ClientLifecycleMode::Auto {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        legacy_version: Some(ProtocolVersion::V_2024_11_05),
    };
    let server =
        ProgressRecorder::default().serve_with_lifecycle(process("counter"), lifecycle).await.unwrap();
    assert_eq!(server.peer_info().unwrap().protocol_version, ProtocolVersion::V_2024_11_05);
    assert_eq!(structured_content(&server, "read", json!({})).await["value"], 0);
    server.cancel().await.unwrap();
}
