//! Tells whether who connects to us on this machine is one of our own confined servers.
//!
//! No rule that Landlock or seccomp has can keep a server with a network from one port of the loopback interface. But
//! the kernel says which socket is at the other end, and `/proc` who holds it.

use std::fs;
use std::net::{IpAddr, SocketAddr};

use crate::tree::below;
use crate::watchdog;

/// Whether the socket at the other end of this connection belongs to a process below one of our jails.
pub fn is_confined_peer(peer: SocketAddr, local: SocketAddr) -> bool {
    let roots = watchdog::roots();
    if roots.is_empty() {
        return false;
    }
    let Some(inode) = inode_between(peer, local) else { return false };
    let socket = format!("socket:[{inode}]");
    roots.into_iter().flat_map(below).any(|pid| holds(pid, &socket))
}

/// Whether a process is below one of our jails.
pub fn is_confined_process(pid: u32) -> bool {
    watchdog::roots().into_iter().any(|root| below(root).contains(&pid))
}

/// The socket that is bound to `from` and connected to `to`.
fn inode_between(from: SocketAddr, to: SocketAddr) -> Option<String> {
    let (from, to) = (spelled(from), spelled(to));
    ["/proc/net/tcp", "/proc/net/tcp6"].into_iter().find_map(|table| {
        let table = fs::read_to_string(table).ok()?;
        table.lines().find_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let is_it = from.iter().any(|from| fields.get(1) == Some(&from.as_str()))
                && to.iter().any(|to| fields.get(2) == Some(&to.as_str()));
            is_it.then(|| fields.get(9).map(|inode| (*inode).to_owned()))?
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
            let (server, peer) = listener.accept().unwrap();
            let inode = inode_between(peer, server.local_addr().unwrap()).expect("it is in the table");
            assert!(holds(std::process::id(), &format!("socket:[{inode}]")));
            assert!(!is_confined_peer(peer, server.local_addr().unwrap()), "we are in no jail");
            drop(client);
        }
    }
}
