//! What can be told of a server's failure that only its settings and its watchdog know: the limit it met, and what of
//! its words must not be repeated.

use bascule_model::BridgeError;
use bascule_sandbox::{Hit, Watch};

use crate::config::{ServerSettings, TransportSettings};

/// Adds to an error which limit ended the process, where one did or seems to have, and takes secrets out of it.
pub(crate) fn explained(
    mut error: Box<BridgeError>,
    watch: Option<&Watch>,
    settings: &ServerSettings,
) -> Box<BridgeError> {
    // What was bound last: a process may have been started for one tool that has limits of its own.
    let limits = watch.map(Watch::limits).unwrap_or_default();
    let memory = limits.memory_bytes.unwrap_or_default() >> 20;
    error.limit = match watch.and_then(Watch::hit) {
        Some(Hit::Memory(bytes)) => {
            Some(format!("`maxMemoryMb`: seen using {} MB, {memory} are allowed", bytes >> 20))
        }
        Some(Hit::OutOfMemory) => {
            Some(format!("`maxMemoryMb`: seen by the kernel (cgroup), {memory} MB are allowed"))
        }
        Some(Hit::Processes(count)) => {
            let most = limits.processes.unwrap_or_default();
            Some(format!("`maxProcesses`: seen running {count}, {most} are allowed"))
        }
        None if error.exit.is_some() && says_out_of_memory(error.stderr.as_deref()) => {
            Some(format!("`maxMemoryMb`: inferred from its last words, {memory} MB are allowed"))
        }
        None if was_killed(&error) && watch.is_some_and(Watch::was_near_its_memory) => {
            Some(format!("`maxMemoryMb`: inferred from what it used before, {memory} MB are allowed"))
        }
        None => None,
    };
    if let Some(limit) = &error.limit {
        error.message = format!("{}: {limit}", error.message);
    }
    discreet(error, settings)
}

fn was_killed(error: &BridgeError) -> bool {
    error.exit.as_deref().is_some_and(|exit| exit.starts_with("signal"))
}

/// At RLIMIT_DATA a process is refused memory; what it makes of that is its own.
fn says_out_of_memory(stderr: Option<&str>) -> bool {
    // The last is what C++, and so Node, says when there is not even memory to say more.
    const WORDS: [&str; 7] = [
        "out of memory",
        "MemoryError",
        "Cannot allocate memory",
        "allocation failed",
        "memory allocation of",
        "bad_alloc",
        "terminate called",
    ];
    stderr.is_some_and(|text| WORDS.iter().any(|word| text.contains(word)))
}

/// Takes out of an error what the configuration holds secret: a server may quote what it was given.
fn discreet(mut error: Box<BridgeError>, settings: &ServerSettings) -> Box<BridgeError> {
    let secrets = match &settings.transport {
        TransportSettings::Stdio { env, .. } => env,
        TransportSettings::Http { headers, .. }
        | TransportSettings::Sse { headers, .. }
        | TransportSettings::HttpOrSse { headers, .. } => headers,
    };
    // `Bearer TOKEN` is as secret in its second word. What is too short to be a secret would garble every error.
    let words =
        secrets.iter().flat_map(|(_, value)| value.reveal().split(' ')).filter(|word| word.len() >= 6);
    for word in words {
        let hide = |text: &mut String| *text = text.replace(word, "***");
        hide(&mut error.message);
        error.stderr.iter_mut().for_each(hide);
        if let Some(fault) = &mut error.provider_error {
            hide(&mut fault.message);
            fault.raw.take_if(|raw| raw.get().contains(word));
        }
    }
    error
}
