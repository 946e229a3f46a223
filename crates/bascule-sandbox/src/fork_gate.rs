//! Decides whether a server's process tree may grow, and counts it when it does.
//!
//! Every fork of a server waits for the reaper (`notifications`). The limits therefore hold however fast the
//! server forks. A reaper that kills the tree answers no more, so nothing is born meanwhile.

use std::fs;
use std::os::unix::fs::MetadataExt;

use libc::c_long;

use crate::cgroup::THREADS_PER_PROCESS;
use crate::notifications::SyscallAnswer;
use crate::process_tree::descendants_of;

/// System calls that create a process or a thread.
pub(crate) const FORK_SYSCALLS: &[c_long] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_fork,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_vfork,
    libc::SYS_clone,
    libc::SYS_clone3,
];

/// Admits forks below the reaper `root`.
pub(crate) struct ForkGate {
    root: u32,
    max_processes: Option<u64>,
    /// False if a control group limits them.
    limits_threads: bool,
    /// The number of forks that can be admitted before the tree must be counted again.
    uncounted: u64,
}

/// The tree has more processes than it may have: this many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooManyProcesses(pub(crate) u64);

impl ForkGate {
    pub(crate) fn new(root: u32, max_processes: Option<u64>, limits_threads: bool) -> Self {
        Self { root, max_processes, limits_threads, uncounted: 0 }
    }

    pub(crate) fn set_max_processes(&mut self, max: Option<u64>) {
        (self.max_processes, self.uncounted) = (max, 0);
    }

    /// Decides about one fork. Fails if the tree must be killed.
    pub(crate) fn admit(&mut self) -> Result<SyscallAnswer, TooManyProcesses> {
        let Some(max) = self.max_processes else { return Ok(SyscallAnswer::Proceed) };
        if self.uncounted == 0 {
            self.uncounted = self.count_allowance(max)?;
        }
        let Some(rest) = self.uncounted.checked_sub(1) else {
            return Ok(SyscallAnswer::FailWith(libc::EAGAIN));
        };
        self.uncounted = rest;
        Ok(SyscallAnswer::Proceed)
    }

    /// The number of forks until the tree is over a limit for processes, or at its limit for threads.
    fn count_allowance(&self, max: u64) -> Result<u64, TooManyProcesses> {
        let tree = descendants_of(self.root);
        let processes = tree.len() as u64;
        if processes > max {
            return Err(TooManyProcesses(processes));
        }
        let allowance = max + 1 - processes;
        if !self.limits_threads {
            return Ok(allowance);
        }
        let tasks: u64 = tree.iter().map(|pid| count_threads(*pid)).sum();
        Ok(allowance.min((max * THREADS_PER_PROCESS).saturating_sub(tasks)))
    }
}

/// The folder has a link for each thread, and two of its own.
fn count_threads(pid: u32) -> u64 {
    fs::metadata(format!("/proc/{pid}/task")).map_or(0, |folder| folder.nlink().saturating_sub(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: SB-02, SB-08
    #[test]
    fn admits_forks_up_to_limit() {
        let mut parent =
            std::process::Command::new("sh").args(["-c", "sleep 60 & sleep 60 & wait"]).spawn().unwrap();
        while descendants_of(parent.id()).len() < 2 {
            std::thread::yield_now();
        }
        let admit = |max, limits_threads| ForkGate::new(parent.id(), max, limits_threads).admit();
        assert_eq!(admit(None, true), Ok(SyscallAnswer::Proceed));
        assert_eq!(admit(Some(2), true), Ok(SyscallAnswer::Proceed));
        assert_eq!(admit(Some(1), true), Err(TooManyProcesses(2)));
        let mut gate = ForkGate::new(parent.id(), Some(4), true);
        let counted: Vec<u64> = (0..3).map(|_| gate.admit().map(|_| gate.uncounted).unwrap()).collect();
        assert_eq!(counted, [2, 1, 0], "counts the tree once for several forks");
        for pid in descendants_of(parent.id()) {
            std::process::Command::new("kill").arg(pid.to_string()).status().unwrap();
        }
        parent.wait().unwrap();
    }

    // req: SB-02
    #[test]
    fn counts_threads() {
        let count = count_threads(std::process::id());
        assert!(count >= 2, "the test's thread and the main one: {count}");
    }
}
