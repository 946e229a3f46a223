//! Reads one HTTP request from a connection, whole.

use std::fmt;
use std::io::{self, BufRead};

/// A request as it was received.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// `POST`, `GET`, `DELETE`, …
    pub method: String,
    /// The path and query.
    pub path: String,
    /// Names and values, as they were spelled.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: String,
}

impl Request {
    /// The value of a header, whatever the spelling of its name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let (_, value) = self.headers.iter().find(|(own, _)| own.eq_ignore_ascii_case(name))?;
        Some(value)
    }

    /// The next request of a connection, or nothing at its end.
    pub(super) fn read(from: &mut impl BufRead) -> io::Result<Option<Request>> {
        let first = read_line(from)?;
        let mut words = first.split(' ').map(str::to_owned);
        let (Some(method), Some(path)) = (words.next(), words.next()) else { return Ok(None) };
        let mut request = Request { method, path, headers: read_headers(from)?, body: String::new() };
        let length = request.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        from.read_exact(&mut body)?;
        request.body = String::from_utf8_lossy(&body).into_owned();
        Ok(Some(request))
    }
}

impl fmt::Display for Request {
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
