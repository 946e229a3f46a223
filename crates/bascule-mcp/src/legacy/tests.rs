//! HTTP+SSE against a scripted server on a real socket.

use std::time::Duration;

use bascule_testkit::{Behaviour, HttpFault, IdPosition, Script, ScriptedHttp, SseFeature};
use serde_json::json;

use super::*;
use crate::Transport;
use crate::testing::{LIMIT, Played, echoing, endpoint, patiently, timer_wait, told, until};

fn old(script: Script) -> Script {
    script.legacy("/messages?session=1")
}

async fn connect(script: Script) -> (ScriptedHttp, Played) {
    let server = ScriptedHttp::start(script);
    let played = Played::connect(Transport::Sse(endpoint(&server))).await;
    (server, played)
}

/// What becomes of `initialize`.
async fn refused(server: &ScriptedHttp) -> String {
    let played = Played::open(Transport::Sse(endpoint(server)));
    let said = told(played.initialize().await);
    assert!(played.connection.ended().is_some());
    patiently(played.connection.close()).await;
    said
}

fn check(base: &str, reference: &str, expected: &str) {
    let found = match resolve(&base.parse().unwrap(), reference) {
        Ok(uri) => uri.to_string(),
        Err(wrong) => format!("{wrong:?}"),
    };
    assert_eq!(found, expected, "{reference} from {base}");
}

// req: BR-01
#[test]
fn the_address_to_post_to_is_found_from_where_we_are() {
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
fn an_address_elsewhere_is_refused() {
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
        check(base, foreign, "Foreign");
    }
    for nonsense in ["", "http://", "javascript:alert(1)", "file:///etc/passwd", "http:\\\\evil"] {
        assert!(resolve(&base.parse().unwrap(), nonsense).is_err(), "{nonsense}");
    }
    check(base, "/\\evil", "http://h:1/\\evil");
}

// req: BR-01, GW-03
#[tokio::test]
async fn a_tool_is_called_and_everything_else_is_heard() {
    for address in ["/messages?session=1", "messages", "{origin}/messages"] {
        let busy = Behaviour::echo().after_progress(1).after_log("hello");
        let (server, played) = connect(echoing().legacy(address).calls("x", [busy])).await;
        assert!(told(played.call().await).contains(r#""structuredContent":{"a":1.0}"#));
        let heard = played.close().await;
        assert!(heard.len() == 2 && heard[1].contains("hello"), "{heard:?}");
        let requests = server.requests();
        let shown: Vec<String> = requests.iter().map(|r| format!("{} {}", r.method, r.path)).collect();
        let post = format!("POST /{}", address.trim_start_matches("{origin}").trim_start_matches('/'));
        assert_eq!(shown, ["GET /mcp", &post, &post, &post]);
        assert!(requests.iter().all(|request| request.header("authorization") == Some("secret")));
    }
}

// req: BR-01
#[tokio::test]
async fn every_habit_of_an_event_stream_is_understood() {
    use SseFeature::*;
    for habit in [Crlf, Comments, MultiLine, Retry, Ids, UnknownEvents] {
        let (_server, played) = connect(old(echoing()).sse([habit])).await;
        assert!(told(played.call().await).contains(r#""a":1.0"#), "{habit:?}");
        played.close().await;
    }
}

// req: BR-01
#[tokio::test]
async fn a_server_that_asks_is_answered_by_post() {
    let asking = Behaviour::asking([json!({ "method": "ping" }), json!({ "method": "roots/list" })]);
    let (_server, played) = connect(old(echoing()).calls("x", [asking])).await;
    let said = told(played.call().await);
    assert!(said.contains(r#""result":{}"#) && said.contains("-32601"), "{said}");
    played.close().await;
}

// req: BR-01, BR-12
#[tokio::test]
async fn an_address_on_another_server_gets_nothing_of_ours() {
    let elsewhere = ScriptedHttp::start(echoing());
    for foreign in [elsewhere.url(), elsewhere.url().replace("http:", "")] {
        let said = refused(&ScriptedHttp::start(echoing().legacy(&foreign))).await;
        assert!(said.starts_with("NotSent: ") && said.contains("another server"), "{said}");
    }
    assert!(elsewhere.requests().is_empty());
    let said = refused(&ScriptedHttp::start(echoing().legacy("http://"))).await;
    assert!(said.starts_with("NotSent: ") && said.contains("no address"), "{said}");
}

// req: BR-05
#[tokio::test]
async fn a_server_that_never_gets_so_far_is_a_clear_error_and_nothing_was_sent() {
    let partial = |text: &str| HttpFault::Partial { text: text.to_owned() };
    for (trouble, part) in [
        (partial("event: endpoint\ndata: /mess"), "broke off"),
        (HttpFault::EmptyStream, "the event stream ended"),
        (HttpFault::html(), "text/html"),
        (HttpFault::status(404, "no such page"), "HTTP 404: no such page"),
        (HttpFault::unauthorised("Bearer"), "needs authorisation"),
        (HttpFault::redirect(307, "http://elsewhere.example/sse"), "http://elsewhere.example/sse"),
    ] {
        let server = ScriptedHttp::start(old(echoing()));
        server.fail_always("GET", trouble);
        let said = refused(&server).await;
        assert!(said.starts_with("NotSent: ") && said.contains(part), "{said}");
        assert_eq!(server.requests().len(), 1);
    }
    let mut server = ScriptedHttp::start(old(echoing()));
    server.stop();
    let said = refused(&server).await;
    assert!(said.starts_with("NotSent: ") && said.contains("could not connect"), "{said}");
}

/// Closes the connection to a server with this fault and returns the time that this waited for timers.
async fn timer_wait_of_close(fault: HttpFault) -> Duration {
    let server = ScriptedHttp::start(old(echoing()));
    server.fail_always("GET", fault);
    let played = Played::open(Transport::Sse(endpoint(&server)));
    let mut pending = played.start_call();
    until(|| server.count("GET") == 1).await;
    let waited = timer_wait(played.connection.close()).await;
    let said = told(patiently(pending.answer()).await);
    assert_eq!(said, "NotSent: the connection is closed");
    assert_eq!(server.count("POST"), 0);
    waited
}

// req: BR-05, BR-12
#[tokio::test]
async fn requests_wait_for_the_address_and_closing_waits_for_nobody() {
    for fault in [HttpFault::Silence, HttpFault::Endless { text: "event: endpoint\ndata: ".to_owned() }] {
        assert_eq!(timer_wait_of_close(fault.clone()).await, Duration::ZERO, "{fault:?}");
    }
}

// req: BR-05
#[tokio::test]
async fn the_end_of_the_stream_ends_everything_under_way() {
    let script = old(echoing()).calls("x", [Behaviour::silence(), Behaviour::exit(1)]);
    let (server, played) = connect(script).await;
    let mut first = played.start_call();
    until(|| server.methods().contains(&"tools/call".to_owned())).await;
    let said = [told(played.call().await), told(patiently(first.answer()).await)];
    for said in said {
        assert!(said.starts_with("Unknown: ") && said.contains("broke off"), "{said}");
    }
    assert!(told(played.call().await).starts_with("NotSent: "));
    assert!(played.connection.ended().is_some_and(|why| why.is_network()));
    played.close().await;
}

// req: BR-05
#[tokio::test]
async fn a_message_that_is_not_taken_was_not_sent() {
    for (trouble, expected) in [
        (HttpFault::status(404, "no such session"), "NotSent: "),
        (HttpFault::status(400, ""), "NotSent: "),
        (HttpFault::redirect(308, "http://elsewhere.example/"), "NotSent: "),
        (HttpFault::status(500, "oops"), "Unknown: "),
    ] {
        let (server, played) = connect(old(echoing())).await;
        server.fail_next("tools/call", trouble.clone());
        let said = told(played.call().await);
        assert!(said.starts_with(expected), "{trouble:?}: {said}");
        assert!(played.call().await.is_ok(), "the connection goes on");
        played.close().await;
    }
}

// req: BR-12
#[tokio::test]
async fn an_overlong_answer_fails_its_call_and_the_stream_goes_on() {
    for (place, expected) in [(IdPosition::After, "Answered: "), (IdPosition::Missing, "Unknown: ")] {
        let big = Behaviour::big(LIMIT + 1, place);
        let (_server, played) = connect(old(echoing()).calls("x", [big, Behaviour::echo()])).await;
        let said = told(played.call().await);
        assert!(said.starts_with(expected) && said.contains("longer than 100000 bytes"), "{said}");
        assert!(played.call().await.is_ok());
        played.close().await;
    }
}

// req: BR-01
#[tokio::test]
async fn an_address_of_unknown_kind_is_tried_the_newer_way_first() {
    for (script, gets) in [(old(echoing()), 1), (echoing().session("s"), 0)] {
        let server = ScriptedHttp::start(script);
        let played = Played::open(Transport::HttpOrSse(endpoint(&server)));
        assert!(played.initialize().await.is_ok());
        assert_eq!(server.count("GET"), gets);
        played.connection.set_version(crate::ProtocolVersion::LATEST);
        played.connection.notify("notifications/initialized", None).await.unwrap();
        assert!(told(played.call().await).contains(r#""a":1.0"#));
        played.close().await;
        assert_eq!(server.count("DELETE"), 1 - gets);
    }
}

// req: BR-01
#[tokio::test]
async fn any_refusal_but_one_of_ourselves_leads_to_the_older_way() {
    for (status, gets) in [(400, 1), (404, 1), (405, 1), (406, 1), (415, 1), (401, 0), (403, 0), (500, 0)] {
        let server = ScriptedHttp::start(old(echoing()));
        server.fail_next("initialize", HttpFault::status(status, "no"));
        let played = Played::open(Transport::HttpOrSse(endpoint(&server)));
        let answer = played.initialize().await;
        assert_eq!((answer.is_ok(), server.count("GET")), (gets == 1, gets), "{status}: {answer:?}");
        played.close().await;
    }
}

// req: BR-01, BR-05
#[tokio::test]
async fn when_neither_way_works_both_are_told() {
    let server = ScriptedHttp::start(echoing());
    server.fail_always("initialize", HttpFault::status(404, "no such page"));
    let played = Played::open(Transport::HttpOrSse(endpoint(&server)));
    let said = told(played.initialize().await);
    assert!(said.contains("HTTP 404: no such page") && said.contains("HTTP 405"), "{said}");
    assert!(said.starts_with("NotSent: "), "{said}");
    played.close().await;
}

// req: BR-05
#[tokio::test]
async fn later_refusals_do_not_change_the_way() {
    let server = ScriptedHttp::start(echoing());
    let played = Played::connect(Transport::HttpOrSse(endpoint(&server))).await;
    server.fail_next("tools/call", HttpFault::status(404, "no such page"));
    assert!(told(played.call().await).contains("HTTP 404: no such page"));
    assert!(played.call().await.is_ok());
    played.close().await;
}
