//! Limits that the kernel keeps for a whole process tree, where it lets us: control groups, of either version.
//!
//! A group is made beside our own, the jail enters it before it becomes the server, and it is removed when
//! the last process has gone. Where no group can be made the watchdog is all there is.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

use crate::watchdog::TreeLimits;

/// A group counts threads, people count processes: so many threads a process are thought to be enough for all.
const THREADS_A_PROCESS: u64 = 16;
/// What the folders of our groups begin with; the number of the process that made them follows.
const PREFIX: &str = "bascule-";

/// A group of processes that share limits. Dropped, it is removed, unless processes are left in it.
#[derive(Debug)]
pub(crate) struct Group {
    folders: Vec<PathBuf>,
    version: Version,
    /// Where the kernel counts the processes that it had to end for want of memory.
    kills: Option<File>,
    /// Where it counts those that there are, threads included.
    tasks: Option<File>,
    /// What the kernel writes on every socket that is made in it.
    stamp: Option<u64>,
}

/// Which files a group has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// Where groups can be made on this machine.
#[derive(Debug)]
pub(crate) struct Place {
    version: Version,
    memory: Option<PathBuf>,
    /// In version two the same folder as above.
    pids: Option<PathBuf>,
}

impl Group {
    /// Makes a group, where this machine has a place for one.
    pub(crate) fn make(limits: TreeLimits) -> Option<Self> {
        let place = Place::here()?;
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("{PREFIX}{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        Self::make_in(place, &name, limits).ok()
    }

    fn make_in(place: &Place, name: &str, limits: TreeLimits) -> io::Result<Self> {
        let mut group =
            Self { folders: Vec::new(), version: place.version, kills: None, tasks: None, stamp: None };
        for folder in [&place.memory, &place.pids].into_iter().flatten() {
            let folder = folder.join(name);
            if !group.folders.contains(&folder) {
                fs::create_dir(&folder)?;
                group.folders.push(folder);
            }
        }
        let open = |file: &str| group.find(file).and_then(|path| File::open(path).ok());
        (group.kills, group.tasks) = (open(kills_file(group.version)), open("pids.current"));
        group.limit(limits)?;
        group.stamp();
        Ok(group)
    }

    /// Only version two has a stamp: the number of its folder.
    fn stamp(&mut self) {
        let folder = self.folders.first().filter(|_| self.version == Version::Two);
        self.stamp = folder.and_then(|folder| folder.metadata().ok()).map(|folder| folder.ino());
        stamps().extend(self.stamp);
    }

    /// From now on these limits hold. What is over its memory already cannot always be told so at once: then this
    /// fails, and may be tried again.
    pub(crate) fn limit(&self, limits: TreeLimits) -> io::Result<()> {
        if let (Some(most), Some(file)) = (limits.memory_bytes, self.find(memory_file(self.version))) {
            // In version one neither may pass the other: whichever way this goes, one of the two orders is right.
            self.refuse_swap(most);
            fs::write(file, most.to_string())?;
            self.refuse_swap(most);
        }
        if let (Some(most), Some(file)) = (limits.processes, self.find("pids.max")) {
            fs::write(file, (most * THREADS_A_PROCESS).to_string())?;
        }
        Ok(())
    }

    /// What is swapped out is memory too. Kernels without swap accounting have no such file.
    fn refuse_swap(&self, most: u64) {
        let (file, value) = match self.version {
            Version::One => ("memory.memsw.limit_in_bytes", most),
            Version::Two => ("memory.swap.max", 0),
        };
        self.find(file).into_iter().for_each(|file| drop(fs::write(file, value.to_string())));
    }

    /// Whether the kernel had to end one of its processes because there was no memory left for the group.
    pub(crate) fn ran_out_of_memory(&self) -> bool {
        let text = self.kills.as_ref().map(content).unwrap_or_default();
        text.lines().any(|line| line.strip_prefix("oom_kill ").is_some_and(|count| count.trim() != "0"))
    }

    /// How many threads its processes have, together.
    pub(crate) fn tasks(&self) -> Option<u64> {
        content(self.tasks.as_ref()?).trim().parse().ok()
    }

    /// Whoever keeps the tree has ended it by now. What is left has lost its keeper, and is ended here.
    pub(crate) fn remove(&self) {
        const ROUNDS: usize = 20;
        for _ in 0..ROUNDS {
            if self.folders.iter().all(|folder| fs::remove_dir(folder).is_ok() || !folder.exists()) {
                return;
            }
            self.kill();
            std::thread::yield_now();
        }
    }

    /// Ends whatever is in it.
    fn kill(&self) {
        for folder in &self.folders {
            // Version two has a word for it.
            if fs::write(folder.join("cgroup.kill"), "1").is_ok() {
                continue;
            }
            let processes = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
            for pid in processes.lines().filter_map(|pid| pid.parse::<libc::pid_t>().ok()) {
                // SAFETY: takes numbers only; the process was in our group a moment ago.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
        }
    }

    /// Whether memory is among what it bounds.
    pub(crate) fn counts_memory(&self) -> bool {
        self.find(memory_file(self.version)).is_some()
    }

    /// Its folders: who is to be in it writes itself into their `cgroup.procs`.
    pub(crate) fn folders(&self) -> &[PathBuf] {
        &self.folders
    }

    fn find(&self, file: &str) -> Option<PathBuf> {
        self.folders.iter().map(|folder| folder.join(file)).find(|path| path.exists())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.remove();
        if let Some(stamp) = self.stamp {
            stamps().remove(&stamp);
        }
    }
}

fn stamps() -> MutexGuard<'static, BTreeSet<u64>> {
    static STAMPS: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());
    STAMPS.lock().expect("nothing panics while holding it")
}

/// Whether a socket with this stamp was made in one of our groups.
pub(crate) fn is_stamp_of_ours(stamp: u64) -> bool {
    stamps().contains(&stamp)
}

/// The calling process, and its children to come, belong to the group from now on.
pub(crate) fn enter(folders: &[PathBuf]) -> io::Result<()> {
    folders.iter().try_for_each(|folder| fs::write(folder.join("cgroup.procs"), "0"))
}

/// Removes what is empty; what is not has somebody else to remove it.
pub(crate) fn remove(folders: &[PathBuf]) {
    folders.iter().for_each(|folder| drop(fs::remove_dir(folder)));
}

/// What a small file holds now.
fn content(file: &File) -> String {
    let mut text = [0; 512];
    let length = file.read_at(&mut text, 0).unwrap_or(0);
    String::from_utf8_lossy(&text[..length]).into_owned()
}

fn memory_file(version: Version) -> &'static str {
    match version {
        Version::One => "memory.limit_in_bytes",
        Version::Two => "memory.max",
    }
}

fn kills_file(version: Version) -> &'static str {
    match version {
        Version::One => "memory.oom_control",
        Version::Two => "memory.events",
    }
}

impl Place {
    /// Found once, by making a group and removing it.
    pub(crate) fn here() -> Option<&'static Self> {
        static PLACE: OnceLock<Option<Place>> = OnceLock::new();
        PLACE.get_or_init(Self::find).as_ref()
    }

    /// What groups bound here, and how.
    pub(crate) fn told(&self) -> String {
        let version = if self.version == Version::One { "v1" } else { "v2" };
        let what = match (&self.memory, &self.pids) {
            (Some(_), Some(_)) => "memory and tasks of the whole tree",
            (Some(_), None) => "memory of the whole tree",
            _ => "tasks of the whole tree",
        };
        format!("{what} (cgroup {version})")
    }

    fn find() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        [Self::of_version_two(&mounts, &own), Self::of_version_one(&mounts, &own)]
            .into_iter()
            .flatten()
            .find(Self::works)
    }

    fn of_version_two(mounts: &str, own: &str) -> Option<Self> {
        let folder = folder(mounts, own, |kind, _| kind == "cgroup2", "0::")?;
        hand_down(&folder).ok()?;
        Some(Self { version: Version::Two, memory: Some(folder.clone()), pids: Some(folder) })
    }

    fn of_version_one(mounts: &str, own: &str) -> Option<Self> {
        let place = |controller: &str| {
            let is_its =
                |kind: &str, options: &str| kind == "cgroup" && options.split(',').any(|o| o == controller);
            let folder = folder(mounts, own, is_its, &format!(":{controller}:"))?;
            writable(&folder).then_some(folder)
        };
        let (memory, pids) = (place("memory"), place("pids"));
        (memory.is_some() || pids.is_some()).then_some(Self { version: Version::One, memory, pids })
    }

    fn works(&self) -> bool {
        [&self.memory, &self.pids].into_iter().flatten().for_each(|folder| sweep(folder));
        let name = format!("{PREFIX}{}-trial", std::process::id());
        let limits = TreeLimits { memory_bytes: Some(1 << 30), processes: Some(64) };
        Group::make_in(self, &name, limits).is_ok()
    }
}

/// Where our own group of one hierarchy is in the file system.
fn folder(mounts: &str, own: &str, is_its: impl Fn(&str, &str) -> bool, line: &str) -> Option<PathBuf> {
    let own = own.lines().find_map(|text| text.split_once(line).map(|(_, path)| path))?;
    mounts.lines().find_map(|mount| {
        let (place, kind) = mount.split_once(" - ")?;
        let mut place = place.split(' ').skip(3);
        let (root, point) = (place.next()?, place.next()?);
        let mut kind = kind.split(' ');
        if !is_its(kind.next()?, kind.nth(1)?) {
            return None;
        }
        // In a container the mount begins somewhere below the real root, and what is above it is not seen.
        let below = Path::new(own).strip_prefix(root).unwrap_or(Path::new(""));
        Some(Path::new(point).join(below.strip_prefix("/").unwrap_or(below)))
    })
}

/// Version two gives a group's children only the controllers that the group hands down, which it may not do while
/// processes are in it. Where we are alone in ours, we step down into a child of it.
fn hand_down(folder: &Path) -> io::Result<()> {
    const WANTED: [&str; 2] = ["memory", "pids"];
    let handed = |file: &str| {
        let text = fs::read_to_string(folder.join(file)).unwrap_or_default();
        WANTED.iter().all(|wanted| text.split_whitespace().any(|word| word == *wanted))
    };
    if handed("cgroup.subtree_control") {
        return Ok(());
    }
    if !handed("cgroup.controllers") {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let hand_down = || fs::write(folder.join("cgroup.subtree_control"), "+memory +pids");
    if hand_down().is_ok() {
        return Ok(());
    }
    let alone = fs::read_to_string(folder.join("cgroup.procs"))?.trim() == std::process::id().to_string();
    if !alone {
        return Err(io::ErrorKind::ResourceBusy.into());
    }
    let leaf = folder.join(format!("{PREFIX}itself"));
    fs::create_dir_all(&leaf)?;
    fs::write(leaf.join("cgroup.procs"), "0")?;
    hand_down()
}

fn writable(folder: &Path) -> bool {
    let trial = folder.join(format!("{PREFIX}{}-look", std::process::id()));
    fs::create_dir(&trial).and_then(|()| fs::remove_dir(&trial)).is_ok()
}

/// Removes what bridges that are no more have left. A group with processes in it cannot be removed.
fn sweep(folder: &Path) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let maker = |name: &str| name.strip_prefix(PREFIX)?.split('-').next()?.parse::<u32>().ok();
    for entry in entries {
        let dead = entry
            .file_name()
            .to_str()
            .and_then(maker)
            .is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists());
        if dead {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
30 25 0:26 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw
33 25 0:29 / /sys/fs/cgroup/memory rw,relatime shared:12 - cgroup cgroup rw,memory
34 25 0:30 /docker/a /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids";
    const OWN: &str = "8:pids:/docker/a/b\n4:memory:/x/y\n0::/";

    #[test]
    fn our_own_group_is_found_in_each_hierarchy() {
        let one = |controller: &str| {
            folder(
                MOUNTS,
                OWN,
                |kind, options| kind == "cgroup" && options.contains(controller),
                &format!(":{controller}:"),
            )
        };
        assert_eq!(one("memory").unwrap(), Path::new("/sys/fs/cgroup/memory/x/y"));
        assert_eq!(one("pids").unwrap(), Path::new("/sys/fs/cgroup/pids/b"));
        let two = folder(MOUNTS, OWN, |kind, _| kind == "cgroup2", "0::").unwrap();
        assert_eq!(two, Path::new("/sys/fs/cgroup/unified/"));
    }

    /// A folder of plain files stands for version two: few machines offer both, and ours may offer the other.
    // req: SB-02
    #[test]
    fn version_two_is_told_its_limits_in_its_own_words() {
        let parent = std::env::temp_dir().join(format!("bascule-cgroup-test-{}", std::process::id()));
        let group = Group {
            folders: vec![parent.clone()],
            version: Version::Two,
            kills: None,
            tasks: None,
            stamp: None,
        };
        fs::create_dir_all(&parent).unwrap();
        for file in ["memory.max", "memory.swap.max", "pids.max"] {
            fs::write(parent.join(file), "max").unwrap();
        }
        group.limit(TreeLimits { memory_bytes: Some(5 << 20), processes: Some(3) }).unwrap();
        let read = |file| fs::read_to_string(parent.join(file)).unwrap();
        assert_eq!(
            (read("memory.max"), read("memory.swap.max"), read("pids.max")),
            ("5242880".into(), "0".into(), "48".into())
        );
        fs::remove_dir_all(parent).unwrap();
    }

    // req: SB-02
    #[test]
    fn a_real_group_holds_its_memory_and_says_so() {
        let limits = TreeLimits { memory_bytes: Some(64 << 20), processes: Some(4) };
        let Some(group) = Group::make(limits) else {
            eprintln!("skipped: no control group can be made here");
            return;
        };
        assert!(!group.ran_out_of_memory());
        let script = format!(
            "echo 0 > {}/cgroup.procs; exec python3 -c 'x = bytearray(200 << 20)'",
            group.folders()[0].display()
        );
        let status = std::process::Command::new("sh").args(["-c", &script]).status().unwrap();
        use std::os::unix::process::ExitStatusExt;
        assert_eq!(status.signal(), Some(libc::SIGKILL));
        assert!(group.ran_out_of_memory());
        let folder = group.folders()[0].clone();
        drop(group);
        assert!(!folder.exists());
    }
}
