//! Servers that are child processes and misbehave in every way we could think of.
//!
//! Each gets a clear error in bounded time, and whatever can go on goes on.

mod arguments;
mod catalog;
mod flood;
mod messages;
mod process_exit;
mod startup;
mod timeouts;

use bascule_testkit::{Behaviour, Script, ScriptedStdio};
use serde_json::{Value, json};

use crate::support::Bascule;

/// `bascule` with one server, `s`, that plays this script.
fn scripted(script: Script) -> (Bascule, ScriptedStdio) {
    scripted_with(script, json!({}))
}

/// The same, its entry in the configuration also saying this.
fn scripted_with(script: Script, also: Value) -> (Bascule, ScriptedStdio) {
    let server = ScriptedStdio::new(script);
    let bascule = Bascule::with_server("s", entry_with(&server, also));
    (bascule, server)
}

/// The server's entry, which also says this.
fn entry_with(server: &ScriptedStdio, also: Value) -> Value {
    let mut entry = server.entry();
    entry.as_object_mut().unwrap().extend(also.as_object().unwrap().clone());
    entry
}

/// A server with one tool, `x`, whose calls are answered so, one after another.
fn tool_x<const N: usize>(behaviours: [Behaviour; N]) -> Script {
    Script::new().tools(["x"]).calls("x", behaviours)
}

/// A server written in shell: it introduces itself, lists one tool, `x`, and then does this. `$0` is `word`.
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

/// Checks an error's code, delivery and whether it may be tried again, and that its sentence has these parts.
#[track_caller]
pub fn check(error: &Value, expected: &str, parts: &[&str]) {
    let field = |name: &str| error[name].as_str().unwrap_or("-").to_owned();
    let said = format!("{} {} {}", field("code"), field("delivery"), error["retryable"]);
    assert_eq!(said, expected, "{error:#}");
    for part in parts {
        assert!(field("message").contains(part), "no `{part}` in {error:#}");
    }
}
