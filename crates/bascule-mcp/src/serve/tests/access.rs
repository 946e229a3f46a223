//! Access checks: `Host`, `Origin`, tokens and peers.

use std::sync::atomic::{AtomicUsize, Ordering};

use bascule_model::Secret;
use tokio::sync::watch;

use super::client::*;
use crate::serve::{AccessPolicy, HttpServer};

// req: GW-07
#[test]
fn refuses_foreign_hosts_and_origins() {
    let good = post("/mcp", SESSION, &rpc("echo"));
    check(&good.replace("localhost:1", "evil.example"), 403, "Host");
    check(&good.replace("Host: localhost:1\r\n", ""), 403, "Host");
    check(&good.replace("Host: localhost:1\r\n", "Host: localhost\r\nHost: evil.example\r\n"), 403, "host");
    check(&good.replace("POST /mcp", "POST http://evil.example/mcp"), 403, "Host");
    check(&good.replace(ACCEPT, &format!("{ACCEPT}Origin: http://evil.example\r\n")), 403, "Origin");
    check(&good.replace(ACCEPT, &format!("{ACCEPT}Origin: null\r\n")), 403, "Origin");
    check(&good.replace(ACCEPT, &format!("{ACCEPT}Origin: http://localhost:5173\r\n")), 200, "result");
    for (first, second) in
        [("http://localhost", "http://evil.example"), ("http://evil.example", "http://localhost")]
    {
        check(
            &good.replace(ACCEPT, &format!("{ACCEPT}Origin: {first}\r\nOrigin: {second}\r\n")),
            403,
            "origin",
        );
    }
    check(&good.replace(ACCEPT, &format!("{ACCEPT}Origin: http://localhöst\r\n")), 403, "origin");
    check(&good.replace("localhost:1", "[::1]:7"), 200, "result");
}

pub(super) fn with_tokens(tokens: &[&str]) -> AccessPolicy {
    let tokens = tokens.iter().map(|token| Secret::new((*token).to_owned())).collect();
    AccessPolicy { tokens, ..AccessPolicy::default() }
}

// req: GW-07
#[test]
fn applies_changed_tokens_to_the_next_request() {
    let (change, access) = watch::channel(with_tokens(&["one", "two"]));
    let server = start_server(HttpServer {
        access,
        keep_alive: DEADLINE * 2,
        idle_timeout: DEADLINE,
        ..long_timeouts()
    });
    let shown = |token: &str| format!("{SESSION}Authorization: Bearer {token}\r\n");
    let begun = server.request(&post("/mcp", "Authorization: Bearer one\r\n", INITIALIZE));
    assert_eq!(begun.status, 200);
    let mut listening = server.connect();
    listening.send(&http_request("GET", "/mcp", &format!("Accept: text/event-stream\r\n{}", shown("one"))));
    assert_eq!(listening.read_head().status, 200);
    let mut waiting = server.connect();
    waiting.send(&post("/mcp", &shown("one"), &rpc("slow")));
    while server.reports.recv_timeout(DEADLINE).unwrap() != "hanging" {}
    let mut idle = server.connect();
    idle.send(&post("/mcp", &shown("one"), &rpc("echo")));
    assert_eq!(idle.read_response().status, 200);
    change.send_replace(with_tokens(&["two", "three"]));
    idle.send(&post("/mcp", &shown("one"), &rpc("echo")));
    assert_eq!(idle.read_response().status, 401);
    server.host.release_slow_requests();
    let answered = waiting.read_response();
    assert!(answered.status == 200 && answered.body.contains("result"), "{answered:?}");
    assert_eq!(listening.read_chunk().as_deref(), Some(""), "its stream goes on");
    for (token, status) in [("one", 401), ("two", 200), ("three", 200)] {
        assert_eq!(server.request(&post("/mcp", &shown(token), &rpc("echo"))).status, status, "{token}");
    }
}

// req: GW-07
#[test]
fn disconnects_peer_that_is_no_longer_allowed() {
    let nobody = AccessPolicy { peers: Some(|_, _| false), ..AccessPolicy::default() };
    let (change, access) =
        watch::channel(AccessPolicy { peers: Some(|_, _| true), ..AccessPolicy::default() });
    let server =
        start_server(HttpServer { access, idle_timeout: DEADLINE * 2, ..long_timeouts() }).with_session();
    let mut idle = server.connect();
    idle.send(&post("/mcp", SESSION, &rpc("echo")));
    assert_eq!(idle.read_response().status, 200);
    change.send_replace(nobody);
    idle.wait_for_close();
    assert_eq!(server.request(&post("/mcp", SESSION, &rpc("echo"))).status, 403);
}

// req: GW-07
#[test]
fn closes_connection_after_refused_headers() {
    let access = watch::channel(with_tokens(&["one"])).1;
    let server = start_server(HttpServer { access, idle_timeout: DEADLINE * 2, ..long_timeouts() });
    for (request, status) in [
        (post("/mcp", "", INITIALIZE), 401),
        (
            post("/mcp", "Authorization: Bearer one\r\n", INITIALIZE).replace("localhost:1", "evil.example"),
            403,
        ),
    ] {
        let mut client = server.connect();
        client.send(&request);
        let response = client.read_response();
        assert_eq!((response.status, response.header("connection")), (status, Some("close")));
        client.wait_for_close();
    }
}

// req: GW-07
#[test]
fn requires_a_valid_token() {
    let server = start_server(HttpServer {
        access: watch::channel(with_tokens(&["one", "two"])).1,
        ..long_timeouts()
    });
    let (invalid, malformed) = ("Bearer error=\"invalid_token\"", "Bearer error=\"invalid_request\"");
    for (wrong, challenge, reason) in [
        ("", "Bearer", "a token is required"),
        ("Authorization: Bearer on\r\n", invalid, "the bearer token is wrong"),
        ("Authorization: Basic one\r\n", malformed, "must be `Bearer TOKEN`"),
        ("Authorization: Bearer\r\n", malformed, "must be `Bearer TOKEN`"),
    ] {
        let response = server.request(&post("/mcp", wrong, INITIALIZE));
        assert_eq!((response.status, response.header("www-authenticate")), (401, Some(challenge)), "{wrong}");
        assert!(response.body.contains(reason), "{wrong}: {}", response.body);
        assert_eq!(server.request(&http_request("GET", "/nowhere", wrong)).status, 401);
    }
    for right in ["one", "two"] {
        let header = format!("Authorization: Bearer {right}\r\n");
        assert_eq!(server.request(&post("/mcp", &header, INITIALIZE)).status, 200);
    }
}

// req: GW-07
#[test]
fn checks_peer_once_and_only_after_a_valid_request() {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let admit = |_, _| ASKED.fetch_add(1, Ordering::Relaxed) < usize::MAX;
    let access = watch::channel(AccessPolicy { peers: Some(admit), ..AccessPolicy::default() }).1;
    let server = start_server(HttpServer { access, ..HttpServer::default() }).with_session();
    for _ in 0..500 {
        drop(server.connect());
        server.connect().send("POST /mcp HTTP/1.1\r\nhost: loc");
    }
    for _ in 0..50 {
        assert_eq!(
            server.request(&http_request("GET", "/mcp", "origin: https://evil.example\r\n")).status,
            403
        );
    }
    assert_eq!(ASKED.load(Ordering::Relaxed), 1, "who began the session");
    let mut client = server.connect();
    for _ in 0..50 {
        client.send(&post("/mcp", SESSION, NOTIFICATION));
        assert_eq!(client.read_response().status, 202);
    }
    assert_eq!(ASKED.load(Ordering::Relaxed), 2);
}

// req: GW-07
#[test]
fn checks_peers_one_at_a_time_and_disconnects_refused_ones() {
    static AT_ONCE: AtomicUsize = AtomicUsize::new(0);
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let admit = |_, _| {
        assert_eq!(AT_ONCE.fetch_add(1, Ordering::SeqCst), 0);
        std::thread::yield_now();
        AT_ONCE.fetch_sub(1, Ordering::SeqCst);
        // The first one may.
        ASKED.fetch_add(1, Ordering::SeqCst) == 0
    };
    let access = watch::channel(AccessPolicy { peers: Some(admit), ..AccessPolicy::default() }).1;
    let server = start_server(HttpServer { access, ..HttpServer::default() }).with_session();
    let mut clients: Vec<_> = (0..200).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send(&post("/mcp", SESSION, NOTIFICATION));
    }
    for client in &mut clients {
        assert_eq!(client.read_response().status, 403);
        client.wait_for_close();
    }
    assert_eq!(ASKED.load(Ordering::SeqCst), 201);
}
