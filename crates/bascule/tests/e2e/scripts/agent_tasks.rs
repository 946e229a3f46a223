//! Runs the tasks in `tests/agent-tasks` on real servers: scripts as a model writes them at the first try.
//!
//! The comments at the top of a task say what the script must return (`expect`), write (`file`) and print (`log`).
//! `make eval-agent` prints the score.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::{bridge, demo_servers, run_with};
use crate::embedded::terminate;
use crate::support::{project_file, test_env};

struct Task {
    name: String,
    code: String,
    expected: Option<Value>,
    /// Names of files and their contents.
    files: Vec<(String, String)>,
    logs: Vec<String>,
}

impl Task {
    fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap();
        let (head, code): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.starts_with("// "));
        let values = |key: &str| -> Vec<String> {
            let prefix = format!("// {key}: ");
            head.iter().filter_map(|line| line.strip_prefix(&prefix)).map(str::to_owned).collect()
        };
        let file = |line: String| {
            let (name, content) = line.split_once(' ').unwrap();
            (name.to_owned(), content.replace("\\n", "\n"))
        };
        Self {
            name: path.file_stem().unwrap().to_string_lossy().into_owned(),
            code: code.join("\n"),
            expected: values("expect").first().map(|json| serde_json::from_str(json).unwrap()),
            files: values("file").into_iter().map(file).collect(),
            logs: values("log"),
        }
    }

    /// Returns the first expectation that the outcome does not meet.
    fn failure(&self, outcome: &bascule::ScriptOutcome, place: &Path) -> Option<String> {
        if let Some(error) = &outcome.error {
            return Some(format!("{}: {}", error.name, error.message));
        }
        let value: Value =
            outcome.result.as_ref().map_or(Value::Null, |value| serde_json::from_str(value.get()).unwrap());
        if self.expected.as_ref().is_some_and(|expected| *expected != value) {
            return Some(format!("returned {value}"));
        }
        for (name, content) in &self.files {
            let written = std::fs::read_to_string(place.join(name)).unwrap_or_default();
            if written != *content {
                return Some(format!("`{name}` contains {written:?}"));
            }
        }
        let is_logged = |text: &String| outcome.logs.iter().any(|line| line.text.contains(text.as_str()));
        self.logs.iter().find(|text| !is_logged(text)).map(|text| format!("did not log {text:?}"))
    }
}

fn write_files(place: &Path) {
    let write = |name: &str, content: &str| std::fs::write(place.join(name), content).unwrap();
    std::fs::create_dir(place.join("logs")).unwrap();
    write("a.txt", "alpha\nbeta\ngamma\n");
    write("config.json", r#"{"port":8080, "debug":true}"#);
    write("data.csv", "name,amount,date\nAnn,10.5,2024-03-01\nBob,20,2024-03-15\nAnn,4.5,2024-04-02\n");
    write("logs/app-1.log", "INFO a\nERROR b\nERROR c\n");
    write("logs/app-2.log", "ERROR d\nINFO e\n");
    write("logs/page-0.json", r#"{"items":[1,2],"next":1}"#);
    write("logs/page-1.json", r#"{"items":[3,4],"next":2}"#);
    write("logs/page-2.json", r#"{"items":[5],"next":null}"#);
    write("big.txt", &(0..20_000).map(|n| format!("line {n}\n")).collect::<String>());
}

fn create_repository(folder: &Path) {
    std::fs::create_dir(folder).unwrap();
    let git = |arguments: &[&str]| {
        let done = Command::new("git").args(arguments).current_dir(folder).output().unwrap();
        assert!(done.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    };
    git(&["init", "--quiet", "--initial-branch=main"]);
    git(&["config", "user.name", "Tester"]);
    git(&["config", "user.email", "tester@localhost"]);
    for message in ["first", "second", "third"] {
        git(&["commit", "--quiet", "--allow-empty", "--message", message]);
    }
}

fn servers(place: &str) -> Value {
    let npm = |name: &str, arguments: &[&str]| {
        let script =
            test_env(&format!("node/node_modules/@modelcontextprotocol/server-{name}/dist/index.js"));
        let arguments: Vec<&str> = [script.to_str().unwrap()].iter().chain(arguments).copied().collect();
        json!({ "command": "node", "args": arguments, "startTimeoutMs": 60_000 })
    };
    let python = |program: &str, arguments: &[&str]| json!({ "command": test_env(program), "args": arguments, "startTimeoutMs": 60_000 });
    let mut servers = demo_servers();
    servers["files"] = npm("filesystem", &[place]);
    servers["everything"] = npm("everything", &[]);
    servers["memory"] = npm("memory", &[]);
    servers["memory"]["env"] = json!({ "MEMORY_FILE_PATH": format!("{place}/memory.json") });
    servers["memory"]["cwd"] = json!(place);
    servers["time"] = python("python/bin/mcp-server-time", &["--local-timezone", "Etc/UTC"]);
    servers["git"] = python("python/bin/mcp-server-git", &[]);
    servers["sqlite"] = python("sqlite/bin/mcp-server-sqlite", &["--db-path", &format!("{place}/data.db")]);
    for name in ["git", "sqlite"] {
        servers[name]["cwd"] = json!(place);
    }
    servers
}

// req: CM-13, CM-14, CM-15
#[tokio::test]
async fn scripts_work_at_the_first_try() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().canonicalize().unwrap();
    write_files(&place);
    create_repository(&place.join("repo"));
    let bridge = bridge(json!({ "mcpServers": servers(place.to_str().unwrap()) })).await;
    let context = json!({ "place": place, "repo": place.join("repo") });
    let mut tasks: Vec<_> = std::fs::read_dir(project_file("tests/agent-tasks"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    tasks.sort();
    let mut failures = Vec::new();
    for path in &tasks {
        let task = Task::read(path);
        let context = serde_json::value::to_raw_value(&context).unwrap();
        let outcome = run_with(&bridge, &task.code, |request| request.context = Some(context)).await;
        if let Some(failure) = task.failure(&outcome, &place) {
            failures.push(format!("{}: {failure}", task.name));
        }
    }
    terminate(&bridge).await;
    eprintln!("{} of {} tasks succeeded", tasks.len() - failures.len(), tasks.len());
    assert!(tasks.len() >= 40 && failures.is_empty(), "{}", failures.join("\n"));
}
