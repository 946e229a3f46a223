//! Limits on a whole process tree, memory and number of processes, as far as no control group keeps them.
//!
//! One thread looks at all trees, more often when one of them is near a limit. What it finds over a limit it
//! ends, by cutting the lifeline, and remembers why. Between two looks a single process is held by RLIMIT_DATA.

use std::cell::LazyCell;
use std::fs::{self, File};
use std::io::Read;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::Duration;

use crate::cgroup::Group;
use crate::launch::Scissors;
use crate::limits;
use crate::tree::{Census, Processes, below};

const CALM: Duration = Duration::from_millis(100);
/// Between two looks a single process is bounded by what it may write to, which is more than it uses: so large a part
/// of its limit comes on top.
const DATA_SLACK: u64 = 5;
const ALERT: Duration = Duration::from_millis(10);

/// What a tree may use up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TreeLimits {
    /// Resident memory less what is shared, of all processes together.
    pub memory_bytes: Option<u64>,
    /// How many processes.
    pub processes: Option<u64>,
}

/// A limit that was reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hit {
    /// So many bytes were seen.
    Memory(u64),
    /// The kernel ended a process of its control group.
    OutOfMemory,
    /// So many processes were seen.
    Processes(u64),
}

/// A tree that is looked after, until this is dropped.
#[derive(Debug)]
pub struct Watch {
    root: u32,
    scissors: Scissors,
    /// What the kernel keeps for us, where it can.
    group: Option<Group>,
    limits: Mutex<TreeLimits>,
    hit: Mutex<Option<Hit>>,
    /// Whether the group holds the memory to the limit in force: then nobody else has to.
    held: AtomicBool,
    /// Whether it was over its memory when last looked at.
    was_over: AtomicBool,
    /// How much of its memory was in use at the most, in thousandths of what is allowed.
    most_memory: AtomicU64,
}

impl Watch {
    /// Looks after the tree below the process that ends when the lifeline is cut.
    pub(crate) fn start(
        root: u32,
        scissors: Scissors,
        group: Option<Group>,
        limits: TreeLimits,
    ) -> Arc<Self> {
        let watch = Arc::new(Self {
            root,
            scissors,
            group,
            limits: Mutex::new(limits),
            hit: Mutex::new(None),
            held: AtomicBool::new(false),
            was_over: AtomicBool::new(false),
            most_memory: AtomicU64::new(0),
        });
        trees().push(Arc::downgrade(&watch));
        static THREAD: OnceLock<()> = OnceLock::new();
        THREAD.get_or_init(|| {
            // Without the thread nothing is looked after: better no bridge than that.
            std::thread::Builder::new()
                .name("watchdog".into())
                .spawn(look)
                .map(drop)
                .expect("a thread can be started");
        });
        watch
    }

    /// From now on these limits hold, for each process as far as the kernel can see to it.
    pub fn bind(&self, limits: TreeLimits) {
        *self.limits.lock().expect("nothing panics while holding it") = limits;
        self.hold();
        // Much too much at once is refused: that is something a server can survive. What is reserved but not used, of which
        // Node has plenty, is nobody's concern: each may add to what it has reserved by now what it may still use.
        let slack = if self.held.load(Ordering::Relaxed) { 1 } else { DATA_SLACK };
        let Some(most) = limits.memory_bytes else { return };
        for pid in below(self.root) {
            let Pages { resident, data } = pages(pid);
            limits::bind_data(pid, data + most.saturating_sub(resident) + most / slack);
        }
    }

    /// Has the group hold the limits in force. One that is over its memory already will not have it at once.
    fn hold(&self) {
        let held = self.group.as_ref().is_some_and(|group| group.limit(self.limits()).is_ok());
        self.held.store(held && self.group.as_ref().is_some_and(Group::counts_memory), Ordering::Relaxed);
    }

    /// There is nothing left to look after: what the kernel kept for it is removed, which may take a while.
    pub fn release(&self) {
        if self.ran_out_of_memory() {
            self.hit.lock().expect("nothing panics while holding it").get_or_insert(Hit::OutOfMemory);
        }
        self.group.iter().for_each(Group::remove);
    }

    /// The server's own process: the first below the one that keeps it.
    pub fn server(&self) -> Option<u32> {
        below(self.root).first().copied()
    }

    /// The limits in force.
    pub fn limits(&self) -> TreeLimits {
        *self.limits.lock().expect("nothing panics while holding it")
    }

    /// The limit that was reached, if one was.
    pub fn hit(&self) -> Option<Hit> {
        let seen = self.hit.lock().expect("nothing panics while holding it").clone();
        seen.or_else(|| self.ran_out_of_memory().then_some(Hit::OutOfMemory))
    }

    /// Whether it came close to what it may use: then a sudden end may have come of being refused more.
    pub fn was_near_its_memory(&self) -> bool {
        let most = self.limits().memory_bytes.unwrap_or(u64::MAX);
        if let Some(peak) = self.scissors.last_word() {
            self.most_memory.fetch_max(peak.saturating_mul(1000) / most.max(1), Ordering::Relaxed);
        }
        self.most_memory.load(Ordering::Relaxed) > 600
    }

    fn ran_out_of_memory(&self) -> bool {
        self.group.as_ref().is_some_and(Group::ran_out_of_memory)
    }

    /// Looks once; says how near the nearest limit is, 1 being reached.
    fn check(&self, processes: &LazyCell<Processes, impl FnOnce() -> Processes>) -> f64 {
        if self.ran_out_of_memory() {
            // The kernel picked one process; what is left of the tree is no longer what it was.
            self.end(Hit::OutOfMemory);
            return 0.0;
        }
        let limits = self.limits();
        if self.held.load(Ordering::Relaxed) && self.has_few_tasks(&limits) {
            return 0.0;
        }
        let tree = processes.below(self.root);
        let share = |used: u64, most: Option<u64>| most.map_or(0.0, |most| used as f64 / most.max(1) as f64);
        let count = tree.len() as u64;
        let memory = self.memory(&tree, &limits);
        let (by_memory, by_count) = (share(memory, limits.memory_bytes), share(count, limits.processes));
        self.most_memory.fetch_max((by_memory * 1000.0) as u64, Ordering::Relaxed);
        if by_count > 1.0 {
            self.end(Hit::Processes(count));
        } else if by_memory > 1.0 && self.is_surely_over() {
            self.end(Hit::Memory(memory));
        }
        self.was_over.store(by_memory > 1.0, Ordering::Relaxed);
        by_memory.max(by_count)
    }

    /// What the tree uses: looked at quickly, which counts files and shared pages for everybody who has them, and
    /// closely only where even that is too much.
    fn memory(&self, tree: &[u32], limits: &TreeLimits) -> u64 {
        if self.held.load(Ordering::Relaxed) {
            return 0;
        }
        let quick = tree.iter().map(|pid| resident_bytes(*pid)).sum::<u64>();
        match limits.memory_bytes.is_some_and(|most| quick > most) {
            true => tree.iter().map(|pid| fair_bytes(*pid)).sum(),
            false => quick,
        }
    }

    /// There are at least as many tasks as processes.
    fn has_few_tasks(&self, limits: &TreeLimits) -> bool {
        let tasks = self.group.as_ref().and_then(Group::tasks);
        limits.processes.is_none_or(|most| tasks.is_some_and(|tasks| tasks <= most))
    }

    /// What is held by a group cannot be over, and is only counted differently. Elsewhere a second look decides:
    /// processes that come and go while they are counted may be counted twice.
    fn is_surely_over(&self) -> bool {
        if self.group.is_some() && !self.held.load(Ordering::Relaxed) {
            self.hold();
        }
        !self.held.load(Ordering::Relaxed) && self.was_over.load(Ordering::Relaxed)
    }

    fn end(&self, hit: Hit) {
        self.hit.lock().expect("nothing panics while holding it").get_or_insert(hit);
        self.scissors.cut();
    }
}

fn trees() -> MutexGuard<'static, Vec<Weak<Watch>>> {
    static TREES: Mutex<Vec<Weak<Watch>>> = Mutex::new(Vec::new());
    TREES.lock().expect("nothing panics while holding it")
}

fn look() {
    let mut census = Census::default();
    loop {
        let watched: Vec<Arc<Watch>> = {
            let mut trees = trees();
            trees.retain(|tree| tree.strong_count() > 0);
            trees.iter().filter_map(Weak::upgrade).collect()
        };
        // Where control groups do the work nobody has to look at every process of the machine.
        let processes = LazyCell::new(|| census.take());
        let nearest = watched.iter().map(|watch| watch.check(&processes)).fold(0.0, f64::max);
        drop((watched, processes));
        std::thread::sleep(if nearest > 0.5 { ALERT } else { CALM });
    }
}

/// What a process has, in bytes.
struct Pages {
    resident: u64,
    /// What it could write to, whether it uses it or not.
    data: u64,
}

fn pages(pid: u32) -> Pages {
    let mut start = [0; 128];
    let read = File::open(format!("/proc/{pid}/statm")).and_then(|mut file| file.read(&mut start));
    let statm = String::from_utf8_lossy(&start[..read.unwrap_or(0)]);
    let field = |place: usize| statm.split(' ').nth(place).and_then(|field| field.trim().parse::<u64>().ok());
    let bytes = |place| field(place).unwrap_or(0) * limits::page_size();
    Pages { resident: bytes(1), data: bytes(5) }
}

/// How much memory a process has resident, in bytes, files that it maps included. 0 if there is no such process.
pub fn resident_bytes(pid: u32) -> u64 {
    pages(pid).resident
}

/// A process's share of its memory that is no file's: what several use counts for each in part.
fn fair_bytes(pid: u32) -> u64 {
    let Ok(rollup) = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")) else {
        return resident_bytes(pid);
    };
    let kilobytes = |line: &str| line.split_whitespace().nth(1)?.parse::<u64>().ok();
    let counted = |line: &&str| line.starts_with("Pss_Anon:") || line.starts_with("Pss_Shmem:");
    rollup.lines().filter(counted).filter_map(kilobytes).sum::<u64>() << 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_counted_quickly_and_closely() {
        let own = std::process::id();
        assert!(resident_bytes(own) > 100_000 && fair_bytes(own) > 100_000);
    }
}
