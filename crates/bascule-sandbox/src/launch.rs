//! Builds the command that starts a jail.

use std::fs::File;
use std::io::{self, Seek};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::fcntl_dupfd_cloexec;

use crate::cgroup::CgroupGuard;
use crate::jail::{CONFIG, JailConfig};
use crate::lifeline::{KillSwitch, LIFELINE, Lifeline};
use crate::policy::Policy;
use crate::rlimits;
use crate::syscall_result::check;
use crate::trace_log::TraceLog;
use crate::tracer::TRACE;
use crate::watchdog::{TreeLimits, TreeWatch};

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
    /// The server's own folder, whose size is limited.
    folder: Option<PathBuf>,
    limits: TreeLimits,
}

impl PendingWatch {
    /// Starts to enforce the limits. `pid` is the jail's process.
    pub fn start(self, pid: u32) -> Arc<TreeWatch> {
        TreeWatch::start(pid, self.kill_switch, self.cgroup, self.folder, self.limits)
    }
}

impl Jail {
    /// Prepares to run `program` under a policy and limits. `jailer` is the executable that implements `__jail`. With
    /// `trace`, refused operations are recorded.
    pub fn new(
        jailer: &Path,
        policy: &Policy,
        limits: TreeLimits,
        program: &str,
        arguments: &[String],
        trace: Option<&TraceLog>,
    ) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let cgroup = CgroupGuard::create(limits);
        let cgroups = cgroup.as_ref().map_or_else(Vec::new, |cgroup| cgroup.folders().to_vec());
        let config = JailConfig {
            policy,
            max_processes: limits.processes,
            limits_threads: !cgroup.as_ref().is_some_and(CgroupGuard::limits_tasks),
            cgroups,
            inherited_open_files: rlimits::inherited_open_files(),
            is_traced: trace.is_some(),
        };
        let mut command = Command::new(jailer);
        command.arg("__jail").arg("--").arg(program).args(arguments);
        pass_descriptor(&mut command, theirs.into(), LIFELINE)?;
        pass_descriptor(&mut command, file_with(&config)?, CONFIG)?;
        if let Some(trace) = trace {
            pass_descriptor(&mut command, trace.descriptor()?, TRACE)?;
        }
        let kill_switch = KillSwitch::new(ours);
        let lifeline = Lifeline(kill_switch.clone());
        let folder = policy.temporary.as_deref().and_then(Path::parent).map(Path::to_path_buf);
        Ok(Self { command, lifeline, watch: PendingWatch { kill_switch, cgroup, folder, limits } })
    }
}

/// Writes a configuration into a file in memory, to be read from its beginning.
fn file_with(config: &JailConfig<&Policy>) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create("bascule-jail", MemfdFlags::CLOEXEC)?);
    serde_json::to_writer(&file, config).map_err(io::Error::other)?;
    file.rewind()?;
    Ok(file.into())
}

/// Passes a descriptor to the jail under a fixed number.
fn pass_descriptor(command: &mut Command, descriptor: OwnedFd, number: i32) -> io::Result<()> {
    /// Above all fixed numbers, so that passing one descriptor does not replace another.
    const FREE: i32 = 16;
    let descriptor = fcntl_dupfd_cloexec(descriptor, FREE)?;
    let duplicate = move || {
        // SAFETY: the call is async-signal-safe, which code between fork and exec must be. The copy stays open across exec.
        check(unsafe { libc::dup2(descriptor.as_raw_fd(), number) })?;
        Ok(())
    };
    // SAFETY: `duplicate` only duplicates a descriptor.
    unsafe { command.pre_exec(duplicate) };
    Ok(())
}
