//! Gives processes without network permission an empty network namespace of their own.
//!
//! Only where the bridge already has the privilege: creating a user namespace for it is forbidden on many machines and
//! changes the server's user id. seccomp refuses sockets in any case; the namespace is a second barrier for what a system
//! call filter cannot see.

/// Moves this process into an empty network namespace, where that is possible.
pub(crate) fn unshare_network() {
    // SAFETY: takes a number only. The process has one thread. A failure changes nothing.
    unsafe { libc::unshare(libc::CLONE_NEWNET) };
}

/// Moves this thread, and the processes it will spawn, into new network, IPC, UTS and cgroup namespaces, where that is
/// possible.
pub(crate) fn unshare_for_workers() {
    // SAFETY: takes a number only. All of these namespaces belong to a thread, not to the process. A failure changes
    // nothing.
    unsafe {
        libc::unshare(libc::CLONE_NEWNET | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS | libc::CLONE_NEWCGROUP)
    };
}

/// Returns true if this process has a different network namespace than its parent.
pub(crate) fn has_own_network() -> bool {
    let network = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/net"));
    let parent = std::os::unix::process::parent_id().to_string();
    matches!((network("self"), network(&parent)), (Ok(own), Ok(theirs)) if own != theirs)
}

/// Returns true if this process has CAP_SYS_ADMIN, which `unshare_network` needs.
pub(crate) fn can_unshare_network() -> bool {
    const SYS_ADMIN: u64 = 1 << 21;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    effective
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & SYS_ADMIN != 0)
}
