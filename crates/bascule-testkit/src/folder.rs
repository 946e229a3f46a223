//! The folder through which a test and its scripted child process know of each other.
//!
//! `script.json` is written by the test; `received`, `turns` and `started` grow as the process works, and
//! outlive it: what comes after a crash goes on where the crash was.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::script::Script;

/// The folder of one scripted process.
#[derive(Clone, Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// A new folder among the system's temporary ones.
    pub(crate) fn create() -> Folder {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        loop {
            let name = format!("bascule-testkit-{}-{}", process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
            let path = std::env::temp_dir().join(name);
            match fs::create_dir(&path) {
                Ok(()) => return Folder(path),
                // An earlier test process of the same id was killed before it could tidy up.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => panic!("could not create `{}`: {error}", path.display()),
            }
        }
    }

    /// The folder in which this script file lies.
    pub(crate) fn of(script: &Path) -> Folder {
        Folder(script.parent().unwrap_or(Path::new(".")).to_owned())
    }

    pub(crate) fn script_file(&self) -> PathBuf {
        self.0.join("script.json")
    }

    /// The script as it is now, or nothing once the folder has been removed.
    pub(crate) fn script(&self) -> Option<Script> {
        Script::parse(&fs::read_to_string(self.script_file()).ok()?).ok()
    }

    /// Replaces the script. Its behaviours begin from their first turn.
    pub(crate) fn change(&self, script: &Script) {
        let draft = self.0.join("script.draft");
        let _ = fs::remove_file(self.0.join("turns"));
        fs::write(&draft, script.to_string()).expect("a temporary folder can be written to");
        // Renamed, because the process reads at any moment and must never see half a script.
        fs::rename(draft, self.script_file()).expect("a temporary folder can be written to");
    }

    /// How many requests of this kind came before; counts this one.
    pub(crate) fn turn(&self, kind: &str) -> usize {
        let before = self.lines("turns").iter().filter(|line| *line == kind).count();
        self.append("turns", kind.as_bytes());
        before
    }

    pub(crate) fn append(&self, file: &str, line: &[u8]) {
        let whole = [line, b"\n"].concat();
        let log = OpenOptions::new().create(true).append(true).open(self.0.join(file));
        // Where the folder is gone the test is over, and nobody will read this.
        let _ = log.and_then(|mut log| log.write_all(&whole));
    }

    /// The finished lines of a file.
    pub(crate) fn lines(&self, file: &str) -> Vec<String> {
        let bytes = fs::read(self.0.join(file)).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')).map(str::to_owned).collect()
    }

    pub(crate) fn remove(&self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
