//! Writes HTTP responses: whole bodies and chunked streams, at the pace that was asked for.

use std::io::{self, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use crate::line::Line;

/// The writing side of a connection.
pub(super) struct Answer {
    stream: TcpStream,
    /// So many bytes at a time, with a pause after each.
    pub(super) pace: Option<(usize, Duration)>,
}

impl Answer {
    pub(super) fn to(stream: TcpStream) -> Answer {
        Answer { stream, pace: None }
    }

    /// The same connection, to be written to from elsewhere too.
    pub(super) fn again(&self) -> io::Result<Answer> {
        Ok(Answer { stream: self.stream.try_clone()?, pace: self.pace })
    }

    /// Cuts the connection.
    pub(super) fn cut(&self) {
        // It may have gone by itself.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }

    /// A response with a body.
    pub(super) fn body(&mut self, status: u16, headers: &[(&str, &str)], body: &Line) -> io::Result<()> {
        let length = body.len().to_string();
        let headers = [headers, &[("Content-Length", &length)]].concat();
        let head = head(status, &headers) + &body.head;
        // Head and body in one write: two would meet the other side's delayed acknowledgement.
        Line { head, padding: body.padding, tail: body.tail.clone() }.write_to(self)
    }

    /// A response without a body.
    pub(super) fn empty(&mut self, status: u16, headers: &[(&str, &str)]) -> io::Result<()> {
        self.body(status, headers, &Line::from(String::new()))
    }

    /// The head of a response whose body follows in chunks.
    pub(super) fn start_chunks(&mut self, headers: &[(&str, &str)]) -> io::Result<()> {
        let headers = [headers, &[("Transfer-Encoding", "chunked")]].concat();
        self.write_all(head(200, &headers).as_bytes())
    }

    pub(super) fn chunk(&mut self, part: &Line) -> io::Result<()> {
        if part.len() == 0 {
            return Ok(()); // An empty chunk would mean the end.
        }
        let head = format!("{:x}\r\n{}", part.len(), part.head);
        Line { head, padding: part.padding, tail: format!("{}\r\n", part.tail) }.write_to(self)
    }

    pub(super) fn end_chunks(&mut self) -> io::Result<()> {
        self.write_all(b"0\r\n\r\n")
    }

    /// A head that promises more than comes.
    pub(super) fn cut_body(&mut self) -> io::Result<()> {
        let headers = [("Content-Type", "application/json"), ("Content-Length", "4096")];
        self.write_all(format!("{}{{\"jsonrpc\":\"2.0\",", head(200, &headers)).as_bytes())
    }
}

impl Write for Answer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some((at_a_time, pause)) = self.pace else { return self.stream.write(bytes) };
        let written = self.stream.write(&bytes[..bytes.len().min(at_a_time)])?;
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
