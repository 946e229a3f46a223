//! An MCP client over plain sockets. It sends exactly the bytes that a test passes and returns messages unparsed.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

use super::parse;

/// Upper bound of every read and write.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A client that has a session.
#[derive(Clone)]
pub struct Client {
    pub address: SocketAddr,
    pub path: String,
    pub session: String,
    pub initialize_response: String,
}

/// A response whose body is read on demand.
pub struct HttpResponse {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    body: Body,
    is_over: bool,
}

struct Body {
    stream: BufReader<TcpStream>,
    /// Bytes left in the body or in the current chunk.
    left: usize,
    is_chunked: bool,
}

impl Client {
    /// Starts a session without client capabilities.
    pub fn connect(address: SocketAddr, path: &str) -> Self {
        Self::with_capabilities(address, path, &json!({}))
    }

    /// Starts a session with these client capabilities.
    pub fn with_capabilities(address: SocketAddr, path: &str, capabilities: &Value) -> Self {
        Self::initialize(address, path, &initialize_request(capabilities))
    }

    /// Starts a session under this client name.
    pub fn with_name(address: SocketAddr, path: &str, name: &str) -> Self {
        let request = initialize_request(&json!({})).replace(r#""name":"t""#, &format!(r#""name":"{name}""#));
        Self::initialize(address, path, &request)
    }

    fn initialize(address: SocketAddr, path: &str, request: &str) -> Self {
        let mut response = post(address, path, &[], request);
        let session = response.header("mcp-session-id");
        let initialize_response = response.last_message();
        let session = session.unwrap_or_else(|| panic!("no session: {initialize_response}"));
        let client = Self { address, path: path.to_owned(), session, initialize_response };
        client.post_accepted(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string());
        client
    }

    /// Posts any text as a message of this session.
    pub fn post(&self, body: &str) -> HttpResponse {
        post(self.address, &self.path, &[&self.session_header()], body)
    }

    /// Posts a request with this id and these raw parameters, and returns its response stream.
    pub fn send_request(&self, id: &str, method: &str, params: &str) -> HttpResponse {
        self.post(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#))
    }

    /// Sends a request and returns its JSON-RPC response.
    pub fn request(&self, method: &str, params: &Value) -> Value {
        parse(&self.send_request("1", method, &params.to_string()).last_message())
    }

    /// Calls a tool and returns the JSON-RPC response.
    pub fn call(&self, tool: &str, arguments: &Value) -> Value {
        self.request("tools/call", &super::call(tool, arguments))
    }

    /// Sends a call of this length without holding it in memory.
    pub fn call_of_length(&self, bytes: usize) -> HttpResponse {
        let head = format!(
            "POST {} HTTP/1.1\r\nhost: localhost\r\naccept: */*\r\ncontent-type: application/json\r\n{}\r\n\
             content-length: {bytes}\r\n\r\n{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":\"",
            self.path,
            self.session_header()
        );
        let mut stream = connect(self.address);
        stream.write_all(head.as_bytes()).unwrap();
        let (block, mut left) = ([b'y'; 64 << 10], bytes);
        // The bridge may refuse the request and close the connection before the end.
        while left > 0 && stream.write_all(&block[..left.min(block.len())]).is_ok() {
            left -= left.min(block.len());
        }
        read_response(stream).expect("the connection closed without a response")
    }

    /// Posts a notification or a response and checks that it is accepted.
    pub fn post_accepted(&self, body: &str) {
        assert_eq!(self.post(body).status, 202, "{body}");
    }

    pub fn notify(&self, method: &str, params: &Value) {
        self.post_accepted(&json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string());
    }

    /// Answers a request of a server with this raw result.
    pub fn respond(&self, request: &Value, result: &str) {
        self.post_accepted(&format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, request["id"]));
    }

    /// Opens the GET stream of server messages that belong to no request.
    pub fn open_stream(&self) -> HttpResponse {
        let response = self.send_without_body("GET");
        assert_eq!(response.status, 200);
        response
    }

    pub fn end_session(&self) {
        assert_eq!(self.send_without_body("DELETE").status, 204);
    }

    /// Sends an HTTP request without a body.
    pub fn send_without_body(&self, method: &str) -> HttpResponse {
        let (path, session) = (&self.path, self.session_header());
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n{session}\r\n\r\n"
        );
        send(self.address, head.as_bytes())
    }

    pub fn session_header(&self) -> String {
        format!("mcp-session-id: {}", self.session)
    }
}

impl HttpResponse {
    pub fn header(&self, name: &str) -> Option<String> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.clone())
    }

    /// The next message, unparsed; none at the end of the response.
    pub fn next(&mut self) -> Option<String> {
        if self.is_over {
            return None;
        }
        if self.header("content-type").as_deref() != Some("text/event-stream") {
            self.is_over = true;
            return Some(self.rest());
        }
        loop {
            match self.body.line()?.strip_prefix("data: ") {
                Some(message) => return Some(message.to_owned()),
                // The event's name, a comment, or the blank line after an event.
                None => continue,
            }
        }
    }

    /// The next message; panics at the end of the response.
    pub fn next_message(&mut self) -> String {
        self.next().expect("the response ended before the next message")
    }

    /// Skips messages until one has this method.
    pub fn wait_for_method(&mut self, method: &str) -> Value {
        loop {
            let message = parse(&self.next_message());
            if message["method"] == method {
                return message;
            }
        }
    }

    /// Reads to the end and returns the last message, which is the answer.
    pub fn last_message(&mut self) -> String {
        let mut last = None;
        while let Some(message) = self.next() {
            last = Some(message);
        }
        last.unwrap_or_else(|| panic!("status {}: the response holds no message", self.status))
    }

    /// Reads to the end and returns the result, which must be there.
    pub fn result(&mut self) -> Value {
        let answer = parse(&self.last_message());
        assert!(answer.get("result").is_some(), "{answer}");
        answer["result"].clone()
    }

    fn rest(&mut self) -> String {
        let mut bytes = Vec::new();
        let _ = self.body.read_to_end(&mut bytes);
        String::from_utf8(bytes).unwrap()
    }
}

impl Body {
    /// The next line without its line break; none at the end of the body.
    fn line(&mut self) -> Option<String> {
        let mut line = Vec::new();
        loop {
            let available = self.fill().unwrap();
            if available == 0 {
                return None;
            }
            let buffered = &self.stream.buffer()[..available];
            let end = buffered.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(available, |end| end + 1);
            line.extend_from_slice(&buffered[..taken]);
            self.consume(taken);
            if end.is_some() {
                line.pop();
                return Some(String::from_utf8(line).unwrap());
            }
        }
    }

    /// Number of buffered bytes of the body; zero at its end.
    fn fill(&mut self) -> std::io::Result<usize> {
        if self.left == 0 && self.is_chunked {
            let mut size = String::new();
            self.stream.read_line(&mut size)?;
            self.left = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
        }
        match self.left {
            0 => Ok(0),
            left => Ok(self.stream.fill_buf()?.len().min(left)),
        }
    }

    fn consume(&mut self, bytes: usize) {
        self.stream.consume(bytes);
        self.left -= bytes;
        if self.left == 0 && self.is_chunked {
            let mut end = [0; 2];
            let _ = self.stream.read_exact(&mut end);
        }
    }
}

impl Read for Body {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let count = self.fill()?.min(into.len());
        into[..count].copy_from_slice(&self.stream.buffer()[..count]);
        if count > 0 {
            self.consume(count);
        }
        Ok(count)
    }
}

/// An `initialize` request.
pub fn initialize_request(capabilities: &Value) -> String {
    let info = json!({ "name": "t", "version": "1" });
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": info });
    json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params }).to_string()
}

/// Posts a message with the required headers and these.
pub fn post(address: SocketAddr, path: &str, headers: &[&str], body: &str) -> HttpResponse {
    send(address, post_request(path, headers, body).as_bytes())
}

/// The bytes of a POST request.
pub fn post_request(path: &str, headers: &[&str], body: &str) -> String {
    let host =
        if headers.iter().any(|header| header.starts_with("host:")) { "" } else { "host: localhost\r\n" };
    let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    format!(
        "POST {path} HTTP/1.1\r\n{host}accept: application/json, text/event-stream\r\n\
         content-type: application/json\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Sends bytes over a new connection and reads the head of the response.
pub fn send(address: SocketAddr, bytes: &[u8]) -> HttpResponse {
    let mut stream = connect(address);
    stream.write_all(bytes).unwrap();
    read_response(stream).expect("the connection closed without a response")
}

pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.set_write_timeout(Some(TIMEOUT)).unwrap();
    stream
}

/// Reads the head of a response; none if the connection is closed instead.
pub fn read_response(stream: TcpStream) -> Option<HttpResponse> {
    let mut stream = BufReader::with_capacity(64 << 10, stream);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        match stream.read_line(&mut line) {
            Ok(0) => return None,
            Ok(_) if line.trim().is_empty() => break,
            Ok(_) => lines.push(line),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
            Err(error) => panic!("{error}"),
        }
    }
    let status = lines[0].split(' ').nth(1).unwrap().trim().parse().unwrap();
    let split = |line: &String| {
        let (name, value) = line.split_once(':').unwrap();
        (name.to_ascii_lowercase(), value.trim().to_owned())
    };
    let headers: Vec<_> = lines[1..].iter().map(split).collect();
    let header = |name: &str| headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str());
    let left = header("content-length").map_or(0, |length| length.parse().unwrap());
    let is_chunked = header("transfer-encoding") == Some("chunked");
    Some(HttpResponse { status, body: Body { stream, left, is_chunked }, headers, is_over: false })
}
