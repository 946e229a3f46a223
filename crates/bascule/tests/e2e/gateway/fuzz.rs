//! Whatever bytes come to the sockets of a running bridge, it goes on: heads of requests, messages, questions.
//!
//! A second each, or as long as `make fuzz` says.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use bascule_testkit::{Script, fuzz};
use serde_json::json;

use super::client::{connect, hello, posted};
use super::{Bridge, TOGETHER, peak};

/// It answers others, nothing in it has panicked, and it has not grown.
fn check_sound(bridge: &Bridge) {
    assert_eq!(
        bridge.alone().call("t", &json!({ "a": 1 }))["result"]["structuredContent"],
        json!({ "a": 1 })
    );
    assert!(!bridge.serving.said().contains("panicked"), "{}", bridge.serving.said());
    let most = peak(bridge.serving.pid());
    assert!(most < 200, "{most} MB");
}

fn bridge() -> Bridge {
    Bridge::of(Script::new().tools(["t"]))
}

// req: GW-07
#[test]
fn heads_and_messages_over_http() {
    let bridge = bridge();
    let client = bridge.alone();
    let session = client.session_header();
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{}}}"#;
    let told = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    let chunked = posted(TOGETHER, &["transfer-encoding: chunked"], "5\r\n{\"a\":\r\n2\r\n1}\r\n0\r\n\r\n");
    let seeds = [
        posted(&client.path, &[&session], call),
        posted(&client.path, &[&session], told),
        posted(TOGETHER, &["origin: http://localhost:1"], &hello(&json!({ "roots": {} }))),
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
        // It may hang up at any moment, and need not answer what is never finished.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(Shutdown::Write);
        stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let _ = stream.read(&mut [0; 256]);
    });
    println!("{tried} requests");
    check_sound(&bridge);
}

// req: BR-12
#[test]
fn questions_at_the_control_socket() {
    let bridge = bridge();
    let (socket, token) =
        (bridge.serving.place("sock"), std::fs::read_to_string(bridge.serving.place("token")).unwrap());
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
    println!("{tried} questions");
    assert_eq!(bridge.serving.server("s")["health"], "healthy");
    check_sound(&bridge);
}
