//! A script worker that has gone bad, and a small host for it: what the tests of the cell run. Never shipped.
//!
//! `hostile-worker host NAME` starts `hostile-worker worker NAME`, which locks itself, says what was missing, waits for a
//! word, and then does what NAME stands for. The host prints a line of JSON: what was missing, what the worker said, and
//! how it ended. A system call that is refused, rather than deadly, makes the worker say which error it got.

#![allow(unsafe_code, reason = "it makes the system calls that a worker must not make")]
#![allow(clippy::unwrap_used, reason = "a test program")]

use std::io::{Read, Write};
use std::os::fd::FromRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use bascule_sandbox::cell::{self, CellLimits, CellReport};
use bascule_sandbox::{Output, Worker, spawn_worker};
use serde_json::json;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["host", "spin"] => host_and_stay(),
        ["host", name] => host(name),
        ["worker", name] => worker(name),
        ["threads"] => several_threads(),
        _ => panic!("not a part of this play: {arguments:?}"),
    }
}

fn start(name: &str) -> Worker {
    // A descriptor that somebody left to the bridge.
    // SAFETY: takes a number only.
    unsafe { libc::dup(1) };
    let worker =
        spawn_worker(Path::new("/proc/self/exe"), ["worker", name], "UTC", Output::Captured).unwrap();
    worker.socket.set_nonblocking(false).unwrap();
    worker
}

/// A line of what the worker says; nothing at its end.
fn heard(mut socket: &UnixStream) -> String {
    let mut line = Vec::new();
    let mut byte = [0];
    while socket.read(&mut byte).is_ok_and(|length| length == 1) && byte != *b"\n" {
        line.push(byte[0]);
    }
    String::from_utf8(line).unwrap()
}

fn host(name: &str) {
    let mut worker = start(name);
    let missing: CellReport = serde_json::from_str(&heard(&worker.socket)).unwrap();
    let resident = worker.resident_bytes();
    // Only root can see that of a process that hides.
    let descriptors = std::fs::read_dir(format!("/proc/{}/fd", worker.pid())).ok().map(Iterator::count);
    worker.socket.write_all(b"go\n").unwrap();
    let said = heard(&worker.socket);
    let patience = if name == "close" { Duration::ZERO } else { Duration::from_secs(60) };
    let end = worker.finish(patience).unwrap();
    let mut output = String::new();
    worker.output.take().unwrap().read_to_string(&mut output).unwrap();
    let missing: Vec<String> = missing.missing.iter().map(ToString::to_string).collect();
    let end = format!("{end:?}");
    let told = json!({
        "missing": missing, "said": said, "end": end, "output": output,
        "resident": resident, "descriptors": descriptors,
    });
    std::io::stdout().write_all(told.to_string().as_bytes()).unwrap();
}

/// The thread that asked for the worker is gone when it is put to work. Tells the worker's number, and stays.
fn host_and_stay() {
    let worker = std::thread::spawn(|| start("spin")).join().unwrap();
    heard(&worker.socket);
    (&worker.socket).write_all(b"go\n").unwrap();
    assert_eq!(heard(&worker.socket), "spinning");
    println!("{}", worker.pid());
    loop {
        std::thread::park();
    }
}

fn several_threads() {
    std::thread::spawn(std::thread::park);
    println!("{}", cell::lock(&CellLimits::default()).unwrap_err());
}

fn worker(name: &str) {
    let born = json!({
        "environment": std::env::vars().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>(),
        "folder": std::env::current_dir().unwrap(),
    });
    let host = std::os::unix::process::parent_id();
    let seconds = match name {
        "burn" => 1,
        // Longer than a test waits for it to be killed.
        "spin" => 100,
        _ => CellLimits::default().cpu_seconds,
    };
    let limits = CellLimits { cpu_seconds: seconds, ..CellLimits::default() };
    let report = cell::lock(&limits).unwrap();
    // SAFETY: the host put it there, and nobody else uses it.
    let mut socket = unsafe { UnixStream::from_raw_fd(0) };
    let line = serde_json::to_string(&report).unwrap() + "\n";
    socket.write_all(line.as_bytes()).unwrap();
    assert_eq!(heard(&socket), "go");
    let said = match name {
        "born" => born.to_string(),
        "spin" => {
            socket.write_all(b"spinning\n").unwrap();
            spin()
        }
        "burn" => spin(),
        "panic" => panic!("as it should"),
        "abort" => std::process::abort(),
        "overflow" => deeper(&[0; 64]).to_string(),
        "exit" => std::process::exit(7),
        "close" => {
            drop(socket);
            loop {
                std::thread::sleep(Duration::from_secs(1));
            }
        }
        "live" => live(),
        "allocate 2 GB" => format!("{:?}", Vec::<u8>::new().try_reserve_exact(2 << 30).is_err()),
        call => told(attempt(call, host)),
    };
    socket.write_all(said.as_bytes()).unwrap();
}

fn spin() -> ! {
    loop {
        std::hint::spin_loop();
    }
}

#[allow(unconditional_recursion, reason = "to see where it ends")]
fn deeper(above: &[u8]) -> u8 {
    let here = [above.len() as u8; 4096];
    deeper(std::hint::black_box(&here)) ^ here[17]
}

/// What an engine needs to live.
fn live() -> String {
    let pieces: Vec<Vec<u8>> = (0..400).map(|_| vec![1; 1 << 20]).collect();
    let used: usize = pieces.iter().map(Vec::len).sum();
    drop(std::hint::black_box(pieces));
    let mut small: Vec<Box<[u8]>> = (0..10_000).map(|size| vec![1; size % 3000].into()).collect();
    small.shuffle();
    drop(small);
    let mut chance = [0_u8; 32];
    // SAFETY: `chance` has room for all of them.
    assert_eq!(unsafe { libc::getrandom(chance.as_mut_ptr().cast(), 32, 0) }, 32);
    assert_ne!(chance, [0; 32]);
    let before = Instant::now();
    std::thread::sleep(Duration::from_millis(2));
    assert!(before.elapsed() >= Duration::from_millis(2));
    assert!(std::time::SystemTime::now() > std::time::UNIX_EPOCH);
    std::thread::park_timeout(Duration::from_millis(1));
    std::thread::yield_now();
    println!("to standard output");
    // SAFETY: the text ends with a zero; C's own output looks first at what it writes to.
    unsafe {
        libc::puts(c"to C's standard output".as_ptr());
        libc::fflush(std::ptr::null_mut());
    }
    eprintln!("to standard error");
    std::panic::catch_unwind(|| panic!("which is caught")).unwrap_err();
    format!("used {used}")
}

trait Shuffle {
    fn shuffle(&mut self);
}

impl<T> Shuffle for Vec<T> {
    /// So that the allocator has holes to deal with.
    fn shuffle(&mut self) {
        let length = self.len();
        (0..length).for_each(|place| self.swap(place, place * 7919 % length));
    }
}

/// Whether a call went through, or with which error it did not.
fn told(result: i64) -> String {
    match result {
        -1 => format!("{}", std::io::Error::last_os_error()),
        _ => format!("it worked: {result}"),
    }
}

/// Signals are the one that does nothing: should a test fail, nobody is harmed.
fn attempt(name: &str, host: u32) -> i64 {
    let path = c"/etc/hostname".as_ptr();
    let nothing = std::ptr::null_mut::<libc::c_void>();
    let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let limit = libc::rlimit { rlim_cur: 1 << 40, rlim_max: 1 << 40 };
    let mut room = [0_u64; 64];
    let room = room.as_mut_ptr();
    // SAFETY: every pointer that is handed over is null, or a value that lives until the end of this function and is
    // large enough; what these calls do to the process beyond that is what is to be found out.
    unsafe {
        match name {
            #[cfg(target_arch = "x86_64")]
            "open" => libc::syscall(libc::SYS_open, path, libc::O_RDONLY),
            #[cfg(target_arch = "x86_64")]
            "fork" => libc::syscall(libc::SYS_fork),
            #[cfg(target_arch = "x86_64")]
            "the other ABI" => libc::syscall(0x4000_0000 | libc::SYS_getpid),
            "openat" => libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path, libc::O_RDONLY),
            "openat2" => libc::syscall(libc::SYS_openat2, libc::AT_FDCWD, path, room, 24),
            "socket" => libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0).into(),
            "unix socket" => libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0).into(),
            "socketpair" => libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0, room.cast()).into(),
            "connect" => libc::connect(0, room.cast(), 16).into(),
            "bind" => libc::bind(0, room.cast(), 16).into(),
            "clone" => libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0),
            "clone3" => libc::syscall(libc::SYS_clone3, room, 64),
            "execve" => libc::execve(c"/bin/true".as_ptr(), room.cast(), room.cast()).into(),
            "execveat" => libc::syscall(libc::SYS_execveat, 0, c"".as_ptr(), room, room, libc::AT_EMPTY_PATH),
            "ptrace" => libc::ptrace(libc::PTRACE_ATTACH, libc::getpid(), 0, 0),
            "kill the host" => libc::syscall(libc::SYS_kill, host, 0),
            "kill all" => libc::syscall(libc::SYS_kill, -1, 0),
            "kill a thread of the host" => libc::syscall(libc::SYS_tgkill, host, host, 0),
            "kill a thread" => libc::syscall(libc::SYS_tkill, host, 0),
            "queue a signal" => libc::syscall(libc::SYS_rt_sigqueueinfo, host, 0, room),
            "map to execute" => libc::mmap(nothing, 4096, EXECUTE, anonymous, -1, 0) as i64,
            "protect to execute" => {
                let place = libc::mmap(nothing, 4096, libc::PROT_READ, anonymous, -1, 0);
                libc::mprotect(place, 4096, libc::PROT_READ | libc::PROT_EXEC).into()
            }
            "protect with a key" => libc::syscall(libc::SYS_pkey_mprotect, 0, 4096, EXECUTE, -1),
            "prctl" => libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0).into(),
            "seccomp" => libc::syscall(libc::SYS_seccomp, 0, 0, 0),
            "io_uring_setup" => libc::syscall(libc::SYS_io_uring_setup, 1, room),
            "memfd_create" => libc::syscall(libc::SYS_memfd_create, c"m".as_ptr(), 0),
            "process_vm_readv" => libc::syscall(libc::SYS_process_vm_readv, host, room, 0, room, 0, 0),
            "unshare" => libc::unshare(libc::CLONE_NEWUSER).into(),
            "setns" => libc::setns(0, 0).into(),
            "setuid" => libc::syscall(libc::SYS_setuid, 0),
            "bpf" => libc::syscall(libc::SYS_bpf, 0, room, 0),
            "keyctl" => libc::syscall(libc::SYS_keyctl, 0, 0, 0, 0, 0),
            "shmget" => libc::shmget(libc::IPC_PRIVATE, 4096, 0).into(),
            "setitimer" => libc::syscall(libc::SYS_setitimer, 0, room, room),
            "clock_settime" => libc::syscall(libc::SYS_clock_settime, libc::CLOCK_REALTIME, nothing),
            "readlink" => libc::syscall(libc::SYS_readlinkat, libc::AT_FDCWD, path, room, 8),
            "getdents" => libc::syscall(libc::SYS_getdents64, 0, room, 64),
            "dup" => libc::dup(0).into(),
            "fcntl" => libc::fcntl(0, libc::F_DUPFD, 0).into(),
            "uname" => libc::uname(room.cast()).into(),
            "getppid" => libc::getppid().into(),
            "futex with priorities" => libc::syscall(libc::SYS_futex, room, libc::FUTEX_LOCK_PI, 0, 0, 0, 0),
            "read elsewhere" => libc::read(3, room.cast(), 8) as i64,
            "write elsewhere" => libc::write(3, room.cast(), 8) as i64,
            "no such call" => libc::syscall(9999),
            "ioctl" => libc::ioctl(0, libc::TIOCSTI, room).into(),
            "stat" => libc::syscall(libc::SYS_newfstatat, libc::AT_FDCWD, path, room, 0),
            "setrlimit" => libc::syscall(libc::SYS_prlimit64, 0, libc::RLIMIT_AS, &raw const limit, nothing),
            "old setrlimit" => libc::syscall(libc::SYS_setrlimit, libc::RLIMIT_AS, &raw const limit),
            unknown => panic!("no such attempt: {unknown}"),
        }
    }
}

const EXECUTE: i32 = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
