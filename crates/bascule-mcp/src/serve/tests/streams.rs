//! Event streams, and clients that disconnect or read too slowly.

use std::net::Shutdown;

use super::client::*;
use crate::serve::{HttpServer, ResponseStream};

// req: GW-03
#[test]
fn sends_notifications_in_order_before_the_response() {
    let server = start_server(long_timeouts()).with_session();
    let response = server.request(&post("/mcp", SESSION, &rpc("count")));
    assert_eq!(response.header("content-type"), Some("text/event-stream"));
    let events = response.events();
    assert_eq!(events.len(), 201);
    for (n, event) in events[..200].iter().enumerate() {
        assert_eq!(*event, format!(r#"{{"jsonrpc":"2.0","method":"n","params":{n}}}"#));
    }
    assert_eq!(events[200], r#"{"jsonrpc":"2.0","id":"q","result":{"a":1.50,"z":[]}}"#);
    assert!(response.is_complete);
}

// req: GW-03
#[test]
fn answers_dropped_request_with_error() {
    check(&post("/mcp", SESSION, &rpc("drop")), 200, r#""id":"q","error":{"code":-32000"#);
    check(&post("/mcp", SESSION, &rpc("drop-after-one")), 200, r#""id":"q","error":{"code":-32000"#);
}

#[test]
fn sends_keep_alive_before_a_slow_response() {
    let server = start_server(long_timeouts()).with_session();
    let mut client = server.connect();
    client.send(&post("/mcp", SESSION, &rpc("slow")));
    assert_eq!(client.read_head().header("content-type"), Some("text/event-stream"));
    assert_eq!(client.read_chunk().as_deref(), Some(": keep-alive\n\n"));
    server.host.release_slow_requests();
    let answer = std::iter::from_fn(|| client.read_chunk()).find(|chunk| !chunk.starts_with(':')).unwrap();
    assert!(
        answer.ends_with("data: {\"jsonrpc\":\"2.0\",\"id\":\"q\",\"result\":{\"a\":1.50,\"z\":[]}}\n\n"),
        "{answer}"
    );
    assert_eq!(client.read_chunk().as_deref(), Some(""), "the stream is complete");
}

#[test]
fn closes_request_stream_when_client_disconnects() {
    let server = start_server(long_timeouts()).with_session();
    for close in [Shutdown::Both, Shutdown::Write] {
        let mut client = server.connect();
        client.send(&post("/mcp", SESSION, &rpc("hang")));
        server.expect_report("hanging");
        client.stream.shutdown(close).unwrap();
        server.expect_report("request closed");
    }
}

#[test]
fn closes_request_stream_when_client_disconnects_mid_stream() {
    let server = start_server(long_timeouts()).with_session();
    let mut client = server.connect();
    client.send(&post("/mcp", SESSION, &rpc("hang-after-one")));
    assert_eq!(client.read_head().status, 200);
    assert!(client.read_chunk().unwrap().contains("\"method\":\"n\""));
    drop(client);
    server.expect_report("request closed");
}

// req: GW-07
#[test]
fn disconnects_client_that_does_not_read() {
    let server = start_server(HttpServer { stream_limit: 1 << 20, ..long_timeouts() }).with_session();
    let mut client = server.connect();
    client.send(&post("/mcp", SESSION, &rpc("flood")));
    server.expect_report("flooded");
    let response = client.read_response();
    assert!(
        !response.is_complete || response.body.contains("error"),
        "it must not look complete: {response:?}"
    );

    // The messages fit the stream, but the client does not read them from the socket.
    let server = start_server(HttpServer { write_timeout: SHORT_TIMEOUT, ..long_timeouts() }).with_session();
    let mut client = server.connect();
    client.send(&post("/mcp", SESSION, &rpc("hang-after-much")));
    server.expect_report("request closed");
    assert!(!client.read_response().is_complete);
}

#[test]
fn sends_session_messages_on_the_get_stream() {
    let server = start_server(long_timeouts()).with_session();
    let mut client = server.connect();
    client.send(&http_request("GET", "/mcp", &format!("{SESSION}Accept: text/event-stream\r\n")));
    let head = client.read_head();
    assert_eq!((head.status, head.header("content-type")), (200, Some("text/event-stream")));
    let stream = server.host.session_stream();
    assert!(stream.push(b"{\"a\":\n1}".to_vec()));
    let first = std::iter::from_fn(|| client.read_chunk()).find(|chunk| !chunk.starts_with(':'));
    assert_eq!(first.as_deref(), Some("event: message\ndata: {\"a\": 1}\n\n"));
    assert_eq!(client.read_chunk().as_deref(), Some(": keep-alive\n\n"));
    assert_eq!(client.read_chunk().as_deref(), Some(": keep-alive\n\n"));
    drop(client);
    server.expect_report("listener closed");
    assert!(!stream.push(b"{}".to_vec()));
    assert_eq!(
        server
            .request(&http_request("GET", "/mcp", &format!("{SESSION}Accept: application/json\r\n")))
            .status,
        406
    );
}

#[test]
fn newer_get_stream_replaces_the_older_one() {
    let server = start_server(long_timeouts()).with_session();
    let get = http_request("GET", "/mcp", &format!("{SESSION}{ACCEPT}"));
    let (mut older, mut newer) = (server.connect(), server.connect());
    older.send(&get);
    assert_eq!(older.read_head().status, 200);
    newer.send(&get);
    assert_eq!(newer.read_head().status, 200);
    server.expect_report("listener closed");
    while older.read_chunk().is_some_and(|chunk| !chunk.is_empty()) {}
    older.send(&post("/mcp", SESSION, &rpc("echo")));
    assert_eq!(older.read_response().status, 200, "the connection goes on");
    let streams = server.host.session_streams.lock().unwrap();
    assert_eq!(streams.iter().map(ResponseStream::is_closed).collect::<Vec<_>>(), [true, false]);
}
