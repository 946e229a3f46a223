//! The entry of Bascule in a client's file.

use serde_json::{Map, Value};

use super::table::{ClientProgram, Slot};
use crate::document::Tree;

/// The way in which a client reaches Bascule.
#[derive(Debug, Clone)]
pub(crate) enum EntryTarget {
    Stdio { command: String, args: Vec<String> },
    Http { url: String, token: Option<String> },
}

/// Returns the fields of the entry in the client's form. `None` if the client does not support the endpoint. Settings that the
/// existing entry has already stay as the user set them.
pub(crate) fn fields_of(
    client: &ClientProgram,
    name: &str,
    endpoint: &EntryTarget,
    existing: &Value,
) -> Option<Vec<(String, Tree)>> {
    let template = template(client, endpoint)?;
    let field = |(key, slot): &(&str, Slot)| Some(((*key).to_owned(), fill(*slot, name, endpoint)?));
    let is_kept = |(key, slot): &&(&str, Slot)| is_setting(*slot) && existing.get(key).is_some();
    Some(template.iter().filter(|field| !is_kept(field)).filter_map(field).collect())
}

/// Returns true for a field that Bascule only proposes: the user may change it.
fn is_setting(slot: Slot) -> bool {
    matches!(slot, Slot::Texts(_) | Slot::Flag(_) | Slot::Number(_) | Slot::EmptyMap)
}

/// Returns the fields that the entry must not have: those of the other way of reaching Bascule.
pub(crate) fn stale_keys(
    client: &ClientProgram,
    endpoint: &EntryTarget,
    fields: &[(String, Tree)],
) -> Vec<&'static str> {
    let own = template(client, endpoint).unwrap_or_default();
    let is_set = |key: &str| fields.iter().any(|(field, _)| field == key);
    let is_kept = |key: &str| own.iter().any(|(field, slot)| *field == key && is_setting(*slot));
    let known = client.local.iter().chain(client.remote.unwrap_or_default()).map(|(key, _)| *key);
    known.filter(|key| !is_set(key) && !is_kept(key)).collect()
}

fn template(client: &ClientProgram, endpoint: &EntryTarget) -> Option<&'static [(&'static str, Slot)]> {
    match endpoint {
        EntryTarget::Stdio { .. } => Some(client.local),
        EntryTarget::Http { .. } => client.remote,
    }
}

fn fill(slot: Slot, name: &str, endpoint: &EntryTarget) -> Option<Tree> {
    let value = match (slot, endpoint) {
        (Slot::Name, _) => Tree::text(name),
        (Slot::Text(text), _) => Tree::text(text),
        (Slot::Texts(texts), _) => Tree::List(texts.iter().map(|text| Tree::text(*text)).collect()),
        (Slot::Flag(flag), _) => Tree::Scalar(flag.into()),
        (Slot::Number(number), _) => Tree::Scalar(number.into()),
        (Slot::EmptyMap, _) => Tree::Map(Vec::new()),
        (Slot::Command, EntryTarget::Stdio { command, .. }) => Tree::text(command),
        (Slot::Arguments, EntryTarget::Stdio { args, .. }) => Tree::texts(args),
        (Slot::CommandLine, EntryTarget::Stdio { command, args }) => {
            Tree::texts(&[std::slice::from_ref(command), args].concat())
        }
        (Slot::Url, EntryTarget::Http { url, .. }) => Tree::text(url),
        (Slot::Headers, EntryTarget::Http { token, .. }) => headers(token.as_deref()?),
        (Slot::NestedHeaders, EntryTarget::Http { token, .. }) => {
            Tree::Map(vec![("headers".into(), headers(token.as_deref()?))])
        }
        _ => return None,
    };
    Some(value)
}

fn headers(token: &str) -> Tree {
    Tree::Map(vec![("Authorization".into(), Tree::text(format!("Bearer {token}")))])
}

/// Returns true if an entry starts Bascule, or connects to it.
pub(crate) fn is_bascule(name: &str, entry: &Value) -> bool {
    let words = command_line(entry).unwrap_or_default();
    let program = words.first().map(|program| program.rsplit(['/', '\\']).next().unwrap_or_default());
    let is_started = program
        .is_some_and(|program| program.strip_suffix(".exe").unwrap_or(program) == "bascule")
        && words.iter().any(|word| word == "serve");
    is_started || (name == "bascule" && url(entry).is_some_and(is_loopback))
}

fn is_loopback(url: &str) -> bool {
    let host = url.strip_prefix("http://").unwrap_or_default();
    ["127.", "localhost", "[::1]"].iter().any(|loopback| host.starts_with(loopback))
}

/// Returns the command of an entry with its arguments.
pub(crate) fn command_line(entry: &Value) -> Option<Vec<String>> {
    let entry = entry.as_object()?;
    let (command, owner) = match entry.get("command").or_else(|| entry.get("cmd"))? {
        // Zed's older form.
        Value::Object(nested) => (nested.get("path")?, nested),
        command => (command, entry),
    };
    let mut words = match command {
        Value::String(command) => vec![command.clone()],
        Value::Array(words) => strings(words),
        _ => return None,
    };
    words.extend(owner.get("args").and_then(Value::as_array).map_or_else(Vec::new, |args| strings(args)));
    Some(words).filter(|words| !words.is_empty())
}

/// Returns the URL of an entry.
pub(crate) fn url(entry: &Value) -> Option<&str> {
    const KEYS: [&str; 4] = ["httpUrl", "serverUrl", "url", "uri"];
    let entry: &Map<String, Value> = entry.as_object()?;
    KEYS.iter().find_map(|key| entry.get(*key)?.as_str())
}

fn strings(values: &[Value]) -> Vec<String> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    values.iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::table::CLIENTS;
    use super::*;

    fn entry(id: &str, endpoint: &EntryTarget) -> Option<Value> {
        let fields = fields_of(ClientProgram::by_id(id).unwrap(), "bascule", endpoint, &Value::Null)?;
        Some(Tree::Map(fields).to_json())
    }

    // req: US-04
    #[test]
    fn every_client_gets_its_own_form() {
        let stdio =
            EntryTarget::Stdio { command: "/b/bascule".into(), args: vec!["serve".into(), "--stdio".into()] };
        let args = json!(["serve", "--stdio"]);
        let plain = json!({ "command": "/b/bascule", "args": args });
        let with = |more: Value| {
            let mut entry = plain.clone();
            entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            entry
        };
        for (id, expected) in [
            ("claude-desktop", plain.clone()),
            ("claude-code", with(json!({ "type": "stdio", "alwaysLoad": true }))),
            ("cursor", plain.clone()),
            ("vscode", with(json!({ "type": "stdio" }))),
            ("windsurf", plain.clone()),
            ("zed", with(json!({ "source": "custom" }))),
            ("codex", plain.clone()),
            ("gemini", plain.clone()),
            (
                "goose",
                json!({ "name": "bascule", "type": "stdio", "cmd": "/b/bascule", "args": args, "envs": {}, "enabled": true, "timeout": 300 }),
            ),
            ("continue", with(json!({ "name": "bascule" }))),
            (
                "opencode",
                json!({ "type": "local", "command": ["/b/bascule", "serve", "--stdio"], "enabled": true }),
            ),
            ("cline", with(json!({ "disabled": false, "autoApprove": [] }))),
            ("copilot", with(json!({ "type": "stdio", "tools": ["*"], "deferTools": "never" }))),
        ] {
            let entry = entry(id, &stdio).unwrap();
            assert_eq!(entry, expected, "{id}");
            assert!(is_bascule("any", &entry), "{id}");
        }
    }

    // req: US-04
    #[test]
    fn remote_forms_differ() {
        let http = EntryTarget::Http { url: "http://127.0.0.1:7420/mcp".into(), token: Some("t".into()) };
        let (url, headers) = ("http://127.0.0.1:7420/mcp", json!({ "Authorization": "Bearer t" }));
        assert_eq!(entry("claude-desktop", &http), None);
        for (id, expected) in [
            ("windsurf", json!({ "serverUrl": url, "headers": headers })),
            ("gemini", json!({ "httpUrl": url, "headers": headers })),
            ("codex", json!({ "url": url, "http_headers": headers })),
            ("cline", json!({ "type": "streamableHttp", "url": url, "headers": headers, "disabled": false })),
            (
                "continue",
                json!({ "name": "bascule", "type": "streamable-http", "url": url, "requestOptions": { "headers": headers } }),
            ),
        ] {
            assert_eq!(entry(id, &http).unwrap(), expected);
        }
        for client in CLIENTS.iter().filter(|client| client.remote.is_some()) {
            assert!(is_bascule("bascule", &entry(client.id, &http).unwrap()), "{}", client.id);
        }
        let without = EntryTarget::Http { url: url.into(), token: None };
        assert_eq!(entry("cursor", &without).unwrap(), json!({ "url": url }));
    }

    // req: US-04
    #[test]
    fn recognises_its_own_entry_only() {
        assert!(is_bascule("x", &json!({ "command": "C:\\b\\bascule.exe", "args": ["serve"] })));
        assert!(!is_bascule("bascule", &json!({ "command": "/b/bascule", "args": ["tools"] })));
        assert!(!is_bascule("bascule", &json!({ "command": "npx", "args": ["bascule", "serve"] })));
        assert!(!is_bascule("bascule", &json!({ "url": "https://bascule.example/mcp" })));
        assert!(!is_bascule("other", &json!({ "url": "http://127.0.0.1:7420/mcp" })));
    }
}
