//! Parses the text of a configuration file into [`Settings`], or into all its problems.
//!
//! Uses no clock, and no disk except for an `envFile`; the environment is an argument.

use std::collections::HashSet;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use bascule_model::Secret;

use super::audit::read_audit;
use super::bus::read_bus;
use super::expand::{EnvLookup, VariableExpander};
use super::problem::{Problem, ProblemCollector, Problems, Severity};
use super::reader::{FieldReader, ObjectReader};
use super::search::read_search;
use super::server::{ServerEntry, read_server};
use super::settings::{Authentication, BridgeSettings, ScriptSettings, Settings, ToolView};
use super::syntax;
use super::traces::read_traces;
use super::transport::expand;
use super::trust::TrustSummary;

/// The file that a text was read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFile {
    /// Its name in messages.
    pub name: String,
    /// The absolute directory that relative paths in the file start from.
    pub directory: PathBuf,
}

impl SourceFile {
    /// Uses `path` as the name. A relative `path` is resolved against the current directory.
    pub fn from_path(path: &Path) -> io::Result<Self> {
        let absolute = std::path::absolute(path)?;
        let directory = absolute.parent().unwrap_or(&absolute).to_owned();
        Ok(Self { name: path.display().to_string(), directory })
    }
}

/// A valid configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadedConfig {
    pub settings: Settings,
    /// Problems that do not prevent its use.
    pub warnings: Vec<Problem>,
    /// The parts that its user must trust, of the same text.
    pub summary: TrustSummary,
}

/// Parses the text of a configuration file.
pub fn parse(text: &str, source: &SourceFile, environment: EnvLookup<'_>) -> Result<LoadedConfig, Problems> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let problems = ProblemCollector::default();
    let variables = VariableExpander::new(environment, &source.directory);
    let tree = syntax::parse(text, &problems);
    let settings = tree.as_ref().and_then(|tree| read_root(FieldReader::root(tree, &problems), &variables));
    let problems = problems.into_problems(&source.name, text);
    match (tree, settings) {
        (Some(tree), Some(settings))
            if problems.iter().all(|problem| problem.severity == Severity::Warning) =>
        {
            let summary = TrustSummary::new(&tree, &settings);
            Ok(LoadedConfig { settings, warnings: problems, summary })
        }
        _ => Err(Problems(problems)),
    }
}

fn read_root(root: FieldReader, variables: &VariableExpander) -> Option<Settings> {
    let mut root = root.read_object()?;
    // `inputs` belongs to VS Code, `$schema` to editors.
    let _ignored = (root.take("inputs"), root.take("$schema"));
    let bridge = root.read("bascule", |field| read_bridge(field, variables)).unwrap_or_default();
    let mut settings = Settings { servers: Vec::new(), disabled: Vec::new(), bridge };
    for (name, field) in take_server_entries(&mut root) {
        match read_server(name, field, variables) {
            Some(ServerEntry::Enabled(server)) => settings.servers.push(*server),
            Some(ServerEntry::Disabled(name)) => settings.disabled.push(name),
            None => {}
        }
    }
    root.warn_unknown_keys();
    Some(settings)
}

/// Takes the entries of `mcpServers` and `servers`, in file order.
fn take_server_entries<'a>(root: &mut ObjectReader<'a>) -> Vec<(&'a str, FieldReader<'a>)> {
    let mut lists: Vec<FieldReader> =
        ["mcpServers", "servers"].iter().filter_map(|key| root.take(key)).collect();
    if lists.is_empty() {
        root.field().error("neither `mcpServers` nor `servers` is present: add one of them");
    }
    lists.sort_by_key(FieldReader::offset);
    let entries = lists.into_iter().filter_map(FieldReader::read_object).flat_map(ObjectReader::into_entries);
    let mut names = HashSet::new();
    let is_first = |(name, field): &(&'a str, FieldReader<'a>)| {
        let first = names.insert(*name);
        if !first {
            field.key_error("this name is in both `mcpServers` and `servers`: rename or remove one");
        }
        first
    };
    entries.filter(is_first).collect()
}

fn read_bridge(field: FieldReader, variables: &VariableExpander) -> Option<BridgeSettings> {
    let mut object = field.read_object()?;
    let default = BridgeSettings::default();
    let bridge = BridgeSettings {
        is_listen_given: object.peek("listen").is_some(),
        listen: object.read("listen", read_socket_address).unwrap_or(default.listen),
        show: object.read("show", read_view).unwrap_or(default.show),
        max_message_bytes: object
            .read("maxMessageBytes", FieldReader::read_positive)
            .map_or(default.max_message_bytes, |bytes| bytes as usize),
        session_idle: object.read("sessionIdleMs", FieldReader::read_millis).unwrap_or(default.session_idle),
        allowed_hosts: object.read("allowedHosts", read_strings).unwrap_or_default(),
        allowed_origins: object.read("allowedOrigins", read_strings).unwrap_or_default(),
        auth: object.read("auth", read_authentication).unwrap_or_default(),
        tokens: object.read("tokens", |f| f.read_list(|f| read_token(&f, variables))).unwrap_or_default(),
        scripts: object.read("scripts", read_scripts).unwrap_or_default(),
        learns_result_types: object
            .read("learnResultTypes", FieldReader::read_bool)
            .unwrap_or(default.learns_result_types),
        encoder: object.read("search", |field| read_search(field, variables)),
        traces: object.read("traces", |field| read_traces(field, variables)).unwrap_or_default(),
        metrics_listen: object.read("metrics", read_metrics),
        audit: object.read("audit", |field| read_audit(field, variables)),
        bus: object.read("bus", |field| read_bus(field, variables)).unwrap_or_default(),
    };
    object.warn_unknown_keys();
    Some(bridge)
}

fn read_metrics(field: FieldReader) -> Option<SocketAddr> {
    let mut object = field.read_object()?;
    let listen = object.read("listen", read_socket_address);
    object.warn_unknown_keys();
    listen
}

fn read_authentication(field: FieldReader) -> Option<Authentication> {
    field.read_one_of(&[("token", Authentication::Token), ("none", Authentication::None)])
}

fn read_scripts(field: FieldReader) -> Option<ScriptSettings> {
    let mut object = field.read_object()?;
    let default = ScriptSettings::default();
    let mut number = |key, default| object.read(key, FieldReader::read_positive).unwrap_or(default);
    let mut settings = ScriptSettings {
        memory_mb: number("memoryMb", default.memory_mb),
        max_calls: number("maxCalls", default.max_calls),
        max_concurrent_calls: number("maxConcurrentCalls", default.max_concurrent_calls),
        max_output_bytes: number("maxOutputBytes", default.max_output_bytes),
        max_log_bytes: number("maxLogBytes", default.max_log_bytes),
        max_text_bytes: number("maxTextBytes", default.max_text_bytes),
        max_scripts: number("maxScripts", default.max_scripts),
        ..default
    };
    settings.pool_size = object.read("poolSize", FieldReader::read_count).unwrap_or(settings.pool_size);
    settings.timeout = object.read("timeoutMs", FieldReader::read_millis).unwrap_or(settings.timeout);
    settings.call_timeout =
        object.read("callTimeoutMs", FieldReader::read_millis).unwrap_or(settings.call_timeout);
    settings.time_zone = object.read("timeZone", read_time_zone).unwrap_or(settings.time_zone);
    object.warn_unknown_keys();
    Some(settings)
}

/// Checks the name against the bundled database. Workers use the machine's own, and UTC for zones that it lacks.
fn read_time_zone(field: FieldReader) -> Option<String> {
    let name = field.read_string()?;
    match jiff::tz::TimeZone::get(name) {
        Ok(_) => Some(name.to_owned()),
        Err(_) => field.expected("a time zone like `Europe/Zurich`"),
    }
}

fn read_strings(field: FieldReader) -> Option<Vec<String>> {
    field.read_list(|field| field.read_string().map(str::to_owned))
}

fn read_token(field: &FieldReader, variables: &VariableExpander) -> Option<Secret<String>> {
    // Shorter tokens can be guessed.
    const MIN_BYTES: usize = 16;
    let token = expand(field, field.read_string()?, variables)?;
    if token.len() < MIN_BYTES {
        field.error("a token has at least 16 characters: generate one with `bascule token --new`");
        return None;
    }
    Some(Secret::new(token))
}

fn read_socket_address(field: FieldReader) -> Option<SocketAddr> {
    let address = parse_listen_address(field.read_string()?);
    address.or_else(|| field.expected("an IP address and a port like `127.0.0.1:7420`"))
}

/// Parses an address to listen on: `IP:PORT`, `localhost:PORT`, or a port of this machine alone.
pub(crate) fn parse_listen_address(text: &str) -> Option<SocketAddr> {
    let local = |port: &str| Some(SocketAddr::from((Ipv4Addr::LOCALHOST, port.parse().ok()?)));
    match text.strip_prefix("localhost:") {
        Some(port) => local(port),
        None => text.parse().ok().or_else(|| local(text)),
    }
}

fn read_view(field: FieldReader) -> Option<ToolView> {
    field.read_one_of(&[("all", ToolView::All), ("code", ToolView::Code)])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::{check, read, settings, source};
    use super::*;

    /// The documented example.
    const EXAMPLE: &str = r#"{
  "mcpServers": {
    "files": {
      "command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "/data"],
      "env": { "TOKEN": "${TOKEN}" }, "cwd": "/data",
      "allowedTools": ["read_*", "list_directory"], "deniedTools": ["*delete*"],
      "timeoutMs": 30000, "maxRetries": 10, "reconnectBackoffMs": 1000, "reconnectJitter": 0,
      "isolation": "shared",                       // or "per-call"
      "session": "shared",                         // or "per-client"
      "sandbox": "standard",                       // "off" | "standard" | "strict" | { … }
      "limits": { "maxMemoryMb": 256, "maxExecutionMs": 30000, "maxConcurrent": 32, "maxQueue": 256, "ratePerSecond": null },
      "tools": { "read_file": { "limits": { "maxExecutionMs": 5000 }, "retry": "safe" } }   // per tool; "safe" | "always" | "never"
    },
    "db": { "type": "sse", "url": "http://mcp-db:8080/sse", "headers": { "Authorization": "Bearer ${DB}" }, "deniedTools": ["drop_table"] }
  },
  "bascule": { "listen": "127.0.0.1:7420", "show": "all" }
}
"#;

    fn secrets(name: &str) -> Option<String> {
        ["TOKEN", "DB"].contains(&name).then(|| "hunter2".into())
    }

    fn names(settings: &Settings) -> Vec<&str> {
        settings.servers.iter().map(|server| server.name.as_str()).collect()
    }

    // req: BR-01
    #[test]
    fn documented_example_loads_without_warnings() {
        let loaded = parse(EXAMPLE, &source(), &secrets).unwrap();
        assert_eq!(loaded.warnings, []);
        assert_eq!(names(&loaded.settings), ["files", "db"]);
        let files = loaded.settings.server("files").unwrap();
        assert_eq!(files.limits_for("read_file").max_execution.as_millis(), 5000);
        let expected = BridgeSettings { is_listen_given: true, ..BridgeSettings::default() };
        assert_eq!(loaded.settings.bridge, expected);
        assert!(!format!("{loaded:?}").contains("hunter2"));
    }

    // req: BR-01
    #[test]
    fn reads_servers_of_both_keys_in_file_order() {
        let settings = settings(
            r#"{"inputs": [{"id": "x"}], "$schema": "x", "servers": {"z": {"command": "x"}, "a": {"url": "http://x"}},
                "mcpServers": {"m": {"command": "x"}}}"#,
        );
        assert_eq!(names(&settings), ["z", "a", "m"]);
    }

    #[test]
    fn refuses_a_name_in_both_keys() {
        check(
            "{\"servers\": {\"a\": {\"command\": \"x\"}},\n \"mcpServers\": {\"a\": {\"command\": \"y\"}}}",
            "2:17: mcpServers.a: this name is in both `mcpServers` and `servers`: rename or remove one",
        );
    }

    #[test]
    fn refuses_a_duplicate_name() {
        check(
            "{\"mcpServers\": {\n \"a\": {\"command\": \"x\"},\n \"a\": {\"disabled\": true}}}",
            "3:2: mcpServers.a: duplicate key in the same object: remove one",
        );
    }

    #[test]
    fn accepts_no_servers_but_requires_the_key() {
        assert_eq!(names(&settings(r#"{"mcpServers": {}}"#)), [""; 0]);
        check(
            r#"{"mcpServer": {}}"#,
            "1:1: neither `mcpServers` nor `servers` is present: add one of them\n\
             1:2: warning: mcpServer: unknown key, did you mean `mcpServers`?",
        );
        check(r#"{"mcpServers": []}"#, "1:16: mcpServers: must be an object, is a list");
        check("[1]", "1:1: must be an object, is a list");
    }

    #[test]
    fn reads_the_settings_of_the_bridge() {
        let settings = settings(
            r#"{"servers": {}, "bascule": {"listen": "[::1]:80", "show": "code", "maxMessageBytes": 1000}}"#,
        );
        let expected = BridgeSettings {
            listen: "[::1]:80".parse().unwrap(),
            is_listen_given: true,
            show: ToolView::Code,
            max_message_bytes: 1000,
            ..BridgeSettings::default()
        };
        assert_eq!(settings.bridge, expected);
    }

    #[test]
    fn metrics_have_an_address_of_their_own() {
        let read = |metrics: &str| {
            settings(&format!(r#"{{"mcpServers": {{}}, "bascule": {{"metrics": {metrics}}}}}"#))
                .bridge
                .metrics_listen
        };
        assert_eq!(read("{}"), None);
        assert_eq!(read(r#"{"listen": "9464"}"#), Some("127.0.0.1:9464".parse().unwrap()));
        check(
            r#"{"mcpServers": {}, "bascule": {"metrics": {"listen": "here", "port": 1}}}"#,
            "1:54: bascule.metrics.listen: must be an IP address and a port like `127.0.0.1:7420`, is \"here\"\n\
             1:62: warning: bascule.metrics.port: unknown key",
        );
    }

    // req: GW-01
    #[test]
    fn listens_on_a_port_of_this_machine() {
        for (text, expected) in [
            ("8080", Some("127.0.0.1:8080")),
            ("localhost:80", Some("127.0.0.1:80")),
            ("[::1]:80", Some("[::1]:80")),
            ("localhost", None),
            (":80", None),
            ("70000", None),
        ] {
            assert_eq!(parse_listen_address(text).map(|address| address.to_string()).as_deref(), expected);
        }
    }

    #[test]
    fn reports_wrong_and_unknown_keys_of_the_bridge() {
        check(
            r#"{"servers": {}, "bascule": {"listen": "localhost", "show": "some", "maxMessageBytes": 0, "port": 1}}"#,
            "1:39: bascule.listen: must be an IP address and a port like `127.0.0.1:7420`, is \"localhost\"\n\
             1:60: bascule.show: must be \"all\" or \"code\", is \"some\"\n\
             1:87: bascule.maxMessageBytes: must be a positive integer, is 0\n\
             1:90: warning: bascule.port: unknown key",
        );
        check(
            r#"{"servers": {}, "bascule": true, "globalShortcut": ""}"#,
            "1:28: bascule: must be an object, is a boolean\n1:34: warning: globalShortcut: unknown key",
        );
    }

    // req: GW-07
    #[test]
    fn short_token_is_refused_and_not_quoted() {
        check(
            r#"{"servers": {}, "bascule": {"tokens": ["hunter2", 7]}}"#,
            "1:40: bascule.tokens[0]: a token has at least 16 characters: generate one with `bascule token --new`\n\
             1:51: bascule.tokens[1]: must be a string, is 7",
        );
    }

    #[test]
    fn ignores_a_byte_order_mark() {
        assert_eq!(names(&settings("\u{feff}{\"mcpServers\": {}}")), [""; 0]);
        check("\u{feff}{\"mcpServers\": 1}", "1:16: mcpServers: must be an object, is a number");
    }

    #[test]
    fn positions_count_lines_and_characters() {
        let text = "{\r\n  // größer\r\n  \"mcpServers\": { \"a\": {\r\n    /* ü */ \"command\": \"é\", \"timeoutMs\": \"soon\" } }\r\n}";
        let problems = read(text).unwrap_err();
        let expected = "mcp.json:4:42: mcpServers.a.timeoutMs: must be a positive integer, is \"soon\"";
        assert_eq!(problems.to_string(), expected);
    }

    #[test]
    fn many_unknown_keys_give_bounded_problems() {
        let keys: String = (0..50_000).map(|n| format!("\"k{n}\":{{}},")).collect();
        let problems = read(&format!("{{{keys}}}")).unwrap_err();
        assert!(problems.0.len() < 300);
        read(&format!("{{\"mcpServers\": {{\"a\": {{\"command\": \"x\", \"env\": {{{keys}}}}}}}}}"))
            .unwrap_err();
    }

    /// Replaces a piece of the example, cut at character boundaries.
    fn mutate_example(at: usize, remove: usize, insert: &str) -> String {
        let start = EXAMPLE.floor_char_boundary(at);
        let end = EXAMPLE.ceil_char_boundary((start + remove).min(EXAMPLE.len()));
        format!("{}{insert}{}", &EXAMPLE[..start], &EXAMPLE[end..])
    }

    proptest! {
        #[test]
        fn damaged_file_gives_settings_or_problems(
            at in 0..EXAMPLE.len(),
            remove in 0usize..40,
            insert in prop_oneof!["\\PC{0,4}", "[\\[\\]{}\",:$/*\\\\0-9e.-]{0,6}", "null|true|-1|\\{\\}|\\[\\]|\"\""],
        ) {
            if let Err(problems) = parse(&mutate_example(at, remove, &insert), &source(), &secrets) {
                prop_assert!(problems.0.iter().any(|problem| problem.severity == Severity::Error));
                prop_assert!(!problems.to_string().contains("hunter2"));
            }
        }

        #[test]
        fn truncated_file_gives_problems_within_the_text(length in 0..EXAMPLE.trim_end().len()) {
            let text = &EXAMPLE[..EXAMPLE.floor_char_boundary(length)];
            let problems = parse(text, &source(), &secrets).unwrap_err();
            prop_assert!(problems.0[0].line <= text.lines().count().max(1));
        }

        #[test]
        fn arbitrary_text_does_not_panic(text in "\\PC*") {
            let _ = parse(&text, &source(), &secrets);
        }
    }
}
