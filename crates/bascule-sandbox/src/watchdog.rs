//! Limits the memory, the number of processes and the disk space of whole process trees, as far as no control group does.
//!
//! One thread measures the folders of servers. Another one checks all trees, more often while one of them is near a limit. It
//! kills a tree that is over a limit by its kill switch, and records the reason. Between two checks RLIMIT_DATA limits each
//! single process.

use std::cell::LazyCell;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::{Duration, Instant};

use crate::cgroup::CgroupGuard;
use crate::disk_usage::folder_bytes;
use crate::lifeline::KillSwitch;
use crate::process_tree::{ProcessScanner, ProcessTree, descendants_of};
use crate::rlimits;

const NORMAL_INTERVAL: Duration = Duration::from_millis(100);
/// Used while a tree is at more than half of a limit.
const SHORT_INTERVAL: Duration = Duration::from_millis(10);
/// RLIMIT_DATA counts writable memory, of which a process uses only a part. It exceeds the memory limit by this fraction
/// (1/5).
const DATA_SLACK: u64 = 5;
/// In thousandths of the memory limit: a sudden death above this was probably caused by a refused allocation.
const NEAR_LIMIT: u64 = 600;
/// The most that a tree may gain because its launcher does not count.
const MAX_LAUNCHER_BYTES: u64 = 512 << 20;

/// Limits of a process tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TreeLimits {
    /// Resident memory of all processes together; shared memory counts once.
    pub memory_bytes: Option<u64>,
    pub processes: Option<u64>,
    /// The size of the server's own folder.
    pub disk_bytes: Option<u64>,
}

/// A limit that a tree exceeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LimitHit {
    /// The watchdog measured this many bytes.
    Memory(u64),
    /// The kernel's OOM killer ended a process of the tree's control group.
    OutOfMemory,
    /// The watchdog or the reaper counted this many processes.
    Processes(u64),
    /// The server's own folder had this many bytes.
    Disk(u64),
}

/// A process tree that the watchdog checks until this is dropped.
#[derive(Debug)]
pub struct TreeWatch {
    root: u32,
    kill_switch: KillSwitch,
    cgroup: Option<CgroupGuard>,
    /// The server's own folder.
    folder: Option<PathBuf>,
    limits: Mutex<TreeLimits>,
    /// Memory of a package manager that waits for the server, which does not count.
    launcher_bytes: AtomicU64,
    hit: Mutex<Option<LimitHit>>,
    /// True if the control group enforces the current memory limit, so that the watchdog need not.
    is_enforced: AtomicBool,
    /// True if the last check found the tree over its memory limit.
    was_over: AtomicBool,
    /// In thousandths of the memory limit.
    peak_memory: AtomicU64,
}

impl TreeWatch {
    /// `root` is the reaper's process; `kill_switch` ends the tree below it.
    pub(crate) fn start(
        root: u32,
        kill_switch: KillSwitch,
        cgroup: Option<CgroupGuard>,
        folder: Option<PathBuf>,
        limits: TreeLimits,
    ) -> Arc<Self> {
        let watch = Arc::new(Self {
            root,
            kill_switch,
            cgroup,
            folder,
            limits: Mutex::new(limits),
            launcher_bytes: AtomicU64::new(0),
            hit: Mutex::new(None),
            is_enforced: AtomicBool::new(false),
            was_over: AtomicBool::new(false),
            peak_memory: AtomicU64::new(0),
        });
        watched_trees().push(Arc::downgrade(&watch));
        static THREAD: OnceLock<()> = OnceLock::new();
        THREAD.get_or_init(|| {
            // Without these threads no limit would hold, so the bridge must not run without them.
            for (name, check) in [("watchdog", check_forever as fn()), ("disk watchdog", check_disks_forever)]
            {
                let thread = std::thread::Builder::new().name(name.into()).spawn(check);
                thread.map(drop).expect("a thread can be started");
            }
        });
        watch
    }

    /// Replaces the limits of the tree, and sets RLIMIT_DATA of each of its processes.
    pub fn set_limits(&self, limits: TreeLimits) {
        *self.limits.lock().expect("no code panics while it holds the lock") = limits;
        self.update_cgroup();
        self.kill_switch.set_max_processes(limits.processes);
        // A refused allocation is something a server can survive. Memory that is reserved but not used, of which Node has
        // much, does not count: each process may add to its current reservation as much as it may still use.
        let slack = if self.is_enforced() { 1 } else { DATA_SLACK };
        let Some(max) = limits.memory_bytes else { return };
        for pid in descendants_of(self.root) {
            let ProcessMemory { resident, data } = memory_of(pid);
            rlimits::limit_data(pid, data + max.saturating_sub(resident) + max / slack);
        }
    }

    /// Exempts the present memory of the server's first process from the memory limit, if that process has started others.
    /// After an installation npm keeps hundreds of megabytes for as long as it waits for the server.
    pub fn exempt_launcher(&self) {
        if let [launcher, _, ..] = descendants_of(self.root)[..] {
            self.launcher_bytes.store(anonymous_bytes(launcher).min(MAX_LAUNCHER_BYTES), Ordering::Relaxed);
        }
    }

    fn launcher_bytes(&self) -> u64 {
        self.launcher_bytes.load(Ordering::Relaxed)
    }

    /// The memory limit with the launcher's share.
    fn max_memory(&self) -> Option<u64> {
        Some(self.limits().memory_bytes?.saturating_add(self.launcher_bytes()))
    }

    /// Writes the limits to the control group. The kernel may refuse that while the group uses more memory.
    fn update_cgroup(&self) {
        let limits = TreeLimits { memory_bytes: self.max_memory(), ..self.limits() };
        let enforces = |cgroup: &CgroupGuard| cgroup.set_limits(limits).is_ok() && cgroup.limits_memory();
        self.is_enforced.store(self.cgroup.as_ref().is_some_and(enforces), Ordering::Relaxed);
    }

    fn is_enforced(&self) -> bool {
        self.is_enforced.load(Ordering::Relaxed)
    }

    /// Removes the control group after the tree has ended. May block for a moment.
    pub fn remove_cgroup(&self) {
        if self.ran_out_of_memory() {
            self.record(LimitHit::OutOfMemory);
        }
        self.cgroup.iter().for_each(CgroupGuard::remove);
    }

    /// The server's own process: the reaper's first descendant.
    pub fn server_pid(&self) -> Option<u32> {
        descendants_of(self.root).first().copied()
    }

    pub fn limits(&self) -> TreeLimits {
        *self.limits.lock().expect("no code panics while it holds the lock")
    }

    /// The limit that the tree exceeded, if any.
    pub fn limit_hit(&self) -> Option<LimitHit> {
        let hit = self.hit.lock().expect("no code panics while it holds the lock").clone();
        hit.or_else(|| self.kill_switch.excessive_processes().map(LimitHit::Processes))
            .or_else(|| self.ran_out_of_memory().then_some(LimitHit::OutOfMemory))
    }

    /// Returns true if the tree came close to its memory limit, so that a refused allocation may explain a sudden death.
    pub fn was_near_memory_limit(&self) -> bool {
        let max = self.max_memory().unwrap_or(u64::MAX);
        if let Some(peak) = self.kill_switch.peak_bytes() {
            self.peak_memory.fetch_max(peak.saturating_mul(1000) / max.max(1), Ordering::Relaxed);
        }
        self.peak_memory.load(Ordering::Relaxed) > NEAR_LIMIT
    }

    fn ran_out_of_memory(&self) -> bool {
        self.cgroup.as_ref().is_some_and(CgroupGuard::ran_out_of_memory)
    }

    /// Checks the tree once. Returns its largest use of a limit; 1 means that the limit is reached.
    fn check(&self, processes: &LazyCell<ProcessTree, impl FnOnce() -> ProcessTree>) -> f64 {
        if self.ran_out_of_memory() {
            // The OOM killer picks one process. The rest of the tree is not in a usable state.
            self.kill(LimitHit::OutOfMemory);
            return 0.0;
        }
        let limits = self.limits();
        if self.is_enforced() && self.has_few_tasks(&limits) {
            return 0.0;
        }
        let tree = processes.descendants_of(self.root);
        let share = |used: u64, max: Option<u64>| max.map_or(0.0, |max| used as f64 / max.max(1) as f64);
        let count = tree.len() as u64;
        let max_memory = self.max_memory();
        let memory = self.measure_memory(&tree, max_memory);
        let (by_memory, by_count) = (share(memory, max_memory), share(count, limits.processes));
        self.peak_memory.fetch_max((by_memory * 1000.0) as u64, Ordering::Relaxed);
        if by_count > 1.0 {
            self.kill(LimitHit::Processes(count));
        } else if by_memory > 1.0 && self.is_confirmed_over() {
            self.kill(LimitHit::Memory(memory.saturating_sub(self.launcher_bytes())));
        }
        self.was_over.store(by_memory > 1.0, Ordering::Relaxed);
        by_memory.max(by_count)
    }

    /// Measures resident memory, which is quick but counts file mappings and shared pages for each process. Only if that
    /// is over the limit, measures proportional shares.
    fn measure_memory(&self, tree: &[u32], max: Option<u64>) -> u64 {
        if self.is_enforced() {
            return 0;
        }
        let resident = tree.iter().map(|pid| resident_bytes(*pid)).sum::<u64>();
        match max.is_some_and(|max| resident > max) {
            true => tree.iter().map(|pid| anonymous_bytes(*pid)).sum(),
            false => resident,
        }
    }

    /// The number of tasks is an upper bound of the number of processes.
    fn has_few_tasks(&self, limits: &TreeLimits) -> bool {
        let tasks = self.cgroup.as_ref().and_then(CgroupGuard::tasks);
        limits.processes.is_none_or(|max| tasks.is_some_and(|tasks| tasks <= max))
    }

    /// A tree whose control group enforces the limit cannot be over it: the watchdog only counts differently. Otherwise a
    /// second check must agree, because processes that start and end during a check may be counted twice.
    fn is_confirmed_over(&self) -> bool {
        if self.cgroup.is_some() && !self.is_enforced() {
            self.update_cgroup();
        }
        !self.is_enforced() && self.was_over.load(Ordering::Relaxed)
    }

    fn kill(&self, hit: LimitHit) {
        self.record(hit);
        self.kill_switch.kill();
    }

    /// Keeps the first limit hit only.
    fn record(&self, hit: LimitHit) {
        self.hit.lock().expect("no code panics while it holds the lock").get_or_insert(hit);
    }
}

fn watched_trees() -> MutexGuard<'static, Vec<Weak<TreeWatch>>> {
    static TREES: Mutex<Vec<Weak<TreeWatch>>> = Mutex::new(Vec::new());
    TREES.lock().expect("no code panics while it holds the lock")
}

fn live_trees() -> Vec<Arc<TreeWatch>> {
    let mut trees = watched_trees();
    trees.retain(|tree| tree.strong_count() > 0);
    trees.iter().filter_map(Weak::upgrade).collect()
}

/// Kills trees whose folder is too large. Reading a folder with many files is slow, so it takes a small share of the time.
fn check_disks_forever() {
    const INTERVAL: Duration = Duration::from_secs(2);
    const SHARE: u32 = 20;
    let mut due = HashMap::<PathBuf, Instant>::new();
    loop {
        let watched = live_trees();
        due.retain(|folder, _| watched.iter().any(|watch| watch.folder.as_ref() == Some(folder)));
        for watch in &watched {
            let (Some(folder), Some(max)) = (&watch.folder, watch.limits().disk_bytes) else { continue };
            let started = Instant::now();
            if due.get(folder).is_some_and(|due| *due > started) {
                continue;
            }
            let bytes = folder_bytes(folder, max);
            due.insert(folder.clone(), Instant::now() + (started.elapsed() * SHARE).max(INTERVAL));
            if bytes > max {
                let users = watched.iter().filter(|other| other.folder.as_ref() == Some(folder));
                users.for_each(|other| other.kill(LimitHit::Disk(bytes)));
            }
        }
        drop(watched);
        std::thread::sleep(INTERVAL / 4);
    }
}

fn check_forever() {
    let mut scanner = ProcessScanner::default();
    loop {
        let watched = live_trees();
        // Lazy: where control groups enforce all limits, the processes need not be scanned.
        let processes = LazyCell::new(|| scanner.scan());
        let largest = watched.iter().map(|watch| watch.check(&processes)).fold(0.0, f64::max);
        drop((watched, processes));
        std::thread::sleep(if largest > 0.5 { SHORT_INTERVAL } else { NORMAL_INTERVAL });
    }
}

/// In bytes.
struct ProcessMemory {
    resident: u64,
    /// Writable memory, used or only reserved.
    data: u64,
}

fn memory_of(pid: u32) -> ProcessMemory {
    let mut start = [0; 128];
    let read = File::open(format!("/proc/{pid}/statm")).and_then(|mut file| file.read(&mut start));
    let statm = String::from_utf8_lossy(&start[..read.unwrap_or(0)]);
    let field = |index: usize| statm.split(' ').nth(index).and_then(|field| field.trim().parse::<u64>().ok());
    let bytes = |index| field(index).unwrap_or(0) * rlimits::page_size();
    ProcessMemory { resident: bytes(1), data: bytes(5) }
}

/// Resident memory of a process, mapped files included. 0 if there is no such process.
pub fn resident_bytes(pid: u32) -> u64 {
    memory_of(pid).resident
}

/// The proportional share of a process in memory that no file backs. A page that several processes use counts for each
/// in part.
fn anonymous_bytes(pid: u32) -> u64 {
    let Ok(rollup) = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")) else {
        return resident_bytes(pid);
    };
    let kilobytes = |line: &str| line.split_whitespace().nth(1)?.parse::<u64>().ok();
    let is_counted = |line: &&str| line.starts_with("Pss_Anon:") || line.starts_with("Pss_Shmem:");
    rollup.lines().filter(is_counted).filter_map(kilobytes).sum::<u64>() << 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measures_resident_and_proportional_memory() {
        let own = std::process::id();
        assert!(resident_bytes(own) > 100_000 && anonymous_bytes(own) > 100_000);
    }
}
