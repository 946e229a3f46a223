//! The names of the system calls that a trace may show.

use libc::c_long;

use crate::attribute_calls::FCHMODAT2;

macro_rules! names {
    ($($(#[$condition:meta])* $name:ident),* $(,)?) => {
        &[$($(#[$condition])* (libc::$name, stringify!($name)),)*]
    };
}

const NAMES: &[(c_long, &str)] = names![
    #[cfg(target_arch = "x86_64")]
    SYS_open,
    #[cfg(target_arch = "x86_64")]
    SYS_creat,
    #[cfg(target_arch = "x86_64")]
    SYS_mkdir,
    #[cfg(target_arch = "x86_64")]
    SYS_mknod,
    #[cfg(target_arch = "x86_64")]
    SYS_rmdir,
    #[cfg(target_arch = "x86_64")]
    SYS_unlink,
    #[cfg(target_arch = "x86_64")]
    SYS_symlink,
    #[cfg(target_arch = "x86_64")]
    SYS_link,
    #[cfg(target_arch = "x86_64")]
    SYS_rename,
    #[cfg(target_arch = "x86_64")]
    SYS_renameat,
    #[cfg(target_arch = "x86_64")]
    SYS_chmod,
    #[cfg(target_arch = "x86_64")]
    SYS_chown,
    #[cfg(target_arch = "x86_64")]
    SYS_lchown,
    #[cfg(target_arch = "x86_64")]
    SYS_utime,
    #[cfg(target_arch = "x86_64")]
    SYS_utimes,
    #[cfg(target_arch = "x86_64")]
    SYS_futimesat,
    #[cfg(target_arch = "x86_64")]
    SYS_fork,
    #[cfg(target_arch = "x86_64")]
    SYS_vfork,
    #[cfg(target_arch = "x86_64")]
    SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    SYS_ioperm,
    SYS_openat,
    SYS_execve,
    SYS_execveat,
    SYS_truncate,
    SYS_mkdirat,
    SYS_mknodat,
    SYS_unlinkat,
    SYS_symlinkat,
    SYS_linkat,
    SYS_renameat2,
    SYS_fchmod,
    SYS_fchmodat,
    SYS_fchown,
    SYS_fchownat,
    SYS_utimensat,
    SYS_setxattr,
    SYS_lsetxattr,
    SYS_fsetxattr,
    SYS_removexattr,
    SYS_lremovexattr,
    SYS_fremovexattr,
    SYS_socket,
    SYS_socketpair,
    SYS_bind,
    SYS_connect,
    SYS_kill,
    SYS_tkill,
    SYS_tgkill,
    SYS_clone,
    SYS_clone3,
    SYS_mmap,
    SYS_mremap,
    SYS_brk,
    SYS_fcntl,
    SYS_ioctl,
    SYS_prlimit64,
    SYS_sched_setaffinity,
    SYS_sched_setattr,
    SYS_sched_setparam,
    SYS_sched_setscheduler,
    SYS_setpriority,
    SYS_ioprio_set,
    SYS_setuid,
    SYS_setgid,
    SYS_setgroups,
    SYS_setresuid,
    SYS_setresgid,
    SYS_dup,
    SYS_dup3,
    SYS_pipe2,
    SYS_accept4,
    SYS_epoll_create1,
    SYS_eventfd2,
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_kcmp,
    SYS_pidfd_getfd,
    SYS_process_madvise,
    SYS_move_pages,
    SYS_migrate_pages,
    SYS_fanotify_init,
    SYS_bpf,
    SYS_perf_event_open,
    SYS_userfaultfd,
    SYS_io_uring_setup,
    SYS_io_uring_enter,
    SYS_io_uring_register,
    SYS_keyctl,
    SYS_add_key,
    SYS_request_key,
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_move_mount,
    SYS_fsopen,
    SYS_fsconfig,
    SYS_fsmount,
    SYS_fspick,
    SYS_open_tree,
    SYS_mount_setattr,
    SYS_setns,
    SYS_unshare,
    SYS_open_by_handle_at,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_kexec_load,
    SYS_kexec_file_load,
    SYS_reboot,
    SYS_swapon,
    SYS_swapoff,
    SYS_acct,
    SYS_quotactl,
    SYS_syslog,
    SYS_vhangup,
    SYS_settimeofday,
    SYS_clock_settime,
    SYS_adjtimex,
    SYS_clock_adjtime,
    SYS_sethostname,
    SYS_setdomainname,
    SYS_shmget,
    SYS_shmat,
    SYS_shmctl,
    SYS_semget,
    SYS_semop,
    SYS_semtimedop,
    SYS_semctl,
    SYS_msgget,
    SYS_msgsnd,
    SYS_msgrcv,
    SYS_msgctl,
    SYS_mq_open,
    SYS_mq_unlink,
];

/// Returns the name of a system call, or its number in words.
pub(crate) fn name_of(number: c_long) -> String {
    if number == FCHMODAT2 {
        return "fchmodat2".into();
    }
    let found = NAMES.iter().find(|(known, _)| *known == number);
    found.map_or_else(
        || format!("system call {number}"),
        |(_, name)| name.trim_start_matches("SYS_").to_owned(),
    )
}
