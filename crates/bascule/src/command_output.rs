//! Runs a short command and returns its output.

use std::fs::File;
use std::io::{Read, Seek};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Longer output is cut off.
const MAX_BYTES: u64 = 1 << 20;

/// Returns stdout, or `None` if the command cannot be started or does not end in time; then it is killed.
pub(crate) fn command_output(mut command: Command, timeout: Duration) -> Option<String> {
    // A file, because a process that the command leaves behind would keep a pipe open.
    let file = rustix::fs::memfd_create("bascule-output", rustix::fs::MemfdFlags::CLOEXEC).ok()?;
    let mut file = File::from(file);
    command.stdin(Stdio::null()).stdout(file.try_clone().ok()?).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let start = Instant::now();
    while child.try_wait().ok()?.is_none() {
        if start.elapsed() > timeout {
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    file.rewind().ok()?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
