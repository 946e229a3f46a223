//! A hostile script worker and a small host for it, used by the lockdown tests. Not part of a release.
//!
//! `hostile-worker host ATTEMPT` starts `hostile-worker worker ATTEMPT`. The worker locks itself down, sends its
//! `LockdownReport`, waits for `go`, and makes the attempt. The host prints a line of JSON: the missing protections, the
//! worker's reply and its exit. If a system call fails without killing the worker, the reply is its error.

#![allow(unsafe_code, reason = "it makes the system calls that a worker must not make")]
#![allow(clippy::unwrap_used, reason = "a test program")]

use std::io::{Read, Write};
use std::os::fd::FromRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use bascule_sandbox::lockdown::{LockdownLimits, LockdownReport, lock_down};
use bascule_sandbox::{WorkerOutput, WorkerProcess, resident_bytes, spawn_worker};
use serde_json::json;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["host", "spin"] => host_forever(),
        ["host", name] => host(name),
        ["worker", name] => worker(name),
        ["threads"] => lock_down_with_threads(),
        _ => panic!("unknown arguments: {arguments:?}"),
    }
}

fn start(name: &str) -> WorkerProcess {
    // A descriptor that the bridge inherited from its caller.
    // SAFETY: takes a number only.
    unsafe { libc::dup(1) };
    let (sender, spawned) = channel();
    let on_spawned = move |worker| sender.send(worker).unwrap();
    let program = Path::new("/proc/self/exe");
    spawn_worker(program, ["worker", name], "UTC", WorkerOutput::Captured, on_spawned).unwrap();
    let worker = spawned.recv().unwrap().unwrap();
    worker.socket.set_nonblocking(false).unwrap();
    worker
}

/// Reads one line; empty at end of file.
fn read_line(mut socket: &UnixStream) -> String {
    let mut line = Vec::new();
    let mut byte = [0];
    while socket.read(&mut byte).is_ok_and(|length| length == 1) && byte != *b"\n" {
        line.push(byte[0]);
    }
    String::from_utf8(line).unwrap()
}

fn host(name: &str) {
    let mut worker = start(name);
    let report: LockdownReport = serde_json::from_str(&read_line(&worker.socket)).unwrap();
    let resident = resident_bytes(worker.pid());
    // Only root can list the descriptors of a process that is not dumpable.
    let descriptors = std::fs::read_dir(format!("/proc/{}/fd", worker.pid())).ok().map(Iterator::count);
    worker.socket.write_all(b"go\n").unwrap();
    let reply = read_line(&worker.socket);
    let timeout = if name == "close" { Duration::ZERO } else { Duration::from_secs(60) };
    let exit = worker.wait_or_kill(timeout).unwrap();
    let mut output = String::new();
    worker.output.take().unwrap().read_to_string(&mut output).unwrap();
    let missing: Vec<String> = report.missing.iter().map(ToString::to_string).collect();
    let exit = format!("{exit:?}");
    let outcome = json!({
        "missing": missing, "reply": reply, "exit": exit, "output": output,
        "resident": resident, "descriptors": descriptors,
    });
    std::io::stdout().write_all(outcome.to_string().as_bytes()).unwrap();
}

/// Requests the worker from a thread that then ends. Prints the worker's pid, and stays.
fn host_forever() {
    let worker = std::thread::spawn(|| start("spin")).join().unwrap();
    read_line(&worker.socket);
    (&worker.socket).write_all(b"go\n").unwrap();
    assert_eq!(read_line(&worker.socket), "spinning");
    println!("{}", worker.pid());
    loop {
        std::thread::park();
    }
}

fn lock_down_with_threads() {
    std::thread::spawn(std::thread::park);
    println!("{}", lock_down(&limits("threads")).unwrap_err());
}

fn worker(name: &str) {
    let environment = json!({
        "environment": std::env::vars().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>(),
        "folder": std::env::current_dir().unwrap(),
    });
    let host = std::os::unix::process::parent_id();
    let report = lock_down(&limits(name)).unwrap();
    // SAFETY: the host opened it, and nothing else uses it.
    let mut socket = unsafe { UnixStream::from_raw_fd(0) };
    let line = serde_json::to_string(&report).unwrap() + "\n";
    socket.write_all(line.as_bytes()).unwrap();
    assert_eq!(read_line(&socket), "go");
    let reply = match name {
        "environment" => environment.to_string(),
        "spin" => {
            socket.write_all(b"spinning\n").unwrap();
            spin()
        }
        "burn" => spin(),
        "panic" => panic!("on purpose"),
        "abort" => std::process::abort(),
        "overflow" => recurse(&[0; 64]).to_string(),
        "exit" => std::process::exit(7),
        "close" => {
            drop(socket);
            loop {
                std::thread::sleep(Duration::from_secs(1));
            }
        }
        "engine needs" => use_what_engines_need(),
        "allocate 2 GB" => format!("{:?}", Vec::<u8>::new().try_reserve_exact(2 << 30).is_err()),
        call => describe_result(attempt(call, host)),
    };
    socket.write_all(reply.as_bytes()).unwrap();
}

fn limits(name: &str) -> LockdownLimits {
    let limits = LockdownLimits::for_scripts(512 << 20, 30);
    match name {
        "burn" => LockdownLimits { cpu_seconds: 1, ..limits },
        // Longer than a test waits for it to be killed.
        "spin" => LockdownLimits { cpu_seconds: 100, ..limits },
        _ => limits,
    }
}

fn spin() -> ! {
    loop {
        std::hint::spin_loop();
    }
}

#[allow(unconditional_recursion, reason = "to overflow the stack")]
fn recurse(above: &[u8]) -> u8 {
    let here = [above.len() as u8; 4096];
    recurse(std::hint::black_box(&here)) ^ here[17]
}

/// Memory, random numbers, clocks, output and a caught panic.
fn use_what_engines_need() -> String {
    let pieces: Vec<Vec<u8>> = (0..400).map(|_| vec![1; 1 << 20]).collect();
    let used: usize = pieces.iter().map(Vec::len).sum();
    drop(std::hint::black_box(pieces));
    let mut small: Vec<Box<[u8]>> = (0..10_000).map(|size| vec![1; size % 3000].into()).collect();
    small.shuffle();
    drop(small);
    let mut random = [0_u8; 32];
    // SAFETY: `random` has room for 32 bytes.
    assert_eq!(unsafe { libc::getrandom(random.as_mut_ptr().cast(), 32, 0) }, 32);
    assert_ne!(random, [0; 32]);
    let before = Instant::now();
    std::thread::sleep(Duration::from_millis(2));
    assert!(before.elapsed() >= Duration::from_millis(2));
    assert!(std::time::SystemTime::now() > std::time::UNIX_EPOCH);
    std::thread::park_timeout(Duration::from_millis(1));
    std::thread::yield_now();
    println!("to standard output");
    // SAFETY: the text is zero-terminated. C's `stdout` first calls `fstat` and `ioctl` on the descriptor.
    unsafe {
        libc::puts(c"to C's standard output".as_ptr());
        libc::fflush(std::ptr::null_mut());
    }
    eprintln!("to standard error");
    std::panic::catch_unwind(|| panic!("a caught panic")).unwrap_err();
    format!("used {used}")
}

trait Shuffle {
    fn shuffle(&mut self);
}

impl<T> Shuffle for Vec<T> {
    /// Fragments the heap when the elements are dropped.
    fn shuffle(&mut self) {
        let length = self.len();
        (0..length).for_each(|index| self.swap(index, index * 7919 % length));
    }
}

fn describe_result(result: i64) -> String {
    match result {
        -1 => format!("{}", std::io::Error::last_os_error()),
        _ => format!("succeeded: {result}"),
    }
}

/// Sends only signal 0, so that a failing test does no harm.
fn attempt(name: &str, host: u32) -> i64 {
    let path = c"/etc/hostname".as_ptr();
    let nothing = std::ptr::null_mut::<libc::c_void>();
    let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let limit = libc::rlimit { rlim_cur: 1 << 40, rlim_max: 1 << 40 };
    let mut buffer = [0_u64; 64];
    let buffer = buffer.as_mut_ptr();
    // SAFETY: every pointer is null or refers to a value that is large enough and lives until the end of this function.
    // Any other effect on the process is the subject of the test.
    unsafe {
        match name {
            #[cfg(target_arch = "x86_64")]
            "open" => libc::syscall(libc::SYS_open, path, libc::O_RDONLY),
            #[cfg(target_arch = "x86_64")]
            "fork" => libc::syscall(libc::SYS_fork),
            #[cfg(target_arch = "x86_64")]
            "x32 ABI" => libc::syscall(0x4000_0000 | libc::SYS_getpid),
            "openat" => libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path, libc::O_RDONLY),
            "openat2" => libc::syscall(libc::SYS_openat2, libc::AT_FDCWD, path, buffer, 24),
            "socket" => libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0).into(),
            "unix socket" => libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0).into(),
            "socketpair" => libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0, buffer.cast()).into(),
            "connect" => libc::connect(0, buffer.cast(), 16).into(),
            "bind" => libc::bind(0, buffer.cast(), 16).into(),
            "clone" => libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0),
            "clone3" => libc::syscall(libc::SYS_clone3, buffer, 64),
            "execve" => libc::execve(c"/bin/true".as_ptr(), buffer.cast(), buffer.cast()).into(),
            "execveat" => {
                libc::syscall(libc::SYS_execveat, 0, c"".as_ptr(), buffer, buffer, libc::AT_EMPTY_PATH)
            }
            "ptrace" => libc::ptrace(libc::PTRACE_ATTACH, libc::getpid(), 0, 0),
            "kill the host" => libc::syscall(libc::SYS_kill, host, 0),
            "kill all" => libc::syscall(libc::SYS_kill, -1, 0),
            "kill a thread of the host" => libc::syscall(libc::SYS_tgkill, host, host, 0),
            "kill a thread" => libc::syscall(libc::SYS_tkill, host, 0),
            "queue a signal" => libc::syscall(libc::SYS_rt_sigqueueinfo, host, 0, buffer),
            "map to execute" => libc::mmap(nothing, 4096, EXECUTE, anonymous, -1, 0) as i64,
            "protect to execute" => {
                let page = libc::mmap(nothing, 4096, libc::PROT_READ, anonymous, -1, 0);
                libc::mprotect(page, 4096, libc::PROT_READ | libc::PROT_EXEC).into()
            }
            "protect with a key" => libc::syscall(libc::SYS_pkey_mprotect, 0, 4096, EXECUTE, -1),
            "prctl" => libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0).into(),
            "seccomp" => libc::syscall(libc::SYS_seccomp, 0, 0, 0),
            "io_uring_setup" => libc::syscall(libc::SYS_io_uring_setup, 1, buffer),
            "memfd_create" => libc::syscall(libc::SYS_memfd_create, c"m".as_ptr(), 0),
            "process_vm_readv" => libc::syscall(libc::SYS_process_vm_readv, host, buffer, 0, buffer, 0, 0),
            "unshare" => libc::unshare(libc::CLONE_NEWUSER).into(),
            "setns" => libc::setns(0, 0).into(),
            "setuid" => libc::syscall(libc::SYS_setuid, 0),
            "bpf" => libc::syscall(libc::SYS_bpf, 0, buffer, 0),
            "keyctl" => libc::syscall(libc::SYS_keyctl, 0, 0, 0, 0, 0),
            "shmget" => libc::shmget(libc::IPC_PRIVATE, 4096, 0).into(),
            "setitimer" => libc::syscall(libc::SYS_setitimer, 0, buffer, buffer),
            "clock_settime" => libc::syscall(libc::SYS_clock_settime, libc::CLOCK_REALTIME, nothing),
            "readlink" => libc::syscall(libc::SYS_readlinkat, libc::AT_FDCWD, path, buffer, 8),
            "getdents" => libc::syscall(libc::SYS_getdents64, 0, buffer, 64),
            "dup" => libc::dup(0).into(),
            "fcntl" => libc::fcntl(0, libc::F_DUPFD, 0).into(),
            "uname" => libc::uname(buffer.cast()).into(),
            "getppid" => libc::getppid().into(),
            "futex with priorities" => {
                libc::syscall(libc::SYS_futex, buffer, libc::FUTEX_LOCK_PI, 0, 0, 0, 0)
            }
            "read from descriptor 3" => libc::read(3, buffer.cast(), 8) as i64,
            "write to descriptor 3" => libc::write(3, buffer.cast(), 8) as i64,
            "no such call" => libc::syscall(9999),
            "ioctl" => libc::ioctl(0, libc::TIOCSTI, buffer).into(),
            "stat" => libc::syscall(libc::SYS_newfstatat, libc::AT_FDCWD, path, buffer, 0),
            "setrlimit" => libc::syscall(libc::SYS_prlimit64, 0, libc::RLIMIT_AS, &raw const limit, nothing),
            "old setrlimit" => libc::syscall(libc::SYS_setrlimit, libc::RLIMIT_AS, &raw const limit),
            unknown => panic!("unknown attempt: {unknown}"),
        }
    }
}

const EXECUTE: i32 = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
