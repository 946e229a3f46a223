//! Calls the tool `echo` of an MCP server one call after the other, over one HTTP connection: for benchmarks only.
//!
//! `echo-client URL CALLS` speaks Streamable HTTP without TLS. It exits with an error at the first call that fails.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::ExitCode;
use std::time::Duration;

const PROTOCOL_VERSION: &str = "2025-06-18";
/// A server under an instrumenting tool is slow; one that does not answer for this long is stuck.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, calls] = arguments.as_slice() else {
        eprintln!("usage: echo-client URL CALLS");
        return ExitCode::FAILURE;
    };
    match calls.parse().map_err(io::Error::other).and_then(|calls| run(url, calls)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("echo-client: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(url: &str, calls: u64) -> io::Result<()> {
    let mut server = Session::open(url)?;
    let tools = server.request("tools/list", "{}")?;
    let names = tools.split(r#""name":""#).skip(1).filter_map(|rest| rest.split('"').next());
    let tool = names.into_iter().find(|name| name.ends_with("echo"));
    let tool = tool.ok_or_else(|| io::Error::other("the server has no tool `echo`"))?;
    let params = format!(r#"{{"name":"{tool}","arguments":{{"message":"hello"}}}}"#);
    for _ in 0..calls {
        let response = server.request("tools/call", &params)?;
        if response.contains(r#""isError":true"#) {
            return Err(io::Error::other(response));
        }
    }
    Ok(())
}

/// An MCP session over one HTTP connection.
struct Session {
    stream: BufReader<TcpStream>,
    /// Request line and headers, without `Content-Length`.
    head: String,
    /// Ids have the same number of digits, so that every call costs the server the same.
    next_id: u64,
}

impl Session {
    fn open(url: &str) -> io::Result<Self> {
        let address =
            url.strip_prefix("http://").ok_or_else(|| io::Error::other("the URL is not http://"))?;
        let (host, path) = address.split_once('/').unwrap_or((address, ""));
        let stream = TcpStream::connect(host)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(READ_TIMEOUT))?;
        let head = format!(
            "POST /{path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: {PROTOCOL_VERSION}\r\n"
        );
        let mut session = Self { stream: BufReader::new(stream), head, next_id: 100_000 };
        let params = format!(
            r#"{{"protocolVersion":"{PROTOCOL_VERSION}","capabilities":{{}},"clientInfo":{{"name":"echo-client","version":"1"}}}}"#
        );
        session.request("initialize", &params)?;
        session.post(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)?;
        Ok(session)
    }

    /// Returns the body of the response, which holds a result.
    fn request(&mut self, method: &str, params: &str) -> io::Result<String> {
        let id = self.next_id;
        self.next_id += 1;
        let body =
            self.post(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#))?;
        match body.contains(r#""result":"#) {
            true => Ok(body),
            false => Err(io::Error::other(format!("`{method}` failed: {body}"))),
        }
    }

    fn post(&mut self, message: &str) -> io::Result<String> {
        let request = format!("{}Content-Length: {}\r\n\r\n{message}", self.head, message.len());
        self.stream.get_mut().write_all(request.as_bytes())?;
        let status = self.read_line()?;
        let mut length = None;
        loop {
            let line = self.read_line()?;
            let Some((name, value)) = line.split_once(':') else { break };
            match (name.to_ascii_lowercase().as_str(), value.trim()) {
                ("content-length", value) => length = value.parse().ok(),
                ("mcp-session-id", value) if !self.head.contains("Mcp-Session-Id") => {
                    self.head += &format!("Mcp-Session-Id: {value}\r\n");
                }
                _ => {}
            }
        }
        let body = match length {
            Some(length) => self.read_exact(length)?,
            None => self.read_chunks()?,
        };
        match status.split(' ').nth(1).is_some_and(|code| code.starts_with('2')) {
            true => Ok(body),
            false => Err(io::Error::other(format!("{status}: {body}"))),
        }
    }

    fn read_chunks(&mut self) -> io::Result<String> {
        let mut body = String::new();
        loop {
            let line = self.read_line()?;
            let size = usize::from_str_radix(&line, 16).map_err(io::Error::other)?;
            body += &self.read_exact(size)?;
            self.read_line()?;
            if size == 0 {
                return Ok(body);
            }
        }
    }

    fn read_exact(&mut self, length: usize) -> io::Result<String> {
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes)?;
        String::from_utf8(bytes).map_err(io::Error::other)
    }

    fn read_line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        match self.stream.read_line(&mut line)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(line.trim_end().to_owned()),
        }
    }
}
