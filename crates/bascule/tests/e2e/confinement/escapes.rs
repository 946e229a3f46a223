//! Ways to the bridge, to other processes, and to the kernel.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use serde_json::json;

use super::hostile::{Hostile, users};

/// Finds the bridge: the parent of the parent.
const BRIDGE: &str =
    "parent = os.getppid(); bridge = int(open(f'/proc/{parent}/stat').read().rsplit(')', 1)[1].split()[1])\n";

/// Makes a system call by number, and raises what it says.
const CALL: &str = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\ndef call(*a):\n    if libc.syscall(*a) < 0: raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))\n";

// req: SB-04
#[test]
fn the_bridge_cannot_be_signalled() {
    for user in users() {
        let hostile = Hostile::new(user, json!({}));
        for victim in ["bridge", "parent"] {
            for signal in [0, 9, 15, 19] {
                hostile.must_not(&format!("{BRIDGE}os.kill({victim}, {signal})"));
            }
        }
        hostile.may("import subprocess; p = subprocess.Popen(['sleep', '60']); p.kill(); p.wait()");
    }
}

// req: SB-04
#[test]
fn the_environment_of_the_bridge_cannot_be_read() {
    for user in users() {
        let hostile = Hostile::new(user, json!({}));
        for victim in ["bridge", "parent"] {
            hostile.must_not(&format!("{BRIDGE}print(open(f'/proc/{{{victim}}}/environ').read())"));
            hostile.must_not(&format!("{BRIDGE}open(f'/proc/{{{victim}}}/mem', 'rb').read(1)"));
        }
        assert!(!hostile.may("print(dict(os.environ))").contains("the secret"));
    }
}

// req: SB-04
#[test]
fn the_limits_of_others_cannot_be_set() {
    for user in users() {
        let hostile = Hostile::new(user, json!({}));
        for victim in ["bridge", "parent"] {
            for limit in ["CPU", "NOFILE"] {
                let code = format!(
                    "{BRIDGE}import resource; resource.prlimit({victim}, resource.RLIMIT_{limit}, (0, 0))"
                );
                hostile.must_not(&code);
            }
        }
        hostile.may("import resource; resource.setrlimit(resource.RLIMIT_CPU, (600, 600))");
    }
}

// req: SB-04
#[test]
fn no_namespace_gives_the_capabilities_back() {
    const NEW_USER: u32 = 0x1000_0000;
    for user in users() {
        let hostile = Hostile::new(user, json!({}));
        hostile.must_not(&format!("{CALL}call({}, {NEW_USER} | 17, 0, 0, 0, 0)", libc_number("clone")));
        hostile.may("import subprocess, threading; subprocess.run(['true'], check=True); t = threading.Thread(target=print); t.start(); t.join()");
    }
}

// req: SB-04
#[test]
fn no_terminal_can_be_opened() {
    for user in users() {
        for sandbox in ["standard", "strict"] {
            let hostile = Hostile::new(user, json!({ "sandbox": sandbox }));
            hostile.must_not("open('/dev/ptmx', 'r+b', buffering=0)");
        }
    }
}

// req: SB-04
#[test]
fn files_that_the_caller_had_open_do_not_reach_a_server() {
    for user in users() {
        let hostile = Hostile::new(user, json!({}));
        let open = hostile.may("print(sorted(int(fd) for fd in os.listdir('/proc/self/fd') if int(fd) > 2))");
        // One is the listing itself.
        assert!(matches!(open.trim(), "[]" | "[3]"), "{user:?}: {open}");
    }
}

// req: SB-04
#[test]
fn a_listed_folder_does_not_open_the_secrets_in_it() {
    for user in users() {
        let hostile = Hostile::new(user, json!({}));
        let (home, work) = (hostile.path(""), hostile.path("work"));
        hostile.configure(&json!({ "h": { "sandbox": { "read": [home, work] } } }));
        hostile.may(&format!("print(open({:?}).read())", hostile.path("other/plain")));
        hostile.must_not(&format!("print(open({:?}).read())", hostile.path(".ssh/id_test")));
    }
}

// req: SB-04
#[test]
fn no_other_process_can_be_traced() {
    for user in users() {
        let hostile = Hostile::new(user, json!({}));
        hostile.must_not(&format!("{BRIDGE}{CALL}call({}, 16, parent, 0, 0)", libc_number("ptrace")));
    }
}

// req: SB-04
#[test]
fn system_calls_that_no_server_needs_are_refused() {
    for user in users() {
        let hostile = Hostile::new(user, json!({}));
        for name in [
            "bpf",
            "keyctl",
            "mount",
            "umount2",
            "unshare",
            "setns",
            "init_module",
            "io_uring_setup",
            "reboot",
        ] {
            hostile.must_not(&format!("{CALL}call({}, 0, 0, 0, 0, 0)", libc_number(name)));
        }
        // The same call by the numbers of another ABI.
        #[cfg(target_arch = "x86_64")]
        hostile.must_not(&format!("{CALL}call({}, 0, 0, 0, 0, 0)", 0x4000_0000 + libc_number("ptrace")));
    }
}

// req: SB-04
#[test]
fn privileges_are_neither_kept_nor_gained() {
    for user in users() {
        let hostile = Hostile::new(user, json!({}));
        let status = hostile.may("print(open('/proc/self/status').read())");
        let field = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().nth(1).unwrap().to_owned()
        };
        assert_eq!((field("NoNewPrivs:").as_str(), field("Seccomp:").as_str()), ("1", "2"));
        let capabilities = u64::from_str_radix(&field("CapEff:"), 16).unwrap();
        assert_eq!(capabilities & !0x4ff, 0, "only files and users: {capabilities:x}");
        hostile.must_not("import stat; os.mknod('disk', 0o600 | stat.S_IFBLK, os.makedev(254, 0))");
        hostile.must_not("os.listdir('/dev')");
    }
}

// req: SB-04
#[test]
fn an_abstract_socket_outside_cannot_be_reached() {
    let name = format!("bascule-test-{}", std::process::id());
    let _listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let connect = format!("import socket; socket.socket(socket.AF_UNIX).connect('\\0{name}')");
    for user in users() {
        Hostile::new(user, json!({})).must_not(&connect);
        Hostile::new(user, json!({ "sandbox": "off" })).may(&connect);
    }
}

/// The number of a system call here.
fn libc_number(name: &str) -> i64 {
    #[cfg(target_arch = "x86_64")]
    const NUMBERS: [(&str, i64); 11] = [
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
    ];
    #[cfg(target_arch = "aarch64")]
    const NUMBERS: [(&str, i64); 11] = [
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
    ];
    NUMBERS.iter().find(|(known, _)| *known == name).unwrap().1
}
