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

/// A client that remembers whose progress it was told of.
#[derive(Clone, Default)]
struct Listener {
    progress: Arc<Mutex<Vec<ProgressToken>>>,
}

impl ClientHandler for Listener {
    async fn on_progress(&self, told: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.progress.lock().unwrap().push(told.progress_token);
    }
}

impl Listener {
    fn count(&self, token: &ProgressToken) -> usize {
        self.progress.lock().unwrap().iter().filter(|told| *told == token).count()
    }

    async fn has_heard_of(&self, token: &ProgressToken) {
        let heard = async {
            while self.count(token) == 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), heard).await.expect("progress is reported");
    }
}

type Connected = RunningService<RoleClient, Listener>;

fn process(name: &str) -> TokioChildProcess {
    let mut command = Command::new(demo_program());
    command.arg(name);
    TokioChildProcess::builder(command).stderr(Stdio::null()).spawn().unwrap().0
}

async fn connect(name: &str) -> Connected {
    Listener::default().serve(process(name)).await.unwrap()
}

fn request(tool: &str, arguments: Value) -> CallToolRequestParams {
    CallToolRequestParams::new(tool.to_owned()).with_arguments(object(arguments))
}

async fn call(server: &Connected, tool: &str, arguments: Value) -> CallToolResult {
    server.call_tool(request(tool, arguments)).await.unwrap()
}

/// The structured content of a call, which must agree with its text.
async fn structure(server: &Connected, tool: &str, arguments: Value) -> Value {
    let result = call(server, tool, arguments).await;
    let text = &result.content[0].as_text().unwrap().text;
    let structure = result.structured_content.unwrap();
    assert_eq!(
        (serde_json::from_str::<Value>(text).unwrap(), result.is_error),
        (structure.clone(), Some(false))
    );
    structure
}

async fn error(server: &Connected, tool: &str) -> ErrorData {
    match server.call_tool(request(tool, json!({}))).await {
        Err(ServiceError::McpError(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn every_demo_server_introduces_itself_and_lists_its_tools() {
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
async fn the_notebook_is_used() {
    let server = connect("notes").await;
    let note =
        structure(&server, "add_note", json!({ "title": "Rust", "text": "never sleeps", "tags": ["metal"] }))
            .await;
    assert_eq!((&note["id"], &note["tags"]), (&json!(4), &json!(["metal"])));
    assert_eq!(structure(&server, "get_note", json!({ "id": 4 })).await, note);
    assert_eq!(structure(&server, "search_notes", json!({ "query": "metal" })).await["matches"][0]["id"], 4);
    assert_eq!(structure(&server, "delete_note", json!({ "id": 4 })).await, json!({ "id": 4 }));
    assert_eq!(structure(&server, "list_notes", json!({})).await["notes"].as_array().unwrap().len(), 3);
    assert_eq!(call(&server, "get_note", json!({ "id": 4 })).await.is_error, Some(true));
    assert_eq!(call(&server, "get_note", json!({ "id": "four" })).await.is_error, Some(true));
    server.cancel().await.unwrap();
}

#[tokio::test]
async fn the_clock_and_the_counter_are_used() {
    let clock = connect("clock").await;
    assert_eq!(structure(&clock, "now", json!({})).await["timezone"], "UTC");
    let zones = json!({ "time": "2026-07-01T08:00", "from": "Europe/Zurich", "to": "UTC" });
    assert_eq!(structure(&clock, "convert", zones).await["to"]["time"], "2026-07-01T06:00:00+00:00");
    assert_eq!(
        structure(&clock, "list_timezones", json!({ "contains": "zurich" })).await["timezones"],
        json!(["Europe/Zurich"])
    );
    clock.cancel().await.unwrap();
    let counter = connect("counter").await;
    structure(&counter, "increment", json!({ "by": 3, "token": "t" })).await;
    assert_eq!(structure(&counter, "read", json!({})).await, json!({ "value": 3, "increments": 1 }));
    assert_eq!(structure(&counter, "seen", json!({ "token": "t" })).await["times"], 1);
    counter.cancel().await.unwrap();
}

#[tokio::test]
async fn trouble_is_troublesome_and_no_more() {
    let server = connect("trouble").await;
    assert_eq!(call(&server, "fail", json!({})).await.is_error, Some(true));
    assert_eq!(error(&server, "rpc_error").await.code.0, -32050);
    assert_eq!(error(&server, "no_such_tool").await.code.0, -32602);
    assert!(structure(&server, "sleep", json!({ "ms": 10 })).await["sleptMs"].as_u64().unwrap() >= 10);
    assert_eq!(structure(&server, "leak", json!({ "mb": 2 })).await, json!({ "leakedMb": 2 }));
    assert_eq!(structure(&server, "lie", json!({})).await, json!({ "value": "not a number" }));
    let flood = call(&server, "flood_stderr", json!({ "kb": 256 })).await;
    assert_eq!(flood.content[0].as_text().unwrap().text, "printed 256 kB on stderr");
    let junk = call(&server, "junk", json!({ "lines": 2 })).await;
    assert_eq!(junk.content[0].as_text().unwrap().text, "printed 2 lines of junk");
    server.cancel().await.unwrap();
}

#[tokio::test]
async fn a_cancelled_sleeper_stops() {
    let server = connect("trouble").await;
    let sleep = ClientRequest::CallToolRequest(Request::new(request("sleep", json!({ "ms": 600_000 }))));
    let sleeper = server.send_cancellable_request(sleep, PeerRequestOptions::no_options()).await.unwrap();
    let token = sleeper.progress_token.clone();
    server.service().has_heard_of(&token).await;
    sleeper.cancel(Some("enough".into())).await.unwrap();
    // What it reported before it heard of that, has come before this answer.
    call(&server, "sleep", json!({ "ms": 300 })).await;
    let heard = server.service().count(&token);
    call(&server, "sleep", json!({ "ms": 300 })).await;
    assert_eq!(server.service().count(&token), heard);
    server.cancel().await.unwrap();
}

#[tokio::test]
async fn a_crash_is_seen_as_the_end_of_the_transport() {
    let server = connect("trouble").await;
    let ended = server.call_tool(request("crash", json!({ "code": 9 }))).await.unwrap_err();
    assert!(matches!(ended, ServiceError::TransportClosed | ServiceError::Cancelled { .. }), "{ended:?}");
    assert!(server.call_tool(request("fail", json!({}))).await.is_err());
    server.waiting().await.unwrap();
}

#[tokio::test]
async fn a_client_of_the_new_era_finds_its_way_back() {
    let lifecycle = ClientLifecycleMode::Auto {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        legacy_version: Some(ProtocolVersion::V_2024_11_05),
    };
    let server = Listener::default().serve_with_lifecycle(process("counter"), lifecycle).await.unwrap();
    assert_eq!(server.peer_info().unwrap().protocol_version, ProtocolVersion::V_2024_11_05);
    assert_eq!(structure(&server, "read", json!({})).await["value"], 0);
    server.cancel().await.unwrap();
}
