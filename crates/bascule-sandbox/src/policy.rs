//! What a confined process may do, in one value that crosses to the jail as JSON.

use std::io::Read;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// A policy, complete: the jail adds nothing of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// Which files.
    pub files: Files,
    /// Whether it may open sockets.
    pub network: bool,
    /// Whether it is kept from system calls that no tool server needs, and from the capabilities behind them.
    pub harden: bool,
    /// How many files each of its processes may hold open.
    pub open_files: Option<u64>,
}

/// Which files a process may reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Files {
    /// Whatever the user may.
    All,
    /// Everything may be read and run, except `secrets` and what is below them; written, only below `write`.
    AllBut {
        /// What nobody but the user should read.
        secrets: Vec<PathBuf>,
        /// Where it may write.
        write: Vec<PathBuf>,
    },
    /// Only these.
    Listed {
        /// What it may read and run.
        read: Vec<PathBuf>,
        /// What it may also write.
        write: Vec<PathBuf>,
        /// What is not meant when something above it is listed.
        secrets: Vec<PathBuf>,
    },
}

impl Policy {
    /// No confinement at all, but for the reaper.
    pub fn off() -> Self {
        Self { files: Files::All, network: true, harden: false, open_files: None }
    }

    /// What nearly every server can live with. `write` is what this server may write besides the temporary
    /// folder and the caches of the usual package managers.
    pub fn standard(home: Option<&Path>, write: Vec<PathBuf>) -> Self {
        let mut write = write;
        write.extend(scratch());
        write.extend(home.into_iter().flat_map(caches));
        let secrets = home.into_iter().flat_map(secrets).chain(runtime_folder()).collect();
        let files = Files::AllBut { secrets, write };
        Self { files, network: true, harden: true, open_files: None }
    }

    /// Nothing but system libraries, the interpreter and what is listed; no network.
    pub fn strict(home: Option<&Path>, program: &Path, read: Vec<PathBuf>, write: Vec<PathBuf>) -> Self {
        let mut read = read;
        read.extend(SYSTEM.iter().map(PathBuf::from));
        let real = home.and_then(|home| home.canonicalize().ok());
        read.extend(interpreters(program, real.as_deref()));
        let secrets = home.into_iter().flat_map(secrets).chain(runtime_folder()).collect();
        let files = Files::Listed { read, write, secrets };
        Self { files, network: false, harden: true, open_files: None }
    }
}

impl Policy {
    /// Whether it lets a process write this file, which exists.
    pub fn lets_write(&self, file: &Path) -> bool {
        let Ok(file) = file.canonicalize() else { return false };
        let within = |paths: &[PathBuf]| {
            paths.iter().filter_map(|path| path.canonicalize().ok()).any(|path| file.starts_with(path))
        };
        match &self.files {
            Files::All => true,
            Files::AllBut { secrets, write } | Files::Listed { secrets, write, .. } => {
                within(write) && !within(secrets)
            }
        }
    }
}

/// What programs need to run at all.
const SYSTEM: [&str; 16] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib64",
    "/lib32",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/ssl",
    "/etc/nsswitch.conf",
    "/proc/self",
    "/sys/devices/system/cpu",
    "/etc/pki",
    "/etc/ca-certificates",
];

/// Below the home folder: keys, tokens, and what browsers remember. Bascule's own files are among them.
const SECRETS: [&str; 34] = [
    ".ssh",
    ".aws",
    ".azure",
    ".gnupg",
    ".kube",
    ".docker",
    ".netrc",
    ".git-credentials",
    ".pgpass",
    ".password-store",
    ".config/gcloud",
    ".config/gh",
    ".config/op",
    ".config/bascule",
    ".config/google-chrome",
    ".config/chromium",
    ".config/BraveSoftware",
    ".config/microsoft-edge",
    ".mozilla",
    ".thunderbird",
    ".local/share/keyrings",
    ".local/share/bascule",
    ".vault-token",
    "Library/Keychains",
    ".npmrc",
    ".pypirc",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".config/rclone",
    ".claude",
    ".claude.json",
    "snap/firefox",
    "snap/chromium",
    ".var/app",
];

/// Below the home folder: where package managers keep what they fetched.
const CACHES: [&str; 4] = [".npm", ".cache", ".local/share/uv", ".bun/install/cache"];

fn secrets(home: &Path) -> Vec<PathBuf> {
    SECRETS.iter().map(|name| home.join(name)).collect()
}

/// Where a running bridge keeps what its own commands need to reach it.
fn runtime_folder() -> Option<PathBuf> {
    let folder = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute())?;
    Some(folder.join("bascule"))
}

fn caches(home: &Path) -> Vec<PathBuf> {
    CACHES.iter().map(|name| home.join(name)).collect()
}

fn scratch() -> Vec<PathBuf> {
    vec![std::env::temp_dir(), "/tmp".into(), "/var/tmp".into()]
}

/// The folders that a program, and the program that its first line names, were installed into.
fn interpreters(program: &Path, home: Option<&Path>) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for program in [Some(program.to_path_buf()), runner(program)].into_iter().flatten() {
        folders.extend(environment(&program));
        folders.extend(installation(&program, home));
    }
    folders
}

/// What a script's first line says it is run by. A script may begin with anything, and with no line at all.
fn runner(script: &Path) -> Option<PathBuf> {
    let mut start = Vec::new();
    std::fs::File::open(script).ok()?.take(LONGEST_FIRST_LINE).read_to_end(&mut start).ok()?;
    let line = start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let path = std::str::from_utf8(line).ok()?.split_whitespace().next()?;
    Some(path.into())
}

/// The kernel reads no further either.
const LONGEST_FIRST_LINE: u64 = 256;

/// A virtual environment of Python's: its interpreter is a link to one elsewhere, its libraries are here.
fn environment(program: &Path) -> Option<PathBuf> {
    let folder = program.parent()?.parent()?;
    folder.join("pyvenv.cfg").is_file().then(|| folder.to_path_buf())
}

/// The folder that a program was installed into: beside its `bin` are its libraries. Where secrets are beside it
/// too, as with `~/bin`, only the folder that it lies in, or at the worst nothing but itself.
fn installation(program: &Path, home: Option<&Path>) -> Option<PathBuf> {
    let real = program.canonicalize().ok()?;
    let folder = real.parent()?;
    let above = folder.parent().filter(|above| folder.ends_with("bin") && !holds_secrets(above, home));
    let installed = above.unwrap_or(folder);
    // A program at the top of the tree must not open the whole of it, nor one at the top of the home.
    let too_much = installed.components().count() <= 1 || holds_secrets(installed, home);
    Some(if too_much { real } else { installed.to_path_buf() })
}

fn holds_secrets(folder: &Path, home: Option<&Path>) -> bool {
    home.is_some_and(|home| home.starts_with(folder) || secrets(home).iter().any(|it| it.starts_with(folder)))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// A home with these programs, each with its first line; what may be read because of the first of them.
    fn check(programs: &[(&str, &str)], links: &[(&str, &str)], expected: &[&str]) {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().canonicalize().unwrap();
        for (name, line) in programs {
            fs::create_dir_all(home.join(name).parent().unwrap()).unwrap();
            fs::write(home.join(name), line.replace('~', home.to_str().unwrap())).unwrap();
        }
        for (from, to) in links {
            fs::create_dir_all(home.join(from).parent().unwrap()).unwrap();
            symlink(home.join(to), home.join(from)).unwrap();
        }
        let start = links.first().map_or(programs[0].0, |(from, _)| from);
        let found = interpreters(&home.join(start), Some(&home));
        let found: Vec<_> = found.iter().map(|path| path.strip_prefix(&home).unwrap_or(path)).collect();
        assert_eq!(found, expected.iter().map(Path::new).collect::<Vec<_>>());
    }

    // req: SB-04
    #[test]
    fn a_program_is_read_with_what_was_installed_beside_it() {
        check(&[("opt/tool/bin/server", "\x7fELF")], &[], &["opt/tool"]);
        check(&[("opt/tool/server", "")], &[], &["opt/tool"]);
    }

    // req: SB-04
    #[test]
    fn a_script_is_read_with_its_interpreter_and_that_with_its_own() {
        let script = ("venv/bin/server", "#!~/venv/bin/python -I\nimport this");
        let python = ("python/3.11/bin/python3.11", "\x7fELF");
        check(&[script, python, ("venv/pyvenv.cfg", "")], &[], &["venv", "venv", "venv"]);
        let link = ("venv/bin/python", "python/3.11/bin/python3.11");
        check(&[python, ("venv/pyvenv.cfg", "")], &[link], &["venv", "python/3.11"]);
    }

    // req: SB-04
    #[test]
    fn what_lies_beside_secrets_does_not_open_them() {
        check(&[("bin/server", "")], &[], &["bin"]);
        check(&[(".local/bin/server", "")], &[], &[".local/bin"]);
        check(&[("server", "")], &[], &["server"]);
        check(&[(".ssh/server", "")], &[], &[".ssh/server"]);
    }
}
