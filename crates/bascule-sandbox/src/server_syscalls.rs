//! The seccomp filter of tool servers: refuses, with EPERM, system calls that no tool server needs.
//!
//! It lists refused calls, because servers use any runtime, and a list of allowed calls would break with the next
//! release of one of them. Script workers run our own code and have a list of allowed calls (`worker_syscalls`).

use std::io;

use libc::{c_long, sock_filter};

use crate::seccomp::{self, NUMBER_OFFSET, act, act_on, argument_offset, fail_with, load, skip};

/// Not yet defined in `libc`.
const OPEN_TREE_ATTR: c_long = 467;

/// Calls that inspect or change other processes, the kernel or the machine.
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

/// Flags refused in `clone`: a process in a new user namespace regains all capabilities.
const NAMESPACES: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u32;

/// Refused to servers without network access. Socket pairs stay allowed: they connect to nothing else.
const NETWORK: &[c_long] = &[libc::SYS_socket];

/// x86_64 numbers the calls of its x32 ABI from here. They would bypass the list.
const X32_ABI: u32 = 0x4000_0000;

const REFUSE: u32 = fail_with(libc::EPERM);

/// Installs the filter for this process and its future children. Needs `no_new_privs`.
pub(crate) fn restrict(harden: bool, network: bool) -> io::Result<()> {
    let mut refused = Vec::new();
    refused.extend(harden.then_some(REFUSED).into_iter().flatten());
    refused.extend((!network).then_some(NETWORK).into_iter().flatten());
    if refused.is_empty() {
        return Ok(());
    }
    seccomp::install(program(&refused, harden))
}

fn program(refused: &[c_long], harden: bool) -> Vec<sock_filter> {
    let mut out = Vec::from(seccomp::prologue());
    out.extend([skip(libc::BPF_JGE, X32_ABI, 0, 1), act(REFUSE)]);
    if harden {
        // Its arguments are in memory, which a filter cannot read. Every libc falls back to `clone`.
        out.extend(act_on(libc::SYS_clone3, fail_with(libc::ENOSYS)));
        out.extend([
            skip(libc::BPF_JEQ, libc::SYS_clone as u32, 0, 4),
            load(argument_offset(0)),
            skip(libc::BPF_JSET, NAMESPACES, 0, 1),
            act(REFUSE),
            load(NUMBER_OFFSET),
            // `prlimit64` only on itself: a limit of zero processor time or files would stop another process.
            skip(libc::BPF_JEQ, libc::SYS_prlimit64 as u32, 0, 4),
            load(argument_offset(0)),
            skip(libc::BPF_JEQ, 0, 1, 0),
            act(REFUSE),
            load(NUMBER_OFFSET),
        ]);
    }
    out.extend(refused.iter().flat_map(|number| act_on(*number, REFUSE)));
    out.push(act(seccomp::ALLOW));
    out
}
