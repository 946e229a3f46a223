//! Messages of POST requests: headers, content, and the JSON response.

use std::net::{SocketAddr, TcpStream};

use proptest::prelude::*;

use super::client::*;
use crate::serve::HttpServer;

// req: GW-01
#[test]
fn answers_single_response_as_json() {
    let server = start_server(long_timeouts()).with_session();
    let response = server.request(&post("/mcp", SESSION, &rpc("echo")));
    assert_eq!(response.header("content-type"), Some("application/json"));
    assert_eq!(response.body, r#"{"jsonrpc":"2.0","id":"q","result":{"a":1.50,"z":[]}}"#);
}

#[test]
fn requires_json_and_both_response_types() {
    let good = post("/mcp", SESSION, &rpc("echo"));
    check(&good.replace("Content-Type: application/json", "Content-Type: text/plain"), 415, "Content-Type");
    check(&good.replace("Content-Type: application/json\r\n", ""), 415, "Content-Type");
    check(&good.replace("application/json\r\n", "Application/JSON; charset=utf-8\r\n"), 200, "result");
    for accept in
        ["", "Accept: application/json\r\n", "Accept: text/event-stream\r\n", "Accept: text/*, image/png\r\n"]
    {
        check(&good.replace(ACCEPT, accept), 406, "Accept");
    }
    for accept in ["*/*", "text/*, Application/*;q=0.5", "text/event-stream\r\nAccept: application/json"] {
        check(&good.replace(ACCEPT, &format!("Accept: {accept}\r\n")), 200, "result");
    }
}

#[test]
fn refuses_bodies_that_are_not_one_message() {
    check(&post("/mcp", SESSION, "{oops"), 400, "-32700");
    check(&post("/mcp", SESSION, ""), 400, "-32700");
    check(&post("/mcp", SESSION, "\u{0}\u{1}"), 400, "-32700");
    check(&post("/mcp", SESSION, &format!("[{}]", rpc("echo"))), 400, "-32600");
    check(&post("/mcp", SESSION, r#"{"jsonrpc":"1.0","id":1,"method":"x"}"#), 400, "-32600");
    check(&post("/mcp", SESSION, "7"), 400, "-32600");
}

#[test]
fn accepts_only_known_protocol_versions() {
    for version in crate::ProtocolVersion::ALL {
        check(&post("/mcp", &format!("{SESSION}MCP-Protocol-Version: {version}\r\n"), &rpc("echo")), 200, "");
    }
    for version in ["1999-01-01", "", "2025-11-25x"] {
        let headers = format!("{SESSION}MCP-Protocol-Version: {version}\r\n");
        check(&post("/mcp", &headers, &rpc("echo")), 400, "MCP-Protocol-Version");
    }
}

#[test]
fn accepts_notifications_and_responses() {
    let server = start_server(long_timeouts()).with_session();
    for body in [NOTIFICATION, r#"{"jsonrpc":"2.0","id":9,"result":{"x":1e2}}"#] {
        let response = server.request(&post("/mcp", SESSION, body));
        assert_eq!((response.status, &*response.body), (202, ""));
        server.expect_report(body);
    }
}

// req: GW-03
#[test]
fn joins_lines_of_a_message() {
    let server = start_server(long_timeouts()).with_session();
    let body = "{\n\"jsonrpc\": \"2.0\",\r\n\"method\": \"m\"\n}";
    assert_eq!(server.request(&post("/mcp", SESSION, body)).status, 202);
    server.expect_report("{ \"jsonrpc\": \"2.0\",  \"method\": \"m\" }");
}

#[test]
fn answers_pipelined_requests_in_order() {
    let server = start_server(long_timeouts()).with_session();
    let mut client = server.connect();
    let three = [rpc("echo"), rpc("count"), NOTIFICATION.to_owned()].map(|body| post("/mcp", SESSION, &body));
    client.send(&three.concat());
    assert_eq!(client.read_response().header("content-type"), Some("application/json"));
    assert_eq!(client.read_response().events().len(), 201);
    assert_eq!(client.read_response().status, 202);
}

// req: GW-03
#[test]
fn passes_large_messages_both_ways() {
    let server = start_server(HttpServer::default()).with_session();
    let body = rpc("echo").replace("1.50", &format!("\"{}\"", "y".repeat(8 << 20)));
    let response = server.request(&post("/mcp", SESSION, &body));
    let expected = body.replace(r#""method":"echo","params""#, r#""result""#);
    assert!(response.body == expected, "not as it was sent");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    // req: GW-03
    #[test]
    fn passes_frames_byte_for_byte(texts in prop::collection::vec(".*", 1..8), number in "-?[1-9][0-9]{0,30}(\\.[0-9]{1,9})?(e[0-9]{1,3})?") {
        static SERVED: std::sync::OnceLock<SocketAddr> = std::sync::OnceLock::new();
        let address = *SERVED.get_or_init(|| {
            let server = start_server(HttpServer::default()).with_session();
            let address = server.address;
            std::mem::forget(server);
            address
        });
        let params = format!("[{number},{}]", serde_json::to_string(&texts).unwrap());
        let mut client = TestClient { stream: TcpStream::connect(address).unwrap(), rest: Vec::new() };
        for method in ["echo", "count"] {
            let body = format!(r#"{{"jsonrpc":"2.0","id":{number},"method":"{method}","params":{params}}}"#);
            client.send(&post("/mcp", SESSION, &body));
            let response = client.read_response();
            let expected = format!(r#"{{"jsonrpc":"2.0","id":{number},"result":{params}}}"#);
            let last = response.events().last().map_or(response.body.clone(), |event| (*event).to_owned());
            prop_assert_eq!(last, expected);
        }
    }
}

// req: BR-12, GW-07
#[test]
fn handles_large_messages_on_their_own_thread() {
    let server = start_server(long_timeouts()).with_session();
    for (bytes, is_large) in [(1_000, false), (300_000, true)] {
        for line_break in ["", "\n"] {
            let message = rpc("thread").replace("[]", &format!("{line_break}\"{}\"", "x".repeat(bytes)));
            let response = server.request(&post("/mcp", SESSION, &message));
            assert_eq!(response.status, 200);
            assert_eq!(response.body.contains(r#""large-messages""#), is_large, "{}", response.body);
        }
    }
    let large = INITIALIZE.replace("{}", &format!(r#"{{"a":"{}"}}"#, "x".repeat(300_000)));
    assert_eq!(server.request(&post("/mcp", "", &large)).status, 413);
}
