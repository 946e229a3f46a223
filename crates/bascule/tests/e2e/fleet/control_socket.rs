//! The control socket against clients without the token, invalid requests and sandboxed servers.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::serve_process::ServeProcess;
use crate::confinement::hostile_server::{HostileServer, quoted, users};
use crate::support::demo_server;
use crate::support::{CommandOutput, eventually, text};

/// Sends a token and a request, and returns the line of the answer, if there is one.
fn send(socket: &Path, token: &str, request: &str) -> Option<Value> {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(format!("{token}\n{request}\n").as_bytes()).unwrap();
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).unwrap();
    (!answer.is_empty()).then(|| serde_json::from_str(&answer).unwrap())
}

#[test]
fn refuses_requests_without_token() {
    let bridge = ServeProcess::start(json!({ "counter": demo_server("counter") }));
    bridge.bascule.call("counter:increment", "{}");
    let (socket, token) =
        (bridge.socket_file("sock"), std::fs::read_to_string(bridge.socket_file("token")).unwrap());
    let params = json!({ "tool": "counter:increment", "arguments": {} });
    for wrong in ["", "guess", &token[1..], &format!("{token}0"), &"0".repeat(token.len())] {
        for what in ["identity", "status", "tools", "events", "refresh", "call"] {
            let request = json!({ "what": what, "params": params }).to_string();
            let answer = send(&socket, wrong, &request).expect("closed without an error message");
            assert_eq!(answer["error"]["code"], "POLICY_DENIED", "{what} {answer}");
        }
    }
    let value = bridge.bascule.call("counter:increment", "{}")["structuredContent"]["value"].clone();
    assert_eq!(value, 2, "no call got through");
    let identity = json!({ "what": "identity" }).to_string();
    assert_eq!(send(&socket, &token, &identity).unwrap()["ok"]["pid"], bridge.pid());
}

// req: BR-12
#[test]
fn survives_invalid_requests() {
    let bridge = ServeProcess::start(json!({ "counter": demo_server("counter") }));
    let (socket, token) =
        (bridge.socket_file("sock"), std::fs::read_to_string(bridge.socket_file("token")).unwrap());
    for invalid in ["", "hello", "[]", "{}", r#"{"what":"dance"}"#, "\u{0}\u{0}"] {
        assert_eq!(send(&socket, &token, invalid), None, "{invalid:?}");
    }
    let long = send(&socket, &"x".repeat(100_000), "{}").unwrap();
    assert_eq!(long["error"]["code"], "POLICY_DENIED");
    let wrong_type = json!({ "what": "call", "params": { "tool": 1 } }).to_string();
    assert_eq!(send(&socket, &token, &wrong_type).unwrap()["error"]["code"], "INVALID_INPUT");
    bridge.bascule.call("counter:increment", "{}");
}

// req: BR-12
#[test]
fn serves_commands_beside_silent_connections() {
    let bridge = ServeProcess::start(json!({ "counter": demo_server("counter") }));
    let socket = bridge.socket_file("sock");
    let silent: Vec<UnixStream> = (0..200).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    bridge.bascule.call("counter:increment", "{}");
    let value = bridge.bascule.call("counter:increment", "{}")["structuredContent"]["value"].clone();
    assert_eq!(value, 2, "the running bridge has answered");
    drop(silent);
}

struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

// req: SB-02, SB-04
#[test]
fn refuses_sandboxed_server_at_the_socket() {
    for user in users() {
        let hostile =
            HostileServer::new(user, json!({ "sandbox": { "profile": "standard", "unixSockets": true } }));
        let command = |arguments: &[&str]| {
            let mut command = hostile.command(arguments);
            // Without `XDG_RUNTIME_DIR` the socket is in the home folder.
            command.env_remove("XDG_RUNTIME_DIR").stdout(Stdio::piped()).stderr(Stdio::piped());
            command
        };
        let _bridge = KillOnDrop(
            command(&["serve", "--auth", "none", "--listen", "127.0.0.1:0"])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap(),
        );
        eventually("the bridge runs", || command(&["status"]).output().unwrap().status.success());
        let attempt = |code: &str| {
            let arguments = json!({ "code": code }).to_string();
            let output =
                CommandOutput::from(command(&["call", "h:try", &arguments, "--json"]).output().unwrap());
            (output.code, text(&output.document()["result"]))
        };
        let folder = hostile.path(".local/share/bascule/run");
        let socket_file = |extension: &str| {
            let files = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path());
            files.into_iter().find(|path| path.extension().is_some_and(|own| own == extension)).unwrap()
        };
        let (socket, token) = (quoted(&socket_file("sock")), quoted(&socket_file("token")));
        for code in [
            format!("print(open({token}).read())"),
            format!("print(os.listdir({}))", quoted(&folder)),
            format!("os.unlink({socket})"),
        ] {
            let (code, printed) = attempt(&code);
            assert!(
                code == Some(1) && printed.starts_with("PermissionError"),
                "{user:?}: {code:?} {printed}"
            );
        }
        let guess = String::from("guess\n{\"what\":\"status\"}");
        let connect = format!(
            "import socket as s\nc = s.socket(s.AF_UNIX)\nc.settimeout(30)\nc.connect({socket})\nc.sendall({guess:?}.encode() + b'\\n')\nprint(c.recv(4096).decode())"
        );
        let (_, printed) = attempt(&connect);
        // The bridge closes the connection because of the peer, before it checks the token.
        let is_closed =
            ["ConnectionResetError", "BrokenPipeError"].iter().any(|error| printed.starts_with(error));
        assert!(is_closed || printed.trim().is_empty(), "{user:?}: {printed}");
    }
}
