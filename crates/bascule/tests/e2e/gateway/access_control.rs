//! Access to the HTTP endpoints: tokens, `Host` and `Origin` checks, sandboxed servers as peers.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;

use bascule_testkit::{Script, ScriptedStdio};
use serde_json::{Value, json};

use super::client::{Client, initialize_request, post};
use super::{AGGREGATE_PATH, parse, passthrough_path};
use crate::fleet::serve_process::ServeProcess;
use crate::support::{Bascule, GeneratedToken, demo_server, eventually};

// req: GW-07
#[test]
fn refuses_public_address_without_token() {
    let bascule = Bascule::with_server("clock", demo_server("clock"));
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let output = bascule.run(&["serve", "--auth", "none", "--listen", address]);
        assert_eq!(output.code, Some(2), "{output:?}");
        assert!(output.stderr.contains("token") && output.stderr.contains(address), "{output:?}");
    }
    let configured = Bascule::with_text(
        &json!({ "mcpServers": {}, "bascule": { "listen": "0.0.0.0:0", "auth": "none" } }).to_string(),
    );
    assert_eq!(configured.run(&["serve"]).code, Some(2));
    let short =
        Bascule::with_text(&json!({ "mcpServers": {}, "bascule": { "tokens": ["short"] } }).to_string());
    assert_eq!(short.run(&["serve"]).code, Some(2));
}

// req: GW-07
#[test]
fn requires_token_on_every_request() {
    let bascule = Bascule::with_servers(json!({}));
    let token = bascule.run(&["token", "--new"]).stdout.trim().to_owned();
    let (code, other) = bascule.run_json(&["token", "--new"]);
    assert_eq!((code, token.len()), (0, 64));
    assert_ne!(other["token"], token.as_str());
    let text = json!({ "mcpServers": { "clock": demo_server("clock") }, "bascule": { "tokens": [token] } });
    let bridge = ServeProcess::start_with_config(&text.to_string(), &[]);
    let address = bridge.address();
    let begin =
        |headers: &[&str]| post(address, AGGREGATE_PATH, headers, &initialize_request(&json!({}))).status;
    let with = |token: &str| begin(&[&format!("authorization: Bearer {token}")]);
    assert_eq!(with(&token), 200);
    assert_eq!(begin(&[]), 401);
    for wrong in
        ["", "x", &token[1..], &format!("{token}0"), &token.to_uppercase(), other["token"].as_str().unwrap()]
    {
        assert_eq!(with(wrong), 401, "{wrong}");
    }
    assert_eq!(begin(&[&format!("authorization: Basic {token}")]), 401);
    // A session does not replace the token.
    let mut response = post(
        address,
        AGGREGATE_PATH,
        &[&format!("authorization: Bearer {token}")],
        &initialize_request(&json!({})),
    );
    let session = response.header("mcp-session-id").unwrap();
    response.last_message();
    let client = Client { address, path: AGGREGATE_PATH.into(), session, initialize_response: String::new() };
    assert_eq!(client.post(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).status, 401);
    assert_eq!(client.send_without_body("GET").status, 401);
    assert_eq!(client.send_without_body("DELETE").status, 401);
    assert!(!bridge.stderr().contains(&token), "the token must not be logged");
}

// req: GW-07, BR-13
#[test]
fn rejects_token_removed_from_configuration() {
    let (old, kept, new) = ("o".repeat(32), "k".repeat(32), "n".repeat(32));
    let with = |bascule: Value| {
        json!({ "mcpServers": { "clock": demo_server("clock") }, "bascule": bascule }).to_string()
    };
    let bridge = ServeProcess::start_with_config(&with(json!({ "tokens": [old, kept] })), &[]);
    let address = bridge.address();
    let begin = |token: &str| {
        post(
            address,
            AGGREGATE_PATH,
            &[&format!("authorization: Bearer {token}")],
            &initialize_request(&json!({})),
        )
        .status
    };
    assert_eq!((begin(&old), begin(&kept), begin(&new)), (200, 200, 401));
    fs::write(bridge.config_file(), with(json!({ "tokens": [kept, new], "maxMessageBytes": 1_000_000 })))
        .unwrap();
    eventually("the new token is accepted", || begin(&new) == 200);
    assert_eq!((begin(&old), begin(&kept)), (401, 200));
    // A setting that takes effect only after a restart is reported.
    bridge.wait_for_stderr("`bascule.maxMessageBytes` has changed");
    assert!(!bridge.stderr().contains(&new) && !bridge.stderr().contains("listen` has changed"));
}

// req: GW-07
#[test]
fn rejects_foreign_hosts_and_origins() {
    let text = json!({ "mcpServers": { "clock": demo_server("clock") }, "bascule": { "allowedHosts": ["bridge.example"], "allowedOrigins": ["https://app.example"] } });
    let bridge = ServeProcess::start_with_config(&text.to_string(), &[]);
    let address = bridge.address();
    for path in [AGGREGATE_PATH.to_owned(), passthrough_path("clock")] {
        let begin = |headers: &[&str]| post(address, &path, headers, &initialize_request(&json!({}))).status;
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

/// Python code that sends `initialize` to the bridge and prints the status of the response.
fn connect_code(address: SocketAddr) -> String {
    let body = initialize_request(&json!({}));
    format!(
        "import http.client\n\
         c = http.client.HTTPConnection('127.0.0.1', {}, timeout=20)\n\
         c.request('POST', '/mcp', body=r'''{body}''', headers={{'content-type': 'application/json', \
         'accept': 'application/json, text/event-stream'}})\n\
         print('status', c.getresponse().status)",
        address.port()
    )
}

/// Like [`connect_code`], but hides the socket in a message to itself while the bridge looks for its owner.
fn hidden_socket_code(address: SocketAddr) -> String {
    let request = super::client::post_request(AGGREGATE_PATH, &[], &initialize_request(&json!({})));
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

/// A script for the hostile server that sends `initialize` this many times.
fn script_code(text: &str, address: SocketAddr, tries: u32) -> String {
    let request = super::client::post_request(AGGREGATE_PATH, &[], &initialize_request(&json!({})));
    format!("PORT, TRIES, REQUEST = {}, {tries}, {request:?}.encode()\n{text}", address.port())
}

/// A bridge with a sandboxed server, `h`, that runs any code, and another server.
struct BridgeWithHostileServer {
    bridge: ServeProcess,
    _folder: tempfile::TempDir,
    _other: ScriptedStdio,
}

impl BridgeWithHostileServer {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("server.py");
        fs::write(&file, include_str!("../hostile.py")).unwrap();
        let entry =
            json!({ "command": "python3", "args": [file], "sandbox": "standard", "startTimeoutMs": 60_000 });
        let other = ScriptedStdio::new(Script::new().tools(["t"]));
        let bridge = ServeProcess::start(json!({ "h": entry, "s": other.entry() }));
        Self { bridge, _folder: folder, _other: other }
    }

    fn client(&self) -> Client {
        Client::connect(self.bridge.address(), &passthrough_path("h"))
    }
}

/// Runs code in the sandboxed server and returns its output.
fn run_in_server(client: &Client, code: &str) -> String {
    let response = client.call("try", &json!({ "code": code }));
    response["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{response}")).to_owned()
}

/// Runs [`connect_code`] in a process that no server has started.
fn connect_from_outside(address: SocketAddr) -> String {
    let output = Command::new("python3").args(["-c", &connect_code(address)]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

// req: GW-07
#[test]
fn refuses_connection_of_sandboxed_server() {
    let hostile = BridgeWithHostileServer::start();
    let (client, address) = (hostile.client(), hostile.bridge.address());
    for code in [connect_code(address), hidden_socket_code(address)] {
        let printed = run_in_server(&client, &code);
        assert!(!printed.contains("200"), "the server was served: {printed}");
        assert_eq!(connect_from_outside(address), "status 200");
    }
    assert_eq!(
        parse(&client.post(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).last_message())["result"],
        json!({})
    );
}

// req: GW-07
#[test]
fn refuses_sandboxed_server_whose_ancestors_exit_during_check() {
    let hostile = BridgeWithHostileServer::start();
    let (client, address) = (hostile.client(), hostile.bridge.address());
    for _ in 0..8 {
        let printed =
            run_in_server(&client, &script_code(include_str!("vanishing_ancestors.py"), address, 40));
        assert_eq!(printed.matches("status").count(), 40, "{printed}");
        assert!(!printed.contains("200"), "the server was served: {printed}");
        assert!(printed.contains("403"), "no request was refused: {printed}");
    }
    assert_eq!(connect_from_outside(address), "status 200");
}

// req: GW-07
#[test]
fn serves_clients_while_sandboxed_server_floods_connections() {
    let hostile = BridgeWithHostileServer::start();
    let (client, address) = (hostile.client(), hostile.bridge.address());
    let flood = script_code(include_str!("connection_flood.py"), address, 10);
    let threads = || fs::read_dir(format!("/proc/{}/task", hostile.bridge.pid())).unwrap().count();
    let before = threads();
    let served = std::thread::scope(|scope| {
        let flood = scope.spawn(|| run_in_server(&client, &flood));
        let mut served = 0;
        while !flood.is_finished() {
            assert_eq!(post(address, AGGREGATE_PATH, &[], &initialize_request(&json!({}))).status, 200);
            assert!(threads() < before + 16, "{} threads, {before} before", threads());
            served += 1;
        }
        assert_eq!(flood.join().unwrap(), "refused 500");
        served
    });
    println!("{served} other clients were served meanwhile");
    assert!(served > 0);
}

// req: GW-07
#[test]
fn serves_public_address_with_token() {
    let token = "t".repeat(32);
    let text = json!({ "mcpServers": { "clock": demo_server("clock") }, "bascule": { "tokens": [token] } });
    let bridge = ServeProcess::start_at(&text.to_string(), "0.0.0.0:0", &[]);
    let address = SocketAddr::from(([127, 0, 0, 1], bridge.address().port()));
    for path in [AGGREGATE_PATH.to_owned(), passthrough_path("clock")] {
        let begin = |headers: &[&str]| post(address, &path, headers, &initialize_request(&json!({}))).status;
        assert_eq!(begin(&[]), 401);
        assert_eq!(begin(&["authorization: Bearer wrong"]), 401);
        assert_eq!(begin(&[&format!("authorization: Bearer {token}")]), 200);
        assert_eq!(begin(&[&format!("authorization: Bearer {token}"), "host: evil.example"]), 403);
    }
}

/// A bridge with default settings, and its status for a client that sends these headers.
fn start_with_defaults() -> (ServeProcess, impl Fn(&[&str]) -> u16) {
    let text = json!({ "mcpServers": { "clock": demo_server("clock") }, "bascule": { "auth": "token" } });
    let bridge = ServeProcess::start_with_config(&text.to_string(), &[]);
    let address = bridge.address();
    let begin = move |headers: &[&str]| {
        post(address, AGGREGATE_PATH, headers, &initialize_request(&json!({}))).status
    };
    (bridge, begin)
}

// req: GW-07
#[test]
fn requires_generated_token_by_default() {
    let (bridge, begin) = start_with_defaults();
    let token = bridge.bascule.run(&["token"]).stdout.trim().to_owned();
    let header = format!("authorization: Bearer {token}");
    assert_eq!((token.len(), begin(&[&header])), (64, 200));
    assert_eq!((begin(&[]), begin(&["authorization: Bearer x"])), (401, 401));
    let stderr = bridge.stderr();
    assert!(stderr.contains("Authorization: Bearer") && stderr.contains("bascule token"), "{stderr}");
    assert!(!stderr.contains(&token), "the token must not be logged");
    // The command line needs no token.
    assert_eq!(bridge.bascule.run(&["call", "clock:now", "{}"]).code, Some(0));
    // The next start keeps the token.
    assert_eq!(bridge.bascule.run_json(&["token"]).1["token"], token.as_str());
}

// req: GW-07
#[test]
fn token_belongs_to_its_configuration_and_user() {
    let (bridge, begin) = start_with_defaults();
    let other = bridge.bascule.folder().join("other.json");
    fs::write(&other, r#"{"mcpServers":{}}"#).unwrap();
    let _removed = GeneratedToken::of(&other);
    let other = bridge.bascule.run(&["token", "--config", "other.json"]).stdout.trim().to_owned();
    assert_eq!((other.len(), begin(&[&format!("authorization: Bearer {other}")])), (64, 401));
}

/// Runs code as another user, which only root can do.
fn connect_as_other_user(address: SocketAddr) -> String {
    let output = Command::new("setpriv")
        .args(["--reuid=65533", "--regid=65533", "--clear-groups", "python3", "-c", &connect_code(address)])
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

// req: GW-07
#[test]
fn without_tokens_serves_only_its_own_user() {
    let bridge = ServeProcess::start(json!({ "clock": demo_server("clock") }));
    assert!(bridge.stderr().contains("no token is needed"));
    assert_eq!(connect_from_outside(bridge.address()), "status 200");
    if std::os::unix::fs::MetadataExt::uid(&fs::metadata("/proc/self").unwrap()) == 0 {
        assert_eq!(connect_as_other_user(bridge.address()), "status 403");
    }
}

// req: GW-07
#[test]
fn without_tokens_refuses_servers_of_other_bridges() {
    let bridge = ServeProcess::start(json!({ "clock": demo_server("clock") }));
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("server.py"), include_str!("../hostile.py")).unwrap();
    let other =
        Bascule::with_server("h", json!({ "command": "python3", "args": [folder.path().join("server.py")] }));
    let code = json!({ "code": connect_code(bridge.address()) }).to_string();
    let printed = other.run(&["call", "h:try", &code, "--no-daemon"]);
    assert_eq!(printed.stdout.trim(), "status 403", "{printed:?}");
}
