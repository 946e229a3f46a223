//! Sessions, headers, and servers that stop and start again.

use std::time::Duration;

use bascule_model::ServerName;
use bascule_testkit::{RecordedRequest, ScriptedHttp};
use serde_json::json;

use super::{check, echoing, served, served_with};
use crate::embedded::{bridge, call, call_with_timeout, terminate};
use crate::support::{Bascule, text};

const SECRET: &str = "Bearer hunter2";

/// Requests without GET, whose time of arrival varies.
fn requests_without_get(server: &ScriptedHttp) -> Vec<RecordedRequest> {
    server.requests().into_iter().filter(|request| request.method != "GET").collect()
}

fn headers<'a>(requests: &'a [RecordedRequest], name: &str) -> Vec<Option<&'a str>> {
    requests.iter().map(|request| request.header(name)).collect()
}

// req: CL-01
#[test]
fn sends_session_id_and_ends_session() {
    let (bascule, server) = served(echoing().session("session-17"));
    bascule.call("s:x", "{}");
    let requests = requests_without_get(&server);
    let session = Some("session-17");
    assert_eq!(headers(&requests, "mcp-session-id"), [None, session, session, session, session]);
    let last = requests.last().unwrap();
    assert_eq!((last.method.as_str(), last.body.as_str()), ("DELETE", ""));
}

// req: CL-01
#[test]
fn sends_no_delete_without_session() {
    let (bascule, server) = served(echoing());
    bascule.call("s:x", "{}");
    assert_eq!(server.methods(), ["initialize", "notifications/initialized", "tools/list", "tools/call"]);
    assert_eq!(requests_without_get(&server).len(), 4);
}

// req: BR-02
#[test]
fn sends_negotiated_version_header() {
    for version in ["2025-03-26", "2025-11-25"] {
        let (bascule, server) = served(echoing().version(version));
        bascule.call("s:x", "{}");
        let agreed = Some(version);
        assert_eq!(
            headers(&requests_without_get(&server), "mcp-protocol-version"),
            [None, agreed, agreed, agreed]
        );
    }
}

#[test]
fn redacts_secret_quoted_by_server() {
    let secret = json!({ "headers": { "Authorization": "${TOKEN}" } });
    let (bascule, server) = served_with(echoing(), secret);
    let bascule = bascule.env("TOKEN", SECRET);
    for method in ["tools/call", "initialize"] {
        server.fail_always(method, bascule_testkit::HttpFault::status(500, &format!("who is {SECRET}?")));
        let output = bascule.run(&["call", "s:x", "--json"]);
        assert!(output.stdout.contains("who is") && !output.stdout.contains("hunter2"), "{output:?}");
    }
}

// req: BR-01
#[test]
fn sends_configured_headers_without_printing_them() {
    let secret = json!({ "headers": { "Authorization": "${TOKEN}", "X-Team": "blue" } });
    let (bascule, server) = served_with(echoing().session("s"), secret);
    let bascule = bascule.env("TOKEN", SECRET);
    let commands: [&[&str]; 5] = [
        &["call", "s:x", "-vv"],
        &["call", "s:x", "-vvv", "--json"],
        &["call", "s:nothing", "-vv"],
        &["check", "-vv", "--json"],
        &["tools", "-vv"],
    ];
    for arguments in commands {
        let output = bascule.run(arguments);
        assert!(!output.stdout.contains("hunter2") && !output.stderr.contains("hunter2"), "{output:?}");
    }
    let requests = server.requests();
    assert!(requests.len() > 15 && requests.iter().any(|request| request.method == "DELETE"));
    assert!(headers(&requests, "authorization").iter().all(|value| *value == Some(SECRET)));
    assert!(headers(&requests, "x-team").iter().all(|value| *value == Some("blue")));
}

// req: BR-01
#[test]
fn failures_do_not_print_secrets() {
    for url in ["http://127.0.0.1:1/mcp?key=swordfish", "https://127.0.0.1:1/mcp?key=swordfish"] {
        let entry = json!({ "url": url, "headers": { "Authorization": SECRET } });
        let output = Bascule::with_server("s", entry).run(&["call", "s:x", "-vvv"]);
        assert_eq!(output.code, Some(3), "{output:?}");
        assert!(!output.stderr.contains("hunter2"), "{output:?}");
        assert!(!output.stderr.contains("swordfish"), "a query may hold a key: {output:?}");
    }
}

// req: BR-05
// req: BR-09
#[tokio::test]
async fn repeats_call_in_new_session_after_404() {
    let server = ScriptedHttp::start(echoing().session("first"));
    let bridge = bridge(server.entry()).await;
    assert_eq!(text(&call(&bridge, "s:x", "{}").await.unwrap()), "{}");
    server.set_script(echoing().session("second"));
    assert_eq!(text(&call(&bridge, "s:x", r#"{"a":1}"#).await.unwrap()), r#"{"a":1}"#);
    terminate(&bridge).await;
}

// req: BR-12
#[tokio::test]
async fn reopens_connection_closed_by_server() {
    let (server, other) = (ScriptedHttp::start(echoing()), ScriptedHttp::start(echoing()));
    let (first, second) = (bridge(server.entry()).await, bridge(other.entry()).await);
    call(&first, "s:x", "{}").await.unwrap();
    server.drop_connections();
    // A full exchange with another server: by then the closed connection has been noticed.
    call(&second, "s:x", "{}").await.unwrap();
    assert_eq!(text(&call(&first, "s:x", r#"{"a":1}"#).await.unwrap()), r#"{"a":1}"#);
    for bridge in [&first, &second] {
        terminate(bridge).await;
    }
}

// req: BR-05
// req: BR-12
#[tokio::test]
async fn serves_again_after_server_was_down() {
    let (mut server, other) = (ScriptedHttp::start(echoing()), ScriptedHttp::start(echoing()));
    let (first, second) = (bridge(server.entry()).await, bridge(other.entry()).await);
    call(&first, "s:x", "{}").await.unwrap();
    server.stop();
    call(&second, "s:x", "{}").await.unwrap();
    let error = call_with_timeout(&first, "s:x", "{}", Some(Duration::from_secs(3))).await.unwrap_err();
    check(&error, "PROVIDER_UNAVAILABLE not_sent true", &["could not connect"]);
    server.restart(echoing());
    first.refresh(&ServerName::parse("s").unwrap()).await.unwrap();
    assert_eq!(text(&call(&first, "s:x", r#"{"a":1}"#).await.unwrap()), r#"{"a":1}"#);
    for bridge in [&first, &second] {
        terminate(bridge).await;
    }
}

// req: BR-03
#[test]
fn lists_tools_again_after_server_restart() {
    let (bascule, mut server) = served(echoing());
    bascule.call("s:x", "{}");
    server.stop();
    assert_eq!(bascule.call_error("s:x", "{}")["code"], "PROVIDER_INIT_FAILED");
    server.restart(bascule_testkit::Script::new().tools(["y"]));
    assert_eq!(bascule.call_error("s:x", "{}")["code"], "TOOL_NOT_FOUND");
    bascule.call("s:y", "{}");
}

// req: CL-08
// req: BR-11
#[tokio::test]
async fn terminate_fails_calls_and_ends_session() {
    let server = ScriptedHttp::start(echoing().session("a"));
    server.fail_always("tools/call", bascule_testkit::HttpFault::Silence);
    let bridge = bridge(server.entry()).await;
    let terminated = async {
        while !server.methods().contains(&"tools/call".to_owned()) {
            tokio::task::yield_now().await;
        }
        terminate(&bridge).await;
    };
    let (called, ()) = tokio::join!(call(&bridge, "s:x", "{}"), terminated);
    check(&called.unwrap_err(), "OUTCOME_UNKNOWN unknown false", &["closed"]);
    assert_eq!(server.requests().last().unwrap().method, "DELETE");
}
