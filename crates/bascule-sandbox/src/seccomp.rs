//! Builds and installs seccomp filters, which are small BPF programs.
//!
//! The lists of system calls are elsewhere: `server_syscalls` for tool servers, `worker_syscalls` for script workers.

use std::io;

use libc::{c_long, sock_filter, sock_fprog};

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xC000_00B7;

/// Offsets in the kernel's `seccomp_data`.
const NUMBER_OFFSET: u32 = 0;
const ARCHITECTURE_OFFSET: u32 = 4;

/// Kills the whole process with SIGSYS.
pub(crate) const KILL: u32 = libc::SECCOMP_RET_KILL_PROCESS;
pub(crate) const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;

/// The action that makes the call fail.
pub(crate) const fn fail_with(errno: i32) -> u32 {
    libc::SECCOMP_RET_ERRNO | errno as u32
}

/// The start of every filter: kills a call made for another architecture, then loads the call's number.
pub(crate) fn prologue() -> [sock_filter; 4] {
    [load(ARCHITECTURE_OFFSET), skip(libc::BPF_JEQ, ARCHITECTURE, 1, 0), act(KILL), load(NUMBER_OFFSET)]
}

/// Applies an action to one system call.
pub(crate) fn act_on(number: c_long, action: u32) -> [sock_filter; 2] {
    [skip(libc::BPF_JEQ, number as u32, 0, 1), act(action)]
}

/// Applies an action to a system call unless an argument, masked, has one of the allowed values. The argument is an `int`.
pub(crate) fn act_on_argument(
    number: c_long,
    index: u32,
    bits: u32,
    allowed: &[u32],
    action: u32,
) -> Vec<sock_filter> {
    let mut check = vec![load(argument_offset(index)), mask(bits)];
    for (place, value) in allowed.iter().enumerate() {
        // Skips the later comparisons and the action.
        check.push(skip(libc::BPF_JEQ, *value, (allowed.len() - place) as u8, 0));
    }
    check.push(act(action));
    only_for(number, check)
}

/// Applies an action to a system call if an argument has one of the values.
pub(crate) fn act_on_values(number: c_long, index: u32, values: &[u32], action: u32) -> Vec<sock_filter> {
    let mut check = vec![load(argument_offset(index))];
    for value in values {
        check.extend([skip(libc::BPF_JEQ, *value, 0, 1), act(action)]);
    }
    only_for(number, check)
}

/// Applies an action to a system call that has one of these bits in an argument. The condition is another argument and its
/// bits, of which one must be set, too.
pub(crate) fn act_on_bits(
    number: c_long,
    index: u32,
    bits: u32,
    condition: Option<(u32, u32)>,
    action: u32,
) -> Vec<sock_filter> {
    let mut check = Vec::new();
    if let Some((index, bits)) = condition {
        check.extend([load(argument_offset(index)), skip(libc::BPF_JSET, bits, 0, 3)]);
    }
    check.extend([load(argument_offset(index)), skip(libc::BPF_JSET, bits, 0, 1), act(action)]);
    only_for(number, check)
}

/// Runs the instructions for one system call only, then loads the number again for the next check.
fn only_for(number: c_long, mut check: Vec<sock_filter>) -> Vec<sock_filter> {
    check.push(load(NUMBER_OFFSET));
    check.insert(0, skip(libc::BPF_JEQ, number as u32, 0, check.len() as u8));
    check
}

/// Offset of the low half of an argument. Both supported architectures are little-endian, so the low half is first. The
/// kernel reads no more of an argument of type `int`.
pub(crate) const fn argument_offset(index: u32) -> u32 {
    16 + 8 * index
}

pub(crate) fn load(offset: u32) -> sock_filter {
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset, 0, 0)
}

pub(crate) fn mask(bits: u32) -> sock_filter {
    instruction(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, bits, 0, 0)
}

pub(crate) fn act(action: u32) -> sock_filter {
    instruction(libc::BPF_RET | libc::BPF_K, action, 0, 0)
}

/// Compares the loaded value, then skips `if_true` or `if_false` instructions.
pub(crate) fn skip(comparison: u32, value: u32, if_true: u8, if_false: u8) -> sock_filter {
    instruction(libc::BPF_JMP | comparison | libc::BPF_K, value, if_true, if_false)
}

fn instruction(code: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code: code as u16, jt, jf, k }
}

/// Installs a filter for this thread and its future children. It cannot be removed. Needs `no_new_privs`.
pub(crate) fn install(mut program: Vec<sock_filter>) -> io::Result<()> {
    let filter = sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: `filter` points at `program`, which lives until the call returns; the kernel copies it.
    let result =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const filter) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
