//! Decides who may speak to us at all: by `Host`, `Origin` and token.
//!
//! A page in the user's browser can reach loopback addresses, under a name of its choosing that its own name
//! server makes resolve to them. It cannot choose what the browser writes into these two headers.

use std::hint::black_box;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Instant;

use bascule_model::Secret;
use http::request::Parts;
use http::{HeaderMap, HeaderName, StatusCode, header};

use super::refusal::Refusal;

/// Who may speak to us. The default is for a loopback address; on any other there should be a token.
#[derive(Debug, Clone, Default)]
pub struct Admitted {
    /// Names that clients may call us by besides loopback names: `name` (any port) or `name:port`.
    pub hosts: Vec<String>,
    /// Where pages may come from besides loopback: `scheme://name:port`, or names as above.
    pub origins: Vec<String>,
    /// Any one of these must be shown; nobody needs one if there are none.
    pub tokens: Vec<Secret<String>>,
    /// Who may come at all; everybody where nobody is asked.
    pub peers: Option<Peers>,
}

/// Whether who has connected from a peer's address to our own may come, as it is since the moment of asking. It may take a
/// while: it is asked once of each connection, when a request has come, and of one at a time.
pub type Peers = fn(SocketAddr, SocketAddr, Instant) -> bool;

/// Whether the request may be looked at any further.
pub(super) fn admit(admitted: &Admitted, request: &Parts) -> Result<(), Refusal> {
    let refused = |what: &str| Err(Refusal::forbidden(format!("this `{what}` is not allowed")));
    let named =
        only(&request.headers, header::HOST)?.ok_or_else(|| Refusal::forbidden("`Host` is missing"))?;
    // A request may name its host in its first line too, and then that one counts.
    let in_target = request.uri.authority().map(|authority| authority.as_str());
    if !is_allowed_host(named, &admitted.hosts)
        || !in_target.is_none_or(|name| is_allowed_host(name, &admitted.hosts))
    {
        return refused("Host");
    }
    match only(&request.headers, header::ORIGIN)? {
        Some(origin) if !is_allowed_origin(origin, &admitted.origins) => refused("Origin"),
        _ => has_token(&admitted.tokens, &request.headers),
    }
}

fn only(headers: &HeaderMap, name: HeaderName) -> Result<Option<&str>, Refusal> {
    let mut values = headers.get_all(&name).iter();
    match (values.next().map(|value| value.to_str()), values.next()) {
        (None, _) => Ok(None),
        (Some(Ok(value)), None) => Ok(Some(value)),
        _ => Err(Refusal::forbidden(format!("`{name}` is given twice, or in strange letters"))),
    }
}

fn is_allowed_host(named: &str, allowed: &[String]) -> bool {
    let Some((name, port)) = split_port(named) else { return false };
    is_loopback(name) || allowed.iter().any(|allowed| is_same_host(name, port, allowed))
}

/// An entry without a port allows all of them.
fn is_same_host(name: &str, port: Option<&str>, allowed: &str) -> bool {
    split_port(allowed)
        .is_some_and(|(allowed, on)| allowed.eq_ignore_ascii_case(name) && (on.is_none() || on == port))
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

/// Takes `name`, `name:port`, `[v6]` and `[v6]:port` apart; anything else is no host.
fn split_port(named: &str) -> Option<(&str, Option<&str>)> {
    let after_name = match named.strip_prefix('[') {
        Some(rest) => rest.find(']')? + 2,
        None => named.find(':').unwrap_or(named.len()),
    };
    let (name, rest) = named.split_at_checked(after_name)?;
    let is_name =
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._[]:".contains(&b));
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

fn has_token(tokens: &[Secret<String>], headers: &HeaderMap) -> Result<(), Refusal> {
    if tokens.is_empty() {
        return Ok(());
    }
    let shown =
        headers.get(header::AUTHORIZATION).and_then(|value| bearer(value.as_bytes())).unwrap_or_default();
    // All of them are compared, so that time does not tell which one was near.
    let known = tokens.iter().fold(false, |known, token| known | is_same(shown, token.reveal().as_bytes()));
    match known {
        true => Ok(()),
        false => Err(Refusal::new(StatusCode::UNAUTHORIZED, "a bearer token is needed")
            .with(header::WWW_AUTHENTICATE, "Bearer")),
    }
}

fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

/// Takes as long for a token that is nearly right as for one that is all wrong. An empty token is nobody's.
fn is_same(shown: &[u8], token: &[u8]) -> bool {
    let differing = token.iter().enumerate().fold(0, |differing, (at, &byte)| {
        black_box(differing | (byte ^ shown.get(at).copied().unwrap_or(!byte)))
    });
    differing == 0 && shown.len() == token.len() && !token.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: GW-07
    #[test]
    fn hosts_are_loopback_names_or_configured_ones() {
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
    fn origins_are_loopback_pages_or_configured_ones() {
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
    fn only_the_whole_token_is_the_token() {
        assert!(is_same(b"abc", b"abc"));
        for wrong in ["", "ab", "abcd", "abd", "xbc", "ABC"] {
            assert!(!is_same(wrong.as_bytes(), b"abc"), "{wrong}");
        }
        assert!(!is_same(b"", b""));
        assert_eq!(bearer(b"bEaReR  abc "), Some(&b"abc"[..]));
        assert_eq!(bearer(b"Basic abcdef"), None);
        assert_eq!(bearer(b"Bear"), None);
    }
}
