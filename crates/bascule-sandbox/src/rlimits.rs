//! Sets resource limits that the kernel enforces for each process (rlimits).

use std::io;
use std::sync::OnceLock;

/// The number of open files that this process was allowed before it raised the limit.
static INHERITED_OPEN_FILES: OnceLock<u64> = OnceLock::new();

/// Raises the number of open files of this process as far as it may, and returns it. Servers do not inherit the raised
/// limit: programs with old system calls fail on descriptors above 1,023.
pub fn raise_open_files() -> io::Result<u64> {
    let current = limit_of(libc::RLIMIT_NOFILE)?;
    let _ = INHERITED_OPEN_FILES.set(current.rlim_cur);
    let wanted = libc::rlimit { rlim_cur: current.rlim_max, ..current };
    set(libc::RLIMIT_NOFILE, &wanted).map(|()| wanted.rlim_cur)
}

/// Returns the number of open files from before [`raise_open_files`], if that was called.
pub(crate) fn inherited_open_files() -> Option<u64> {
    INHERITED_OPEN_FILES.get().copied()
}

use crate::cgroup::THREADS_PER_PROCESS;
use crate::syscall_result::check;

/// Sets the limits of a server process and its future children. Core dumps are always off: they may contain secrets.
/// `inherited` is the number of open files of a server without a limit of its own.
pub(crate) fn set_for_server(open_files: Option<u64>, inherited: Option<u64>) -> io::Result<()> {
    lower(libc::RLIMIT_CORE, 0)?;
    match (open_files, inherited) {
        (Some(max), _) => lower(libc::RLIMIT_NOFILE, max),
        (None, Some(soft)) => lower_soft_and_hard(libc::RLIMIT_NOFILE, soft, libc::RLIM_INFINITY),
        (None, None) => Ok(()),
    }
}

/// Stops a fork bomb from filling the machine before the watchdog sees it. The kernel counts all tasks of the user, so
/// the limit is the number of tasks on the machine plus an allowance.
pub(crate) fn limit_tasks(processes: Option<u64>) -> io::Result<()> {
    let Some(processes) = processes else { return Ok(()) };
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let present = load.split(['/', ' ']).nth(4).and_then(|tasks| tasks.parse::<u64>().ok());
    present.map_or(Ok(()), |present| lower(libc::RLIMIT_NPROC, present + processes * THREADS_PER_PROCESS))
}

/// Sets the limits of a script worker. The stack limit stays unchanged.
pub(crate) fn set_for_worker(address_space: u64, cpu_seconds: u64) -> io::Result<()> {
    lower(libc::RLIMIT_AS, address_space)?;
    // The soft limit sends SIGXCPU, which identifies the cause; the hard limit sends SIGKILL if that is ignored.
    lower_soft_and_hard(libc::RLIMIT_CPU, cpu_seconds, cpu_seconds.saturating_add(1))?;
    lower(libc::RLIMIT_FSIZE, 0)?;
    lower(libc::RLIMIT_CORE, 0)?;
    lower(libc::RLIMIT_NPROC, 0)?;
    // Standard input, output and error, and one that Landlock needs.
    lower(libc::RLIMIT_NOFILE, 4)
}

fn lower(resource: libc::__rlimit_resource_t, limit: u64) -> io::Result<()> {
    lower_soft_and_hard(resource, limit, limit)
}

fn lower_soft_and_hard(resource: libc::__rlimit_resource_t, soft: u64, hard: u64) -> io::Result<()> {
    let hard = hard.min(limit_of(resource)?.rlim_max);
    set(resource, &libc::rlimit { rlim_cur: soft.min(hard), rlim_max: hard })
}

fn limit_of(resource: libc::__rlimit_resource_t) -> io::Result<libc::rlimit> {
    let mut current = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `current` is valid for the result.
    check(unsafe { libc::getrlimit(resource, &raw mut current) })?;
    Ok(current)
}

/// The hard limit must not be above the current one.
fn set(resource: libc::__rlimit_resource_t, wanted: &libc::rlimit) -> io::Result<()> {
    // SAFETY: `wanted` is a valid limit, and setting it needs no privilege.
    check(unsafe { libc::setrlimit(resource, std::ptr::from_ref(wanted)) })?;
    Ok(())
}

/// Limits the writable memory (RLIMIT_DATA) of another process of this user. Its future children inherit the limit.
pub(crate) fn limit_data(pid: u32, bytes: u64) {
    let wanted = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    // SAFETY: `wanted` is a valid limit. If the process has ended or belongs to another user, nothing happens.
    unsafe { libc::prlimit(pid as libc::pid_t, libc::RLIMIT_DATA, &raw const wanted, std::ptr::null_mut()) };
}

pub(crate) fn page_size() -> u64 {
    // SAFETY: takes a number only.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.try_into().unwrap_or(4096)
}
