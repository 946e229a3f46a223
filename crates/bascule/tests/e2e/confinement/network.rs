//! Network access of confined servers.

use serde_json::json;

use super::hostile_server::{HostileServer, users};

// req: SB-04
#[test]
fn server_without_network_cannot_create_sockets() {
    for user in users() {
        let sandbox = json!({ "read": ["work"], "network": "none" });
        let hostile = HostileServer::new(user, json!({ "sandbox": sandbox }));
        for kind in
            ["AF_INET, socket.SOCK_STREAM", "AF_INET, socket.SOCK_DGRAM", "AF_INET6, socket.SOCK_STREAM"]
        {
            hostile.expect_denied(&format!("import socket; socket.socket(socket.{kind})"));
        }
        hostile.expect_denied("import socket; socket.socket(socket.AF_UNIX)");
        hostile.expect_denied("import socket; socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)");
        hostile.expect_ok("import socket; socket.socketpair()");
        hostile.expect_ok("import subprocess; subprocess.run(['true'], check=True)");
    }
}

// req: SB-04
#[test]
fn server_with_network_reaches_port() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    for user in users() {
        let hostile = HostileServer::new(user, json!({}));
        hostile.expect_ok(&format!("import socket; socket.create_connection(('127.0.0.1', {port}))"));
    }
}
