//! Streamable HTTP against a scripted server on a real socket.

use std::time::{Duration, Instant};

use bascule_testkit::{Behaviour, HttpFault, Script, ScriptedHttp, SseFeature};

use crate::testing::{Played, echoing, endpoint, patiently, timer_wait, told, until};
use crate::{Transport, TransportError};

async fn connect(script: Script) -> (ScriptedHttp, Played) {
    let server = ScriptedHttp::start(script);
    let played = Played::connect(Transport::Http(endpoint(&server))).await;
    (server, played)
}

async fn counted(server: &ScriptedHttp, method: &str, times: usize) {
    until(|| server.count(method) >= times).await;
}

fn last_ids(server: &ScriptedHttp) -> Vec<Option<String>> {
    let gets = server.requests().into_iter().filter(|request| request.method == "GET");
    gets.map(|request| request.header("last-event-id").map(str::to_owned)).collect()
}

// req: BR-01, GW-03
#[tokio::test]
async fn what_a_server_says_unasked_is_heard_as_it_is_spelled() {
    let note = r#"{"jsonrpc":"2.0","method":"notifications/odd","params":{"n":1.0,"n":1e400}}"#;
    let script = echoing().session("s").on("GET", [Behaviour::silence().after_line(note)]);
    let (server, mut played) = connect(script.clone()).await;
    assert_eq!(played.next_heard().await, r#"notifications/odd {"n":1.0,"n":1e400}"#);
    let get = server.requests().into_iter().find(|request| request.method == "GET").unwrap();
    let header = |name| get.header(name).unwrap_or_default().to_owned();
    assert_eq!(
        ["accept", "mcp-session-id", "mcp-protocol-version", "authorization"].map(header),
        ["text/event-stream", "s", "2025-11-25", "secret"]
    );
    assert!(told(played.call().await).contains(r#""a":1.0"#), "calls go on beside it");
    played.close().await;
    assert_eq!(server.requests().last().unwrap().method, "DELETE");
    let (_server, mut played) = connect(script).await;
    played.next_heard().await;
    let waited = timer_wait(played.close()).await;
    assert_eq!(waited, Duration::ZERO, "an open stream delays the end of its connection");
}

// req: BR-01
#[tokio::test]
async fn a_server_that_says_nothing_unasked_is_asked_once() {
    let (server, played) = connect(echoing()).await;
    counted(&server, "GET", 1).await;
    played.call().await.unwrap();
    // Whoever waits to ask again does so now.
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(3600)).await;
    tokio::time::resume();
    played.call().await.unwrap();
    assert_eq!(server.count("GET"), 1);
    played.close().await;
}

// req: BR-01
#[tokio::test]
async fn a_stream_that_ends_is_opened_again_after_its_last_event_when_the_server_wants_it() {
    let note = |n: u32| format!(r#"{{"jsonrpc":"2.0","method":"notifications/n","params":{{"n":{n}}}}}"#);
    let script = echoing().sse([SseFeature::Ids, SseFeature::RetrySoon]).on(
        "GET",
        [
            Behaviour::end().after_line(note(1)).after_line(note(2)),
            Behaviour::exit(1).after_line(note(3)),
            Behaviour::silence().after_line(note(4)),
        ],
    );
    let (server, mut played) = connect(script).await;
    let mut heard = Vec::new();
    let begin = Instant::now();
    for _ in 0..4 {
        heard.push(played.next_heard().await);
    }
    assert!(begin.elapsed() >= Duration::from_millis(600), "two pauses of what the server asked for");
    assert_eq!(heard, [1, 2, 3, 4].map(|n| format!(r#"notifications/n {{"n":{n}}}"#)));
    assert_eq!(last_ids(&server)[1..], [Some("2".to_owned()), Some("3".to_owned())]);
    assert!(played.close().await.is_empty());
}

// req: BR-01, BR-12
#[tokio::test]
async fn a_stream_that_fails_for_now_is_tried_again() {
    let server = ScriptedHttp::start(echoing().on("GET", [Behaviour::silence().after_list_changed()]));
    server.fail_next("GET", HttpFault::status(503, "busy"));
    let mut played = Played::connect(Transport::Http(endpoint(&server))).await;
    assert!(played.next_heard().await.contains("list_changed"));
    assert_eq!(server.count("GET"), 2);
    played.close().await;
}

// req: BR-01, BR-05
#[tokio::test]
async fn an_answer_whose_stream_breaks_is_taken_up_after_the_last_event() {
    for (left, habits) in [
        (Behaviour::text("done").after_log("one").after_cut(), vec![SseFeature::Ids, SseFeature::RetrySoon]),
        (Behaviour::text("done").after_log("one").after_end(), vec![SseFeature::Ids, SseFeature::RetrySoon]),
        (Behaviour::text("done").after_cut().after_log("one"), vec![SseFeature::Primed, SseFeature::Ids]),
    ] {
        let (server, played) = connect(echoing().sse(habits).calls("x", [left])).await;
        counted(&server, "GET", 1).await;
        assert!(told(played.call().await).contains("done"));
        assert_eq!(last_ids(&server), [None, Some("1".to_owned())]);
        let heard = played.close().await;
        assert_eq!(heard.len(), 1, "said once, heard once: {heard:?}");
    }
}

// req: BR-01
#[tokio::test]
async fn a_stream_may_break_any_number_of_times_as_long_as_something_comes() {
    let broken = (0..8).fold(Behaviour::text("done"), |busy, _| busy.after_progress(1).after_cut());
    let script = echoing().sse([SseFeature::Ids, SseFeature::RetrySoon]).calls("x", [broken]);
    let (server, played) = connect(script).await;
    counted(&server, "GET", 1).await;
    assert!(told(played.call().await).contains("done"));
    let expected: Vec<_> = std::iter::once(None).chain((1..=8).map(|n| Some(n.to_string()))).collect();
    assert_eq!(last_ids(&server), expected);
    assert_eq!(played.close().await.len(), 8);
}

// req: BR-05
#[tokio::test]
async fn without_an_id_there_is_nothing_to_take_up() {
    let (server, played) = connect(echoing().sse([]).calls("x", [Behaviour::text("x").after_cut()])).await;
    counted(&server, "GET", 1).await;
    let said = told(played.call().await);
    assert!(said.starts_with("Unknown: ") && said.contains("broke off"), "{said}");
    assert_eq!(server.count("GET"), 1);
    played.close().await;
}

// req: BR-05
#[tokio::test]
async fn an_event_that_is_cut_in_the_middle_does_not_count() {
    let (server, played) = connect(echoing()).await;
    counted(&server, "GET", 1).await;
    let half = "id: 7\ndata:\n\nid: 8\ndata: {\"jsonrpc\":\"2.0\",\"id\":2,\"resu".to_owned();
    server.fail_next("tools/call", HttpFault::Partial { text: half });
    let said = told(played.call().await);
    // This server takes nothing up again, and says so.
    assert!(said.starts_with("Unknown: ") && said.contains("HTTP 405"), "{said}");
    assert_eq!(last_ids(&server)[1], Some("7".to_owned()));
    played.close().await;
}

// req: BR-05, BR-12
#[tokio::test]
async fn a_stream_that_never_goes_on_is_given_up() {
    let (server, played) = connect(echoing()).await;
    counted(&server, "GET", 1).await;
    server.fail_next("tools/call", HttpFault::Partial { text: "retry: 0\nid: 7\ndata:\n\n".to_owned() });
    server.fail_always("GET", HttpFault::EmptyStream);
    let said = told(played.call().await);
    assert!(said.starts_with("Unknown: ") && said.contains("ended before the answer"), "{said}");
    assert_eq!(server.count("GET"), 1 + 5);
    played.close().await;
}

// req: BR-12
#[tokio::test]
async fn an_endless_event_is_not_kept_and_closing_leaves_it() {
    let server = ScriptedHttp::start(echoing());
    server.fail_always("GET", HttpFault::Endless { text: "data: ".to_owned() });
    let played = Played::connect(Transport::Http(endpoint(&server))).await;
    counted(&server, "GET", 1).await;
    assert!(told(played.call().await).contains(r#""a":1.0"#));
    played.close().await;
}

// req: BR-05
#[tokio::test]
async fn a_session_that_the_server_forgot_ends_the_connection() {
    let (server, played) = connect(echoing().session("first").calls("x", [Behaviour::silence()])).await;
    let mut other = played.start_call();
    until(|| server.methods().contains(&"tools/call".to_owned())).await;
    server.set_script(echoing().session("second"));
    let said = told(played.call().await);
    assert!(said.starts_with("NotSent: ") && said.contains("no longer knows this session"), "{said}");
    let said = told(patiently(other.answer()).await);
    assert!(said.starts_with("Unknown: ") && said.contains("no longer knows this session"), "{said}");
    assert!(matches!(played.connection.ended().as_deref(), Some(TransportError::SessionLost { .. })));
    assert!(told(played.call().await).starts_with("NotSent: "));
    played.close().await;
    assert_eq!(server.count("DELETE"), 0, "there is nothing left to end");
}

// req: BR-05
#[tokio::test]
async fn a_lost_session_is_noticed_while_nobody_calls() {
    let script = echoing().session("first").sse([SseFeature::RetrySoon]);
    let (server, mut played) = connect(script.on("GET", [Behaviour::exit(1).after_list_changed()])).await;
    assert!(played.next_heard().await.contains("list_changed"));
    server.set_script(echoing().session("second"));
    until(|| played.connection.ended().is_some()).await;
    assert!(matches!(played.connection.ended().as_deref(), Some(TransportError::SessionLost { .. })));
    played.close().await;
}

// req: BR-05
#[tokio::test]
async fn a_404_without_a_session_concerns_its_request_alone() {
    let (server, played) = connect(echoing()).await;
    server.fail_next("tools/call", HttpFault::status(404, "no such page"));
    assert!(told(played.call().await).contains("HTTP 404: no such page"));
    assert!(played.connection.ended().is_none() && played.call().await.is_ok());
    played.close().await;
}
