//! Which system calls: a seccomp filter that refuses, with EPERM, what no tool server needs.
//!
//! A list of what is refused, because servers are written in anything: a list of what is allowed would break with
//! the next release of any of their runtimes. The script worker, which is ours alone, has the other kind (`allowed`).

use std::io;

use libc::{c_long, sock_filter};

use crate::filter::{self, NUMBER_AT, answer, answer_to, argument_at, load, refuse_with, skip};

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

/// From here on x86_64 counts the calls of another ABI, under which the same calls have other numbers.
const OTHER_ABI: u32 = 0x4000_0000;

const REFUSE: u32 = refuse_with(libc::EPERM);

/// Refuses for this process and its children to come. Needs `no_new_privs`.
pub(crate) fn refuse(harden: bool, network: bool) -> io::Result<()> {
    let mut refused = Vec::new();
    refused.extend(harden.then_some(REFUSED).into_iter().flatten());
    refused.extend((!network).then_some(NETWORK).into_iter().flatten());
    if refused.is_empty() {
        return Ok(());
    }
    filter::install(program(&refused, harden))
}

/// The wrong architecture dies, what is refused gets EPERM.
fn program(refused: &[c_long], harden: bool) -> Vec<sock_filter> {
    let mut out = Vec::from(filter::opening());
    out.extend([skip(libc::BPF_JGE, OTHER_ABI, 0, 1), answer(REFUSE)]);
    if harden {
        // What it is given lies in memory, where a filter cannot look. Every libc does without it.
        out.extend(answer_to(libc::SYS_clone3, refuse_with(libc::ENOSYS)));
        out.extend([
            skip(libc::BPF_JEQ, libc::SYS_clone as u32, 0, 4),
            load(argument_at(0)),
            skip(libc::BPF_JSET, NAMESPACES, 0, 1),
            answer(REFUSE),
            load(NUMBER_AT),
            // The limits of others are not its to set: a process without time, or without files, is as good as dead.
            skip(libc::BPF_JEQ, libc::SYS_prlimit64 as u32, 0, 4),
            load(argument_at(0)),
            skip(libc::BPF_JEQ, 0, 1, 0),
            answer(REFUSE),
            load(NUMBER_AT),
        ]);
    }
    out.extend(refused.iter().flat_map(|number| answer_to(*number, REFUSE)));
    out.push(answer(filter::ALLOW));
    out
}
