//! An MCP client over HTTP that is made of sockets: what it sends is what the test wrote, what it gets is not touched.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

use super::parsed;

/// Nothing that is waited for takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// A client with a session.
#[derive(Clone)]
pub struct Client {
    pub address: SocketAddr,
    pub path: String,
    pub session: String,
    /// What the server said to `initialize`.
    pub welcome: String,
}

/// A request that was sent, and its response as it comes.
pub struct Exchange {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    body: Body,
    is_over: bool,
}

struct Body {
    stream: BufReader<TcpStream>,
    /// What is left of the body, or of the chunk.
    left: usize,
    is_chunked: bool,
}

impl Client {
    /// A client that can do nothing for servers.
    pub fn begin(address: SocketAddr, path: &str) -> Self {
        Self::able(address, path, &json!({}))
    }

    /// One that can do this for servers.
    pub fn able(address: SocketAddr, path: &str, capabilities: &Value) -> Self {
        let mut exchange = post(address, path, &[], &hello(capabilities));
        let (session, welcome) = (exchange.header("mcp-session-id"), exchange.last());
        let session = session.unwrap_or_else(|| panic!("no session: {welcome}"));
        let client = Self { address, path: path.to_owned(), session, welcome };
        client.tell(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string());
        client
    }

    /// Sends a message, whatever it is.
    pub fn post(&self, body: &str) -> Exchange {
        post(self.address, &self.path, &[&self.session_header()], body)
    }

    pub fn request(&self, id: &str, method: &str, params: &str) -> Exchange {
        self.post(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#))
    }

    /// A request, and its answer.
    pub fn ask(&self, method: &str, params: &Value) -> Value {
        parsed(&self.request("1", method, &params.to_string()).last())
    }

    /// A call, and its answer.
    pub fn call(&self, tool: &str, arguments: &Value) -> Value {
        self.ask("tools/call", &super::call(tool, arguments))
    }

    /// A call that is so many bytes long, most of which are never in memory.
    pub fn call_of_length(&self, bytes: usize) -> Exchange {
        let head = format!(
            "POST {} HTTP/1.1\r\nhost: localhost\r\naccept: */*\r\ncontent-type: application/json\r\n{}\r\n\
             content-length: {bytes}\r\n\r\n{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":\"",
            self.path,
            self.session_header()
        );
        let mut stream = connect(self.address);
        stream.write_all(head.as_bytes()).unwrap();
        let (block, mut left) = ([b'y'; 64 << 10], bytes);
        // Who is refused need not be heard out.
        while left > 0 && stream.write_all(&block[..left.min(block.len())]).is_ok() {
            left -= left.min(block.len());
        }
        response(stream).expect("there is a response")
    }

    /// Sends a notification or an answer, which must be taken.
    pub fn tell(&self, body: &str) {
        let exchange = self.post(body);
        assert_eq!(exchange.status, 202, "{body}");
    }

    pub fn notify(&self, method: &str, params: &Value) {
        self.tell(&json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string());
    }

    /// Answers what a server has asked.
    pub fn reply(&self, question: &Value, result: &str) {
        self.tell(&format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, question["id"]));
    }

    /// The stream of what is said unasked.
    pub fn listen(&self) -> Exchange {
        let exchange = self.bare("GET");
        assert_eq!(exchange.status, 200);
        exchange
    }

    /// Takes its leave.
    pub fn leave(&self) {
        assert_eq!(self.bare("DELETE").status, 204);
    }

    /// A request without a body.
    pub fn bare(&self, method: &str) -> Exchange {
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

impl Exchange {
    pub fn header(&self, name: &str) -> Option<String> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.clone())
    }

    /// The next message, as it is spelled; none when the response is over.
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
                // The event's name, a sign of life, or the end of an event.
                None => continue,
            }
        }
    }

    /// The next message, which must come.
    pub fn some(&mut self) -> String {
        self.next().expect("more is said")
    }

    /// The next message of a method.
    pub fn until(&mut self, method: &str) -> Value {
        loop {
            let message = parsed(&self.some());
            if message["method"] == method {
                return message;
            }
        }
    }

    /// The last message: the answer, where there is one.
    pub fn last(&mut self) -> String {
        let mut last = None;
        while let Some(message) = self.next() {
            last = Some(message);
        }
        last.unwrap_or_else(|| panic!("status {}: nothing was answered", self.status))
    }

    /// The result of the answer.
    pub fn result(&mut self) -> Value {
        let answer = parsed(&self.last());
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
    /// A line without its end; none when the body is over.
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

    /// How much of the body is buffered; nothing when it is over.
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

/// The message with which a client begins.
pub fn hello(capabilities: &Value) -> String {
    let info = json!({ "name": "t", "version": "1" });
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": info });
    json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params }).to_string()
}

/// Posts a message as a client should, with these headers besides.
pub fn post(address: SocketAddr, path: &str, headers: &[&str], body: &str) -> Exchange {
    send(address, posted(path, headers, body).as_bytes())
}

/// The bytes of such a request.
pub fn posted(path: &str, headers: &[&str], body: &str) -> String {
    let host =
        if headers.iter().any(|header| header.starts_with("host:")) { "" } else { "host: localhost\r\n" };
    let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    format!(
        "POST {path} HTTP/1.1\r\n{host}accept: application/json, text/event-stream\r\n\
         content-type: application/json\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Sends these bytes over a connection of their own, and reads the head of the response.
pub fn send(address: SocketAddr, bytes: &[u8]) -> Exchange {
    let mut stream = connect(address);
    stream.write_all(bytes).unwrap();
    response(stream).expect("there is a response")
}

pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// The response on a connection; none if it is hung up instead.
pub fn response(stream: TcpStream) -> Option<Exchange> {
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
    Some(Exchange { status, body: Body { stream, left, is_chunked }, headers, is_over: false })
}
