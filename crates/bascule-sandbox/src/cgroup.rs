//! Limits a whole process tree with control groups, version 1 or 2, where the bridge may create them.
//!
//! A group is created below the bridge's own group. The jail enters it before it executes the server, and the group is
//! removed after its last process has ended. Where no group can be created, only the watchdog limits the tree.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::watchdog::TreeLimits;

/// A group counts threads, the configuration counts processes. This many threads per process are allowed.
pub(crate) const THREADS_PER_PROCESS: u64 = 16;
/// Prefix of group names. The pid of the bridge that created the group follows.
const PREFIX: &str = "bascule-";

/// A control group with limits. Dropping it kills the processes in it and removes it.
#[derive(Debug)]
pub(crate) struct CgroupGuard {
    /// One folder in version 2, one per controller in version 1.
    folders: Vec<PathBuf>,
    version: CgroupVersion,
    /// The file with the number of processes the OOM killer ended.
    oom_events: Option<File>,
    /// The file with the number of tasks: processes and their threads.
    tasks: Option<File>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CgroupVersion {
    One,
    Two,
}

/// The folders of this process's own groups, in which it can create others.
#[derive(Debug)]
pub(crate) struct CgroupParent {
    version: CgroupVersion,
    memory: Option<PathBuf>,
    /// In version 2 the same folder as `memory`.
    pids: Option<PathBuf>,
}

impl CgroupGuard {
    /// Returns `None` if no group can be created on this machine.
    pub(crate) fn create(limits: TreeLimits) -> Option<Self> {
        let parent = CgroupParent::get()?;
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("{PREFIX}{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        Self::create_in(parent, &name, limits).ok()
    }

    fn create_in(parent: &CgroupParent, name: &str, limits: TreeLimits) -> io::Result<Self> {
        let mut group = Self { folders: Vec::new(), version: parent.version, oom_events: None, tasks: None };
        for folder in [&parent.memory, &parent.pids].into_iter().flatten() {
            let folder = folder.join(name);
            if !group.folders.contains(&folder) {
                fs::create_dir(&folder)?;
                group.folders.push(folder);
            }
        }
        let open = |file: &str| group.find(file).and_then(|path| File::open(path).ok());
        (group.oom_events, group.tasks) = (open(oom_events_file(group.version)), open("pids.current"));
        group.set_limits(limits)?;
        Ok(group)
    }

    /// May fail while the group uses more memory than the new limit; then it can be retried.
    pub(crate) fn set_limits(&self, limits: TreeLimits) -> io::Result<()> {
        if let (Some(max), Some(file)) = (limits.memory_bytes, self.find(memory_file(self.version))) {
            // Version 1 requires memory <= memory and swap. Before or after, one of the two writes is in the right order.
            self.forbid_swap(max);
            fs::write(file, max.to_string())?;
            self.forbid_swap(max);
        }
        if let (Some(max), Some(file)) = (limits.processes, self.find("pids.max")) {
            fs::write(file, (max * THREADS_PER_PROCESS).to_string())?;
        }
        Ok(())
    }

    /// Swapped memory counts as memory. Kernels without swap accounting have no such file.
    fn forbid_swap(&self, max: u64) {
        let (file, value) = match self.version {
            CgroupVersion::One => ("memory.memsw.limit_in_bytes", max),
            CgroupVersion::Two => ("memory.swap.max", 0),
        };
        self.find(file).into_iter().for_each(|file| drop(fs::write(file, value.to_string())));
    }

    /// Returns true if the kernel's OOM killer ended a process of the group.
    pub(crate) fn ran_out_of_memory(&self) -> bool {
        let text = self.oom_events.as_ref().map(read_current).unwrap_or_default();
        text.lines().any(|line| line.strip_prefix("oom_kill ").is_some_and(|count| count.trim() != "0"))
    }

    /// The number of threads of all processes in the group.
    pub(crate) fn tasks(&self) -> Option<u64> {
        read_current(self.tasks.as_ref()?).trim().parse().ok()
    }

    /// Removes the group. The reaper has normally ended the tree by now; if it was killed itself, remaining processes are
    /// killed here.
    pub(crate) fn remove(&self) {
        const ATTEMPTS: usize = 20;
        for _ in 0..ATTEMPTS {
            if self.folders.iter().all(|folder| fs::remove_dir(folder).is_ok() || !folder.exists()) {
                return;
            }
            self.kill_processes();
            std::thread::yield_now();
        }
    }

    fn kill_processes(&self) {
        kill(&self.folders);
        for folder in &self.folders {
            let processes = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
            for pid in processes.lines().filter_map(|pid| pid.parse::<libc::pid_t>().ok()) {
                // SAFETY: takes numbers only; the process was in the group a moment ago.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
        }
    }

    pub(crate) fn limits_tasks(&self) -> bool {
        self.find("pids.max").is_some()
    }

    pub(crate) fn limits_memory(&self) -> bool {
        self.find(memory_file(self.version)).is_some()
    }

    /// A process enters the group by writing itself into `cgroup.procs` of each of these folders.
    pub(crate) fn folders(&self) -> &[PathBuf] {
        &self.folders
    }

    fn find(&self, file: &str) -> Option<PathBuf> {
        self.folders.iter().map(|folder| folder.join(file)).find(|path| path.exists())
    }
}

impl Drop for CgroupGuard {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Moves the calling process, and so its future children, into the group.
pub(crate) fn enter(folders: &[PathBuf]) -> io::Result<()> {
    folders.iter().try_for_each(|folder| fs::write(folder.join("cgroup.procs"), "0"))
}

/// Forbids the processes in the groups to fork, and kills them where the kernel can kill a group (version 2, Linux 5.14).
pub(crate) fn kill(folders: &[PathBuf]) {
    for folder in folders {
        for (file, value) in [("pids.max", "0"), ("cgroup.kill", "1")] {
            // A group has the files of its own controllers only.
            let file = folder.join(file);
            let _ = fs::OpenOptions::new()
                .write(true)
                .open(file)
                .and_then(|mut file| file.write_all(value.as_bytes()));
        }
    }
}

/// Removes the groups that are empty.
pub(crate) fn remove(folders: &[PathBuf]) {
    folders.iter().for_each(|folder| drop(fs::remove_dir(folder)));
}

/// Reads the current content of a small file of the kernel.
fn read_current(file: &File) -> String {
    let mut text = [0; 512];
    let length = file.read_at(&mut text, 0).unwrap_or(0);
    String::from_utf8_lossy(&text[..length]).into_owned()
}

fn memory_file(version: CgroupVersion) -> &'static str {
    match version {
        CgroupVersion::One => "memory.limit_in_bytes",
        CgroupVersion::Two => "memory.max",
    }
}

fn oom_events_file(version: CgroupVersion) -> &'static str {
    match version {
        CgroupVersion::One => "memory.oom_control",
        CgroupVersion::Two => "memory.events",
    }
}

impl CgroupParent {
    /// Determined once, by creating a group and removing it.
    pub(crate) fn get() -> Option<&'static Self> {
        static PARENT: OnceLock<Option<CgroupParent>> = OnceLock::new();
        PARENT.get_or_init(Self::find).as_ref()
    }

    pub(crate) fn limits_tasks(&self) -> bool {
        self.pids.is_some()
    }

    /// Describes, for users, what groups limit here.
    pub(crate) fn describe(&self) -> String {
        let version = if self.version == CgroupVersion::One { "v1" } else { "v2" };
        let limited = match (&self.memory, &self.pids) {
            (Some(_), Some(_)) => "memory and tasks of the whole tree",
            (Some(_), None) => "memory of the whole tree",
            _ => "tasks of the whole tree",
        };
        format!("{limited} (cgroup {version})")
    }

    fn find() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        [Self::find_version_two(&mounts, &own), Self::find_version_one(&mounts, &own)]
            .into_iter()
            .flatten()
            .find(Self::is_usable)
    }

    fn find_version_two(mounts: &str, own: &str) -> Option<Self> {
        let folder = own_folder(mounts, own, |kind, _| kind == "cgroup2", "0::")?;
        delegate_controllers(&folder).ok()?;
        Some(Self { version: CgroupVersion::Two, memory: Some(folder.clone()), pids: Some(folder) })
    }

    fn find_version_one(mounts: &str, own: &str) -> Option<Self> {
        let find = |controller: &str| {
            let is_mount =
                |kind: &str, options: &str| kind == "cgroup" && options.split(',').any(|o| o == controller);
            let folder = own_folder(mounts, own, is_mount, &format!(":{controller}:"))?;
            is_writable(&folder).then_some(folder)
        };
        let (memory, pids) = (find("memory"), find("pids"));
        (memory.is_some() || pids.is_some()).then_some(Self { version: CgroupVersion::One, memory, pids })
    }

    fn is_usable(&self) -> bool {
        [&self.memory, &self.pids].into_iter().flatten().for_each(|folder| remove_stale_groups(folder));
        let name = format!("{PREFIX}{}-trial", std::process::id());
        let limits = TreeLimits { memory_bytes: Some(1 << 30), processes: Some(64), disk_bytes: None };
        CgroupGuard::create_in(self, &name, limits).is_ok()
    }
}

/// The folder of this process's own group in one hierarchy.
fn own_folder(mounts: &str, own: &str, is_mount: impl Fn(&str, &str) -> bool, line: &str) -> Option<PathBuf> {
    let own = own.lines().find_map(|text| text.split_once(line).map(|(_, path)| path))?;
    mounts.lines().find_map(|mount| {
        let (location, kind) = mount.split_once(" - ")?;
        let mut location = location.split(' ').skip(3);
        let (root, mount_point) = (location.next()?, location.next()?);
        let mut kind = kind.split(' ');
        if !is_mount(kind.next()?, kind.nth(1)?) {
            return None;
        }
        // In a container the mount's root may be below the hierarchy's root, and groups above it are not visible.
        let below = Path::new(own).strip_prefix(root).unwrap_or(Path::new(""));
        Some(Path::new(mount_point).join(below.strip_prefix("/").unwrap_or(below)))
    })
}

/// In version 2 a group's children get only the controllers that the group delegates, which is refused while processes
/// are in the group. If this process is the only one in its group, it moves itself into a child group first.
fn delegate_controllers(folder: &Path) -> io::Result<()> {
    const WANTED: [&str; 2] = ["memory", "pids"];
    let lists_wanted = |file: &str| {
        let text = fs::read_to_string(folder.join(file)).unwrap_or_default();
        WANTED.iter().all(|wanted| text.split_whitespace().any(|word| word == *wanted))
    };
    if lists_wanted("cgroup.subtree_control") {
        return Ok(());
    }
    if !lists_wanted("cgroup.controllers") {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let delegate = || fs::write(folder.join("cgroup.subtree_control"), "+memory +pids");
    if delegate().is_ok() {
        return Ok(());
    }
    let processes = fs::read_to_string(folder.join("cgroup.procs"))?;
    if processes.trim() != std::process::id().to_string() {
        return Err(io::ErrorKind::ResourceBusy.into());
    }
    let leaf = folder.join(format!("{PREFIX}itself"));
    fs::create_dir_all(&leaf)?;
    fs::write(leaf.join("cgroup.procs"), "0")?;
    delegate()
}

fn is_writable(folder: &Path) -> bool {
    let trial = folder.join(format!("{PREFIX}{}-look", std::process::id()));
    fs::create_dir(&trial).and_then(|()| fs::remove_dir(&trial)).is_ok()
}

/// Removes groups that bridges left behind which have ended. Groups with processes in them cannot be removed.
fn remove_stale_groups(folder: &Path) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let creator = |name: &str| name.strip_prefix(PREFIX)?.split('-').next()?.parse::<u32>().ok();
    for entry in entries {
        let is_stale = entry
            .file_name()
            .to_str()
            .and_then(creator)
            .is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists());
        if is_stale {
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
    fn finds_own_group_in_each_hierarchy() {
        let one = |controller: &str| {
            own_folder(
                MOUNTS,
                OWN,
                |kind, options| kind == "cgroup" && options.contains(controller),
                &format!(":{controller}:"),
            )
        };
        assert_eq!(one("memory").unwrap(), Path::new("/sys/fs/cgroup/memory/x/y"));
        assert_eq!(one("pids").unwrap(), Path::new("/sys/fs/cgroup/pids/b"));
        let two = own_folder(MOUNTS, OWN, |kind, _| kind == "cgroup2", "0::").unwrap();
        assert_eq!(two, Path::new("/sys/fs/cgroup/unified/"));
    }

    /// Plain files stand in for a version 2 group: this machine may only have version 1.
    // req: SB-02
    #[test]
    fn writes_limits_in_version_two_format() {
        let parent = std::env::temp_dir().join(format!("bascule-cgroup-test-{}", std::process::id()));
        let group = CgroupGuard {
            folders: vec![parent.clone()],
            version: CgroupVersion::Two,
            oom_events: None,
            tasks: None,
        };
        fs::create_dir_all(&parent).unwrap();
        for file in ["memory.max", "memory.swap.max", "pids.max"] {
            fs::write(parent.join(file), "max").unwrap();
        }
        group
            .set_limits(TreeLimits { memory_bytes: Some(5 << 20), processes: Some(3), disk_bytes: None })
            .unwrap();
        let read = |file| fs::read_to_string(parent.join(file)).unwrap();
        assert_eq!(
            (read("memory.max"), read("memory.swap.max"), read("pids.max")),
            ("5242880".into(), "0".into(), "48".into())
        );
        fs::remove_dir_all(parent).unwrap();
    }

    /// As above. A group that counts memory only has neither file, and gets none.
    // req: SB-08
    #[test]
    fn kills_group_in_version_two_format() {
        let folders = ["both", "neither"].map(|_| tempfile::tempdir().unwrap());
        for file in ["pids.max", "cgroup.kill"] {
            fs::write(folders[0].path().join(file), "").unwrap();
        }
        kill(&folders.each_ref().map(|folder| folder.path().to_path_buf()));
        let read = |file| fs::read_to_string(folders[0].path().join(file)).unwrap();
        assert_eq!((read("pids.max"), read("cgroup.kill")), ("0".into(), "1".into()));
        assert_eq!(fs::read_dir(folders[1].path()).unwrap().count(), 0);
    }

    // req: SB-02
    #[test]
    fn kernel_kills_process_over_memory_limit_of_group() {
        let limits = TreeLimits { memory_bytes: Some(64 << 20), processes: Some(4), disk_bytes: None };
        match CgroupGuard::create(limits) {
            Some(group) => check_memory_limit(group),
            None => check_missing_groups_are_reported(),
        }
    }

    /// Without control groups the watchdog limits the tree, and users learn of the missing protection.
    fn check_missing_groups_are_reported() {
        let confinement = crate::Confinement::for_policy(&crate::Policy::off());
        let contains = |list: &[String], part: &str| list.iter().any(|text| text.contains(part));
        assert!(contains(&confinement.missing, "no control group can be created here"), "{confinement:?}");
        assert!(contains(
            &confinement.in_force,
            "memory and number of processes of the whole tree (watchdog)"
        ));
    }

    fn check_memory_limit(group: CgroupGuard) {
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
