//! A minimal MCP client that calls one tool, cheap enough not to distort the measurement.
//!
//! Messages are written and searched as text and never parsed.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

const VERSION: &str = "2025-06-18";
/// Upper bound of every read and write.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A server under measurement.
#[derive(Clone)]
pub(super) enum Target {
    /// A command that is started and used over stdio.
    Stdio(Vec<String>),
    /// URL of a Streamable HTTP server.
    Http(String),
}

/// An initialized client that knows the tool to call.
pub(super) struct LoadClient {
    connection: Connection,
    tool: String,
    sent: u64,
    answer: Vec<u8>,
}

impl LoadClient {
    /// Connects and selects the first tool whose name ends with `echo`.
    pub(super) fn open(target: &Target) -> io::Result<Self> {
        let connection = match target {
            Target::Stdio(command) => Connection::Stdio(Pipes::start(command)?),
            Target::Http(url) => Connection::Http(Http::connect(url)?),
        };
        let mut client = Self { connection, tool: String::new(), sent: 0, answer: Vec::new() };
        let initialize = format!(
            r#""method":"initialize","params":{{"protocolVersion":"{VERSION}","capabilities":{{}},"clientInfo":{{"name":"bench","version":"1"}}}}"#
        );
        client.request(&initialize)?;
        client.connection.notify(br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)?;
        client.tool = client
            .tools()?
            .into_iter()
            .find(|name| name.ends_with("echo"))
            .ok_or_else(|| io::Error::other("offers no tool `echo`"))?;
        Ok(client)
    }

    /// Names of the tools on the first page.
    pub(super) fn tools(&mut self) -> io::Result<Vec<String>> {
        self.request(r#""method":"tools/list""#)?;
        let text = String::from_utf8_lossy(&self.answer);
        let names = text.split("\"name\":").skip(1).filter_map(|rest| rest.split('"').nth(1));
        Ok(names.map(str::to_owned).collect())
    }

    pub(super) fn call(&mut self) -> io::Result<()> {
        let call = format!(
            r#""method":"tools/call","params":{{"name":"{}","arguments":{{"message":"hello"}}}}"#,
            self.tool
        );
        self.request(&call)
    }

    /// Length of the last answer in bytes.
    pub(super) fn received(&self) -> usize {
        self.answer.len()
    }

    fn request(&mut self, what: &str) -> io::Result<()> {
        self.sent += 1;
        let message = format!(r#"{{"jsonrpc":"2.0","id":{},{what}}}"#, self.sent);
        self.connection.exchange(message.as_bytes(), &mut self.answer)?;
        // Error results are short, so long answers are not searched.
        let refused = self.answer.len() < 4_000 && contains(&self.answer, br#""isError":true"#);
        match contains(&self.answer, br#""result":"#) && !refused {
            true => Ok(()),
            false => Err(io::Error::other(String::from_utf8_lossy(&self.answer).into_owned())),
        }
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

enum Connection {
    Stdio(Pipes),
    Http(Http),
}

impl Connection {
    fn exchange(&mut self, message: &[u8], answer: &mut Vec<u8>) -> io::Result<()> {
        answer.clear();
        match self {
            Self::Stdio(pipes) => pipes.send(message).and_then(|()| pipes.receive(answer)),
            Self::Http(http) => http.send(message).and_then(|()| http.receive(answer)),
        }
    }

    fn notify(&mut self, message: &[u8]) -> io::Result<()> {
        match self {
            Self::Stdio(pipes) => pipes.send(message),
            Self::Http(http) => http.send(message).and_then(|()| http.receive(&mut Vec::new())),
        }
    }
}

struct Pipes {
    server: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Pipes {
    fn start(command: &[String]) -> io::Result<Self> {
        let mut server = Command::new(&command[0])
            .args(&command[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (input, output) = (server.stdin.take().unwrap(), server.stdout.take().unwrap());
        Ok(Self { server, input, output: BufReader::with_capacity(1 << 16, output) })
    }

    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        self.input.write_all(&[message, b"\n"].concat())
    }

    fn receive(&mut self, answer: &mut Vec<u8>) -> io::Result<()> {
        match self.output.read_until(b'\n', answer)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

impl Drop for Pipes {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// A persistent connection.
struct Http {
    stream: BufReader<TcpStream>,
    /// Constant part of the request head.
    head: String,
    session: Option<String>,
}

impl Http {
    fn connect(url: &str) -> io::Result<Self> {
        let rest = url.strip_prefix("http://").unwrap_or(url);
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let stream = TcpStream::connect(host)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        let head = format!(
            "POST /{path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: {VERSION}\r\n"
        );
        Ok(Self { stream: BufReader::with_capacity(1 << 16, stream), head, session: None })
    }

    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        let head = format!("{}Content-Length: {}\r\n\r\n", self.head, message.len());
        self.stream.get_mut().write_all(&[head.as_bytes(), message].concat())
    }

    fn receive(&mut self, answer: &mut Vec<u8>) -> io::Result<()> {
        let status = self.line()?;
        let (mut length, mut chunked) = (0, false);
        loop {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(':') else { break };
            match (name.to_ascii_lowercase().as_str(), value.trim()) {
                ("content-length", value) => length = value.parse().unwrap_or(0),
                ("transfer-encoding", value) => chunked = value.eq_ignore_ascii_case("chunked"),
                ("mcp-session-id", value) => self.keep_session(value),
                _ => {}
            }
        }
        match chunked {
            true => self.chunks(answer)?,
            false => self.take(length, answer)?,
        }
        match status.split(' ').nth(1).is_some_and(|code| code.starts_with('2')) {
            true => Ok(()),
            false => Err(io::Error::other(format!("{status}: {}", String::from_utf8_lossy(answer)))),
        }
    }

    /// Adds the session id to every later request.
    fn keep_session(&mut self, id: &str) {
        if self.session.is_none() {
            self.head += &format!("Mcp-Session-Id: {id}\r\n");
            self.session = Some(id.to_owned());
        }
    }

    fn chunks(&mut self, answer: &mut Vec<u8>) -> io::Result<()> {
        loop {
            let size = self.line()?;
            let size = size.split(';').next().and_then(|size| usize::from_str_radix(size, 16).ok());
            let size = size.ok_or_else(|| io::Error::other("a chunk without a size"))?;
            self.take(size, answer)?;
            self.line()?;
            if size == 0 {
                return Ok(());
            }
        }
    }

    fn take(&mut self, length: usize, answer: &mut Vec<u8>) -> io::Result<()> {
        let begin = answer.len();
        answer.resize(begin + length, 0);
        self.stream.read_exact(&mut answer[begin..])
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        match self.stream.read_line(&mut line)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(line.trim_end().to_owned()),
        }
    }
}
