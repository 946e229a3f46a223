//! Starts the jail, and holds the line on which its life hangs.

use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::cgroup::Group;
use crate::jail::{LIFELINE, Orders};
use crate::policy::Policy;
use crate::watchdog::{TreeLimits, Watch};

/// While this is held, and not cut, the server lives. Dropped, cut, or gone with the process that held it,
/// everything that the server started is killed.
#[derive(Debug)]
pub struct Lifeline(Scissors);

impl Drop for Lifeline {
    fn drop(&mut self) {
        self.0.cut();
    }
}

/// Ends a server without owning it.
#[derive(Debug, Clone)]
pub(crate) struct Scissors(Arc<Mutex<Line>>);

/// The line itself, until it is cut, and what came along it.
#[derive(Debug)]
struct Line {
    stream: Option<UnixStream>,
    last_word: Option<u64>,
}

impl Scissors {
    fn of(stream: UnixStream) -> Self {
        Self(Arc::new(Mutex::new(Line { stream: Some(stream), last_word: None })))
    }

    /// Ends the server and all that came of it.
    pub(crate) fn cut(&self) {
        let mut line = self.line();
        line.listen();
        line.stream = None;
    }

    /// What the jail said when its server had ended by itself: how much memory that used at the most, in bytes.
    pub(crate) fn last_word(&self) -> Option<u64> {
        let mut line = self.line();
        line.listen();
        line.last_word
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.0.lock().expect("nothing panics while holding it")
    }
}

impl Line {
    /// Takes what is there, without waiting for more.
    fn listen(&mut self) {
        let mut word = [0; 8];
        if self.stream.as_ref().is_some_and(|mut stream| stream.read_exact(&mut word).is_ok()) {
            self.last_word = Some(u64::from_ne_bytes(word));
        }
    }
}

/// A jail that is ready to be started.
pub struct Jail {
    /// What starts it. Environment, folder and pipes are set here, and reach the server.
    pub command: Command,
    /// On this its life hangs.
    pub lifeline: Lifeline,
    /// Looks after it once it runs.
    pub warden: Warden,
}

/// Knows the limits of a jail that does not run yet.
pub struct Warden {
    scissors: Scissors,
    group: Option<Group>,
    limits: TreeLimits,
}

impl Warden {
    /// The jail runs as this process.
    pub fn watch(self, pid: u32) -> Arc<Watch> {
        Watch::start(pid, self.scissors, self.group, self.limits)
    }
}

static IS_USED: AtomicBool = AtomicBool::new(false);

/// Whether there was ever a jail, or is about to be one.
pub(crate) fn is_used() -> bool {
    IS_USED.load(Ordering::Relaxed)
}

/// Runs a program under a policy and limits: `ourselves` is the program that understands `__jail`.
pub fn launch(
    ourselves: &Path,
    policy: &Policy,
    limits: TreeLimits,
    program: &str,
    arguments: &[String],
) -> io::Result<Jail> {
    IS_USED.store(true, Ordering::Relaxed);
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let mut command = Command::new(ourselves);
    let group = Group::make(limits);
    let groups = group.as_ref().map_or_else(Vec::new, |group| group.folders().to_vec());
    let processes = limits.processes.filter(|_| group.is_none());
    let orders = serde_json::to_string(&Orders { policy, groups, processes }).map_err(io::Error::other)?;
    command.arg("__jail").arg(orders).arg("--").arg(program).args(arguments);
    let prepare = move || {
        // SAFETY: async-signal-safe, as everything between fork and exec must be. `dup2` leaves the copy open
        // across exec; if it already is the right one, its flag is cleared instead.
        let result = unsafe {
            match theirs.as_raw_fd() {
                LIFELINE => libc::fcntl(LIFELINE, libc::F_SETFD, 0),
                other => libc::dup2(other, LIFELINE),
            }
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    };
    // SAFETY: `prepare` only duplicates a descriptor.
    unsafe { command.pre_exec(prepare) };
    let scissors = Scissors::of(ours);
    Ok(Jail { command, lifeline: Lifeline(scissors.clone()), warden: Warden { scissors, group, limits } })
}
