//! Which processes there are, and whose children.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::Read;

/// Who is whose child, at one moment. One look serves all trees.
#[derive(Default)]
pub(crate) struct Processes {
    children: HashMap<u32, Vec<u32>>,
}

/// Looks again and again, and asks each process for its parent only when that may have changed.
#[derive(Default)]
pub(crate) struct Census {
    parents: HashMap<u32, u32>,
    looks: u32,
}

impl Census {
    /// A number may have been given to another process unseen: so often, everybody is asked again.
    const THOROUGH: u32 = 10;

    /// Looks.
    pub(crate) fn take(&mut self) -> Processes {
        self.looks += 1;
        let thorough = self.looks.is_multiple_of(Self::THOROUGH);
        let old = std::mem::take(&mut self.parents);
        let present: Vec<u32> = numbers().collect();
        // Whoever has lost its parent has another one now.
        let there: HashSet<u32> = present.iter().copied().collect();
        let holds = |parent: &u32| !thorough && (*parent == 0 || there.contains(parent));
        let known = |pid: &u32| old.get(pid).copied().filter(holds);
        self.parents =
            present.iter().filter_map(|pid| Some((*pid, known(pid).or_else(|| parent_of(*pid))?))).collect();
        Processes::of(self.parents.iter().map(|(pid, parent)| (*pid, *parent)))
    }
}

impl Processes {
    fn of(parents: impl Iterator<Item = (u32, u32)>) -> Self {
        let mut children = HashMap::<u32, Vec<u32>>::new();
        parents.for_each(|(pid, parent)| children.entry(parent).or_default().push(pid));
        Self { children }
    }

    /// Everything below a process, parents before children, itself not included.
    pub(crate) fn below(&self, root: u32) -> Vec<u32> {
        let mut found = self.children.get(&root).cloned().unwrap_or_default();
        let mut next = 0;
        while let Some(pid) = found.get(next) {
            found.extend(self.children.get(pid).cloned().unwrap_or_default());
            next += 1;
        }
        found
    }
}

/// Everything below one process, parents before children, itself not included. What starts meanwhile may be missed:
/// look again.
pub(crate) fn below(root: u32) -> Vec<u32> {
    let Some(mut found) = children_of(root) else {
        return Census::default().take().below(root);
    };
    let mut next = 0;
    while let Some(pid) = found.get(next) {
        found.extend(children_of(*pid).unwrap_or_default());
        next += 1;
    }
    found
}

/// A process's children, as its threads have them; none if this kernel does not tell, or the process is no more.
fn children_of(pid: u32) -> Option<Vec<u32>> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
    // A thread may have ended since it was listed.
    let told: Vec<String> =
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok()).collect();
    let children =
        || told.iter().flat_map(|text| text.split_whitespace()).filter_map(|child| child.parse().ok());
    (!told.is_empty()).then(|| children().collect())
}

pub(crate) fn numbers() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

pub(crate) fn parent_of(pid: u32) -> Option<u32> {
    // Read at once: the kernel works it out anew for every read, and reading to the end of a file whose size nobody
    // knows takes several.
    let mut start = [0; 512];
    let length = fs::File::open(format!("/proc/{pid}/stat")).ok()?.read(&mut start).ok()?;
    let stat = String::from_utf8_lossy(&start[..length]);
    // The name may hold anything, brackets and blanks included; after its last bracket come state and parent.
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

/// Whether a process is below another one. None if that cannot be said: it has ended, or one above it has while it was
/// asked, and what took its place may be anything.
pub(crate) fn is_below(pid: u32, root: u32) -> Option<bool> {
    let (mut pid, mut parent) = (pid, parent_of(pid)?);
    while parent != root {
        let above = match parent {
            0 | 1 => Some(0),
            parent => parent_of(parent),
        };
        let is_anothers = above.is_none() && is_another_users(parent);
        // Who ends loses its children before its number goes to somebody else. So whatever was learnt of the parent was
        // learnt of the right one, if it is the parent still. And a process that ends just now may seem to have none.
        if parent_of(pid) != Some(parent) {
            return None;
        }
        if parent <= 1 || is_anothers {
            return Some(false);
        }
        (pid, parent) = (parent, above?);
    }
    Some(true)
}

/// On some machines such processes cannot be seen. They are below none of ours, whose privileges cannot change.
fn is_another_users(pid: u32) -> bool {
    // SAFETY: takes numbers only, and sends nothing.
    let found = unsafe { libc::kill(pid as libc::pid_t, 0) };
    found != 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EPERM)
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: GW-07
    #[test]
    fn a_process_is_below_its_ancestors_and_nobody_else_and_nothing_is_said_of_the_dead() {
        let own = std::process::id();
        let mut child = std::process::Command::new("sh").args(["-c", "sleep 60 & wait"]).spawn().unwrap();
        let grandchild = loop {
            if let [pid] = *below(child.id()) {
                break pid;
            }
            std::thread::yield_now();
        };
        for pid in [child.id(), grandchild] {
            assert_eq!(is_below(pid, own), Some(true));
        }
        assert_eq!(is_below(grandchild, child.id()), Some(true));
        assert_eq!(is_below(child.id(), grandchild), Some(false));
        assert_eq!(is_below(own, child.id()), Some(false));
        assert_eq!(is_below(1, own), Some(false));
        std::process::Command::new("kill").arg(grandchild.to_string()).status().unwrap();
        child.wait().unwrap();
        assert_eq!(is_below(child.id(), own), None);
    }

    #[test]
    fn a_process_finds_its_children_and_theirs() {
        let mut child = std::process::Command::new("sh").args(["-c", "sleep 60 & wait"]).spawn().unwrap();
        // Other tests have children too.
        let grandchild = loop {
            if let [pid] = *below(child.id()) {
                break pid;
            }
            std::thread::yield_now();
        };
        let below_us = below(std::process::id());
        assert!(below_us.contains(&child.id()) && below_us.contains(&grandchild));
        let mut census = Census::default();
        for _ in 0..2 * Census::THOROUGH {
            assert_eq!(census.take().below(child.id()), [grandchild]);
        }
        std::process::Command::new("kill").arg(grandchild.to_string()).status().unwrap();
        child.wait().unwrap();
    }
}
