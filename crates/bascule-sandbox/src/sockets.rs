//! Finds the other end of a connection among this machine's sockets.
//!
//! The kernel is asked for the one socket (`sock_diag`), which costs the same however many there are. Kernels without
//! that have a table of all of them to read.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// A socket as the kernel knows it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct End {
    /// By this `/proc` names it. Zero if no process holds it any more.
    pub(crate) inode: u64,
    /// Whose it is.
    pub(crate) user: u32,
    /// The control group (v2) in which it was made, where the kernel remembers: that stays, whoever has it now.
    pub(crate) group: Option<u64>,
}

/// The socket that is bound to `from` and connected to `to`.
pub(crate) fn end_between(from: SocketAddr, to: SocketAddr) -> Option<End> {
    static IS_ANSWERED: AtomicBool = AtomicBool::new(false);
    match ask(from, to) {
        Ok(end) => {
            IS_ANSWERED.store(true, Ordering::Relaxed);
            Some(end)
        }
        // A kernel that cannot be asked says the same as one that knows no such socket.
        Err(_) if IS_ANSWERED.load(Ordering::Relaxed) => None,
        Err(_) => in_tables(from, to),
    }
}

const ASK_BY_FAMILY: u16 = 20;
/// As `linux/netlink.h` and `linux/inet_diag.h` have them, in bytes.
const HEADER: usize = 16;
const PORTS_AT: usize = HEADER + 4;
const USER_AT: usize = HEADER + 64;
const INODE_AT: usize = HEADER + 68;
const ATTRIBUTES_AT: usize = HEADER + 72;
const GROUP_ATTRIBUTE: u16 = 21;

fn ask(from: SocketAddr, to: SocketAddr) -> io::Result<End> {
    let kernel = open()?;
    let question = question(from, to);
    // SAFETY: `question` is readable for its whole length.
    let sent = unsafe { libc::send(kernel.as_raw_fd(), question.as_ptr().cast(), question.len(), 0) };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut answer = [0; 4096];
    // The kernel has answered by the time it has taken the question.
    // SAFETY: `answer` has room for its whole length.
    let length = unsafe {
        libc::recv(kernel.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), libc::MSG_DONTWAIT)
    };
    let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
    let ports = [from.port().to_be_bytes(), to.port().to_be_bytes()].concat();
    read(&answer[..length], &ports).ok_or_else(|| io::ErrorKind::NotFound.into())
}

fn open() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
    // SAFETY: takes numbers only.
    let socket = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_INET_DIAG) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(socket) })
}

/// One message: a header, the kind of socket, its two ends, and that any interface and any cookie will do.
fn question(from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    let (here, there) = (from.ip().to_canonical(), to.ip().to_canonical());
    let family = if here.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let mut body = vec![family as u8, libc::IPPROTO_TCP as u8, 0, 0];
    body.extend(u32::MAX.to_ne_bytes());
    body.extend(from.port().to_be_bytes());
    body.extend(to.port().to_be_bytes());
    body.extend(sixteen(here));
    body.extend(sixteen(there));
    body.extend(0_u32.to_ne_bytes());
    body.extend(u64::MAX.to_ne_bytes());
    let length = (HEADER + body.len()) as u32;
    let mut message = length.to_ne_bytes().to_vec();
    message.extend(ASK_BY_FAMILY.to_ne_bytes());
    message.extend((libc::NLM_F_REQUEST as u16).to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    message
}

/// An address in the room for the longer kind.
fn sixteen(ip: IpAddr) -> [u8; 16] {
    let mut room = [0; 16];
    match ip {
        IpAddr::V4(ip) => room[..4].copy_from_slice(&ip.octets()),
        IpAddr::V6(ip) => room = ip.octets(),
    }
    room
}

/// Takes an answer for what it is only if it is about these two ports: where there is no such connection the kernel
/// tells of a socket that listens there.
fn read(answer: &[u8], ports: &[u8]) -> Option<End> {
    let number = |at: usize| Some(u32::from_ne_bytes(*answer.get(at..)?.first_chunk()?));
    let is_answer = answer.get(4..6) == Some(&ASK_BY_FAMILY.to_ne_bytes()[..]);
    (is_answer && answer.get(PORTS_AT..PORTS_AT + 4) == Some(ports)).then_some(())?;
    let attributes = answer.get(ATTRIBUTES_AT..)?;
    let group = attribute(attributes, GROUP_ATTRIBUTE).and_then(|bytes| bytes.first_chunk());
    Some(End {
        inode: number(INODE_AT)?.into(),
        user: number(USER_AT)?,
        group: group.map(|bytes| u64::from_ne_bytes(*bytes)),
    })
}

/// Each has its length, its kind and its content, and begins at a multiple of four.
fn attribute(mut rest: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let &[one, two, three, four] = rest.first_chunk()?;
        let length = usize::from(u16::from_ne_bytes([one, two]));
        let content = rest.get(4..length)?;
        if u16::from_ne_bytes([three, four]) == wanted {
            return Some(content);
        }
        rest = rest.get(length.next_multiple_of(4)..)?;
    }
}

fn in_tables(from: SocketAddr, to: SocketAddr) -> Option<End> {
    let (from, to) = (spelled(from), spelled(to));
    ["/proc/net/tcp", "/proc/net/tcp6"].into_iter().find_map(|table| {
        let table = fs::read_to_string(table).ok()?;
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
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn inode(stream: &TcpStream) -> u64 {
        fs::metadata(format!("/proc/self/fd/{}", stream.as_raw_fd())).unwrap().ino()
    }

    // req: GW-07
    #[test]
    fn the_socket_at_the_other_end_is_found_either_way() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (server, from) = listener.accept().unwrap();
            let local = server.local_addr().unwrap();
            let asked = ask(from, local).expect("the kernel can be asked");
            let read = in_tables(from, local).expect("it is in the table");
            assert_eq!((asked.inode, read.inode), (inode(&client), inode(&client)));
            assert_eq!(asked.user, read.user);
            assert_eq!(ask(local, from).unwrap().inode, inode(&server), "nor are the ends confused");
        }
    }

    // req: GW-07
    #[test]
    fn who_listens_is_not_taken_for_who_has_gone() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let nobody = TcpListener::bind("127.0.0.1:0").unwrap();
        let (from, to) = (nobody.local_addr().unwrap(), listener.local_addr().unwrap());
        assert!(ask(from, to).is_err());
    }
}
