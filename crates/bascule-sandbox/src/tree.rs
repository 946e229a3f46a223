//! Which processes there are, and whose children.

use std::collections::HashMap;
use std::fs;
use std::io::Read;

/// Who is whose child, at one moment. One look serves all trees.
#[derive(Default)]
pub(crate) struct Processes {
    children: HashMap<u32, Vec<u32>>,
}

impl Processes {
    /// Looks. What starts meanwhile may be missed: look again.
    pub(crate) fn now() -> Self {
        let mut children = HashMap::<u32, Vec<u32>>::new();
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        for pid in entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
            if let Some(parent) = parent_of(pid) {
                children.entry(parent).or_default().push(pid);
            }
        }
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

fn parent_of(pid: u32) -> Option<u32> {
    // Read at once: the kernel works it out anew for every read, and reading to the end of a file whose size nobody
    // knows takes several.
    let mut start = [0; 512];
    let length = fs::File::open(format!("/proc/{pid}/stat")).ok()?.read(&mut start).ok()?;
    let stat = String::from_utf8_lossy(&start[..length]);
    // The name may hold anything, brackets and blanks included; after its last bracket come state and parent.
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_finds_its_children_and_theirs() {
        let mut child = std::process::Command::new("sh").args(["-c", "sleep 60 & wait"]).spawn().unwrap();
        // Other tests have children too.
        let grandchild = loop {
            if let [pid] = *Processes::now().below(child.id()) {
                break pid;
            }
            std::thread::yield_now();
        };
        let below_us = Processes::now().below(std::process::id());
        assert!(below_us.contains(&child.id()) && below_us.contains(&grandchild));
        std::process::Command::new("kill").arg(grandchild.to_string()).status().unwrap();
        child.wait().unwrap();
    }
}
