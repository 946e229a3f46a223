//! Reads one HTTP request from a connection.

use std::fmt;
use std::io::{self, BufRead};

/// A received request.
#[derive(Clone, Debug, Default)]
pub struct RecordedRequest {
    /// `POST`, `GET`, `DELETE`, …
    pub method: String,
    /// The path and query.
    pub path: String,
    /// Names and values in their original spelling.
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl RecordedRequest {
    /// Returns the value of a header, ignoring case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let (_, value) = self.headers.iter().find(|(own, _)| own.eq_ignore_ascii_case(name))?;
        Some(value)
    }

    /// Reads the next request. Returns `None` at the end of the connection.
    pub(super) fn read(from: &mut impl BufRead) -> io::Result<Option<RecordedRequest>> {
        let first = read_line(from)?;
        let mut words = first.split(' ').map(str::to_owned);
        let (Some(method), Some(path)) = (words.next(), words.next()) else { return Ok(None) };
        let mut request = RecordedRequest { method, path, headers: read_headers(from)?, body: String::new() };
        let length = request.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        from.read_exact(&mut body)?;
        request.body = String::from_utf8_lossy(&body).into_owned();
        Ok(Some(request))
    }
}

impl fmt::Display for RecordedRequest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {} {:?} {}", self.method, self.path, self.headers, self.body)
    }
}

fn read_headers(from: &mut impl BufRead) -> io::Result<Vec<(String, String)>> {
    let mut headers = Vec::new();
    loop {
        let line = read_line(from)?;
        let Some((name, value)) = line.split_once(':') else { return Ok(headers) };
        headers.push((name.to_owned(), value.trim().to_owned()));
    }
}

fn read_line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    Ok(line.trim_end().to_owned())
}
