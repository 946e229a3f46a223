//! Decides if another user can change a configuration file, and thereby run any command.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::{getgid, getuid};

use super::find::canonical_entry;

const STICKY: u32 = 0o1000;

/// A user, with the user's group.
#[derive(Clone, Copy)]
struct Identity {
    user: u32,
    group: u32,
}

impl Identity {
    fn current() -> Self {
        Self { user: getuid().as_raw(), group: getgid().as_raw() }
    }

    fn owns(self, metadata: &Metadata) -> bool {
        [self.user, 0].contains(&metadata.uid())
    }

    /// Returns true if others can write. A group of the user alone is common, and cannot be told from others; the user's
    /// own group is allowed.
    fn shares(self, metadata: &Metadata) -> bool {
        let mode = metadata.mode();
        let is_open_to_group = mode & 0o020 != 0 && ![self.group, 0].contains(&metadata.gid());
        mode & 0o002 != 0 || is_open_to_group
    }
}

/// Returns the reason why another user than this one and root can write the file. Pipes have no lasting content.
pub(super) fn find_other_writer(metadata: &Metadata) -> Option<String> {
    if metadata.is_file() { find_writer(metadata, Identity::current()) } else { None }
}

fn find_writer(metadata: &Metadata, identity: Identity) -> Option<String> {
    if !identity.owns(metadata) {
        return Some(format!(
            "belongs to another user (id {}), who could run any command as you: copy it, or change its owner",
            metadata.uid()
        ));
    }
    identity.shares(metadata).then(|| {
        format!(
            "is writable by others (mode {:o}), who could run any command as you: use `chmod go-w`",
            metadata.mode() & 0o777
        )
    })
}

/// Returns the reason why a file that was found, and not named, cannot be trusted for its place: it is no regular file, or
/// another user can replace it, or a folder above it.
pub(super) fn find_untrusted_place(path: &Path) -> io::Result<Option<String>> {
    if !path.metadata()?.is_file() {
        return Ok(Some("is not a regular file: name it with `--config`".into()));
    }
    let identity = Identity::current();
    // A link can be replaced, and so can its target.
    for place in [canonical_entry(path)?, path.canonicalize()?] {
        for folder in place.ancestors().skip(1) {
            let metadata = folder.metadata()?;
            if can_others_replace_entries(&metadata, identity) {
                return Ok(Some(format!(
                    "could be replaced by another user, who can write the folder `{}` (owner {}, mode {:o}): move it, or name it with `--config`",
                    super::problem::escape_and_truncate(&folder.display().to_string(), 200),
                    metadata.uid(),
                    metadata.mode() & 0o7777,
                )));
            }
        }
    }
    Ok(None)
}

/// In a sticky folder, only the owner of an entry replaces it.
fn can_others_replace_entries(folder: &Metadata, identity: Identity) -> bool {
    !identity.owns(folder) || (identity.shares(folder) && folder.mode() & STICKY == 0)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use tempfile::TempDir;

    use super::*;

    fn with_mode(path: &Path, mode: u32) -> Metadata {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        path.metadata().unwrap()
    }

    // req: GW-07
    #[test]
    fn finds_other_writers_of_a_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let own = Identity::current();
        let stranger = Identity { user: 4_000_000, group: 4_000_000 };
        assert_eq!(find_writer(&with_mode(file.path(), 0o664), own), None);
        assert!(find_writer(&with_mode(file.path(), 0o646), own).unwrap().contains("(mode 646)"));
        if own.user != 0 {
            assert!(find_writer(&with_mode(file.path(), 0o600), stranger).unwrap().contains("another user"));
            let other_group = Identity { group: 4_000_000, ..own };
            assert!(find_writer(&with_mode(file.path(), 0o660), other_group).unwrap().contains("(mode 660)"));
        }
    }

    // req: SB-08
    #[test]
    fn entries_of_shared_folders_can_be_replaced_unless_sticky() {
        let folder = TempDir::new().unwrap();
        let own = Identity::current();
        let replaceable = |mode| can_others_replace_entries(&with_mode(folder.path(), mode), own);
        assert_eq!([0o700, 0o755, 0o1777, 0o1757].map(replaceable), [false; 4]);
        assert_eq!([0o777, 0o757, 0o702].map(replaceable), [true; 3]);
    }

    // req: SB-08
    #[test]
    fn refuses_a_file_whose_folder_or_parent_others_can_write() {
        let root = TempDir::new().unwrap();
        let (outer, inner) = (root.path().join("outer"), root.path().join("outer/inner"));
        fs::create_dir_all(&inner).unwrap();
        let file = inner.join("mcp.json");
        fs::write(&file, "{}").unwrap();
        let reason = |path: &Path| find_untrusted_place(path).unwrap();
        assert_eq!(reason(&file), None);
        with_mode(&inner, 0o777);
        assert!(reason(&file).unwrap().contains("outer/inner` (owner"));
        with_mode(&inner, 0o700);
        with_mode(&outer, 0o777);
        assert!(reason(&file).unwrap().contains("outer` (owner"));
        let link = root.path().join("mcp.json");
        symlink(&file, &link).unwrap();
        assert!(reason(&link).unwrap().contains("outer` (owner"), "the target of a link");
        with_mode(&outer, 0o1777);
        assert_eq!((reason(&file), reason(&link)), (None, None));
    }

    // req: SB-08
    #[test]
    fn refuses_a_pipe() {
        let folder = TempDir::new().unwrap();
        let pipe = folder.path().join("mcp.json");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        assert!(find_untrusted_place(&pipe).unwrap().unwrap().contains("not a regular file"));
    }
}
