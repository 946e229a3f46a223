//! Sessions, headers, and servers that go and come back.

use std::time::Duration;

use bascule_model::ServerName;
use bascule_testkit::{RecordedRequest, ScriptedHttp};
use serde_json::json;

use super::{check, echoing, served, served_with};
use crate::embedded::{bridge, call, call_with_timeout, terminate};
use crate::support::{Bascule, text};

const SECRET: &str = "Bearer hunter2";

/// The requests that carry or end something. When the one for the GET stream comes is nobody's business.
fn exchanges(server: &ScriptedHttp) -> Vec<RecordedRequest> {
    server.requests().into_iter().filter(|request| request.method != "GET").collect()
}

fn headers<'a>(requests: &'a [RecordedRequest], name: &str) -> Vec<Option<&'a str>> {
    requests.iter().map(|request| request.header(name)).collect()
}

// req: CL-01
#[test]
fn a_session_is_kept_on_every_later_request_and_ended() {
    let (bascule, server) = served(echoing().session("visit-17"));
    bascule.call("s:x", "{}");
    let requests = exchanges(&server);
    let own = Some("visit-17");
    assert_eq!(headers(&requests, "mcp-session-id"), [None, own, own, own, own]);
    let last = requests.last().unwrap();
    assert_eq!((last.method.as_str(), last.body.as_str()), ("DELETE", ""));
}

// req: CL-01
#[test]
fn without_a_session_there_is_nothing_to_end() {
    let (bascule, server) = served(echoing());
    bascule.call("s:x", "{}");
    assert_eq!(server.methods(), ["initialize", "notifications/initialized", "tools/list", "tools/call"]);
    assert_eq!(exchanges(&server).len(), 4);
}

// req: BR-02
#[test]
fn the_version_agreed_on_is_told_with_every_later_request() {
    for version in ["2025-03-26", "2025-11-25"] {
        let (bascule, server) = served(echoing().version(version));
        bascule.call("s:x", "{}");
        let agreed = Some(version);
        assert_eq!(headers(&exchanges(&server), "mcp-protocol-version"), [None, agreed, agreed, agreed]);
    }
}

#[test]
fn a_server_that_quotes_our_secret_is_not_quoted() {
    let secret = json!({ "headers": { "Authorization": "${TOKEN}" } });
    let (bascule, server) = served_with(echoing(), secret);
    let bascule = bascule.env("TOKEN", SECRET);
    for method in ["tools/call", "initialize"] {
        server.fail_always(method, bascule_testkit::HttpFault::status(500, &format!("who is {SECRET}?")));
        let ran = bascule.run(&["call", "s:x", "--json"]);
        assert!(ran.stdout.contains("who is") && !ran.stdout.contains("hunter2"), "{ran:?}");
    }
}

// req: BR-01
#[test]
fn configured_headers_are_sent_with_every_request_and_never_shown() {
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
        let ran = bascule.run(arguments);
        assert!(!ran.stdout.contains("hunter2") && !ran.stderr.contains("hunter2"), "{ran:?}");
    }
    let requests = server.requests();
    assert!(requests.len() > 15 && requests.iter().any(|request| request.method == "DELETE"));
    assert!(headers(&requests, "authorization").iter().all(|value| *value == Some(SECRET)));
    assert!(headers(&requests, "x-team").iter().all(|value| *value == Some("blue")));
}

// req: BR-01
#[test]
fn configured_headers_are_not_shown_by_any_failure() {
    for url in ["http://127.0.0.1:1/mcp?key=swordfish", "https://127.0.0.1:1/mcp?key=swordfish"] {
        let entry = json!({ "url": url, "headers": { "Authorization": SECRET } });
        let ran = Bascule::with_server("s", entry).run(&["call", "s:x", "-vvv"]);
        assert_eq!(ran.code, Some(3), "{ran:?}");
        assert!(!ran.stderr.contains("hunter2"), "{ran:?}");
        assert!(!ran.stderr.contains("swordfish"), "a query may hold a key: {ran:?}");
    }
}

// req: BR-05
// req: BR-09
#[tokio::test]
async fn a_call_of_a_session_that_the_server_forgot_is_served_by_a_new_one() {
    let server = ScriptedHttp::start(echoing().session("first"));
    let bridge = bridge(server.entry()).await;
    assert_eq!(text(&call(&bridge, "s:x", "{}").await.unwrap()), "{}");
    server.set_script(echoing().session("second"));
    assert_eq!(text(&call(&bridge, "s:x", r#"{"a":1}"#).await.unwrap()), r#"{"a":1}"#);
    terminate(&bridge).await;
}

// req: BR-12
#[tokio::test]
async fn a_connection_that_the_server_closed_in_the_meantime_is_opened_again() {
    let (server, other) = (ScriptedHttp::start(echoing()), ScriptedHttp::start(echoing()));
    let (tried, elsewhere) = (bridge(server.entry()).await, bridge(other.entry()).await);
    call(&tried, "s:x", "{}").await.unwrap();
    server.drop_connections();
    // A whole exchange elsewhere: whatever the system has to tell us has been told by then.
    call(&elsewhere, "s:x", "{}").await.unwrap();
    assert_eq!(text(&call(&tried, "s:x", r#"{"a":1}"#).await.unwrap()), r#"{"a":1}"#);
    for bridge in [&tried, &elsewhere] {
        terminate(bridge).await;
    }
}

// req: BR-05
// req: BR-12
#[tokio::test]
async fn a_server_that_is_away_is_unavailable_and_served_again_when_it_is_back() {
    let (mut server, other) = (ScriptedHttp::start(echoing()), ScriptedHttp::start(echoing()));
    let (tried, elsewhere) = (bridge(server.entry()).await, bridge(other.entry()).await);
    call(&tried, "s:x", "{}").await.unwrap();
    server.stop();
    call(&elsewhere, "s:x", "{}").await.unwrap();
    let error = call_with_timeout(&tried, "s:x", "{}", Some(Duration::from_secs(3))).await.unwrap_err();
    check(&error, "PROVIDER_UNAVAILABLE not_sent true", &["could not connect"]);
    server.restart(echoing());
    tried.refresh(&ServerName::parse("s").unwrap()).await.unwrap();
    assert_eq!(text(&call(&tried, "s:x", r#"{"a":1}"#).await.unwrap()), r#"{"a":1}"#);
    for bridge in [&tried, &elsewhere] {
        terminate(bridge).await;
    }
}

// req: BR-03
#[test]
fn a_server_that_comes_back_with_other_tools_is_asked_for_them() {
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
async fn the_end_of_the_bridge_ends_calls_under_way_and_the_session() {
    let server = ScriptedHttp::start(echoing().session("a"));
    server.fail_always("tools/call", bascule_testkit::HttpFault::Silence);
    let bridge = bridge(server.entry()).await;
    let ended = async {
        while !server.methods().contains(&"tools/call".to_owned()) {
            tokio::task::yield_now().await;
        }
        terminate(&bridge).await;
    };
    let (called, ()) = tokio::join!(call(&bridge, "s:x", "{}"), ended);
    check(&called.unwrap_err(), "OUTCOME_UNKNOWN unknown false", &["closed"]);
    assert_eq!(server.requests().last().unwrap().method, "DELETE");
}
