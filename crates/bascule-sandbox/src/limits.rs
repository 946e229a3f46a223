//! Limits that the kernel keeps for each process by itself (rlimits).

use std::io;

/// Sets what holds for this process and its children to come. Core dumps are always off: they hold secrets.
pub(crate) fn set(open_files: Option<u64>) -> io::Result<()> {
    limit(libc::RLIMIT_CORE, 0)?;
    open_files.map_or(Ok(()), |most| limit(libc::RLIMIT_NOFILE, most))
}

/// Bounds how many tasks this process's user may have, all others included: the kernel counts no better. So many more
/// than there are now keep a bomb from filling the machine before the watchdog has seen it.
pub(crate) fn set_tasks(processes: Option<u64>) -> io::Result<()> {
    const TASKS_A_PROCESS: u64 = 16;
    let Some(processes) = processes else { return Ok(()) };
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let present = load.split(['/', ' ']).nth(4).and_then(|tasks| tasks.parse::<u64>().ok());
    present.map_or(Ok(()), |present| limit(libc::RLIMIT_NPROC, present + processes * TASKS_A_PROCESS))
}

/// What holds for a script worker: so much address space and processor time, and next to nothing of all else. The stack
/// stays as it is.
pub(crate) fn set_for_worker(address_space: u64, cpu_seconds: u64) -> io::Result<()> {
    limit(libc::RLIMIT_AS, address_space)?;
    // The first ends it by SIGXCPU, which says why; the second by SIGKILL, should it ignore that.
    limit_softly(libc::RLIMIT_CPU, cpu_seconds, cpu_seconds.saturating_add(1))?;
    limit(libc::RLIMIT_FSIZE, 0)?;
    limit(libc::RLIMIT_CORE, 0)?;
    limit(libc::RLIMIT_NPROC, 0)?;
    // Room for one besides the usual three: Landlock's.
    limit(libc::RLIMIT_NOFILE, 4)
}

fn limit(resource: libc::__rlimit_resource_t, most: u64) -> io::Result<()> {
    limit_softly(resource, most, most)
}

fn limit_softly(resource: libc::__rlimit_resource_t, soft: u64, most: u64) -> io::Result<()> {
    let mut now = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `now` is a valid place for the answer.
    if unsafe { libc::getrlimit(resource, &raw mut now) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let most = most.min(now.rlim_max);
    let wanted = libc::rlimit { rlim_cur: soft.min(most), rlim_max: most };
    // SAFETY: `wanted` is a valid limit, and lower than the one in force, which nobody is forbidden to set.
    if unsafe { libc::setrlimit(resource, &raw const wanted) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Bounds the memory that another process of ours may write to, from now on. Its children to come inherit that.
pub(crate) fn bind_data(pid: u32, most: u64) {
    let wanted = libc::rlimit { rlim_cur: most, rlim_max: most };
    // SAFETY: `wanted` is a valid limit. Where the process is gone, or not ours, nothing happens.
    unsafe { libc::prlimit(pid as libc::pid_t, libc::RLIMIT_DATA, &raw const wanted, std::ptr::null_mut()) };
}

/// How large a page is here.
pub(crate) fn page_size() -> u64 {
    // SAFETY: takes a number only.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.try_into().unwrap_or(4096)
}
