//! Paths and methods.

use super::access::with_tokens;
use super::client::*;
use crate::serve::{AccessPolicy, HttpServer};
use tokio::sync::watch;

#[test]
fn refuses_unknown_paths_and_methods() {
    for path in [
        "/",
        "/mcp/",
        "/mcpx",
        "/servers//mcp",
        "/servers/a/b/mcp",
        "/servers/mcp",
        "/servers/%zz/mcp",
        "/servers/%f/mcp",
        "/servers/%ff/mcp",
    ] {
        check(&http_request("GET", path, ACCEPT), 404, "nothing is served");
    }
    let server = start_server(long_timeouts());
    for method in ["PUT", "OPTIONS", "PATCH", "HEAD"] {
        let response = server.request_head(&http_request(method, "/mcp", ""));
        assert_eq!((response.status, response.header("allow")), (405, Some("POST, GET, DELETE")), "{method}");
    }
}

// req: GW-07
#[test]
fn health_check_needs_no_token_but_an_allowed_host() {
    let policy = AccessPolicy { peers: Some(|_, _| false), ..with_tokens(&["one"]) };
    let server = start_server(HttpServer { access: watch::channel(policy).1, ..long_timeouts() });
    let response = server.request(&http_request("GET", "/healthz", ""));
    assert_eq!((response.status, &*response.body), (200, "ok"));
    assert_eq!(response.header("content-type"), Some("text/plain"));
    let foreign = http_request("GET", "/healthz", "").replace("127.0.0.1", "evil.example");
    assert_eq!(server.request(&foreign).status, 403);
    let origin = http_request("GET", "/healthz", "Origin: http://evil.example\r\n");
    assert_eq!(server.request(&origin).status, 403);
    for (method, path) in [("POST", "/healthz"), ("GET", "/healthz/"), ("GET", "/healthz/x")] {
        assert_eq!(server.request(&http_request(method, path, "")).status, 401, "{method} {path}");
    }
}
