//! The seccomp filter of tool servers: refuses system calls that no tool server needs.
//!
//! It lists refused calls, because servers use any runtime, and a list of allowed calls would break with the next
//! release of one of them. Sockets are the exception: only the listed address families are allowed. Script workers run
//! our own code and have a list of allowed calls (`worker_syscalls`).

use std::io;
use std::os::fd::OwnedFd;

use libc::{c_long, sock_filter};

use crate::attribute_calls::{ATTRIBUTE_CALLS, FCHMODAT2};
use crate::fork_gate::FORK_SYSCALLS;
use crate::policy::Policy;
use crate::seccomp::{
    self, NOTIFY, act, act_on, act_on_argument, act_on_bits, act_on_missing_bits, act_on_values, fail_with,
    skip,
};
use crate::{file_attributes, notifications};

/// Not yet defined in `libc`.
const SETXATTRAT: c_long = 463;
const REMOVEXATTRAT: c_long = 466;
const OPEN_TREE_ATTR: c_long = 467;
const FILE_SETATTR: c_long = 469;

/// Calls that inspect or change other processes, the kernel or the machine, or leave memory behind.
pub(crate) const REFUSED: &[c_long] = &[
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
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
];

/// Newer forms of the calls that change attributes. Programs fall back to the older ones.
const NEW_ATTRIBUTE_CALLS: &[c_long] = &[SETXATTRAT, REMOVEXATTRAT, FILE_SETATTR];

/// Calls that set a file's mode, with the index of the mode among their arguments.
const MODES: &[(c_long, u32)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mknod, 1),
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    (FCHMODAT2, 2),
    (libc::SYS_mknodat, 2),
];

/// Calls that create a file if their flags say so, with the index of the flags. The mode is the next argument.
const CREATES: &[(c_long, u32)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 1),
    (libc::SYS_openat, 2),
];

/// `ioctl` requests that change the flags, version or project of a file, or seal it (`FS_IOC_…`), and that create, delete
/// or change subvolumes of Btrfs, which Landlock does not cover. A descriptor for reading is enough for all of them.
const FILE_IOCTLS: &[u32] = &[
    0x4008_6602, // SETFLAGS
    0x4004_6602, // SETFLAGS of 32-bit programs
    0x4008_7602, // SETVERSION
    0x4004_7602, // SETVERSION of 32-bit programs
    0x401c_5820, // FSSETXATTR
    0x4080_6685, // ENABLE_VERITY
    0x800c_6613, // SET_ENCRYPTION_POLICY
    0x5000_9401, // BTRFS_IOC_SNAP_CREATE
    0x5000_940e, // BTRFS_IOC_SUBVOL_CREATE
    0x5000_940f, // BTRFS_IOC_SNAP_DESTROY
    0x5000_9417, // BTRFS_IOC_SNAP_CREATE_V2
    0x5000_9418, // BTRFS_IOC_SUBVOL_CREATE_V2
    0x4008_941a, // BTRFS_IOC_SUBVOL_SETFLAGS
    0xc0c8_9425, // BTRFS_IOC_SET_RECEIVED_SUBVOL
    0x5000_943f, // BTRFS_IOC_SNAP_DESTROY_V2
];

/// `fcntl` commands that delay or observe other processes' use of a file.
const FILE_COMMANDS: &[u32] = &[libc::F_SETLEASE as u32, libc::F_NOTIFY as u32];

/// A program with one of these bits runs with the rights of its owner or group.
const SET_ID: u32 = libc::S_ISUID | libc::S_ISGID;

/// Flags refused in `clone`: a process in a new user namespace regains all capabilities.
const NAMESPACES: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u32;

/// Calls that a process may make only on itself: an argument (by index) must have the value.
const ONLY_ON_SELF: &[(c_long, u32, u32)] = &[
    (libc::SYS_prlimit64, 0, 0),
    (libc::SYS_sched_setaffinity, 0, 0),
    (libc::SYS_sched_setattr, 0, 0),
    (libc::SYS_sched_setparam, 0, 0),
    (libc::SYS_sched_setscheduler, 0, 0),
    (libc::SYS_setpriority, 0, libc::PRIO_PROCESS),
    (libc::SYS_setpriority, 1, 0),
    (libc::SYS_ioprio_set, 0, IOPRIO_WHO_PROCESS),
    (libc::SYS_ioprio_set, 1, 0),
];

const IOPRIO_WHO_PROCESS: u32 = 1;

/// The families of sockets to other machines, and of the kernel's list of network interfaces.
const NETWORK_FAMILIES: &[i32] = &[libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// The types of a socket pair that cannot be connected to another socket later.
const PAIR_TYPES: &[u32] = &[libc::SOCK_STREAM as u32, libc::SOCK_SEQPACKET as u32];
/// The bits of a socket's type, without its flags.
const SOCKET_TYPE: u32 = 0xf;

/// x86_64 numbers the calls of its x32 ABI from here. They would bypass the list.
const X32_ABI: u32 = 0x4000_0000;

const REFUSE: u32 = fail_with(libc::EPERM);
const NO_SUCH_CALL: u32 = fail_with(libc::ENOSYS);
const ALL_BITS: u32 = u32::MAX;

/// Returns true for a call that a process may make only on itself.
pub(crate) fn is_limited_to_self(number: c_long) -> bool {
    ONLY_ON_SELF.iter().any(|(limited, ..)| *limited == number)
}

/// Installs the filter for this process and its future children. Returns the listener that decides about forks, for the
/// reaper, where the kernel provides one. Needs `no_new_privs`.
pub(crate) fn restrict(policy: &Policy, notify_threads: bool) -> io::Result<Option<OwnedFd>> {
    if notifications::are_available() {
        let mut program = refusals(policy).unwrap_or_else(|| seccomp::permissive_prologue().into());
        add_forks(&mut program, notify_threads);
        if policy.checks_attributes() && file_attributes::can_answer() {
            program.extend(ATTRIBUTE_CALLS.iter().flat_map(|number| act_on(*number, NOTIFY)));
        }
        program.push(act(seccomp::ALLOW));
        // Fails inside a container or sandbox whose filter has a listener. The reaper works without one, too.
        if let Ok(listener) = seccomp::install_with_listener(program) {
            return Ok(Some(listener));
        }
    }
    restrict_without_listener(policy).map(|()| None)
}

/// Installs the part of the filter that needs no reaper.
pub(crate) fn restrict_without_listener(policy: &Policy) -> io::Result<()> {
    let Some(mut program) = refusals(policy) else { return Ok(()) };
    program.push(act(seccomp::ALLOW));
    seccomp::install(program)
}

/// The filter without its last instruction, which allows the rest. `None` if the policy refuses nothing.
fn refusals(policy: &Policy) -> Option<Vec<sock_filter>> {
    if !policy.harden && policy.network {
        return None;
    }
    let mut out = Vec::from(seccomp::prologue());
    out.extend([skip(libc::BPF_JGE, X32_ABI, 0, 1), act(REFUSE)]);
    add_sockets(&mut out, policy);
    if policy.harden {
        add_hardening(&mut out);
    }
    if policy.harden && !policy.file_metadata {
        out.extend(ATTRIBUTE_CALLS.iter().flat_map(|number| act_on(*number, REFUSE)));
    }
    Some(out)
}

/// Threads need no decision where a control group limits them: they end with their process.
fn add_forks(out: &mut Vec<sock_filter>, notify_threads: bool) {
    for number in FORK_SYSCALLS {
        out.extend(match *number == libc::SYS_clone && !notify_threads {
            true => act_on_missing_bits(*number, 0, libc::CLONE_THREAD as u32, NOTIFY),
            false => act_on(*number, NOTIFY).into(),
        });
    }
}

/// Socket pairs stay allowed without a network: they connect to nothing else.
fn add_sockets(out: &mut Vec<sock_filter>, policy: &Policy) {
    let network = policy.network.then_some(NETWORK_FAMILIES).into_iter().flatten().copied();
    let families: Vec<u32> =
        network.chain(policy.unix_sockets.then_some(libc::AF_UNIX)).map(|family| family as u32).collect();
    out.extend(act_on_argument(libc::SYS_socket, 0, ALL_BITS, &families, fail_with(libc::EACCES)));
    out.extend(act_on_argument(libc::SYS_socketpair, 0, ALL_BITS, &[libc::AF_UNIX as u32], REFUSE));
    if !policy.unix_sockets {
        // A datagram socket of a pair can be connected again, to any path.
        out.extend(act_on_argument(libc::SYS_socketpair, 1, SOCKET_TYPE, PAIR_TYPES, REFUSE));
    }
}

fn add_hardening(out: &mut Vec<sock_filter>) {
    // Their arguments are in memory, which a filter cannot read. Programs fall back to `clone` and `openat`.
    out.extend(act_on(libc::SYS_clone3, NO_SUCH_CALL));
    out.extend(act_on(libc::SYS_openat2, NO_SUCH_CALL));
    out.extend(act_on_bits(libc::SYS_clone, 0, NAMESPACES, None, REFUSE));
    out.extend(NEW_ATTRIBUTE_CALLS.iter().flat_map(|number| act_on(*number, NO_SUCH_CALL)));
    out.extend(act_on_values(libc::SYS_fcntl, 1, FILE_COMMANDS, REFUSE));
    out.extend(act_on_values(libc::SYS_ioctl, 1, FILE_IOCTLS, REFUSE));
    for (number, index) in MODES {
        out.extend(act_on_bits(*number, *index, SET_ID, None, REFUSE));
    }
    for (number, flags) in CREATES {
        let creates = (libc::O_CREAT | (libc::O_TMPFILE & !libc::O_DIRECTORY)) as u32;
        out.extend(act_on_bits(*number, flags + 1, SET_ID, Some((*flags, creates)), REFUSE));
    }
    for (number, index, value) in ONLY_ON_SELF {
        out.extend(act_on_argument(*number, *index, ALL_BITS, &[*value], REFUSE));
    }
    out.extend(REFUSED.iter().flat_map(|number| act_on(*number, REFUSE)));
}
