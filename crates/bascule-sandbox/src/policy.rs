//! The permissions of a confined process, passed to the jail as JSON.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::secrets::{FileIdentity, Secrets, with_aliases};

/// A complete policy: the jail adds no permissions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    pub files: FileAccess,
    /// Allows sockets to other machines.
    pub network: bool,
    /// Allows sockets in the file system, through which other programs of the user take orders.
    pub unix_sockets: bool,
    /// Allows changes of the mode, owner, times and attributes of files that the process may write. Only enforced with
    /// `harden`.
    pub file_metadata: bool,
    /// Refuses system calls that no tool server needs, and drops the capabilities behind them.
    pub harden: bool,
    /// Maximum number of open files per process.
    pub open_files: Option<u64>,
    /// The folder in which the jail creates a temporary folder for this process, and removes it after its end.
    pub temporary: Option<PathBuf>,
}

/// The files a process may access.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FileAccess {
    /// Everything the user may access.
    All,
    /// The granted paths and everything below them, except closed paths below them.
    Granted { grants: Vec<Grant>, closed: Vec<PathBuf> },
}

/// A path that a process may access, with everything below it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    pub path: PathBuf,
    pub access: Access,
    pub resolution: Resolution,
}

/// The time when the links in a granted path are resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Resolution {
    /// At each start of the server.
    AtStart,
    /// Earlier: a link that is in the path now was put there since. A folder must also be the same one.
    Earlier(Option<FileIdentity>),
}

/// The access to a granted path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Access {
    /// Read and execute.
    Read,
    /// Read, execute, write, create and remove.
    Write,
}

impl Grant {
    /// Grants a path of the system, if it exists at the start.
    fn of_system(path: &str) -> Self {
        Self { path: path.into(), access: Access::Read, resolution: Resolution::AtStart }
    }

    /// Grants an existing path, with its links resolved now.
    pub fn resolved(path: &Path, access: Access) -> Option<Self> {
        let resolution = Resolution::Earlier(None);
        path.canonicalize().ok().map(|path| Self { path, access, resolution })
    }
}

/// The base of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// Reads everything outside of homes and shared folders; network. Nearly every server works under it.
    Standard,
    /// Reads system libraries; no network, no change of file attributes.
    Strict,
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
            temporary: None,
        }
    }

    /// The profile with further grants. `closed` paths and secrets below a grant stay closed.
    pub fn new(
        profile: Profile,
        homes: &[PathBuf],
        secrets: &Secrets,
        mut grants: Vec<Grant>,
        mut closed: Vec<PathBuf>,
    ) -> Self {
        let system: &[&str] = if profile == Profile::Standard { &["/"] } else { &SYSTEM };
        // The jail resolves these: `/proc/self` is another folder there.
        grants.extend(system.iter().map(|path| Grant::of_system(path)));
        closed.extend(with_aliases(homes.iter().chain(&shared_folders())));
        closed.extend(secrets.paths().iter().cloned());
        // A closed path outside of all grants needs no mention.
        closed.retain(|path| grants.iter().any(|grant| is_below(path, &grant.path)));
        closed.sort();
        closed.dedup();
        let is_standard = profile == Profile::Standard;
        Self {
            files: FileAccess::Granted { grants, closed },
            network: is_standard,
            unix_sockets: false,
            file_metadata: is_standard,
            harden: true,
            ..Self::off()
        }
    }

    /// Returns true if attributes of files may be changed, but only where the policy allows writing.
    pub(crate) fn checks_attributes(&self) -> bool {
        self.harden && self.file_metadata && self.files != FileAccess::All
    }
}

pub(crate) fn is_below(path: &Path, folder: &Path) -> bool {
    path != folder && path.starts_with(folder)
}

/// Folders in which all programs of the user, or of the machine, leave files.
pub(crate) fn shared_folders() -> Vec<PathBuf> {
    let fixed = ["/tmp", "/var/tmp", "/dev", "/run/user", "/var/mail", "/var/spool"].map(PathBuf::from);
    fixed.into_iter().chain([std::env::temp_dir()]).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    // req: SB-07
    #[test]
    fn configuration_in_writable_folder_is_not_writable() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let (config, other) = (folder.join("mcp.json"), folder.join("other"));
        for file in [&config, &other] {
            std::fs::write(file, "").unwrap();
        }
        let grants = vec![Grant::resolved(&folder, Access::Write).unwrap()];
        let policy =
            Policy::new(Profile::Standard, &[], &Secrets::of_homes(&[]), grants, vec![config.clone()]);
        assert!(policy.allows_write(&other) && !policy.allows_write(&config));
        assert!(!policy.allows_write(Path::new("/etc/passwd")));
    }
}
