//! What a locked worker tries, and how it ends: real processes against the real kernel, as root and as nobody.
//!
//! The worker and its host are both `hostile-worker`, a program of this crate that says in JSON what happened.

#![allow(unsafe_code, reason = "to watch a process that is not our child takes a system call")]
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bascule_sandbox::{End, Output, resident_bytes, spawn_worker};
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_hostile-worker");
/// In milliseconds; less than the processor time that a spinning worker has.
const FOREVER: i32 = 30_000;

#[derive(Debug, Clone, Copy, PartialEq)]
enum User {
    Ourselves,
    Nobody,
}

/// Whoever runs the tests; if that is root, who can be anybody, also somebody without any rights.
fn users() -> &'static [User] {
    if is_root() { &[User::Ourselves, User::Nobody] } else { &[User::Ourselves] }
}

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

fn command(user: User, arguments: &[&str]) -> Command {
    // Nobody may not be allowed to where the program was built, but to a file that is open.
    const AS_NOBODY: &str =
        "exec 9<\"$0\"; exec setpriv --reuid=65534 --regid=65534 --clear-groups /proc/self/fd/9 \"$@\"";
    let mut command = match user {
        User::Ourselves => Command::new(PROGRAM),
        User::Nobody => Command::new("sh"),
    };
    if user == User::Nobody {
        command.args(["-c", AS_NOBODY, PROGRAM]);
    }
    command.args(arguments).env("SECRET", "of the bridge");
    command
}

/// Has a host start a worker that does this, and says what came of it.
fn outcome(user: User, what: &str) -> Value {
    let done = command(user, &["host", what]).output().unwrap();
    serde_json::from_slice(&done.stdout)
        .unwrap_or_else(|_| panic!("{what}: {}", String::from_utf8_lossy(&done.stderr)))
}

fn check(what: &str, said: &str, end: &str) {
    for user in users() {
        let outcome = outcome(*user, what);
        assert_eq!((&outcome["said"], &outcome["end"]), (&said.into(), &end.into()), "{what}, {user:?}");
    }
}

fn is_deadly(attempts: &[&str]) {
    attempts.iter().for_each(|attempt| check(attempt, "", "Violation"));
}

// req: CM-01
#[test]
fn no_file_can_be_reached() {
    is_deadly(&["openat", "openat2", "readlink", "getdents", "memfd_create"]);
    #[cfg(target_arch = "x86_64")]
    is_deadly(&["open"]);
}

// req: CM-01
#[test]
fn no_network_can_be_reached() {
    is_deadly(&["socket", "unix socket", "socketpair", "connect", "bind", "io_uring_setup"]);
}

// req: CM-01
#[test]
fn no_process_can_be_made() {
    is_deadly(&["clone", "clone3", "execve", "execveat"]);
    #[cfg(target_arch = "x86_64")]
    is_deadly(&["fork"]);
}

// req: CM-01
#[test]
fn no_other_process_can_be_touched() {
    is_deadly(&["kill the host", "kill all", "kill a thread of the host", "kill a thread", "queue a signal"]);
    is_deadly(&["ptrace", "process_vm_readv", "shmget", "getppid"]);
}

// req: CM-01
#[test]
fn no_code_can_be_made() {
    is_deadly(&["map to execute", "protect to execute", "protect with a key"]);
}

// req: CM-01
#[test]
fn what_is_locked_stays_locked() {
    is_deadly(&["prctl", "seccomp", "unshare", "setns", "setuid", "old setrlimit", "bpf", "keyctl"]);
    is_deadly(&["setitimer", "clock_settime", "uname", "futex with priorities", "no such call"]);
    #[cfg(target_arch = "x86_64")]
    is_deadly(&["the other ABI"]);
}

// req: CM-01
#[test]
fn only_its_three_descriptors_can_be_used() {
    is_deadly(&["dup", "fcntl", "read elsewhere", "write elsewhere"]);
    let outcome = outcome(User::Ourselves, "born");
    assert!(!is_root() || outcome["descriptors"] == 3, "the others are closed: {outcome}");
}

// req: CM-01
#[test]
fn what_the_c_library_asks_is_refused_but_not_deadly() {
    check("ioctl", "Inappropriate ioctl for device (os error 25)", "Exited(0)");
    check("stat", "Permission denied (os error 13)", "Exited(0)");
    check("setrlimit", "Operation not permitted (os error 1)", "Exited(0)");
}

// req: CM-01
#[test]
fn what_an_engine_needs_works() {
    for user in users() {
        let outcome = outcome(*user, "live");
        assert_eq!((&outcome["said"], &outcome["end"]), (&"used 419430400".into(), &"Exited(0)".into()));
        let output = outcome["output"].as_str().unwrap();
        for line in ["to standard output", "to C's standard output", "to standard error", "which is caught"] {
            assert!(output.contains(line), "{output}");
        }
        assert!(outcome["resident"].as_u64().unwrap() > 100_000, "{outcome}");
    }
}

// req: CM-01
#[test]
fn memory_beyond_the_limit_is_refused_and_the_worker_goes_on() {
    check("allocate 2 GB", "true", "Exited(0)");
}

// req: CM-01
#[test]
fn it_is_told_how_a_worker_ended() {
    check("exit", "", "Exited(7)");
    check("panic", "", "Exited(101)");
    check("abort", "", "Aborted");
    check("overflow", "", "Aborted");
    check("burn", "", "OutOfTime");
    check("close", "", "Killed");
}

// req: CM-01
#[test]
fn a_worker_has_a_time_zone_for_an_environment_and_no_folder() {
    check("born", r#"{"environment":["TZ=UTC"],"folder":"/"}"#, "Exited(0)");
}

// req: CM-01
#[test]
fn what_is_missing_is_told() {
    for user in users() {
        let outcome = outcome(*user, "born");
        let missing = outcome["missing"].to_string();
        let landlock = bascule_sandbox::probe::landlock_abi();
        assert_eq!(missing.contains("Landlock"), landlock < 6, "{missing}");
        assert!(*user != User::Nobody || missing.contains("network namespace"), "{missing}");
    }
}

// req: CM-01
#[test]
fn who_has_several_threads_cannot_be_locked() {
    let done = command(User::Ourselves, &["threads"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&done.stdout), "the worker has more than one thread\n");
}

// req: CM-01
#[test]
fn a_worker_whose_host_is_not_its_parent_does_not_start() {
    // Its socket is ours, but its parent is a shell.
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "\"$0\" worker born; exit 3", PROGRAM]).stdin(OwnedFd::from(theirs));
    let done = command.output().unwrap();
    drop(ours);
    assert!(String::from_utf8_lossy(&done.stderr).contains("Abandoned"), "{done:?}");
}

// req: CM-01
#[test]
fn no_worker_survives_the_violent_end_of_its_host() {
    for user in users() {
        let mut host = command(*user, &["host", "spin"]).stdout(Stdio::piped()).spawn().unwrap();
        let worker = number_from(&mut host);
        let process = watch(worker);
        assert!(!ended(&process, 0), "the thread that asked for it has ended, and it lives");
        host.kill().unwrap();
        host.wait().unwrap();
        assert!(ended(&process, FOREVER), "it spins on, {user:?}");
    }
}

fn number_from(host: &mut Child) -> i32 {
    let mut line = String::new();
    BufReader::new(host.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    line.trim().parse().unwrap()
}

fn watch(pid: i32) -> OwnedFd {
    // SAFETY: takes numbers only; what comes back is ours alone.
    unsafe {
        let descriptor = libc::syscall(libc::SYS_pidfd_open, pid, 0);
        assert!(descriptor >= 0, "{}", std::io::Error::last_os_error());
        OwnedFd::from_raw_fd(descriptor as i32)
    }
}

fn ended(process: &OwnedFd, milliseconds: i32) -> bool {
    let mut watched = libc::pollfd { fd: process.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: `watched` is one valid entry.
    unsafe { libc::poll(&raw mut watched, 1, milliseconds) > 0 }
}

// req: CM-01
#[test]
fn a_worker_that_is_dropped_or_killed_is_gone() {
    let mut worker = spawn_worker(Path::new(PROGRAM), ["worker", "spin"], "UTC", Output::Dropped).unwrap();
    let mut byte = [0];
    // It has hardly begun, and nobody waits for it; but it may be quicker than we are.
    let read = worker.socket.read(&mut byte);
    assert!(read.is_ok() || read.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock));
    assert!(worker.output.is_none());
    if byte == [0] {
        worker.socket.set_nonblocking(false).unwrap();
        worker.socket.read_exact(&mut byte).unwrap();
    }
    assert_eq!(worker.try_wait().unwrap(), None);
    // SAFETY: takes a number only.
    let group = unsafe { libc::getpgid(worker.pid() as i32) };
    assert_eq!(group, worker.pid() as i32, "what is typed at our terminal does not reach it");
    worker.kill().unwrap();
    assert_eq!(worker.wait().unwrap(), End::Killed);
    assert_eq!(worker.finish(Duration::ZERO).unwrap(), End::Killed, "asked again, it says the same");
    assert_eq!(worker.resident_bytes(), 0);

    let worker = spawn_worker(Path::new(PROGRAM), ["worker", "spin"], "UTC", Output::Dropped).unwrap();
    (&worker.socket).write_all(b"go\n").unwrap();
    let (pid, process) = (worker.pid(), watch(worker.pid() as i32));
    drop(worker);
    assert!(ended(&process, 0));
    assert_eq!(resident_bytes(pid), 0);
}

// req: CM-01
#[test]
fn a_program_that_is_not_there_is_an_error() {
    let error = spawn_worker(Path::new("/nowhere"), ["worker"], "UTC", Output::Captured).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
}
