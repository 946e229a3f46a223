//! Random bytes at the HTTP port and the control socket of a running bridge.
//!
//! Each test runs for one second, or for `FUZZ_SECONDS`.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use bascule_testkit::{Script, fuzz};
use serde_json::json;

use super::client::{connect, initialize_request, post_request};
use super::{AGGREGATE_PATH, ScriptedBridge, peak_mb};

/// Checks that the bridge serves clients, has not panicked and has not leaked memory.
fn check_healthy(bridge: &ScriptedBridge) {
    assert_eq!(
        bridge.passthrough_client().call("t", &json!({ "a": 1 }))["result"]["structuredContent"],
        json!({ "a": 1 })
    );
    assert!(!bridge.process.stderr().contains("panicked"), "{}", bridge.process.stderr());
    let peak = peak_mb(bridge.process.pid());
    assert!(peak < 200, "{peak} MB");
}

fn bridge() -> ScriptedBridge {
    ScriptedBridge::start(Script::new().tools(["t"]))
}

// req: GW-07
#[test]
fn survives_random_http_requests() {
    let bridge = bridge();
    let client = bridge.passthrough_client();
    let session = client.session_header();
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{}}}"#;
    let cancellation = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    let chunked =
        post_request(AGGREGATE_PATH, &["transfer-encoding: chunked"], "5\r\n{\"a\":\r\n2\r\n1}\r\n0\r\n\r\n");
    let seeds = [
        post_request(&client.path, &[&session], call),
        post_request(&client.path, &[&session], cancellation),
        post_request(
            AGGREGATE_PATH,
            &["origin: http://localhost:1"],
            &initialize_request(&json!({ "roots": {} })),
        ),
        chunked,
        format!(
            "GET {} HTTP/1.1\r\nhost: [::1]:80\r\naccept: text/event-stream\r\n{session}x\r\n\r\n",
            client.path
        ),
        "DELETE /servers/%73/mcp HTTP/1.1\r\nhost: 127.0.0.1\r\nmcp-session-id: none\r\n\r\n".to_owned(),
    ];
    let seeds: Vec<&[u8]> = seeds.iter().map(String::as_bytes).collect();
    let tried = fuzz(&seeds, |bytes| {
        let mut stream = connect(bridge.address);
        // The bridge may close the connection at any time and need not answer an incomplete request.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(Shutdown::Write);
        stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let _ = stream.read(&mut [0; 256]);
    });
    println!("{tried} HTTP requests");
    check_healthy(&bridge);
}

// req: BR-12
#[test]
fn survives_random_control_requests() {
    let bridge = bridge();
    let (socket, token) = (
        bridge.process.socket_file("sock"),
        std::fs::read_to_string(bridge.process.socket_file("token")).unwrap(),
    );
    let seeds = [
        json!({ "what": "identity" }),
        json!({ "what": "status", "params": null }),
        json!({ "what": "call", "params": { "tool": "s:t", "arguments": { "a": 1 }, "patience": 5 } }),
        json!({ "what": "events", "params": { "replay": 1000 } }),
        json!({ "what": "refresh", "params": { "server": "s" } }),
    ];
    let seeds: Vec<String> = seeds.iter().map(|seed| format!("{}\n{seed}\n", token.trim())).collect();
    let seeds: Vec<&[u8]> = seeds.iter().map(String::as_bytes).collect();
    let tried = fuzz(&seeds, |bytes| {
        let mut stream = UnixStream::connect(&socket).unwrap();
        let _ = stream.write_all(bytes);
        stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let _ = stream.read(&mut [0; 256]);
    });
    println!("{tried} control requests");
    assert_eq!(bridge.process.server_status("s")["health"], "healthy");
    check_healthy(&bridge);
}
