//! A minimal, fast MCP server and bare echo servers, for benchmarks only.
//!
//! - `echo-server` speaks MCP over stdin and stdout;
//! - `echo-server http ADDRESS` speaks Streamable HTTP with JSON answers;
//! - `echo-server raw` echoes stdin, `echo-server raw-tcp ADDRESS` echoes each connection.
//!
//! The MCP servers list `--tools N` tools, or the tools of `--list FILE` (a JSON array), and respond with `--size BYTES`
//! of text instead of the message. Over stdin and stdout, `--flood LINE` writes this line without end after the first
//! listing. A listening server prints its address as the first line of stderr. Messages are
//! scanned, not decoded; echoed parts are copied as bytes.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let after = |word: &str| {
        let at = arguments.iter().position(|argument| argument == word)?;
        arguments.get(at + 1).map(String::as_str)
    };
    let number = |word: &str| after(word).and_then(|count| count.parse().ok());
    let listed = after("--list").and_then(|file| std::fs::read_to_string(file).ok());
    let responses = Responses {
        tools: match listed {
            Some(list) => list.trim().trim_start_matches('[').trim_end_matches(']').to_owned(),
            None => tool_list(number("--tools").unwrap_or(1)),
        },
        text: number("--size").map(|size| format!("\"{}\"", "x".repeat(size))),
    };
    let done = match arguments.first().map(String::as_str) {
        Some("raw") => copy(&mut io::stdin().lock(), &mut io::stdout().lock()),
        Some("raw-tcp") => listen(after("raw-tcp"), |stream| copy(&mut &stream, &mut &stream)),
        Some("http") => listen(after("http"), over_http(responses)),
        _ => over_stdio(&responses, after("--flood")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("echo-server: {error}");
            ExitCode::FAILURE
        }
    }
}

fn copy(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 16];
    loop {
        let count = from.read(&mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        to.write_all(&buffer[..count])?;
        to.flush()?;
    }
}

fn listen(
    address: Option<&str>,
    serve: impl Fn(TcpStream) -> io::Result<()> + Send + Sync + 'static,
) -> io::Result<()> {
    let listener = TcpListener::bind(address.unwrap_or("127.0.0.1:0"))?;
    eprintln!("{}", listener.local_addr()?);
    let serve = Arc::new(serve);
    for stream in listener.incoming() {
        let (stream, serve) = (stream?, serve.clone());
        stream.set_nodelay(true)?;
        // A client may disconnect at any time.
        thread::spawn(move || serve(stream).ok());
    }
    Ok(())
}

fn over_stdio(responses: &Responses, flood: Option<&str>) -> io::Result<()> {
    let mut flood = flood.map(str::to_owned);
    let mut input = BufReader::with_capacity(1 << 16, io::stdin().lock());
    let mut output = io::stdout().lock();
    let (mut line, mut answers) = (Vec::new(), Vec::new());
    while input.read_until(b'\n', &mut line)? > 0 {
        if answer(&line, responses, &mut answers) {
            answers.push(b'\n');
        }
        line.clear();
        // One write for all requests that arrived together.
        if input.buffer().is_empty() && !answers.is_empty() {
            output.write_all(&answers)?;
            output.flush()?;
            let has_listed = answers.windows(10).any(|part| part == br#"{"tools":["#);
            if let Some(line) = flood.take_if(|_| has_listed) {
                let output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
                thread::spawn(move || write_endlessly(&line, output));
            }
            answers.clear();
        }
    }
    Ok(())
}

/// Writes blocks that the system does not split, so that they do not mix with responses.
fn write_endlessly(line: &str, mut output: File) {
    let block = format!("{line}\n").repeat((4096 / (line.len() + 1)).max(1));
    while output.write_all(block.as_bytes()).is_ok() {}
}

fn over_http(responses: Responses) -> impl Fn(TcpStream) -> io::Result<()> {
    move |mut stream| {
        let (mut received, mut body) = (Vec::new(), Vec::new());
        while let Some((head, end)) = receive(&mut stream, &mut received)? {
            body.clear();
            let is_post = received.starts_with(b"POST ");
            let status = match is_post && answer(&received[head..end], &responses, &mut body) {
                true => "200 OK\r\nContent-Type: application/json",
                false if is_post => "202 Accepted",
                false => "405 Method Not Allowed",
            };
            let mut response =
                format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
            response.extend_from_slice(&body);
            stream.write_all(&response)?;
            received.drain(..end);
        }
        Ok(())
    }
}

/// Reads a whole request. Returns the ends of its head and of its body.
fn receive(stream: &mut TcpStream, received: &mut Vec<u8>) -> io::Result<Option<(usize, usize)>> {
    let mut block = [0; 1 << 14];
    loop {
        let head = received.windows(4).position(|part| part == b"\r\n\r\n").map(|at| at + 4);
        if let Some(head) = head {
            let end = head + content_length(&received[..head]);
            if received.len() >= end {
                return Ok(Some((head, end)));
            }
        }
        let count = stream.read(&mut block)?;
        if count == 0 {
            return Ok(None);
        }
        received.extend_from_slice(&block[..count]);
    }
}

fn content_length(head: &[u8]) -> usize {
    const NAME: &[u8] = b"content-length:";
    let is_it = |line: &&[u8]| line.len() > NAME.len() && line[..NAME.len()].eq_ignore_ascii_case(NAME);
    let line = head.split(|byte| *byte == b'\n').find(is_it);
    let value = line.and_then(|line| std::str::from_utf8(&line[NAME.len()..]).ok());
    value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}

fn tool_list(count: usize) -> String {
    let name = |n| if n == 0 { "echo".to_owned() } else { format!("echo_{n}") };
    let tool = |n| {
        format!(
            r#"{{"name":"{}","description":"Returns the message it is given ({n})","inputSchema":{{"type":"object","properties":{{"message":{{"type":"string"}}}},"required":["message"]}}}}"#,
            name(n)
        )
    };
    (0..count).map(tool).collect::<Vec<_>>().join(",")
}

/// The parts of responses that do not depend on the request.
struct Responses {
    tools: String,
    /// The text of every result as a JSON string, if it is not the message.
    text: Option<String>,
}

/// Appends the response to a request. Returns false for a notification.
fn answer(message: &[u8], responses: &Responses, out: &mut Vec<u8>) -> bool {
    let (Some(id), Some(method)) = (member(message, b"id"), member(message, b"method")) else { return false };
    let params = member(message, b"params").unwrap_or(b"{}");
    let mut say = |parts: &[&[u8]]| parts.iter().for_each(|part| out.extend_from_slice(part));
    say(&[br#"{"jsonrpc":"2.0","id":"#, id]);
    match method {
        br#""tools/call""# => {
            let message = member(params, b"arguments").and_then(|arguments| member(arguments, b"message"));
            let message = message.filter(|text| text.starts_with(b"\"")).unwrap_or(b"\"\"");
            let text = responses.text.as_ref().map_or(message, String::as_bytes);
            say(&[br#","result":{"content":[{"type":"text","text":"#, text, br#"}],"isError":false}}"#]);
        }
        br#""tools/list""# => say(&[br#","result":{"tools":["#, responses.tools.as_bytes(), b"]}}"]),
        br#""ping""# => say(&[br#","result":{}}"#]),
        br#""initialize""# => {
            let version = member(params, b"protocolVersion").unwrap_or(br#""2025-11-25""#);
            say(&[br#","result":{"capabilities":{"tools":{}},"protocolVersion":"#, version]);
            say(&[br#","serverInfo":{"name":"echo-server","version":"1"}}}"#]);
        }
        _ => say(&[br#","error":{"code":-32601,"message":"no such method"}}"#]),
    }
    true
}

/// The bytes of the value under this key of a JSON object that is taken to be valid.
fn member<'a>(object: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    let mut rest = object.trim_ascii_start().strip_prefix(b"{")?;
    loop {
        rest = rest.trim_ascii_start();
        let (name, after) = rest.split_at_checked(value_length(rest))?;
        let after = after.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start();
        let (value, after) = after.split_at_checked(value_length(after))?;
        if name.get(1..name.len() - 1) == Some(key) {
            return Some(value);
        }
        rest = after.trim_ascii_start().strip_prefix(b",")?;
    }
}

/// How many bytes the JSON value at the start of this text has.
fn value_length(text: &[u8]) -> usize {
    let (mut depth, mut at) = (0usize, 0);
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => at += string_length(&text[at..]) - 1,
            b'{' | b'[' => depth += 1,
            b'}' | b']' | b',' | b':' | b' ' | b'\t' | b'\r' | b'\n' if depth == 0 => return at,
            b'}' | b']' => depth -= 1,
            _ => {}
        }
        at += 1;
        if depth == 0 && matches!(byte, b'"' | b'}' | b']') {
            return at;
        }
    }
    at
}

/// How many bytes the JSON string at the start of this text has, quotes included.
fn string_length(text: &[u8]) -> usize {
    let mut at = 1;
    loop {
        match text.get(at) {
            Some(b'\\') => at += 2,
            Some(b'"') | None => return (at + 1).min(text.len()),
            Some(_) => at += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(message: &str, expected: &str) {
        let mut out = Vec::new();
        answer(message.as_bytes(), &Responses { tools: tool_list(1), text: None }, &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn echoes_the_message_byte_for_byte() {
        check(
            r#"{ "method" : "tools/call", "params":{"name":"echo","arguments":{"n":[1,{"message":2}],"message":"a \"b\" \\"}},"id":"q"}"#,
            r#"{"jsonrpc":"2.0","id":"q","result":{"content":[{"type":"text","text":"a \"b\" \\"}],"isError":false}}"#,
        );
    }

    #[test]
    fn uses_only_the_outer_id() {
        check(
            r#"{"params":{"id":1,"s":"{\"id\":2"},"id": 3 ,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":3,"result":{}}"#,
        );
    }

    #[test]
    fn ignores_notifications() {
        check(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, "");
    }

    #[test]
    fn ignores_invalid_messages() {
        check("", "");
        check("{", "");
        check(r#"{"id":1"#, "");
        check("\"", "");
    }
}
