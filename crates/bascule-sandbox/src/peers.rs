//! Detects whether a local TCP connection comes from one of the bridge's own confined servers.
//!
//! Neither Landlock nor seccomp can keep a server with network access from one port of the loopback interface. But the
//! kernel identifies the socket at the other end, and `/proc` the processes that hold it. A confined process can fork, exit
//! and pass its sockets on during the search, so a peer that is not found in a jail is not thereby unconfined: a process
//! that holds the socket must be seen outside all jails at one moment. A socket created in a version 2 control group
//! carries the group's id.
//!
//! The search is expensive. One scan therefore serves all callers that asked before it began, stops as early as possible,
//! and starts with processes found by earlier scans.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::sync::Mutex;
use std::time::Instant;

use crate::process_tree::{all_pids, descendants_of, is_descendant};
use crate::sockets::{SocketRecord, find_socket};
use crate::{cgroup, launch};

/// The peer of a connection, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerConfinement {
    /// A process outside all jails, or another machine.
    Unconfined,
    /// A process in a jail of this bridge.
    Confined,
    /// No process was found: the peer has closed the connection, runs in a container, or hides. A socket that is being
    /// passed from one process to another, for example, is held by neither.
    Unknown,
}

/// Identifies the process that connects from `peer` to `local`. A scan that began after `asked` may be reused.
pub fn check_peer(peer: SocketAddr, local: SocketAddr, asked: Instant) -> PeerConfinement {
    static LAST: Mutex<Option<HolderScan>> = Mutex::new(None);
    if !launch::has_jails() {
        return PeerConfinement::Unconfined;
    }
    let is_local = peer.ip().is_loopback() || peer.ip() == local.ip();
    let Some(SocketRecord { inode, user, cgroup }) = find_socket(peer, local) else {
        return if is_local { PeerConfinement::Unknown } else { PeerConfinement::Unconfined };
    };
    if cgroup.is_some_and(cgroup::is_own_id) {
        return PeerConfinement::Confined;
    }
    // Jails run as the bridge's user. Only root can change that, and root can inspect all processes.
    let own_user = fs::metadata("/proc/self").map_or(0, |own| own.uid());
    if own_user != 0 && user != own_user {
        return PeerConfinement::Unconfined;
    }
    if inode == 0 {
        return PeerConfinement::Unknown;
    }
    let mut last = LAST.lock().expect("no code panics while it holds the lock");
    let scan = last.take().map_or_else(|| HolderScan::begin(Vec::new()), |last| last.renew_if_before(asked));
    last.insert(scan).check(inode)
}

/// Returns true unless the process is certainly no descendant of this one. All descendants are servers or workers.
pub fn may_be_descendant(pid: u32) -> bool {
    launch::has_jails() && !is_unconfined(pid)
}

/// Returns true if the process is certainly no descendant of this one.
fn is_unconfined(pid: u32) -> bool {
    // An ancestor may end during an attempt, which makes its result unknown.
    const ATTEMPTS: usize = 3;
    let own = std::process::id();
    pid == own || (0..ATTEMPTS).find_map(|_| is_descendant(pid, own)) == Some(false)
}

/// Servers with more open descriptors make every peer unknown.
const MAX_DESCRIPTORS: usize = 100_000;
/// Number of processes that the next scan checks first.
const MAX_KNOWN: usize = 8;

/// An incremental scan for the processes that hold sockets.
struct HolderScan {
    began: Instant,
    servers: HashSet<u32>,
    /// Inodes of the servers' sockets; `None` if the servers have too many descriptors.
    server_sockets: Option<HashSet<u32>>,
    /// Processes still to be scanned; the next is last.
    remaining: Vec<u32>,
    has_listed_all: bool,
    /// Scanned processes by the inodes of their sockets.
    holders: HashMap<u32, Vec<SocketHolder>>,
    /// Unconfined processes found before; the latest is last.
    known: Vec<u32>,
}

/// A descriptor of a process that refers to a socket.
#[derive(Clone, Copy)]
struct SocketHolder {
    pid: u32,
    descriptor: u32,
}

impl HolderScan {
    fn begin(known: Vec<u32>) -> Self {
        let began = Instant::now();
        let servers: HashSet<u32> = descendants_of(std::process::id()).into_iter().collect();
        let sockets: Vec<Option<u32>> = servers
            .iter()
            .flat_map(|pid| descriptors_of(*pid))
            .map(|(_, socket)| socket)
            .take(MAX_DESCRIPTORS)
            .collect();
        let server_sockets =
            (sockets.len() < MAX_DESCRIPTORS).then(|| sockets.into_iter().flatten().collect());
        let (remaining, holders) = (known.clone(), HashMap::new());
        Self { began, servers, server_sockets, remaining, has_listed_all: false, holders, known }
    }

    fn renew_if_before(self, asked: Instant) -> Self {
        if self.began >= asked { self } else { Self::begin(self.known) }
    }

    fn check(&mut self, inode: u32) -> PeerConfinement {
        match self.server_sockets.as_ref().map(|sockets| sockets.contains(&inode)) {
            Some(true) => PeerConfinement::Confined,
            Some(false) if self.has_unconfined_holder(inode) => PeerConfinement::Unconfined,
            _ => PeerConfinement::Unknown,
        }
    }

    fn has_unconfined_holder(&mut self, inode: u32) -> bool {
        let mut checked = 0;
        loop {
            let holders = self.holders.get(&inode).map_or(&[][..], Vec::as_slice);
            if let Some(holder) = holders[checked..].iter().find(|holder| holder.is_unconfined(inode)) {
                let pid = holder.pid;
                self.remember(pid);
                return true;
            }
            checked = holders.len();
            let Some(pid) = self.next_process() else { return false };
            for (descriptor, socket) in descriptors_of(pid) {
                let holder = SocketHolder { pid, descriptor };
                socket.into_iter().for_each(|inode| self.holders.entry(inode).or_default().push(holder));
            }
        }
    }

    /// Newest pids come first: clients have often just been started.
    fn next_process(&mut self) -> Option<u32> {
        if self.remaining.is_empty() && !self.has_listed_all {
            self.has_listed_all = true;
            self.remaining =
                all_pids().filter(|pid| !self.servers.contains(pid) && !self.known.contains(pid)).collect();
            self.remaining.sort_unstable();
        }
        self.remaining.pop()
    }

    fn remember(&mut self, pid: u32) {
        self.known.retain(|known| *known != pid);
        self.known.push(pid);
        if self.known.len() > MAX_KNOWN {
            self.known.remove(0);
        }
    }
}

impl SocketHolder {
    /// Returns true if the process is outside all jails while it holds the socket. The pid may have been reused; then the
    /// new process would have to hold the socket before and after the check.
    fn is_unconfined(&self, inode: u32) -> bool {
        self.holds(inode) && is_unconfined(self.pid) && self.holds(inode)
    }

    fn holds(&self, inode: u32) -> bool {
        socket_inode(&format!("/proc/{}/fd/{}", self.pid, self.descriptor)) == Some(inode)
    }
}

/// The descriptors of a process, with the inode of those that are sockets.
fn descriptors_of(pid: u32) -> impl Iterator<Item = (u32, Option<u32>)> {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    descriptors.filter_map(|entry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        Some((number, socket_inode(entry.path().to_str()?)))
    })
}

fn socket_inode(path: &str) -> Option<u32> {
    let target = fs::read_link(path).ok()?;
    target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// Has `client` connect, and compares what a new scan finds.
    fn check(
        client: impl FnOnce(SocketAddr) -> Option<Child>,
        scan: &mut HolderScan,
        expected: PeerConfinement,
    ) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let child = client(listener.local_addr().unwrap());
        let (server, from) = listener.accept().unwrap();
        let record = find_socket(from, server.local_addr().unwrap()).unwrap();
        let mut found = PeerConfinement::Confined;
        // A process that another test is starting briefly holds all our descriptors, so an unconfined peer may take several
        // scans.
        for _ in 0..if expected == PeerConfinement::Unconfined { 1000 } else { 1 } {
            *scan = HolderScan::begin(std::mem::take(&mut scan.known));
            found = scan.check(record.inode);
            if found == expected {
                break;
            }
            std::thread::yield_now();
        }
        assert_eq!(found, expected);
        drop(server);
        child.map(|mut child| child.wait());
    }

    fn python(code: &str, address: SocketAddr) -> Option<Child> {
        let code = format!(
            "import os, socket\ns = socket.create_connection(('127.0.0.1', {}))\n{code}",
            address.port()
        );
        Some(Command::new("python3").args(["-c", &code]).stdout(Stdio::null()).spawn().unwrap())
    }

    // req: GW-07
    #[test]
    fn own_child_is_confined_and_own_process_is_not() {
        let mut scan = HolderScan::begin(Vec::new());
        check(|address| python("s.recv(1)", address), &mut scan, PeerConfinement::Confined);
        check(|address| python("os.fork(); s.recv(1)", address), &mut scan, PeerConfinement::Confined);
        let mut kept = Vec::new();
        let connect = |address| {
            kept.push(TcpStream::connect(address).unwrap());
            None
        };
        check(connect, &mut scan, PeerConfinement::Unconfined);
        assert_eq!(scan.known, [std::process::id()]);
        let all = all_pids().count();
        let connect = |address| {
            kept.push(TcpStream::connect(address).unwrap());
            None
        };
        check(connect, &mut scan, PeerConfinement::Unconfined);
        assert!(all > 1 && !scan.has_listed_all, "a known process is scanned first");
    }

    // req: GW-07
    #[test]
    fn socket_shared_with_server_is_confined() {
        let mut kept = Vec::new();
        let both = |address| {
            let stream = TcpStream::connect(address).unwrap();
            let theirs = std::os::fd::OwnedFd::from(stream.try_clone().unwrap());
            kept.push(stream);
            Some(Command::new("cat").stdin(theirs).stdout(Stdio::null()).spawn().unwrap())
        };
        check(both, &mut HolderScan::begin(Vec::new()), PeerConfinement::Confined);
    }

    // req: GW-07
    #[test]
    fn scan_is_reused_for_callers_that_asked_before_it() {
        let asked = Instant::now();
        let scan = HolderScan::begin(Vec::new());
        let began = scan.began;
        let scan = scan.renew_if_before(asked).renew_if_before(asked);
        assert_eq!(scan.began, began);
        assert!(scan.renew_if_before(Instant::now()).began > began);
    }

    // req: GW-07
    #[test]
    fn socket_carries_id_of_its_control_group() {
        let own = own_version_two_group();
        let new = format!("{own}/bascule-test-{}", std::process::id());
        // Only root, or a user with a delegated group, can create one; others test with the group they are in.
        let is_new = fs::create_dir(&new).is_ok();
        let folder = if is_new { new } else { own };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let enter =
            if is_new { format!("open('{folder}/cgroup.procs', 'w').write('0')") } else { String::new() };
        let code = format!(
            "import socket\n{enter}\ns = socket.create_connection(('127.0.0.1', {}))\ns.recv(1)",
            listener.local_addr().unwrap().port()
        );
        let mut child = Command::new("python3").args(["-c", &code]).spawn().unwrap();
        let (server, from) = listener.accept().unwrap();
        let record = find_socket(from, server.local_addr().unwrap()).unwrap();
        let id = fs::metadata(&folder).unwrap().ino();
        drop(server);
        child.wait().unwrap();
        while is_new && fs::remove_dir(&folder).is_err() {
            std::thread::yield_now();
        }
        assert_eq!(record.cgroup, Some(id));
    }

    fn own_version_two_group() -> String {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let mount = mounts.lines().find_map(|line| match *line.split(' ').collect::<Vec<_>>() {
            [_, folder, "cgroup2", ..] => Some(folder),
            _ => None,
        });
        let mount = mount
            .expect("no cgroup2 file system is mounted: run `mount -t cgroup2 none /sys/fs/cgroup/unified`");
        let own = fs::read_to_string("/proc/self/cgroup").unwrap();
        let path = own.lines().find_map(|line| line.strip_prefix("0::")).expect("the process is in a group");
        format!("{mount}{path}").trim_end_matches('/').to_owned()
    }
}
