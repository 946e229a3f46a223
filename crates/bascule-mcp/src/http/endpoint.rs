//! The validated URL of a server and the headers of every request to it.

use std::fmt;

use http::Uri;
use http::header::{HeaderMap, HeaderName, HeaderValue};

/// The URL of a server and the headers of every request to it.
#[derive(Clone)]
pub struct HttpEndpoint {
    pub(super) url: Uri,
    pub(super) headers: HeaderMap,
}

impl fmt::Debug for HttpEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HttpEndpoint({})", redact_url(&self.url.to_string()))
    }
}

/// An invalid URL or header.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEndpoint {
    #[error("`{url}` is not a usable URL: {reason}")]
    Url { url: String, reason: &'static str },
    /// The value may be secret and is not shown.
    #[error("header `{0}` has a name or a value that HTTP does not allow")]
    Header(String),
}

impl HttpEndpoint {
    /// Validates an `http://` or `https://` URL and the headers.
    pub fn new<'a>(
        url: &str,
        headers: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, InvalidEndpoint> {
        let invalid = |reason| InvalidEndpoint::Url { url: redact_url(url), reason };
        let uri: Uri = url.parse().map_err(|_| invalid("it is not a URL"))?;
        match (uri.scheme_str(), uri.authority()) {
            (Some("http" | "https"), Some(host)) if !host.as_str().contains('@') => {}
            (Some("http" | "https"), Some(_)) => return Err(invalid("credentials belong in headers")),
            _ => return Err(invalid("it must begin with http:// or https://")),
        }
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let illegal = || InvalidEndpoint::Header(name.to_owned());
            let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| illegal())?;
            let mut value = HeaderValue::from_str(value).map_err(|_| illegal())?;
            value.set_sensitive(true);
            map.append(key, value);
        }
        Ok(Self { url: uri, headers: map })
    }
}

/// Hides user and query of a URL, which may be secret.
pub fn redact_url(url: &str) -> String {
    let (address, query) = url.split_once('?').map_or((url, ""), |(address, _)| (address, "?***"));
    match address.split_once("://") {
        Some((scheme, rest)) => {
            let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
            let host =
                authority.rsplit_once('@').map_or(authority.to_owned(), |(_, host)| format!("***@{host}"));
            format!("{scheme}://{host}{path}{query}")
        }
        None => format!("{address}{query}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: CL-09
    #[test]
    fn hides_secrets_of_urls() {
        for (url, shown) in [
            ("http://h:1/mcp", "http://h:1/mcp"),
            ("https://h/mcp?api_key=secret", "https://h/mcp?***"),
            ("https://user:secret@h/mcp", "https://***@h/mcp"),
            ("http://user:secret@h", "http://***@h"),
            ("/elsewhere?token=secret", "/elsewhere?***"),
        ] {
            assert_eq!(redact_url(url), shown);
        }
        let refused = HttpEndpoint::new("http://user:secret@h/", []).unwrap_err();
        assert!(!refused.to_string().contains("secret"), "{refused}");
        let endpoint = HttpEndpoint::new("http://h/?k=secret", [("authorization", "secret")]).unwrap();
        assert_eq!(format!("{endpoint:?}"), "HttpEndpoint(http://h/?***)");
    }
}
