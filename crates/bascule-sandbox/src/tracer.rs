//! Runs a server under ptrace and records the operations that the kernel refuses to it and its children.
//!
//! The tracer is a process between the reaper and the server, outside of the sandbox. It sees each system call twice, when
//! it is made and when it returns. The sandbox is the same as without a tracer.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use libc::{c_int, c_long, pid_t};

use crate::notified_thread::NotifiedThread;
use crate::reaper;
use crate::seccomp;
use crate::syscall_names::name_of;
use crate::syscall_result::check;
use crate::trace_log::{RefusedOperation, RefusedSyscall, TraceWriter};
use crate::traced_calls::refused_operations;

/// The descriptor of the record: the next after the configuration of the jail.
pub(crate) const TRACE: i32 = crate::jail::CONFIG + 1;

/// Takes the record that the bridge has passed.
pub(crate) fn take_record() -> io::Result<File> {
    // SAFETY: takes numbers only.
    check(unsafe { libc::fcntl(TRACE, libc::F_SETFD, libc::FD_CLOEXEC) })?;
    // SAFETY: the bridge opened it for this process, and only this function uses the number, once.
    Ok(unsafe { OwnedFd::from_raw_fd(TRACE) }.into())
}

/// Splits this process into the tracer and the server's process. Returns in the server's process, once it is traced. The
/// tracer ends like the server. To be called in a process with one thread.
pub(crate) fn split(record: File) -> io::Result<()> {
    let (mut tracers_end, mut servers_end) = UnixStream::pair()?;
    // SAFETY: this process has one thread, so the child may call anything.
    match check(unsafe { libc::fork() })? {
        0 => {
            drop((record, tracers_end));
            servers_end.read_exact(&mut [0]).map_err(|_| io::Error::other("the tracer has ended"))
        }
        server => {
            drop(servers_end);
            seize(server).map_err(|error| {
                io::Error::other(format!(
                    "could not trace the server: {error}; `kernel.yama.ptrace_scope` must be below 2, and no container \
                     may forbid ptrace"
                ))
            })?;
            tracers_end.write_all(&[1])?;
            crate::jail::close_pipes()?;
            reaper::reset_signals();
            // SAFETY: takes numbers only. The tracer must not outlive the reaper.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) };
            Tracer { server, is_confined: false, record: TraceWriter::new(record), entered: HashMap::new() }
                .run()
        }
    }
}

/// Tells the tracer that this process is confined. It records what is refused from here on.
pub(crate) fn report_confined() {
    // SAFETY: takes a number only. The tracer suppresses the signal.
    unsafe { libc::raise(libc::SIGSTOP) };
}

struct Tracer {
    server: pid_t,
    /// False until the server's process has confined itself.
    is_confined: bool,
    record: TraceWriter,
    /// The last system call of each thread.
    entered: HashMap<pid_t, EnteredCall>,
}

#[derive(Clone, Copy)]
struct EnteredCall {
    number: c_long,
    arguments: [u64; 6],
    /// False for a call of a 32-bit program, whose numbers mean other calls.
    is_native: bool,
    /// False once it has returned.
    is_pending: bool,
}

/// The start of the kernel's `ptrace_syscall_info`, whose last part depends on `operation`.
#[repr(C)]
struct SyscallInfo {
    operation: u8,
    _padding: [u8; 3],
    architecture: u32,
    _instruction: u64,
    _stack: u64,
    /// On entry: number and arguments. On exit: the result, and 1 if it is an error.
    values: [u64; 9],
}

const ENTRY: u8 = 1;
const EXIT: u8 = 2;
/// The signal of a stop at a system call.
const SYSCALL_STOP: c_int = libc::SIGTRAP | 0x80;

fn seize(pid: pid_t) -> io::Result<()> {
    let options = libc::PTRACE_O_TRACESYSGOOD
        | libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACEEXEC
        | libc::PTRACE_O_EXITKILL;
    // SAFETY: the request takes numbers only.
    check(unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, 0, options) })?;
    Ok(())
}

impl Tracer {
    fn run(mut self) -> ! {
        loop {
            let mut status = 0;
            // SAFETY: `status` is valid for the result.
            let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL) };
            if pid < 0 {
                std::process::exit(1);
            }
            if libc::WIFSTOPPED(status) {
                self.handle_stop(pid, status);
                continue;
            }
            self.handle_end(pid, status);
            if pid == self.server {
                reaper::exit_with_status(status);
            }
        }
    }

    fn handle_end(&mut self, pid: pid_t, status: c_int) {
        let entered = self.entered.remove(&pid);
        if libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSYS {
            let call = match entered {
                Some(entered) if entered.is_native => name_of(entered.number),
                Some(_) => "a system call of another architecture".into(),
                None => "an unknown system call".into(),
            };
            self.record.write(RefusedSyscall { call, operation: RefusedOperation::Killed, errno: 0 });
        }
    }

    fn handle_stop(&mut self, pid: pid_t, status: c_int) {
        let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
        match (signal, event) {
            (SYSCALL_STOP, _) => {
                self.handle_syscall(pid);
                resume(libc::PTRACE_SYSCALL, pid, 0);
            }
            (_, libc::PTRACE_EVENT_EXEC) => {
                self.entered.remove(&pid);
                resume(libc::PTRACE_SYSCALL, pid, 0);
            }
            (libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU, libc::PTRACE_EVENT_STOP) => {
                resume(libc::PTRACE_LISTEN, pid, 0);
            }
            (_, 1..) => resume(libc::PTRACE_SYSCALL, pid, 0),
            (libc::SIGSTOP, _) if pid == self.server && !self.is_confined => {
                self.is_confined = true;
                resume(libc::PTRACE_SYSCALL, pid, 0);
            }
            (signal, _) => resume(libc::PTRACE_SYSCALL, pid, signal),
        }
    }

    fn handle_syscall(&mut self, pid: pid_t) {
        let Some(info) = syscall_info(pid) else { return };
        match info.operation {
            ENTRY => {
                let [number, a, b, c, d, e, f, ..] = info.values;
                let entered = EnteredCall {
                    number: number as c_long,
                    arguments: [a, b, c, d, e, f],
                    is_native: info.architecture == seccomp::ARCHITECTURE,
                    is_pending: true,
                };
                self.entered.insert(pid, entered);
            }
            EXIT => {
                // A killed call returns before the signal is delivered, so it is kept.
                let Some(entered) = self.entered.get_mut(&pid).filter(|entered| entered.is_pending) else {
                    return;
                };
                entered.is_pending = false;
                let (entered, is_error) = (*entered, info.values[1] & 0xff != 0);
                if is_error && entered.is_native && self.is_confined {
                    self.record_refusal(pid, entered, -(info.values[0].cast_signed()) as i32);
                }
            }
            _ => {}
        }
    }

    fn record_refusal(&mut self, pid: pid_t, EnteredCall { number, arguments, .. }: EnteredCall, errno: i32) {
        let caller = NotifiedThread { thread: pid.cast_unsigned() };
        for call in refused_operations(caller, number, arguments, errno) {
            self.record.write(call);
        }
    }
}

/// A process that was killed meanwhile cannot be resumed, and need not be.
fn resume(request: libc::c_uint, pid: pid_t, signal: c_int) {
    // SAFETY: the requests that are used here take numbers only.
    unsafe { libc::ptrace(request, pid, 0, signal) };
}

fn syscall_info(pid: pid_t) -> Option<SyscallInfo> {
    const GET_SYSCALL_INFO: libc::c_uint = 0x420e;
    let size = size_of::<SyscallInfo>();
    // SAFETY: the structure has only numbers, and the kernel writes at most `size` bytes to it.
    let (read, info) = unsafe {
        let mut info: SyscallInfo = std::mem::zeroed();
        (libc::ptrace(GET_SYSCALL_INFO, pid, size, &raw mut info), info)
    };
    (read > 0).then_some(info)
}
