//! No network means no sockets.

use serde_json::json;

use super::hostile::{Hostile, users};

// req: SB-04
#[test]
fn without_a_network_no_socket_of_any_kind_can_be_made() {
    for user in users() {
        let sandbox = json!({ "read": ["work"], "network": "none" });
        let hostile = Hostile::new(user, json!({ "sandbox": sandbox }));
        for kind in
            ["AF_INET, socket.SOCK_STREAM", "AF_INET, socket.SOCK_DGRAM", "AF_INET6, socket.SOCK_STREAM"]
        {
            hostile.must_not(&format!("import socket; socket.socket(socket.{kind})"));
        }
        hostile.must_not("import socket; socket.socket(socket.AF_UNIX)");
        hostile.must_not("import socket; socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)");
        hostile.may("import socket; socket.socketpair()");
        hostile.may("import subprocess; subprocess.run(['true'], check=True)");
    }
}

// req: SB-04
#[test]
fn with_a_network_it_can_reach_a_port() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    for user in users() {
        let hostile = Hostile::new(user, json!({}));
        hostile.may(&format!("import socket; socket.create_connection(('127.0.0.1', {port}))"));
    }
}
