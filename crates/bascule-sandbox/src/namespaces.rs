//! A network of its own, with nothing in it, for those who are to have none.
//!
//! Only where that takes no more than a privilege which the bridge already has: making a user namespace for it is
//! forbidden on many machines and changes who the server is. `syscalls` refuses sockets either way; this is the
//! second wall, for what a filter of system calls cannot see.

/// Leaves the network, where that is possible.
pub(crate) fn leave_the_network() {
    // SAFETY: takes a number only. The process has one thread. What fails changes nothing.
    unsafe { libc::unshare(libc::CLONE_NEWNET) };
}

/// Gives this thread, and the processes that it will start, a network, IPC objects and names of their own, where that is
/// possible.
pub(crate) fn leave_what_is_shared() {
    // SAFETY: takes a number only. None of these is bound to the whole process. What fails changes nothing.
    unsafe {
        libc::unshare(libc::CLONE_NEWNET | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS | libc::CLONE_NEWCGROUP)
    };
}

/// Whether this process has another network than the one that started it.
pub(crate) fn has_left_the_network() -> bool {
    let network = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/net"));
    let parent = std::os::unix::process::parent_id().to_string();
    matches!((network("self"), network(&parent)), (Ok(own), Ok(theirs)) if own != theirs)
}

/// Whether leaving the network would be possible here: it takes CAP_SYS_ADMIN.
pub(crate) fn can_leave_the_network() -> bool {
    const SYS_ADMIN: u64 = 1 << 21;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    effective
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & SYS_ADMIN != 0)
}
