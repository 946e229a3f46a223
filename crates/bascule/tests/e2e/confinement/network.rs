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

// req: SB-04, SB-08
#[test]
fn server_reaches_no_socket_of_another_program() {
    for user in users() {
        for sandbox in [json!("standard"), json!({ "read": ["work"], "write": ["work"], "network": "full" })]
        {
            let hostile = HostileServer::new(user, json!({ "sandbox": sandbox }));
            let listener = std::os::unix::net::UnixListener::bind(hostile.path("work/socket")).unwrap();
            listener.set_nonblocking(true).unwrap();
            for kind in ["SOCK_STREAM", "SOCK_DGRAM", "SOCK_SEQPACKET"] {
                hostile
                    .expect_denied(&format!("import socket; socket.socket(socket.AF_UNIX, socket.{kind})"));
            }
            // A datagram socket of a pair can be connected to a path.
            for kind in ["SOCK_DGRAM", "SOCK_RAW", "SOCK_DGRAM | socket.SOCK_CLOEXEC"] {
                hostile.expect_denied(&format!(
                    "import socket; a, b = socket.socketpair(socket.AF_UNIX, socket.{kind}); a.connect('socket')"
                ));
            }
            let failed = hostile.attempt("import socket; a, b = socket.socketpair(); a.connect('socket')");
            assert!(failed.is_err());
            for family in ["AF_VSOCK", "AF_PACKET", "AF_ALG", "AF_BLUETOOTH"] {
                hostile.expect_denied(&format!(
                    "import socket; socket.socket(socket.{family}, socket.SOCK_DGRAM)"
                ));
            }
            hostile.expect_denied("import socket; socket.socketpair(socket.AF_INET, socket.SOCK_STREAM)");
            hostile.expect_ok(
                "import socket; socket.socket(); a, b = socket.socketpair(); a.send(b'x'); b.recv(1)",
            );
            hostile.expect_ok("import asyncio; asyncio.run(asyncio.sleep(0))");
            assert!(listener.accept().is_err(), "nothing has connected");
        }
    }
}

// req: SB-04, SB-08
#[test]
fn unix_sockets_can_be_allowed() {
    for user in users() {
        for sandbox in [
            json!({ "profile": "standard", "unixSockets": true }),
            json!({ "read": ["work"], "write": ["work"], "network": "none", "unixSockets": true }),
        ] {
            let hostile = HostileServer::new(user, json!({ "sandbox": sandbox }));
            let listener = std::os::unix::net::UnixListener::bind(hostile.path("work/socket")).unwrap();
            let allow = std::os::unix::fs::PermissionsExt::from_mode(0o777);
            std::fs::set_permissions(hostile.path("work/socket"), allow).unwrap();
            hostile.expect_ok("import socket; socket.socket(socket.AF_UNIX).connect('socket')");
            listener.accept().unwrap();
        }
    }
}

// req: SB-07, US-05
#[test]
fn temporary_folder_has_room_for_names_of_sockets() {
    for user in users() {
        let sandbox = json!({ "profile": "standard", "unixSockets": true });
        let hostile = HostileServer::new(user, json!({ "sandbox": sandbox }));
        // As Chromium does.
        let folder = hostile.expect_ok(
            "import socket, tempfile
folder = tempfile.mkdtemp('xxxxxxxxxxxxxxxxxxxxxx')
with socket.socket(socket.AF_UNIX) as s: s.bind(folder + '/SingletonSocket')
print(os.path.dirname(folder))",
        );
        assert!(std::fs::symlink_metadata(&folder).is_err(), "`{folder}` is left");
    }
}
