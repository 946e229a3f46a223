//! Attacks by a locked-down worker: real processes against the real kernel, as root and as `nobody`.
//!
//! The worker and its host are both `hostile-worker`, a program of this crate that reports the outcome as JSON.

#![allow(unsafe_code, reason = "waiting for a process that is not a child takes a system call")]
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bascule_sandbox::{WorkerExit, WorkerOutput, WorkerProcess, resident_bytes};
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_hostile-worker");

fn spawn_worker(program: &str, arguments: &[&str], output: WorkerOutput) -> std::io::Result<WorkerProcess> {
    let (sender, spawned) = std::sync::mpsc::channel();
    let on_spawned = move |worker| sender.send(worker).unwrap();
    bascule_sandbox::spawn_worker(Path::new(program), arguments, "UTC", output, on_spawned)?;
    spawned.recv().unwrap()
}
/// In milliseconds; less than the processor time of a spinning worker.
const LONG_TIMEOUT: i32 = 30_000;

#[derive(Debug, Clone, Copy, PartialEq)]
enum User {
    Current,
    Nobody,
}

/// The current user, and `nobody` if the current user is root.
fn users() -> &'static [User] {
    if is_root() { &[User::Current, User::Nobody] } else { &[User::Current] }
}

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

fn command(user: User, arguments: &[&str]) -> Command {
    // `nobody` may have no access to the build folder, but can execute an open file.
    const AS_NOBODY: &str =
        "exec 9<\"$0\"; exec setpriv --reuid=65534 --regid=65534 --clear-groups /proc/self/fd/9 \"$@\"";
    let mut command = match user {
        User::Current => Command::new(PROGRAM),
        User::Nobody => Command::new("sh"),
    };
    if user == User::Nobody {
        command.args(["-c", AS_NOBODY, PROGRAM]);
    }
    command.args(arguments).env("SECRET", "of the bridge");
    command
}

/// Has a host start a worker that makes this attempt.
fn outcome(user: User, attempt: &str) -> Value {
    let done = command(user, &["host", attempt]).output().unwrap();
    serde_json::from_slice(&done.stdout)
        .unwrap_or_else(|_| panic!("{attempt}: {}", String::from_utf8_lossy(&done.stderr)))
}

fn check(attempt: &str, reply: &str, exit: &str) {
    for user in users() {
        let outcome = outcome(*user, attempt);
        assert_eq!(
            (&outcome["reply"], &outcome["exit"]),
            (&reply.into(), &exit.into()),
            "{attempt}, {user:?}"
        );
    }
}

fn check_killed(attempts: &[&str]) {
    attempts.iter().for_each(|attempt| check(attempt, "", "Violation"));
}

// req: CM-01
#[test]
fn kills_worker_that_accesses_files() {
    check_killed(&["openat", "openat2", "readlink", "getdents", "memfd_create"]);
    #[cfg(target_arch = "x86_64")]
    check_killed(&["open"]);
}

// req: CM-01
#[test]
fn kills_worker_that_uses_network() {
    check_killed(&["socket", "unix socket", "socketpair", "connect", "bind", "io_uring_setup"]);
}

// req: CM-01
#[test]
fn kills_worker_that_creates_process() {
    check_killed(&["clone", "clone3", "execve", "execveat"]);
    #[cfg(target_arch = "x86_64")]
    check_killed(&["fork"]);
}

// req: CM-01
#[test]
fn kills_worker_that_touches_other_process() {
    check_killed(&[
        "kill the host",
        "kill all",
        "kill a thread of the host",
        "kill a thread",
        "queue a signal",
    ]);
    check_killed(&["ptrace", "process_vm_readv", "shmget", "getppid"]);
}

// req: CM-01
#[test]
fn kills_worker_that_maps_executable_memory() {
    check_killed(&["map to execute", "protect to execute", "protect with a key"]);
}

// req: CM-01
#[test]
fn kills_worker_that_loosens_lockdown() {
    check_killed(&["prctl", "seccomp", "unshare", "setns", "setuid", "old setrlimit", "bpf", "keyctl"]);
    check_killed(&["setitimer", "clock_settime", "uname", "futex with priorities", "no such call"]);
    #[cfg(target_arch = "x86_64")]
    check_killed(&["x32 ABI"]);
}

// req: CM-01
#[test]
fn kills_worker_that_uses_other_descriptors() {
    check_killed(&["dup", "fcntl", "read from descriptor 3", "write to descriptor 3"]);
    let outcome = outcome(User::Current, "environment");
    assert!(!is_root() || outcome["descriptors"] == 3, "other descriptors are closed: {outcome}");
}

// req: CM-01
#[test]
fn refuses_queries_of_c_library() {
    check("ioctl", "Inappropriate ioctl for device (os error 25)", "Exited(0)");
    check("stat", "Permission denied (os error 13)", "Exited(0)");
    check("setrlimit", "Operation not permitted (os error 1)", "Exited(0)");
}

// req: CM-01
#[test]
fn allows_engine_needs() {
    for user in users() {
        let outcome = outcome(*user, "engine needs");
        assert_eq!((&outcome["reply"], &outcome["exit"]), (&"used 419430400".into(), &"Exited(0)".into()));
        let output = outcome["output"].as_str().unwrap();
        for line in ["to standard output", "to C's standard output", "to standard error", "a caught panic"] {
            assert!(output.contains(line), "{output}");
        }
        assert!(outcome["resident"].as_u64().unwrap() > 100_000, "{outcome}");
    }
}

// req: CM-01
#[test]
fn worker_survives_refused_allocation() {
    check("allocate 2 GB", "true", "Exited(0)");
}

// req: CM-01
#[test]
fn reports_worker_exit() {
    check("exit", "", "Exited(7)");
    check("panic", "", "Exited(101)");
    check("abort", "", "Aborted");
    check("overflow", "", "Aborted");
    check("burn", "", "OutOfTime");
    check("close", "", "Killed");
}

// req: CM-01
#[test]
fn worker_starts_in_root_with_only_time_zone() {
    check("environment", r#"{"environment":["TZ=UTC"],"folder":"/"}"#, "Exited(0)");
}

// req: CM-01
#[test]
fn reports_missing_protections() {
    for user in users() {
        let outcome = outcome(*user, "environment");
        let missing = outcome["missing"].to_string();
        let landlock = bascule_sandbox::probe::landlock_abi();
        assert_eq!(missing.contains("Landlock"), landlock < 6, "{missing}");
        assert!(*user != User::Nobody || missing.contains("network namespace"), "{missing}");
    }
}

// req: CM-01
#[test]
fn rejects_process_with_several_threads() {
    let done = command(User::Current, &["threads"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&done.stdout), "the worker has more than one thread\n");
}

// req: CM-01
#[test]
fn rejects_worker_whose_parent_is_not_its_host() {
    // This process created its socket, but its parent is a shell.
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "\"$0\" worker environment; exit 3", PROGRAM]).stdin(OwnedFd::from(theirs));
    let done = command.output().unwrap();
    drop(ours);
    assert!(String::from_utf8_lossy(&done.stderr).contains("HostEnded"), "{done:?}");
}

// req: CM-01
#[test]
fn worker_dies_when_host_is_killed() {
    for user in users() {
        let mut host = command(*user, &["host", "spin"]).stdout(Stdio::piped()).spawn().unwrap();
        let worker = read_pid(&mut host);
        let process = open_pidfd(worker);
        assert!(!has_ended(&process, 0), "it outlives the thread that requested it");
        host.kill().unwrap();
        host.wait().unwrap();
        assert!(has_ended(&process, LONG_TIMEOUT), "it still spins, {user:?}");
    }
}

fn read_pid(host: &mut Child) -> i32 {
    let mut line = String::new();
    BufReader::new(host.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    line.trim().parse().unwrap()
}

fn open_pidfd(pid: i32) -> OwnedFd {
    // SAFETY: takes numbers only; nothing else owns the returned descriptor.
    unsafe {
        let descriptor = libc::syscall(libc::SYS_pidfd_open, pid, 0);
        assert!(descriptor >= 0, "{}", std::io::Error::last_os_error());
        OwnedFd::from_raw_fd(descriptor as i32)
    }
}

fn has_ended(process: &OwnedFd, milliseconds: i32) -> bool {
    let mut watched = libc::pollfd { fd: process.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: `watched` is one valid entry.
    unsafe { libc::poll(&raw mut watched, 1, milliseconds) > 0 }
}

// req: CM-01
#[test]
fn dropped_or_killed_worker_is_gone() {
    let mut worker = spawn_worker(PROGRAM, &["worker", "spin"], WorkerOutput::Discarded).unwrap();
    let mut byte = [0];
    // The socket does not block. The worker has normally not written yet, but it may have.
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
    assert_eq!(group, worker.pid() as i32, "signals of our terminal do not reach it");
    worker.kill().unwrap();
    assert_eq!(worker.wait().unwrap(), WorkerExit::Killed);
    assert_eq!(worker.wait_or_kill(Duration::ZERO).unwrap(), WorkerExit::Killed, "the exit stays the same");
    assert_eq!(resident_bytes(worker.pid()), 0);

    let worker = spawn_worker(PROGRAM, &["worker", "spin"], WorkerOutput::Discarded).unwrap();
    (&worker.socket).write_all(b"go\n").unwrap();
    let (pid, process) = (worker.pid(), open_pidfd(worker.pid() as i32));
    drop(worker);
    assert!(has_ended(&process, 0));
    assert_eq!(resident_bytes(pid), 0);
}

// req: CM-01
#[test]
fn missing_program_is_an_error() {
    let error = spawn_worker("/nowhere", &["worker"], WorkerOutput::Captured).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
}
