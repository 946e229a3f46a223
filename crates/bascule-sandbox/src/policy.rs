//! The permissions of a confined process, passed to the jail as JSON.

use std::io::Read;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// A complete policy: the jail adds no permissions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    pub files: FileAccess,
    /// Allows sockets to other machines.
    pub network: bool,
    /// Allows sockets in the file system, through which other programs of the user take orders.
    pub unix_sockets: bool,
    /// Allows changes of the mode, owner, times and attributes of files. Landlock does not confine them to the granted
    /// paths. Only enforced with `harden`.
    pub file_metadata: bool,
    /// Refuses system calls that no tool server needs, and drops the capabilities behind them.
    pub harden: bool,
    /// Maximum number of open files per process.
    pub open_files: Option<u64>,
}

/// The files a process may access.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FileAccess {
    /// Everything the user may access.
    All,
    /// Read and execute everything except `secrets` and their contents; write only below `write`.
    AllExcept { secrets: Vec<PathBuf>, write: Vec<PathBuf> },
    /// Read and execute only below `read` and `write`; write only below `write`.
    Listed {
        read: Vec<PathBuf>,
        write: Vec<PathBuf>,
        /// Closed even if a folder above them is listed. A path that is itself listed is open.
        secrets: Vec<PathBuf>,
    },
}

impl Policy {
    /// No confinement. The jail still has its reaper.
    pub fn off() -> Self {
        Self {
            files: FileAccess::All,
            network: true,
            unix_sockets: true,
            file_metadata: true,
            harden: false,
            open_files: None,
        }
    }

    /// A policy that nearly every server works under. The server may write `write`, the temporary folders and the caches
    /// of common package managers.
    ///
    /// `homes` begins with the server's own home. Secrets are closed in all of them.
    pub fn standard(homes: &[PathBuf], mut write: Vec<PathBuf>) -> Self {
        write.extend(temporary_folders());
        write.extend(homes.first().into_iter().flat_map(|home| package_caches(home)));
        let files = FileAccess::AllExcept { secrets: all_secrets(homes), write };
        Self { files, unix_sockets: false, harden: true, ..Self::off() }
    }

    /// Access to system libraries, the program with its interpreter, and the listed paths. No network.
    pub fn strict(homes: &[PathBuf], program: &Path, mut read: Vec<PathBuf>, write: Vec<PathBuf>) -> Self {
        read.extend(SYSTEM.iter().map(PathBuf::from));
        let real_homes: Vec<PathBuf> = homes.iter().filter_map(|home| home.canonicalize().ok()).collect();
        read.extend(program_folders(program, &real_homes));
        let files = FileAccess::Listed { read, write, secrets: all_secrets(homes) };
        Self {
            files,
            network: false,
            unix_sockets: false,
            file_metadata: false,
            harden: true,
            open_files: None,
        }
    }

    /// Returns true if the policy allows writing an existing file.
    pub fn allows_write(&self, file: &Path) -> bool {
        let Ok(file) = file.canonicalize() else { return false };
        let is_below = |paths: &[PathBuf]| {
            paths.iter().filter_map(|path| path.canonicalize().ok()).any(|path| file.starts_with(path))
        };
        match &self.files {
            FileAccess::All => true,
            FileAccess::AllExcept { secrets, write } | FileAccess::Listed { secrets, write, .. } => {
                is_below(write) && !is_below(secrets)
            }
        }
    }
}

/// Readable under every policy: programs need these to run at all.
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

/// Paths in the home folder that hold keys, tokens, browser profiles, histories, the configuration of MCP clients, and
/// Bascule's own files. `tokens` has an entry of its own because it may be a link.
const SECRETS: [&str; 58] = [
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
    ".local/share/bascule/tokens",
    ".bash_history",
    ".zsh_history",
    ".python_history",
    ".node_repl_history",
    ".psql_history",
    ".mysql_history",
    ".cursor",
    ".codeium",
    ".codex",
    ".gemini",
    ".continue",
    ".config/Claude",
    ".config/Code/User",
    ".config/Cursor",
    ".config/zed",
    ".config/github-copilot",
    ".config/doctl",
    ".config/hcloud",
    ".terraform.d",
    ".fly",
    ".local/share/fish",
    ".config/atuin",
    ".local/share/atuin",
];

/// Caches of package managers in the home folder.
const CACHES: [&str; 4] = [".npm", ".cache", ".local/share/uv", ".bun/install/cache"];

fn all_secrets(homes: &[PathBuf]) -> Vec<PathBuf> {
    homes.iter().flat_map(|home| home_secrets(home)).chain(own_folders()).collect()
}

fn home_secrets(home: &Path) -> Vec<PathBuf> {
    SECRETS.iter().map(|name| home.join(name)).collect()
}

/// Bascule's own folders, where the environment moves them: control sockets, tokens and configurations.
fn own_folders() -> impl Iterator<Item = PathBuf> {
    ["XDG_RUNTIME_DIR", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"].into_iter().filter_map(
        |variable| {
            let folder = std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute())?;
            Some(folder.join("bascule"))
        },
    )
}

fn package_caches(home: &Path) -> Vec<PathBuf> {
    CACHES.iter().map(|name| home.join(name)).collect()
}

fn temporary_folders() -> Vec<PathBuf> {
    vec![std::env::temp_dir(), "/tmp".into(), "/var/tmp".into()]
}

/// The installation folders of a program and of the interpreter in its `#!` line.
fn program_folders(program: &Path, homes: &[PathBuf]) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for program in [Some(program.to_path_buf()), interpreter(program)].into_iter().flatten() {
        folders.extend(virtual_environment(&program));
        folders.extend(installation(&program, homes));
    }
    folders
}

/// The interpreter in a script's `#!` line. The file may have any content.
fn interpreter(script: &Path) -> Option<PathBuf> {
    let mut start = Vec::new();
    std::fs::File::open(script).ok()?.take(MAX_FIRST_LINE).read_to_end(&mut start).ok()?;
    let line = start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let path = std::str::from_utf8(line).ok()?.split_whitespace().next()?;
    Some(path.into())
}

/// The kernel reads no further either.
const MAX_FIRST_LINE: u64 = 256;

/// The folder of a Python virtual environment. Its interpreter is a link out of it; its libraries are in it.
fn virtual_environment(program: &Path) -> Option<PathBuf> {
    let folder = program.parent()?.parent()?;
    folder.join("pyvenv.cfg").is_file().then(|| folder.to_path_buf())
}

/// The folder above a program's `bin`, which holds its libraries. If that folder also holds secrets, as with `~/bin`: the
/// program's own folder. If that one does too: only the program.
fn installation(program: &Path, homes: &[PathBuf]) -> Option<PathBuf> {
    let real = program.canonicalize().ok()?;
    let folder = real.parent()?;
    let above = folder.parent().filter(|above| folder.ends_with("bin") && !holds_secrets(above, homes));
    let installed = above.unwrap_or(folder);
    // A program directly in `/` must not open the whole file system, nor one directly in the home the whole home.
    let too_much = installed.components().count() <= 1 || holds_secrets(installed, homes);
    Some(if too_much { real } else { installed.to_path_buf() })
}

fn holds_secrets(folder: &Path, homes: &[PathBuf]) -> bool {
    homes.iter().any(|home| {
        home.starts_with(folder) || home_secrets(home).iter().any(|secret| secret.starts_with(folder))
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// Creates programs (path, content) and links in a home, and compares the folders that the first one opens.
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
        let found = program_folders(&home.join(start), std::slice::from_ref(&home));
        let found: Vec<_> = found.iter().map(|path| path.strip_prefix(&home).unwrap_or(path)).collect();
        assert_eq!(found, expected.iter().map(Path::new).collect::<Vec<_>>());
    }

    // req: SB-04
    #[test]
    fn opens_installation_folder_of_program() {
        check(&[("opt/tool/bin/server", "\x7fELF")], &[], &["opt/tool"]);
        check(&[("opt/tool/server", "")], &[], &["opt/tool"]);
    }

    // req: SB-04
    #[test]
    fn opens_interpreter_and_virtual_environment_of_script() {
        let script = ("venv/bin/server", "#!~/venv/bin/python -I\nimport this");
        let python = ("python/3.11/bin/python3.11", "\x7fELF");
        check(&[script, python, ("venv/pyvenv.cfg", "")], &[], &["venv", "venv", "venv"]);
        let link = ("venv/bin/python", "python/3.11/bin/python3.11");
        check(&[python, ("venv/pyvenv.cfg", "")], &[link], &["venv", "python/3.11"]);
    }

    // req: SB-04
    #[test]
    fn never_opens_folder_that_holds_secrets() {
        check(&[("bin/server", "")], &[], &["bin"]);
        check(&[(".local/bin/server", "")], &[], &[".local/bin"]);
        check(&[("server", "")], &[], &["server"]);
        check(&[(".ssh/server", "")], &[], &[".ssh/server"]);
    }
}
