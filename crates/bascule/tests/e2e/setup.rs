//! `init`, `add`, `remove` and `doctor`.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::support::{Bascule, demo_program, demo_server};

/// A folder without an `mcp.json`. Its trust is forgotten when it is dropped.
struct Folder(Bascule);

impl Folder {
    fn new() -> Self {
        let bascule = Bascule::with_text("").finding_config();
        fs::remove_file(bascule.folder().join("mcp.json")).unwrap();
        let home = bascule.folder().join("home");
        fs::create_dir(&home).unwrap();
        let home = home.to_str().unwrap().to_owned();
        Self(bascule.env("HOME", &home).env("XDG_CONFIG_HOME", "").env("SHELL", "/bin/sh"))
    }

    fn config(&self) -> PathBuf {
        self.0.folder().join("mcp.json")
    }

    #[track_caller]
    fn run(&self, arguments: &[&str]) -> String {
        let output = self.0.run(arguments);
        assert_eq!(output.code, Some(0), "{arguments:?}: {output:?}");
        output.stdout
    }

    #[track_caller]
    fn expect_refused(&self, arguments: &[&str]) -> String {
        let output = self.0.run(arguments);
        assert_eq!(output.code, Some(2), "{arguments:?}: {output:?}");
        output.stderr
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        self.0.run(&["trust", "--remove", "mcp.json"]);
    }
}

fn demo() -> String {
    demo_program().to_str().unwrap().to_owned()
}

// req: US-04
// req: SB-08
#[test]
fn a_file_of_init_and_add_is_trusted() {
    let folder = Folder::new();
    folder.run(&["init"]);
    assert!(folder.expect_refused(&["init"]).contains("exists already"));
    let first = fs::read_to_string(folder.config()).unwrap();
    folder.run(&["add", "clock", "--env", "A=b", "--", &demo(), "clock"]);
    assert!(folder.run(&["tools"]).contains("clock:now"));
    assert!(folder.expect_refused(&["add", "clock", "--", "x"]).contains("--replace"));
    folder.run(&["add", "clock", "--replace", "--", &demo(), "counter"]);
    assert!(folder.run(&["tools"]).contains("clock:increment"));
    folder.run(&["remove", "clock"]);
    assert_eq!(fs::read_to_string(folder.config()).unwrap(), first);
}

// req: US-04
// req: SB-08
#[test]
fn add_does_not_trust_a_strangers_file() {
    let folder = Folder::new();
    fs::write(folder.config(), json!({ "mcpServers": { "evil": { "command": "/bin/true" } } }).to_string())
        .unwrap();
    folder.run(&["add", "clock", "--", &demo(), "clock"]);
    assert!(folder.expect_refused(&["tools"]).contains("you have not trusted it yet"));
    // The entry in a client would name the file, and thereby trust it.
    assert!(folder.expect_refused(&["install", "cursor", "--yes"]).contains("bascule trust"));
}

// req: US-04
#[test]
fn add_keeps_comments_and_order() {
    let folder = Folder::new();
    let text = "{\n\t// servers\n\t\"servers\": {\n\t\t\"b\": { \"command\": \"/bin/true\" }, // b\n\t\t\"a\": { \"command\": \"/bin/true\" }\n\t}\n}\n";
    fs::write(folder.config(), text).unwrap();
    let add = [
        "add",
        "remote",
        "https://example.com/mcp",
        "--type",
        "http",
        "-H",
        "Authorization: Bearer ${TOKEN:-x}",
    ];
    let (code, document) = folder.0.run_json(&add);
    assert_eq!((code, &document["added"]), (0, &json!(["remote"])), "{document}");
    let added = fs::read_to_string(folder.config()).unwrap();
    let expected = text.replace(
        "/bin/true\" }\n",
        "/bin/true\" },\n\t\t\"remote\": {\n\t\t\t\"type\": \"http\",\n\t\t\t\"url\": \"https://example.com/mcp\",\n\t\t\t\"headers\": {\n\t\t\t\t\"Authorization\": \"Bearer ${TOKEN:-x}\"\n\t\t\t}\n\t\t}\n",
    );
    assert_eq!(added, expected);
    folder.run(&["remove", "remote"]);
    assert_eq!(fs::read_to_string(folder.config()).unwrap(), text);
    folder.run(&[
        "add",
        "s",
        "--sandbox",
        "{\"network\": \"none\"}",
        "--cwd",
        "/tmp",
        "--",
        "/bin/true",
        "-x",
        "--yes",
    ]);
    assert!(fs::read_to_string(folder.config()).unwrap().contains("\"args\": [\"-x\", \"--yes\"]"));
}

// req: US-04
#[test]
fn add_and_remove_refuse_mistakes() {
    let folder = Folder::new();
    folder.run(&["init"]);
    for (arguments, part) in [
        (&["add", "a b", "--", "x"][..], "may only contain"),
        (&["add", "x", "nothing"], "must start with `http://`"),
        (&["add", "x"], "required"),
        (&["add", "x", "--env", "novalue", "--", "y"], "expected `NAME=VALUE`"),
        (&["add", "x", "--sandbox", "none", "--", "y"], "sandbox"),
        (&["add", "x", "--sandbox", "{", "--", "y"], "not JSON"),
        (&["remove", "nope"], "there is no server `nope`"),
    ] {
        let before = fs::read_to_string(folder.config()).unwrap();
        let message = folder.expect_refused(arguments);
        assert!(message.contains(part), "{arguments:?}: {message}");
        assert_eq!(fs::read_to_string(folder.config()).unwrap(), before);
    }
    fs::write(folder.config(), "{").unwrap();
    assert!(folder.expect_refused(&["add", "x", "--", "y"]).contains("mcp.json:1:1: not JSON"));
}

// req: US-04
#[test]
fn add_makes_the_users_file() {
    let folder = Folder::new();
    folder.run(&["add", "clock", "--", &demo(), "clock"]);
    assert!(folder.0.folder().join("home/.config/bascule/mcp.json").exists());
    assert!(folder.run(&["tools"]).contains("clock:now"));
    assert!(folder.expect_refused(&["init", "--user"]).contains("exists already"));
}

// req: US-04
#[test]
fn init_imports_on_request() {
    let folder = Folder::new();
    let cursor = folder.0.folder().join("home/.cursor/mcp.json");
    fs::create_dir_all(cursor.parent().unwrap()).unwrap();
    fs::write(cursor, json!({ "mcpServers": { "clock": demo_server("clock") } }).to_string()).unwrap();
    let (code, document) = folder.0.run_json(&["init", "--import"]);
    assert_eq!((code, &document["added"]), (0, &json!(["clock"])), "{document}");
    assert!(folder.run(&["tools"]).contains("clock:now"));
}

fn finding(document: &Value, check: &str) -> Value {
    let findings = document["findings"].as_array().unwrap();
    findings.iter().find(|finding| finding["check"] == check).cloned().unwrap_or(Value::Null)
}

// req: US-04
#[test]
fn doctor_names_the_fault_and_its_fix() {
    let folder = Folder::new();
    let (code, document) = folder.0.run_json(&["doctor"]);
    assert_eq!((code, &document["ok"]), (2, &json!(false)), "{document}");
    assert_eq!(finding(&document, "configuration")["fix"], "bascule init");
    let config = json!({ "mcpServers": {
        "clock": demo_server("clock"),
        "gone": { "command": "no-such-program" },
        "crash": { "command": "/bin/sh", "args": ["-c", "echo broken pipe organ >&2; seq -f '    at f (%g)' 20 >&2; exit 3"] },
        "off": { "command": "x", "disabled": true },
    }, "bascule": { "listen": "127.0.0.1:0" } });
    fs::write(folder.config(), config.to_string()).unwrap();
    let (code, document) = folder.0.run_json(&["doctor"]);
    assert_eq!((code, &finding(&document, "trust")["fix"]), (3, &json!("bascule trust")), "{document}");
    folder.run(&["trust"]);
    let (code, document) = folder.0.run_json(&["doctor"]);
    assert_eq!((code, &document["ok"]), (3, &json!(false)), "{document}");
    assert_eq!(finding(&document, "server clock")["status"], "ok", "{document}");
    assert_eq!(finding(&document, "server off")["message"], "disabled in the configuration");
    let gone = finding(&document, "server gone");
    assert!(gone["status"] == "fail" && gone["fix"].as_str().unwrap().contains("no-such-program"), "{gone}");
    assert!(finding(&document, "server crash")["message"].as_str().unwrap().contains("broken pipe organ"));
    assert_eq!(finding(&document, "no-such-program")["status"], "fail");
    for check in ["bascule", "kernel", "data folder", "python3", "port"] {
        assert!(finding(&document, check)["message"].is_string(), "{check}: {document}");
    }
    let output = folder.0.run(&["doctor", "--no-servers"]);
    assert!(
        output.stdout.contains("fail  no-such-program") && !output.stdout.contains("server clock"),
        "{output:?}"
    );
}

// req: US-04
#[test]
fn doctor_finds_a_stale_entry_in_a_client() {
    let folder = Folder::new();
    folder.run(&["init"]);
    folder.run(&["install", "cursor", "--yes"]);
    let check = || finding(&folder.0.run_json(&["doctor", "--no-servers"]).1, "Cursor");
    assert_eq!(check()["status"], "ok");
    let moved = folder.0.folder().join("other.json");
    fs::rename(folder.config(), &moved).unwrap();
    assert_eq!((&check()["status"], &check()["fix"]), (&json!("fail"), &json!("bascule install cursor")));
}
