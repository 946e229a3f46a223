//! Which system calls: a seccomp filter that refuses, with EPERM, what no tool server needs.
//!
//! A list of what is refused, because servers are written in anything: a list of what is allowed would break with
//! the next release of any of their runtimes. The script worker, which is ours alone, will have the other kind.

use std::io;

use libc::{c_long, sock_filter, sock_fprog};

/// Younger than the list of those that have names.
const OPEN_TREE_ATTR: c_long = 467;

/// Ways to look into or change other processes, the kernel, or the machine.
const REFUSED: &[c_long] = &[
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_kcmp,
    libc::SYS_pidfd_getfd,
    libc::SYS_process_madvise,
    libc::SYS_move_pages,
    libc::SYS_migrate_pages,
    libc::SYS_fanotify_init,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_open_tree,
    libc::SYS_mount_setattr,
    OPEN_TREE_ATTR,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_open_by_handle_at,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
];

/// Of these flags none may be given to `clone`: in a user namespace of its own a process has all capabilities again.
const NAMESPACES: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u32;

/// Without a network no socket can be made; pairs, which lead nowhere, can.
const NETWORK: &[c_long] = &[libc::SYS_socket];

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xC000_00B7;

/// From here on x86_64 counts the calls of another ABI, under which the same calls have other numbers.
const OTHER_ABI: u32 = 0x4000_0000;

/// Refuses for this process and its children to come. Needs `no_new_privs`.
pub(crate) fn refuse(harden: bool, network: bool) -> io::Result<()> {
    let mut refused = Vec::new();
    refused.extend(harden.then_some(REFUSED).into_iter().flatten());
    refused.extend((!network).then_some(NETWORK).into_iter().flatten());
    if refused.is_empty() {
        return Ok(());
    }
    let mut program = program(&refused, harden);
    let filter = sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: `filter` points at `program`, which lives until the call returns; the kernel copies it.
    let result =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const filter) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A program of the kernel's little machine: the wrong architecture dies, what is refused gets EPERM.
fn program(refused: &[c_long], harden: bool) -> Vec<sock_filter> {
    const ARCH_AT: u32 = 4;
    const NUMBER_AT: u32 = 0;
    // The low half of the first argument, on machines that put it first.
    const FLAGS_AT: u32 = 16;
    let load = |at| op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at, 0, 0);
    let answer = |what| op(libc::BPF_RET | libc::BPF_K, what, 0, 0);
    let mut out = vec![
        load(ARCH_AT),
        op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, ARCHITECTURE, 1, 0),
        answer(libc::SECCOMP_RET_KILL_PROCESS),
        load(NUMBER_AT),
        op(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, OTHER_ABI, 0, 1),
        answer(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
    ];
    if harden {
        out.extend([
            // What it is given lies in memory, where a filter cannot look. Every libc does without it.
            op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, libc::SYS_clone3 as u32, 0, 1),
            answer(libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
            op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, libc::SYS_clone as u32, 0, 4),
            load(FLAGS_AT),
            op(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, NAMESPACES, 0, 1),
            answer(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
            load(NUMBER_AT),
            // The limits of others are not its to set: a process without time, or without files, is as good as dead.
            op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, libc::SYS_prlimit64 as u32, 0, 4),
            load(FLAGS_AT),
            op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, 0),
            answer(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
            load(NUMBER_AT),
        ]);
    }
    for number in refused {
        out.push(op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, *number as u32, 0, 1));
        out.push(answer(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32));
    }
    out.push(answer(libc::SECCOMP_RET_ALLOW));
    out
}

fn op(code: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code: code as u16, jt, jf, k }
}
