//! Builds the command that starts a jail, and the lifeline that keeps it alive.

use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::cgroup::CgroupGuard;
use crate::jail::{JailConfig, LIFELINE};
use crate::policy::Policy;
use crate::watchdog::{TreeLimits, TreeWatch};

/// Keeps a server alive. The reaper kills the server's whole process tree when this is dropped, and when the process
/// that holds it ends.
#[derive(Debug)]
pub struct Lifeline(KillSwitch);

impl Drop for Lifeline {
    fn drop(&mut self) {
        self.0.kill();
    }
}

/// Kills a server's process tree without owning the server.
#[derive(Debug, Clone)]
pub(crate) struct KillSwitch(Arc<Mutex<LifelineSocket>>);

#[derive(Debug)]
struct LifelineSocket {
    /// `None` once it is closed, which makes the reaper kill the tree.
    stream: Option<UnixStream>,
    peak_bytes: Option<u64>,
}

impl KillSwitch {
    fn new(stream: UnixStream) -> Self {
        Self(Arc::new(Mutex::new(LifelineSocket { stream: Some(stream), peak_bytes: None })))
    }

    pub(crate) fn kill(&self) {
        let mut socket = self.socket();
        socket.read_peak();
        socket.stream = None;
    }

    /// The server's peak memory, which the reaper reports after the server exits by itself.
    pub(crate) fn peak_bytes(&self) -> Option<u64> {
        let mut socket = self.socket();
        socket.read_peak();
        socket.peak_bytes
    }

    fn socket(&self) -> MutexGuard<'_, LifelineSocket> {
        self.0.lock().expect("no code panics while it holds the lock")
    }
}

impl LifelineSocket {
    /// Does not block: the stream is non-blocking.
    fn read_peak(&mut self) {
        let mut bytes = [0; 8];
        if self.stream.as_ref().is_some_and(|mut stream| stream.read_exact(&mut bytes).is_ok()) {
            self.peak_bytes = Some(u64::from_ne_bytes(bytes));
        }
    }
}

/// A jail that is ready to be started.
pub struct Jail {
    /// Starts the jail. The server inherits the environment, working directory and pipes that are set here.
    pub command: Command,
    pub lifeline: Lifeline,
    /// To be started once `command` runs.
    pub watch: PendingWatch,
}

/// The limits of a jail that does not run yet, and the means to enforce them.
pub struct PendingWatch {
    kill_switch: KillSwitch,
    cgroup: Option<CgroupGuard>,
    limits: TreeLimits,
}

impl PendingWatch {
    /// Starts to enforce the limits. `pid` is the jail's process.
    pub fn start(self, pid: u32) -> Arc<TreeWatch> {
        TreeWatch::start(pid, self.kill_switch, self.cgroup, self.limits)
    }
}

impl Jail {
    /// Prepares to run `program` under a policy and limits. `jailer` is the executable that implements `__jail`.
    pub fn new(
        jailer: &Path,
        policy: &Policy,
        limits: TreeLimits,
        program: &str,
        arguments: &[String],
    ) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let cgroup = CgroupGuard::create(limits);
        let cgroups = cgroup.as_ref().map_or_else(Vec::new, |cgroup| cgroup.folders().to_vec());
        let max_processes = limits.processes.filter(|_| cgroup.is_none());
        let config = JailConfig { policy, cgroups, max_processes };
        let config = serde_json::to_string(&config).map_err(io::Error::other)?;
        let mut command = Command::new(jailer);
        command.arg("__jail").arg(config).arg("--").arg(program).args(arguments);
        pass_lifeline(&mut command, theirs);
        let kill_switch = KillSwitch::new(ours);
        let lifeline = Lifeline(kill_switch.clone());
        Ok(Self { command, lifeline, watch: PendingWatch { kill_switch, cgroup, limits } })
    }
}

/// Passes the jail's end of the lifeline as descriptor `LIFELINE`.
fn pass_lifeline(command: &mut Command, socket: UnixStream) {
    let duplicate = move || {
        // SAFETY: both calls are async-signal-safe, which code between fork and exec must be. `dup2` leaves the copy
        // open across exec; if the descriptor already has the right number, its close-on-exec flag is cleared instead.
        let result = unsafe {
            match socket.as_raw_fd() {
                LIFELINE => libc::fcntl(LIFELINE, libc::F_SETFD, 0),
                other => libc::dup2(other, LIFELINE),
            }
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    };
    // SAFETY: `duplicate` only duplicates a descriptor.
    unsafe { command.pre_exec(duplicate) };
}
