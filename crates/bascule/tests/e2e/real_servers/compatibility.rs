//! The light servers of the compatibility list (`tests/compat/servers.json`), direct and behind the bridge. `make compat` runs
//! them all.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{START, ask_directly, list_directly};
use crate::support::{Bascule, project_file, test_env};

#[derive(Deserialize)]
struct CompatibilityList {
    servers: Vec<ListedServer>,
}

/// The keys of an entry that this test reads.
#[derive(Deserialize)]
struct ListedServer {
    name: String,
    package: String,
    version: String,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    tools: Option<usize>,
    call: Option<ListedCall>,
    /// The program in the test environment.
    light: Option<String>,
}

#[derive(Deserialize)]
struct ListedCall {
    tool: String,
    #[serde(default)]
    arguments: Value,
    /// The result differs from call to call.
    #[serde(default)]
    varies: bool,
}

impl ListedServer {
    fn entry(&self, program: &str, work: &str) -> Value {
        let fill = |text: &String| text.replace("{work}", work);
        let args: Vec<String> = self.args.iter().map(fill).collect();
        let env: BTreeMap<&String, String> =
            self.env.iter().map(|(name, value)| (name, fill(value))).collect();
        json!({ "command": test_env(program), "args": args, "env": env, "cwd": work, "startTimeoutMs": START })
    }
}

fn listed_servers() -> Vec<ListedServer> {
    let text = fs::read_to_string(project_file("tests/compat/servers.json")).unwrap();
    serde_json::from_str::<CompatibilityList>(&text).unwrap().servers
}

/// A folder with a text and a commit.
fn working_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("note.txt"), "a bascule is a drawbridge\n").unwrap();
    let git = |arguments: &[&str]| {
        let identity = ["-c", "user.name=t", "-c", "user.email=t@example.com"];
        let mut command = std::process::Command::new("git");
        command.arg("-C").arg(folder.path()).args(identity).args(arguments);
        assert!(command.status().unwrap().success());
    };
    git(&["init", "-q"]);
    git(&["add", "."]);
    git(&["commit", "-q", "-m", "first"]);
    folder
}

fn check_server(server: &ListedServer, program: &str) {
    let folder = working_folder();
    let work = folder.path().canonicalize().unwrap().display().to_string();
    let entry = server.entry(program, &work);
    let own = list_directly(&entry);
    assert_eq!(Some(own.len()), server.tools, "tools of `{}`", server.name);
    let bascule = Bascule::with_server(&server.name, entry.clone());
    let (code, listed) = bascule.run_json(&["tools", &server.name]);
    let names: Vec<&str> =
        listed.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!((code, names), (0, own.iter().map(|tool| tool.name.as_str()).collect()), "{listed}");
    if let Some(call) = &server.call {
        check_call(&bascule, server, &entry, call, &work);
    }
}

fn check_call(bascule: &Bascule, server: &ListedServer, entry: &Value, call: &ListedCall, work: &str) {
    let arguments = match &call.arguments {
        Value::Null => "{}".to_owned(),
        arguments => arguments.to_string().replace("{work}", work),
    };
    let params =
        json!({ "name": call.tool, "arguments": serde_json::from_str::<Value>(&arguments).unwrap() });
    let direct = ask_directly(entry, "tools/call", &params);
    let behind = bascule.call(&format!("{}:{}", server.name, call.tool), &arguments);
    assert_ne!(behind["isError"], true, "{behind}");
    if !call.varies {
        assert_eq!(behind, direct["result"], "`{}` of `{}`", call.tool, server.name);
    }
}

/// A test of its own for each server, so that they run beside each other.
fn check_light(name: &str) {
    let servers = listed_servers();
    let server = servers.iter().find(|server| server.name == name).unwrap();
    check_server(server, server.light.as_deref().unwrap());
}

// req: US-05
#[test]
fn everything_works_as_listed() {
    check_light("everything");
}

// req: US-05
#[test]
fn filesystem_works_as_listed() {
    check_light("filesystem");
}

// req: US-05
#[test]
fn memory_works_as_listed() {
    check_light("memory");
}

// req: US-05
#[test]
fn time_works_as_listed() {
    check_light("time");
}

// req: US-05
#[test]
fn git_works_as_listed() {
    check_light("git");
}

// req: US-05
#[test]
fn sqlite_works_as_listed() {
    check_light("sqlite");
}

// req: US-05
#[test]
fn list_is_complete() {
    let servers = listed_servers();
    assert!(servers.len() >= 60, "{} servers", servers.len());
    let mut names: Vec<&str> = servers.iter().map(|server| server.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), servers.len(), "two servers have one name");
    let light: Vec<&ListedServer> = servers.iter().filter(|server| server.light.is_some()).collect();
    assert_eq!(light.len(), 6, "each light server has a test above");
    let pins = |file: &str| fs::read_to_string(project_file(&format!("tests/servers/{file}"))).unwrap();
    let pins = ["package.json", "requirements.txt", "sqlite.txt"].map(pins).concat();
    for server in light {
        let pinned = [
            format!("\"{}\": \"{}\"", server.package, server.version),
            format!("{}=={}", server.package, server.version),
        ];
        assert!(
            pinned.iter().any(|pin| pins.contains(pin)),
            "`{}` differs from the test environment",
            server.name
        );
    }
    assert!(Path::new(&project_file("docs/compatibility.md")).exists());
}
