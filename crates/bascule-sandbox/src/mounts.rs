//! Finds further paths that lead to the same files through other mounts, such as bind mounts.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// One line of `/proc/self/mountinfo`.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    /// Major and minor number of the file system.
    device: String,
    /// The folder of the file system that is mounted.
    root: PathBuf,
    mounted_at: PathBuf,
}

/// The mounts of this process.
pub(crate) struct Mounts(Vec<Mount>);

impl Mounts {
    pub(crate) fn read() -> Self {
        Self::parse(&std::fs::read("/proc/self/mountinfo").unwrap_or_default())
    }

    fn parse(text: &[u8]) -> Self {
        Self(text.split(|byte| *byte == b'\n').filter_map(parse_mount).collect())
    }

    /// Returns the paths that lead to the same file or folder, or to a part of it, through other mounts. `path` is free of
    /// links and need not exist.
    pub(crate) fn aliases(&self, path: &Path) -> Vec<PathBuf> {
        // Of two mounts at the same place, the later one is visible.
        let below = self.0.iter().filter(|mount| path.starts_with(&mount.mounted_at));
        let Some(own) = below.max_by_key(|mount| mount.mounted_at.components().count()) else {
            return Vec::new();
        };
        let Ok(inside) = path.strip_prefix(&own.mounted_at) else { return Vec::new() };
        let inside = own.root.join(inside);
        let same_device = self.0.iter().filter(|mount| mount.device == own.device);
        let found = same_device.filter_map(|mount| match inside.strip_prefix(&mount.root) {
            Ok(rest) => Some(mount.mounted_at.join(rest)),
            Err(_) => mount.root.starts_with(&inside).then(|| mount.mounted_at.clone()),
        });
        found.filter(|alias| alias != path).collect()
    }
}

fn parse_mount(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ').skip(2);
    let device = String::from_utf8(fields.next()?.to_vec()).ok()?;
    Some(Mount { device, root: unescape(fields.next()?), mounted_at: unescape(fields.next()?) })
}

/// The kernel writes blanks and backslashes as a backslash and three octal digits.
fn unescape(field: &[u8]) -> PathBuf {
    let (mut bytes, mut rest) = (Vec::new(), field);
    while let Some((first, after)) = rest.split_first() {
        let octal = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = octal.filter(|_| *first == b'\\').and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &after[3..] } else { after };
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: SB-07
    #[test]
    fn finds_bind_mounts_of_a_folder_and_of_its_parts() {
        let mounts = Mounts::parse(
            b"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
             23 22 8:2 / /home rw - ext4 /dev/sda2 rw\n\
             24 22 8:2 /me /mnt/copy rw - ext4 /dev/sda2 rw\n\
             25 22 8:2 /me/.ssh/deep /mnt/with\\040blank rw - ext4 /dev/sda2 rw\n\
             26 22 8:1 / /mnt/root rw - ext4 /dev/sda1 rw",
        );
        let aliases = |path: &str| mounts.aliases(Path::new(path));
        assert_eq!(
            aliases("/home/me/.ssh"),
            [PathBuf::from("/mnt/copy/.ssh"), PathBuf::from("/mnt/with blank")]
        );
        assert_eq!(aliases("/etc/x"), [PathBuf::from("/mnt/root/etc/x")]);
        assert_eq!(aliases("/home/other"), [] as [PathBuf; 0]);
    }
}
