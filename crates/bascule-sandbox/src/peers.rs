//! Tells whether who connects to us on this machine is one of our own confined servers.
//!
//! No rule that Landlock or seccomp has can keep a server with a network from one port of the loopback interface. But
//! the kernel says which socket is at the other end, and `/proc` who holds it. A confined process can fork, end and pass
//! its sockets about while it is looked for, so nobody is free for not having been found in a jail: one who holds the
//! socket must be seen to be in none, at one moment. Whatever a control group of version two made bears its stamp.
//!
//! Looking for a holder is dear, so one look serves everybody who asked before it began, goes no further than it must,
//! and begins with those who came before.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::sync::Mutex;
use std::time::Instant;

use crate::sockets::{End, end_between};
use crate::tree::{below, is_below, numbers};
use crate::{cgroup, launch};

/// Who is at the other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// A process in none of our jails, or another machine.
    Free,
    /// A process in one of our jails.
    Confined,
    /// Nobody that can be seen: it has hung up, or it is in a container of its own, or it hides. A socket that is on its
    /// way from one process to another, for one, is held by neither of them.
    Unseen,
}

/// Looks who it is that connects from `peer` to us at `local`. What was seen since `asked` need not be looked at again.
pub fn peer(peer: SocketAddr, local: SocketAddr, asked: Instant) -> Peer {
    static LAST: Mutex<Option<Look>> = Mutex::new(None);
    if !launch::is_used() {
        return Peer::Free;
    }
    let is_near = peer.ip().is_loopback() || peer.ip() == local.ip();
    let Some(End { inode, user, group }) = end_between(peer, local) else {
        return if is_near { Peer::Unseen } else { Peer::Free };
    };
    if group.is_some_and(cgroup::is_stamp_of_ours) {
        return Peer::Confined;
    }
    // Jails have our own user, which only root can exchange for another, and root sees everybody.
    let ours = fs::metadata("/proc/self").map_or(0, |own| own.uid());
    if ours != 0 && user != ours {
        return Peer::Free;
    }
    if inode == 0 {
        return Peer::Unseen;
    }
    let mut last = LAST.lock().expect("nothing panics while holding it");
    let fresh = last.take().map_or_else(|| Look::begin(Vec::new()), |last| last.since(asked));
    last.insert(fresh).holder_of(inode)
}

/// Whether a process is below us: all that we start are servers. Also so if it ends while it is asked for.
pub fn is_ours(pid: u32) -> bool {
    launch::is_used() && !is_free(pid)
}

/// Whether a process is surely not below us.
fn is_free(pid: u32) -> bool {
    // One above it may end just when it is asked, as anybody may.
    const TRIES: usize = 3;
    let own = std::process::id();
    pid == own || (0..TRIES).find_map(|_| is_below(pid, own)) == Some(false)
}

/// So many descriptors of our servers are looked at; who has more open can hide.
const MOST_DESCRIPTORS: usize = 100_000;
/// So many of those who were found are looked at first, next time.
const MOST_KNOWN: usize = 8;

/// Who holds which socket, as far as one has looked.
struct Look {
    began: Instant,
    /// Our own servers, and what they hold; none if that is too much to look at.
    servers: HashSet<u32>,
    servers_sockets: Option<HashSet<u32>>,
    /// Who is still to be looked at, the next one last.
    left: Vec<u32>,
    has_listed_all: bool,
    holders: HashMap<u32, Vec<Holder>>,
    /// Who was found to be free, the latest one last.
    known: Vec<u32>,
}

/// A process's descriptor that is a socket.
#[derive(Clone, Copy)]
struct Holder {
    pid: u32,
    descriptor: u32,
}

impl Look {
    fn begin(known: Vec<u32>) -> Self {
        let began = Instant::now();
        let servers: HashSet<u32> = below(std::process::id()).into_iter().collect();
        let held: Vec<Option<u32>> = servers
            .iter()
            .flat_map(|pid| descriptors_of(*pid))
            .map(|(_, socket)| socket)
            .take(MOST_DESCRIPTORS)
            .collect();
        let servers_sockets = (held.len() < MOST_DESCRIPTORS).then(|| held.into_iter().flatten().collect());
        let (left, holders) = (known.clone(), HashMap::new());
        Self { began, servers, servers_sockets, left, has_listed_all: false, holders, known }
    }

    /// This one, or another if it began too early.
    fn since(self, asked: Instant) -> Self {
        if self.began >= asked { self } else { Self::begin(self.known) }
    }

    fn holder_of(&mut self, inode: u32) -> Peer {
        match self.servers_sockets.as_ref().map(|sockets| sockets.contains(&inode)) {
            Some(true) => Peer::Confined,
            Some(false) if self.has_free_holder(inode) => Peer::Free,
            _ => Peer::Unseen,
        }
    }

    fn has_free_holder(&mut self, inode: u32) -> bool {
        let mut asked = 0;
        loop {
            let holders = self.holders.get(&inode).map_or(&[][..], Vec::as_slice);
            if let Some(free) = holders[asked..].iter().find(|holder| holder.is_free(inode)) {
                let pid = free.pid;
                self.remember(pid);
                return true;
            }
            asked = holders.len();
            let Some(pid) = self.next() else { return false };
            for (descriptor, socket) in descriptors_of(pid) {
                let holder = Holder { pid, descriptor };
                socket.into_iter().for_each(|inode| self.holders.entry(inode).or_default().push(holder));
            }
        }
    }

    /// Who is to be looked at next. Who connects was often started of late.
    fn next(&mut self) -> Option<u32> {
        if self.left.is_empty() && !self.has_listed_all {
            self.has_listed_all = true;
            self.left =
                numbers().filter(|pid| !self.servers.contains(pid) && !self.known.contains(pid)).collect();
            self.left.sort_unstable();
        }
        self.left.pop()
    }

    fn remember(&mut self, pid: u32) {
        self.known.retain(|known| *known != pid);
        self.known.push(pid);
        if self.known.len() > MOST_KNOWN {
            self.known.remove(0);
        }
    }
}

impl Holder {
    /// Whether it is in no jail while it holds the socket. The number may be another process's by now: then that one
    /// would have to hold it before and after.
    fn is_free(&self, inode: u32) -> bool {
        self.holds(inode) && is_free(self.pid) && self.holds(inode)
    }

    fn holds(&self, inode: u32) -> bool {
        socket_at(&format!("/proc/{}/fd/{}", self.pid, self.descriptor)) == Some(inode)
    }
}

/// The descriptors of a process, and which of them are which sockets.
fn descriptors_of(pid: u32) -> impl Iterator<Item = (u32, Option<u32>)> {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    descriptors.filter_map(|entry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        Some((number, socket_at(entry.path().to_str()?)))
    })
}

fn socket_at(path: &str) -> Option<u32> {
    let target = fs::read_link(path).ok()?;
    target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// A connection of ours, and who is at the other end by a look that began now.
    fn check(client: impl FnOnce(SocketAddr) -> Option<Child>, look: &mut Look, expected: Peer) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let child = client(listener.local_addr().unwrap());
        let (server, from) = listener.accept().unwrap();
        let end = end_between(from, server.local_addr().unwrap()).unwrap();
        let mut told = Peer::Confined;
        // What another test is about to start holds all that we hold, for a moment: who is free may have to be looked
        // for again.
        for _ in 0..if expected == Peer::Free { 1000 } else { 1 } {
            *look = Look::begin(std::mem::take(&mut look.known));
            told = look.holder_of(end.inode);
            if told == expected {
                break;
            }
            std::thread::yield_now();
        }
        assert_eq!(told, expected);
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
    fn who_we_started_is_not_free_and_who_we_are_is() {
        let mut look = Look::begin(Vec::new());
        check(|address| python("s.recv(1)", address), &mut look, Peer::Confined);
        check(|address| python("os.fork(); s.recv(1)", address), &mut look, Peer::Confined);
        let mut kept = Vec::new();
        let ourselves = |address| {
            kept.push(TcpStream::connect(address).unwrap());
            None
        };
        check(ourselves, &mut look, Peer::Free);
        assert_eq!(look.known, [std::process::id()]);
        let all = numbers().count();
        let ourselves = |address| {
            kept.push(TcpStream::connect(address).unwrap());
            None
        };
        check(ourselves, &mut look, Peer::Free);
        assert!(all > 1 && !look.has_listed_all, "who was known is looked at first");
    }

    // req: GW-07
    #[test]
    fn who_is_free_does_not_vouch_for_a_server_that_holds_the_same_socket() {
        let mut kept = Vec::new();
        let both = |address| {
            let stream = TcpStream::connect(address).unwrap();
            let theirs = std::os::fd::OwnedFd::from(stream.try_clone().unwrap());
            kept.push(stream);
            Some(Command::new("cat").stdin(theirs).stdout(Stdio::null()).spawn().unwrap())
        };
        check(both, &mut Look::begin(Vec::new()), Peer::Confined);
    }

    // req: GW-07
    #[test]
    fn one_look_is_enough_for_all_who_asked_before_it() {
        let asked = Instant::now();
        let look = Look::begin(Vec::new());
        let began = look.began;
        let look = look.since(asked).since(asked);
        assert_eq!(look.began, began);
        assert!(look.since(Instant::now()).began > began);
    }

    // req: GW-07
    #[test]
    fn a_socket_bears_the_stamp_of_the_group_it_was_made_in() {
        let folder = format!("/sys/fs/cgroup/unified/bascule-test-{}", std::process::id());
        let folder = [folder.replace("/unified", ""), folder].into_iter().find(|folder| {
            fs::create_dir(folder).is_ok() && fs::metadata(format!("{folder}/cgroup.procs")).is_ok()
        });
        let Some(folder) = folder else {
            eprintln!("skipped: no control group of version two can be made here");
            return;
        };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let enter = format!("open('{folder}/cgroup.procs', 'w').write('0')");
        let code = format!(
            "import socket\n{enter}\ns = socket.create_connection(('127.0.0.1', {}))\ns.recv(1)",
            listener.local_addr().unwrap().port()
        );
        let mut child = Command::new("python3").args(["-c", &code]).spawn().unwrap();
        let (server, from) = listener.accept().unwrap();
        let end = end_between(from, server.local_addr().unwrap()).unwrap();
        let stamp = fs::metadata(&folder).unwrap().ino();
        drop(server);
        child.wait().unwrap();
        while fs::remove_dir(&folder).is_err() {
            std::thread::yield_now();
        }
        assert_eq!(end.group, Some(stamp));
    }
}
