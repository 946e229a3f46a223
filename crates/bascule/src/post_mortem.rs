//! Completes a server's error with the limit its process exceeded, and removes configured secrets from it.

use bascule_model::BridgeError;
use bascule_sandbox::{LimitHit, TreeWatch};

use crate::config::{ServerSettings, TransportSettings};
use crate::redaction::SecretForms;

/// Adds the limit that ended the process, or probably did, and redacts secrets.
pub(crate) fn explain(
    mut error: Box<BridgeError>,
    watch: Option<&TreeWatch>,
    settings: &ServerSettings,
) -> Box<BridgeError> {
    error.limit = watch.and_then(|watch| describe_limit(&error, watch));
    if let Some(limit) = &error.limit {
        error.message = format!("{}: {limit}", error.message);
    }
    redact_secrets(error, settings)
}

fn describe_limit(error: &BridgeError, watch: &TreeWatch) -> Option<String> {
    // The current limits: a process that runs one tool may have the limits of that tool.
    let limits = watch.limits();
    let memory = limits.memory_bytes.unwrap_or_default() >> 20;
    match watch.limit_hit() {
        Some(LimitHit::Memory(bytes)) => Some(format!(
            "`maxMemoryMb` exceeded: the watchdog measured {} MB, the limit is {memory} MB",
            bytes >> 20
        )),
        Some(LimitHit::OutOfMemory) => Some(format!(
            "`maxMemoryMb` exceeded: the kernel killed a process of its cgroup, the limit is {memory} MB"
        )),
        Some(LimitHit::Processes(count)) => {
            let max = limits.processes.unwrap_or_default();
            Some(format!(
                "`maxProcesses` exceeded: the watchdog counted {count} processes, the limit is {max}"
            ))
        }
        None if error.exit.is_some() && reports_out_of_memory(error.stderr.as_deref()) => Some(format!(
            "`maxMemoryMb` probably exceeded: its stderr reports a failed allocation, the limit is {memory} MB"
        )),
        None if was_killed(error) && watch.was_near_memory_limit() => Some(format!(
            "`maxMemoryMb` probably exceeded: it was killed while its memory was near the limit of {memory} MB"
        )),
        None => None,
    }
}

fn was_killed(error: &BridgeError) -> bool {
    error.exit.as_deref().is_some_and(|exit| exit.starts_with("signal"))
}

/// At RLIMIT_DATA an allocation fails. Each runtime reports that in its own words.
fn reports_out_of_memory(stderr: Option<&str>) -> bool {
    // C++ programs, such as Node, print the last one when there is no memory for a longer message.
    const MESSAGES: [&str; 7] = [
        "out of memory",
        "MemoryError",
        "Cannot allocate memory",
        "allocation failed",
        "memory allocation of",
        "bad_alloc",
        "terminate called",
    ];
    stderr.is_some_and(|text| MESSAGES.iter().any(|message| text.contains(message)))
}

/// Replaces configured secrets, which a server may quote in its errors.
fn redact_secrets(mut error: Box<BridgeError>, settings: &ServerSettings) -> Box<BridgeError> {
    let secrets = match &settings.transport {
        TransportSettings::Stdio { env, .. } => env,
        TransportSettings::Remote { headers, .. } => headers,
    };
    let secrets = SecretForms::new(secrets.iter().map(|(_, value)| value.reveal().as_str()));
    secrets.hide(&mut error.message);
    error.stderr.iter_mut().for_each(|stderr| secrets.hide(stderr));
    if let Some(fault) = &mut error.provider_error {
        secrets.hide(&mut fault.message);
        fault.raw.take_if(|raw| secrets.are_in(raw.get()));
    }
    error
}
