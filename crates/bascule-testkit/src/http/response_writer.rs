//! Writes HTTP responses with a body or in chunks.

use std::io::{self, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use crate::padded_text::PaddedText;

pub(super) struct ResponseWriter {
    stream: TcpStream,
    /// The bytes of each write and the pause after it.
    pub(super) pace: Option<(usize, Duration)>,
}

impl ResponseWriter {
    pub(super) fn new(stream: TcpStream) -> ResponseWriter {
        ResponseWriter { stream, pace: None }
    }

    pub(super) fn try_clone(&self) -> io::Result<ResponseWriter> {
        Ok(ResponseWriter { stream: self.stream.try_clone()?, pace: self.pace })
    }

    pub(super) fn close(&self) {
        // The client may have closed it.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }

    pub(super) fn body(
        &mut self,
        status: u16,
        headers: &[(&str, &str)],
        body: &PaddedText,
    ) -> io::Result<()> {
        let length = body.len().to_string();
        let headers = [headers, &[("Content-Length", &length)]].concat();
        let head = head(status, &headers) + &body.head;
        // Head and body in one write: two writes would wait for a delayed acknowledgement.
        PaddedText { head, padding: body.padding, tail: body.tail.clone() }.write_to(self)
    }

    /// Writes a response without a body.
    pub(super) fn empty(&mut self, status: u16, headers: &[(&str, &str)]) -> io::Result<()> {
        self.body(status, headers, &PaddedText::from(String::new()))
    }

    /// Writes the head of a chunked response.
    pub(super) fn start_chunks(&mut self, headers: &[(&str, &str)]) -> io::Result<()> {
        let headers = [headers, &[("Transfer-Encoding", "chunked")]].concat();
        self.write_all(head(200, &headers).as_bytes())
    }

    pub(super) fn chunk(&mut self, part: &PaddedText) -> io::Result<()> {
        if part.len() == 0 {
            return Ok(()); // An empty chunk ends the body.
        }
        let head = format!("{:x}\r\n{}", part.len(), part.head);
        PaddedText { head, padding: part.padding, tail: format!("{}\r\n", part.tail) }.write_to(self)
    }

    pub(super) fn end_chunks(&mut self) -> io::Result<()> {
        self.write_all(b"0\r\n\r\n")
    }

    /// Writes a head that announces more bytes than follow.
    pub(super) fn cut_body(&mut self) -> io::Result<()> {
        let headers = [("Content-Type", "application/json"), ("Content-Length", "4096")];
        self.write_all(format!("{}{{\"jsonrpc\":\"2.0\",", head(200, &headers)).as_bytes())
    }
}

impl Write for ResponseWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some((size, pause)) = self.pace else { return self.stream.write(bytes) };
        let written = self.stream.write(&bytes[..bytes.len().min(size)])?;
        thread::sleep(pause);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

fn head(status: u16, headers: &[(&str, &str)]) -> String {
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("HTTP/1.1 {status} {}\r\n{headers}\r\n", reason(status))
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        202 => "Accepted",
        300..400 => "Redirect",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        400..500 => "Bad Request",
        _ => "Internal Server Error",
    }
}
