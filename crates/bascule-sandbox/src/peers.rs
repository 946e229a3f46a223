//! Identifies the process at the other end of a local TCP connection, for a bridge that requires no token.
//!
//! The kernel reports the user of the socket at the other end, and `/proc` the processes that hold it. Every process that a
//! bridge confines has a seccomp filter and `no_new_privs`. It can drop neither, nor can its children, whichever command
//! started it: this is the mark of a confined process. A socket in transit between processes has no holder, and is refused.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;

use crate::process_tree::all_pids;
use crate::sockets::find_socket;

/// Returns true if a process of this user, which no bridge confines, has connected from `peer` to `local`.
pub fn is_trusted_peer(peer: SocketAddr, local: SocketAddr) -> bool {
    let own_user = rustix::process::getuid().as_raw();
    find_socket(peer, local)
        .is_some_and(|socket| socket.user == own_user && has_unconfined_holder(socket.inode, own_user))
}

/// Returns true if a process has the mark of a confined one, or if that cannot be read.
pub fn is_confined(pid: u32) -> bool {
    let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else { return true };
    let has = |line: &str| status.lines().any(|own| own.split_whitespace().eq(line.split(' ')));
    has("NoNewPrivs: 1") && has("Seccomp: 2")
}

/// Looks at the newest processes first: clients have often just been started.
fn has_unconfined_holder(inode: u32, user: u32) -> bool {
    let is_own = |pid: &u32| fs::metadata(format!("/proc/{pid}")).is_ok_and(|process| process.uid() == user);
    let mut pids: Vec<u32> = all_pids().filter(is_own).collect();
    pids.sort_unstable_by(|one, other| other.cmp(one));
    // The first holder decides, so that a confined one that floods the bridge with connections costs little.
    inode != 0 && pids.into_iter().find_map(|pid| check_holder(pid, inode)).unwrap_or(false)
}

/// Returns whether a process that holds the socket is unconfined, or `None` if it does not hold the socket. The pid may have
/// been reused; then the new process would have to hold the socket before and after the check.
fn check_holder(pid: u32, inode: u32) -> Option<bool> {
    let target = format!("socket:[{inode}]");
    let holds = |path: &std::path::Path| fs::read_link(path).is_ok_and(|link| link.as_os_str() == &*target);
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let path = descriptors.map(|entry| entry.path()).find(|path| holds(path))?;
    Some(!is_confined(pid) && holds(&path))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    use super::*;
    use crate::{Policy, server_syscalls};

    /// Connects, and returns true if the peer is trusted.
    fn check<C>(connect: impl FnOnce(SocketAddr) -> C) -> bool {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _client = connect(listener.local_addr().unwrap());
        let (server, from) = listener.accept().unwrap();
        is_trusted_peer(from, server.local_addr().unwrap())
    }

    fn python(code: &str, address: SocketAddr) -> Command {
        let connect =
            format!("import socket, os; s = socket.create_connection(('127.0.0.1', {})); ", address.port());
        let mut command = Command::new("python3");
        command.args(["-c", &format!("{connect}{code}")]).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    // req: GW-07
    #[test]
    fn trusts_own_processes() {
        assert!(check(|address| TcpStream::connect(address).unwrap()));
        assert!(check(|address| python("s.recv(1)", address).spawn().unwrap()));
    }

    // req: GW-07
    #[test]
    fn refuses_confined_processes_of_any_bridge() {
        let confine = || {
            // SAFETY: takes numbers only.
            unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
            server_syscalls::restrict_without_listener(&Policy {
                harden: true,
                unix_sockets: false,
                ..Policy::off()
            })
        };
        for code in ["s.recv(1)", "os.fork(); s.recv(1)", "os.fork() and os._exit(0); os.setsid(); s.recv(1)"]
        {
            let start = |address| {
                let mut command = python(code, address);
                // SAFETY: the filter is built before, and the calls after `fork` are async-signal-safe except for one
                // allocation; this process's other threads do not hold the allocator's lock across `fork` in glibc.
                unsafe { command.pre_exec(confine) };
                command.spawn().unwrap()
            };
            assert!(!check(start), "{code}");
        }
    }

    // req: GW-07
    #[test]
    fn refuses_connection_that_is_closed_or_from_elsewhere() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let local = listener.local_addr().unwrap();
        drop(TcpStream::connect(local).unwrap());
        let (_server, from) = listener.accept().unwrap();
        assert!(!is_trusted_peer(from, local));
        assert!(!is_trusted_peer("192.0.2.1:9".parse().unwrap(), local));
    }
}
