//! `bascule __jail`: confine, then become the server.
//!
//! A process of one thread, so a fork of it is safe. The parent stays as reaper; the child confines itself in an
//! order that matters: capabilities while we may still drop them, Landlock before seccomp could forbid it.

use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

use crate::policy::Policy;
use crate::{capabilities, cgroup, filesystem, limits, namespaces, reaper, syscalls};

/// Where the lifeline is: the first descriptor after the usual three.
pub(crate) const LIFELINE: i32 = 3;
/// What a shell returns for a program that cannot be run.
const NOT_RUN: u8 = 127;

/// What the jail is told, besides what it is to become.
#[derive(Serialize, Deserialize)]
pub(crate) struct Orders<P> {
    pub(crate) policy: P,
    /// The control groups to enter.
    pub(crate) groups: Vec<PathBuf>,
    /// How many processes it is meant to be, where no group counts them.
    pub(crate) processes: Option<u64>,
}

/// The whole of `bascule __jail ORDERS PROGRAM ARGUMENT…`. Returns only when it fails.
pub fn main(orders: &str, command: &[OsString]) -> ExitCode {
    match run(orders, command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bascule: could not confine the server: {error}");
            ExitCode::from(NOT_RUN)
        }
    }
}

fn run(orders: &str, command: &[OsString]) -> io::Result<()> {
    let orders: Orders<Policy> = serde_json::from_str(orders).map_err(io::Error::other)?;
    // Whoever started the bridge may have left it files of their own, which are nobody's business here.
    // SAFETY: nothing above the lifeline is in use yet.
    unsafe { libc::close_range(LIFELINE as u32 + 1, u32::MAX, 0) };
    let signals = reaper::prepare()?;
    // SAFETY: this process has one thread, so the child may do whatever it likes.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Err(become_server(&orders, command)),
        server => {
            let_go_of_pipes()?;
            // SAFETY: the launcher put it there; if nobody did, polling says so at once and all ends.
            let lifeline = unsafe { BorrowedFd::borrow_raw(LIFELINE) };
            let ended = reaper::keep(server, &signals, lifeline);
            // A bridge that lives reads from the groups what they came to, and removes them itself.
            if reaper::is_cut(lifeline) {
                cgroup::remove(&orders.groups);
            }
            ended.map_or(Ok(()), |ended| {
                ended.tell(lifeline);
                ended.imitate()
            })
        }
    }
}

/// Does not return, except with the reason why it could not.
fn become_server(orders: &Orders<Policy>, command: &[OsString]) -> io::Error {
    let bounded = cgroup::enter(&orders.groups).and_then(|()| limits::set_tasks(orders.processes));
    match bounded.and_then(|()| confine(&orders.policy)) {
        Ok(()) => execute(command),
        Err(error) => error,
    }
}

fn confine(policy: &Policy) -> io::Result<()> {
    // SAFETY: all of these take numbers only.
    unsafe {
        libc::setsid();
        libc::close(LIFELINE);
        // Should the reaper be killed, this at least goes with it.
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    limits::set(policy.open_files)?;
    if !policy.network {
        namespaces::leave_the_network();
    }
    if policy.harden {
        capabilities::drop_most()?;
    }
    filesystem::confine(&policy.files).map_err(io::Error::other)?;
    syscalls::refuse(policy.harden, policy.network)?;
    reaper::unblock_signals();
    Ok(())
}

fn execute(command: &[OsString]) -> io::Error {
    let words: Result<Vec<CString>, _> = command.iter().map(|word| CString::new(word.as_bytes())).collect();
    let Ok(words) = words else { return io::Error::other("an argument holds a zero byte") };
    let mut pointers: Vec<*const libc::c_char> = words.iter().map(|word| word.as_ptr()).collect();
    pointers.push(std::ptr::null());
    let Some(program) = words.first() else { return io::Error::other("there is no program to run") };
    // SAFETY: `pointers` is a null-terminated list of strings that live as long as this call, and it does not
    // return unless it fails.
    unsafe { libc::execvp(program.as_ptr(), pointers.as_ptr()) };
    let error = io::Error::last_os_error();
    io::Error::new(error.kind(), format!("could not run `{}`: {error}", program.to_string_lossy()))
}

/// The pipes are the server's: while we hold them too, nobody would see them close.
fn let_go_of_pipes() -> io::Result<()> {
    let nothing = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    for descriptor in 0..3 {
        use std::os::fd::AsRawFd;
        // SAFETY: both are open descriptors of this process.
        unsafe { libc::dup2(nothing.as_raw_fd(), descriptor) };
    }
    Ok(())
}
