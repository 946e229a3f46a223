//! Explains why a policy refuses an access to a file, so that messages can name the setting that allows it.
//!
//! Nothing is enforced here: `filesystem` does that, by the same rules.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::policy::{Access, FileAccess, Policy, is_below};

/// The access that a process wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum FileNeed {
    /// Read or execute a file, or list a folder.
    Read,
    /// Write an existing file.
    Write,
    /// Create, remove or rename entries of a folder.
    ChangeFolder,
}

/// The decision of a policy about a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileVerdict {
    Allowed,
    /// No grant covers the path with this access.
    NotGranted,
    /// A grant covers the path, but this part of it is closed.
    Closed(PathBuf),
    /// The folder is writable and contains this closed path. So none of its entries can be created or removed.
    Locked(PathBuf),
    /// The folder is readable and contains this closed folder. So it cannot be listed.
    Unlisted(PathBuf),
}

/// A writable folder in which nothing can be created, removed or replaced, because a path in it is closed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LockedFolder {
    pub folder: PathBuf,
    pub closed: PathBuf,
}

impl Policy {
    /// Decides about a real path. For [`FileNeed::ChangeFolder`] the path is the folder.
    pub fn judge(&self, real: &Path, need: FileNeed) -> FileVerdict {
        let FileAccess::Granted { grants, closed } = &self.files else { return FileVerdict::Allowed };
        if self.temporary.as_deref().is_some_and(|temporary| is_below(real, temporary)) {
            return FileVerdict::Allowed;
        }
        let wanted = if need == FileNeed::Read { Access::Read } else { Access::Write };
        let covering = grants.iter().filter(|grant| grant.access >= wanted && real.starts_with(&grant.path));
        let mut verdict = FileVerdict::NotGranted;
        for grant in covering {
            let mut within = closed.iter().filter(|closed| is_below(closed, &grant.path));
            if let Some(closed) = within.clone().find(|closed| real.starts_with(closed)) {
                verdict = FileVerdict::Closed(closed.clone());
                continue;
            }
            // The names in a folder are no secret if only files in it are closed.
            let closes = |closed: &PathBuf| match need {
                FileNeed::Read => !closed.is_file(),
                FileNeed::Write => false,
                FileNeed::ChangeFolder => true,
            };
            match within.find(|closed| is_below(closed, real) && closes(closed)) {
                Some(closed) if need == FileNeed::Read => verdict = FileVerdict::Unlisted(closed.clone()),
                Some(closed) => verdict = FileVerdict::Locked(closed.clone()),
                None => return FileVerdict::Allowed,
            }
        }
        verdict
    }

    /// Returns the writable folders that directly contain an existing closed path.
    pub fn locked_folders(&self) -> Vec<LockedFolder> {
        let FileAccess::Granted { closed, .. } = &self.files else { return Vec::new() };
        let locked = closed.iter().filter(|closed| closed.symlink_metadata().is_ok()).filter_map(|closed| {
            let folder = closed.parent()?;
            let is_locked = matches!(self.judge(folder, FileNeed::ChangeFolder), FileVerdict::Locked(_));
            is_locked.then(|| LockedFolder { folder: folder.to_path_buf(), closed: closed.clone() })
        });
        locked.collect()
    }

    /// Returns true if the policy allows writing an existing file.
    pub fn allows_write(&self, file: &Path) -> bool {
        file.canonicalize().is_ok_and(|real| self.judge(&real, FileNeed::Write) == FileVerdict::Allowed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Grant, Profile, Resolution};
    use crate::secrets::Secrets;

    fn policy(writable: &[&str], closed: &[&str]) -> Policy {
        let grant = |path: &&str| Grant {
            path: path.into(),
            access: Access::Write,
            resolution: Resolution::Earlier(None),
        };
        let closed = closed.iter().map(PathBuf::from).collect();
        let grants = writable.iter().map(grant).collect();
        Policy::new(Profile::Standard, &["/home/me".into()], &Secrets::of_homes(&[]), grants, closed)
    }

    fn check(policy: &Policy, path: &str, need: FileNeed, expected: FileVerdict) {
        assert_eq!(policy.judge(Path::new(path), need), expected, "{path} {need:?}");
    }

    // req: SB-09
    #[test]
    fn tells_why_a_path_is_refused() {
        use FileNeed::*;
        use FileVerdict::*;
        let policy = policy(&["/srv/work"], &["/srv/work/.env"]);
        check(&policy, "/opt/x", Read, Allowed);
        check(&policy, "/opt/x", Write, NotGranted);
        assert!(matches!(policy.judge(Path::new("/"), Read), Unlisted(_)));
        check(&policy, "/home/me/notes", Read, Closed("/home/me".into()));
        check(&policy, "/home/me/notes", Write, NotGranted);
        check(&policy, "/srv/work/file", Write, Allowed);
        check(&policy, "/srv/work/.env", Read, Closed("/srv/work/.env".into()));
        check(&policy, "/srv/work", ChangeFolder, Locked("/srv/work/.env".into()));
        check(&policy, "/srv/work/sub", ChangeFolder, Allowed);
        check(&Policy::off(), "/opt/x", ChangeFolder, Allowed);
    }

    // req: SB-09
    #[test]
    fn finds_folders_with_closed_files() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("sub")).unwrap();
        std::fs::write(root.join("mcp.json"), "").unwrap();
        let (config, missing) = (root.join("mcp.json"), root.join("sub/.env"));
        let closed = [config.to_str().unwrap(), missing.to_str().unwrap()];
        let policy = policy(&[root.to_str().unwrap()], &closed);
        assert_eq!(policy.locked_folders(), [LockedFolder { folder: root.clone(), closed: config }]);
    }
}
