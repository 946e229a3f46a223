//! Finds the grant that would allow an access to a file, and the reasons against it.

use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use bascule_sandbox::{Access, FileNeed, FileVerdict, LockedFolder, Policy, ToolchainSearch, resolve};
use rustix::fs::{Access as FileMode, access};

use crate::config::ServerSettings;
use crate::launch::UserFolders;

/// The change that would allow a refused access.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FileRemedy {
    /// A path to list in `sandbox`.
    Grant(PathGrant),
    /// The folder is writable, but nothing in it can be created, removed or replaced.
    Unlock(LockedFolder),
    /// The folder contains this closed folder, so that it cannot be listed.
    Unlisted(LockedFolder),
    /// The configuration file, which no setting opens.
    Configuration,
    /// The file belongs to another user, over whose files a confined server of root has no rights.
    Owner(PathBuf),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PathGrant {
    pub(crate) access: Access,
    pub(crate) path: PathBuf,
    /// It must be created first: a path that does not exist is not granted.
    pub(crate) is_missing: bool,
    /// It holds keys or tokens.
    pub(crate) is_secret: bool,
    /// It holds files of other programs, too.
    pub(crate) is_shared: bool,
}

/// The policy of a server, and the folders of the user.
pub(crate) struct RemedySearch<'a> {
    policy: &'a Policy,
    config: Vec<PathBuf>,
    user: UserFolders,
}

impl<'a> RemedySearch<'a> {
    pub(crate) fn new(policy: &'a Policy, settings: &ServerSettings) -> Self {
        Self { policy, config: settings.resolved_paths().config.clone(), user: UserFolders::find() }
    }

    /// Returns `None` if the policy allows the access, or if the user has no right to it either. `need` is guessed if it is
    /// not known. Looks at files, so it may block.
    pub(crate) fn find(&self, path: &Path, need: Option<FileNeed>) -> Option<FileRemedy> {
        let real = real_path(path, need)?;
        let need = self.actual_need(&real, need);
        let subject = if need == FileNeed::ChangeFolder { real.parent()? } else { &*real };
        match self.policy.judge(subject, need) {
            FileVerdict::Allowed => foreign_file(subject, need).map(FileRemedy::Owner),
            FileVerdict::Locked(closed) => {
                Some(FileRemedy::Unlock(LockedFolder { folder: subject.to_path_buf(), closed }))
            }
            FileVerdict::Unlisted(closed) => {
                Some(FileRemedy::Unlisted(LockedFolder { folder: subject.to_path_buf(), closed }))
            }
            _ if self.config.contains(&real) => Some(FileRemedy::Configuration),
            _ if !user_may(subject, need) => None,
            FileVerdict::Closed(closed) => {
                let is_project_secret = closed == real && !self.is_of_user(&closed);
                Some(FileRemedy::Grant(self.grant(&real, need, is_project_secret)))
            }
            FileVerdict::NotGranted => {
                let locked = if need == FileNeed::ChangeFolder { self.locked_by_secret(&real) } else { None };
                let grant = || FileRemedy::Grant(self.grant(&real, need, false));
                Some(locked.map_or_else(grant, FileRemedy::Unlock))
            }
        }
    }

    /// Returns the remedy for a path that exists and that the server may not read. Looks at files, so it may block.
    pub(crate) fn find_closed(&self, path: &Path) -> Option<FileRemedy> {
        let real = path.canonicalize().ok()?;
        // No server can list the root, so its name tells nothing.
        let is_closed =
            real.parent().is_some() && self.policy.judge(&real, FileNeed::Read) != FileVerdict::Allowed;
        if is_closed { self.find(&real, Some(FileNeed::Read)) } else { None }
    }

    /// A path that does not exist can only be created.
    fn actual_need(&self, real: &Path, need: Option<FileNeed>) -> FileNeed {
        match need {
            _ if real.symlink_metadata().is_err() => FileNeed::ChangeFolder,
            Some(need) => need,
            None if self.policy.judge(real, FileNeed::Read) != FileVerdict::Allowed => FileNeed::Read,
            None => FileNeed::Write,
        }
    }

    fn grant(&self, real: &Path, need: FileNeed, is_project_secret: bool) -> PathGrant {
        let access = if need == FileNeed::Read { Access::Read } else { Access::Write };
        let path =
            if need == FileNeed::ChangeFolder { self.folder_to_grant(real) } else { real.to_path_buf() };
        PathGrant {
            access,
            is_missing: path.symlink_metadata().is_err(),
            is_secret: is_project_secret || self.user.secrets.contain(&path),
            is_shared: self.is_broad(&path),
            path,
        }
    }

    /// Returns the smallest folder in which an entry can be created or removed. A broad folder is avoided, if the entry
    /// itself can be created beforehand.
    fn folder_to_grant(&self, entry: &Path) -> PathBuf {
        let folder = entry.ancestors().skip(1).find(|folder| folder.is_dir()).unwrap_or(Path::new("/"));
        let first = entry.strip_prefix(folder).ok().and_then(|rest| rest.components().next());
        let child = first.map_or_else(|| entry.to_path_buf(), |first| folder.join(first));
        let can_be_created = child.symlink_metadata().is_err() && !is_temporary_file(&child);
        let is_avoidable = self.is_broad(folder) && !is_temporary(folder) && can_be_created;
        if is_avoidable { child } else { folder.to_path_buf() }
    }

    /// Returns the folder of a temporary file, if no grant lets the server create it there.
    fn locked_by_secret(&self, entry: &Path) -> Option<LockedFolder> {
        let folder = entry.parent().filter(|folder| is_temporary_file(entry) && !is_temporary(folder))?;
        let mut within =
            self.user.secrets.paths().iter().filter(|secret| *secret != folder && secret.starts_with(folder));
        // The sentence names one that the user can see, if there is one.
        let closed = within.clone().find(|secret| secret.exists()).or_else(|| within.next())?.clone();
        Some(LockedFolder { folder: folder.to_path_buf(), closed })
    }

    /// Returns true for a folder that holds neither secrets nor files of others.
    pub(super) fn may_be_granted_whole(&self, folder: &Path) -> bool {
        !self.is_broad(folder) && !self.user.secrets.contain(folder)
    }

    fn is_broad(&self, folder: &Path) -> bool {
        let UserFolders { homes, secrets } = &self.user;
        folder.is_dir() && ToolchainSearch { homes, secrets }.is_broad(folder)
    }

    /// Returns true for a home, or a folder that programs share.
    fn is_of_user(&self, path: &Path) -> bool {
        self.user.homes.iter().any(|home| home == path) || path.is_dir()
    }
}

/// Resolves links, except a link in the last place that is to be removed or replaced.
fn real_path(path: &Path, need: Option<FileNeed>) -> Option<PathBuf> {
    match (need, path.parent(), path.file_name()) {
        (Some(FileNeed::ChangeFolder), Some(parent), Some(name)) => Some(resolve(parent)?.join(name)),
        _ => resolve(path),
    }
}

/// Programs choose random names in these, so that no entry can be created beforehand.
fn is_temporary(folder: &Path) -> bool {
    [Path::new("/tmp"), Path::new("/var/tmp")].contains(&folder) || folder == std::env::temp_dir()
}

/// Returns true for a file that a program creates beside another one to replace it: its name is different each time.
fn is_temporary_file(entry: &Path) -> bool {
    const ENDINGS: [&str; 4] = ["tmp", "temp", "part", "partial"];
    let (Some(stem), Some(ending)) = (entry.file_stem(), entry.extension()) else { return false };
    let is_known = ENDINGS.iter().any(|known| ending.eq_ignore_ascii_case(known));
    is_known || entry.with_file_name(stem).is_file()
}

/// Returns true if the bridge's own user has the right. Root has every right, and its servers have only some of them.
fn user_may(subject: &Path, need: FileNeed) -> bool {
    let mode = if need == FileNeed::Read { FileMode::READ_OK } else { FileMode::WRITE_OK };
    let existing = subject.ancestors().find(|above| above.symlink_metadata().is_ok());
    existing.is_none_or(|existing| access(existing, mode).is_ok())
}

/// Returns the path if it belongs to another user, whose permission bits refuse it to root's confined servers.
fn foreign_file(subject: &Path, need: FileNeed) -> Option<PathBuf> {
    let metadata = subject.metadata().ok()?;
    let bit = if need == FileNeed::Read { 0o4 } else { 0o2 };
    let is_foreign = rustix::process::getuid().is_root() && metadata.uid() != 0 && metadata.mode() & bit == 0;
    is_foreign.then(|| subject.to_path_buf())
}

/// The name of a closed file, for a sentence that names its folder.
pub(super) fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or(OsStr::new("")).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use bascule_sandbox::{Grant, Profile, Secrets};

    use super::*;
    use crate::config::testing::server;

    /// Opens the folder `open` in a new one, which has a home with a secret.
    fn check(check: impl FnOnce(&Path, &RemedySearch)) {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for name in ["open", "other", "home/.ssh"] {
            std::fs::create_dir_all(root.join(name)).unwrap();
        }
        let homes = [root.join("home")];
        let secrets = Secrets::of_homes(&homes);
        let grants = vec![Grant::resolved(&root.join("open"), Access::Write).unwrap()];
        let policy = Policy::new(Profile::Strict, &homes, &secrets, grants, Vec::new());
        let settings = server(r#"{"command": "x"}"#);
        let mut search = RemedySearch::new(&policy, &settings);
        search.user = UserFolders { homes: homes.to_vec(), secrets };
        check(&root, &search);
    }

    // req: SB-09
    #[test]
    fn closed_paths_need_a_grant_and_others_none() {
        check(|root, search| {
            match search.find_closed(&root.join("other")) {
                Some(FileRemedy::Grant(grant)) => {
                    assert_eq!((grant.access, grant.path), (Access::Read, root.join("other")));
                }
                other => panic!("{other:?}"),
            }
            assert_eq!(search.find_closed(&root.join("open")), None);
            assert_eq!(search.find_closed(&root.join("other/missing")), None);
            assert_eq!(search.find_closed(Path::new("/")), None);
        });
    }

    // req: SB-09
    #[test]
    fn temporary_file_needs_its_folder() {
        check(|root, search| {
            match search.find(&root.join("other/memory.json.4f1c.tmp"), None) {
                Some(FileRemedy::Grant(grant)) => {
                    assert_eq!((grant.access, grant.path), (Access::Write, root.join("other")));
                }
                other => panic!("{other:?}"),
            }
            std::fs::write(root.join("home/memory.json"), "").unwrap();
            for name in ["memory.json.4f1c.tmp", "memory.json.4f1c"] {
                let found = search.find(&root.join("home").join(name), None);
                let closed = root.join("home/.ssh");
                assert_eq!(
                    found,
                    Some(FileRemedy::Unlock(LockedFolder { folder: root.join("home"), closed }))
                );
            }
        });
    }
}
