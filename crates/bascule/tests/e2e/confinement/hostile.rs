//! A server that does what it is told, in a home of its own, under a policy.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bascule::{BridgeConfig, McpBridgeAdapter, config};
use bascule_model::ProviderAdapter;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::embedded::within_timeout;
use crate::support::{CommandOutput, is_running, program, text};

/// Set in a process that was started to run one test and nothing else.
const ALONE: &str = "BASCULE_TEST_ALONE";

/// Who runs the bridge. Root may do more and must be kept from more.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum User {
    Ourselves,
    Nobody,
}

/// Whoever runs the tests; if that is root, who can be anybody, also somebody without any rights.
pub fn users() -> Vec<User> {
    match is_root() {
        true => vec![User::Ourselves, User::Nobody],
        false => vec![User::Ourselves],
    }
}

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

/// A home with a secret in it, and a configuration with one hostile server.
pub struct Hostile {
    home: TempDir,
    user: User,
}

impl Hostile {
    /// Confined by these settings: `{ "sandbox": … }` and whatever else.
    pub fn new(user: User, settings: Value) -> Self {
        // Not below the temporary folder, which may be written, nor where nobody else may go.
        let place = if is_root() { "/run" } else { env!("CARGO_TARGET_TMPDIR") };
        let home = tempfile::tempdir_in(place).unwrap();
        let hostile = Self { home, user };
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

    /// With these servers instead of the one. All are the same program, with settings of their own.
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
        self.give_away();
    }

    /// A place in the home.
    pub fn path(&self, name: &str) -> PathBuf {
        self.home.path().canonicalize().unwrap().join(name)
    }

    /// `bascule`, as the user who is meant, with the secret in its environment.
    pub fn command(&self, arguments: &[&str]) -> Command {
        self.command_of(Path::new(program()), arguments)
    }

    fn command_of(&self, program: &Path, arguments: &[&str]) -> Command {
        // Nobody may not be allowed to where the program was built, but to a file that is open.
        const AS_NOBODY: &str =
            "exec 9<\"$0\"; exec setpriv --reuid=65534 --regid=65534 --clear-groups /proc/self/fd/9 \"$@\"";
        let mut command = match self.user {
            User::Ourselves => Command::new(program),
            User::Nobody => {
                let mut command = Command::new("sh");
                command.args(["-c", AS_NOBODY]).arg(program);
                command
            }
        };
        command.args(arguments).current_dir(self.home.path()).stdin(Stdio::null());
        command.env("HOME", self.path("")).env("BRIDGE_SECRET", "the secret");
        // What was installed for one user need not be readable by another.
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin");
        command
    }

    /// Has the server run this Python. Gives what it printed, or how it failed.
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

    /// Runs a test of ours again, in the home, as the user who is meant, and in a process in which nothing else
    /// happens: what it counts there (open_descriptors, children, memory) is its own.
    pub fn run_alone(&self, test: &str) {
        // The jailer is started by its path, which as nobody we could not reach where it was built.
        fs::copy(program(), self.path("bascule")).unwrap();
        let ourselves = std::env::current_exe().unwrap();
        let mut command = self.command_of(&ourselves, &["--exact", test, "--nocapture"]);
        let ran = CommandOutput::from(command.env(ALONE, test).output().unwrap());
        print!("{}", ran.stdout);
        let passed = ran.code == Some(0) && ran.stdout.contains("1 passed");
        assert!(passed, "as {:?}: {}{}", self.user, ran.stdout, ran.stderr);
    }

    /// Everything that runs because of a command of ours, the command itself included: whatever its parent is by
    /// now, whatever its session, it has our home in its environment.
    pub fn processes(&self) -> Vec<u32> {
        let mark = format!("HOME={}", self.path("").display());
        let marked = |pid: &u32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
        };
        let entries = fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(marked).filter(|pid| is_running(*pid)).collect()
    }

    /// It must fail, for want of permission.
    pub fn must_not(&self, code: &str) {
        let failed = self.attempt(code).expect_err(&format!("as {:?} this worked: {code}", self.user));
        assert!(failed.starts_with("PermissionError"), "as {:?}: {code}: {failed}", self.user);
    }

    /// It must work.
    pub fn may(&self, code: &str) -> String {
        self.attempt(code).unwrap_or_else(|failed| panic!("as {:?}: {code}: {failed}", self.user))
    }

    fn give_away(&self) {
        fs::set_permissions(self.home.path(), fs::Permissions::from_mode(0o755)).unwrap();
        if self.user == User::Nobody {
            let done = Command::new("chown").arg("-R").arg("65534:65534").arg(self.home.path()).status();
            assert!(done.unwrap().success());
        }
    }
}

/// Whether this process runs one test and nothing else: see [`Hostile::run_alone`].
pub fn alone() -> bool {
    std::env::var_os(ALONE).is_some()
}

/// The servers of the home that this process was started in, confined, in this process.
pub async fn bridge_alone() -> McpBridgeAdapter {
    let home = std::env::current_dir().unwrap();
    let settings = config::load(&home.join("mcp.json"), &|_| None).unwrap().settings;
    let config = BridgeConfig { jailer: Some(home.join("bascule")), ..BridgeConfig::new(settings) };
    within_timeout(McpBridgeAdapter::init(config)).await.unwrap()
}

/// A Python literal.
pub fn quoted(path: &Path) -> String {
    format!("{:?}", path.to_str().unwrap())
}
