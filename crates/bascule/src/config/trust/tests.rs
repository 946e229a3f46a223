//! Tests of the comparison with the trusted configuration.

use proptest::prelude::*;

use super::display::{MAX_LINES, READ_THE_FILE, hide_literals};
use super::*;
use crate::config::parse;
use crate::config::testing::{read, source};

fn summary(text: &str) -> TrustSummary {
    summary_from(text, "a value")
}

/// Parses a file with this value of all environment variables.
fn summary_from(text: &str, value: &str) -> TrustSummary {
    parse(text, &source(), &|_| Some(value.into())).unwrap().summary
}

fn with_server(entry: &str) -> TrustSummary {
    summary(&format!(r#"{{"mcpServers": {{"s": {entry}}}}}"#))
}

fn with_bridge(entry: &str) -> TrustSummary {
    summary(&format!(r#"{{"mcpServers": {{}}, "bascule": {entry}}}"#))
}

/// Checks the lines that describe a server which is not trusted yet.
#[track_caller]
fn check_new(entry: &str, expected: &[&str]) {
    assert_eq!(with_server(entry).describe_beyond(&TrustSummary::default()), expected);
}

/// Checks the lines that describe a change of a trusted server.
#[track_caller]
fn check_change(old: &str, new: &str, expected: &[&str]) {
    let expected: Vec<String> = expected.iter().map(|line| format!("server `s` {line}")).collect();
    assert_eq!(with_server(new).describe_beyond(&with_server(old)), expected);
}

/// Checks that a change needs no further trust.
#[track_caller]
fn check_trusted(old: &str, new: &str) {
    check_change(old, new, &[]);
}

/// Adds rules of a sandbox to a server.
fn sandbox(rules: &str) -> String {
    format!(r#"{{"command": "x", "sandbox": {rules}}}"#)
}

#[track_caller]
fn check_sandbox(old: &str, new: &str, is_trusted: bool) {
    let lines = with_server(&sandbox(new)).describe_beyond(&with_server(&sandbox(old)));
    assert_eq!(lines.is_empty(), is_trusted, "{old} -> {new}: {lines:?}");
}

// req: SB-08
#[test]
fn file_that_runs_nothing_needs_no_trust() {
    let nothing = [
        r#"{"mcpServers": {}}"#,
        r#"{"servers": {"s": {"disabled": true, "command": "x"}}, "bascule": {"show": "code"}}"#,
    ];
    for text in nothing {
        assert_eq!(summary(text).describe_beyond(&TrustSummary::default()), [""; 0]);
    }
}

// req: SB-08
#[test]
fn describes_a_new_server() {
    check_new(
        r#"{"command": "/bin/sh", "args": ["-c", "cat ~/.ssh/id_rsa"], "sandbox": "off"}"#,
        &["new server `s` runs WITHOUT A SANDBOX: `/bin/sh -c 'cat ~/.ssh/id_rsa'`"],
    );
    check_new(
        r#"{"command": "npx", "args": ["-y", "x"], "cwd": "sub", "env": {"A": "${TOKEN}", "B": "hunter2"}}"#,
        &[
            "new server `s` runs in the sandbox `standard`: `npx -y x`",
            "  in the folder `sub`",
            "  with the environment variables `A=${TOKEN}`, `B=***`",
        ],
    );
    check_new(
        r#"{"url": "https://evil.example/mcp?key=hunter2", "headers": {"Authorization": "Bearer ${KEY:-hunter2}"}}"#,
        &[
            "new server `s` connects to `https://evil.example/mcp?***`",
            "  with the headers `Authorization=***${KEY:-***}`",
        ],
    );
    check_new(
        r#"{"command": "x", "sandbox": {"write": ["/"], "unixSockets": true}}"#,
        &[r#"new server `s` runs in a sandbox with the rules `{"unixSockets":true,"write":["/"]}`: `x`"#],
    );
}

// req: SB-08
#[test]
fn unconfined_servers_come_first() {
    let text = r#"{"mcpServers": {"a": {"command": "x"}, "b": {"command": "y", "sandbox": "off"}}}"#;
    let lines = summary(text).describe_beyond(&TrustSummary::default());
    assert!(lines[0].contains("`b`") && lines[1].contains("`a`"), "{lines:?}");
}

// req: SB-08
#[test]
fn hostile_text_is_shown_harmlessly() {
    check_new(
        r#"{"command": "a\u001b[2J\u202e", "args": ["", "b c", "it's", "line\nbreak", "\u200b"]}"#,
        &[
            r"new server `s` runs in the sandbox `standard`: `'a\u{1b}[2J\u{202e}' '' 'b c' 'it'\''s' 'line\nbreak' '\u{200b}'`",
        ],
    );
    let hidden = format!(r#"{{"command": "sh", "args": ["-c", "true {} evil"]}}"#, " ".repeat(5000));
    let lines = with_server(&hidden).describe_beyond(&TrustSummary::default());
    assert!(lines[0].len() < 300 && lines[0].contains('…'), "{lines:?}");
    assert_eq!(lines[1], READ_THE_FILE);
}

// req: SB-08
#[test]
fn many_servers_and_arguments_are_cut_and_counted() {
    let servers: Vec<String> = (0..500).map(|n| format!(r#""s{n}": {{"command": "x"}}"#)).collect();
    let text = format!(
        r#"{{"mcpServers": {{{}, "evil": {{"command": "y", "sandbox": "off"}}}}}}"#,
        servers.join(",")
    );
    let lines = summary(&text).describe_beyond(&TrustSummary::default());
    assert_eq!(lines.len(), MAX_LINES + 2);
    assert!(lines[0].contains("WITHOUT A SANDBOX"), "{}", lines[0]);
    assert_eq!(lines[MAX_LINES..], ["… and 461 more lines", READ_THE_FILE]);
    let args = vec!["\"a\""; 100].join(",");
    let lines = with_server(&format!(r#"{{"command": "x", "args": [{args}]}}"#));
    let lines = lines.describe_beyond(&TrustSummary::default());
    assert!(lines[0].ends_with("a … (81 more arguments)`"), "{}", lines[0]);
}

// req: SB-08
#[test]
fn very_many_servers_are_summarised() {
    let servers: Vec<String> = (0..50_000).map(|n| format!(r#""s{n}": {{"command": "x"}}"#)).collect();
    let loaded = summary(&format!(r#"{{"mcpServers": {{{}}}}}"#, servers.join(",")));
    assert_eq!(loaded.describe_beyond(&TrustSummary::default()).len(), MAX_LINES + 2);
    assert!(loaded.describe_beyond(&loaded).is_empty());
}

// req: SB-08
#[test]
fn other_programs_need_trust() {
    let (old, standard) = (r#"{"command": "a", "args": ["b"]}"#, "in the sandbox `standard`");
    check_change(
        old,
        r#"{"command": "c", "args": ["b"]}"#,
        &[&format!("now runs {standard}: `c b` instead of `a b`")],
    );
    check_change(
        old,
        r#"{"command": "a", "args": ["b", "d"]}"#,
        &[&format!("now runs {standard}: `a b d` instead of `a b`")],
    );
    check_change(old, r#"{"command": "a"}"#, &[&format!("now runs {standard}: `a` instead of `a b`")]);
    check_change(old, r#"{"command": "a", "args": ["b"], "cwd": "/tmp"}"#, &["now runs in `/tmp`"]);
    check_change(
        r#"{"command": "a", "cwd": "x"}"#,
        r#"{"command": "a"}"#,
        &["now runs in the folder of the bridge"],
    );
    check_change(old, r#"{"url": "http://x/"}"#, &["now connects to `http://x/`"]);
    check_change(
        r#"{"url": "http://x/"}"#,
        old,
        &[&format!("now runs {standard}: `a b` instead of `http://x/`")],
    );
}

// req: SB-08
#[test]
fn words_of_a_command_are_not_confused() {
    let (one, two) = (r#"{"command": "a", "args": ["b c"]}"#, r#"{"command": "a", "args": ["b", "c"]}"#);
    assert_ne!(with_server(one), with_server(two));
    assert!(!with_server(two).describe_beyond(&with_server(one)).is_empty());
}

// req: SB-08
#[test]
fn other_variables_and_headers_need_trust() {
    let old = r#"{"command": "x", "env": {"A": "1", "B": "${B}"}}"#;
    check_trusted(old, r#"{"command": "x", "env": {"B": "${B}", "A": 1, "C": null}}"#);
    check_change(
        old,
        r#"{"command": "x", "env": {"A": "2", "B": "${B}", "LD_PRELOAD": "./x.so"}}"#,
        &["has new or changed environment variables `A=***`, `LD_PRELOAD=***`"],
    );
    check_change(old, r#"{"command": "x", "env": {"A": "1"}}"#, &["has lost the environment variables `B`"]);
    check_change(
        r#"{"command": "x", "env": {"A": "${T:-a}"}}"#,
        r#"{"command": "x", "env": {"A": "${T:-b}"}}"#,
        &["has new or changed environment variables `A=${T:-***}`"],
    );
    check_change(
        r#"{"url": "http://x/", "headers": {"A": "1"}}"#,
        r#"{"url": "http://x/", "headers": {"A": "${SECRET}"}}"#,
        &["has new or changed headers `A=${SECRET}`"],
    );
    check_change(
        r#"{"url": "http://x/?a"}"#,
        r#"{"url": "http://x/?b"}"#,
        &["now connects to `http://x/?***`"],
    );
}

// req: SB-08
#[test]
fn environment_of_the_user_is_not_part_of_the_trust() {
    let text = r#"{"mcpServers": {"s": {"command": "${A}", "args": ["${A}"], "env": {"A": "${A}"}}}}"#;
    assert_eq!(summary_from(text, "one"), summary_from(text, "other"));
}

// req: SB-08
#[test]
fn values_are_recorded_as_digests() {
    let text = r#"{"mcpServers": {"a": {"command": "x", "env": {"A": "hunter2"}},
        "b": {"url": "http://x/?hunter2", "headers": {"A": "hunter2"}}}, "bascule": {"tokens": ["hunter2hunter2hunter2"]}}"#;
    let recorded = serde_json::to_string(&summary(text)).unwrap();
    assert!(!recorded.contains("hunter2"), "{recorded}");
    assert_eq!(serde_json::from_str::<TrustSummary>(&recorded).unwrap(), summary(text));
}

// req: SB-08
#[test]
fn harmless_changes_need_no_trust() {
    let old = r#"{"command": "x", "allowedTools": ["a", "b"], "limits": {"maxMemoryMb": 512}}"#;
    let new = r#"{"type": "stdio", "command": "x", "args": [], "env": {}, "disabled": false,
        "timeoutMs": 9, "startTimeoutMs": 9, "installTimeoutMs": 9, "maxRetries": 9, "reconnectBackoffMs": 9, "reconnectJitter": 1,
        "keepAliveMs": 9, "cancelGraceMs": 9, "poolSize": 9, "maxSessions": 9,
        "allowedTools": ["b"], "deniedTools": ["c"], "isolation": "per-call", "session": "per-client",
        "sandbox": "strict", "limits": {"maxMemoryMb": 256, "maxProcesses": 5, "maxOpenFiles": 5,
        "maxExecutionMs": 90000, "maxConcurrent": 99, "maxQueue": 9, "ratePerSecond": 9},
        "tools": {"b": {"timeoutMs": 9, "retry": "always"}}}"#;
    check_trusted(old, new);
}

// req: SB-08
#[test]
fn removed_and_disabled_servers_need_no_trust_until_they_come_back() {
    let both = summary(r#"{"mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}}}"#);
    let one = summary(r#"{"mcpServers": {"a": {"command": "x"}, "b": {"command": "y", "disabled": true}}}"#);
    let moved = summary(r#"{"servers": {"a": {"command": "x"}}} // comment"#);
    assert!(one.describe_beyond(&both).is_empty() && moved.describe_beyond(&both).is_empty());
    assert_eq!(both.describe_beyond(&one), ["new server `b` runs in the sandbox `standard`: `y`"]);
}

// req: SB-08
#[test]
fn looser_limits_and_filters_need_trust() {
    let limited = |limits: &str| format!(r#"{{"command": "x", "limits": {{{limits}}}}}"#);
    check_change(
        &limited(""),
        &limited(r#""maxMemoryMb": 300"#),
        &["may use 300 MB of memory instead of 256"],
    );
    check_change(
        &limited(""),
        &limited(r#""maxProcesses": null"#),
        &["may use any number of processes instead of 128"],
    );
    check_change(&limited(r#""maxOpenFiles": 5"#), &limited(""), &["may use 1024 open files instead of 5"]);
    check_trusted(&limited(r#""maxProcesses": null"#), &limited(""));
    check_change(
        &limited(""),
        r#"{"command": "x", "tools": {"t": {"limits": {"maxMemoryMb": 1000}}}}"#,
        &["may use 1000 MB of memory instead of 256"],
    );
    let plain = r#"{"command": "x"}"#;
    let with = |key: &str, value: &str| format!(r#"{{"command": "x", "{key}": {value}}}"#);
    check_change(&with("allowedTools", r#"["a"]"#), plain, &["allows more tools (`allowedTools`)"]);
    check_change(
        &with("allowedTools", r#"["a"]"#),
        &with("allowedTools", r#"["*"]"#),
        &["allows more tools (`allowedTools`)"],
    );
    check_trusted(plain, &with("allowedTools", r#"["*"]"#));
    check_change(&with("deniedTools", r#"["a"]"#), plain, &["denies fewer tools (`deniedTools`)"]);
    check_change(
        &with("isolation", r#""per-call""#),
        plain,
        &["uses one process for all calls (`isolation`)"],
    );
    check_change(
        &with("session", r#""per-client""#),
        plain,
        &["uses one session for all clients (`session`)"],
    );
}

// req: SB-08
#[test]
fn unknown_keys_need_trust() {
    let plain = r#"{"command": "x"}"#;
    let with = |value: &str| {
        summary(&format!(r#"{{"servers": {{"s": {{"command": "x", "futureKey": {value}}}}}}}"#))
    };
    let expected = ["server `s` has new or changed settings `futureKey`"];
    assert_eq!(with("1").describe_beyond(&with_server(plain)), expected);
    assert_eq!(with("1").describe_beyond(&with("2")), expected);
    assert_eq!(with_server(plain).describe_beyond(&with("1")), expected);
    assert_eq!(with("1").describe_beyond(&with("1")), [""; 0]);
    let bridge = with_bridge(r#"{"futureKey": true}"#);
    assert_eq!(
        bridge.describe_beyond(&TrustSummary::default()),
        ["the bridge has new or changed settings `futureKey`"]
    );
}

// req: SB-08
#[test]
fn looser_profiles_need_trust() {
    let custom = r#"{"network": "none"}"#;
    for (profile, trusted) in [
        (r#""off""#, vec![]),
        (r#""standard""#, vec![r#""off""#]),
        (r#""strict""#, vec![r#""off""#, r#""standard""#]),
        (custom, vec![r#""off""#]),
    ] {
        for old in [r#""off""#, r#""standard""#, r#""strict""#, custom] {
            check_sandbox(old, profile, old == profile || trusted.contains(&old));
        }
    }
    check_change(
        r#"{"command": "x"}"#,
        &sandbox(r#""off""#),
        &["now runs WITHOUT A SANDBOX, not in the sandbox `standard`"],
    );
    check_trusted(r#"{"command": "x"}"#, &sandbox(r#""standard""#));
}

// req: SB-08
#[test]
fn looser_rules_need_trust() {
    for (old, new, is_trusted) in [
        (r#"{"read": ["/a", "/b"]}"#, r#"{"read": ["/b"]}"#, true),
        (r#"{"read": ["/a"]}"#, r#"{"read": ["/a", "/b"]}"#, false),
        (r#"{"read": ["/a"]}"#, "{}", true),
        ("{}", r#"{"read": []}"#, true),
        (r#"{"write": ["/a"]}"#, r#"{"read": ["/a"]}"#, true),
        (r#"{"read": ["/a"]}"#, r#"{"write": ["/a"]}"#, false),
        (r#"{"write": ["/a"]}"#, r#"{"write": ["/"]}"#, false),
        ("{}", r#"{"network": "none"}"#, true),
        (r#"{"network": "none"}"#, "{}", false),
        (r#"{"network": "none"}"#, r#"{"network": "full"}"#, false),
        ("{}", r#"{"unixSockets": false}"#, true),
        ("{}", r#"{"unixSockets": true}"#, false),
        (r#"{"unixSockets": true}"#, "{}", true),
        ("{}", r#"{"profile": "strict"}"#, true),
        ("{}", r#"{"profile": "standard"}"#, false),
        (r#"{"profile": "standard"}"#, "{}", true),
        (r#"{"processes": 5}"#, r#"{"processes": 4}"#, true),
        (r#"{"processes": 5}"#, r#"{"processes": 6}"#, false),
        (r#"{"processes": 5}"#, "{}", false),
        ("{}", r#"{"files": 5}"#, false),
    ] {
        check_sandbox(old, new, is_trusted);
    }
}

// req: SB-08
#[test]
fn looser_access_to_the_bridge_needs_trust() {
    let check = |entry: &str, expected: &str| {
        assert_eq!(with_bridge(entry).describe_beyond(&TrustSummary::default()), [expected], "{entry}");
        assert!(TrustSummary::default().describe_beyond(&with_bridge(entry)).is_empty(), "{entry}");
        assert!(with_bridge(entry).describe_beyond(&with_bridge(entry)).is_empty(), "{entry}");
    };
    check(r#"{"listen": "0.0.0.0:1"}"#, "the bridge listens on 0.0.0.0, which other machines may reach");
    check(r#"{"auth": "none"}"#, "the bridge asks HTTP clients for no token (`bascule.auth`)");
    check(
        r#"{"tokens": ["0123456789abcdef"]}"#,
        "the bridge accepts 1 more token, which the file contains (`bascule.tokens`)",
    );
    check(r#"{"allowedHosts": ["evil\u001b"]}"#, r"the bridge accepts `evil\u{1b}` (`bascule.allowedHosts`)");
    check(r#"{"allowedOrigins": ["evil"]}"#, "the bridge accepts `evil` (`bascule.allowedOrigins`)");
    let harmless = with_bridge(r#"{"listen": "[::1]:9", "maxMessageBytes": 9, "scripts": {"timeoutMs": 1}}"#);
    assert!(harmless.describe_beyond(&TrustSummary::default()).is_empty());
    let one = with_bridge(r#"{"listen": "192.0.2.1:1"}"#);
    assert!(!one.describe_beyond(&with_bridge(r#"{"listen": "192.0.2.2:1"}"#)).is_empty());
    assert!(one.describe_beyond(&with_bridge(r#"{"listen": "192.0.2.1:2"}"#)).is_empty());
}

#[test]
fn hides_all_but_variables() {
    for (text, shown) in [
        ("", ""),
        ("hunter2", "***"),
        ("${A}", "${A}"),
        ("a${A}b${env:B}", "***${A}***${env:B}"),
        ("${A:-hunter2}", "${A:-***}"),
        ("${A", "***"),
    ] {
        assert_eq!(hide_literals(text), shown);
    }
}

#[test]
fn spellings_of_numbers_stay_distinct() {
    let with = |number: &str| with_server(&format!(r#"{{"command": "x", "env": {{"A": {number}}}}}"#));
    assert_ne!(with("1e2"), with("100.0"));
    assert_ne!(with("1.0"), with("1"));
}

proptest! {
    #[test]
    fn lines_contain_only_visible_characters(command in "\\PC{1,40}|[\u{0}-\u{ffff}]{1,40}", name in ".{0,10}") {
        let entry = json!({ "command": command, "args": [command], "cwd": command, "env": { (name.clone()): command } });
        let text = json!({ "mcpServers": { "s": entry }, "bascule": { "allowedHosts": [command], "x": 1 } });
        if let Ok(loaded) = read(&text.to_string()) {
            let lines = loaded.summary.describe_beyond(&TrustSummary::default());
            prop_assert!(!lines.is_empty());
            for line in lines {
                let is_shown = line.chars().all(|c| !c.is_control() && !['\u{202e}', '\u{200b}'].contains(&c));
                prop_assert!(is_shown, "{line:?}");
            }
        }
    }
}
