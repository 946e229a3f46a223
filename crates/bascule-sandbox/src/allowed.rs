//! Which system calls a script worker may make: a seccomp filter that ends the process at any other.
//!
//! What is left is memory, time, chance, and talk on the three descriptors it was born with. A call that is made for
//! every message stands near the top: the kernel goes through the list from there.

use std::io;

use libc::{c_long, sock_filter};

use crate::filter::{self, ALLOW, KILL, answer, answer_to, argument_at, load, mask, refuse_with, skip};

/// On the socket, standard output and standard error, and on no other descriptor, should there ever be one.
const ON_ITS_DESCRIPTORS: &[c_long] = &[
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

/// Whatever their arguments.
const HARMLESS: &[c_long] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_brk,
    libc::SYS_madvise,
    // Mostly answered without the kernel, but not on every machine.
    libc::SYS_clock_gettime,
    libc::SYS_gettimeofday,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_restart_syscall,
    libc::SYS_getrandom,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_sched_yield,
    // What a panic, an overflowing stack and `abort` need to end in their own way.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// With memory that could be executed a script that broke the engine could go on with code of its own.
const WITHOUT_EXEC: &[c_long] = &[libc::SYS_mmap, libc::SYS_mprotect];

/// The C library asks and can do without an answer: whether it writes to a terminal, into what it writes, and how much
/// it may.
const REFUSED: &[(c_long, i32)] = &[
    (libc::SYS_ioctl, libc::ENOTTY),
    (libc::SYS_newfstatat, libc::EACCES),
    (libc::SYS_prlimit64, libc::EPERM),
];

/// Ends this process at everything else from now on. Needs `no_new_privs`.
pub(crate) fn allow_only_what_a_worker_needs() -> io::Result<()> {
    filter::install(program(std::process::id()))
}

/// The calls of x86_64's other ABI have numbers of their own, none of which is in a list.
fn program(own: u32) -> Vec<sock_filter> {
    let beyond_its_descriptors = [skip(libc::BPF_JGT, libc::STDERR_FILENO as u32, 1, 0)];
    let with_exec = [skip(libc::BPF_JSET, libc::PROT_EXEC as u32, 1, 0)];
    let own = [skip(libc::BPF_JEQ, own, 0, 1)];
    let mut out = Vec::from(filter::opening());
    out.extend(ON_ITS_DESCRIPTORS.iter().flat_map(|number| checked(*number, 0, &beyond_its_descriptors)));
    out.extend(HARMLESS.iter().flat_map(|number| answer_to(*number, ALLOW)));
    out.extend(WITHOUT_EXEC.iter().flat_map(|number| checked(*number, 2, &with_exec)));
    // `abort` signals itself, by one or the other.
    out.extend([libc::SYS_tgkill, libc::SYS_tkill].iter().flat_map(|number| checked(*number, 0, &own)));
    out.extend(checked(libc::SYS_futex, 1, &plain_futex()));
    // Rust's debug builds ask whether a descriptor is open before they close it.
    out.extend(checked(libc::SYS_fcntl, 1, &[skip(libc::BPF_JEQ, libc::F_GETFD as u32, 0, 1)]));
    out.extend(REFUSED.iter().flat_map(|(number, errno)| answer_to(*number, refuse_with(*errno))));
    out.push(answer(KILL));
    out
}

/// Waiting and waking, as locks do. The rest, which hands priorities on, has been a way into the kernel before.
fn plain_futex() -> [sock_filter; 4] {
    [
        mask(!(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME) as u32),
        skip(libc::BPF_JEQ, libc::FUTEX_WAIT as u32, 2, 0),
        skip(libc::BPF_JEQ, libc::FUTEX_WAKE as u32, 1, 0),
        skip(libc::BPF_JEQ, libc::FUTEX_WAIT_BITSET as u32, 0, 1),
    ]
}

/// If this is the call, one argument decides: the test goes on to the next instruction to allow it, and skips that to kill.
fn checked(number: c_long, place: u32, test: &[sock_filter]) -> Vec<sock_filter> {
    let length = test.len() as u8 + 3;
    let mut out = vec![skip(libc::BPF_JEQ, number as u32, 0, length), load(argument_at(place))];
    out.extend(test);
    out.extend([answer(ALLOW), answer(KILL)]);
    out
}
