//! Drops Linux capabilities. A server of root keeps no right over files or users beyond those of their owner.

use std::io;

use crate::syscall_result::check;

/// kill, net_bind_service.
const KEPT: [u32; 2] = [5, 10];

/// `__user_cap_header_struct` of the kernel.
#[repr(C)]
struct CapabilityHeader {
    version: u32,
    pid: i32,
}

/// `__user_cap_data_struct` of the kernel.
#[repr(C)]
#[derive(Clone, Copy)]
struct CapabilitySets {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Drops every capability except `KEPT`, also for programs this process will execute.
pub(crate) fn drop_most() -> io::Result<()> {
    for capability in (0..64).filter(|capability| !KEPT.contains(capability)) {
        // SAFETY: takes numbers only. Fails if the kernel does not know the capability or this process has no right to
        // drop it; then there is nothing to drop.
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability as libc::c_ulong, 0, 0, 0) };
    }
    keep_only(&KEPT)
}

/// Drops every right over files and users beyond those of a server from this thread. The right to read other processes
/// stays, so that no server may trace this one.
pub(crate) fn drop_file_rights() -> io::Result<()> {
    const SYS_PTRACE: u32 = 19;
    keep_only(&[KEPT[0], KEPT[1], SYS_PTRACE])
}

/// Drops every capability. Only for a process that never executes another program, which could regain them.
pub(crate) fn drop_all() -> io::Result<()> {
    keep_only(&[])
}

/// Users other than root usually have no capabilities to drop.
fn keep_only(kept: &[u32]) -> io::Result<()> {
    let mut header = CapabilityHeader { version: 0x2008_0522, pid: 0 };
    let mut sets = [CapabilitySets { effective: 0, permitted: 0, inheritable: 0 }; 2];
    // SAFETY: both pointers are valid and have the layout that version 3 of the interface expects.
    check(unsafe { libc::syscall(libc::SYS_capget, &raw mut header, sets.as_mut_ptr()) })?;
    let kept = kept.iter().fold(0, |set, capability| set | 1 << capability);
    for (set, mask) in sets.iter_mut().zip([kept, 0]) {
        set.effective &= mask;
        set.permitted &= mask;
        set.inheritable = 0;
    }
    // SAFETY: as above.
    check(unsafe { libc::syscall(libc::SYS_capset, &raw mut header, sets.as_ptr()) })?;
    Ok(())
}
