//! What root may do beyond other users: taken away, except what has to do with files and users.

use std::io;

/// chown, dac_override, dac_read_search, fowner, fsetid, kill, setgid, setuid, net_bind_service.
const KEPT: [u32; 9] = [0, 1, 2, 3, 4, 5, 6, 7, 10];

#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Sets {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Drops for good what no tool server needs.
pub(crate) fn drop_most() -> io::Result<()> {
    for capability in (0..64).filter(|capability| !KEPT.contains(capability)) {
        // SAFETY: takes numbers only. Fails where the capability is unknown or we have no right to drop, and then
        // there is nothing to drop.
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability as libc::c_ulong, 0, 0, 0) };
    }
    keep(&KEPT)
}

/// Drops all that this process has, for one that will never become another program: only then could they come back.
pub(crate) fn drop_all() -> io::Result<()> {
    keep(&[])
}

/// For anybody but root there is usually nothing to drop.
fn keep(kept: &[u32]) -> io::Result<()> {
    let mut header = Header { version: 0x2008_0522, pid: 0 };
    let mut sets = [Sets { effective: 0, permitted: 0, inheritable: 0 }; 2];
    // SAFETY: both point at values laid out as version 3 of the interface wants them, which live long enough.
    let read = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, sets.as_mut_ptr()) };
    if read != 0 {
        return Err(io::Error::last_os_error());
    }
    let kept = kept.iter().fold(0, |set, capability| set | 1 << capability);
    for (set, mask) in sets.iter_mut().zip([kept, 0]) {
        set.effective &= mask;
        set.permitted &= mask;
        set.inheritable = 0;
    }
    // SAFETY: as above.
    let written = unsafe { libc::syscall(libc::SYS_capset, &raw mut header, sets.as_ptr()) };
    if written == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
