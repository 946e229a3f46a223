//! Sessions and the endpoints they belong to.

use super::client::*;

// req: GW-01
#[test]
fn sessions_belong_to_one_endpoint() {
    let server = start_server(long_timeouts()).with_session();
    let response = server.request(&post("/servers/a%20b/mcp?x=y", "", INITIALIZE));
    assert_eq!(response.header("mcp-session-id"), Some("s-of-a b"));
    let alone = "Mcp-Session-Id: s-of-a b\r\n";
    assert_eq!(server.request(&post("/servers/a%20b/mcp", alone, &rpc("echo"))).status, 200);
    assert_eq!(server.request(&post("/mcp", alone, &rpc("echo"))).status, 404);
    assert_eq!(server.request(&post("/servers/a%20b/mcp", SESSION, &rpc("echo"))).status, 404);
}

// req: GW-01
#[test]
fn refused_initialize_starts_no_session() {
    let server = start_server(long_timeouts());
    let response = server.request(&post("/mcp", "", &INITIALIZE.replace("{}", "\"refuse\"")));
    assert_eq!((response.status, response.header("mcp-session-id")), (200, None));
    assert!(response.body.contains("-32602"));
}

#[test]
fn requires_a_session_after_initialize() {
    let unknown = "Mcp-Session-Id: other\r\n";
    for body in [&rpc("echo"), NOTIFICATION] {
        check(&post("/mcp", "", body), 400, "Mcp-Session-Id");
        check(&post("/mcp", unknown, body), 404, "no such session");
        check(&post("/mcp", "Mcp-Session-Id: \u{e9}\r\n", body), 404, "no such session");
    }
    check(&post("/mcp", unknown, INITIALIZE), 404, "no such session");
    check(&post("/mcp", "", &rpc("echo")), 400, r#""id":"q""#);
    check(&http_request("GET", "/mcp", ACCEPT), 400, "Mcp-Session-Id");
    check(&http_request("GET", "/mcp", &format!("{ACCEPT}{unknown}")), 404, "no such session");
    check(&http_request("DELETE", "/mcp", ""), 400, "Mcp-Session-Id");
    check(&http_request("DELETE", "/mcp", unknown), 404, "no such session");
}

#[test]
fn delete_ends_the_session() {
    let server = start_server(long_timeouts()).with_session();
    assert_eq!(server.request(&http_request("DELETE", "/mcp", SESSION)).status, 204);
    assert_eq!(server.request(&http_request("DELETE", "/mcp", SESSION)).status, 404);
    assert_eq!(server.request(&post("/mcp", SESSION, &rpc("echo"))).status, 404);
}
