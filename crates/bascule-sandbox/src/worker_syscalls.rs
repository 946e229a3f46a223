//! The seccomp filter of script workers: lists the allowed system calls and kills the process on any other.
//!
//! A worker may manage memory, read clocks and random numbers, and use its standard input, output and error. Calls made
//! for every message are near the top, because the kernel evaluates the list from there.

use std::io;

use libc::{c_long, sock_filter};

use crate::seccomp::{self, ALLOW, KILL, act, act_on, argument_offset, fail_with, load, mask, skip};

/// Allowed on descriptors 0 to 2 only: the socket, standard output and standard error.
const ON_STANDARD_DESCRIPTORS: &[c_long] = &[
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_fstat,
    libc::SYS_close,
];

/// Allowed with any arguments.
const ANY_ARGUMENTS: &[c_long] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_brk,
    libc::SYS_madvise,
    // Usually served by the vDSO, but not on every machine.
    libc::SYS_clock_gettime,
    libc::SYS_gettimeofday,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_restart_syscall,
    libc::SYS_getrandom,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_sched_yield,
    // Needed by panics, stack overflow handling and `abort`.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Allowed without PROT_EXEC: executable memory would let a script that exploits the engine run its own code.
const WITHOUT_EXEC: &[c_long] = &[libc::SYS_mmap, libc::SYS_mprotect];

/// Fail with an error. The C library makes these calls for information it can do without: the terminal, the type and
/// the limits of its output.
const FAILING: &[(c_long, i32)] = &[
    (libc::SYS_ioctl, libc::ENOTTY),
    (libc::SYS_newfstatat, libc::EACCES),
    (libc::SYS_prlimit64, libc::EPERM),
];

/// Installs the filter for this process. Needs `no_new_privs`.
pub(crate) fn restrict() -> io::Result<()> {
    seccomp::install(program(std::process::id()))
}

/// System calls of the x32 ABI have other numbers, none of which is listed.
fn program(own_pid: u32) -> Vec<sock_filter> {
    let is_standard = [skip(libc::BPF_JGT, libc::STDERR_FILENO as u32, 1, 0)];
    let is_not_executable = [skip(libc::BPF_JSET, libc::PROT_EXEC as u32, 1, 0)];
    let is_own_pid = [skip(libc::BPF_JEQ, own_pid, 0, 1)];
    let mut out = Vec::from(seccomp::prologue());
    out.extend(ON_STANDARD_DESCRIPTORS.iter().flat_map(|number| allow_if(*number, 0, &is_standard)));
    out.extend(ANY_ARGUMENTS.iter().flat_map(|number| act_on(*number, ALLOW)));
    out.extend(WITHOUT_EXEC.iter().flat_map(|number| allow_if(*number, 2, &is_not_executable)));
    // `abort` signals its own process with one of these.
    out.extend(
        [libc::SYS_tgkill, libc::SYS_tkill].iter().flat_map(|number| allow_if(*number, 0, &is_own_pid)),
    );
    out.extend(allow_if(libc::SYS_futex, 1, &is_wait_or_wake()));
    // Debug builds of Rust's standard library check that a descriptor is open before they close it.
    out.extend(allow_if(libc::SYS_fcntl, 1, &[skip(libc::BPF_JEQ, libc::F_GETFD as u32, 0, 1)]));
    out.extend(FAILING.iter().flat_map(|(number, errno)| act_on(*number, fail_with(*errno))));
    out.push(act(KILL));
    out
}

/// Futex operations that locks use. Priority-inheriting operations have had exploitable kernel bugs.
fn is_wait_or_wake() -> [sock_filter; 4] {
    [
        mask(!(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME) as u32),
        skip(libc::BPF_JEQ, libc::FUTEX_WAIT as u32, 2, 0),
        skip(libc::BPF_JEQ, libc::FUTEX_WAKE as u32, 1, 0),
        skip(libc::BPF_JEQ, libc::FUTEX_WAIT_BITSET as u32, 0, 1),
    ]
}

/// Allows a system call if one argument passes a test, else kills. The test continues with the next instruction to allow,
/// and skips one instruction to kill.
fn allow_if(number: c_long, argument: u32, test: &[sock_filter]) -> Vec<sock_filter> {
    let length = test.len() as u8 + 3;
    let mut out = vec![skip(libc::BPF_JEQ, number as u32, 0, length), load(argument_offset(argument))];
    out.extend(test);
    out.extend([act(ALLOW), act(KILL)]);
    out
}
