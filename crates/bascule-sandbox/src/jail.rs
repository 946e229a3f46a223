//! `bascule __jail`: confines a process, then executes the server in it.
//!
//! The process has one thread, so forking is safe. The parent stays as the reaper. The child confines itself, and the
//! order matters: it drops capabilities while it still may, and applies Landlock before seccomp could refuse that.

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

use crate::file_attributes::{AttributeThread, WritablePaths};
use crate::fork_gate::ForkGate;
use crate::lifeline::{LIFELINE, ReaperLifeline, ReaperReport};
use crate::notifications::{self, SyscallNotificationSource};
use crate::policy::{Access, FileAccess, Grant, Policy};
use crate::reaper::{self, Reaper};
use crate::syscall_result::check;
use crate::temporary::TemporaryFolder;
use crate::tracer::{self, TRACE};
use crate::{capabilities, cgroup, filesystem, namespaces, rlimits, server_syscalls};

/// The descriptor of the configuration: the first after the lifeline.
pub(crate) const CONFIG: i32 = LIFELINE + 1;
/// A shell's exit code for a program that cannot be executed.
const CANNOT_EXECUTE: u8 = 127;

/// The jail's configuration, passed as JSON in the file `CONFIG`: arguments are limited in size and visible to others.
#[derive(Serialize, Deserialize)]
pub(crate) struct JailConfig<P> {
    pub(crate) policy: P,
    /// Folders of the control groups to enter.
    pub(crate) cgroups: Vec<PathBuf>,
    pub(crate) max_processes: Option<u64>,
    /// The number of open files of a server whose policy has no limit. `None` leaves the bridge's own.
    pub(crate) inherited_open_files: Option<u64>,
    /// Set if no control group limits the number of threads.
    pub(crate) limits_threads: bool,
    /// Set if refusals are recorded in the file `TRACE`.
    pub(crate) is_traced: bool,
}

/// Implements `bascule __jail PROGRAM ARGUMENT…`. Exits like the server; returns only on failure.
pub fn main(command: &[OsString]) -> ExitCode {
    match run(command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bascule: could not confine the server: {error}");
            ExitCode::from(CANNOT_EXECUTE)
        }
    }
}

fn run(command: &[OsString]) -> io::Result<()> {
    // SAFETY: the bridge opened it for this process alone. If it did not, reading fails.
    let config = unsafe { File::from_raw_fd(CONFIG) };
    let mut config: JailConfig<Policy> =
        serde_json::from_reader(io::BufReader::new(config)).map_err(io::Error::other)?;
    // The bridge may have inherited descriptors from its caller, which the server must not get.
    let last = if config.is_traced { TRACE } else { LIFELINE };
    // SAFETY: nothing above the last passed descriptor is in use yet.
    unsafe { libc::close_range(last as u32 + 1, u32::MAX, 0) };
    let record = config.is_traced.then(tracer::take_record).transpose()?;
    let temporary = create_temporary(&mut config.policy)?;
    let signals = reaper::become_subreaper()?;
    // Resolved before the server runs and could exchange them.
    let writable = WritablePaths::from_file_access(&config.policy.files);
    let (reapers_end, servers_end) = UnixStream::pair()?;
    // SAFETY: this process has one thread, so the child may call anything.
    match check(unsafe { libc::fork() })? {
        0 => {
            record.map_or(Ok(()), tracer::split)?;
            Err(become_server(&config, command, &servers_end))
        }
        server_pid => {
            drop((servers_end, record));
            let lifeline = ReaperLifeline::take();
            let own = std::process::id();
            let attributes = config.policy.checks_attributes().then(|| AttributeThread::start(writable));
            let reaper = Reaper {
                server_pid,
                signals,
                lifeline: &lifeline,
                notifications: SyscallNotificationSource::Expected(reapers_end.into()),
                fork_gate: ForkGate::new(own, config.max_processes, config.limits_threads),
                attributes,
                cgroups: &config.cgroups,
            };
            reap(reaper, temporary)
        }
    }
}

/// Returns only if the server's exit is unknown.
fn reap(reaper: Reaper<'_>, temporary: Option<TemporaryFolder>) -> io::Result<()> {
    close_pipes()?;
    let (lifeline, cgroups) = (reaper.lifeline, reaper.cgroups);
    let exit = reaper.supervise();
    if let Some(temporary) = temporary {
        temporary.remove();
    }
    // A running bridge reads the control groups' counters and then removes the groups itself.
    if lifeline.is_closed() {
        cgroup::remove(cgroups);
    }
    exit.map_or(Ok(()), |exit| {
        lifeline.send(ReaperReport { peak_bytes: exit.peak_bytes, ..ReaperReport::default() });
        exit.exit_with_same_status()
    })
}

fn create_temporary(policy: &mut Policy) -> io::Result<Option<TemporaryFolder>> {
    let mut temporary = policy.temporary.as_deref().map(TemporaryFolder::create).transpose()?;
    if let Some(temporary) = &mut temporary {
        if policy.unix_sockets {
            temporary.shorten();
        }
        grant_temporary(policy, temporary);
    }
    Ok(temporary)
}

fn grant_temporary(policy: &mut Policy, temporary: &TemporaryFolder) {
    let path = temporary.path().to_path_buf();
    if std::env::var_os("TMPDIR").is_none() {
        // SAFETY: this process has one thread.
        unsafe { std::env::set_var("TMPDIR", temporary.shortest_path()) };
    }
    if let FileAccess::Granted { grants, .. } = &mut policy.files {
        grants.extend(Grant::resolved(&path, Access::Write));
    }
}

/// Returns only if it fails.
fn become_server(config: &JailConfig<Policy>, command: &[OsString], reaper: &UnixStream) -> io::Error {
    let max_processes = config.max_processes.filter(|_| config.limits_threads);
    let limited = cgroup::enter(&config.cgroups).and_then(|()| rlimits::limit_tasks(max_processes));
    match limited.and_then(|()| confine(config, reaper)) {
        Ok(()) => {
            if config.is_traced {
                tracer::report_confined();
            }
            execute(command)
        }
        Err(error) => error,
    }
}

fn confine(config: &JailConfig<Policy>, reaper: &UnixStream) -> io::Result<()> {
    let policy = &config.policy;
    // SAFETY: all of these take numbers only.
    unsafe {
        libc::setsid();
        libc::close(LIFELINE);
        // If the reaper is killed, at least this process dies with it.
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
        check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))?;
    }
    rlimits::set_for_server(policy.open_files, config.inherited_open_files)?;
    if !policy.network {
        namespaces::unshare_network();
    }
    if policy.harden {
        capabilities::drop_most()?;
    }
    filesystem::restrict(&policy.files)?;
    if let Some(listener) = server_syscalls::restrict(policy, config.limits_threads)? {
        notifications::send_descriptor(reaper.as_fd(), listener.as_fd())?;
    }
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
pub(crate) fn close_pipes() -> io::Result<()> {
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    for descriptor in 0..3 {
        // SAFETY: both are open descriptors of this process.
        unsafe { libc::dup2(null.as_raw_fd(), descriptor) };
    }
    Ok(())
}
