//! Notices that the configuration file has changed.
//!
//! Watches folders, not the file: editors write a new file and put it in the old one's place. A file that is a link
//! is watched at both ends. Whether anything in it has changed is for those who read it to find out.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::inotify;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, timeout_at};

/// A file that is being written changes several times: it is read once it has been quiet for so long.
const SETTLED: Duration = Duration::from_millis(150);
/// Even if it never is.
const AT_THE_LATEST: Duration = Duration::from_secs(5);

/// A file that is watched.
pub struct FileWatch {
    inotify: AsyncFd<std::os::fd::OwnedFd>,
    /// By what the kernel calls the folder, and the file's name in it.
    names: Vec<(i32, OsString)>,
}

impl FileWatch {
    /// Begins to watch. Must be called within a runtime.
    pub fn new(file: &Path) -> io::Result<Self> {
        let inotify = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
        let flags = inotify::WatchFlags::CLOSE_WRITE
            | inotify::WatchFlags::MOVED_TO
            | inotify::WatchFlags::CREATE
            | inotify::WatchFlags::DELETE;
        let mut names = Vec::new();
        for path in both_ends(file)? {
            let folder =
                path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let watch = inotify::add_watch(&inotify, folder, flags)?;
            names.push((watch, path.file_name().unwrap_or_default().to_owned()));
        }
        #[allow(
            deprecated,
            reason = "its replacement is unsafe for types that give up their descriptor; this one keeps it"
        )]
        let inotify = AsyncFd::new(inotify)?;
        Ok(Self { inotify, names })
    }

    /// Returns when the file has changed and is quiet again. Nothing is lost if it is dropped before.
    pub async fn changed(&mut self) {
        while !self.stirred().await {}
        let latest = Instant::now() + AT_THE_LATEST;
        while timeout_at((Instant::now() + SETTLED).min(latest), self.stirred()).await.is_ok() {
            if Instant::now() >= latest {
                break;
            }
        }
    }

    /// Waits for something to happen in the folders. Says whether it happened to the file.
    async fn stirred(&mut self) -> bool {
        let Ok(mut ready) = self.inotify.readable_mut().await else {
            return std::future::pending().await;
        };
        let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(ready.get_inner(), &mut buffer);
        let mut ours = false;
        while let Ok(event) = reader.next() {
            let name = event.file_name().map(|name| name.to_bytes());
            let is_it = |(watch, file): &(i32, OsString)| {
                *watch == event.wd() && name == Some(file.as_encoded_bytes())
            };
            // What was lost in an overflow may have been the file.
            let overflow = event.events().contains(inotify::ReadFlags::QUEUE_OVERFLOW);
            ours |= overflow || self.names.iter().any(is_it);
        }
        ready.clear_ready();
        ours
    }
}

/// The file as it is named, and where it really lies.
fn both_ends(file: &Path) -> io::Result<Vec<PathBuf>> {
    let real = file.canonicalize()?;
    let named = std::path::absolute(file)?;
    Ok(if named == real { vec![real] } else { vec![named, real] })
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn noticed(watch: &mut FileWatch) {
        tokio::time::timeout(Duration::from_secs(30), watch.changed()).await.expect("the change is noticed");
    }

    // req: BR-13
    #[tokio::test]
    async fn a_file_that_is_written_or_replaced_has_changed_and_its_neighbours_do_not_matter() {
        let folder = tempfile::tempdir().unwrap();
        let (file, new) = (folder.path().join("mcp.json"), folder.path().join("mcp.json.new"));
        std::fs::write(&file, "1").unwrap();
        let mut watch = FileWatch::new(&file).unwrap();
        std::fs::write(&file, "2").unwrap();
        noticed(&mut watch).await;
        std::fs::write(&new, "3").unwrap();
        assert!(!watch.stirred().await, "a neighbour");
        std::fs::rename(&new, &file).unwrap();
        noticed(&mut watch).await;
    }

    // req: BR-13
    #[tokio::test]
    async fn a_link_is_watched_at_both_ends() {
        let folder = tempfile::tempdir().unwrap();
        let (real, link) = (folder.path().join("real.json"), folder.path().join("link.json"));
        std::fs::write(&real, "1").unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let mut watch = FileWatch::new(&link).unwrap();
        std::fs::write(&real, "2").unwrap();
        noticed(&mut watch).await;
        std::fs::remove_file(&link).unwrap();
        std::fs::write(&link, "3").unwrap();
        noticed(&mut watch).await;
    }
}
