//! Programs of the kernel's little machine that filters system calls (seccomp): how one is written, and put in force.
//!
//! Which calls are let through is said elsewhere: `syscalls` for tool servers, `allowed` for the script worker.

use std::io;

use libc::{c_long, sock_filter, sock_fprog};

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xC000_00B7;

/// Where the kernel puts the number of the call, and for which architecture it was made.
pub(crate) const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;

/// Ends the whole process, as if by SIGSYS.
pub(crate) const KILL: u32 = libc::SECCOMP_RET_KILL_PROCESS;
pub(crate) const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;

/// Fails the call.
pub(crate) const fn refuse_with(errno: i32) -> u32 {
    libc::SECCOMP_RET_ERRNO | errno as u32
}

/// What a filter starts with: calls counted in another architecture's way are the end, then the number is looked at.
pub(crate) fn opening() -> [sock_filter; 4] {
    [load(ARCHITECTURE_AT), skip(libc::BPF_JEQ, ARCHITECTURE, 1, 0), answer(KILL), load(NUMBER_AT)]
}

/// If this is the call, this is the answer.
pub(crate) fn answer_to(number: c_long, what: u32) -> [sock_filter; 2] {
    [skip(libc::BPF_JEQ, number as u32, 0, 1), answer(what)]
}

/// Where the low half of an argument is, on machines that put it first, as both of ours do. The kernel looks at no more
/// of what it takes for an `int`.
pub(crate) const fn argument_at(place: u32) -> u32 {
    16 + 8 * place
}

pub(crate) fn load(at: u32) -> sock_filter {
    op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at, 0, 0)
}

pub(crate) fn mask(bits: u32) -> sock_filter {
    op(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, bits, 0, 0)
}

pub(crate) fn answer(what: u32) -> sock_filter {
    op(libc::BPF_RET | libc::BPF_K, what, 0, 0)
}

/// Compares what was loaded; skips so many instructions if that holds, and so many if not.
pub(crate) fn skip(how: u32, value: u32, if_so: u8, if_not: u8) -> sock_filter {
    op(libc::BPF_JMP | how | libc::BPF_K, value, if_so, if_not)
}

fn op(code: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code: code as u16, jt, jf, k }
}

/// Puts a filter in force for this thread and its children to come, for good. Needs `no_new_privs`.
pub(crate) fn install(mut program: Vec<sock_filter>) -> io::Result<()> {
    let filter = sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: `filter` points at `program`, which lives until the call returns; the kernel copies it.
    let result =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const filter) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
