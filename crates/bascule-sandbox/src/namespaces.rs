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

/// Whether that would be possible here: it takes CAP_SYS_ADMIN.
pub(crate) fn can_leave_the_network() -> bool {
    const SYS_ADMIN: u64 = 1 << 21;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    effective
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & SYS_ADMIN != 0)
}
