//! Checks the `Host`, `Origin` and token of a request.
//!
//! A page in the user's browser can reach loopback addresses under a name that its own name server resolves to them (DNS
//! rebinding). It cannot choose the values that the browser writes into `Host` and `Origin`.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use bascule_model::Secret;
use http::request::Parts;
use http::{HeaderMap, StatusCode, header};

use super::http_error::HttpError;
use super::router::RouteAccess;

/// The requests that are accepted. The default is for a loopback address; any other address needs a token.
#[derive(Debug, Clone, Default)]
pub struct AccessPolicy {
    /// Accepted values of `Host` besides loopback names: `name` (any port) or `name:port`.
    pub hosts: Vec<String>,
    /// Accepted values of `Origin` besides loopback: `scheme://name:port`, or names as above.
    pub origins: Vec<String>,
    /// Accepted bearer tokens. If there are none, no token is needed.
    pub tokens: Vec<Secret<String>>,
    /// Decides about the peer of each connection. `None` accepts every peer.
    pub peers: Option<PeerPredicate>,
}

/// Returns true if the peer may connect. Receives the peer's address and our own. It may block: it runs once for each
/// connection, when a request has arrived, and for one connection at a time.
pub type PeerPredicate = fn(SocketAddr, SocketAddr) -> bool;

/// Checks `Host`, `Origin` and, unless the route is public, the token. Returns the position of the token.
pub(super) fn check_headers(
    policy: &AccessPolicy,
    request: &Parts,
    access: RouteAccess,
) -> Result<Option<usize>, HttpError> {
    let AddressHeaders { host, origin } = AddressHeaders::find(&request.headers)?;
    let host = host.ok_or_else(|| HttpError::forbidden("the header `Host` is missing"))?;
    // The request target may name a host too, and then that one counts.
    let target = request.uri.authority().map(|authority| authority.as_str());
    if !is_allowed_host(host, &policy.hosts)
        || !target.is_none_or(|host| is_allowed_host(host, &policy.hosts))
    {
        return Err(HttpError::forbidden("the value of `Host` is not allowed (see `allowedHosts`)"));
    }
    match origin {
        Some(origin) if !is_allowed_origin(origin, &policy.origins) => {
            Err(HttpError::forbidden("the value of `Origin` is not allowed (see `allowedOrigins`)"))
        }
        _ if access == RouteAccess::Public => Ok(None),
        _ => check_token(&policy.tokens, &request.headers),
    }
}

/// The values of `Host` and `Origin`, found in one pass: a look-up of each would take longer.
#[derive(Default)]
struct AddressHeaders<'a> {
    host: Option<&'a str>,
    origin: Option<&'a str>,
}

impl<'a> AddressHeaders<'a> {
    fn find(headers: &'a HeaderMap) -> Result<Self, HttpError> {
        let mut found = Self::default();
        for (name, value) in headers {
            let found = match name {
                _ if name == header::HOST => &mut found.host,
                _ if name == header::ORIGIN => &mut found.origin,
                _ => continue,
            };
            match value.to_str() {
                Ok(value) if found.is_none() => *found = Some(value),
                _ => {
                    let message = format!("the header `{name}` is repeated, or is not visible ASCII");
                    return Err(HttpError::forbidden(message));
                }
            }
        }
        Ok(found)
    }
}

fn is_allowed_host(host: &str, allowed: &[String]) -> bool {
    let Some((name, port)) = split_port(host) else { return false };
    is_loopback(name) || allowed.iter().any(|allowed| is_same_host(name, port, allowed))
}

/// An entry without a port allows all ports.
fn is_same_host(name: &str, port: Option<&str>, allowed: &str) -> bool {
    split_port(allowed).is_some_and(|(allowed_name, allowed_port)| {
        allowed_name.eq_ignore_ascii_case(name) && (allowed_port.is_none() || allowed_port == port)
    })
}

fn is_allowed_origin(origin: &str, allowed: &[String]) -> bool {
    if allowed.iter().any(|allowed| allowed.trim_end_matches('/').eq_ignore_ascii_case(origin)) {
        return true;
    }
    let Some((scheme, rest)) = origin.split_once("://") else { return false };
    let Some((name, port)) = split_port(rest) else { return false };
    let is_web = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
    is_web && (is_loopback(name) || allowed.iter().any(|allowed| is_same_host(name, port, allowed)))
}

/// Splits `name`, `name:port`, `[v6]` and `[v6]:port`. Returns `None` for anything else.
fn split_port(host: &str) -> Option<(&str, Option<&str>)> {
    let after_name = match host.strip_prefix('[') {
        Some(rest) => rest.find(']')? + 2,
        None => host.bytes().position(|byte| byte == b':').unwrap_or(host.len()),
    };
    let (name, rest) = host.split_at_checked(after_name)?;
    let is_of_name =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'[' | b']' | b':');
    let is_name = !name.is_empty() && name.bytes().all(is_of_name);
    match rest.strip_prefix(':') {
        Some(port) if is_name => port.bytes().all(|b| b.is_ascii_digit()).then_some((name, Some(port))),
        None if is_name && rest.is_empty() => Some((name, None)),
        _ => None,
    }
}

fn is_loopback(name: &str) -> bool {
    if let Some(v6) = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return v6.parse::<Ipv6Addr>().is_ok_and(|address| address.is_loopback());
    }
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<Ipv4Addr>().is_ok_and(|address| address.is_loopback())
}

fn check_token(tokens: &[Secret<String>], headers: &HeaderMap) -> Result<Option<usize>, HttpError> {
    if tokens.is_empty() {
        return Ok(None);
    }
    let authorization = headers.get(header::AUTHORIZATION);
    let presented = authorization.and_then(|value| bearer(value.as_bytes()));
    // Compares with all of them, so that the time does not reveal which one was close.
    let find = |found, (position, token): (usize, &Secret<String>)| match token
        .matches(presented.unwrap_or_default())
    {
        true => Some(position),
        false => found,
    };
    match tokens.iter().enumerate().fold(None, find) {
        Some(position) => Ok(Some(position)),
        None => Err(unauthorized(authorization.is_some(), presented.is_some())),
    }
}

/// Says what is wrong with the token, and how RFC 6750 tells that to programs.
fn unauthorized(has_header: bool, has_token: bool) -> HttpError {
    const HELP: &str = "`bascule token` prints the token";
    let (reason, challenge) = match (has_header, has_token) {
        (false, _) => ("a token is required: send the header `Authorization: Bearer TOKEN`", "Bearer"),
        (true, false) => {
            ("the header `Authorization` must be `Bearer TOKEN`", "Bearer error=\"invalid_request\"")
        }
        (true, true) => ("the bearer token is wrong", "Bearer error=\"invalid_token\""),
    };
    HttpError::new(StatusCode::UNAUTHORIZED, format!("{reason}; {HELP}"))
        .with_header(header::WWW_AUTHENTICATE, challenge)
}

fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: GW-07
    #[test]
    fn accepts_loopback_and_configured_hosts() {
        let allowed = ["bridge.example".to_owned(), "other.example:8080".to_owned()];
        for good in [
            "localhost",
            "LocalHost:3000",
            "127.0.0.1",
            "127.9.9.9:1",
            "[::1]",
            "[::1]:80",
            "[0:0:0:0:0:0:0:1]",
            "bridge.example",
            "BRIDGE.example:99",
            "other.example:8080",
        ] {
            assert!(is_allowed_host(good, &allowed), "{good}");
        }
        for bad in [
            "",
            ":80",
            "evil.example",
            "localhost.evil.example",
            "evil.example:80",
            "127.0.0.1.evil.example",
            "128.0.0.1",
            "[::2]",
            "[::1",
            "[::1]x",
            "::1",
            "localhost:80:80",
            "localhost:x",
            "localhost@evil.example",
            "other.example",
            "other.example:80",
            "bridge.example.evil",
            "0.0.0.0",
            "127.1",
            "[",
            "[]",
            "é",
        ] {
            assert!(!is_allowed_host(bad, &allowed), "{bad}");
        }
    }

    // req: GW-07
    #[test]
    fn accepts_loopback_and_configured_origins() {
        let allowed =
            ["https://app.example".to_owned(), "any.example".to_owned(), "vscode-webview://x".to_owned()];
        for good in [
            "http://localhost",
            "https://127.0.0.1:5173",
            "http://[::1]:80",
            "https://app.example",
            "http://any.example:1",
            "vscode-webview://x",
        ] {
            assert!(is_allowed_origin(good, &allowed), "{good}");
        }
        for bad in [
            "null",
            "",
            "http://app.example",
            "https://app.example:444",
            "http://localhost.evil.example",
            "file://localhost",
            "http://evil.example",
            "localhost",
            "http://",
            "https://app.example.evil.example",
        ] {
            assert!(!is_allowed_origin(bad, &allowed), "{bad}");
        }
    }

    // req: GW-07
    #[test]
    fn reads_bearer_tokens() {
        assert_eq!(bearer(b"bEaReR  abc "), Some(&b"abc"[..]));
        assert_eq!(bearer(b"Basic abcdef"), None);
        assert_eq!(bearer(b"Bear"), None);
    }
}
