//! Clients that disconnect, send slowly, send invalid or endless data: the bridge serves the others in bounded memory.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use bascule_testkit::{Behaviour, Script};
use serde_json::json;

use super::client::{Client, connect, post_request, read_response, send};
use super::{ScriptedBridge, call, peak_mb};

fn bridge() -> ScriptedBridge {
    ScriptedBridge::start(Script::new().tools(["t", "hold"]).calls("hold", [Behaviour::silence()]))
}

fn check_served(client: &Client) {
    assert_eq!(client.call("t", &json!({ "a": 1 }))["result"]["structuredContent"], json!({ "a": 1 }));
}

// req: GW-07
#[test]
fn cancels_calls_of_disconnected_clients_when_session_ends() {
    let bridge = bridge();
    let client = bridge.passthrough_client();
    let hold = |n: u32| {
        let params = call("hold", &json!({ "mark": format!("held {n}.") }));
        json!({ "jsonrpc": "2.0", "id": 100 + n, "method": "tools/call", "params": params }).to_string()
    };
    for n in 0..20 {
        let mut stream = connect(bridge.address);
        stream
            .write_all(post_request(&client.path, &[&client.session_header()], &hold(n)).as_bytes())
            .unwrap();
        bridge.server.wait_for(&format!("held {n}."));
        match n % 3 {
            0 => drop(stream),
            1 => stream.shutdown(Shutdown::Write).unwrap(),
            // Half open: the connection stays and sends nothing more.
            _ => std::mem::forget(stream),
        }
    }
    check_served(&client);
    // The end of the session cancels its calls.
    client.end_session();
    bridge.server.wait_until(|_| {
        bridge.server.methods().iter().filter(|method| *method == "notifications/cancelled").count() == 20
    });
    check_served(&bridge.passthrough_client());
}

// req: GW-07
#[test]
fn rejects_invalid_requests_and_serves_others() {
    let bridge = bridge();
    let client = bridge.passthrough_client();
    let session = client.session_header();
    for body in [
        "",
        "{",
        "[]",
        "5",
        "null",
        "{}",
        "\u{0}",
        r#"{"jsonrpc":"2.0"}"#,
        r#"{"jsonrpc":"2.0","id":[],"method":"x"}"#,
    ] {
        let response = client.post(body);
        assert_eq!(response.status, 400, "{body}");
    }
    let raw = |bytes: &[u8]| {
        let mut stream = connect(bridge.address);
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(Shutdown::Write);
        read_response(stream).map(|response| response.status)
    };
    for bytes in [
        &b"\xff\xfe\x00"[..],
        b"\r\n\r\n\r\n",
        b"POST\r\n\r\n",
        b"POST /mcp HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\n",
        &[b'A'; 200_000],
    ] {
        let status = raw(bytes);
        assert!(status.is_none_or(|status| (400..=505).contains(&status)), "{status:?}");
    }
    let head = |line: &str| {
        format!(
            "POST {} HTTP/1.1\r\nhost: localhost\r\naccept: */*\r\ncontent-type: application/json\r\n{session}\r\n{line}\r\n\r\n",
            client.path
        )
    };
    for line in [
        "content-length: -1",
        "content-length: 5\r\ncontent-length: 6",
        "content-length: 99999999999999999999999",
        "transfer-encoding: chunked\r\ncontent-length: 4",
    ] {
        let status = raw(head(line).as_bytes());
        assert!(status.is_none_or(|status| (400..=505).contains(&status)), "{line}: {status:?}");
    }
    let mut chunked = head("transfer-encoding: chunked").into_bytes();
    chunked.extend_from_slice(b"ffffffffffffffffff\r\n{");
    assert!(raw(&chunked).is_none_or(|status| status >= 400));
    let many: String = (0..1000).map(|n| format!("x-{n}: y\r\n")).collect();
    assert!(raw(head(many.trim_end()).as_bytes()).is_none_or(|status| status >= 400));
    check_served(&client);
}

// req: GW-07
#[test]
fn rejects_body_of_one_gigabyte_without_buffering() {
    let bridge = bridge();
    let client = bridge.passthrough_client();
    let response = client.call_of_length(1 << 30);
    assert_eq!(response.status, 413);
    // A chunked body announces no length.
    let head = post_request(&client.path, &[&client.session_header()], "")
        .replace("content-length: 0", "transfer-encoding: chunked");
    let mut stream = connect(bridge.address);
    stream.write_all(head.as_bytes()).unwrap();
    let block = [&b"10000\r\n"[..], &[b' '; 0x10000], b"\r\n"].concat();
    let sent = (0..(1 << 30) / 0x10000).take_while(|_| stream.write_all(&block).is_ok()).count();
    assert!(sent < (1 << 30) / 0x10000, "the whole body was accepted");
    check_served(&client);
    let peak = peak_mb(bridge.process.pid());
    println!("peak: {peak} MB");
    assert!(peak < 256, "{peak} MB");
}

// req: GW-07
#[test]
fn disconnects_clients_that_send_one_byte_a_second() {
    let bridge = bridge();
    let client = bridge.passthrough_client();
    let slow: Vec<_> = (0..20).map(|_| send_slowly(bridge.address)).collect();
    for _ in 0..20 {
        check_served(&client);
    }
    for thread in slow {
        let sent = thread.join().unwrap();
        assert!(sent < 60, "disconnected only after {sent} bytes");
    }
    check_served(&client);
}

/// Sends a request head one byte a second. Returns the number of bytes sent before the bridge closed the connection.
fn send_slowly(address: SocketAddr) -> std::thread::JoinHandle<usize> {
    let mut stream: TcpStream = connect(address);
    std::thread::spawn(move || {
        stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        for (sent, byte) in b"POST /mcp HTTP/1.1\r\nhost: localhost\r\nx-slow: ".iter().cycle().enumerate() {
            if stream.write_all(&[*byte]).is_err() {
                return sent;
            }
            // The pause between two bytes watches for the end of the connection.
            match stream.read(&mut [0; 64]) {
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                _ => return sent,
            }
            if sent > 60 {
                return sent;
            }
        }
        unreachable!("the iterator is endless")
    })
}

// req: GW-07
#[test]
fn serves_clients_beside_many_idle_connections() {
    let bridge = bridge();
    let client = bridge.passthrough_client();
    let idle: Vec<_> = (0..300).map(|_| connect(bridge.address)).collect();
    check_served(&client);
    drop(idle);
    let head = format!("OPTIONS {} HTTP/1.1\r\nhost: localhost\r\n\r\n", client.path);
    assert_eq!(send(bridge.address, head.as_bytes()).status, 405);
}
