//! Reads a whole file: from its text to what the program believes, or to all that is wrong with it.
//!
//! Touches no disk and no clock; the environment is an argument.

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use bascule_model::Secret;

use super::expand::{Environment, Variables};
use super::problem::{Notes, Problem, Problems, Severity};
use super::reader::{Field, Object};
use super::server::{self, Entry};
use super::settings::{BridgeSettings, ScriptSettings, Settings, Show};
use super::syntax;
use super::transport::expanded;

/// Where a text comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The file, as messages name it.
    pub name: String,
    /// The absolute folder that relative paths in it start from.
    pub folder: PathBuf,
}

impl Origin {
    /// Names the file as `path` does. Asks for the current folder where `path` is relative.
    pub fn of(path: &Path) -> io::Result<Self> {
        let absolute = std::path::absolute(path)?;
        let folder = absolute.parent().unwrap_or(&absolute).to_owned();
        Ok(Self { name: path.display().to_string(), folder })
    }
}

/// A file that can be used.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    /// What it says.
    pub settings: Settings,
    /// What its author may want to look at all the same.
    pub warnings: Vec<Problem>,
}

/// Reads the text of a configuration file.
pub fn parse(text: &str, origin: &Origin, environment: Environment<'_>) -> Result<Loaded, Problems> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let notes = Notes::default();
    let variables = Variables::new(environment, &origin.folder);
    let tree = syntax::parse(text, &notes);
    let settings = tree.as_ref().and_then(|tree| file(Field::root(tree, &notes), &variables));
    let problems = notes.place(&origin.name, text);
    match settings {
        Some(settings) if problems.iter().all(|problem| problem.severity == Severity::Warning) => {
            Ok(Loaded { settings, warnings: problems })
        }
        _ => Err(Problems(problems)),
    }
}

fn file(root: Field, variables: &Variables) -> Option<Settings> {
    let mut root = root.object()?;
    // VS Code's own, and every editor's.
    let _ignored = (root.take("inputs"), root.take("$schema"));
    let bridge = root.read("bascule", |field| bridge(field, variables)).unwrap_or_default();
    let mut settings = Settings { servers: Vec::new(), disabled: Vec::new(), bridge };
    for (name, field) in server_entries(&mut root) {
        match server::read(name, field, variables) {
            Some(Entry::Used(server)) => settings.servers.push(*server),
            Some(Entry::Disabled(name)) => settings.disabled.push(name),
            None => {}
        }
    }
    root.warn_unknown();
    Some(settings)
}

/// The entries of `mcpServers` and of `servers`, in the order of the file.
fn server_entries<'a>(root: &mut Object<'a>) -> Vec<(&'a str, Field<'a>)> {
    let mut lists: Vec<Field> = ["mcpServers", "servers"].iter().filter_map(|key| root.take(key)).collect();
    if lists.is_empty() {
        root.this().error("has neither `mcpServers` nor `servers`");
    }
    lists.sort_by_key(Field::offset);
    let entries = lists.into_iter().filter_map(Field::object).flat_map(Object::into_entries);
    let mut names = HashSet::new();
    let first_of_its_name = |(name, field): &(&'a str, Field<'a>)| {
        let first = names.insert(*name);
        if !first {
            field.key_error("is in both `mcpServers` and `servers`");
        }
        first
    };
    entries.filter(first_of_its_name).collect()
}

fn bridge(field: Field, variables: &Variables) -> Option<BridgeSettings> {
    let mut object = field.object()?;
    let default = BridgeSettings::default();
    let bridge = BridgeSettings {
        listen: object.read("listen", address).unwrap_or(default.listen),
        show: object.read("show", show).unwrap_or(default.show),
        max_message_bytes: object
            .read("maxMessageBytes", Field::positive)
            .map_or(default.max_message_bytes, |bytes| bytes as usize),
        session_idle: object.read("sessionIdleMs", Field::millis).unwrap_or(default.session_idle),
        hosts: object.read("allowedHosts", texts).unwrap_or_default(),
        origins: object.read("allowedOrigins", texts).unwrap_or_default(),
        tokens: object.read("tokens", |f| f.list(|f| token(&f, variables))).unwrap_or_default(),
        scripts: object.read("scripts", scripts).unwrap_or_default(),
    };
    object.warn_unknown();
    Some(bridge)
}

fn scripts(field: Field) -> Option<ScriptSettings> {
    let mut object = field.object()?;
    let default = ScriptSettings::default();
    let mut number = |key, default| object.read(key, Field::positive).unwrap_or(default);
    let mut settings = ScriptSettings {
        memory_mb: number("memoryMb", default.memory_mb),
        max_calls: number("maxCalls", default.max_calls),
        max_concurrent_calls: number("maxConcurrentCalls", default.max_concurrent_calls),
        max_output_bytes: number("maxOutputBytes", default.max_output_bytes),
        max_log_bytes: number("maxLogBytes", default.max_log_bytes),
        max_scripts: number("maxScripts", default.max_scripts),
        ..default
    };
    settings.pool_size = object.read("poolSize", Field::count).unwrap_or(settings.pool_size);
    settings.timeout = object.read("timeoutMs", Field::millis).unwrap_or(settings.timeout);
    settings.call_timeout = object.read("callTimeoutMs", Field::millis).unwrap_or(settings.call_timeout);
    settings.time_zone = object.read("timeZone", zone).unwrap_or(settings.time_zone);
    object.warn_unknown();
    Some(settings)
}

/// One that this machine need not have: workers know only those that it has, and take UTC for the others.
fn zone(field: Field) -> Option<String> {
    let name = field.text()?;
    match jiff::tz::TimeZone::get(name) {
        Ok(_) => Some(name.to_owned()),
        Err(_) => field.expected("a time zone like `Europe/Zurich`"),
    }
}

fn texts(field: Field) -> Option<Vec<String>> {
    field.list(|text| text.text().map(str::to_owned))
}

/// Shorter ones can be guessed.
fn token(field: &Field, variables: &Variables) -> Option<Secret<String>> {
    const SHORTEST: usize = 16;
    let token = expanded(field, field.text()?, variables)?;
    match token.len() >= SHORTEST {
        true => Some(Secret::new(token)),
        false => field.expected("a text of at least 16 characters (`bascule token` makes one)"),
    }
}

fn address(field: Field) -> Option<SocketAddr> {
    let address = field.text()?.parse().ok();
    address.or_else(|| field.expected("an address like `127.0.0.1:7420`"))
}

fn show(field: Field) -> Option<Show> {
    field.one_of(&[("all", Show::All), ("code", Show::Code)])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::{check, origin, read, settings};
    use super::*;

    /// The example of the contract, word for word.
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
    fn the_documented_example_loads_without_a_word() {
        let loaded = parse(EXAMPLE, &origin(), &secrets).unwrap();
        assert_eq!(loaded.warnings, []);
        assert_eq!(names(&loaded.settings), ["files", "db"]);
        let files = loaded.settings.server("files").unwrap();
        assert_eq!(files.limits_for("read_file").max_execution.as_millis(), 5000);
        assert_eq!(loaded.settings.bridge, BridgeSettings::default());
        assert!(!format!("{loaded:?}").contains("hunter2"));
    }

    // req: BR-01
    #[test]
    fn servers_may_go_by_either_key_or_both_in_the_order_of_the_file() {
        let settings = settings(
            r#"{"inputs": [{"id": "x"}], "$schema": "x", "servers": {"z": {"command": "x"}, "a": {"url": "http://x"}},
                "mcpServers": {"m": {"command": "x"}}}"#,
        );
        assert_eq!(names(&settings), ["z", "a", "m"]);
    }

    #[test]
    fn a_name_in_both_lists_is_an_error() {
        check(
            "{\"servers\": {\"a\": {\"command\": \"x\"}},\n \"mcpServers\": {\"a\": {\"command\": \"y\"}}}",
            "2:17: mcpServers.a: is in both `mcpServers` and `servers`",
        );
    }

    #[test]
    fn a_name_twice_in_one_list_is_an_error() {
        check(
            "{\"mcpServers\": {\n \"a\": {\"command\": \"x\"},\n \"a\": {\"disabled\": true}}}",
            "3:2: mcpServers.a: is given twice in the same object",
        );
    }

    #[test]
    fn no_servers_are_fine_but_no_list_of_them_is_not() {
        assert_eq!(names(&settings(r#"{"mcpServers": {}}"#)), [""; 0]);
        check(
            r#"{"mcpServer": {}}"#,
            "1:1: has neither `mcpServers` nor `servers`\n\
             1:2: warning: mcpServer: unknown key, did you mean `mcpServers`?",
        );
        check(r#"{"mcpServers": []}"#, "1:16: mcpServers: must be an object, is a list");
        check("[1]", "1:1: must be an object, is a list");
    }

    #[test]
    fn the_bridge_can_be_told_where_to_listen_and_what_to_show() {
        let settings = settings(
            r#"{"servers": {}, "bascule": {"listen": "[::1]:80", "show": "code", "maxMessageBytes": 1000}}"#,
        );
        let expected = BridgeSettings {
            listen: "[::1]:80".parse().unwrap(),
            show: Show::Code,
            max_message_bytes: 1000,
            ..BridgeSettings::default()
        };
        assert_eq!(settings.bridge, expected);
    }

    #[test]
    fn wrong_and_unknown_keys_of_the_bridge_are_pointed_at() {
        check(
            r#"{"servers": {}, "bascule": {"listen": "localhost", "show": "some", "maxMessageBytes": 0, "port": 1}}"#,
            "1:39: bascule.listen: must be an address like `127.0.0.1:7420`, is \"localhost\"\n\
             1:60: bascule.show: must be \"all\" or \"code\", is \"some\"\n\
             1:87: bascule.maxMessageBytes: must be a positive integer, is 0\n\
             1:90: warning: bascule.port: unknown key",
        );
        check(
            r#"{"servers": {}, "bascule": true, "globalShortcut": ""}"#,
            "1:28: bascule: must be an object, is a boolean\n1:34: warning: globalShortcut: unknown key",
        );
    }

    #[test]
    fn a_byte_order_mark_is_not_counted() {
        assert_eq!(names(&settings("\u{feff}{\"mcpServers\": {}}")), [""; 0]);
        check("\u{feff}{\"mcpServers\": 1}", "1:16: mcpServers: must be an object, is a number");
    }

    #[test]
    fn problems_are_placed_by_line_and_by_character() {
        let text = "{\r\n  // größer\r\n  \"mcpServers\": { \"a\": {\r\n    /* ü */ \"command\": \"é\", \"timeoutMs\": \"soon\" } }\r\n}";
        let problems = read(text).unwrap_err();
        let expected = "mcp.json:4:42: mcpServers.a.timeoutMs: must be a positive integer, is \"soon\"";
        assert_eq!(problems.to_string(), expected);
    }

    #[test]
    fn a_hostile_crowd_of_keys_is_read_in_reasonable_time() {
        let keys: String = (0..50_000).map(|n| format!("\"k{n}\":{{}},")).collect();
        let problems = read(&format!("{{{keys}}}")).unwrap_err();
        assert!(problems.0.len() < 300);
        read(&format!("{{\"mcpServers\": {{\"a\": {{\"command\": \"x\", \"env\": {{{keys}}}}}}}}}"))
            .unwrap_err();
    }

    /// The text with a piece replaced by something else, cut at characters.
    fn mutated(at: usize, remove: usize, insert: &str) -> String {
        let start = EXAMPLE.floor_char_boundary(at);
        let end = EXAMPLE.ceil_char_boundary((start + remove).min(EXAMPLE.len()));
        format!("{}{insert}{}", &EXAMPLE[..start], &EXAMPLE[end..])
    }

    proptest! {
        #[test]
        fn a_damaged_file_gives_settings_or_problems_but_no_panic(
            at in 0..EXAMPLE.len(),
            remove in 0usize..40,
            insert in prop_oneof!["\\PC{0,4}", "[\\[\\]{}\",:$/*\\\\0-9e.-]{0,6}", "null|true|-1|\\{\\}|\\[\\]|\"\""],
        ) {
            if let Err(problems) = parse(&mutated(at, remove, &insert), &origin(), &secrets) {
                prop_assert!(problems.0.iter().any(|problem| problem.severity == Severity::Error));
                prop_assert!(!problems.to_string().contains("hunter2"));
            }
        }

        #[test]
        fn a_truncated_file_is_pointed_at(length in 0..EXAMPLE.trim_end().len()) {
            let text = &EXAMPLE[..EXAMPLE.floor_char_boundary(length)];
            let problems = parse(text, &origin(), &secrets).unwrap_err();
            prop_assert!(problems.0[0].line <= text.lines().count().max(1));
        }

        #[test]
        fn any_text_at_all_is_read_without_panic(text in "\\PC*") {
            let _ = parse(&text, &origin(), &secrets);
        }
    }
}
