//! Streamable HTTP against a scripted server on a real socket.

use std::net::TcpListener;
use std::time::Duration;

use bascule_model::Delivery;
use bascule_testkit::{Behaviour, HttpFault, Script, ScriptedHttp, SseFeature};

use crate::testing::{TestClient, echoing, endpoint, timer_wait, to_text, wait_until, with_timeout};
use crate::{HttpEndpoint, ProtocolVersion, Transport, TransportError};

async fn connect(script: Script) -> (ScriptedHttp, TestClient) {
    let server = ScriptedHttp::start(script);
    let client = TestClient::connect(Transport::Http(endpoint(&server))).await;
    (server, client)
}

async fn wait_for_count(server: &ScriptedHttp, method: &str, times: usize) {
    wait_until(|| server.count(method) >= times).await;
}

fn last_ids(server: &ScriptedHttp) -> Vec<Option<String>> {
    let gets = server.requests().into_iter().filter(|request| request.method == "GET");
    gets.map(|request| request.header("last-event-id").map(str::to_owned)).collect()
}

// req: BR-01, GW-03
#[tokio::test]
async fn reports_server_messages_unchanged() {
    let note = r#"{"jsonrpc":"2.0","method":"notifications/odd","params":{"n":1.0,"n":1e400}}"#;
    let script = echoing().session("s").on("GET", [Behaviour::silence().after_line(note)]);
    let (server, mut client) = connect(script.clone()).await;
    assert_eq!(client.next_unsolicited().await, r#"notifications/odd {"n":1.0,"n":1e400}"#);
    let get = server.requests().into_iter().find(|request| request.method == "GET").unwrap();
    let header = |name| get.header(name).unwrap_or_default().to_owned();
    assert_eq!(
        ["accept", "mcp-session-id", "mcp-protocol-version", "authorization"].map(header),
        ["text/event-stream", "s", "2025-11-25", "secret"]
    );
    assert!(to_text(client.call().await).contains(r#""a":1.0"#), "calls go on beside it");
    client.close().await;
    assert_eq!(server.requests().last().unwrap().method, "DELETE");
    let (_server, mut client) = connect(script).await;
    client.next_unsolicited().await;
    let waited = timer_wait(client.close()).await;
    assert_eq!(waited, Duration::ZERO, "an open stream delays the end of its connection");
}

// req: BR-01
#[tokio::test]
async fn opens_no_second_stream_at_a_server_without_one() {
    let (server, client) = connect(echoing()).await;
    wait_for_count(&server, "GET", 1).await;
    client.call().await.unwrap();
    // Whoever waits to ask again does so now.
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(3600)).await;
    tokio::time::resume();
    client.call().await.unwrap();
    assert_eq!(server.count("GET"), 1);
    client.close().await;
}

// req: BR-01
#[tokio::test]
async fn reopens_the_server_stream_after_its_last_event() {
    let note = |n: u32| format!(r#"{{"jsonrpc":"2.0","method":"notifications/n","params":{{"n":{n}}}}}"#);
    let script = echoing().sse([SseFeature::Ids, SseFeature::RetrySoon]).on(
        "GET",
        [
            Behaviour::end().after_line(note(1)).after_line(note(2)),
            Behaviour::exit(1).after_line(note(3)),
            Behaviour::silence().after_line(note(4)),
        ],
    );
    let (server, mut client) = connect(script).await;
    let mut received = Vec::new();
    for _ in 0..4 {
        received.push(client.next_unsolicited().await);
    }
    assert_eq!(received, [1, 2, 3, 4].map(|n| format!(r#"notifications/n {{"n":{n}}}"#)));
    assert_eq!(last_ids(&server)[1..], [Some("2".to_owned()), Some("3".to_owned())]);
    assert!(client.close().await.is_empty());
}

// req: BR-01, BR-12
#[tokio::test]
async fn retries_the_server_stream_after_a_temporary_error() {
    let server = ScriptedHttp::start(echoing().on("GET", [Behaviour::silence().after_list_changed()]));
    server.fail_next("GET", HttpFault::status(503, "busy"));
    let mut client = TestClient::connect(Transport::Http(endpoint(&server))).await;
    assert!(client.next_unsolicited().await.contains("list_changed"));
    assert_eq!(server.count("GET"), 2);
    client.close().await;
}

// req: BR-01, BR-05
#[tokio::test]
async fn resumes_a_broken_response_stream() {
    for (left, habits) in [
        (Behaviour::text("done").after_log("one").after_cut(), vec![SseFeature::Ids, SseFeature::RetrySoon]),
        (Behaviour::text("done").after_log("one").after_end(), vec![SseFeature::Ids, SseFeature::RetrySoon]),
        (Behaviour::text("done").after_cut().after_log("one"), vec![SseFeature::Primed, SseFeature::Ids]),
    ] {
        let (server, client) = connect(echoing().sse(habits).calls("x", [left])).await;
        wait_for_count(&server, "GET", 1).await;
        assert!(to_text(client.call().await).contains("done"));
        assert_eq!(last_ids(&server), [None, Some("1".to_owned())]);
        let unsolicited = client.close().await;
        assert_eq!(unsolicited.len(), 1, "sent once, received once: {unsolicited:?}");
    }
}

// req: BR-01
#[tokio::test]
async fn resumes_as_long_as_events_arrive() {
    let broken = (0..8).fold(Behaviour::text("done"), |busy, _| busy.after_progress(1).after_cut());
    let script = echoing().sse([SseFeature::Ids, SseFeature::RetrySoon]).calls("x", [broken]);
    let (server, client) = connect(script).await;
    wait_for_count(&server, "GET", 1).await;
    assert!(to_text(client.call().await).contains("done"));
    let expected: Vec<_> = std::iter::once(None).chain((1..=8).map(|n| Some(n.to_string()))).collect();
    assert_eq!(last_ids(&server), expected);
    assert_eq!(client.close().await.len(), 8);
}

// req: BR-05
#[tokio::test]
async fn does_not_resume_a_stream_without_ids() {
    let (server, client) = connect(echoing().sse([]).calls("x", [Behaviour::text("x").after_cut()])).await;
    wait_for_count(&server, "GET", 1).await;
    let text = to_text(client.call().await);
    assert!(text.starts_with("Unknown: ") && text.contains("was interrupted"), "{text}");
    assert_eq!(server.count("GET"), 1);
    client.close().await;
}

// req: BR-05
#[tokio::test]
async fn ignores_an_incomplete_event() {
    let (server, client) = connect(echoing()).await;
    wait_for_count(&server, "GET", 1).await;
    let half = "id: 7\ndata:\n\nid: 8\ndata: {\"jsonrpc\":\"2.0\",\"id\":2,\"resu".to_owned();
    server.fail_next("tools/call", HttpFault::Partial { text: half });
    let text = to_text(client.call().await);
    // This server takes nothing up again, and says so.
    assert!(text.starts_with("Unknown: ") && text.contains("HTTP 405"), "{text}");
    assert_eq!(last_ids(&server)[1], Some("7".to_owned()));
    client.close().await;
}

// req: BR-05, BR-12
#[tokio::test]
async fn gives_up_a_stream_without_new_events() {
    let (server, client) = connect(echoing()).await;
    wait_for_count(&server, "GET", 1).await;
    server.fail_next("tools/call", HttpFault::Partial { text: "retry: 0\nid: 7\ndata:\n\n".to_owned() });
    server.fail_always("GET", HttpFault::EmptyStream);
    let text = to_text(client.call().await);
    assert!(text.starts_with("Unknown: ") && text.contains("ended before the response"), "{text}");
    assert_eq!(server.count("GET"), 1 + 5);
    client.close().await;
}

// req: BR-12
#[tokio::test]
async fn closes_beside_an_endless_event() {
    let server = ScriptedHttp::start(echoing());
    server.fail_always("GET", HttpFault::Endless { text: "data: ".to_owned() });
    let client = TestClient::connect(Transport::Http(endpoint(&server))).await;
    wait_for_count(&server, "GET", 1).await;
    assert!(to_text(client.call().await).contains(r#""a":1.0"#));
    client.close().await;
}

// req: BR-05
#[tokio::test]
async fn ends_the_connection_when_the_session_is_lost() {
    let (server, client) = connect(echoing().session("first").calls("x", [Behaviour::silence()])).await;
    let other = client.start_call();
    wait_until(|| server.methods().contains(&"tools/call".to_owned())).await;
    server.set_script(echoing().session("second"));
    let text = to_text(client.call().await);
    assert!(text.starts_with("NotSent: ") && text.contains("has expired"), "{text}");
    let text = to_text(with_timeout(other).await.unwrap());
    assert!(text.starts_with("Unknown: ") && text.contains("has expired"), "{text}");
    assert!(matches!(
        client.connection.close_reason().as_deref(),
        Some(TransportError::SessionExpired { .. })
    ));
    assert!(to_text(client.call().await).starts_with("NotSent: "));
    client.close().await;
    assert_eq!(server.count("DELETE"), 0, "there is nothing left to end");
}

// req: BR-05
#[tokio::test]
async fn notices_a_lost_session_without_calls() {
    let script = echoing().session("first").sse([SseFeature::RetrySoon]);
    let (server, mut client) = connect(script.on("GET", [Behaviour::exit(1).after_list_changed()])).await;
    assert!(client.next_unsolicited().await.contains("list_changed"));
    server.set_script(echoing().session("second"));
    wait_until(|| client.connection.close_reason().is_some()).await;
    assert!(matches!(
        client.connection.close_reason().as_deref(),
        Some(TransportError::SessionExpired { .. })
    ));
    client.close().await;
}

// req: BR-05
#[tokio::test]
async fn fails_only_the_request_on_404_without_session() {
    let (server, client) = connect(echoing()).await;
    server.fail_next("tools/call", HttpFault::status(404, "no such page"));
    assert!(to_text(client.call().await).contains("HTTP 404: no such page"));
    assert!(client.connection.close_reason().is_none() && client.call().await.is_ok());
    client.close().await;
}

// req: BR-05
#[tokio::test]
async fn sends_a_request_once_if_its_connection_closes_before_the_response() {
    let behaviours = (0..5).flat_map(|_| [Behaviour::echo(), Behaviour::exit(1)]);
    let (server, client) = connect(echoing().calls("x", behaviours)).await;
    wait_for_count(&server, "GET", 1).await;
    // Each first call leaves an open connection, which the second one may reuse.
    for _ in 0..5 {
        assert!(client.call().await.is_ok());
        let text = to_text(client.call().await);
        assert!(text.starts_with("Unknown: ") && text.contains("was interrupted"), "{text}");
    }
    let calls = server.methods().into_iter().filter(|method| method == "tools/call").count();
    assert_eq!(calls, 10);
    client.close().await;
}

// req: BR-12
#[tokio::test]
async fn reuses_open_connections_beside_a_busy_one() {
    let (server, client) = connect(echoing()).await;
    wait_for_count(&server, "GET", 1).await;
    for _ in 0..20 {
        assert!(client.call().await.is_ok());
    }
    let accepted = server.accepted();
    assert!(accepted < 10, "{accepted} connections for 20 calls");
    client.close().await;
}

// req: BR-01
#[tokio::test]
async fn configured_session_and_version_do_not_replace_those_of_the_server() {
    let server = ScriptedHttp::start(echoing().session("own"));
    let headers = [("mcp-session-id", "configured"), ("mcp-protocol-version", "1999-01-01")];
    let endpoint = HttpEndpoint::new(&server.url(), headers).unwrap();
    let client = TestClient::connect(Transport::HttpOrSse(endpoint)).await;
    client.call().await.unwrap();
    let requests = server.requests();
    let call = requests.iter().find(|request| request.body.contains("tools/call")).unwrap();
    assert_eq!(call.header("mcp-session-id"), Some("own"));
    assert_ne!(call.header("mcp-protocol-version"), Some("1999-01-01"));
    client.close().await;
}

// req: BR-12
#[tokio::test]
async fn bounds_messages_that_the_server_does_not_accept() {
    let (server, client) = connect(echoing()).await;
    server.fail_always("POST", HttpFault::Silence);
    let send_reply = || client.connection.send_frame(br#"{"jsonrpc":"2.0","id":"q","result":{}}"#.to_vec());
    let replies = || server.received().iter().filter(|body| body.contains("\"q\"")).count();
    (0..1000).for_each(|_| send_reply());
    wait_until(|| replies() >= 32).await;
    // Cancellations do not wait for the replies.
    let call = client.start_call();
    wait_until(|| server.methods().contains(&"tools/call".to_owned())).await;
    call.abort();
    wait_until(|| server.methods().contains(&"notifications/cancelled".to_owned())).await;
    assert_eq!(replies(), 32);
    // Replies that were not accepted in time make room for others.
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(10)).await;
    tokio::time::resume();
    wait_until(|| {
        send_reply();
        replies() > 32
    })
    .await;
    drop(server);
    client.close().await;
}

// req: BR-12
#[test]
fn pending_request_can_be_dropped_outside_of_a_runtime() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (server, client) = runtime.block_on(connect(echoing().calls("x", [Behaviour::silence()])));
    let mut pending = client.connection.request("tools/call", |_| Some(r#"{"name":"x"}"#.to_owned()));
    runtime.block_on(async {
        let is_sent = wait_until(|| server.methods().contains(&"tools/call".to_owned()));
        tokio::select! {
            result = pending.response() => panic!("{}", to_text(result)),
            () = is_sent => {}
        }
    });
    drop(pending);
    runtime.block_on(client.close());
}

fn closed_connections(server: &ScriptedHttp) -> u64 {
    server.accepted() - server.open_connections() as u64
}

// req: BR-12
#[tokio::test]
async fn ends_a_stream_that_goes_on_after_the_response() {
    let (server, client) = connect(echoing()).await;
    wait_for_count(&server, "GET", 1).await;
    let before = closed_connections(&server);
    let text = "data: {\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}\n\n".to_owned();
    server.fail_next("tools/call", HttpFault::Endless { text });
    assert_eq!(to_text(client.call().await), "{}");
    wait_until(|| closed_connections(&server) > before).await;
    client.close().await;
}

// req: BR-12
#[tokio::test]
async fn ends_an_exchange_whose_response_came_on_another_stream() {
    let response = r#"{"jsonrpc":"2.0","id":2,"result":{}}"#;
    let script = echoing().calls("x", [Behaviour::silence()]);
    let server = ScriptedHttp::start(script.on("GET", [Behaviour::silence().after_line(response)]));
    let client = TestClient::open(Transport::Http(endpoint(&server)));
    client.initialize().await.unwrap();
    client.connection.set_version(ProtocolVersion::LATEST);
    let call = client.start_call();
    wait_until(|| server.methods().contains(&"tools/call".to_owned())).await;
    let before = closed_connections(&server);
    client.connection.open_server_stream();
    assert_eq!(to_text(with_timeout(call).await.unwrap()), "{}");
    wait_until(|| closed_connections(&server) > before).await;
    client.close().await;
}

/// A port that accepts connections and never completes a TLS handshake.
fn mute_tls_server() -> (TcpListener, Transport) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}/mcp", listener.local_addr().unwrap());
    (listener, Transport::Http(HttpEndpoint::new(&url, []).unwrap()))
}

// req: BR-05
#[tokio::test]
async fn request_that_waits_for_its_connection_is_not_sent() {
    let (listener, transport) = mute_tls_server();
    let client = TestClient::open(transport);
    let mut pending = client.connection.request("tools/call", |_| None);
    let accepted = tokio::task::spawn_blocking(move || listener.accept());
    tokio::select! {
        result = pending.response() => panic!("{}", to_text(result)),
        accepted = accepted => drop(accepted.unwrap().unwrap()),
    }
    assert_eq!(pending.cancel("enough"), Delivery::NotSent);
    client.close().await;
}

// req: BR-12
#[tokio::test]
async fn tls_handshake_has_a_deadline() {
    let (listener, transport) = mute_tls_server();
    let client = TestClient::open(transport);
    let accepted = tokio::task::spawn_blocking(move || listener.accept());
    let call = client.start_call();
    let _connection = accepted.await.unwrap().unwrap();
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(10)).await;
    tokio::time::resume();
    let text = to_text(with_timeout(call).await.unwrap());
    assert!(text.starts_with("NotSent: ") && text.contains("no connection within"), "{text}");
    client.close().await;
}
