//! Tells whether who connects to us on this machine is one of our own confined servers.
//!
//! No rule that Landlock or seccomp has can keep a server with a network from one port of the loopback interface. But
//! the kernel says which socket is at the other end, and `/proc` who holds it.

use std::collections::VecDeque;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::sync::Mutex;

use crate::sockets::{End, end_between};
use crate::tree::{numbers, parent_of};
use crate::watchdog;

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

/// Looks who it is that connects from `peer` to us at `local`.
pub fn peer(peer: SocketAddr, local: SocketAddr) -> Peer {
    let roots = watchdog::roots();
    if roots.is_empty() {
        return Peer::Free;
    }
    let is_near = peer.ip().is_loopback() || peer.ip() == local.ip();
    let Some(End { inode, user }) = end_between(peer, local) else {
        return if is_near { Peer::Unseen } else { Peer::Free };
    };
    // Jails have our own user, which only root can exchange for another, and root sees everybody.
    let ours = fs::metadata("/proc/self").map_or(0, |own| own.uid());
    if ours != 0 && user != ours {
        return Peer::Free;
    }
    match holder(inode) {
        Some(pid) if is_below(pid, &roots) => Peer::Confined,
        Some(_) => Peer::Free,
        None => Peer::Unseen,
    }
}

/// How many of those who connected last are asked first.
const REMEMBERED: usize = 16;

/// Who holds a socket. To ask everybody takes a while on a machine of many processes: first come those who were found
/// before, then those who were started of late.
fn holder(inode: u32) -> Option<u32> {
    static LAST: Mutex<VecDeque<u32>> = Mutex::new(VecDeque::new());
    let last = || LAST.lock().expect("nothing panics while holding it");
    let socket = format!("socket:[{inode}]");
    let known: Vec<u32> = last().iter().copied().collect();
    if let Some(pid) = known.iter().find(|pid| holds(**pid, &socket)) {
        return Some(*pid);
    }
    let mut others: Vec<u32> = numbers().filter(|pid| !known.contains(pid)).collect();
    others.sort_unstable_by(|one, other| other.cmp(one));
    let found = others.into_iter().find(|pid| holds(*pid, &socket))?;
    let mut last = last();
    last.push_front(found);
    last.truncate(REMEMBERED);
    Some(found)
}

/// Asked of the process itself: a list of all that is below would lack what was started meanwhile.
fn is_below(pid: u32, roots: &[u32]) -> bool {
    let mut line = std::iter::successors(Some(pid), |pid| parent_of(*pid));
    line.any(|pid| roots.contains(&pid))
}

/// Whether a process is below one of our jails.
pub fn is_confined_process(pid: u32) -> bool {
    is_below(pid, &watchdog::roots())
}

fn holds(pid: u32, socket: &str) -> bool {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    descriptors
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .any(|target| target.as_os_str() == socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    // req: GW-07
    #[test]
    fn the_socket_at_the_other_end_is_found_and_its_holder() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (server, from) = listener.accept().unwrap();
            let local = server.local_addr().unwrap();
            let end = end_between(from, local).expect("it is in the table");
            assert!(holds(std::process::id(), &format!("socket:[{}]", end.inode)));
            assert_eq!(peer(from, local), Peer::Free, "we are in no jail");
            drop(client);
        }
    }
}
