//! Tells whether who connects to us on this machine is one of our own confined servers.
//!
//! No rule that Landlock or seccomp has can keep a server with a network from one port of the loopback interface. But
//! the kernel says which socket is at the other end, and `/proc` who holds it.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt;

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
    let socket = format!("socket:[{inode}]");
    let mut all: Vec<u32> = numbers().collect();
    // Who connects was often started of late.
    all.sort_unstable_by(|one, other| other.cmp(one));
    match all.into_iter().find(|pid| holds(*pid, &socket)) {
        Some(pid) if is_below(pid, &roots) => Peer::Confined,
        Some(_) => Peer::Free,
        None => Peer::Unseen,
    }
}

/// Asked of the process itself: a list of all that is below would lack what was started meanwhile.
fn is_below(pid: u32, roots: &[u32]) -> bool {
    let mut line = std::iter::successors(Some(pid), |pid| parent_of(*pid));
    line.any(|pid| roots.contains(&pid))
}

/// A socket as the kernel's tables have it.
struct End {
    inode: String,
    user: u32,
}

/// Whether a process is below one of our jails.
pub fn is_confined_process(pid: u32) -> bool {
    is_below(pid, &watchdog::roots())
}

/// The socket that is bound to `from` and connected to `to`.
fn end_between(from: SocketAddr, to: SocketAddr) -> Option<End> {
    let (from, to) = (spelled(from), spelled(to));
    ["/proc/net/tcp", "/proc/net/tcp6"].into_iter().find_map(|table| {
        let table = fs::read_to_string(table).ok()?;
        table.lines().find_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let is_it = from.iter().any(|from| fields.get(1) == Some(&from.as_str()))
                && to.iter().any(|to| fields.get(2) == Some(&to.as_str()));
            is_it.then_some(())?;
            Some(End { inode: (*fields.get(9)?).to_owned(), user: fields.get(7)?.parse().ok()? })
        })
    })
}

/// An address as the kernel's tables have it: the bytes of each group of four turned round, the port as it is. One of
/// version four may stand among those of version six too.
fn spelled(address: SocketAddr) -> Vec<String> {
    let port = address.port();
    let group = |bytes: &[u8]| bytes.iter().rev().map(|byte| format!("{byte:02X}")).collect::<String>();
    let six = |bytes: [u8; 16]| format!("{}:{port:04X}", bytes.chunks(4).map(group).collect::<String>());
    match address.ip() {
        IpAddr::V4(ip) => {
            vec![format!("{}:{port:04X}", group(&ip.octets())), six(ip.to_ipv6_mapped().octets())]
        }
        IpAddr::V6(ip) => match ip.to_ipv4_mapped() {
            Some(four) => vec![six(ip.octets()), format!("{}:{port:04X}", group(&four.octets()))],
            None => vec![six(ip.octets())],
        },
    }
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
