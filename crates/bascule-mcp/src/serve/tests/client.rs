//! A server on a real socket, and a client that writes raw bytes to it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::host::{EchoHost, echo_host};
use crate::serve::{HttpServer, Router};

pub(super) const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#;
pub(super) const NOTIFICATION: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
/// No wait takes longer.
pub(super) const DEADLINE: Duration = Duration::from_secs(60);
/// A timeout that a test reaches on purpose.
pub(super) const SHORT_TIMEOUT: Duration = Duration::from_millis(300);

pub(super) struct TestServer {
    pub(super) address: SocketAddr,
    pub(super) host: Arc<EchoHost>,
    pub(super) reports: mpsc::Receiver<String>,
    pub(super) stop: CancellationToken,
    pub(super) thread: Option<std::thread::JoinHandle<()>>,
}

pub(super) fn start_server(config: HttpServer) -> TestServer {
    let (host, reports) = echo_host();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let (router, until) = (Router::default().mcp(&host).health_check(), stop.clone());
    let thread = std::thread::spawn(move || {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            config.serve(listener, router, until).await;
        });
    });
    TestServer { address, host, reports, stop, thread: Some(thread) }
}

/// Timeouts that no test reaches by accident, even on a busy machine.
pub(super) fn long_timeouts() -> HttpServer {
    HttpServer {
        head_timeout: DEADLINE * 2,
        body_timeout: DEADLINE * 2,
        idle_timeout: DEADLINE * 2,
        write_timeout: DEADLINE * 2,
        keep_alive: Duration::from_millis(100),
        ..HttpServer::default()
    }
}

impl TestServer {
    pub(super) fn connect(&self) -> TestClient {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.set_write_timeout(Some(DEADLINE)).unwrap();
        TestClient { stream, rest: Vec::new() }
    }

    /// Sends one request on a new connection.
    pub(super) fn request(&self, request: &str) -> TestResponse {
        let mut client = self.connect();
        client.send(request);
        client.read_response()
    }

    /// Starts a session at `/mcp`.
    pub(super) fn with_session(self) -> Self {
        let response = self.request(&post("/mcp", "", INITIALIZE));
        assert_eq!((response.status, response.header("mcp-session-id")), (200, Some("s")));
        self
    }

    pub(super) fn request_head(&self, request: &str) -> TestResponse {
        let mut client = self.connect();
        client.send(request);
        client.read_head()
    }

    pub(super) fn expect_report(&self, expected: &str) {
        assert_eq!(self.reports.recv_timeout(DEADLINE).as_deref(), Ok(expected));
    }

    pub(super) fn shut_down(mut self) {
        self.stop.cancel();
        self.thread.take().unwrap().join().unwrap();
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

pub(super) struct TestClient {
    pub(super) stream: TcpStream,
    pub(super) rest: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct TestResponse {
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) body: String,
    /// False if the connection ended before the body did.
    pub(super) is_complete: bool,
}

impl TestResponse {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(given, _)| given.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    pub(super) fn events(&self) -> Vec<&str> {
        self.body.split("\n\n").filter_map(|event| event.strip_prefix("event: message\ndata: ")).collect()
    }
}

impl TestClient {
    pub(super) fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).unwrap();
    }

    pub(super) fn read_more(&mut self) -> bool {
        let mut buffer = [0; 65536];
        match self.stream.read(&mut buffer) {
            Ok(0) | Err(_) => false,
            Ok(read) => {
                self.rest.extend_from_slice(&buffer[..read]);
                true
            }
        }
    }

    pub(super) fn read_until(&mut self, mark: &str) -> Option<String> {
        loop {
            let found = self.rest.windows(mark.len()).position(|window| window == mark.as_bytes());
            if let Some(at) = found {
                let text = self.rest.drain(..at + mark.len()).collect();
                return Some(String::from_utf8(text).unwrap());
            }
            if !self.read_more() {
                return None;
            }
        }
    }

    /// Sends a notification. Returns `None` if the connection was closed instead of answered.
    pub(super) fn accepted(mut self) -> Option<Self> {
        let _ = self.stream.write_all(post("/mcp", SESSION, NOTIFICATION).as_bytes());
        let head = self.read_until("\r\n\r\n")?;
        assert!(head.contains(" 202 "), "{head}");
        Some(self)
    }

    /// Sends the bytes one by one. Returns true if the connection was closed meanwhile.
    pub(super) fn is_disconnected_while_sending(&mut self, bytes: &[u8]) -> bool {
        bytes.iter().any(|byte| {
            std::thread::sleep(Duration::from_millis(20));
            self.stream.write_all(&[*byte]).is_err()
        })
    }

    pub(super) fn read_exactly(&mut self, length: usize) -> Option<String> {
        while self.rest.len() < length {
            if !self.read_more() {
                return None;
            }
        }
        Some(String::from_utf8(self.rest.drain(..length).collect()).unwrap())
    }

    pub(super) fn read_head(&mut self) -> TestResponse {
        let head = self.read_until("\r\n\r\n").expect("a response");
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        TestResponse { status, head, body: String::new(), is_complete: true }
    }

    pub(super) fn read_chunk(&mut self) -> Option<String> {
        let size = self.read_until("\r\n")?;
        let size = usize::from_str_radix(size.trim(), 16).unwrap();
        let text = self.read_exactly(size + 2)?;
        Some(text[..size].to_owned())
    }

    pub(super) fn read_response(&mut self) -> TestResponse {
        let mut response = self.read_head();
        if let Some(length) = response.header("content-length") {
            let length = length.parse().unwrap();
            match self.read_exactly(length) {
                Some(body) => response.body = body,
                None => response.is_complete = false,
            }
        } else if response.header("transfer-encoding") == Some("chunked") {
            loop {
                match self.read_chunk() {
                    Some(chunk) if chunk.is_empty() => break,
                    Some(chunk) => response.body += &chunk,
                    None => {
                        response.is_complete = false;
                        break;
                    }
                }
            }
        }
        response
    }

    /// Reads until the server closes the connection.
    pub(super) fn wait_for_close(&mut self) {
        let since = Instant::now();
        while self.read_more() {}
        assert!(since.elapsed() < DEADLINE, "the connection was not closed");
    }
}

pub(super) const ACCEPT: &str = "Accept: application/json, text/event-stream\r\n";
pub(super) const SESSION: &str = "Mcp-Session-Id: s\r\n";

pub(super) fn post(path: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nHost: localhost:1\r\nContent-Type: application/json\r\n{ACCEPT}{headers}\
         Content-Length: {length}\r\n\r\n{body}"
    )
}

pub(super) fn http_request(method: &str, path: &str, headers: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{headers}\r\n")
}

pub(super) fn rpc(method: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":"q","method":"{method}","params":{{"a":1.50,"z":[]}}}}"#)
}

pub(super) fn check(request: &str, status: u16, expected: &str) {
    let server = start_server(long_timeouts()).with_session();
    let response = server.request(request);
    assert_eq!(response.status, status, "{request}\n{response:?}");
    assert!(response.body.contains(expected), "{request}\n{response:?}");
}
