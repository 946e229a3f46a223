//! Completes a server's error with the limit its process exceeded and the likely refusal by its sandbox, and removes
//! configured secrets from it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bascule_client::CallToolResult;
use bascule_model::{BridgeError, CallRequest, ErrorCode, ToolResult};
use bascule_sandbox::{LimitHit, Policy, TreeLimits, TreeWatch};
use tokio::sync::Semaphore;

use crate::blocking::run_blocking;
use crate::capture::is_secret_name;
use crate::config::{ServerSettings, TransportSettings};
use crate::fleet::server::Server;
use crate::launch::{self, ConfinedProcess};
use crate::redaction::SecretForms;
use crate::refusal::{
    FileLookup, Hints, Symptom, find_named_paths, find_symptom, gives_no_reason, is_killed_by_filter,
};
use crate::start_hints::explain_missing_variable;

/// Longer results are not searched for the reason of a failure.
const MAX_SEARCHED_BYTES: usize = 256 << 10;
/// The longest look at the files that a failure names: the caller waits for it.
const LOOKUP_TIME: Duration = Duration::from_secs(1);
/// The looks that may be under way. Those that never end keep their slots.
static FREE_LOOKUPS: Semaphore = Semaphore::const_new(4);
/// A crash is explained by the last lines of stderr.
const STDERR_LINES: usize = 30;

/// Adds the limit that ended the process, or probably did, or the likely refusal by the sandbox, and a variable that it
/// misses. Redacts secrets.
pub(crate) async fn explain(
    mut error: Box<BridgeError>,
    confined: Option<&ConfinedProcess>,
    settings: &Arc<ServerSettings>,
) -> Box<BridgeError> {
    add_limit(&mut error, confined);
    if let (Some(confined), Some(symptom)) = (confined, symptom_of(&error)) {
        let (policy, limits) = (confined.policy.clone(), confined.watch.limits());
        let hint = look_up(vec![symptom.clone()], policy, limits, settings.clone()).await;
        // A hint may name paths that other texts may not.
        error = redact_secrets(error, settings);
        add_hint(&mut error, &symptom, hint);
    } else {
        error = redact_secrets(error, settings);
    }
    explain_missing_variable(&mut error, settings);
    error
}

/// Does the same without a look at the files that the server names, which may block.
pub(crate) fn explain_quickly(
    mut error: Box<BridgeError>,
    confined: Option<&ConfinedProcess>,
    settings: &ServerSettings,
) -> Box<BridgeError> {
    add_limit(&mut error, confined);
    if let (Some(confined), Some(symptom), true) = (confined, symptom_of(&error), is_local(settings)) {
        let hints = Hints { settings, policy: &confined.policy, limits: confined.watch.limits() };
        let hint = hints.explain(&symptom, FileLookup::Forbidden);
        add_hint(&mut error, &symptom, hint);
    }
    explain_missing_variable(&mut error, settings);
    redact_secrets(error, settings)
}

/// Returns the likely refusal behind a failure that a tool reports. Where the failure gives no sign of one, that in the lines
/// counts which the server has written to stderr since `stderr_start`: during the call.
pub(crate) async fn explain_result(
    result: &ToolResult,
    server: &Server,
    request: &CallRequest,
    stderr_start: Option<u64>,
) -> Option<String> {
    if !result.is_error || result.raw.get().len() > MAX_SEARCHED_BYTES {
        return None;
    }
    let backend = server.backend().ok()?;
    let policy = backend.policy()?;
    let reply = CallToolResult::parse(result.raw.clone()).ok()?;
    let has_other_content = reply.structured_content().is_some() || reply.content().len() > 1;
    let text = reply.text();
    let symptoms = match find_symptom(&text) {
        Some(symptom) => vec![symptom],
        None => {
            let no_reason = !has_other_content && gives_no_reason(&text);
            let named = find_named_paths(&text, request.arguments.get());
            // The lines may be those of another call.
            let start = stderr_start.filter(|_| !server.has_requests());
            let written = start.and_then(|start| find_symptom(&backend.stderr_after(start)));
            named.into_iter().chain(written).chain(no_reason.then_some(Symptom::NoReason)).collect()
        }
    };
    let settings = server.settings.clone();
    let limits = launch::tree_limits(&settings, settings.limits_for(request.tool.tool()));
    look_up(symptoms, policy, limits, settings).await
}

/// Adds the likely refusal to the error of a call that the server answered with an error without a sign of one.
pub(crate) async fn explain_call_error(
    mut error: Box<BridgeError>,
    server: &Server,
    request: &CallRequest,
) -> Box<BridgeError> {
    let Some(fault) = error.provider_error.as_ref().filter(|_| error.hint.is_none() && error.limit.is_none())
    else {
        return error;
    };
    let (named, policy) = (
        find_named_paths(&fault.message, request.arguments.get()),
        server.backend().ok().and_then(|backend| backend.policy()),
    );
    if let (Some(symptom), Some(policy), None) = (named, policy, symptom_of(&error)) {
        let settings = server.settings.clone();
        let limits = launch::tree_limits(&settings, settings.limits_for(request.tool.tool()));
        let hint = look_up(vec![symptom.clone()], policy, limits, settings).await;
        add_hint(&mut error, &symptom, hint);
    }
    error
}

/// Returns the hint about the first symptom that has one, without secrets.
async fn look_up(
    symptoms: Vec<Symptom>,
    policy: Arc<Policy>,
    limits: TreeLimits,
    settings: Arc<ServerSettings>,
) -> Option<String> {
    if symptoms.is_empty() || !is_local(&settings) {
        return None;
    }
    // A file may be on a network that is gone: a look at it then never ends.
    let slot = FREE_LOOKUPS.try_acquire().ok()?;
    let explain = move || {
        let _slot = slot;
        let hints = Hints { settings: &settings, policy: &policy, limits };
        let mut hint = symptoms.iter().find_map(|symptom| hints.explain(symptom, FileLookup::Allowed))?;
        secrets_but(&settings, is_plain_path).hide(&mut hint);
        Some(hint)
    };
    tokio::time::timeout(LOOKUP_TIME, run_blocking(explain)).await.ok().flatten()
}

/// Returns false for a remote server: the relay in the jail only forwards its errors.
fn is_local(settings: &ServerSettings) -> bool {
    matches!(settings.transport, TransportSettings::Stdio { .. })
}

fn add_limit(error: &mut BridgeError, confined: Option<&ConfinedProcess>) {
    error.limit = confined.and_then(|confined| describe_limit(error, &confined.watch));
    if let Some(limit) = &error.limit {
        error.message = format!("{}: {limit}", error.message);
    }
}

fn add_hint(error: &mut BridgeError, symptom: &Symptom, hint: Option<String>) {
    let Some(hint) = hint else { return };
    error.message = format!("{}; {hint}", error.message);
    match symptom {
        Symptom::Memory | Symptom::Processes | Symptom::OpenFiles => error.limit = Some(hint),
        _ => error.hint = Some(hint),
    }
}

/// Returns the sign of a refusal in an error that no limit explains.
fn symptom_of(error: &BridgeError) -> Option<Symptom> {
    if error.limit.is_some() {
        return None;
    }
    if let Some(fault) = &error.provider_error {
        let data = fault.data.as_ref().map_or("", |data| data.get());
        let data = if data.len() > MAX_SEARCHED_BYTES { "" } else { data };
        return find_symptom(&fault.message).or_else(|| find_symptom(data));
    }
    let is_failed = error.exit.is_some()
        || matches!(error.code, ErrorCode::ProviderInitFailed | ErrorCode::ProviderUnavailable)
        || (error.code == ErrorCode::ProviderTimeout && error.tool.is_none());
    let stderr = error.stderr.as_deref().filter(|_| is_failed).unwrap_or_default();
    let lines: Vec<&str> = stderr.lines().collect();
    let last = lines[lines.len().saturating_sub(STDERR_LINES)..].join("\n");
    let is_killed = || error.exit.as_deref().is_some_and(is_killed_by_filter);
    find_symptom(&last).or_else(|| is_killed().then_some(Symptom::Killed))
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
            Some(format!("`maxProcesses` exceeded: it had {count} processes, the limit is {max}"))
        }
        Some(LimitHit::Disk(_)) => {
            let max = limits.disk_bytes.unwrap_or_default() >> 20;
            Some(format!("`maxHomeMb` exceeded: its own home and temporary files are larger than {max} MB"))
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

/// Replaces configured secrets in a text of a server.
pub(crate) fn redact(text: &mut String, settings: &ServerSettings) {
    secrets_of(settings).hide(text);
}

/// Replaces configured secrets, which a server may quote in its errors.
fn redact_secrets(mut error: Box<BridgeError>, settings: &ServerSettings) -> Box<BridgeError> {
    let secrets = secrets_of(settings);
    secrets.hide(&mut error.message);
    let texts = [&mut error.stderr, &mut error.hint, &mut error.limit];
    texts.into_iter().flatten().for_each(|text| secrets.hide(text));
    if let Some(fault) = &mut error.provider_error {
        secrets.hide(&mut fault.message);
        fault.raw.take_if(|raw| secrets.occur_in(raw.get()));
        fault.data.take_if(|data| secrets.occur_in(data.get()));
    }
    error
}

/// Returns the secrets that are configured for a server.
pub(crate) fn secrets_of(settings: &ServerSettings) -> SecretForms {
    secrets_but(settings, |_, _| false)
}

/// Returns the secrets without the named values that are none.
fn secrets_but(settings: &ServerSettings, is_plain: impl Fn(&str, &str) -> bool) -> SecretForms {
    let secrets = match &settings.transport {
        TransportSettings::Stdio { env, .. } => env,
        TransportSettings::Remote { headers, .. } => headers,
    };
    let named = secrets.iter().filter(|(name, value)| !is_plain(name, value.reveal()));
    let values = named.map(|(_, value)| value).chain(&settings.expanded_secrets);
    SecretForms::new(values.map(|value| value.reveal().as_str()))
}

/// Returns true for a variable with the path of a folder, or of a file in one. Looks at files, so it may block.
fn is_plain_path(name: &str, value: &str) -> bool {
    let path = Path::new(value);
    // Base64 may start with a slash, too.
    let is_in_folder = || path.parent().is_some_and(|folder| folder.parent().is_some() && folder.is_dir());
    !is_secret_name(name) && path.is_absolute() && (path.exists() || is_in_folder())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::testing::server;

    #[test]
    fn hints_show_paths_of_variables_but_no_secrets() {
        let folder = std::env::temp_dir();
        let path = |name: &str| folder.join(name).display().to_string();
        let (plain, secret, foreign) = (path("memory.json"), path("secret.json"), "/no-such-folder/a.json");
        let env = serde_json::json!({ "MEMORY_FILE_PATH": plain, "API_TOKEN": secret, "OTHER": foreign, "KEY": "/abc/defg" });
        let settings = server(&serde_json::json!({ "command": "x", "env": env }).to_string());
        let text = format!("{plain} {secret} {foreign} /abc/defg");
        let (mut hint, mut other) = (text.clone(), text);
        secrets_but(&settings, is_plain_path).hide(&mut hint);
        assert_eq!(hint, format!("{plain} *** *** ***"));
        redact(&mut other, &settings);
        assert_eq!(other, "*** *** *** ***");
    }
}
