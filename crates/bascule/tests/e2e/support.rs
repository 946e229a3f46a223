//! Runs `bascule` in a folder of its own, with the configuration a test wants.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

/// No command of a test may take longer; one that hangs is ended and fails.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A folder with an `mcp.json`, and the program to run in it.
pub struct Bascule {
    folder: TempDir,
    variables: Vec<(String, String)>,
}

/// What a command came to.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Bascule {
    /// With these `mcpServers`.
    pub fn with_servers(servers: Value) -> Self {
        Self::with_text(&json!({ "mcpServers": servers }).to_string())
    }

    /// With one server.
    pub fn with_server(name: &str, entry: Value) -> Self {
        Self::with_servers(json!({ name: entry }))
    }

    /// With the servers that come with the program.
    pub fn with_demo_servers() -> Self {
        let demo = |name| json!({ "command": program(), "args": ["__demo", name] });
        let names = ["notes", "clock", "counter", "trouble"];
        Self::with_servers(names.iter().map(|name| ((*name).to_owned(), demo(*name))).collect())
    }

    /// With this text as configuration, which may be no JSON at all.
    pub fn with_text(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("mcp.json"), text).unwrap();
        Self { folder, variables: Vec::new() }
    }

    /// Sets a variable of the program's environment.
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The folder that the program runs in.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The program, ready to be started; its process is the caller's business.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(program());
        command.args(arguments).current_dir(self.folder());
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.env_remove("BASCULE_LOG").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs a command to its end.
    pub fn run(&self, arguments: &[&str]) -> Ran {
        self.run_with_input(arguments, "")
    }

    /// Runs a command to its end, with this on its stdin.
    pub fn run_with_input(&self, arguments: &[&str], input: &str) -> Ran {
        let mut child = self.command(arguments).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_owned();
        // A command that does not read its input closes it; that is no failure of the test.
        std::thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
        let pid = child.id();
        let (done, finished) = std::sync::mpsc::channel();
        std::thread::spawn(move || done.send(child.wait_with_output()));
        match finished.recv_timeout(PATIENCE) {
            Ok(output) => Ran::from(output.unwrap()),
            Err(_) => {
                let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
                panic!("`bascule {}` did not end within {PATIENCE:?}", arguments.join(" "));
            }
        }
    }

    /// Runs a command with `--json`; gives its exit code and its one document.
    pub fn json(&self, arguments: &[&str]) -> (i32, Value) {
        let ran = self.run(&[arguments, &["--json"]].concat());
        (ran.code.unwrap_or_else(|| panic!("ended by a signal: {ran:?}")), ran.document())
    }

    /// Calls a tool that must fail: exit code 3, and the normalised error.
    pub fn call_error(&self, tool: &str, arguments: &str) -> Value {
        let (code, document) = self.json(&["call", tool, arguments]);
        assert_eq!(code, 3, "{document:#}");
        document["error"].clone()
    }

    /// Calls a tool that must answer: exit code 0, and its `CallToolResult`.
    pub fn call(&self, tool: &str, arguments: &str) -> Value {
        let (code, document) = self.json(&["call", tool, arguments]);
        assert_eq!(code, 0, "{document:#}");
        document["result"].clone()
    }
}

impl Ran {
    /// The one JSON document on stdout. More, or less, is a failure.
    pub fn document(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}: not one document: {self:?}"))
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("the program writes UTF-8");
        Self { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

/// The program under test.
pub fn program() -> &'static str {
    env!("CARGO_BIN_EXE_bascule")
}

/// A file of the installed test servers. Never skipped: without them the test fails and says what to do.
pub fn test_env(path: &str) -> PathBuf {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.testenv");
    let root = std::env::var_os("BASCULE_TESTENV").map_or_else(default, PathBuf::from);
    let file = root.join(path);
    assert!(file.exists(), "`{path}` is not installed: run `make test-env`");
    file.canonicalize().unwrap()
}

/// A file of this project.
pub fn project_file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path).canonicalize().unwrap()
}

/// The text of a result's content blocks.
pub fn text(result: &Value) -> String {
    let blocks = result["content"].as_array().cloned().unwrap_or_default();
    blocks.iter().filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join("\n")
}

/// Waits until something becomes true; not for a time, but with an end.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < PATIENCE, "never came true: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether a process runs. One that ended and was not yet collected does not.
pub fn is_running(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['Z', 'X']))
}

/// The children of a process, those of all its threads.
pub fn children(pid: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let of = |thread: PathBuf| std::fs::read_to_string(thread.join("children")).unwrap_or_default();
    let lists: Vec<String> = threads.map(|thread| of(thread.path())).collect();
    lists.iter().flat_map(|list| list.split_whitespace()).map(|pid| pid.parse().unwrap()).collect()
}

/// Whether this process runs one test and nothing else, so that what it counts is its own. If not, has one run this
/// test, which must pass.
#[allow(clippy::print_stdout, reason = "figures that are seen are worth a look: `--nocapture`")]
pub fn is_alone(test: &str) -> bool {
    const ALONE: &str = "BASCULE_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let ourselves = std::env::current_exe().unwrap();
    let ran =
        Command::new(ourselves).args(["--exact", test, "--nocapture"]).env(ALONE, "1").output().unwrap();
    let (said, complained) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    print!("{said}");
    assert!(ran.status.success() && said.contains("1 passed"), "{said}{complained}");
    false
}

/// What this process holds open, except what is only looked at: the watchdog reads `/proc` now and then.
pub fn descriptors() -> Vec<String> {
    let entries: Vec<_> = std::fs::read_dir("/proc/self/fd").unwrap().flatten().collect();
    let places = entries.iter().filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let places = places.map(|place| place.display().to_string());
    let mut places: Vec<_> = places.filter(|place| !place.starts_with("/proc")).collect();
    places.sort();
    places
}

/// Whether nothing is held open that was not before, nor more of a kind.
pub fn holds_no_more_than(before: &[String]) -> bool {
    let now = descriptors();
    now.len() <= before.len() && now.iter().all(|place| before.contains(place))
}

/// What this process holds in memory, in kB.
pub fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// The folders of the control groups that a process has made, in every hierarchy.
pub fn groups_of(pid: u32) -> Vec<PathBuf> {
    let (mut found, prefix) = (Vec::new(), format!("bascule-{pid}-"));
    let mut open = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(folder) = open.pop() {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        for entry in folders {
            let ours = entry.file_name().to_string_lossy().starts_with(&prefix);
            if ours { found.push(entry.path()) } else { open.push(entry.path()) }
        }
    }
    found
}
