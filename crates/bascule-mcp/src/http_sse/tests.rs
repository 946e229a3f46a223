//! HTTP+SSE against a scripted server on a real socket.

use std::time::Duration;

use bascule_testkit::{Behaviour, HttpFault, IdPosition, Script, ScriptedHttp, SseFeature};
use serde_json::json;

use super::*;
use crate::Transport;
use crate::testing::{LIMIT, TestClient, echoing, endpoint, timer_wait, to_text, wait_until, with_timeout};

fn http_sse(script: Script) -> Script {
    script.legacy("/messages?session=1")
}

async fn connect(script: Script) -> (ScriptedHttp, TestClient) {
    let server = ScriptedHttp::start(script);
    let client = TestClient::connect(Transport::Sse(endpoint(&server))).await;
    (server, client)
}

/// The failure of `initialize`.
async fn initialize_error(server: &ScriptedHttp) -> String {
    let client = TestClient::open(Transport::Sse(endpoint(server)));
    let text = to_text(client.initialize().await);
    assert!(client.connection.close_reason().is_some());
    with_timeout(client.connection.close()).await;
    text
}

fn check(base: &str, reference: &str, expected: &str) {
    let found = match resolve(&base.parse().unwrap(), reference) {
        Ok(uri) => uri.to_string(),
        Err(error) => format!("{error:?}"),
    };
    assert_eq!(found, expected, "{reference} from {base}");
}

// req: BR-01
#[test]
fn resolves_the_endpoint() {
    let base = "http://h:1/a/sse?key=1";
    check(base, "/messages?s=1", "http://h:1/messages?s=1");
    check(base, "messages?s=1", "http://h:1/a/messages?s=1");
    check(base, "../messages#x", "http://h:1/messages");
    check(base, "./x/../../../y/.", "http://h:1/y/");
    check(base, "?s=1", "http://h:1/a/sse?s=1");
    check(base, "m/a:b?x=../c", "http://h:1/a/m/a:b?x=../c");
    check(base, "http://H:1/m", "http://h:1/m");
    check("http://h/sse", "http://h:80/m", "http://h/m");
    check("https://h:443/sse", "//h/m?x", "https://h:443/m?x");
    check("http://[::1]:2/sse", "http://[::1]:2/m", "http://[::1]:2/m");
}

// req: BR-01
#[test]
fn rejects_endpoints_on_other_servers() {
    let base = "http://h:1/sse";
    for foreign in [
        "http://h:2/m",
        "http://h/m",
        "https://h:1/m",
        "http://h.evil:1/m",
        "//evil/m",
        "http://h:1@evil/m",
        "http://user@h:1/m",
    ] {
        check(base, foreign, "CrossOrigin");
    }
    for nonsense in ["", "http://", "javascript:alert(1)", "file:///etc/passwd", "http:\\\\evil"] {
        assert!(resolve(&base.parse().unwrap(), nonsense).is_err(), "{nonsense}");
    }
    check(base, "/\\evil", "http://h:1/\\evil");
}

// req: BR-01, GW-03
#[tokio::test]
async fn calls_a_tool_and_reports_server_messages() {
    for address in ["/messages?session=1", "messages", "{origin}/messages"] {
        let busy = Behaviour::echo().after_progress(1).after_log("hello");
        let (server, client) = connect(echoing().legacy(address).calls("x", [busy])).await;
        assert!(to_text(client.call().await).contains(r#""structuredContent":{"a":1.0}"#));
        let unsolicited = client.close().await;
        assert!(unsolicited.len() == 2 && unsolicited[1].contains("hello"), "{unsolicited:?}");
        let requests = server.requests();
        let shown: Vec<String> = requests.iter().map(|r| format!("{} {}", r.method, r.path)).collect();
        let post = format!("POST /{}", address.trim_start_matches("{origin}").trim_start_matches('/'));
        assert_eq!(shown, ["GET /mcp", &post, &post, &post]);
        assert!(requests.iter().all(|request| request.header("authorization") == Some("secret")));
    }
}

// req: BR-01
#[tokio::test]
async fn accepts_every_style_of_event_stream() {
    use SseFeature::*;
    for habit in [Crlf, Comments, MultiLine, Retry, Ids, UnknownEvents] {
        let (_server, client) = connect(http_sse(echoing()).sse([habit])).await;
        assert!(to_text(client.call().await).contains(r#""a":1.0"#), "{habit:?}");
        client.close().await;
    }
}

// req: BR-01
#[tokio::test]
async fn posts_responses_to_server_requests() {
    let asking = Behaviour::asking([json!({ "method": "ping" }), json!({ "method": "roots/list" })]);
    let (_server, client) = connect(http_sse(echoing()).calls("x", [asking])).await;
    let text = to_text(client.call().await);
    assert!(text.contains(r#""result":{}"#) && text.contains("-32601"), "{text}");
    client.close().await;
}

// req: BR-01, BR-12
#[tokio::test]
async fn sends_nothing_to_an_endpoint_on_another_server() {
    let elsewhere = ScriptedHttp::start(echoing());
    for foreign in [elsewhere.url(), elsewhere.url().replace("http:", "")] {
        let text = initialize_error(&ScriptedHttp::start(echoing().legacy(&foreign))).await;
        assert!(text.starts_with("NotSent: ") && text.contains("another origin"), "{text}");
    }
    assert!(elsewhere.requests().is_empty());
    let text = initialize_error(&ScriptedHttp::start(echoing().legacy("http://"))).await;
    assert!(text.starts_with("NotSent: ") && text.contains("not a valid URL"), "{text}");
}

// req: BR-05
#[tokio::test]
async fn reports_servers_without_an_endpoint() {
    let partial = |text: &str| HttpFault::Partial { text: text.to_owned() };
    for (trouble, part) in [
        (partial("event: endpoint\ndata: /mess"), "was interrupted"),
        (HttpFault::EmptyStream, "the event stream ended"),
        (HttpFault::html(), "text/html"),
        (HttpFault::status(404, "no such page"), "HTTP 404: no such page"),
        (HttpFault::unauthorised("Bearer"), "needs authorisation"),
        (HttpFault::redirect(307, "http://elsewhere.example/sse"), "http://elsewhere.example/sse"),
    ] {
        let server = ScriptedHttp::start(http_sse(echoing()));
        server.fail_always("GET", trouble);
        let text = initialize_error(&server).await;
        assert!(text.starts_with("NotSent: ") && text.contains(part), "{text}");
        assert_eq!(server.requests().len(), 1);
    }
    let mut server = ScriptedHttp::start(http_sse(echoing()));
    server.stop();
    let text = initialize_error(&server).await;
    assert!(text.starts_with("NotSent: ") && text.contains("could not connect"), "{text}");
}

/// Closes the connection to a server with this fault and returns the time that this waited for timers.
async fn timer_wait_of_close(fault: HttpFault) -> Duration {
    let server = ScriptedHttp::start(http_sse(echoing()));
    server.fail_always("GET", fault);
    let client = TestClient::open(Transport::Sse(endpoint(&server)));
    let pending = client.start_call();
    wait_until(|| server.count("GET") == 1).await;
    let waited = timer_wait(client.connection.close()).await;
    let text = to_text(with_timeout(pending).await.unwrap());
    assert_eq!(text, "NotSent: the connection is closed");
    assert_eq!(server.count("POST"), 0);
    waited
}

// req: BR-05, BR-12
#[tokio::test]
async fn requests_wait_for_the_endpoint_and_closing_does_not() {
    for fault in [HttpFault::Silence, HttpFault::Endless { text: "event: endpoint\ndata: ".to_owned() }] {
        assert_eq!(timer_wait_of_close(fault.clone()).await, Duration::ZERO, "{fault:?}");
    }
}

// req: BR-05
#[tokio::test]
async fn fails_all_requests_when_the_stream_ends() {
    let script = http_sse(echoing()).calls("x", [Behaviour::silence(), Behaviour::exit(1)]);
    let (server, client) = connect(script).await;
    let first = client.start_call();
    wait_until(|| server.methods().contains(&"tools/call".to_owned())).await;
    let texts = [to_text(client.call().await), to_text(with_timeout(first).await.unwrap())];
    for text in texts {
        assert!(text.starts_with("Unknown: ") && text.contains("was interrupted"), "{text}");
    }
    assert!(to_text(client.call().await).starts_with("NotSent: "));
    assert!(client.connection.close_reason().is_some_and(|cause| cause.is_transient()));
    client.close().await;
}

// req: BR-05
#[tokio::test]
async fn reports_rejected_messages_as_not_sent() {
    for (trouble, expected) in [
        (HttpFault::status(404, "no such session"), "NotSent: "),
        (HttpFault::status(400, ""), "NotSent: "),
        (HttpFault::redirect(308, "http://elsewhere.example/"), "NotSent: "),
        (HttpFault::status(500, "oops"), "Unknown: "),
    ] {
        let (server, client) = connect(http_sse(echoing())).await;
        server.fail_next("tools/call", trouble.clone());
        let text = to_text(client.call().await);
        assert!(text.starts_with(expected), "{trouble:?}: {text}");
        assert!(client.call().await.is_ok(), "the connection goes on");
        client.close().await;
    }
}

// req: BR-12
#[tokio::test]
async fn fails_the_call_of_an_overlong_response() {
    for (place, expected) in [(IdPosition::After, "Answered: "), (IdPosition::Missing, "Unknown: ")] {
        let big = Behaviour::big(LIMIT + 1, place);
        let (_server, client) = connect(http_sse(echoing()).calls("x", [big, Behaviour::echo()])).await;
        let text = to_text(client.call().await);
        assert!(text.starts_with(expected) && text.contains("longer than 100000 bytes"), "{text}");
        assert!(client.call().await.is_ok());
        client.close().await;
    }
}

// req: BR-01
#[tokio::test]
async fn tries_streamable_http_first() {
    for (script, gets) in [(http_sse(echoing()), 1), (echoing().session("s"), 0)] {
        let server = ScriptedHttp::start(script);
        let client = TestClient::open(Transport::HttpOrSse(endpoint(&server)));
        assert!(client.initialize().await.is_ok());
        assert_eq!(server.count("GET"), gets);
        client.connection.set_version(crate::ProtocolVersion::LATEST);
        client.connection.notify("notifications/initialized", None).await.unwrap();
        assert!(to_text(client.call().await).contains(r#""a":1.0"#));
        client.close().await;
        assert_eq!(server.count("DELETE"), 1 - gets);
    }
}

// req: BR-01
#[tokio::test]
async fn falls_back_to_sse_unless_unauthorised() {
    for (status, gets) in [(400, 1), (404, 1), (405, 1), (406, 1), (415, 1), (401, 0), (403, 0), (500, 0)] {
        let server = ScriptedHttp::start(http_sse(echoing()));
        server.fail_next("initialize", HttpFault::status(status, "no"));
        let client = TestClient::open(Transport::HttpOrSse(endpoint(&server)));
        let answer = client.initialize().await;
        assert_eq!((answer.is_ok(), server.count("GET")), (gets == 1, gets), "{status}: {answer:?}");
        client.close().await;
    }
}

// req: BR-01, BR-05
#[tokio::test]
async fn names_both_errors_when_neither_transport_works() {
    let server = ScriptedHttp::start(echoing());
    server.fail_always("initialize", HttpFault::status(404, "no such page"));
    let client = TestClient::open(Transport::HttpOrSse(endpoint(&server)));
    let text = to_text(client.initialize().await);
    assert!(text.contains("HTTP 404: no such page") && text.contains("HTTP 405"), "{text}");
    assert!(text.starts_with("NotSent: "), "{text}");
    client.close().await;
}

// req: BR-05
#[tokio::test]
async fn keeps_the_transport_after_later_errors() {
    let server = ScriptedHttp::start(echoing());
    let client = TestClient::connect(Transport::HttpOrSse(endpoint(&server))).await;
    server.fail_next("tools/call", HttpFault::status(404, "no such page"));
    assert!(to_text(client.call().await).contains("HTTP 404: no such page"));
    assert!(client.call().await.is_ok());
    client.close().await;
}
