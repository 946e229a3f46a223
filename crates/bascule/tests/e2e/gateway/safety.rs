//! Safe by default (GW-07): who may come, from where, and what must be shown.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;

use bascule_testkit::{Script, ScriptedStdio};
use serde_json::{Value, json};

use super::client::{Client, hello, post};
use super::{TOGETHER, alone, parsed};
use crate::fleet::serving::Serving;
use crate::support::{Bascule, eventually, program};

fn demo(name: &str) -> Value {
    json!({ "command": program(), "args": ["__demo", name] })
}

// req: GW-07
#[test]
fn an_address_that_others_can_reach_needs_a_token() {
    let bascule = Bascule::with_server("clock", demo("clock"));
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let ran = bascule.run(&["serve", "--listen", address]);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains("token") && ran.stderr.contains(address), "{ran:?}");
    }
    let written =
        Bascule::with_text(&json!({ "mcpServers": {}, "bascule": { "listen": "0.0.0.0:0" } }).to_string());
    assert_eq!(written.run(&["serve"]).code, Some(2));
    let short =
        Bascule::with_text(&json!({ "mcpServers": {}, "bascule": { "tokens": ["short"] } }).to_string());
    assert_eq!(short.run(&["serve"]).code, Some(2));
}

// req: GW-07
#[test]
fn a_token_is_asked_of_everybody() {
    let bascule = Bascule::with_servers(json!({}));
    let token = bascule.run(&["token"]).stdout.trim().to_owned();
    let (code, other) = bascule.json(&["token"]);
    assert_eq!((code, token.len()), (0, 64));
    assert_ne!(other["token"], token.as_str());
    let text = json!({ "mcpServers": { "clock": demo("clock") }, "bascule": { "tokens": [token] } });
    let serving = Serving::start_configured(&text.to_string(), &[]);
    let address = serving.address();
    let begin = |headers: &[&str]| post(address, TOGETHER, headers, &hello(&json!({}))).status;
    let with = |token: &str| begin(&[&format!("authorization: Bearer {token}")]);
    assert_eq!(with(&token), 200);
    assert_eq!(begin(&[]), 401);
    for wrong in
        ["", "x", &token[1..], &format!("{token}0"), &token.to_uppercase(), other["token"].as_str().unwrap()]
    {
        assert_eq!(with(wrong), 401, "{wrong}");
    }
    assert_eq!(begin(&[&format!("authorization: Basic {token}")]), 401);
    // A session is no substitute.
    let mut begun = post(address, TOGETHER, &[&format!("authorization: Bearer {token}")], &hello(&json!({})));
    let session = begun.header("mcp-session-id").unwrap();
    begun.last();
    let client = Client { address, path: TOGETHER.into(), session, welcome: String::new() };
    assert_eq!(client.post(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).status, 401);
    assert_eq!(client.bare("GET").status, 401);
    assert_eq!(client.bare("DELETE").status, 401);
    assert!(!serving.said().contains(&token), "it is nowhere said");
}

// req: GW-07, BR-13
#[test]
fn a_token_that_is_taken_out_of_the_file_is_good_no_more() {
    let (old, kept, new) = ("o".repeat(32), "k".repeat(32), "n".repeat(32));
    let with =
        |bascule: Value| json!({ "mcpServers": { "clock": demo("clock") }, "bascule": bascule }).to_string();
    let serving = Serving::start_configured(&with(json!({ "tokens": [old, kept] })), &[]);
    let address = serving.address();
    let begin = |token: &str| {
        post(address, TOGETHER, &[&format!("authorization: Bearer {token}")], &hello(&json!({}))).status
    };
    assert_eq!((begin(&old), begin(&kept), begin(&new)), (200, 200, 401));
    fs::write(serving.file(), with(json!({ "tokens": [kept, new], "maxMessageBytes": 1_000_000 }))).unwrap();
    eventually("the new one is good", || begin(&new) == 200);
    assert_eq!((begin(&old), begin(&kept)), (401, 200));
    // What cannot change without a new start is said.
    serving.wait_said("`bascule.maxMessageBytes` has changed");
    assert!(!serving.said().contains(&new) && !serving.said().contains("listen` has changed"));
}

// req: GW-07
#[test]
fn pages_of_others_and_names_of_others_are_refused() {
    let text = json!({ "mcpServers": { "clock": demo("clock") }, "bascule": { "allowedHosts": ["bridge.example"], "allowedOrigins": ["https://app.example"] } });
    let serving = Serving::start_configured(&text.to_string(), &[]);
    let address = serving.address();
    for path in [TOGETHER.to_owned(), alone("clock")] {
        let begin = |headers: &[&str]| post(address, &path, headers, &hello(&json!({}))).status;
        for good in ["host: localhost:99", "host: 127.0.0.1", "host: [::1]:1", "host: bridge.example"] {
            assert_eq!(begin(&[good]), 200, "{good}");
        }
        for bad in ["host: evil.example", "host: localhost.evil.example", "host: ", "host: 0.0.0.0"] {
            assert_eq!(begin(&[bad]), 403, "{bad}");
        }
        for good in ["origin: http://localhost:3000", "origin: https://app.example"] {
            assert_eq!(begin(&[good]), 200, "{good}");
        }
        for bad in
            ["origin: https://evil.example", "origin: null", "origin: http://app.example", "origin: file://"]
        {
            assert_eq!(begin(&[bad]), 403, "{bad}");
        }
    }
}

/// Begins a session at the bridge and prints the status of the answer.
fn knock(address: SocketAddr) -> String {
    let body = hello(&json!({}));
    format!(
        "import http.client\n\
         c = http.client.HTTPConnection('127.0.0.1', {}, timeout=20)\n\
         c.request('POST', '/mcp', body=r'''{body}''', headers={{'content-type': 'application/json', \
         'accept': 'application/json, text/event-stream'}})\n\
         print('status', c.getresponse().status)",
        address.port()
    )
}

/// The same by a process that hides its socket, on its way to itself, while it is looked for.
fn sneak(address: SocketAddr) -> String {
    let request = super::client::posted(TOGETHER, &[], &hello(&json!({})));
    format!(
        "import socket, time\n\
         left, right = socket.socketpair()\n\
         s = socket.socket()\n\
         s.connect(('127.0.0.1', {}))\n\
         s.sendall({request:?}.encode())\n\
         socket.send_fds(left, [b'x'], [s.fileno()])\n\
         s.close()\n\
         time.sleep(1)\n\
         _, fds, _, _ = socket.recv_fds(right, 1, 1)\n\
         s = socket.socket(fileno=fds[0])\n\
         s.settimeout(20)\n\
         print('status', s.recv(100).split()[1])",
        address.port()
    )
}

/// A program for the hostile server that asks for a session so many times.
fn program_of(text: &str, address: SocketAddr, tries: u32) -> String {
    let request = super::client::posted(TOGETHER, &[], &hello(&json!({})));
    format!("PORT, TRIES, REQUEST = {}, {tries}, {request:?}.encode()\n{text}", address.port())
}

/// A bridge with a confined server, `h`, that runs what it is told to, and another one.
struct Hostile {
    serving: Serving,
    _folder: tempfile::TempDir,
    _other: ScriptedStdio,
}

impl Hostile {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("server.py");
        fs::write(&file, include_str!("../hostile.py")).unwrap();
        let entry =
            json!({ "command": "python3", "args": [file], "sandbox": "standard", "startTimeoutMs": 60_000 });
        let other = ScriptedStdio::new(Script::new().tools(["t"]));
        let serving = Serving::start(json!({ "h": entry, "s": other.entry() }));
        Self { serving, _folder: folder, _other: other }
    }

    fn client(&self) -> Client {
        Client::begin(self.serving.address(), &alone("h"))
    }
}

/// What the confined server says of its attempt.
fn tried(client: &Client, attempt: &str) -> String {
    let tried = client.call("try", &json!({ "code": attempt }));
    tried["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{tried}")).to_owned()
}

/// The same as `knock`, by a process of nobody's.
fn knocked(address: SocketAddr) -> String {
    let ran = Command::new("python3").args(["-c", &knock(address)]).output().unwrap();
    String::from_utf8_lossy(&ran.stdout).trim().to_owned()
}

// req: GW-07
#[test]
fn a_confined_server_does_not_reach_the_others_through_the_bridge() {
    let hostile = Hostile::start();
    let (client, address) = (hostile.client(), hostile.serving.address());
    for attempt in [knock(address), sneak(address)] {
        let said = tried(&client, &attempt);
        assert!(!said.contains("200"), "it was served: {said}");
        assert_eq!(knocked(address), "status 200");
    }
    assert_eq!(
        parsed(&client.post(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).last())["result"],
        json!({})
    );
}

// req: GW-07
#[test]
fn nor_does_one_whose_parents_end_while_it_is_looked_at() {
    let hostile = Hostile::start();
    let (client, address) = (hostile.client(), hostile.serving.address());
    for _ in 0..8 {
        let said = tried(&client, &program_of(include_str!("flee.py"), address, 40));
        assert_eq!(said.matches("said").count(), 40, "{said}");
        assert!(!said.contains("200"), "it was served: {said}");
        assert!(said.contains("403"), "it was heard: {said}");
    }
    assert_eq!(knocked(address), "status 200");
}

// req: GW-07
#[test]
fn a_confined_server_that_knocks_without_end_keeps_nobody_out() {
    let hostile = Hostile::start();
    let (client, address) = (hostile.client(), hostile.serving.address());
    let flood = program_of(include_str!("flood.py"), address, 10);
    let threads = || fs::read_dir(format!("/proc/{}/task", hostile.serving.pid())).unwrap().count();
    let before = threads();
    let served = std::thread::scope(|scope| {
        let flood = scope.spawn(|| tried(&client, &flood));
        let mut served = 0;
        while !flood.is_finished() {
            assert_eq!(post(address, TOGETHER, &[], &hello(&json!({}))).status, 200);
            assert!(threads() < before + 16, "{} threads, {before} before", threads());
            served += 1;
        }
        assert_eq!(flood.join().unwrap(), "refused 500");
        served
    });
    println!("{served} others were served meanwhile");
    assert!(served > 0);
}

// req: GW-07
#[test]
fn an_address_that_others_can_reach_is_served_to_those_who_show_the_token() {
    let token = "t".repeat(32);
    let text = json!({ "mcpServers": { "clock": demo("clock") }, "bascule": { "tokens": [token] } });
    let serving = Serving::start_listening(&text.to_string(), "0.0.0.0:0", &[]);
    let address = SocketAddr::from(([127, 0, 0, 1], serving.address().port()));
    for path in [TOGETHER.to_owned(), alone("clock")] {
        let begin = |headers: &[&str]| post(address, &path, headers, &hello(&json!({}))).status;
        assert_eq!(begin(&[]), 401);
        assert_eq!(begin(&["authorization: Bearer wrong"]), 401);
        assert_eq!(begin(&[&format!("authorization: Bearer {token}")]), 200);
        assert_eq!(begin(&[&format!("authorization: Bearer {token}"), "host: evil.example"]), 403);
    }
}
