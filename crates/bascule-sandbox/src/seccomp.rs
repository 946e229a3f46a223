//! Builds and installs seccomp filters, which are small BPF programs.
//!
//! The lists of system calls are elsewhere: `server_syscalls` for tool servers, `worker_syscalls` for script workers.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use libc::{c_long, sock_filter, sock_fprog};

use crate::syscall_result::check;

#[cfg(target_arch = "x86_64")]
pub(crate) const ARCHITECTURE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
pub(crate) const ARCHITECTURE: u32 = 0xC000_00B7;

/// Offsets in the kernel's `seccomp_data`.
const NUMBER_OFFSET: u32 = 0;
const ARCHITECTURE_OFFSET: u32 = 4;

/// Kills the whole process with SIGSYS.
pub(crate) const KILL: u32 = libc::SECCOMP_RET_KILL_PROCESS;
pub(crate) const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
/// Asks the process that has the listener.
pub(crate) const NOTIFY: u32 = libc::SECCOMP_RET_USER_NOTIF;

/// The action that makes the call fail.
pub(crate) const fn fail_with(errno: i32) -> u32 {
    libc::SECCOMP_RET_ERRNO | errno as u32
}

/// The start of every filter: kills a call made for another architecture, then loads the call's number.
pub(crate) fn prologue() -> [sock_filter; 4] {
    [load(ARCHITECTURE_OFFSET), skip(libc::BPF_JEQ, ARCHITECTURE, 1, 0), act(KILL), load(NUMBER_OFFSET)]
}

/// The start of a filter that must not refuse anything: allows calls made for another architecture.
pub(crate) fn permissive_prologue() -> [sock_filter; 4] {
    [load(ARCHITECTURE_OFFSET), skip(libc::BPF_JEQ, ARCHITECTURE, 1, 0), act(ALLOW), load(NUMBER_OFFSET)]
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

/// Applies an action to a system call that has none of these bits in an argument.
pub(crate) fn act_on_missing_bits(number: c_long, index: u32, bits: u32, action: u32) -> Vec<sock_filter> {
    only_for(number, vec![load(argument_offset(index)), skip(libc::BPF_JSET, bits, 1, 0), act(action)])
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
pub(crate) fn install(program: Vec<sock_filter>) -> io::Result<()> {
    install_with_flags(program, 0).map(drop)
}

/// Installs a filter and returns its listener, which receives the calls whose action is `NOTIFY`. Fails if a filter of
/// this process has one already.
pub(crate) fn install_with_listener(program: Vec<sock_filter>) -> io::Result<OwnedFd> {
    const NEW_LISTENER: libc::c_ulong = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    // With this flag (Linux 5.19) only SIGKILL interrupts a call that the listener has received. Otherwise a signal whose
    // handler does not restart calls makes `fork` fail with EINTR, which programs do not expect.
    const WAIT_KILLABLE: libc::c_ulong = 1 << 5;
    let listener = install_with_flags(program.clone(), NEW_LISTENER | WAIT_KILLABLE)
        .or_else(|_| install_with_flags(program, NEW_LISTENER))?;
    // SAFETY: the kernel has just opened it, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(listener as i32) })
}

fn install_with_flags(mut program: Vec<sock_filter>, flags: libc::c_ulong) -> io::Result<libc::c_long> {
    let filter = sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: `filter` points at `program`, which lives until the call returns; the kernel copies it.
    check(unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const filter)
    })
}
