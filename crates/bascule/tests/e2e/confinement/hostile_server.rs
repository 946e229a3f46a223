//! A server that executes any code, confined by a policy, in a home folder of its own.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bascule::{BridgeConfig, McpBridgeAdapter, config};
use bascule_model::ProviderAdapter;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::embedded::within_timeout;
use crate::support::{CommandOutput, GeneratedToken, is_running, program, text};

/// Set in a process that runs a single test.
const SINGLE_TEST: &str = "BASCULE_TEST_ALONE";

/// The user that runs the bridge. Root has more permissions, so more must be denied to its servers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum User {
    Current,
    Nobody,
}

/// The current user, and `nobody` if the current user is root.
pub fn users() -> Vec<User> {
    match is_root() {
        true => vec![User::Current, User::Nobody],
        false => vec![User::Current],
    }
}

/// Fails with the reason if this user is not root.
pub fn require_root(reason: &str) {
    assert!(is_root(), "needs root: {reason}; run the tests as root");
}

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

/// A home with a secret, and a configuration with a hostile server `h`.
pub struct HostileServer {
    home: TempDir,
    user: User,
    _token: GeneratedToken,
}

impl HostileServer {
    /// `settings` extend the entry of the server.
    pub fn new(user: User, settings: Value) -> Self {
        // Not in the temporary folder, which servers may write, and accessible to `nobody`.
        let parent = if is_root() { "/run" } else { env!("CARGO_TARGET_TMPDIR") };
        let home = tempfile::tempdir_in(parent).unwrap();
        fs::write(home.path().join("mcp.json"), "{}").unwrap();
        let token = GeneratedToken::of(&home.path().join("mcp.json"));
        let hostile = Self { home, user, _token: token };
        for folder in [".ssh", "work", "other"] {
            fs::create_dir(hostile.path(folder)).unwrap();
        }
        fs::write(hostile.path(".ssh/id_test"), "the secret").unwrap();
        fs::write(hostile.path("other/plain"), "no secret").unwrap();
        fs::write(hostile.path("work/server.py"), include_str!("../hostile.py")).unwrap();
        fs::write(hostile.path("work/server.mjs"), include_str!("../hostile.mjs")).unwrap();
        hostile.configure(&json!({ "h": settings }));
        hostile
    }

    /// Replaces the configuration. All servers run the same program, each with its own settings.
    pub fn configure(&self, servers: &Value) {
        let entry = |settings: &Value| {
            let mut entry = json!({
                "command": "python3", "args": ["server.py"], "cwd": self.path("work"), "startTimeoutMs": 60_000,
            });
            entry.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
            entry
        };
        let servers = servers.as_object().unwrap().iter();
        let servers: Value = servers.map(|(name, settings)| (name.clone(), entry(settings))).collect();
        fs::write(self.path("mcp.json"), json!({ "mcpServers": servers }).to_string()).unwrap();
        self.set_owner();
    }

    /// A path in the home.
    pub fn path(&self, name: &str) -> PathBuf {
        self.home.path().canonicalize().unwrap().join(name)
    }

    /// `bascule` as the test's user, with a secret in its environment.
    pub fn command(&self, arguments: &[&str]) -> Command {
        self.command_as_user(Path::new(program()), &[&["--config", "mcp.json"], arguments].concat())
    }

    fn command_as_user(&self, program: &Path, arguments: &[&str]) -> Command {
        // `nobody` may have no access to the build folder, but can execute an open file.
        const AS_NOBODY: &str =
            "exec 9<\"$0\"; exec setpriv --reuid=65534 --regid=65534 --clear-groups /proc/self/fd/9 \"$@\"";
        let mut command = match self.user {
            User::Current => Command::new(program),
            User::Nobody => {
                let mut command = Command::new("sh");
                command.args(["-c", AS_NOBODY]).arg(program);
                command
            }
        };
        command.args(arguments).current_dir(self.home.path()).stdin(Stdio::null());
        command.env("HOME", self.path("")).env("BRIDGE_SECRET", "the secret");
        // `make test` sets folders that only its user can write.
        command.env_remove("XDG_DATA_HOME").env_remove("XDG_RUNTIME_DIR");
        command.env("XDG_STATE_HOME", self.path(".local/state"));
        // Other folders of PATH may be readable by one user only.
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin");
        command
    }

    /// Has the server run Python code. Returns its output or its exception.
    pub fn attempt(&self, code: &str) -> Result<String, String> {
        let arguments = json!({ "code": code }).to_string();
        let ran =
            CommandOutput::from(self.command(&["call", "h:try", &arguments, "--json"]).output().unwrap());
        let document = ran.document();
        match ran.code {
            Some(0) => Ok(text(&document["result"])),
            Some(1) => Err(text(&document["result"])),
            _ => panic!("{:?}: {ran:?}", self.user),
        }
    }

    /// Runs a test of this program again as the test's user, in the home and in a process of its own, so that it can
    /// count its own descriptors, children and memory.
    pub fn run_as_user(&self, test: &str) {
        // The jailer is started by its path, and `nobody` may have no access to the build folder.
        fs::copy(program(), self.path("bascule")).unwrap();
        let tests = std::env::current_exe().unwrap();
        let mut command = self.command_as_user(&tests, &["--exact", test, "--nocapture"]);
        let ran = CommandOutput::from(command.env(SINGLE_TEST, test).output().unwrap());
        print!("{}", ran.stdout);
        let passed = ran.code == Some(0) && ran.stdout.contains("1 passed");
        assert!(passed, "as {:?}: {}{}", self.user, ran.stdout, ran.stderr);
    }

    /// All processes that a command of this home started, and the command itself. They have the home in their
    /// environment, whatever their parent and session.
    pub fn processes(&self) -> Vec<u32> {
        let mark = format!("HOME={}", self.path("").display());
        let marked = |pid: &u32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            // A confined server has a home of its own in this one.
            environment.split(|byte| *byte == 0).any(|variable| variable.starts_with(mark.as_bytes()))
        };
        let entries = fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(marked).filter(|pid| is_running(*pid)).collect()
    }

    /// The code must fail with `PermissionError`.
    pub fn expect_denied(&self, code: &str) {
        let failed = self.attempt(code).expect_err(&format!("as {:?} this succeeded: {code}", self.user));
        assert!(failed.starts_with("PermissionError"), "as {:?}: {code}: {failed}", self.user);
    }

    pub fn expect_ok(&self, code: &str) -> String {
        self.attempt(code).unwrap_or_else(|failed| panic!("as {:?}: {code}: {failed}", self.user))
    }

    /// The server must not start. Returns the message.
    pub fn start_error(&self) -> String {
        let error = self.call_error("pass");
        assert_eq!(error["code"], "PROVIDER_INIT_FAILED", "{error:#}");
        error["message"].as_str().unwrap().to_owned()
    }

    /// The call must fail. Returns the normalised error.
    pub fn call_error(&self, code: &str) -> Value {
        let arguments = json!({ "code": code }).to_string();
        let mut command = self.command(&["call", "--config", "mcp.json", "h:try", &arguments, "--json"]);
        let ran = CommandOutput::from(command.output().unwrap());
        assert_eq!(ran.code, Some(3), "{ran:?}");
        ran.document()["error"].clone()
    }

    /// Gives all files in the home to the test's user.
    pub fn set_owner(&self) {
        fs::set_permissions(self.home.path(), fs::Permissions::from_mode(0o755)).unwrap();
        if self.user == User::Nobody {
            let done = Command::new("chown").arg("-R").arg("65534:65534").arg(self.home.path()).status();
            assert!(done.unwrap().success());
        }
    }
}

/// Returns true in a process that [`HostileServer::run_as_user`] started.
pub fn is_single_test() -> bool {
    std::env::var_os(SINGLE_TEST).is_some()
}

/// A bridge in this process, with the confined servers of the home that it was started in.
pub async fn bridge_in_home() -> McpBridgeAdapter {
    let home = std::env::current_dir().unwrap();
    let settings = config::load(&home.join("mcp.json"), &|_| None).unwrap().settings;
    let config = BridgeConfig { jailer: Some(home.join("bascule")), ..BridgeConfig::new(settings) };
    within_timeout(McpBridgeAdapter::init(config)).await.unwrap()
}

/// The path as a Python literal.
pub fn quoted(path: &Path) -> String {
    format!("{:?}", path.to_str().unwrap())
}
