//! Limits of time, size and number.

use std::io::Write;
use std::time::{Duration, Instant};

use super::client::*;
use crate::serve::HttpServer;

#[test]
fn closes_connection_only_after_idle_timeout() {
    let (head_timeout, idle_timeout) = (Duration::from_secs(2), Duration::from_secs(2));
    let server = start_server(HttpServer { head_timeout, idle_timeout, ..long_timeouts() }).with_session();
    let mut client = server.connect();
    // Longer altogether than a head may take, and than a connection may be idle.
    for _ in 0..30 {
        client.send(&post("/mcp", SESSION, &rpc("echo")));
        assert_eq!(client.read_response().status, 200);
        std::thread::sleep(Duration::from_millis(100));
    }
    client.wait_for_close();
}

// req: GW-04
#[test]
fn keeps_connection_after_long_request_with_separate_body() {
    let head_timeout = Duration::from_secs(2);
    let server = start_server(HttpServer { head_timeout, ..long_timeouts() }).with_session();
    let mut client = server.connect();
    let slow =
        post("/mcp", SESSION, &rpc("slow")).replace(ACCEPT, &format!("{ACCEPT}Expect: 100-continue\r\n"));
    let (head, body) = slow.split_once("\r\n\r\n").unwrap();
    client.send(&format!("{head}\r\n\r\n"));
    // The request has started when the server asks for its body.
    assert_eq!(client.read_head().status, 100);
    client.send(body);
    assert_eq!(client.read_head().status, 200);
    std::thread::sleep(head_timeout + SHORT_TIMEOUT);
    server.host.release_slow_requests();
    let chunks = std::iter::from_fn(|| client.read_chunk()).take_while(|chunk| !chunk.is_empty());
    assert!(chunks.collect::<String>().contains("result"));
    client.send(&post("/mcp", SESSION, &rpc("echo")));
    assert_eq!(client.read_response().status, 200);
}

// req: GW-07
#[test]
fn idle_time_starts_when_the_stream_ends() {
    let server = start_server(HttpServer { idle_timeout: SHORT_TIMEOUT, ..long_timeouts() }).with_session();
    let mut answered = server.connect();
    answered.send(&post("/mcp", SESSION, &rpc("slow")));
    assert_eq!(answered.read_head().status, 200);
    server.host.release_slow_requests();
    assert!(std::iter::from_fn(|| answered.read_chunk()).any(|chunk| chunk.contains("result")));
    answered.wait_for_close();
    let mut listening = server.connect();
    listening.send(&http_request("GET", "/mcp", &format!("Accept: text/event-stream\r\n{SESSION}")));
    assert_eq!(listening.read_head().status, 200);
    server.host.session_stream().close();
    listening.wait_for_close();
}

// req: GW-07
// req: GW-03
#[test]
fn refuses_too_large_body_before_reading_it() {
    let server = start_server(HttpServer { body_limit: 1000, ..long_timeouts() }).with_session();
    let long = post("/mcp", SESSION, &"x".repeat(1001));
    let (head, body) = long.split_once("\r\n\r\n").unwrap();
    let mut client = server.connect();
    client.send(&format!("{head}\r\n\r\n"));
    assert_eq!(client.read_head().status, 413);
    // A client that writes everything first receives the reason, too.
    let response = server.request(&format!("{head}\r\n\r\n{body}"));
    assert_eq!(response.status, 413);
    assert!(response.body.contains("1000 bytes"), "{response:?}");
    // Without a length the limit ends the reading: the server does not wait for a gigabyte.
    let chunked = long.replace("Content-Length: 1001", "Transfer-Encoding: chunked");
    let (head, _) = chunked.split_once("\r\n\r\n").unwrap();
    client = server.connect();
    client.send(&format!("{head}\r\n\r\n40000000\r\n{}", "x".repeat(1001)));
    assert_eq!(client.read_head().status, 413);
    let _ = client.stream.write_all(&vec![b'x'; 3000]);
    client.wait_for_close();
    // A client that sends `Expect` gets no `100 Continue`.
    let asking = long.replace(ACCEPT, &format!("{ACCEPT}Expect: 100-continue\r\n"));
    client = server.connect();
    client.send(asking.split_once("\r\n\r\n").map(|(head, _)| format!("{head}\r\n\r\n")).unwrap().as_str());
    assert_eq!(client.read_response().status, 413);
}

// req: GW-07
#[test]
fn large_bodies_share_a_budget_and_small_ones_do_not() {
    let server = start_server(HttpServer { body_budget: 300_000, body_timeout: DEADLINE, ..long_timeouts() })
        .with_session();
    let long = post("/mcp", SESSION, &format!("{NOTIFICATION}{}", " ".repeat(250_000)));
    let attempt = |_| {
        let mut first = server.connect();
        first.send(&long[..200_000]);
        let response = server.request(&long);
        if response.status == 503 {
            return Some((first, response));
        }
        // Not enough of the first had been read by then.
        let _ = first.stream.write_all(&long.as_bytes()[200_000..]);
        first.read_response();
        None
    };
    let (mut first, response) = (0..1000).find_map(attempt).expect("there is room without end");
    assert_eq!(response.header("retry-after"), Some("1"));
    assert_eq!(server.request(&post("/mcp", SESSION, NOTIFICATION)).status, 202);
    first.send(&long[200_000..]);
    assert_eq!(first.read_response().status, 202);
    assert_eq!(server.request(&long).status, 202);
}

// req: GW-07
#[test]
fn disconnects_slow_head() {
    let server = start_server(HttpServer { head_timeout: SHORT_TIMEOUT, ..long_timeouts() });
    let mut silent = server.connect();
    let mut client = server.connect();
    let head = post("/mcp", SESSION, NOTIFICATION);
    assert!(client.is_disconnected_while_sending(head.as_bytes()), "the connection stayed open");
    client.wait_for_close();
    silent.wait_for_close();
}

// req: GW-07
#[test]
fn disconnects_slow_second_head() {
    let server =
        start_server(HttpServer { head_timeout: Duration::from_secs(2), ..long_timeouts() }).with_session();
    let mut client = server.connect();
    client.send(&post("/mcp", SESSION, NOTIFICATION));
    assert_eq!(client.read_response().status, 202);
    assert!(client.is_disconnected_while_sending(&[b'P'; 1000]), "the connection stayed open");
}

// req: GW-07
#[test]
fn rejects_slow_body_with_408() {
    let server = start_server(HttpServer { body_timeout: SHORT_TIMEOUT, ..long_timeouts() }).with_session();
    let mut client = server.connect();
    let message = post("/mcp", SESSION, &format!("{NOTIFICATION}{}", " ".repeat(1000)));
    let (head, body) = message.split_once("\r\n\r\n").unwrap();
    client.send(&format!("{head}\r\n\r\n"));
    let since = Instant::now();
    for byte in body.bytes() {
        if since.elapsed() > Duration::from_secs(1) || client.stream.write_all(&[byte]).is_err() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let response = client.read_response();
    assert_eq!((response.status, response.header("connection")), (408, Some("close")));
    client.wait_for_close();
}

// req: GW-07
#[test]
fn survives_garbage_and_huge_heads() {
    let within = Duration::from_secs(3);
    let server = start_server(HttpServer { head_timeout: within, idle_timeout: within, ..long_timeouts() })
        .with_session();
    let many = "X-A: b\r\n".repeat(200);
    let long = format!("X-A: {}\r\n", "b".repeat(1 << 20));
    let cases = [
        "\0\u{1}\u{2}\r\n\r\n".to_owned(),
        "GET\r\n\r\n".to_owned(),
        "POST /mcp HTTP/9.9\r\n\r\n".to_owned(),
        post("/mcp", SESSION, NOTIFICATION).replace("Content-Length: ", "Content-Length: -"),
        post("/mcp", SESSION, NOTIFICATION)
            .replace("Content-Length: ", "Content-Length: 99999999999999999999"),
        post("/mcp", &format!("{SESSION}Transfer-Encoding: nonsense\r\n"), NOTIFICATION),
        post("/mcp", &format!("{SESSION}{many}"), NOTIFICATION),
        post("/mcp", &format!("{SESSION}{long}"), NOTIFICATION),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
    ];
    for case in cases {
        let mut client = server.connect();
        let _ = client.stream.write_all(case.as_bytes());
        client.wait_for_close();
        let response = String::from_utf8_lossy(&client.rest).into_owned();
        assert!(response.is_empty() || response.starts_with("HTTP/1.1 4"), "{case:.80}\n{response}");
    }
    assert_eq!(server.request(&post("/mcp", SESSION, &rpc("echo"))).status, 200);
}

// req: GW-07
#[test]
fn refuses_connection_while_all_have_requests_in_flight() {
    let server =
        start_server(HttpServer { max_connections: 2, idle_timeout: DEADLINE * 2, ..long_timeouts() })
            .with_session();
    let slow = || {
        let mut client = server.connect();
        client.send(&post("/mcp", SESSION, &rpc("slow")));
        server.expect_report("hanging");
        client
    };
    let mut clients = [slow(), slow()];
    let mut third = server.connect();
    third.wait_for_close();
    assert!(third.rest.is_empty());
    server.host.release_slow_requests();
    assert!(clients.iter_mut().all(|client| client.read_response().body.contains("result")));
    // The requests may not have ended for the server yet.
    (0..10_000).find_map(|_| server.connect().accepted()).expect("an idle connection makes room");
}

// req: GW-07
#[test]
fn idle_connections_and_event_streams_make_room() {
    let server =
        start_server(HttpServer { max_connections: 2, idle_timeout: DEADLINE * 2, ..long_timeouts() })
            .with_session();
    let mut listening = server.connect();
    listening.send(&http_request("GET", "/mcp", &format!("Accept: text/event-stream\r\n{SESSION}")));
    assert_eq!(listening.read_head().status, 200);
    let mut idle = server.connect().accepted().expect("there is room");
    server.expect_report(NOTIFICATION);
    let mut busy = server.connect();
    busy.send(&post("/mcp", SESSION, &rpc("slow")));
    server.expect_report("hanging");
    idle.wait_for_close();
    let newcomer = server.connect().accepted();
    assert!(newcomer.is_some(), "the event stream makes room");
    listening.wait_for_close();
    server.host.release_slow_requests();
    assert!(busy.read_response().body.contains("result"), "a request in flight stays");
}

// req: GW-07
#[test]
fn oldest_silent_connection_makes_room() {
    let server =
        start_server(HttpServer { max_connections: 8, idle_timeout: DEADLINE * 2, ..long_timeouts() })
            .with_session();
    let mut client = server.connect().accepted().expect("there is room");
    let mut silent: Vec<_> = (0..7).map(|_| server.connect()).collect();
    // Requests without a session or with a wrong head do not count as accepted ones of a client.
    silent[0].send("POST /mcp HTTP/1.1\r\nhost: evil.example\r\n");
    for _ in 0..20 {
        let mut other = server.connect();
        other.send(&post("/mcp", SESSION, NOTIFICATION));
        assert_eq!(other.read_response().status, 202);
    }
    silent[0].wait_for_close();
    client.send(&post("/mcp", SESSION, NOTIFICATION));
    assert_eq!(client.read_response().status, 202);
}
