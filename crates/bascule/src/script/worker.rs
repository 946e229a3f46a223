//! `bascule __worker`: the process in which one script runs. Makes its engine, locks itself in, and only then reads.

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use bascule_sandbox::lockdown::{LockdownLimits, lock_down};
use bascule_script::worker::Worker;

/// What stands on the command line instead of a command.
pub(crate) const NAME: &str = "__worker";

/// Runs the one script that comes. The arguments say what the process may use up.
pub(crate) fn main(arguments: &[OsString]) -> ExitCode {
    let Some(Orders { limits, will_wait }) = orders(arguments) else { return ExitCode::from(2) };
    let Ok(mut worker) = Worker::new() else { return ExitCode::from(3) };
    if will_wait {
        worker.rehearse();
    }
    let Ok(report) = lock_down(&limits) else { return ExitCode::from(4) };
    let missing = report.missing.iter().map(ToString::to_string).collect();
    // The kernel takes the engine apart quicker than we could.
    std::process::exit(i32::from(worker.serve(io::stdin(), missing).is_err()))
}

/// What the command line says.
pub(super) struct Orders {
    pub(super) limits: LockdownLimits,
    /// Whether nobody waits for it to be ready.
    pub(super) will_wait: bool,
}

/// Bytes of address space, seconds of processor time, and whether it will wait.
pub(super) fn arguments(Orders { limits, will_wait }: &Orders) -> [String; 4] {
    let numbers = [limits.address_space_bytes, limits.cpu_seconds, u64::from(*will_wait)];
    let [space, seconds, waits] = numbers.map(|number| number.to_string());
    [NAME.into(), space, seconds, waits]
}

fn orders(arguments: &[OsString]) -> Option<Orders> {
    let [space, seconds, waits] = arguments else { return None };
    let number = |text: &OsString| text.to_str()?.parse::<u64>().ok();
    let limits = LockdownLimits { address_space_bytes: number(space)?, cpu_seconds: number(seconds)? };
    Some(Orders { limits, will_wait: number(waits)? > 0 })
}
