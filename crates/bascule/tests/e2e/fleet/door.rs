//! The control socket, from the side of those who should not be there.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::serving::Serving;
use crate::commands::demo;
use crate::confinement::hostile::{Hostile, quoted, users};
use crate::support::{Ran, eventually, text};

/// Shows this token at the socket, asks this, and gives the one line that is answered, if one is.
fn say(socket: &Path, token: &str, question: &str) -> Option<Value> {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(format!("{token}\n{question}\n").as_bytes()).unwrap();
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).unwrap();
    (!answer.is_empty()).then(|| serde_json::from_str(&answer).unwrap())
}

#[test]
fn without_the_token_nothing_is_done() {
    let serving = Serving::start(json!({ "counter": demo("counter") }));
    serving.bascule.call("counter:increment", "{}");
    let (socket, token) = (serving.place("sock"), std::fs::read_to_string(serving.place("token")).unwrap());
    let params = json!({ "tool": "counter:increment", "arguments": {} });
    for wrong in ["", "guess", &token[1..], &format!("{token}0"), &"0".repeat(token.len())] {
        for what in ["identity", "status", "tools", "events", "refresh", "call"] {
            let question = json!({ "what": what, "params": params }).to_string();
            let answer = say(&socket, wrong, &question).expect("it is refused in words");
            assert_eq!(answer["error"]["code"], "POLICY_DENIED", "{what} {answer}");
        }
    }
    let value = serving.bascule.call("counter:increment", "{}")["structuredContent"]["value"].clone();
    assert_eq!(value, 2, "no call got through");
    let identity = json!({ "what": "identity" }).to_string();
    assert_eq!(say(&socket, &token, &identity).unwrap()["ok"]["pid"], serving.pid());
}

// req: BR-12
#[test]
fn nonsense_at_the_socket_harms_nobody() {
    let serving = Serving::start(json!({ "counter": demo("counter") }));
    let (socket, token) = (serving.place("sock"), std::fs::read_to_string(serving.place("token")).unwrap());
    for nonsense in ["", "hello", "[]", "{}", r#"{"what":"dance"}"#, "\u{0}\u{0}"] {
        assert_eq!(say(&socket, &token, nonsense), None, "{nonsense:?}");
    }
    let endless = say(&socket, &"x".repeat(100_000), "{}").unwrap();
    assert_eq!(endless["error"]["code"], "POLICY_DENIED");
    let odd = json!({ "what": "call", "params": { "tool": 1 } }).to_string();
    assert_eq!(say(&socket, &token, &odd).unwrap()["error"]["code"], "INVALID_INPUT");
    serving.bascule.call("counter:increment", "{}");
}

// req: BR-12
#[test]
fn visitors_who_say_nothing_keep_nobody_out() {
    let serving = Serving::start(json!({ "counter": demo("counter") }));
    let socket = serving.place("sock");
    let silent: Vec<UnixStream> = (0..200).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    serving.bascule.call("counter:increment", "{}");
    let value = serving.bascule.call("counter:increment", "{}")["structuredContent"]["value"].clone();
    assert_eq!(value, 2, "it was the bridge that answered");
    drop(silent);
}

struct Bridge(Child);

impl Drop for Bridge {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

// req: SB-02, SB-04
#[test]
fn a_confined_server_that_knows_the_socket_gets_nothing_done_there() {
    for user in users() {
        let hostile = Hostile::new(user, json!({}));
        let command = |arguments: &[&str]| {
            let mut command = hostile.command(arguments);
            // The folder below the home is used where there is no other.
            command.env_remove("XDG_RUNTIME_DIR").stdout(Stdio::piped()).stderr(Stdio::piped());
            command
        };
        let _bridge = Bridge(
            command(&["serve", "--listen", "127.0.0.1:0"])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap(),
        );
        eventually("the bridge is there", || command(&["status"]).output().unwrap().status.success());
        let attempt = |code: &str| {
            let arguments = json!({ "code": code }).to_string();
            let ran = Ran::from(command(&["call", "h:try", &arguments, "--json"]).output().unwrap());
            (ran.code, text(&ran.document()["result"]))
        };
        let folder = hostile.path(".local/share/bascule/run");
        let place = |extension: &str| {
            let files = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path());
            files.into_iter().find(|path| path.extension().is_some_and(|own| own == extension)).unwrap()
        };
        let (socket, token) = (quoted(&place("sock")), quoted(&place("token")));
        for code in [
            format!("print(open({token}).read())"),
            format!("print(os.listdir({}))", quoted(&folder)),
            format!("os.unlink({socket})"),
        ] {
            let (code, said) = attempt(&code);
            assert!(code == Some(1) && said.starts_with("PermissionError"), "{user:?}: {code:?} {said}");
        }
        let guess = String::from("guess\n{\"what\":\"status\"}");
        let knock = format!(
            "import socket as s\nc = s.socket(s.AF_UNIX)\nc.settimeout(30)\nc.connect({socket})\nc.sendall({guess:?}.encode() + b'\\n')\nprint(c.recv(4096).decode())"
        );
        let (_, said) = attempt(&knock);
        // It is hung up on, for being who it is, before it could be told that its token is wrong.
        let hung_up = ["ConnectionResetError", "BrokenPipeError"].iter().any(|error| said.starts_with(error));
        assert!(hung_up || said.trim().is_empty(), "{user:?}: {said}");
    }
}
