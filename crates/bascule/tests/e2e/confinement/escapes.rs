//! Attacks on the bridge, on other processes and on the kernel.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use serde_json::json;

use super::hostile_server::{HostileServer, users};

/// Python that finds the bridge: the parent of the parent.
const FIND_BRIDGE: &str =
    "parent = os.getppid(); bridge = int(open(f'/proc/{parent}/stat').read().rsplit(')', 1)[1].split()[1])\n";

/// Python that makes a system call by number and raises its error.
const SYSCALL: &str = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\ndef call(*a):\n    if libc.syscall(*a) < 0: raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))\n";

// req: SB-04
#[test]
fn server_cannot_signal_bridge() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({}));
        for victim in ["bridge", "parent"] {
            for signal in [0, 9, 15, 19] {
                hostile.expect_denied(&format!("{FIND_BRIDGE}os.kill({victim}, {signal})"));
            }
        }
        hostile.expect_ok("import subprocess; p = subprocess.Popen(['sleep', '60']); p.kill(); p.wait()");
    }
}

// req: SB-04
#[test]
fn server_cannot_read_environment_of_bridge() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({}));
        for victim in ["bridge", "parent"] {
            hostile.expect_denied(&format!("{FIND_BRIDGE}print(open(f'/proc/{{{victim}}}/environ').read())"));
            hostile.expect_denied(&format!("{FIND_BRIDGE}open(f'/proc/{{{victim}}}/mem', 'rb').read(1)"));
        }
        assert!(!hostile.expect_ok("print(dict(os.environ))").contains("the secret"));
    }
}

// req: SB-04
#[test]
fn server_cannot_set_limits_of_others() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({}));
        for victim in ["bridge", "parent"] {
            for limit in ["CPU", "NOFILE"] {
                let code = format!(
                    "{FIND_BRIDGE}import resource; resource.prlimit({victim}, resource.RLIMIT_{limit}, (0, 0))"
                );
                hostile.expect_denied(&code);
            }
        }
        hostile.expect_ok("import resource; resource.setrlimit(resource.RLIMIT_CPU, (600, 600))");
    }
}

// req: SB-04
#[test]
fn server_cannot_create_user_namespace() {
    const NEW_USER: u32 = 0x1000_0000;
    for user in users() {
        let hostile = HostileServer::new(user, json!({}));
        hostile.expect_denied(&format!(
            "{SYSCALL}call({}, {NEW_USER} | 17, 0, 0, 0, 0)",
            syscall_number("clone")
        ));
        hostile.expect_ok("import subprocess, threading; subprocess.run(['true'], check=True); t = threading.Thread(target=print); t.start(); t.join()");
    }
}

// req: SB-04
#[test]
fn server_cannot_open_terminal() {
    for user in users() {
        for sandbox in ["standard", "strict"] {
            let hostile = HostileServer::new(user, json!({ "sandbox": sandbox }));
            hostile.expect_denied("open('/dev/ptmx', 'r+b', buffering=0)");
        }
    }
}

// req: SB-04
#[test]
fn server_inherits_no_descriptors() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({}));
        let open =
            hostile.expect_ok("print(sorted(int(fd) for fd in os.listdir('/proc/self/fd') if int(fd) > 2))");
        // One is that of the listing itself.
        assert!(matches!(open.trim(), "[]" | "[3]"), "{user:?}: {open}");
    }
}

// req: SB-04
#[test]
fn listed_folder_does_not_open_secrets_in_it() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({}));
        let (home, work) = (hostile.path(""), hostile.path("work"));
        hostile.configure(&json!({ "h": { "sandbox": { "read": [home, work] } } }));
        hostile.expect_ok(&format!("print(open({:?}).read())", hostile.path("other/plain")));
        hostile.expect_denied(&format!("print(open({:?}).read())", hostile.path(".ssh/id_test")));
    }
}

// req: SB-04, SB-08
#[test]
fn server_cannot_change_scheduling_of_others() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({}));
        for victim in ["bridge", "parent", "os.getpid()"] {
            for change in [
                "os.sched_setscheduler({}, 5, os.sched_param(0))",
                "os.sched_setparam({}, os.sched_param(0))",
                "os.sched_setaffinity({}, {0})",
                "os.setpriority(os.PRIO_PROCESS, {}, 19)",
                "os.setpriority(os.PRIO_PGRP, {}, 19)",
            ] {
                hostile.expect_denied(&format!("{FIND_BRIDGE}{}", change.replacen("{}", victim, 1)));
            }
            let ioprio = syscall_number("ioprio_set");
            hostile.expect_denied(&format!("{FIND_BRIDGE}{SYSCALL}call({ioprio}, 1, {victim}, 3 << 13)"));
        }
        hostile.expect_denied("os.setpriority(os.PRIO_USER, 0, 19)");
        for (group, name) in [(2, "process group"), (3, "user")] {
            let ioprio = syscall_number("ioprio_set");
            hostile.expect_denied(&format!("{SYSCALL}call({ioprio}, {group}, 0, 3 << 13) # {name}"));
        }
        let attributes = syscall_number("sched_setattr");
        hostile.expect_denied(&format!("{FIND_BRIDGE}{SYSCALL}call({attributes}, parent, bytes(56), 0)"));
        hostile.expect_ok("os.nice(1); os.sched_setaffinity(0, os.sched_getaffinity(0))");
    }
}

// req: SB-04, SB-08
#[test]
fn server_cannot_leave_memory_behind() {
    for user in users() {
        for sandbox in ["standard", "strict"] {
            let hostile = HostileServer::new(user, json!({ "sandbox": sandbox }));
            for call in ["shmget", "semget", "msgget"] {
                let number = syscall_number(call);
                hostile.expect_denied(&format!("{SYSCALL}call({number}, 0x5000, 4096, 0o1600)"));
            }
            let number = syscall_number("mq_open");
            hostile.expect_denied(&format!("{SYSCALL}call({number}, b'left', 0o102, 0o600, None)"));
        }
    }
}

// req: SB-04, SB-08
#[test]
fn server_cannot_set_user_or_group_id_bits() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({}));
        hostile.expect_ok("open('program', 'w').close()");
        for mode in ["0o4755", "0o2755", "0o6000"] {
            hostile.expect_denied(&format!("os.chmod('program', {mode})"));
            hostile.expect_denied(&format!("os.chmod(os.open('program', os.O_RDWR), {mode})"));
            hostile.expect_denied(&format!("os.chmod('program', {mode}, dir_fd=os.open('.', os.O_RDONLY))"));
            hostile.expect_denied(&format!("os.open('new', os.O_CREAT | os.O_WRONLY, {mode})"));
            hostile.expect_denied(&format!("os.open('.', os.O_TMPFILE | os.O_WRONLY, {mode})"));
            hostile.expect_denied(&format!("os.mknod('new', 0o100000 | {mode})"));
            let number = syscall_number("fchmodat2");
            hostile.expect_denied(&format!("{SYSCALL}call({number}, -100, b'program', {mode}, 0)"));
        }
        // `openat2` would hide the mode from the filter.
        let number = syscall_number("openat2");
        let failed = hostile.attempt(&format!("{SYSCALL}call({number}, -100, b'program', None, 0)"));
        assert!(failed.is_err_and(|error| error.contains("not implemented")));
        #[cfg(target_arch = "x86_64")]
        hostile.expect_denied(&format!("{SYSCALL}call({}, b'new', 0o4755)", syscall_number("creat")));
        // The kernel ignores these bits of a new folder.
        hostile.expect_ok("os.mkdir('folder', 0o6755); assert os.stat('folder').st_mode & 0o6000 == 0");
        hostile.expect_ok("os.chmod('program', 0o755); os.open('new', os.O_CREAT | os.O_WRONLY, 0o644)");
        hostile.expect_ok("assert all(os.stat(f).st_mode & 0o6000 == 0 for f in ['program', 'new'])");
    }
}

// req: SB-04, SB-08
#[test]
fn strict_server_cannot_change_metadata_of_files() {
    for user in users() {
        for sandbox in [json!("strict"), json!({ "read": ["work"], "write": ["work"] })] {
            let hostile = HostileServer::new(user, json!({ "sandbox": sandbox }));
            for file in [hostile.path(".ssh/id_test"), hostile.path("work/server.py")] {
                for change in [
                    "os.chmod({}, 0o644)",
                    "os.chmod({}, 0o644, dir_fd=os.open('/usr', os.O_RDONLY))",
                    "os.chown({}, os.getuid(), os.getgid())",
                    "os.lchown({}, os.getuid(), os.getgid())",
                    "os.utime({}, (0, 0))",
                    "os.setxattr({}, 'user.a', b'b')",
                    "os.removexattr({}, 'user.a')",
                ] {
                    hostile.expect_denied(&change.replacen("{}", &super::hostile_server::quoted(&file), 1));
                }
            }
            hostile.expect_denied("os.fchmod(os.open('/usr', os.O_RDONLY), 0o777)");
            hostile.expect_denied("os.fchown(os.open('/usr', os.O_RDONLY), 0, 0)");
            // FS_IOC_SETFLAGS, FS_IOC_SETVERSION, FS_IOC_FSSETXATTR.
            for request in ["0x40086602", "0x40087602", "0x401c5820"] {
                hostile.expect_denied(&format!(
                    "import fcntl; fcntl.ioctl(os.open('/usr', os.O_RDONLY), {request}, bytes(64))"
                ));
            }
        }
    }
}

// req: SB-04, SB-08
#[test]
fn server_cannot_change_file_flags() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({}));
        for request in [
            "0x40086602", // FS_IOC_SETFLAGS
            "0x40087602", // FS_IOC_SETVERSION
            "0x401c5820", // FS_IOC_FSSETXATTR
            "0x5000940e", // BTRFS_IOC_SUBVOL_CREATE
            "0x50009417", // BTRFS_IOC_SNAP_CREATE_V2
            "0x5000940f", // BTRFS_IOC_SNAP_DESTROY
        ] {
            hostile.expect_denied(&format!(
                "import fcntl; fcntl.ioctl(os.open('.', os.O_RDONLY), {request}, bytearray(4096))"
            ));
        }
        // Their arguments are not understood by the reaper.
        for number in ["setxattrat", "removexattrat", "file_setattr"].map(syscall_number) {
            let failed =
                hostile.attempt(&format!("{SYSCALL}call({number}, -100, b'server.py', 0, b'user.a', 0)"));
            assert!(failed.is_err_and(|error| error.contains("not implemented")));
        }
    }
}

// req: SB-04, SB-08
#[test]
fn server_cannot_delay_other_users_of_a_file() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({}));
        for command in ["fcntl.F_SETLEASE, fcntl.F_RDLCK", "fcntl.F_NOTIFY, fcntl.DN_MODIFY"] {
            hostile
                .expect_denied(&format!("import fcntl; fcntl.fcntl(os.open('.', os.O_RDONLY), {command})"));
        }
        hostile.expect_ok("import fcntl; fcntl.flock(open('held', 'w'), fcntl.LOCK_EX)");
    }
}

// req: SB-04
#[test]
fn server_of_root_has_no_rights_over_files_of_others() {
    let hostile = HostileServer::new(users()[0], json!({}));
    let capabilities = hostile.expect_ok(
        "print([line.split()[1] for line in open('/proc/self/status') if line.startswith(('CapEff', 'CapPrm', 'CapBnd'))])",
    );
    // Only `kill` and `net_bind_service` may be left: bits 5 and 10.
    let left =
        |set: &str| u64::from_str_radix(set.trim_matches(['\'', ',', '[', ']', ' ', '\n']), 16).unwrap();
    assert!(capabilities.split(' ').take(2).all(|set| left(set) & !0x420 == 0), "{capabilities}");
    let number = syscall_number("setuid");
    hostile.attempt(&format!("{SYSCALL}call({number}, 1)")).unwrap_err();
}

// req: SB-04
#[test]
fn server_cannot_trace_other_process() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({}));
        hostile.expect_denied(&format!(
            "{FIND_BRIDGE}{SYSCALL}call({}, 16, parent, 0, 0)",
            syscall_number("ptrace")
        ));
    }
}

// req: SB-04
#[test]
fn unneeded_system_calls_are_refused() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({}));
        for name in [
            "bpf",
            "keyctl",
            "mount",
            "umount2",
            "unshare",
            "setns",
            "init_module",
            "io_uring_setup",
            "io_uring_enter",
            "io_uring_register",
            "reboot",
        ] {
            hostile.expect_denied(&format!("{SYSCALL}call({}, 0, 0, 0, 0, 0)", syscall_number(name)));
        }
        // `ptrace` by its number in the x32 ABI.
        #[cfg(target_arch = "x86_64")]
        hostile.expect_denied(&format!(
            "{SYSCALL}call({}, 0, 0, 0, 0, 0)",
            0x4000_0000 + syscall_number("ptrace")
        ));
    }
}

// req: SB-04
#[test]
fn server_has_no_privileges_and_gains_none() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({}));
        let status = hostile.expect_ok("print(open('/proc/self/status').read())");
        let field = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().nth(1).unwrap().to_owned()
        };
        assert_eq!((field("NoNewPrivs:").as_str(), field("Seccomp:").as_str()), ("1", "2"));
        let capabilities = u64::from_str_radix(&field("CapEff:"), 16).unwrap();
        assert_eq!(capabilities & !0x4ff, 0, "only those for files and users: {capabilities:x}");
        hostile.expect_denied("import stat; os.mknod('disk', 0o600 | stat.S_IFBLK, os.makedev(254, 0))");
        hostile.expect_denied("os.listdir('/dev')");
    }
}

// req: SB-04
#[test]
fn server_cannot_reach_abstract_socket_outside() {
    let name = format!("bascule-test-{}", std::process::id());
    let _listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let connect = format!("import socket; socket.socket(socket.AF_UNIX).connect('\\0{name}')");
    for user in users() {
        HostileServer::new(user, json!({})).expect_denied(&connect);
        HostileServer::new(user, json!({ "sandbox": "off" })).expect_ok(&connect);
    }
}

/// The number of a system call on this architecture.
fn syscall_number(name: &str) -> i64 {
    #[cfg(target_arch = "x86_64")]
    const NUMBERS: [(&str, i64); 26] = [
        ("clone", 56),
        ("ptrace", 101),
        ("bpf", 321),
        ("keyctl", 250),
        ("mount", 165),
        ("umount2", 166),
        ("unshare", 272),
        ("setns", 308),
        ("init_module", 175),
        ("io_uring_setup", 425),
        ("reboot", 169),
        ("ioprio_set", 251),
        ("shmget", 29),
        ("semget", 64),
        ("msgget", 68),
        ("mq_open", 240),
        ("setuid", 105),
        ("fchmodat2", 452),
        ("openat2", 437),
        ("setxattrat", 463),
        ("removexattrat", 466),
        ("file_setattr", 469),
        ("io_uring_enter", 426),
        ("io_uring_register", 427),
        ("creat", 85),
        ("sched_setattr", 314),
    ];
    #[cfg(target_arch = "aarch64")]
    const NUMBERS: [(&str, i64); 25] = [
        ("clone", 220),
        ("ptrace", 117),
        ("bpf", 280),
        ("keyctl", 219),
        ("mount", 40),
        ("umount2", 39),
        ("unshare", 97),
        ("setns", 268),
        ("init_module", 105),
        ("io_uring_setup", 425),
        ("reboot", 142),
        ("ioprio_set", 30),
        ("shmget", 194),
        ("semget", 190),
        ("msgget", 186),
        ("mq_open", 180),
        ("setuid", 146),
        ("fchmodat2", 452),
        ("openat2", 437),
        ("setxattrat", 463),
        ("removexattrat", 466),
        ("file_setattr", 469),
        ("io_uring_enter", 426),
        ("io_uring_register", 427),
        ("sched_setattr", 274),
    ];
    NUMBERS.iter().find(|(known, _)| *known == name).unwrap().1
}
