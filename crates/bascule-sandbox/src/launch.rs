//! Starts the jail, and holds the line on which its life hangs.

use std::io::{self, PipeWriter};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use crate::jail::LIFELINE;
use crate::policy::Policy;

/// While this is held, and not cut, the server lives. Dropped, cut, or gone with the process that held it,
/// everything that the server started is killed.
#[derive(Debug)]
pub struct Lifeline(Scissors);

impl Lifeline {
    /// What can cut it before it is dropped.
    pub fn scissors(&self) -> Scissors {
        self.0.clone()
    }
}

impl Drop for Lifeline {
    fn drop(&mut self) {
        self.0.cut();
    }
}

/// Ends a server without owning it.
#[derive(Debug, Clone)]
pub struct Scissors(Arc<Mutex<Option<PipeWriter>>>);

impl Scissors {
    /// Ends the server and all that came of it.
    pub fn cut(&self) {
        self.0.lock().expect("nothing panics while holding it").take();
    }
}

/// A command that runs another under a policy: `ourselves` is the program that understands `__jail`. Environment,
/// folder and pipes are set on what comes back, and reach the server.
pub fn launch(
    ourselves: &Path,
    policy: &Policy,
    program: &str,
    arguments: &[String],
) -> io::Result<(Command, Lifeline)> {
    let (reader, writer) = io::pipe()?;
    let mut command = Command::new(ourselves);
    let policy = serde_json::to_string(policy).map_err(io::Error::other)?;
    command.arg("__jail").arg(policy).arg("--").arg(program).args(arguments);
    let prepare = move || {
        // SAFETY: async-signal-safe, as everything between fork and exec must be. `dup2` leaves the copy open
        // across exec; if it already is the right one, its flag is cleared instead.
        let result = unsafe {
            match reader.as_raw_fd() {
                LIFELINE => libc::fcntl(LIFELINE, libc::F_SETFD, 0),
                other => libc::dup2(other, LIFELINE),
            }
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    };
    // SAFETY: `prepare` only duplicates a descriptor.
    unsafe { command.pre_exec(prepare) };
    Ok((command, Lifeline(Scissors(Arc::new(Mutex::new(Some(writer)))))))
}
