//! Runs the `bascule` program in a temporary folder, and reads the state of processes from `/proc`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

/// Upper bound of every wait. A command that takes longer is killed and the test fails.
pub const TIMEOUT: Duration = Duration::from_secs(120);

/// A temporary folder with an `mcp.json`, in which the program runs.
pub struct Bascule {
    folder: TempDir,
    /// Keeps the homes of confined servers and the control socket.
    data: TempDir,
    environment: Vec<(String, String)>,
    _token: GeneratedToken,
    /// Commands name the file with `--config`, and thereby trust it.
    pub names_config: bool,
}

/// Removes the token that `serve` and `token` generate. It lies in the home of the user database, whatever the environment.
pub struct GeneratedToken(Option<PathBuf>);

impl GeneratedToken {
    pub fn of(config: &Path) -> Self {
        let path = config.canonicalize().unwrap();
        let fnv1a =
            path.as_os_str().as_encoded_bytes().iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
                (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
            });
        let name = format!(".local/share/bascule/tokens/{fnv1a:016x}");
        Self(bascule_sandbox::own_home().map(|home| home.join(name)))
    }
}

impl Drop for GeneratedToken {
    fn drop(&mut self) {
        let _ = self.0.as_ref().map(std::fs::remove_file);
    }
}

/// Exit code and output of a command. The code is none after a signal.
#[derive(Debug)]
pub struct CommandOutput {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Bascule {
    pub fn with_servers(servers: Value) -> Self {
        Self::with_text(&json!({ "mcpServers": servers }).to_string())
    }

    pub fn with_server(name: &str, entry: Value) -> Self {
        Self::with_servers(json!({ name: entry }))
    }

    /// Configures the four demo servers.
    pub fn with_demo_servers() -> Self {
        Self::with_servers(demo_servers())
    }

    /// Uses this text as `mcp.json`; it need not be valid.
    pub fn with_text(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("mcp.json"), text).unwrap();
        let token = GeneratedToken::of(&folder.path().join("mcp.json"));
        let data = tempfile::tempdir().unwrap();
        Self { folder, data, environment: Vec::new(), _token: token, names_config: true }
    }

    /// Sets an environment variable of the program.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Commands find the file in the working directory.
    pub fn finding_config(mut self) -> Self {
        self.names_config = false;
        self
    }

    /// The program's working directory.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The program's `XDG_DATA_HOME` and `XDG_STATE_HOME`.
    pub fn data_folder(&self) -> &Path {
        self.data.path()
    }

    /// A file in the own home of a confined server, if the server has created it.
    pub fn file_of(&self, server: &str, name: &str) -> Option<PathBuf> {
        let folders = std::fs::read_dir(self.data.path().join("bascule/servers")).ok()?.flatten();
        let prefix = format!("{server}-");
        let mut own = folders.filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix));
        Some(own.next()?.path().join("home").join(name)).filter(|path| path.exists())
    }

    /// Prepares a command. The caller starts it and waits for it.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(program());
        command.args(arguments);
        self.prepared(command)
    }

    /// Like `command`, with these arguments of the shell's `ulimit`.
    pub fn command_with_ulimit(&self, arguments: &[&str], ulimit: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit {ulimit} && exec \"$@\""), "sh"]).arg(program()).args(arguments);
        self.prepared(command)
    }

    /// Like `command`, but a shell, started by `before`, does `preparation` first.
    pub fn command_prepared_by(&self, before: &[&str], preparation: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(before[0]);
        command.args(&before[1..]).args(["sh", "-c", &format!("{preparation} && exec \"$@\""), "sh"]);
        command.arg(program()).args(arguments);
        self.prepared(command)
    }

    fn prepared(&self, mut command: Command) -> Command {
        if self.names_config && !command.get_args().any(|argument| argument == "--config") {
            command.args(["--config", "mcp.json"]);
        }
        command.current_dir(self.folder());
        command.env("XDG_DATA_HOME", self.data.path()).env("XDG_RUNTIME_DIR", self.data.path());
        command.env("XDG_STATE_HOME", self.data.path());
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.env_remove("BASCULE_LOG").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs a command until it exits.
    pub fn run(&self, arguments: &[&str]) -> CommandOutput {
        self.run_with_input(arguments, "")
    }

    /// Runs a command with this text on stdin until it exits.
    pub fn run_with_input(&self, arguments: &[&str], input: &str) -> CommandOutput {
        let mut child = self.command(arguments).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_owned();
        // The write fails if the command exits without reading stdin, which is allowed.
        std::thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
        let pid = child.id();
        let (done, finished) = std::sync::mpsc::channel();
        std::thread::spawn(move || done.send(child.wait_with_output()));
        match finished.recv_timeout(TIMEOUT) {
            Ok(output) => CommandOutput::from(output.unwrap()),
            Err(_) => {
                let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
                panic!("`bascule {}` did not exit within {TIMEOUT:?}", arguments.join(" "));
            }
        }
    }

    /// Runs a command with `--json` and returns its exit code and JSON document.
    pub fn run_json(&self, arguments: &[&str]) -> (i32, Value) {
        let output = self.run(&[arguments, &["--json"]].concat());
        (output.code.unwrap_or_else(|| panic!("killed by a signal: {output:?}")), output.document())
    }

    /// Calls a tool, expects exit code 3, and returns the normalised error.
    pub fn call_error(&self, tool: &str, arguments: &str) -> Value {
        let (code, document) = self.run_json(&["call", tool, arguments]);
        assert_eq!(code, 3, "{document:#}");
        document["error"].clone()
    }

    /// Calls a tool, expects exit code 0, and returns its `CallToolResult`.
    pub fn call(&self, tool: &str, arguments: &str) -> Value {
        let (code, document) = self.run_json(&["call", tool, arguments]);
        assert_eq!(code, 0, "{document:#}");
        document["result"].clone()
    }
}

impl CommandOutput {
    /// Parses stdout, which must be exactly one JSON document.
    pub fn document(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("stdout is not one JSON document: {error}: {self:?}"))
    }
}

impl From<Output> for CommandOutput {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("the program writes UTF-8");
        Self { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

/// Path of the program under test.
pub fn program() -> &'static str {
    env!("CARGO_BIN_EXE_bascule")
}

/// Returns the path of the program that is the demo servers.
pub fn demo_program() -> PathBuf {
    bascule_testkit::binary("bascule-demo")
}

/// Returns the configuration entry of one demo server.
pub fn demo_server(name: &str) -> Value {
    json!({ "command": demo_program(), "args": [name] })
}

/// Returns the configuration entries of all demo servers.
pub fn demo_servers() -> Value {
    let entry = |name: &&str| ((*name).to_owned(), demo_server(name));
    ["notes", "clock", "counter", "trouble"].iter().map(entry).collect()
}

/// Path of a file of the installed test servers. Panics if it is missing: no test is skipped.
pub fn test_env(path: &str) -> PathBuf {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.testenv");
    let root = std::env::var_os("BASCULE_TESTENV").map_or_else(default, PathBuf::from);
    let file = root.join(path);
    assert!(file.exists(), "`{path}` is not installed: run `make test-env`");
    file.canonicalize().unwrap()
}

/// Path of a file in this repository.
pub fn project_file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path).canonicalize().unwrap()
}

/// Returns an entry of `mcpServers` with additional settings.
pub fn with_settings(mut entry: Value, settings: Value) -> Value {
    entry.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    entry
}

/// Joins the text blocks of a tool result.
pub fn text(result: &Value) -> String {
    let blocks = result["content"].as_array().cloned().unwrap_or_default();
    blocks.iter().filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join("\n")
}

/// Polls a condition until it holds. Panics after [`TIMEOUT`].
pub fn eventually(condition: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < TIMEOUT, "timed out waiting until {condition}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns true if the process runs. A zombie does not.
pub fn is_running(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['Z', 'X']))
}

/// Child processes of all threads of a process.
pub fn children(pid: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let of = |thread: PathBuf| std::fs::read_to_string(thread.join("children")).unwrap_or_default();
    let lists: Vec<String> = threads.map(|thread| of(thread.path())).collect();
    lists.iter().flat_map(|list| list.split_whitespace()).map(|pid| pid.parse().unwrap()).collect()
}

/// Sends a signal such as `TERM`.
pub fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill").args([format!("-{name}"), pid.to_string()]).status().unwrap();
    assert!(sent.success(), "could not send SIG{name} to {pid}");
}

/// Waits until a command exits. Its output must fit into the pipes.
pub fn wait_for_output(mut child: Child) -> CommandOutput {
    eventually("the command exits", || child.try_wait().unwrap().is_some());
    child.wait_with_output().unwrap().into()
}

/// Returns true in a process that runs only this test, so that counted resources belong to the test. Otherwise starts
/// such a process, checks that the test passes there, and returns false.
#[allow(clippy::print_stdout, reason = "measured figures, visible with `--nocapture`")]
pub fn is_alone(test: &str) -> bool {
    const ALONE: &str = "BASCULE_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let mut rerun = Command::new(std::env::current_exe().unwrap());
    let output = rerun.args(["--exact", test, "--nocapture"]).env(ALONE, "1").output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    print!("{stdout}");
    assert!(output.status.success() && stdout.contains("1 passed"), "{stdout}{stderr}");
    false
}

/// Targets of this process's open descriptors, sorted. Files in `/proc` are left out: the watchdog reads them briefly.
pub fn open_descriptors() -> Vec<String> {
    let entries: Vec<_> = std::fs::read_dir("/proc/self/fd").unwrap().flatten().collect();
    let targets = entries.iter().filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let targets = targets.map(|target| target.display().to_string());
    let mut targets: Vec<_> = targets.filter(|target| !target.starts_with("/proc")).collect();
    targets.sort();
    targets
}

/// Returns true if no descriptor is open that was not open before.
pub fn has_no_new_descriptors(before: &[String]) -> bool {
    let now = open_descriptors();
    now.len() <= before.len() && now.iter().all(|target| before.contains(target))
}

/// Resident memory of this process in kB.
pub fn resident_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Control groups that a process has created, in every hierarchy.
pub fn cgroups_of(pid: u32) -> Vec<PathBuf> {
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
