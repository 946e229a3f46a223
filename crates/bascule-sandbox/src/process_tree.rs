//! Reads the process tree from `/proc`.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::Read;

/// The children of every process at one moment. One scan serves all watched trees.
pub(crate) struct ProcessTree {
    children: HashMap<u32, Vec<u32>>,
}

/// Scans repeatedly, and reads a process's parent again only if it may have changed.
#[derive(Default)]
pub(crate) struct ProcessScanner {
    parents: HashMap<u32, u32>,
    scans: u32,
}

impl ProcessScanner {
    /// Every so many scans all parents are read again: a pid may have been reused between two scans.
    const FULL_SCAN_EVERY: u32 = 10;

    pub(crate) fn scan(&mut self) -> ProcessTree {
        self.scans += 1;
        let is_full = self.scans.is_multiple_of(Self::FULL_SCAN_EVERY);
        let old = std::mem::take(&mut self.parents);
        let present: Vec<u32> = all_pids().collect();
        // A process whose parent has ended has a new parent.
        let existing: HashSet<u32> = present.iter().copied().collect();
        let is_current = |parent: &u32| !is_full && (*parent == 0 || existing.contains(parent));
        let known = |pid: &u32| old.get(pid).copied().filter(is_current);
        self.parents =
            present.iter().filter_map(|pid| Some((*pid, known(pid).or_else(|| parent_of(*pid))?))).collect();
        ProcessTree::from_parents(self.parents.iter().map(|(pid, parent)| (*pid, *parent)))
    }
}

impl ProcessTree {
    fn from_parents(parents: impl Iterator<Item = (u32, u32)>) -> Self {
        let mut children = HashMap::<u32, Vec<u32>>::new();
        parents.for_each(|(pid, parent)| children.entry(parent).or_default().push(pid));
        Self { children }
    }

    /// All descendants of a process, parents before children.
    pub(crate) fn descendants_of(&self, root: u32) -> Vec<u32> {
        let children = |pid| self.children.get(&pid).cloned().unwrap_or_default();
        with_descendants(children(root), children)
    }
}

/// All descendants of a process, parents before children. May miss processes that start meanwhile.
pub fn descendants_of(root: u32) -> Vec<u32> {
    match children_of(root) {
        Some(found) => with_descendants(found, |pid| children_of(pid).unwrap_or_default()),
        None => ProcessScanner::default().scan().descendants_of(root),
    }
}

fn with_descendants(mut found: Vec<u32>, children: impl Fn(u32) -> Vec<u32>) -> Vec<u32> {
    let mut next = 0;
    while let Some(pid) = found.get(next) {
        found.extend(children(*pid));
        next += 1;
    }
    found
}

/// The children of all threads of a process. `None` if the kernel does not list children or the process has ended.
fn children_of(pid: u32) -> Option<Vec<u32>> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
    // A thread may have ended since it was listed.
    let lists: Vec<String> =
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok()).collect();
    let children =
        || lists.iter().flat_map(|list| list.split_whitespace()).filter_map(|child| child.parse().ok());
    (!lists.is_empty()).then(|| children().collect())
}

pub(crate) fn all_pids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn parent_of(pid: u32) -> Option<u32> {
    // One read: the kernel generates the file for every read, and reading to the end takes several.
    let mut start = [0; 512];
    let length = fs::File::open(format!("/proc/{pid}/stat")).ok()?.read(&mut start).ok()?;
    let stat = String::from_utf8_lossy(&start[..length]);
    // The process name may contain brackets and blanks; state and parent follow its last bracket.
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_children_and_grandchildren() {
        let mut child = std::process::Command::new("sh").args(["-c", "sleep 60 & wait"]).spawn().unwrap();
        // Other tests have children as well.
        let grandchild = loop {
            if let [pid] = *descendants_of(child.id()) {
                break pid;
            }
            std::thread::yield_now();
        };
        let all = descendants_of(std::process::id());
        assert!(all.contains(&child.id()) && all.contains(&grandchild));
        let mut scanner = ProcessScanner::default();
        for _ in 0..2 * ProcessScanner::FULL_SCAN_EVERY {
            assert_eq!(scanner.scan().descendants_of(child.id()), [grandchild]);
        }
        // As if the pid had belonged to a child of another process at an earlier scan.
        scanner.parents.insert(grandchild, std::process::id());
        let scans = (0..ProcessScanner::FULL_SCAN_EVERY).map(|_| scanner.scan().descendants_of(child.id()));
        assert!(scans.into_iter().any(|found| found == [grandchild]), "a full scan finds the right parent");
        std::process::Command::new("kill").arg(grandchild.to_string()).status().unwrap();
        child.wait().unwrap();
    }
}
