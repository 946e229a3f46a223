//! Reads one server entry of the configuration.

use std::time::Duration;

use bascule_model::ServerName;

use super::expand::VariableExpander;
use super::limits::{read_limits, read_sandbox, read_tools};
use super::reader::{FieldReader, ObjectReader};
use super::sandbox_paths::SandboxPaths;
use super::settings::{
    Isolation, ResourceLimits, RetryPolicy, ServerSettings, SessionSharing, StartMode, ToolSettings,
};
use super::transport::{find_expanded_secrets, find_path, read_transport};

/// An entry of `mcpServers`.
pub(super) enum ServerEntry {
    /// A server to start. Boxed because it is large.
    Enabled(Box<ServerSettings>),
    /// `"disabled": true`. The other keys are not checked: the entry may be unfinished.
    Disabled(ServerName),
}

pub(super) fn read_server(
    name: &str,
    field: FieldReader,
    variables: &VariableExpander,
) -> Option<ServerEntry> {
    let name = ServerName::parse(name).map_err(|error| field.key_error(error)).ok();
    let mut entry = field.read_object()?;
    match entry.read("disabled", FieldReader::read_bool) {
        Some(true) => name.map(ServerEntry::Disabled),
        _ => read_enabled(name, entry, variables).map(Box::new).map(ServerEntry::Enabled),
    }
}

fn read_enabled(
    name: Option<ServerName>,
    mut entry: ObjectReader,
    variables: &VariableExpander,
) -> Option<ServerSettings> {
    let settings = read_settings(name, &mut entry, variables);
    entry.warn_unknown_keys();
    settings
}

fn read_settings(
    name: Option<ServerName>,
    entry: &mut ObjectReader,
    variables: &VariableExpander,
) -> Option<ServerSettings> {
    let env_file = entry.peek("envFile").and_then(|field| find_path(field, variables));
    let expanded_secrets = find_expanded_secrets(entry, variables);
    let transport = read_transport(entry, variables);
    let call_timeout = entry.read_millis_or("timeoutMs", ServerSettings::CALL_TIMEOUT);
    let keep_alive = entry.read("keepAliveMs", read_millis_or_never);
    let start = entry.read("start", read_start_mode).unwrap_or_default();
    let idle_stop = entry.read("idleStopMs", |field| read_idle_stop(field, start));
    let limits = entry.read("limits", |f| read_limits(f, &ResourceLimits::default())).unwrap_or_default();
    let base = ToolSettings { limits: limits.clone(), call_timeout, retry: RetryPolicy::default() };
    Some(ServerSettings {
        call_timeout,
        start,
        idle_stop: idle_stop.unwrap_or(Some(ServerSettings::IDLE_STOP)),
        start_timeout: entry.read_millis_or("startTimeoutMs", ServerSettings::START_TIMEOUT),
        install_timeout: entry.read_millis_or("installTimeoutMs", ServerSettings::INSTALL_TIMEOUT),
        max_retries: entry.read("maxRetries", FieldReader::read_count).unwrap_or(ServerSettings::MAX_RETRIES),
        reconnect_backoff: entry.read_millis_or("reconnectBackoffMs", ServerSettings::RECONNECT_BACKOFF),
        reconnect_jitter: entry.read("reconnectJitter", |f| f.read_number(0.0, 1.0)).unwrap_or(0.0),
        keep_alive: keep_alive.unwrap_or(Some(ServerSettings::KEEP_ALIVE)),
        cancel_grace: entry.read_millis_or("cancelGraceMs", ServerSettings::CANCEL_GRACE),
        allowed_tools: entry.read("allowedTools", read_patterns),
        denied_tools: entry.read("deniedTools", read_patterns).unwrap_or_default(),
        isolation: entry.read("isolation", read_isolation).unwrap_or_default(),
        pool_size: entry.read("poolSize", |f| f.read_count().map(|size| size as usize)).unwrap_or(1),
        session: entry.read("session", read_session).unwrap_or_default(),
        max_sessions: entry.read_positive_or("maxSessions", ServerSettings::MAX_SESSIONS),
        sandbox: entry.read("sandbox", |f| read_sandbox(f, variables)).unwrap_or_default(),
        limits,
        tools: entry.read("tools", |f| read_tools(f, &base)).unwrap_or_default(),
        env_file,
        expanded_secrets,
        paths: SandboxPaths::default(),
        // Last: every key is read before the first `?`, so that all problems are reported.
        name: name?,
        transport: transport?,
    })
}

fn read_start_mode(field: FieldReader) -> Option<StartMode> {
    field.read_one_of(&[("eager", StartMode::Eager), ("lazy", StartMode::Lazy)])
}

/// Reads 0 as never.
fn read_millis_or_never(field: FieldReader) -> Option<Option<Duration>> {
    let millis = field.read_count()?;
    Some((millis > 0).then(|| Duration::from_millis(millis.into())))
}

fn read_idle_stop(field: FieldReader, start: StartMode) -> Option<Option<Duration>> {
    if start == StartMode::Eager {
        field.key_warning("has no effect without `\"start\": \"lazy\"`: other servers are not stopped");
    }
    read_millis_or_never(field)
}

fn read_isolation(field: FieldReader) -> Option<Isolation> {
    field.read_one_of(&[("shared", Isolation::Shared), ("per-call", Isolation::PerCall)])
}

fn read_session(field: FieldReader) -> Option<SessionSharing> {
    field.read_one_of(&[("shared", SessionSharing::Shared), ("per-client", SessionSharing::PerClient)])
}

fn read_patterns(field: FieldReader) -> Option<Vec<String>> {
    field.read_list(|pattern| match pattern.read_string()? {
        "" => {
            pattern.error("must not be empty: use `*` for every tool");
            None
        }
        text => Some(text.to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, check_server, server, settings};
    use super::*;

    // req: BR-01
    // req: BR-09
    // req: SB-01
    #[test]
    fn reads_every_key_of_a_server() {
        let server = server(
            r#"{"command": "x", "timeoutMs": 1, "startTimeoutMs": 2, "installTimeoutMs": 3, "maxRetries": 0, "reconnectBackoffMs": 4,
                "reconnectJitter": 0.5, "allowedTools": ["a_*", "b"], "deniedTools": ["*c*"],
                "isolation": "per-call", "poolSize": 3, "session": "per-client", "disabled": false,
                "keepAliveMs": 0, "cancelGraceMs": 7, "start": "lazy", "idleStopMs": 9}"#,
        );
        assert_eq!((server.start, server.idle_stop), (StartMode::Lazy, Some(Duration::from_millis(9))));
        assert_eq!((server.keep_alive, server.cancel_grace), (None, Duration::from_millis(7)));
        assert_eq!(server.pool_size, 3);
        assert_eq!(server.call_timeout, Duration::from_millis(1));
        assert_eq!(server.start_timeout, Duration::from_millis(2));
        assert_eq!(server.install_timeout, Duration::from_millis(3));
        assert_eq!((server.max_retries, server.reconnect_jitter), (0, 0.5));
        assert_eq!(server.reconnect_backoff, Duration::from_millis(4));
        assert_eq!(server.allowed_tools, Some(vec!["a_*".into(), "b".into()]));
        assert_eq!(server.denied_tools, ["*c*"]);
        assert_eq!((server.isolation, server.session), (Isolation::PerCall, SessionSharing::PerClient));
    }

    // req: BR-01
    #[test]
    fn reports_all_wrong_values_together() {
        check_server(
            r#"{"timeoutMs": "soon", "maxRetries": -1, "reconnectJitter": 2, "isolation": "both", "session": 1}"#,
            "1:22: mcpServers.it: missing `command` (to start a process) or `url` (to connect to a server)\n\
             1:36: mcpServers.it.timeoutMs: must be a positive integer, is \"soon\"\n\
             1:58: mcpServers.it.maxRetries: must be zero or a positive integer, is -1\n\
             1:81: mcpServers.it.reconnectJitter: must be a number from 0 to 1, is 2\n\
             1:97: mcpServers.it.isolation: must be \"shared\" or \"per-call\", is \"both\"\n\
             1:116: mcpServers.it.session: must be \"shared\" or \"per-client\", is 1",
        );
        check_server(
            r#"{"command": "x", "allowedTools": "*", "deniedTools": [""], "startTimeoutMs": 0, "reconnectBackoffMs": 0}"#,
            "1:55: mcpServers.it.allowedTools: must be a list, is a string\n\
             1:76: mcpServers.it.deniedTools[0]: must not be empty: use `*` for every tool\n\
             1:99: mcpServers.it.startTimeoutMs: must be a positive integer, is 0\n\
             1:124: mcpServers.it.reconnectBackoffMs: must be a positive integer, is 0",
        );
    }

    // req: US-03
    #[test]
    fn reads_start_mode_and_idle_time() {
        let eager = server(r#"{"command": "x"}"#);
        assert_eq!((eager.start, eager.idle_stop), (StartMode::Eager, Some(Duration::from_secs(600))));
        let never = server(r#"{"command": "x", "start": "lazy", "idleStopMs": 0}"#);
        assert_eq!((never.start, never.idle_stop), (StartMode::Lazy, None));
        check_server(
            r#"{"command": "x", "start": "later", "idleStopMs": -1}"#,
            "1:48: mcpServers.it.start: must be \"eager\" or \"lazy\", is \"later\"\n\
             1:57: warning: mcpServers.it.idleStopMs: has no effect without `\"start\": \"lazy\"`: other servers are not stopped\n\
             1:71: mcpServers.it.idleStopMs: must be zero or a positive integer, is -1",
        );
    }

    // req: BR-01
    #[test]
    fn warns_of_unknown_keys_with_the_nearest_known_key() {
        check_server(
            r#"{"command": "x", "timeout": 5, "autoApprove": []}"#,
            "1:39: warning: mcpServers.it.timeout: unknown key, did you mean `timeoutMs`?\n\
             1:53: warning: mcpServers.it.autoApprove: unknown key",
        );
    }

    #[test]
    fn misspelled_command_is_missing_and_explained() {
        check_server(
            r#"{"comand": "x"}"#,
            "1:22: mcpServers.it: missing `command` (to start a process) or `url` (to connect to a server)\n\
             1:23: warning: mcpServers.it.comand: unknown key, did you mean `command`?",
        );
    }

    #[test]
    fn refuses_duplicate_keys() {
        check_server(
            r#"{"command": "x", "timeoutMs": 1, "timeoutMs": 2, "env": {"A": "1", "A": "2"}}"#,
            "1:55: mcpServers.it.timeoutMs: duplicate key in the same object: remove one\n\
             1:89: mcpServers.it.env.A: duplicate key in the same object: remove one",
        );
    }

    #[test]
    fn refuses_an_entry_that_is_no_object() {
        check_server("\"npx\"", "1:22: mcpServers.it: must be an object, is a string");
    }

    #[test]
    fn reports_a_wrong_name_together_with_the_entrys_problems() {
        check(
            r#"{"mcpServers": {"my files": {"timeoutMs": 0, "command": "x"}}}"#,
            "1:17: mcpServers[\"my files\"]: server name `my files` may only contain letters, digits, `_` and `-`, \
             and must not be empty\n\
             1:43: mcpServers[\"my files\"].timeoutMs: must be a positive integer, is 0",
        );
    }

    #[test]
    fn disabled_server_keeps_only_its_name() {
        let settings = settings(r#"{"servers": {"off": {"disabled": true, "command": 7, "x": "${NOPE}"}}}"#);
        assert!(settings.servers.is_empty() && settings.server("off").is_none());
        assert!(settings.is_disabled("off") && !settings.is_disabled("on"));
        check_server(
            r#"{"command": "x", "disabled": "yes"}"#,
            "1:51: mcpServers.it.disabled: must be true or false, is \"yes\"",
        );
    }
}
