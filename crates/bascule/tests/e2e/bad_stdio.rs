//! Faulty servers behind stdio.
//!
//! Every fault ends in a specific error within a bounded time and does not affect other calls and servers.

mod arguments;
mod catalog;
mod flood;
mod messages;
mod process_exit;
mod startup;
mod timeouts;

use bascule_testkit::{Behaviour, Script, ScriptedStdio};
use serde_json::{Value, json};

use crate::support::{Bascule, with_settings};

/// Configures one server, `s`, that plays this script.
fn scripted(script: Script) -> (Bascule, ScriptedStdio) {
    scripted_with(script, json!({}))
}

/// Like [`scripted`], with additional settings.
fn scripted_with(script: Script, settings: Value) -> (Bascule, ScriptedStdio) {
    let server = ScriptedStdio::new(script);
    let bascule = Bascule::with_server("s", with_settings(server.entry(), settings));
    (bascule, server)
}

/// A server with one tool, `x`, whose calls get these behaviours in turn.
fn tool_x<const N: usize>(behaviours: [Behaviour; N]) -> Script {
    Script::new().tools(["x"]).calls("x", behaviours)
}

/// A server in shell that initializes, lists one tool, `x`, and then runs `then` with `word` as `$0`.
pub fn in_shell(then: &str, word: &str) -> Value {
    let script = r#"
        answer() {
            read -r line
            id=$(expr "$line" : '.*"id":\([0-9]*\)')
            printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"
        }
        answer '{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"sh","version":"1"}}'
        read -r initialized
        answer '{"tools":[{"name":"x","inputSchema":{"type":"object"}}]}'
    "#;
    json!({ "command": "sh", "args": ["-c", format!("{script}\n{then}"), word] })
}

/// Checks code, delivery and `retryable` of an error, and that its message contains these parts.
#[track_caller]
pub fn check(error: &Value, expected: &str, parts: &[&str]) {
    let field = |name: &str| error[name].as_str().unwrap_or("-").to_owned();
    let summary = format!("{} {} {}", field("code"), field("delivery"), error["retryable"]);
    assert_eq!(summary, expected, "{error:#}");
    for part in parts {
        assert!(field("message").contains(part), "no `{part}` in {error:#}");
    }
}
