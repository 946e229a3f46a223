//! The end of the server.

use std::net::TcpStream;

use super::client::*;
use crate::serve::HttpServer;

#[test]
fn shutdown_answers_open_requests_and_ends_streams() {
    let server = start_server(HttpServer { keep_alive: DEADLINE, ..long_timeouts() }).with_session();
    let (mut asking, mut listening, mut hanging) = (server.connect(), server.connect(), server.connect());
    listening.send(&http_request("GET", "/mcp", &format!("{SESSION}{ACCEPT}")));
    assert_eq!(listening.read_head().status, 200);
    hanging.send(&post("/mcp", SESSION, &rpc("hang")));
    server.expect_report("hanging");
    asking.send(&post("/mcp", SESSION, &rpc("slow")));
    server.expect_report("hanging");
    server.stop.cancel();
    listening.wait_for_close();
    assert!(listening.rest.ends_with(b"0\r\n\r\n"));
    server.host.release_slow_requests();
    assert!(asking.read_response().body.contains("result"), "requests in flight are answered after the stop");
    let address = server.address;
    server.shut_down();
    hanging.wait_for_close();
    assert!(TcpStream::connect(address).is_err());
}
