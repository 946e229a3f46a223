//! A server that does what it is told, in a home of its own, under a policy.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Ran, program, text};

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
        let mut entry = json!({
            "command": "python3", "args": ["server.py"], "cwd": hostile.path("work"), "startTimeoutMs": 60_000,
        });
        entry.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
        let config = json!({ "mcpServers": { "h": entry } }).to_string();
        fs::write(hostile.path("mcp.json"), config).unwrap();
        hostile.give_away();
        hostile
    }

    /// A place in the home.
    pub fn path(&self, name: &str) -> PathBuf {
        self.home.path().canonicalize().unwrap().join(name)
    }

    /// `bascule`, as the user who is meant, with the secret in its environment.
    pub fn command(&self, arguments: &[&str]) -> Command {
        // Nobody may not be allowed to where the program was built, but to a file that is open.
        const AS_NOBODY: &str =
            "exec 9<\"$0\"; exec setpriv --reuid=65534 --regid=65534 --clear-groups /proc/self/fd/9 \"$@\"";
        let mut command = match self.user {
            User::Ourselves => Command::new(program()),
            User::Nobody => {
                let mut command = Command::new("sh");
                command.args(["-c", AS_NOBODY, program()]);
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
        let ran = Ran::from(self.command(&["call", "h:try", &arguments, "--json"]).output().unwrap());
        let document = ran.document();
        match ran.code {
            Some(0) => Ok(text(&document["result"])),
            Some(1) => Err(text(&document["result"])),
            _ => panic!("{:?}: {ran:?}", self.user),
        }
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

/// A Python literal.
pub fn quoted(path: &Path) -> String {
    format!("{:?}", path.to_str().unwrap())
}
