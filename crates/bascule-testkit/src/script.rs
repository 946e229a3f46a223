//! Describes how a server behaves, as plain JSON that a test writes and a scripted server reads.
//!
//! What a server does with one message is worked out in `steps`. Wherever JSON is handed in, a JSON string
//! stands for verbatim text: so numbers, key order and broken schemas reach the client as they were written.

use serde_json::{Map, Value, json};

use crate::{Behaviour, message};

/// How a scripted server behaves. The default is a well-behaved server without tools.
#[derive(Clone, Debug, Default)]
pub struct Script(Map<String, Value>);

/// What an SSE stream may legally contain beside one `data:` line per message.
#[derive(Clone, Copy, Debug)]
pub enum SseHabit {
    /// A byte order mark at the very start.
    Bom,
    /// Lines end with CRLF.
    Crlf,
    /// A comment line before each event.
    Comments,
    /// A message spread over two `data:` lines, the second without a space after the colon.
    MultiLine,
    /// A `retry:` field with each event.
    Retry,
    /// An `id:` field with each event.
    Ids,
    /// The same with a `retry:` that is shorter than what clients wait by themselves.
    RetrySoon,
    /// An event with an id and without data before all others.
    Primed,
    /// An event of an unknown name before each event.
    UnknownEvents,
}

impl Script {
    /// A well-behaved server without tools.
    pub fn new() -> Script {
        Script::default()
    }

    /// Reads a script file's text.
    pub fn parse(text: &str) -> Result<Script, serde_json::Error> {
        serde_json::from_str(text).map(Script)
    }

    /// Answers `initialize` with this version, whatever was asked for (default: the one asked for).
    pub fn version(self, version: &str) -> Script {
        self.set("version", version)
    }

    /// The `serverInfo` to answer with.
    pub fn server_info(self, info: impl Into<Value>) -> Script {
        self.set("serverInfo", info)
    }

    /// The `capabilities` to answer with.
    pub fn capabilities(self, capabilities: impl Into<Value>) -> Script {
        self.set("capabilities", capabilities)
    }

    /// The `instructions` to answer with.
    pub fn instructions(self, text: &str) -> Script {
        self.set("instructions", text)
    }

    /// Lists one more tool, verbatim.
    pub fn tool(self, definition: impl Into<Value>) -> Script {
        self.push("tools", definition.into())
    }

    /// Lists tools of these names that accept any object.
    pub fn tools<'a>(self, names: impl IntoIterator<Item = &'a str>) -> Script {
        names.into_iter().fold(self, |script, name| script.tool(plain_tool(name)))
    }

    /// Lists this tool too, but only for clients that can do something for a server (stdio only).
    pub fn tool_for_the_able(self, name: &str) -> Script {
        self.push("ableTools", plain_tool(name))
    }

    /// How calls of this tool are answered, one after another; the last repeats. Without: `Behaviour::echo`.
    pub fn calls(self, tool: &str, behaviours: impl IntoIterator<Item = Behaviour>) -> Script {
        self.behave("calls", tool, behaviours)
    }

    /// How requests of this method are answered, one after another; the last repeats. `GET` is what the server
    /// says unasked (HTTP only); without, that is not offered.
    pub fn on(self, method: &str, behaviours: impl IntoIterator<Item = Behaviour>) -> Script {
        self.behave("on", method, behaviours)
    }

    /// At most so many tools on one page of `tools/list`.
    pub fn page_size(self, tools: usize) -> Script {
        self.set("pageSize", tools)
    }

    /// Every page of `tools/list` has a `nextCursor`, each another one.
    pub fn pages_forever(self) -> Script {
        self.set("endless", true)
    }

    /// Lines printed on stdout before anything else (stdio only).
    pub fn junk_at_start<'a>(self, lines: impl IntoIterator<Item = &'a str>) -> Script {
        lines.into_iter().fold(self, |script, line| script.push("junkAtStart", line.into()))
    }

    /// Lines printed on stdout before each message (stdio only).
    pub fn junk_between<'a>(self, lines: impl IntoIterator<Item = &'a str>) -> Script {
        lines.into_iter().fold(self, |script, line| script.push("junkBetween", line.into()))
    }

    /// Text printed on stderr at the start (stdio only).
    pub fn stderr(self, text: &str) -> Script {
        self.set("stderr", text)
    }

    /// Exits at once, before reading anything (stdio only).
    pub fn exit_at_start(self, code: i32) -> Script {
        self.set("exit", code)
    }

    /// Stays alive for a minute after the end of its stdin (stdio only).
    pub fn lingers(self) -> Script {
        self.set("lingers", true)
    }

    /// Answers with an SSE stream that has these habits, rather than with a JSON body (HTTP only).
    pub fn sse(self, habits: impl IntoIterator<Item = SseHabit>) -> Script {
        let names = habits.into_iter().map(|habit| Value::from(format!("{habit:?}")));
        self.set("sse", names.collect::<Vec<_>>())
    }

    /// Gives out this `Mcp-Session-Id` and insists on it: 400 without, 404 with another (HTTP only).
    pub fn session(self, id: &str) -> Script {
        self.set("session", id)
    }

    /// Speaks HTTP+SSE as it was before 2025, and names this as the address to post to; `{origin}` stands for the
    /// server's own (HTTP only). Posts are taken at `/messages`, whatever follows. One client at a time.
    pub fn legacy(self, endpoint: &str) -> Script {
        self.set("legacy", endpoint)
    }

    fn set(mut self, key: &str, value: impl Into<Value>) -> Script {
        self.0.insert(key.to_owned(), value.into());
        self
    }

    fn push(mut self, key: &str, value: Value) -> Script {
        let list = self.0.entry(key).or_insert_with(|| json!([]));
        list.as_array_mut().expect("only lists are pushed to").push(value);
        self
    }

    fn behave(mut self, table: &str, name: &str, behaviours: impl IntoIterator<Item = Behaviour>) -> Script {
        let list: Vec<Value> = behaviours.into_iter().map(Value::from).collect();
        self.0.entry(table).or_insert_with(|| json!({}))[name] = list.into();
        self
    }
}

impl Script {
    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.as_str()
    }

    pub(crate) fn number(&self, key: &str) -> Option<i64> {
        self.0.get(key)?.as_i64()
    }

    pub(crate) fn is(&self, key: &str) -> bool {
        self.0.get(key) == Some(&Value::Bool(true))
    }

    /// The JSON text under this key, for repeating it.
    pub(crate) fn json(&self, key: &str) -> Option<String> {
        self.0.get(key).map(verbatim)
    }

    /// The list under this key, each entry as JSON text; lines of junk are such entries too.
    pub(crate) fn list(&self, key: &str) -> Vec<String> {
        self.0.get(key).and_then(Value::as_array).into_iter().flatten().map(verbatim).collect()
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    /// The script as those see it who can do something for a server.
    pub(crate) fn for_the_able(self) -> Script {
        let more = self.0.get("ableTools").and_then(Value::as_array).cloned().unwrap_or_default();
        more.into_iter().fold(self, |script, tool| script.push("tools", tool))
    }

    pub(crate) fn lists_tool(&self, name: &str) -> bool {
        self.list("tools").iter().any(|tool| message::string_in(tool, "name").as_deref() == Some(name))
    }

    /// The behaviour for the `turn`th request of its kind, if the script has one.
    pub(crate) fn behaviour(&self, table: &str, name: &str, turn: usize) -> Option<Behaviour> {
        let list = self.0.get(table)?.get(name)?.as_array()?;
        list.get(turn).or(list.last()).cloned().map(Behaviour::from)
    }
}

impl std::fmt::Display for Script {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{:#}", Value::Object(self.0.clone()))
    }
}

/// A JSON string stands for its text, anything else for its JSON.
pub(crate) fn verbatim(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn plain_tool(name: &str) -> Value {
    json!({"name": name, "description": format!("The tool {name}"), "inputSchema": {"type": "object"}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_survives_its_own_file() {
        let script = Script::new()
            .tools(["a", "b"])
            .calls("a", [Behaviour::text("one"), Behaviour::silence()])
            .sse([SseHabit::Bom]);
        assert_eq!(Script::parse(&script.to_string()).unwrap().to_string(), script.to_string());
    }

    #[test]
    fn a_string_stands_for_verbatim_text() {
        let script = Script::new().tool(r#"{"name":"x","inputSchema":{"minimum":1.0}}"#);
        assert_eq!(script.list("tools"), [r#"{"name":"x","inputSchema":{"minimum":1.0}}"#]);
    }

    #[test]
    fn the_last_behaviour_repeats() {
        let script = Script::new().calls("a", [Behaviour::text("1"), Behaviour::silence()]);
        let acts = [0, 1, 2].map(|turn| script.behaviour("calls", "a", turn).unwrap().act().to_owned());
        assert_eq!(acts, ["result", "silence", "silence"]);
    }
}
