//! Restricts file access with Landlock, which can only grant: closed paths are left out of the granted ones.
//!
//! A folder with a closed path below it gets no rule of its own. Its entries get one each, so that nothing can be created
//! in it or removed from it. Entries are opened from their folder's descriptor and never through a link, so that a process
//! that may write in the folder cannot redirect a rule.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, PathBeneath, RestrictionStatus, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, Scope, path_beneath_rules,
};
use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat, openat2};
use rustix::io::Errno;

use crate::policy::{Access, FileAccess, Grant, Resolution};
use crate::secrets::FileIdentity;

/// An older kernel enforces the part of this ABI that it knows.
const WANTED: ABI = ABI::V6;

/// Devices that hold no data. A disk would expose every file, and an opened terminal its input.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// Confines this process and its future children to `files`. They cannot signal processes outside, nor connect to
/// abstract sockets there.
pub(crate) fn restrict(files: &FileAccess) -> io::Result<()> {
    let FileAccess::Granted { grants, closed } = files else { return Ok(()) };
    let mut rules = RuleBuilder::new(closed)?;
    for grant in grants {
        rules.add_grant(grant)?;
    }
    let devices: BitFlags<AccessFs> =
        AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::ReadDir | AccessFs::IoctlDev;
    let ruleset = rules.ruleset.add_rules(path_beneath_rules(DEVICES, devices)).map_err(io::Error::other)?;
    ruleset.restrict_self().map_err(io::Error::other)?;
    Ok(())
}

/// The real paths that a process may write, with everything below them except the closed paths.
pub(crate) fn writable_paths(grants: &[Grant]) -> Vec<PathBuf> {
    let writable = grants.iter().filter(|grant| grant.access == Access::Write);
    writable.filter_map(|grant| open_grant(grant).ok().flatten()).map(|(path, _)| path).collect()
}

/// Denies everything: opening paths, TCP ports, signals to processes outside.
pub(crate) fn deny_all() -> Result<RestrictionStatus, RulesetError> {
    Ruleset::default()
        .handle_access(AccessFs::from_all(WANTED))?
        .handle_access(AccessNet::from_all(WANTED))?
        .scope(Scope::from_all(WANTED))?
        .create()?
        .restrict_self()
}

/// Turns grants into Landlock rules.
struct RuleBuilder<'a> {
    ruleset: RulesetCreated,
    closed: Vec<&'a Path>,
    /// Closed files, under whatever path they are found.
    closed_files: HashSet<FileIdentity>,
}

impl<'a> RuleBuilder<'a> {
    fn new(closed: &'a [PathBuf]) -> io::Result<Self> {
        let identity = |path: &PathBuf| {
            path.symlink_metadata().ok().map(|metadata| FileIdentity::from_metadata(&metadata))
        };
        let create = || {
            let ruleset = Ruleset::default().handle_access(AccessFs::from_all(WANTED))?;
            ruleset.scope(Scope::from_all(WANTED))?.create()
        };
        Ok(Self {
            ruleset: create().map_err(io::Error::other)?,
            closed: closed.iter().map(PathBuf::as_path).collect(),
            closed_files: closed.iter().filter_map(identity).collect(),
        })
    }

    /// A path that does not exist is not granted.
    fn add_grant(&mut self, grant: &Grant) -> io::Result<()> {
        let Some((path, file)) = open_grant(grant)? else { return Ok(()) };
        let within: Vec<&Path> = self
            .closed
            .iter()
            .copied()
            .filter(|closed| *closed != path && closed.starts_with(&path))
            .collect();
        self.add(&file, &path, &within, grant.access)
    }

    /// Grants a file, or a folder without the closed paths that are `within` it.
    fn add(&mut self, file: &OwnedFd, path: &Path, within: &[&Path], access: Access) -> io::Result<()> {
        if within.is_empty() {
            let rights = match access {
                Access::Read => AccessFs::from_read(WANTED),
                Access::Write => AccessFs::from_all(WANTED),
            };
            return self.add_rule(file, rights);
        }
        // Where only files are closed, the names in the folder are no secret.
        if within.iter().all(|closed| closed.is_file()) {
            self.add_rule(file, AccessFs::ReadDir.into())?;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(folder) = openat(file, ".", flags, Mode::empty()) else { return Ok(()) };
        for entry in Dir::read_from(&folder)?.flatten() {
            let name = Path::new(OsStr::from_bytes(entry.file_name().to_bytes()));
            if name != Path::new(".") && name != Path::new("..") {
                self.add_entry(&folder, name, &path.join(name), within, access)?;
            }
        }
        Ok(())
    }

    /// Links are skipped: the path they lead to is granted or closed on its own.
    fn add_entry(
        &mut self,
        folder: &OwnedFd,
        name: &Path,
        path: &Path,
        within: &[&Path],
        access: Access,
    ) -> io::Result<()> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(file) = openat(folder, name, flags, Mode::empty()) else { return Ok(()) };
        let metadata = fstat(&file)?;
        let is_link = FileType::from_raw_mode(metadata.st_mode) == FileType::Symlink;
        let is_closed = within.contains(&path) || self.closed_files.contains(&identity_of(&metadata));
        if is_link || is_closed {
            return Ok(());
        }
        let within: Vec<&Path> = within.iter().copied().filter(|closed| closed.starts_with(path)).collect();
        self.add(&file, path, &within, access)
    }

    fn add_rule(&mut self, file: &OwnedFd, rights: BitFlags<AccessFs>) -> io::Result<()> {
        let is_folder = FileType::from_raw_mode(fstat(file)?.st_mode) == FileType::Directory;
        let rights = if is_folder { rights } else { rights & AccessFs::from_file(WANTED) };
        (&mut self.ruleset).add_rule(PathBeneath::new(file.as_fd(), rights)).map_err(io::Error::other)?;
        Ok(())
    }
}

/// Returns the real path and its descriptor, or nothing if the path does not exist.
fn open_grant(grant: &Grant) -> io::Result<Option<(PathBuf, OwnedFd)>> {
    let replaced = || {
        let path = grant.path.display();
        let message = format!("the granted path `{path}` was replaced after the configuration was loaded");
        io::Error::other(message)
    };
    let (path, resolve, identity) = match grant.resolution {
        Resolution::Earlier(identity) => (grant.path.clone(), ResolveFlags::NO_SYMLINKS, identity),
        Resolution::AtStart => match grant.path.canonicalize() {
            Ok(path) => (path, ResolveFlags::empty(), None),
            Err(_) => return Ok(None),
        },
    };
    let file = match openat2(CWD, &path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve) {
        Ok(file) => file,
        Err(Errno::LOOP) => return Err(replaced()),
        Err(_) => return Ok(None),
    };
    let found = identity_of(&fstat(&file)?);
    if identity.is_some_and(|expected| expected != found) { Err(replaced()) } else { Ok(Some((path, file))) }
}

fn identity_of(metadata: &Stat) -> FileIdentity {
    FileIdentity { device: metadata.st_dev, inode: metadata.st_ino }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// Applies grants in a thread of its own, and checks which files of a folder it can then open.
    fn check(grants: Vec<Grant>, closed: Vec<PathBuf>, root: &Path, readable: &[&str], refused: &[&str]) {
        let (root, files) = (root.to_path_buf(), FileAccess::Granted { grants, closed });
        let names = |names: &[&str]| names.iter().map(|name| root.join(name)).collect::<Vec<_>>();
        let (readable, refused) = (names(readable), names(refused));
        // Landlock confines a thread, if no privilege is to be gained.
        let confined = std::thread::spawn(move || {
            rustix::thread::set_no_new_privs(true).unwrap();
            restrict(&files).unwrap();
            for path in readable {
                assert!(fs::File::open(&path).is_ok(), "{} cannot be read", path.display());
            }
            for path in refused {
                assert!(fs::File::open(&path).is_err(), "{} can be read", path.display());
            }
        });
        confined.join().unwrap();
    }

    fn home() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().canonicalize().unwrap();
        for file in
            [".ssh/key", ".config/gcloud/x", ".config/app/x", "work/file", "work/.env", "work/sub/deep"]
        {
            fs::create_dir_all(home.join(file).parent().unwrap()).unwrap();
            fs::write(home.join(file), "").unwrap();
        }
        (folder, home)
    }

    // req: SB-04
    #[test]
    fn grants_everything_except_closed_paths_and_folders_above_them() {
        let (_folder, home) = home();
        symlink(home.join(".ssh/key"), home.join("work/link")).unwrap();
        let closed = vec![home.join(".ssh"), home.join(".config/gcloud"), home.join(".missing")];
        let grants = vec![Grant::resolved(&home.clone(), Access::Read).unwrap()];
        let refused = [".ssh/key", ".config/gcloud/x", "work/link", ".", ".config"];
        check(grants, closed, &home, &["work/file", ".config/app/x", "work"], &refused);
    }

    // req: SB-07
    #[test]
    fn folder_with_closed_file_can_be_listed() {
        let (_folder, home) = home();
        fs::hard_link(home.join("work/.env"), home.join("work/same")).unwrap();
        let grants = vec![Grant::resolved(&home.join("work"), Access::Write).unwrap()];
        check(
            grants,
            vec![home.join("work/.env")],
            &home,
            &["work", "work/file", "work/sub/deep"],
            &["work/.env", "work/same"],
        );
    }

    // req: SB-07
    #[test]
    fn refuses_path_that_was_replaced() {
        let (_folder, home) = home();
        let identity = |name: &str| FileIdentity::from_metadata(&home.join(name).metadata().unwrap());
        let grant = |identity| Grant {
            path: home.join("work/sub"),
            access: Access::Read,
            resolution: Resolution::Earlier(identity),
        };
        assert!(open_grant(&grant(Some(identity("work/sub")))).unwrap().is_some());
        fs::rename(home.join("work/sub"), home.join("work/old")).unwrap();
        assert!(open_grant(&grant(Some(identity("work/old")))).unwrap().is_none());
        symlink(home.join(".ssh"), home.join("work/sub")).unwrap();
        assert!(open_grant(&grant(None)).unwrap_err().to_string().contains("was replaced"));
        fs::remove_file(home.join("work/sub")).unwrap();
        fs::create_dir(home.join("work/sub")).unwrap();
        assert!(
            open_grant(&grant(Some(identity("work/old")))).unwrap_err().to_string().contains("was replaced")
        );
    }
}
