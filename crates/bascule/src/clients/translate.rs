//! Translates the entries of other clients into entries of `mcp.json`.

use std::path::Path;

use bascule_model::ServerName;
use serde_json::{Map, Value};

use super::entry::{command_line, is_bascule, url};
use super::login_path::ProgramSearch;
use super::table::{ClientProgram, VariableSyntax};
use crate::config::EnvLookup;
use crate::document::Tree;

/// A server of another client.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Imported {
    pub(crate) name: String,
    pub(crate) fields: Vec<(String, Tree)>,
    /// Changes that the user should know of.
    pub(crate) notes: Vec<String>,
}

/// Translates an entry, or returns the reason why it is left out.
pub(crate) fn translate(
    client: &ClientProgram,
    name: &str,
    entry: &Value,
    programs: &ProgramSearch,
    environment: EnvLookup<'_>,
) -> Result<Imported, String> {
    let Some(map) = entry.as_object() else { return Err("its entry is no map".into()) };
    if is_bascule(name, entry) {
        return Err("it is Bascule itself".into());
    }
    let kind = map.get("type").and_then(Value::as_str).unwrap_or_default();
    if ["builtin", "platform", "frontend", "inline_python"].contains(&kind) {
        return Err(format!("it is built into {}", client.title));
    }
    let mut imported = Imported { name: legal_name(name), fields: Vec::new(), notes: Vec::new() };
    if imported.name != name {
        imported.notes.push(format!("its name was `{name}`"));
    }
    let texts = Texts { syntax: client.variables, environment };
    match (command_line(entry), url(entry)) {
        (Some(words), _) => imported.add_command(map, &words, programs, &texts),
        (None, Some(url)) => imported.add_url(client, map, url, &texts),
        (None, None) => return Err("it has neither a command nor a URL".into()),
    }
    imported.add_tools(map);
    imported.add_state(map, &texts);
    Ok(imported)
}

impl Imported {
    fn add_command(
        &mut self,
        map: &Map<String, Value>,
        words: &[String],
        programs: &ProgramSearch,
        texts: &Texts,
    ) {
        let command = texts.translate(&words[0]);
        let found = if command.contains('/') { None } else { programs.find(&command) };
        if found.is_none() && !command.contains('/') {
            self.notes.push(format!("`{command}` was not found: install it, or write its path"));
        }
        let path = found.as_deref().and_then(Path::to_str).unwrap_or(&command);
        self.add("command", Tree::text(path));
        let args: Vec<String> = words[1..].iter().map(|word| texts.translate(word)).collect();
        if !args.is_empty() {
            self.add("args", Tree::texts(&args));
        }
        let mut env = texts.map(["env", "environment", "envs"].iter().find_map(|key| map.get(*key)));
        // A script such as `npx` finds `node` in the folder of `npx`.
        let folder = found.as_deref().and_then(ProgramSearch::folder_for_script).and_then(Path::to_str);
        if let Some(folder) = folder.filter(|_| !env.iter().any(|(name, _)| name == "PATH")) {
            env.push(("PATH".into(), Tree::text(format!("{folder}:${{PATH}}"))));
        }
        self.add_secrets("env", env);
        for key in ["cwd", "envFile"] {
            if let Some(value) = map.get(key).and_then(Value::as_str) {
                self.add(key, Tree::text(texts.translate(value)));
            }
        }
        if map.get("env_keys").and_then(Value::as_array).is_some_and(|keys| !keys.is_empty()) {
            self.notes.push("its secrets are in the keyring of the other program: add them to `env`".into());
        }
    }

    fn add_url(&mut self, client: &ClientProgram, map: &Map<String, Value>, url: &str, texts: &Texts) {
        let kind = map.get("type").and_then(Value::as_str).unwrap_or_default();
        let protocol = match kind {
            "sse" => Some("sse"),
            "http" | "streamable-http" | "streamableHttp" | "streamable_http" => Some("http"),
            // Its `url` is HTTP+SSE, its `httpUrl` is not.
            _ if client.id == "gemini" => Some(if map.contains_key("httpUrl") { "http" } else { "sse" }),
            _ => None,
        };
        if let Some(protocol) = protocol {
            self.add("type", Tree::text(protocol));
        }
        self.add("url", Tree::text(texts.translate(url)));
        let nested = || map.get("requestOptions")?.get("headers");
        let mut headers = texts.map(map.get("headers").or_else(|| map.get("http_headers")).or_else(nested));
        for (name, variable) in map.get("env_http_headers").and_then(Value::as_object).into_iter().flatten() {
            headers
                .push((name.clone(), Tree::text(format!("${{{}}}", variable.as_str().unwrap_or_default()))));
        }
        if let Some(variable) = map.get("bearer_token_env_var").and_then(Value::as_str) {
            headers.push(("Authorization".into(), Tree::text(format!("Bearer ${{{variable}}}"))));
        }
        self.add_secrets("headers", headers);
    }

    /// Keeps the values, and warns of those that look secret.
    fn add_secrets(&mut self, key: &str, values: Vec<(String, Tree)>) {
        let is_literal =
            |value: &Tree| matches!(value, Tree::Scalar(Value::String(text)) if !text.contains("${"));
        let literal: Vec<String> = values
            .iter()
            .filter(|(name, value)| is_literal(value) && is_secret_name(name))
            .map(|(name, _)| format!("`{name}`"))
            .collect();
        if !literal.is_empty() {
            self.notes.push(format!(
                "{} of its `{key}` stands in the file as text: `${{VARIABLE}}` would keep it out",
                literal.join(", ")
            ));
        }
        if !values.is_empty() {
            self.add(key, Tree::Map(values));
        }
    }

    /// Tools that the other client does not use are not used here either.
    fn add_tools(&mut self, map: &Map<String, Value>) {
        let list = |keys: &[&str]| {
            let list = keys.iter().find_map(|key| map.get(*key)?.as_array()).filter(|list| !list.is_empty());
            list.filter(|list| !list.contains(&"*".into())).map(|list| Tree::from(Value::Array(list.clone())))
        };
        for (key, theirs) in [
            ("allowedTools", &["includeTools", "enabled_tools", "available_tools", "tools"][..]),
            ("deniedTools", &["excludeTools", "disabled_tools"]),
        ] {
            if let Some(list) = list(theirs) {
                self.add(key, list);
            }
        }
    }

    fn add_state(&mut self, map: &Map<String, Value>, texts: &Texts) {
        let missing = texts.missing(&Tree::Map(self.fields.clone()));
        let is_disabled =
            map.get("disabled") == Some(&true.into()) || map.get("enabled") == Some(&false.into());
        if !missing.is_empty() {
            self.notes.push(format!(
                "disabled, because {} not set: set it, then remove `disabled`",
                missing.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ") + " is"
            ));
        }
        if is_disabled || !missing.is_empty() {
            self.add("disabled", Tree::Scalar(true.into()));
        }
    }

    fn add(&mut self, key: &str, value: Tree) {
        self.fields.push((key.into(), value));
    }
}

/// Translates the variables in texts.
struct Texts<'a> {
    syntax: VariableSyntax,
    environment: EnvLookup<'a>,
}

impl Texts<'_> {
    fn map(&self, values: Option<&Value>) -> Vec<(String, Tree)> {
        let values = values.and_then(Value::as_object).into_iter().flatten();
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let values = values.filter(|(_, value)| !value.is_null());
        values.map(|(name, value)| (name.clone(), Tree::text(self.translate(&text(value))))).collect()
    }

    fn translate(&self, text: &str) -> String {
        let text = replace_between(text, "${input:", '}', |id| format!("${{{}}}", variable_name(id)));
        match self.syntax {
            VariableSyntax::Ours => text,
            VariableSyntax::Braces => replace_between(&text, "{env:", '}', |name| format!("${{{name}}}")),
            VariableSyntax::Shell => replace_shell_variables(&text),
        }
    }

    /// Returns the variables in a value that are not set and have no default.
    fn missing(&self, value: &Tree) -> Vec<String> {
        match value {
            Tree::Scalar(Value::String(text)) => {
                let names = text.split("${").skip(1).filter_map(|rest| Some(rest.split_once('}')?.0));
                let names = names.map(|name| name.strip_prefix("env:").unwrap_or(name));
                let is_missing = |name: &&str| {
                    *name != "workspaceFolder" && !name.contains(":-") && (self.environment)(name).is_none()
                };
                names.filter(is_missing).map(str::to_owned).collect()
            }
            Tree::Scalar(_) => Vec::new(),
            Tree::List(items) => items.iter().flat_map(|item| self.missing(item)).collect(),
            Tree::Map(members) => members.iter().flat_map(|(_, value)| self.missing(value)).collect(),
        }
    }
}

/// Replaces each part from `open` to `close`.
fn replace_between(text: &str, open: &str, close: char, replacement: impl Fn(&str) -> String) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once(open) {
        let Some((inside, remainder)) = after.split_once(close) else { break };
        out.push_str(before);
        out.push_str(&replacement(inside));
        rest = remainder;
    }
    out + rest
}

/// Replaces `$VAR` by `${VAR}`.
fn replace_shell_variables(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once('$') {
        let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(after.len());
        let is_name = after.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        out.push_str(before);
        match is_name {
            true => out.push_str(&format!("${{{}}}", &after[..end])),
            false => out.push('$'),
        }
        rest = if is_name { &after[end..] } else { after };
    }
    out + rest
}

/// Turns the id of an input of VS Code into the name of a variable.
fn variable_name(id: &str) -> String {
    id.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect()
}

/// Replaces characters that a server's name must not have.
fn legal_name(name: &str) -> String {
    if ServerName::parse(name).is_ok() {
        return name.to_owned();
    }
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let words: Vec<&str> = name.split(|c: char| !legal(c)).filter(|word| !word.is_empty()).collect();
    if words.is_empty() { "server".into() } else { words.join("-") }
}

fn is_secret_name(name: &str) -> bool {
    const WORDS: [&str; 8] = ["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "AUTH", "CREDENTIAL", "DSN"];
    let name = name.to_uppercase();
    WORDS.iter().any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn import(id: &str, entry: Value) -> Result<(Value, Vec<String>), String> {
        let environment = |name: &str| ["HOME", "SET", "PATH"].contains(&name).then(|| "x".to_owned());
        let programs = ProgramSearch::in_folders(&[Path::new("/bin")]);
        let imported = translate(ClientProgram::by_id(id).unwrap(), "it", &entry, &programs, &environment)?;
        Ok((Tree::Map(imported.fields).to_json(), imported.notes))
    }

    #[track_caller]
    fn check(id: &str, entry: Value, expected: Value) {
        assert_eq!(import(id, entry).unwrap().0, expected);
    }

    // req: US-04
    #[test]
    fn translates_local_servers_of_every_form() {
        let expected = json!({ "command": "/bin/sh", "args": ["-c"], "env": { "A": "1" } });
        check(
            "cursor",
            json!({ "command": "sh", "args": ["-c"], "env": { "A": 1, "B": null } }),
            expected.clone(),
        );
        check(
            "zed",
            json!({ "command": { "path": "sh", "args": ["-c"] }, "env": { "A": "1" } }),
            expected.clone(),
        );
        check(
            "opencode",
            json!({ "type": "local", "command": ["sh", "-c"], "environment": { "A": "1" } }),
            expected.clone(),
        );
        check(
            "goose",
            json!({ "type": "stdio", "cmd": "sh", "args": ["-c"], "envs": { "A": "1" }, "enabled": true }),
            expected,
        );
        check(
            "codex",
            json!({ "command": "/x", "cwd": "/y", "enabled": false }),
            json!({ "command": "/x", "cwd": "/y", "disabled": true }),
        );
        let (entry, notes) = import("cursor", json!({ "command": "no-such" })).unwrap();
        assert_eq!((entry, notes.len()), (json!({ "command": "no-such" }), 1));
    }

    // req: US-04
    #[test]
    fn translates_remote_servers_of_every_form() {
        check("windsurf", json!({ "serverUrl": "https://x" }), json!({ "url": "https://x" }));
        check("gemini", json!({ "httpUrl": "https://x" }), json!({ "type": "http", "url": "https://x" }));
        check("gemini", json!({ "url": "https://x" }), json!({ "type": "sse", "url": "https://x" }));
        check(
            "goose",
            json!({ "type": "streamable_http", "uri": "https://x" }),
            json!({ "type": "http", "url": "https://x" }),
        );
        check(
            "cline",
            json!({ "type": "streamableHttp", "url": "https://x" }),
            json!({ "type": "http", "url": "https://x" }),
        );
        check(
            "codex",
            json!({ "url": "https://x", "bearer_token_env_var": "SET", "env_http_headers": { "X": "SET" } }),
            json!({ "url": "https://x", "headers": { "Authorization": "Bearer ${SET}", "X": "${SET}" } }),
        );
        check(
            "continue",
            json!({ "name": "it", "url": "https://x", "requestOptions": { "headers": { "A": "b" } } }),
            json!({ "url": "https://x", "headers": { "A": "b" } }),
        );
    }

    // req: US-04
    #[test]
    fn translates_variables() {
        check(
            "gemini",
            json!({ "command": "/x", "args": ["$SET/a", "5$", "${SET}"] }),
            json!({ "command": "/x", "args": ["${SET}/a", "5$", "${SET}"] }),
        );
        check(
            "opencode",
            json!({ "command": ["/x", "{env:SET}"] }),
            json!({ "command": "/x", "args": ["${SET}"] }),
        );
        let (entry, notes) = import(
            "vscode",
            json!({ "command": "/x", "env": { "K": "${input:api-key}", "L": "${UNSET:-}" } }),
        )
        .unwrap();
        assert_eq!(
            entry,
            json!({ "command": "/x", "env": { "K": "${API_KEY}", "L": "${UNSET:-}" }, "disabled": true })
        );
        assert_eq!(notes, ["disabled, because `API_KEY` is not set: set it, then remove `disabled`"]);
    }

    // req: US-04
    #[test]
    fn keeps_restrictions_and_warns_of_secrets() {
        let (entry, notes) = import(
            "gemini",
            json!({ "command": "/x", "env": { "API_KEY": "k" }, "includeTools": ["a"], "excludeTools": ["b"] }),
        )
        .unwrap();
        assert_eq!(entry["allowedTools"], json!(["a"]));
        assert_eq!(entry["deniedTools"], json!(["b"]));
        assert!(notes[0].starts_with("`API_KEY` of its `env`"), "{notes:?}");
        check("copilot", json!({ "command": "/x", "tools": ["*"] }), json!({ "command": "/x" }));
    }

    // req: US-04
    #[test]
    fn leaves_out_what_is_no_server_of_ours() {
        let reason = |id, entry| import(id, entry).unwrap_err();
        assert_eq!(
            reason("goose", json!({ "type": "builtin", "name": "developer" })),
            "it is built into Goose"
        );
        assert_eq!(
            reason("cursor", json!({ "command": "/b/bascule", "args": ["serve"] })),
            "it is Bascule itself"
        );
        assert_eq!(reason("cursor", json!({})), "it has neither a command nor a URL");
        assert_eq!(reason("cursor", json!(7)), "its entry is no map");
        assert_eq!(legal_name("@scope/my server"), "scope-my-server");
        assert_eq!(legal_name("é"), "server");
    }
}
