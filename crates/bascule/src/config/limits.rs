//! Reads `limits`, `tools` and `sandbox` of a server.

use std::collections::BTreeMap;

use super::expand::VariableExpander;
use super::reader::{FieldReader, ObjectReader};
use super::settings::{
    CustomProfile, HomeAccess, NetworkAccess, ResourceLimits, RetryPolicy, Sandbox, ToolSettings,
};
use super::transport::read_path;

/// Bounds of `ratePerSecond`. The reciprocal must fit a `Duration`.
const RATE_BOUNDS: (f64, f64) = (0.001, 1_000_000.0);

/// Reads `limits`. Missing keys keep the values of `base`.
pub(super) fn read_limits(field: FieldReader, base: &ResourceLimits) -> Option<ResourceLimits> {
    let mut object = field.read_object()?;
    let mut limits = base.clone();
    let size = |f: FieldReader| f.read_positive().map(|size| size as usize);
    set(&mut limits.max_memory_mb, object.read("maxMemoryMb", FieldReader::read_positive));
    set(&mut limits.max_execution, object.read("maxExecutionMs", FieldReader::read_millis));
    set(&mut limits.max_concurrent, object.read("maxConcurrent", size));
    set(&mut limits.max_queue, object.read("maxQueue", |f| f.read_count().map(|calls| calls as usize)));
    set(&mut limits.rate_per_second, object.read("ratePerSecond", |f| f.or_null(read_rate)));
    set(&mut limits.max_processes, object.read("maxProcesses", |f| f.or_null(FieldReader::read_positive)));
    set(&mut limits.max_open_files, object.read("maxOpenFiles", |f| f.or_null(FieldReader::read_positive)));
    set(&mut limits.max_home_mb, object.read("maxHomeMb", |f| f.or_null(FieldReader::read_positive)));
    set(&mut limits.max_output_bytes, object.read("maxOutputBytes", |f| f.or_null(size)));
    object.warn_unknown_keys();
    Some(limits)
}

fn read_rate(field: FieldReader) -> Option<f64> {
    field.read_number(RATE_BOUNDS.0, RATE_BOUNDS.1)
}

fn set<T>(target: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *target = value;
    }
}

/// Reads `tools`. Keys that a tool lacks keep the values of `base`.
pub(super) fn read_tools(field: FieldReader, base: &ToolSettings) -> Option<BTreeMap<String, ToolSettings>> {
    let entry = |(name, field): (&str, FieldReader)| {
        if name.contains('*') {
            field.key_error(
                "`*` is not supported here: name one tool (`allowedTools` and `deniedTools` take patterns)",
            );
        }
        Some((name.to_owned(), read_tool(field, base)?))
    };
    Some(field.read_object()?.into_entries().into_iter().filter_map(entry).collect())
}

fn read_tool(field: FieldReader, base: &ToolSettings) -> Option<ToolSettings> {
    let mut object = field.read_object()?;
    let mut tool = base.clone();
    set(&mut tool.limits, object.read("limits", |field| read_limits(field, &base.limits)));
    set(&mut tool.call_timeout, object.read("timeoutMs", FieldReader::read_millis));
    set(&mut tool.retry, object.read("retry", read_retry));
    object.warn_unknown_keys();
    Some(tool)
}

fn read_retry(field: FieldReader) -> Option<RetryPolicy> {
    field.read_one_of(&[
        ("safe", RetryPolicy::Safe),
        ("always", RetryPolicy::Always),
        ("never", RetryPolicy::Never),
    ])
}

/// Reads `sandbox`: the name of a profile, or an object with its rules.
pub(super) fn read_sandbox(field: FieldReader, variables: &VariableExpander) -> Option<Sandbox> {
    if field.is_string() {
        return field.read_one_of(&[
            ("off", Sandbox::Off),
            ("standard", Sandbox::Standard),
            ("strict", Sandbox::Strict),
        ]);
    }
    let mut object = field.read_object()?;
    let paths = |object: &mut ObjectReader, key| {
        object.read(key, |f| f.read_list(|f| read_path(&f, variables))).unwrap_or_default()
    };
    let sandbox = Sandbox::Custom {
        profile: object.read("profile", read_profile).unwrap_or_default(),
        home: object.read("home", read_home).unwrap_or_default(),
        read: paths(&mut object, "read"),
        write: paths(&mut object, "write"),
        network: object.read("network", read_network).unwrap_or_default(),
        unix_sockets: object.read("unixSockets", |f| f.read_bool()).unwrap_or_default(),
        processes: object.read("processes", |f| f.or_null(FieldReader::read_positive)).flatten(),
        files: object.read("files", |f| f.or_null(FieldReader::read_positive)).flatten(),
    };
    object.warn_unknown_keys();
    Some(sandbox)
}

fn read_profile(field: FieldReader) -> Option<CustomProfile> {
    field.read_one_of(&[("standard", CustomProfile::Standard), ("strict", CustomProfile::Strict)])
}

fn read_home(field: FieldReader) -> Option<HomeAccess> {
    field.read_one_of(&[("own", HomeAccess::Own), ("user", HomeAccess::User), ("none", HomeAccess::None)])
}

fn read_network(field: FieldReader) -> Option<NetworkAccess> {
    field.read_one_of(&[("full", NetworkAccess::Full), ("none", NetworkAccess::None)])
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::testing::{check_server, server};
    use super::*;

    // req: SB-02
    // req: BR-17
    #[test]
    fn reads_every_limit() {
        let server = server(
            r#"{"command": "x", "limits": {"maxMemoryMb": 1, "maxExecutionMs": 2, "maxConcurrent": 3, "maxQueue": 0,
                "ratePerSecond": 0.5, "maxProcesses": 5, "maxOpenFiles": 6, "maxHomeMb": 8, "maxOutputBytes": 7}}"#,
        );
        let expected = ResourceLimits {
            max_memory_mb: 1,
            max_execution: Duration::from_millis(2),
            max_concurrent: 3,
            max_queue: 0,
            rate_per_second: Some(0.5),
            max_processes: Some(5),
            max_open_files: Some(6),
            max_home_mb: Some(8),
            max_output_bytes: Some(7),
        };
        assert_eq!(server.limits, expected);
    }

    #[test]
    fn null_removes_optional_limits() {
        let server = server(
            r#"{"command": "x", "limits": {"ratePerSecond": null, "maxProcesses": null, "maxOpenFiles": null,
                "maxOutputBytes": null}}"#,
        );
        let expected =
            ResourceLimits { max_processes: None, max_open_files: None, ..ResourceLimits::default() };
        assert_eq!(server.limits, expected);
        check_server(
            r#"{"command": "x", "limits": {"maxMemoryMb": null}}"#,
            "1:65: mcpServers.it.limits.maxMemoryMb: must be a positive integer, is null",
        );
    }

    #[test]
    fn reports_wrong_and_unknown_limits() {
        check_server(
            r#"{"command": "x", "limits": {"maxQueue": -1, "ratePerSecond": 0, "maxMemoryMB": 1}}"#,
            "1:62: mcpServers.it.limits.maxQueue: must be zero or a positive integer, is -1\n\
             1:83: mcpServers.it.limits.ratePerSecond: must be a number from 0.001 to 1000000, is 0\n\
             1:86: warning: mcpServers.it.limits.maxMemoryMB: unknown key, did you mean `maxMemoryMb`?",
        );
        check_server(
            r#"{"command": "x", "limits": 5}"#,
            "1:49: mcpServers.it.limits: must be an object, is a number",
        );
    }

    // req: SB-02
    #[test]
    fn reports_wrong_and_unknown_keys_of_a_tool() {
        check_server(
            r#"{"command": "x", "tools": {"t": {"retry": "often", "timeoutMs": "soon", "limit": {}}}}"#,
            "1:64: mcpServers.it.tools.t.retry: must be \"safe\", \"always\" or \"never\", is \"often\"\n\
             1:86: mcpServers.it.tools.t.timeoutMs: must be a positive integer, is \"soon\"\n\
             1:94: warning: mcpServers.it.tools.t.limit: unknown key, did you mean `limits`?",
        );
        check_server(
            r#"{"command": "x", "tools": {"read_*": {}}}"#,
            "1:49: mcpServers.it.tools[\"read_*\"]: `*` is not supported here: name one tool (`allowedTools` and `deniedTools` take patterns)",
        );
    }

    // req: SB-04
    #[test]
    fn reads_a_sandbox_profile_or_object() {
        let sandbox = |text: &str| server(&format!(r#"{{"command": "x", "sandbox": {text}}}"#)).sandbox;
        assert_eq!(sandbox(r#""off""#), Sandbox::Off);
        assert_eq!(sandbox(r#""standard""#), Sandbox::Standard);
        assert_eq!(sandbox(r#""strict""#), Sandbox::Strict);
        let expected = Sandbox::Custom {
            profile: CustomProfile::Strict,
            home: HomeAccess::Own,
            read: vec!["/config/data".into(), "/usr".into()],
            write: vec!["/config/out".into()],
            network: NetworkAccess::None,
            unix_sockets: false,
            processes: Some(4),
            files: None,
        };
        let object = r#"{"read": ["data", "/usr"], "write": ["${workspaceFolder}/out"], "network": "none", "processes": 4}"#;
        assert_eq!(sandbox(object), expected);
        let expected = Sandbox::Custom {
            profile: CustomProfile::Standard,
            home: HomeAccess::Own,
            read: Vec::new(),
            write: Vec::new(),
            network: NetworkAccess::Full,
            unix_sockets: true,
            processes: None,
            files: None,
        };
        assert_eq!(sandbox(r#"{"profile": "standard", "unixSockets": true}"#), expected);
    }

    #[test]
    fn reports_wrong_and_unknown_keys_of_a_sandbox() {
        check_server(
            r#"{"command": "x", "sandbox": "tight"}"#,
            "1:50: mcpServers.it.sandbox: must be \"off\", \"standard\" or \"strict\", is \"tight\"",
        );
        check_server(
            r#"{"command": "x", "sandbox": {"read": "/usr", "network": false, "writes": []}}"#,
            "1:59: mcpServers.it.sandbox.read: must be a list, is a string\n\
             1:78: mcpServers.it.sandbox.network: must be \"full\" or \"none\", is false\n\
             1:85: warning: mcpServers.it.sandbox.writes: unknown key, did you mean `write`?",
        );
    }
}
