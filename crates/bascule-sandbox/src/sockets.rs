//! Finds the socket at the other end of a TCP connection on this machine: whose it is, and its number.
//!
//! The kernel is asked for that one (`sock_diag`). Where it will not tell, its tables are looked through, for which it
//! goes through all the room it has for sockets: milliseconds, however few there are.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// A socket as the kernel knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct End {
    /// None is left of one that was closed: then it is 0.
    pub(crate) inode: u32,
    pub(crate) user: u32,
    /// The control group (v2) in which it was made, where the kernel remembers: that stays, whoever has it now.
    pub(crate) group: Option<u64>,
}

/// The socket that is bound to `from` and connected to `to`.
pub(crate) fn end_between(from: SocketAddr, to: SocketAddr) -> Option<End> {
    static HAS_TOLD: AtomicBool = AtomicBool::new(false);
    match asked(from, to) {
        Ok(Some(end)) => {
            HAS_TOLD.store(true, Ordering::Relaxed);
            Some(end)
        }
        // One that tells of no connection at all says the same as one that knows of none such.
        Ok(None) if HAS_TOLD.load(Ordering::Relaxed) => None,
        _ => looked_up(from, to),
    }
}

/// What `sock_diag` says: a header, then the question or the answer, in which the addresses are at the same place.
mod diag {
    pub(super) const HEADER: usize = 16;
    pub(super) const QUESTION: usize = HEADER + 56;
    pub(super) const ANSWER: usize = HEADER + 72;
    /// `SOCK_DIAG_BY_FAMILY`, the type of both.
    pub(super) const BY_FAMILY: u16 = 20;
    pub(super) const ANY_STATE: u32 = u32::MAX;
    pub(super) const LISTENS: u8 = 10;
    pub(super) const STATE_AT: usize = HEADER + 1;
    /// Behind four ports' worth of bytes in the answer, and four more in the question.
    pub(super) const PORTS_AT: usize = HEADER + 4;
    pub(super) const USER_AT: usize = HEADER + 64;
    pub(super) const INODE_AT: usize = HEADER + 68;
    /// `INET_DIAG_CGROUP_ID`, among the attributes that follow.
    pub(super) const GROUP: u16 = 21;
}

/// Fails where the kernel will not tell.
fn asked(from: SocketAddr, to: SocketAddr) -> io::Result<Option<End>> {
    let question = question(from, to);
    // SAFETY: takes numbers only; the descriptor that comes back is ours alone.
    let socket = unsafe {
        let socket =
            libc::socket(libc::AF_NETLINK, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, libc::NETLINK_SOCK_DIAG);
        OwnedFd::from_raw_fd(check(socket as isize)? as i32)
    };
    let mut answer = [0_u8; 512];
    // SAFETY: both are valid for the length that goes with them. The kernel answers before `send` returns.
    let length = unsafe {
        check(libc::send(socket.as_raw_fd(), question.as_ptr().cast(), question.len(), 0))?;
        check(libc::recv(socket.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), libc::MSG_DONTWAIT))?
    };
    read(&answer[..length as usize], &question)
}

fn question(from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    let (source, target) = (from.ip().to_canonical(), to.ip().to_canonical());
    let family = if source.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let mut out = Vec::with_capacity(diag::QUESTION);
    out.extend((diag::QUESTION as u32).to_ne_bytes());
    out.extend(diag::BY_FAMILY.to_ne_bytes());
    out.extend((libc::NLM_F_REQUEST as u16).to_ne_bytes());
    // Neither numbered nor from anybody in particular.
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
    // On any interface, under any cookie.
    out.extend([0; 4]);
    out.extend([0xFF; 8]);
    out
}

fn read(answer: &[u8], question: &[u8]) -> io::Result<Option<End>> {
    let number =
        |at: usize| answer.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_ne_bytes);
    let kind = answer.get(4..6).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
    match kind {
        Some(diag::BY_FAMILY) if answer.len() >= diag::ANSWER => {
            // Where there is no such connection, a socket that waits for one is as good an answer to the kernel.
            let ports = |text: &[u8], at: usize| text.get(at..at + 4).map(<[u8]>::to_vec);
            let is_it = answer[diag::STATE_AT] != diag::LISTENS
                && ports(answer, diag::PORTS_AT) == ports(question, diag::PORTS_AT + 4);
            Ok(number(diag::INODE_AT).zip(number(diag::USER_AT)).filter(|_| is_it).map(|(inode, user)| End {
                inode,
                user,
                group: group(&answer[diag::ANSWER..]),
            }))
        }
        // An error, whose number follows the header.
        Some(kind) if i32::from(kind) == libc::NLMSG_ERROR => {
            match number(diag::HEADER).map(|number| -(number as i32)) {
                Some(libc::ENOENT) => Ok(None),
                error => Err(io::Error::from_raw_os_error(error.unwrap_or(libc::EIO))),
            }
        }
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Looks for the group among the attributes. Each has its length, its kind and its content, and begins at a multiple of
/// four.
fn group(mut attributes: &[u8]) -> Option<u64> {
    loop {
        let &[one, two, three, four] = attributes.first_chunk()?;
        let length = usize::from(u16::from_ne_bytes([one, two]));
        let content = attributes.get(4..length)?;
        if u16::from_ne_bytes([three, four]) == diag::GROUP {
            return content.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes));
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

fn check(result: isize) -> io::Result<isize> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn looked_up(from: SocketAddr, to: SocketAddr) -> Option<End> {
    let (from, to) = (spelled(from), spelled(to));
    ["/proc/net/tcp", "/proc/net/tcp6"].into_iter().find_map(|table| {
        let table = std::fs::read_to_string(table).ok()?;
        table.lines().find_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let is_it = from.iter().any(|from| fields.get(1) == Some(&from.as_str()))
                && to.iter().any(|to| fields.get(2) == Some(&to.as_str()));
            is_it.then_some(())?;
            Some(End { inode: fields.get(9)?.parse().ok()?, user: fields.get(7)?.parse().ok()?, group: None })
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    // req: GW-07
    #[test]
    fn the_kernel_and_its_tables_say_the_same() {
        for (listen, connect) in
            [("127.0.0.1:0", "127.0.0.1"), ("[::1]:0", "::1"), ("[::]:0", "::ffff:127.0.0.1")]
        {
            let Ok(listener) = TcpListener::bind(listen) else { continue };
            let to = SocketAddr::new(connect.parse().unwrap(), listener.local_addr().unwrap().port());
            let Ok(client) = TcpStream::connect(to) else { continue };
            let (server, from) = listener.accept().unwrap();
            let to = server.local_addr().unwrap();
            let end = looked_up(from, to).expect("it is in the table");
            assert_ne!(end.inode, 0);
            match asked(from, to) {
                Ok(told) => {
                    assert_eq!(told.map(|told| End { group: None, ..told }), Some(end), "{from} to {to}")
                }
                Err(error) => eprintln!("skipped: this kernel does not tell: {error}"),
            }
            assert_eq!(end_between(from, to).map(|end| end.inode), Some(end.inode));
            drop((client, server));
            let nobody = SocketAddr::new(from.ip(), to.port());
            assert_eq!(asked(nobody, to).ok().flatten(), None, "who listens is not connected");
        }
    }
}
