//! The table of HTTP routes: a method and a path pattern lead to a handler.

use std::pin::Pin;

use http::request::Parts;
use http::{Method, Response, StatusCode};
use hyper::body::Incoming;
use percent_encoding::percent_decode_str;
use tokio::sync::SemaphorePermit;

use super::connections::ConnectionState;
use super::http_error::HttpError;
use super::peer_id::PeerId;
use super::response_body::ResponseContent;
use super::service::{HttpService, response_of_type};

/// The future of a handler. It is boxed because each connection would otherwise have room for the largest one.
pub type RouteFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Response<ResponseContent>, HttpError>> + Send + 'a>>;

type RouteHandler = Box<dyn for<'a> Fn(RouteRequest<'a>) -> RouteFuture<'a> + Send + Sync>;

/// A request whose access has been checked.
pub struct RouteRequest<'a> {
    /// The request line and the headers.
    pub head: &'a Parts,
    /// The values of the pattern's parameters.
    pub params: Vec<String>,
    /// The sender, as far as it is known.
    pub sender: PeerId,
    pub(super) connection: &'a ConnectionState,
    pub(super) service: &'a HttpService,
    /// `None` after an attempt to read it whose rest must not be read.
    pub(super) body: &'a mut Option<Incoming>,
    /// The share of the budget for large bodies. It is held while the request is handled.
    pub(super) body_permit: Option<SemaphorePermit<'a>>,
}

/// The checks in front of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteAccess {
    /// `Host`, `Origin`, token and peer.
    Clients,
    /// `Host` and `Origin` only. The response must not depend on the state of the program.
    Public,
}

/// A text for operators. The response is 503 unless it is available.
pub struct TextPage {
    pub media_type: &'static str,
    pub is_available: bool,
    pub text: String,
}

pub(super) struct Route {
    method: Method,
    pattern: PathPattern,
    pub(super) access: RouteAccess,
    pub(super) handler: RouteHandler,
}

/// The routes of an HTTP server.
#[derive(Default)]
pub struct Router(Vec<Route>);

/// The result of a lookup.
pub(super) enum RouteMatch<'a> {
    Found(&'a Route, Vec<String>),
    /// The path exists for these methods only.
    OtherMethods(String),
    NotFound,
}

impl Router {
    /// Adds a route. A segment of the pattern in braces (`/servers/{name}`) matches any one segment, and the handler
    /// receives it percent-decoded.
    pub fn route(
        mut self,
        method: Method,
        pattern: &'static str,
        access: RouteAccess,
        handler: impl for<'a> Fn(RouteRequest<'a>) -> RouteFuture<'a> + Send + Sync + 'static,
    ) -> Self {
        self.0.push(Route { method, pattern: PathPattern::new(pattern), access, handler: Box::new(handler) });
        self
    }

    /// Adds `GET /healthz`, which responds with `ok` while the program accepts requests.
    pub fn health_check(self) -> Self {
        self.route(Method::GET, "/healthz", RouteAccess::Public, |_| {
            Box::pin(async { Ok(response_of_type("text/plain", ResponseContent::Buffer("ok".into()))) })
        })
    }

    /// Adds `GET` of a text that is made for each request, for clients with access.
    pub fn text_page(self, path: &'static str, make: impl Fn() -> TextPage + Send + Sync + 'static) -> Self {
        self.route(Method::GET, path, RouteAccess::Clients, move |_| {
            let TextPage { media_type, is_available, text } = make();
            let mut response = response_of_type(media_type, ResponseContent::Buffer(text.into()));
            if !is_available {
                *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            }
            Box::pin(async { Ok(response) })
        })
    }

    pub(super) fn find(&self, method: &Method, path: &str) -> RouteMatch<'_> {
        for route in self.0.iter().filter(|route| route.method == *method) {
            if let Some(params) = route.pattern.find_params(path) {
                return RouteMatch::Found(route, params);
            }
        }
        let others = self.0.iter().filter(|route| route.pattern.find_params(path).is_some());
        let allowed: Vec<&str> = others.map(|route| route.method.as_str()).collect();
        match allowed.is_empty() {
            true => RouteMatch::NotFound,
            false => RouteMatch::OtherMethods(allowed.join(", ")),
        }
    }
}

/// A path with parameters.
struct PathPattern {
    start: &'static str,
    /// The text behind each parameter.
    rest: Vec<&'static str>,
}

impl PathPattern {
    fn new(pattern: &'static str) -> Self {
        let mut parts = pattern.split('{');
        let start = parts.next().unwrap_or_default();
        let rest = parts.map(|part| part.split_once('}').expect("a brace of a pattern is closed").1);
        Self { start, rest: rest.collect() }
    }

    /// Returns the values of the parameters if the path matches.
    fn find_params(&self, path: &str) -> Option<Vec<String>> {
        let mut path = path.strip_prefix(self.start)?;
        let mut params = Vec::with_capacity(self.rest.len());
        for text in &self.rest {
            let (segment, rest) =
                path.split_at(path.bytes().position(|byte| byte == b'/').unwrap_or(path.len()));
            params.push(decode(segment)?);
            path = rest.strip_prefix(text)?;
        }
        path.is_empty().then_some(params)
    }
}

fn decode(segment: &str) -> Option<String> {
    if !segment.contains('%') {
        return (!segment.is_empty()).then(|| segment.to_owned());
    }
    let text = percent_decode_str(segment).decode_utf8().ok()?;
    // A remaining percent sign is an invalid escape.
    (!text.is_empty() && !text.contains('%')).then(|| text.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &'static str, path: &str, expected: Option<&[&str]>) {
        let params = PathPattern::new(pattern).find_params(path);
        let params = params.as_ref().map(|params| params.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(params.as_deref(), expected, "{pattern} {path}");
    }

    #[test]
    fn matches_literal_pattern_with_whole_path() {
        check("/mcp", "/mcp", Some(&[]));
        for path in ["/", "", "/mcp/", "/mcpx", "/MCP", "//mcp", "/%6dcp"] {
            check("/mcp", path, None);
        }
    }

    #[test]
    fn decodes_parameters() {
        check("/servers/{name}/mcp", "/servers/a%20b/mcp", Some(&["a b"]));
        check("/{a}/{b}", "/x/%C3%A9", Some(&["x", "é"]));
        for name in ["", "a/b", "%zz", "%f", "%ff"] {
            check("/servers/{name}/mcp", &format!("/servers/{name}/mcp"), None);
        }
        check("/servers/{name}/mcp", "/servers/mcp", None);
    }
}
