//! `bascule __jail`: confines a process, then executes the server in it.
//!
//! The process has one thread, so forking is safe. The parent stays as the reaper. The child confines itself, and the
//! order matters: it drops capabilities while it still may, and applies Landlock before seccomp could refuse that.

use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

use crate::policy::Policy;
use crate::{capabilities, cgroup, filesystem, namespaces, reaper, rlimits, server_syscalls};

/// The lifeline's descriptor: the first after standard input, output and error.
pub(crate) const LIFELINE: i32 = 3;
/// A shell's exit code for a program that cannot be executed.
const CANNOT_EXECUTE: u8 = 127;

/// The jail's configuration, passed as JSON in its first argument.
#[derive(Serialize, Deserialize)]
pub(crate) struct JailConfig<P> {
    pub(crate) policy: P,
    /// Folders of the control groups to enter.
    pub(crate) cgroups: Vec<PathBuf>,
    /// Set if no control group limits the number of processes.
    pub(crate) max_processes: Option<u64>,
}

/// Implements `bascule __jail CONFIG PROGRAM ARGUMENT…`. Exits like the server; returns only on failure.
pub fn main(config: &str, command: &[OsString]) -> ExitCode {
    match run(config, command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bascule: could not confine the server: {error}");
            ExitCode::from(CANNOT_EXECUTE)
        }
    }
}

fn run(config: &str, command: &[OsString]) -> io::Result<()> {
    let config: JailConfig<Policy> = serde_json::from_str(config).map_err(io::Error::other)?;
    // The bridge may have inherited descriptors from its caller, which the server must not get.
    // SAFETY: nothing above the lifeline is in use yet.
    unsafe { libc::close_range(LIFELINE as u32 + 1, u32::MAX, 0) };
    let signals = reaper::prepare()?;
    // SAFETY: this process has one thread, so the child may call anything.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Err(become_server(&config, command)),
        server => {
            close_pipes()?;
            // SAFETY: the bridge opened it. If nobody did, `poll` reports that at once and the reaper kills the server.
            let lifeline = unsafe { BorrowedFd::borrow_raw(LIFELINE) };
            let exit = reaper::supervise(server, &signals, lifeline);
            // A running bridge reads the control groups' counters and then removes the groups itself.
            if reaper::is_closed(lifeline) {
                cgroup::remove(&config.cgroups);
            }
            exit.map_or(Ok(()), |exit| {
                exit.report_peak(lifeline);
                exit.exit_alike()
            })
        }
    }
}

/// Returns only if it fails.
fn become_server(config: &JailConfig<Policy>, command: &[OsString]) -> io::Error {
    let limited = cgroup::enter(&config.cgroups).and_then(|()| rlimits::limit_tasks(config.max_processes));
    match limited.and_then(|()| confine(&config.policy)) {
        Ok(()) => execute(command),
        Err(error) => error,
    }
}

fn confine(policy: &Policy) -> io::Result<()> {
    // SAFETY: all of these take numbers only.
    unsafe {
        libc::setsid();
        libc::close(LIFELINE);
        // If the reaper is killed, at least this process dies with it.
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    rlimits::set_for_server(policy.open_files)?;
    if !policy.network {
        namespaces::unshare_network();
    }
    if policy.harden {
        capabilities::drop_most()?;
    }
    filesystem::restrict(&policy.files).map_err(io::Error::other)?;
    server_syscalls::restrict(policy)?;
    reaper::reset_signals();
    Ok(())
}

fn execute(command: &[OsString]) -> io::Error {
    let words: Result<Vec<CString>, _> = command.iter().map(|word| CString::new(word.as_bytes())).collect();
    let Ok(words) = words else { return io::Error::other("an argument contains a zero byte") };
    let mut pointers: Vec<*const libc::c_char> = words.iter().map(|word| word.as_ptr()).collect();
    pointers.push(std::ptr::null());
    let Some(program) = words.first() else { return io::Error::other("no program is given") };
    // SAFETY: `pointers` is a null-terminated list of strings that outlive the call, which returns only if it fails.
    unsafe { libc::execvp(program.as_ptr(), pointers.as_ptr()) };
    let error = io::Error::last_os_error();
    io::Error::new(error.kind(), format!("could not execute `{}`: {error}", program.to_string_lossy()))
}

/// The server owns the pipes. If the reaper kept them open, the bridge would not see the server close them.
fn close_pipes() -> io::Result<()> {
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    for descriptor in 0..3 {
        // SAFETY: both are open descriptors of this process.
        unsafe { libc::dup2(null.as_raw_fd(), descriptor) };
    }
    Ok(())
}
