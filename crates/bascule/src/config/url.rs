//! The URL of a remote server.

use std::fmt;
use std::net::Ipv6Addr;

/// A checked `http://` or `https://` URL. Its query is not printed, because it may contain a key.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ServerUrl(String);

/// A text is not a server URL. Messages do not quote it, because it may contain a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    #[error("must start with `http://` or `https://`")]
    Scheme,
    #[error("must name a host, for example `https://example.org/mcp`")]
    Host,
    #[error("must have a port from 1 to 65535, or none")]
    Port,
    #[error("must not contain a user or a password: use an `Authorization` header")]
    User,
    #[error("must not have a fragment (`#…`)")]
    Fragment,
    #[error("must not contain spaces, line breaks or other characters that need percent-encoding")]
    Character,
}

impl ServerUrl {
    /// Checks a URL.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let (scheme, rest) = text.split_once("://").ok_or(UrlError::Scheme)?;
        if !["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
            return Err(UrlError::Scheme);
        }
        if text.contains('#') {
            return Err(UrlError::Fragment);
        }
        if !text.bytes().all(is_url_byte) {
            return Err(UrlError::Character);
        }
        check_authority(rest.split(['/', '?']).next().unwrap_or(rest))?;
        Ok(Self(text.into()))
    }

    /// Returns the whole URL, including its query.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn check_authority(authority: &str) -> Result<(), UrlError> {
    if authority.contains('@') {
        return Err(UrlError::User);
    }
    // The colons of an IPv6 address are inside brackets, so the last one outside precedes the port.
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (authority, None),
    };
    if !is_host(host) {
        return Err(UrlError::Host);
    }
    let is_port =
        |port: &str| port.bytes().all(|c| c.is_ascii_digit()) && !matches!(port.parse(), Ok(0u16) | Err(_));
    if port.is_none_or(is_port) { Ok(()) } else { Err(UrlError::Port) }
}

fn is_host(host: &str) -> bool {
    match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.bytes().all(|c| c.is_ascii_alphanumeric() || b"-._".contains(&c)),
    }
}

fn is_url_byte(c: u8) -> bool {
    c.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&c)
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.split_once('?') {
            Some((address, _)) => write!(f, "{address}?***"),
            None => f.write_str(&self.0),
        }
    }
}

impl fmt::Debug for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{self}`")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: BR-01
    #[test]
    fn accepts_common_urls() {
        for text in [
            "http://mcp-db:8080/sse",
            "https://example.org",
            "HTTPS://Example.org:443?x=1",
            "http://127.0.0.1:1/mcp/",
            "http://[::1]:7420/mcp",
            "http://[::1]",
            "http://my_service/a%20b/~c;d=e,f@g:h",
        ] {
            assert_eq!(ServerUrl::parse(text).map(|url| url.0), Ok(text.into()));
        }
    }

    #[test]
    fn refuses_invalid_urls_with_the_reason() {
        use UrlError::*;
        let cases = [
            ("", Scheme),
            ("example.org/mcp", Scheme),
            ("ftp://example.org", Scheme),
            ("http://", Host),
            ("http:///mcp", Host),
            ("http://:80", Host),
            ("http://?x", Host),
            ("http://a:b:80", Host),
            ("http://[nope]/", Host),
            ("http://[::1", Host),
            ("http://a%20b/", Host),
            ("http://a:", Port),
            ("http://a:0", Port),
            ("http://a:65536", Port),
            ("http://a:+80", Port),
            ("http://me:secret@a/", User),
            ("http://a/#b", Fragment),
            ("http://a/b c", Character),
            ("http://a/\r\nX: y", Character),
            ("http://exämple.org", Character),
        ];
        for (text, error) in cases {
            assert_eq!(ServerUrl::parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn does_not_print_the_query() {
        let url = ServerUrl::parse("https://a/mcp?key=hunter2").unwrap();
        assert_eq!(format!("{url} {url:?}"), "https://a/mcp?*** `https://a/mcp?***`");
        assert_eq!(url.as_str(), "https://a/mcp?key=hunter2");
    }
}
