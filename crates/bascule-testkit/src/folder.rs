//! The folder shared by a test and its scripted child processes.
//!
//! The test writes `script.json`. The processes append to `received`, `turns` and `started`; the files outlive a
//! crash, and the next process continues them.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::script::Script;

#[derive(Clone, Debug)]
pub(crate) struct ScriptFolder(PathBuf);

impl ScriptFolder {
    /// Creates a temporary folder.
    pub(crate) fn create() -> ScriptFolder {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        loop {
            let name = format!("bascule-testkit-{}-{}", process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
            let path = std::env::temp_dir().join(name);
            match fs::create_dir(&path) {
                Ok(()) => return ScriptFolder(path),
                // A killed test process with the same id left its folder.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => panic!("could not create `{}`: {error}", path.display()),
            }
        }
    }

    /// Returns the folder of this script file.
    pub(crate) fn of(script: &Path) -> ScriptFolder {
        ScriptFolder(script.parent().unwrap_or(Path::new(".")).to_owned())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn script_file(&self) -> PathBuf {
        self.0.join("script.json")
    }

    /// Reads the script. Returns `None` after the folder is removed.
    pub(crate) fn script(&self) -> Option<Script> {
        Script::parse(&fs::read_to_string(self.script_file()).ok()?).ok()
    }

    /// Replaces the script and restarts its behaviours from the first turn.
    pub(crate) fn set_script(&self, script: &Script) {
        let draft = self.0.join("script.draft");
        let _ = fs::remove_file(self.0.join("turns"));
        fs::write(&draft, script.to_string()).expect("the temporary folder is writable");
        // A rename, because the process reads at any time and must never see half a script.
        fs::rename(draft, self.script_file()).expect("the temporary folder is writable");
    }

    /// Counts this request and returns the number of earlier requests of this kind.
    pub(crate) fn next_turn(&self, kind: &str) -> usize {
        let before = self.lines("turns").iter().filter(|line| *line == kind).count();
        self.append("turns", kind.as_bytes());
        before
    }

    pub(crate) fn append(&self, file: &str, line: &[u8]) {
        let whole = [line, b"\n"].concat();
        let log = OpenOptions::new().create(true).append(true).open(self.0.join(file));
        // A missing folder means that the test has ended.
        let _ = log.and_then(|mut log| log.write_all(&whole));
    }

    /// Returns the complete lines of a file.
    pub(crate) fn lines(&self, file: &str) -> Vec<String> {
        let bytes = fs::read(self.0.join(file)).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')).map(str::to_owned).collect()
    }

    pub(crate) fn remove(&self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
