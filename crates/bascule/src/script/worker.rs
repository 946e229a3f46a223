//! `bascule __worker`: the process of one script. It creates the engine, locks itself down, and only then reads.

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use bascule_sandbox::lockdown::{LockdownLimits, lock_down};
use bascule_script::worker::ScriptWorker;

/// The hidden command name.
pub(crate) const NAME: &str = "__worker";

pub(crate) fn main(arguments: &[OsString]) -> ExitCode {
    let Some(WorkerArgs { limits, is_pooled }) = WorkerArgs::parse(arguments) else {
        return ExitCode::from(2);
    };
    let Ok(mut worker) = ScriptWorker::new() else { return ExitCode::from(3) };
    if is_pooled {
        worker.warm_up();
    }
    let Ok(report) = lock_down(&limits) else { return ExitCode::from(4) };
    let missing = report.missing.iter().map(ToString::to_string).collect();
    // Exits without dropping the engine: the kernel frees its memory faster.
    std::process::exit(i32::from(worker.serve(io::stdin(), missing).is_err()))
}

/// The command line of a worker.
pub(super) struct WorkerArgs {
    pub(super) limits: LockdownLimits,
    /// The worker waits in the pool, so it has time to warm up.
    pub(super) is_pooled: bool,
}

impl WorkerArgs {
    /// Returns the command name, bytes of address space, seconds of processor time, and `is_pooled`.
    pub(super) fn to_command_line(&self) -> [String; 4] {
        let numbers = [self.limits.address_space_bytes, self.limits.cpu_seconds, self.is_pooled.into()];
        let [space, seconds, pooled] = numbers.map(|number| number.to_string());
        [NAME.into(), space, seconds, pooled]
    }

    fn parse(arguments: &[OsString]) -> Option<Self> {
        let [space, seconds, pooled] = arguments else { return None };
        let number = |text: &OsString| text.to_str()?.parse::<u64>().ok();
        let limits = LockdownLimits { address_space_bytes: number(space)?, cpu_seconds: number(seconds)? };
        Some(Self { limits, is_pooled: number(pooled)? > 0 })
    }
}
