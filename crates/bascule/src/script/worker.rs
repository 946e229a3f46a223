//! `bascule __worker`: the process in which one script runs. Makes its engine, locks itself in, and only then reads.

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use bascule_sandbox::cell::{CellLimits, lock};
use bascule_script::worker::Worker;

/// What stands on the command line instead of a command.
pub(crate) const NAME: &str = "__worker";

/// Runs the one script that comes. The arguments say what the process may use up.
pub(crate) fn main(arguments: &[OsString]) -> ExitCode {
    let Some(limits) = limits(arguments) else { return ExitCode::from(2) };
    let Ok(mut worker) = Worker::new() else { return ExitCode::from(3) };
    let Ok(report) = lock(&limits) else { return ExitCode::from(4) };
    let missing = report.missing.iter().map(ToString::to_string).collect();
    // The kernel takes the engine apart quicker than we could.
    std::process::exit(i32::from(worker.serve(io::stdin(), missing).is_err()))
}

/// Bytes of address space, then seconds of processor time.
pub(super) fn arguments(limits: &CellLimits) -> [String; 3] {
    [NAME.into(), limits.address_space_bytes.to_string(), limits.cpu_seconds.to_string()]
}

fn limits(arguments: &[OsString]) -> Option<CellLimits> {
    let [space, seconds] = arguments else { return None };
    let number = |text: &OsString| text.to_str()?.parse().ok();
    Some(CellLimits { address_space_bytes: number(space)?, cpu_seconds: number(seconds)? })
}
