//! The least client that can call one tool, so that its own cost hardly shows in what it measures.
//!
//! Messages are written and searched as text, nothing is decoded.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

const VERSION: &str = "2025-06-18";
/// Longer than any answer takes that is still worth measuring.
const PATIENCE: Duration = Duration::from_secs(20);

/// Where a server is found.
#[derive(Clone)]
pub(super) enum Door {
    /// It is started, and spoken to over its stdin and stdout.
    Stdio(Vec<String>),
    /// Streamable HTTP at this address.
    Http(String),
}

/// A client that has shaken hands and knows the tool to call.
pub(super) struct Client {
    link: Link,
    tool: String,
    sent: u64,
    answer: Vec<u8>,
}

impl Client {
    /// Connects, and takes the first tool that is an `echo`, under whatever name it is offered here.
    pub(super) fn open(door: &Door) -> io::Result<Self> {
        let link = match door {
            Door::Stdio(command) => Link::Stdio(Pipes::start(command)?),
            Door::Http(url) => Link::Http(Http::connect(url)?),
        };
        let mut client = Self { link, tool: String::new(), sent: 0, answer: Vec::new() };
        let hello = format!(
            r#""method":"initialize","params":{{"protocolVersion":"{VERSION}","capabilities":{{}},"clientInfo":{{"name":"bench","version":"1"}}}}"#
        );
        client.ask(&hello)?;
        client.link.notify(br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)?;
        client.tool = client
            .tools()?
            .into_iter()
            .find(|name| name.ends_with("echo"))
            .ok_or_else(|| io::Error::other("offers no tool `echo`"))?;
        Ok(client)
    }

    /// The names of all tools on the first page.
    pub(super) fn tools(&mut self) -> io::Result<Vec<String>> {
        self.ask(r#""method":"tools/list""#)?;
        let text = String::from_utf8_lossy(&self.answer);
        let names = text.split("\"name\":").skip(1).filter_map(|rest| rest.split('"').nth(1));
        Ok(names.map(str::to_owned).collect())
    }

    pub(super) fn call(&mut self) -> io::Result<()> {
        let call = format!(
            r#""method":"tools/call","params":{{"name":"{}","arguments":{{"message":"hello"}}}}"#,
            self.tool
        );
        self.ask(&call)
    }

    /// How long the last answer was.
    pub(super) fn received(&self) -> usize {
        self.answer.len()
    }

    fn ask(&mut self, what: &str) -> io::Result<()> {
        self.sent += 1;
        let message = format!(r#"{{"jsonrpc":"2.0","id":{},{what}}}"#, self.sent);
        self.link.exchange(message.as_bytes(), &mut self.answer)?;
        // A refusal is short: a long answer need not be looked through.
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

enum Link {
    Stdio(Pipes),
    Http(Http),
}

impl Link {
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

/// One connection that is kept.
struct Http {
    stream: BufReader<TcpStream>,
    /// All of a request that stays the same.
    head: String,
    session: Option<String>,
}

impl Http {
    fn connect(url: &str) -> io::Result<Self> {
        let rest = url.strip_prefix("http://").unwrap_or(url);
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let stream = TcpStream::connect(host)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
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

    /// From now on every request names it.
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
