//! Finds the local socket at the other end of a TCP connection: its inode and user.
//!
//! Queries the kernel for the one socket (`sock_diag`). Where that is not available, reads `/proc/net/tcp`, for which the
//! kernel walks its whole hash table: milliseconds, however few sockets exist.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::syscall_result::check;

/// The kernel's record of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SocketRecord {
    /// 0 after the socket was closed.
    pub(crate) inode: u32,
    pub(crate) user: u32,
}

/// Finds the socket that is bound to `from` and connected to `to`.
pub(crate) fn find_socket(from: SocketAddr, to: SocketAddr) -> Option<SocketRecord> {
    static DIAG_WORKS: AtomicBool = AtomicBool::new(false);
    match query_sock_diag(from, to) {
        Ok(Some(record)) => {
            DIAG_WORKS.store(true, Ordering::Relaxed);
            Some(record)
        }
        // A kernel that reports no connections at all gives the same answer as one that has no such connection.
        Ok(None) if DIAG_WORKS.load(Ordering::Relaxed) => None,
        _ => search_proc_tables(from, to),
    }
}

/// Layout of `sock_diag` messages: a netlink header, then `inet_diag_req_v2` or `inet_diag_msg`.
mod diag {
    pub(super) const HEADER: usize = 16;
    pub(super) const REQUEST: usize = HEADER + 56;
    pub(super) const RESPONSE: usize = HEADER + 72;
    /// `SOCK_DIAG_BY_FAMILY`, the type of both messages.
    pub(super) const BY_FAMILY: u16 = 20;
    pub(super) const ANY_STATE: u32 = u32::MAX;
    pub(super) const LISTEN: u8 = 10;
    pub(super) const STATE_OFFSET: usize = HEADER + 1;
    /// In the response. In the request the ports are four bytes further.
    pub(super) const PORTS_OFFSET: usize = HEADER + 4;
    pub(super) const USER_OFFSET: usize = HEADER + 64;
    pub(super) const INODE_OFFSET: usize = HEADER + 68;
}

/// Fails where `sock_diag` is not available.
fn query_sock_diag(from: SocketAddr, to: SocketAddr) -> io::Result<Option<SocketRecord>> {
    let request = encode_request(from, to);
    // SAFETY: takes numbers only; nothing else owns the returned descriptor.
    let socket = unsafe {
        let socket =
            libc::socket(libc::AF_NETLINK, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, libc::NETLINK_SOCK_DIAG);
        OwnedFd::from_raw_fd(check(socket)?)
    };
    let mut response = [0_u8; 512];
    // SAFETY: both buffers are valid for the given length. The kernel responds before `send` returns.
    let length = unsafe {
        check(libc::send(socket.as_raw_fd(), request.as_ptr().cast(), request.len(), 0))?;
        check(libc::recv(
            socket.as_raw_fd(),
            response.as_mut_ptr().cast(),
            response.len(),
            libc::MSG_DONTWAIT,
        ))?
    };
    decode_response(&response[..length as usize], &request)
}

fn encode_request(from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    let (source, target) = (from.ip().to_canonical(), to.ip().to_canonical());
    let family = if source.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let mut out = Vec::with_capacity(diag::REQUEST);
    out.extend((diag::REQUEST as u32).to_ne_bytes());
    out.extend(diag::BY_FAMILY.to_ne_bytes());
    out.extend((libc::NLM_F_REQUEST as u16).to_ne_bytes());
    // Sequence number and port id.
    out.extend([0; 8]);
    out.extend([family as u8, libc::IPPROTO_TCP as u8, 0, 0]);
    out.extend(diag::ANY_STATE.to_ne_bytes());
    out.extend(from.port().to_be_bytes());
    out.extend(to.port().to_be_bytes());
    for address in [source, target] {
        match address {
            IpAddr::V4(four) => out.extend(four.octets().into_iter().chain([0; 12])),
            IpAddr::V6(six) => out.extend(six.octets()),
        }
    }
    // Any interface, any cookie.
    out.extend([0; 4]);
    out.extend([0xFF; 8]);
    out
}

fn decode_response(response: &[u8], request: &[u8]) -> io::Result<Option<SocketRecord>> {
    let number =
        |at: usize| response.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_ne_bytes);
    let kind = response.get(4..6).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
    match kind {
        Some(diag::BY_FAMILY) if response.len() >= diag::RESPONSE => {
            // Without such a connection the kernel may return a listening socket instead.
            let ports = |message: &[u8], at: usize| message.get(at..at + 4).map(<[u8]>::to_vec);
            let is_connection = response[diag::STATE_OFFSET] != diag::LISTEN
                && ports(response, diag::PORTS_OFFSET) == ports(request, diag::PORTS_OFFSET + 4);
            let numbers = number(diag::INODE_OFFSET).zip(number(diag::USER_OFFSET));
            Ok(numbers.filter(|_| is_connection).map(|(inode, user)| SocketRecord { inode, user }))
        }
        // The error number follows the header.
        Some(kind) if i32::from(kind) == libc::NLMSG_ERROR => {
            match number(diag::HEADER).map(|number| -(number as i32)) {
                Some(libc::ENOENT) => Ok(None),
                error => Err(io::Error::from_raw_os_error(error.unwrap_or(libc::EIO))),
            }
        }
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn search_proc_tables(from: SocketAddr, to: SocketAddr) -> Option<SocketRecord> {
    let (from, to) = (table_spellings(from), table_spellings(to));
    ["/proc/net/tcp", "/proc/net/tcp6"].into_iter().find_map(|table| {
        let table = std::fs::read_to_string(table).ok()?;
        table.lines().find_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let is_connection = from.iter().any(|from| fields.get(1) == Some(&from.as_str()))
                && to.iter().any(|to| fields.get(2) == Some(&to.as_str()));
            is_connection.then_some(())?;
            let (inode, user) = (fields.get(9)?.parse().ok()?, fields.get(7)?.parse().ok()?);
            Some(SocketRecord { inode, user })
        })
    })
}

/// Spells an address as `/proc/net/tcp` does: each group of four bytes reversed, the port unchanged. An IPv4 address may
/// also be in the IPv6 table.
fn table_spellings(address: SocketAddr) -> Vec<String> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    // req: GW-07
    #[test]
    fn sock_diag_and_proc_tables_agree() {
        for (listen, connect) in
            [("127.0.0.1:0", "127.0.0.1"), ("[::1]:0", "::1"), ("[::]:0", "::ffff:127.0.0.1")]
        {
            if listen.starts_with('[') && !has_ipv6() {
                continue;
            }
            let listener = TcpListener::bind(listen).unwrap();
            let to = SocketAddr::new(connect.parse().unwrap(), listener.local_addr().unwrap().port());
            let client = TcpStream::connect(to).unwrap();
            let (server, from) = listener.accept().unwrap();
            let to = server.local_addr().unwrap();
            let record = search_proc_tables(from, to).expect("the connection is in the table");
            assert_ne!(record.inode, 0);
            match query_sock_diag(from, to) {
                Ok(found) => {
                    assert_eq!(found, Some(record), "{from} to {to}")
                }
                // A kernel without sock_diag: the tables replace it.
                Err(error) => assert_eq!(find_socket(from, to), Some(record), "{error}"),
            }
            assert_eq!(find_socket(from, to).map(|found| found.inode), Some(record.inode));
            drop((client, server));
            let listening = SocketAddr::new(from.ip(), to.port());
            assert_eq!(query_sock_diag(listening, to).ok().flatten(), None, "a listener is not a connection");
        }
    }

    fn has_ipv6() -> bool {
        std::fs::read_to_string("/proc/net/if_inet6").is_ok_and(|addresses| addresses.contains(" lo"))
    }
}
