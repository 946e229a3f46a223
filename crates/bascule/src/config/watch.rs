//! Reports changes of the configuration file, and of the record that it is trusted.
//!
//! Watches directories instead of the file, because editors replace the file by a new one. A symbolic link is watched at
//! both ends. The content is not compared: that is the reader's task.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::inotify;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, timeout_at};

/// A file changes several times while it is written. It is reported after this time without a change.
const QUIET_TIME: Duration = Duration::from_millis(150);
/// The longest delay of a report, for a file that changes all the time.
const MAX_DELAY: Duration = Duration::from_secs(5);

/// A watch on one or more files.
pub struct FileWatch {
    inotify: AsyncFd<std::os::fd::OwnedFd>,
    /// For each file the watch descriptor of its directory, and its name there.
    names: Vec<(i32, OsString)>,
}

impl FileWatch {
    /// Starts watching. Must be called within a tokio runtime.
    pub fn new(files: &[&Path]) -> io::Result<Self> {
        let inotify = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
        let flags = inotify::WatchFlags::CLOSE_WRITE
            | inotify::WatchFlags::MOVED_TO
            | inotify::WatchFlags::MOVED_FROM
            | inotify::WatchFlags::CREATE
            | inotify::WatchFlags::DELETE;
        let mut names = Vec::new();
        let paths = files.iter().map(|file| link_and_target(file)).collect::<io::Result<Vec<_>>>()?;
        for path in paths.concat() {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            let watch = inotify::add_watch(&inotify, parent.unwrap_or(Path::new(".")), flags)?;
            names.push((watch, path.file_name().unwrap_or_default().to_owned()));
        }
        #[allow(
            deprecated,
            reason = "the replacement is unsafe for types that may close their descriptor; `OwnedFd` does not"
        )]
        let inotify = AsyncFd::new(inotify)?;
        Ok(Self { inotify, names })
    }

    /// Returns after a file has changed and settled. Cancel-safe.
    pub async fn changed(&mut self) {
        while !self.next_event().await {}
        let latest = Instant::now() + MAX_DELAY;
        while timeout_at((Instant::now() + QUIET_TIME).min(latest), self.next_event()).await.is_ok() {
            if Instant::now() >= latest {
                break;
            }
        }
    }

    /// Waits for events in the directories. Returns true if one concerns a file.
    async fn next_event(&mut self) -> bool {
        let Ok(mut ready) = self.inotify.readable_mut().await else {
            return std::future::pending().await;
        };
        let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(ready.get_inner(), &mut buffer);
        let mut concerns_file = false;
        while let Ok(event) = reader.next() {
            let name = event.file_name().map(|name| name.to_bytes());
            let is_file = |(watch, file): &(i32, OsString)| {
                *watch == event.wd() && name == Some(file.as_encoded_bytes())
            };
            // An event lost in an overflow may have concerned the file.
            let overflow = event.events().contains(inotify::ReadFlags::QUEUE_OVERFLOW);
            concerns_file |= overflow || self.names.iter().any(is_file);
        }
        ready.clear_ready();
        concerns_file
    }
}

/// The file's own path, and its target if it is a symbolic link. The file need not exist yet.
fn link_and_target(file: &Path) -> io::Result<Vec<PathBuf>> {
    let named = std::path::absolute(file)?;
    let real = file.canonicalize().unwrap_or_else(|_| named.clone());
    Ok(if named == real { vec![real] } else { vec![named, real] })
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn wait_for_change(watch: &mut FileWatch) {
        tokio::time::timeout(Duration::from_secs(30), watch.changed()).await.expect("the change is reported");
    }

    // req: BR-13
    #[tokio::test]
    async fn reports_writes_and_replacements_but_not_other_files() {
        let folder = tempfile::tempdir().unwrap();
        let (file, new) = (folder.path().join("mcp.json"), folder.path().join("mcp.json.new"));
        std::fs::write(&file, "1").unwrap();
        let mut watch = FileWatch::new(&[&file]).unwrap();
        std::fs::write(&file, "2").unwrap();
        wait_for_change(&mut watch).await;
        std::fs::write(&new, "3").unwrap();
        assert!(!watch.next_event().await, "another file");
        std::fs::rename(&new, &file).unwrap();
        wait_for_change(&mut watch).await;
    }

    // req: BR-13
    #[tokio::test]
    async fn reports_a_file_that_appears_later_beside_others() {
        let folder = tempfile::tempdir().unwrap();
        let (file, later) = (folder.path().join("mcp.json"), folder.path().join("later"));
        std::fs::write(&file, "1").unwrap();
        let mut watch = FileWatch::new(&[&file, &later]).unwrap();
        std::fs::write(&later, "2").unwrap();
        wait_for_change(&mut watch).await;
        std::fs::write(&file, "3").unwrap();
        wait_for_change(&mut watch).await;
    }

    // req: BR-13
    #[tokio::test]
    async fn watches_a_link_at_both_ends() {
        let folder = tempfile::tempdir().unwrap();
        let (real, link) = (folder.path().join("real.json"), folder.path().join("link.json"));
        std::fs::write(&real, "1").unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let mut watch = FileWatch::new(&[&link]).unwrap();
        std::fs::write(&real, "2").unwrap();
        wait_for_change(&mut watch).await;
        std::fs::remove_file(&link).unwrap();
        std::fs::write(&link, "3").unwrap();
        wait_for_change(&mut watch).await;
    }
}
