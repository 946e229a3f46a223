//! Describes the behaviour of a scripted server as JSON that a test writes and the server reads.
//!
//! `steps` derives the reaction to one message. Each JSON parameter may be a JSON string, which is verbatim text: so
//! number formats, key order and broken schemas reach the client unchanged.

use serde_json::{Map, Value, json};

use crate::{Behaviour, message};

/// The behaviour of a scripted server. The default is a well-behaved server without tools.
#[derive(Clone, Debug, Default)]
pub struct Script(Map<String, Value>);

/// Legal content of an SSE stream beyond one `data:` line for each message.
#[derive(Clone, Copy, Debug)]
pub enum SseFeature {
    /// A byte order mark at the start.
    Bom,
    /// Lines end with CRLF.
    Crlf,
    /// A comment line before each event.
    Comments,
    /// A message split over two `data:` lines, the second without a space after the colon.
    MultiLine,
    /// A `retry:` field with each event.
    Retry,
    /// An `id:` field with each event.
    Ids,
    /// A `retry:` field shorter than the default delay of clients.
    RetrySoon,
    /// A first event with an id and without data.
    Primed,
    /// An event of an unknown name before each event.
    UnknownEvents,
}

impl Script {
    pub fn new() -> Script {
        Script::default()
    }

    /// Parses the text of a script file.
    pub fn parse(text: &str) -> Result<Script, serde_json::Error> {
        serde_json::from_str(text).map(Script)
    }

    /// Sets the version in the response to `initialize` (default: the requested version).
    pub fn version(self, version: &str) -> Script {
        self.set("version", version)
    }

    /// Sets `serverInfo`.
    pub fn server_info(self, info: impl Into<Value>) -> Script {
        self.set("serverInfo", info)
    }

    /// Sets `capabilities`.
    pub fn capabilities(self, capabilities: impl Into<Value>) -> Script {
        self.set("capabilities", capabilities)
    }

    /// Sets `instructions`.
    pub fn instructions(self, text: &str) -> Script {
        self.set("instructions", text)
    }

    /// Adds a tool with this definition.
    pub fn tool(self, definition: impl Into<Value>) -> Script {
        self.push("tools", definition.into())
    }

    /// Adds tools that accept any object.
    pub fn tools<'a>(self, names: impl IntoIterator<Item = &'a str>) -> Script {
        names.into_iter().fold(self, |script, name| script.tool(plain_tool(name)))
    }

    /// Adds a tool that is listed only to clients with capabilities (stdio only).
    pub fn tool_for_capable_clients(self, name: &str) -> Script {
        self.push("toolsForCapableClients", plain_tool(name))
    }

    /// Sets the responses to calls of this tool, in order; the last repeats. Default: `Behaviour::echo`.
    pub fn calls(self, tool: &str, behaviours: impl IntoIterator<Item = Behaviour>) -> Script {
        self.behave("calls", tool, behaviours)
    }

    /// Sets the responses to requests of this method, in order; the last repeats. `GET` is the stream for server
    /// messages (HTTP only); by default the server does not offer it.
    pub fn on(self, method: &str, behaviours: impl IntoIterator<Item = Behaviour>) -> Script {
        self.behave("on", method, behaviours)
    }

    /// Limits the tools on one page of `tools/list`.
    pub fn page_size(self, tools: usize) -> Script {
        self.set("pageSize", tools)
    }

    /// Gives every page of `tools/list` a different `nextCursor`.
    pub fn with_endless_pages(self) -> Script {
        self.set("endless", true)
    }

    /// Prints these lines on stdout at the start (stdio only).
    pub fn junk_at_start<'a>(self, lines: impl IntoIterator<Item = &'a str>) -> Script {
        lines.into_iter().fold(self, |script, line| script.push("junkAtStart", line.into()))
    }

    /// Prints these lines on stdout before each message (stdio only).
    pub fn junk_between<'a>(self, lines: impl IntoIterator<Item = &'a str>) -> Script {
        lines.into_iter().fold(self, |script, line| script.push("junkBetween", line.into()))
    }

    /// Prints this text on stderr at the start (stdio only).
    pub fn stderr(self, text: &str) -> Script {
        self.set("stderr", text)
    }

    /// Exits before it reads anything (stdio only).
    pub fn exit_at_start(self, code: i32) -> Script {
        self.set("exit", code)
    }

    /// Keeps running for a minute after stdin is closed (stdio only).
    pub fn outlives_stdin(self) -> Script {
        self.set("outlives_stdin", true)
    }

    /// Responds with SSE streams that have these features instead of JSON bodies (HTTP only).
    pub fn sse(self, features: impl IntoIterator<Item = SseFeature>) -> Script {
        let names = features.into_iter().map(|feature| Value::from(format!("{feature:?}")));
        self.set("sse", names.collect::<Vec<_>>())
    }

    /// Issues this `Mcp-Session-Id` and requires it: 400 if missing, 404 if different (HTTP only).
    pub fn session(self, id: &str) -> Script {
        self.set("session", id)
    }

    /// Serves the deprecated HTTP+SSE transport with this endpoint for POST requests; `{origin}` is the server's own
    /// origin (HTTP only). Accepts POST requests at paths that begin with `/messages`. One client at a time.
    pub fn legacy(self, endpoint: &str) -> Script {
        self.set("legacy", endpoint)
    }

    fn set(mut self, key: &str, value: impl Into<Value>) -> Script {
        self.0.insert(key.to_owned(), value.into());
        self
    }

    fn push(mut self, key: &str, value: Value) -> Script {
        let list = self.0.entry(key).or_insert_with(|| json!([]));
        list.as_array_mut().expect("the key holds a list").push(value);
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

    pub(crate) fn is_set(&self, key: &str) -> bool {
        self.0.get(key) == Some(&Value::Bool(true))
    }

    /// Returns the value of this key as JSON text.
    pub(crate) fn json(&self, key: &str) -> Option<String> {
        self.0.get(key).map(verbatim)
    }

    /// Returns the list of this key, each entry as verbatim text.
    pub(crate) fn list(&self, key: &str) -> Vec<String> {
        self.0.get(key).and_then(Value::as_array).into_iter().flatten().map(verbatim).collect()
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    /// Returns the script with the tools for clients with capabilities.
    pub(crate) fn for_capable_client(self) -> Script {
        let more =
            self.0.get("toolsForCapableClients").and_then(Value::as_array).cloned().unwrap_or_default();
        more.into_iter().fold(self, |script, tool| script.push("tools", tool))
    }

    pub(crate) fn lists_tool(&self, name: &str) -> bool {
        self.list("tools").iter().any(|tool| message::string_in(tool, "name").as_deref() == Some(name))
    }

    /// Returns the behaviour for the `turn`th request of its kind, if the script has one.
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

/// Returns the text of a JSON string, or the JSON of any other value.
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
    fn script_round_trips_through_its_file() {
        let script = Script::new()
            .tools(["a", "b"])
            .calls("a", [Behaviour::text("one"), Behaviour::silence()])
            .sse([SseFeature::Bom]);
        assert_eq!(Script::parse(&script.to_string()).unwrap().to_string(), script.to_string());
    }

    #[test]
    fn json_string_is_verbatim_text() {
        let script = Script::new().tool(r#"{"name":"x","inputSchema":{"minimum":1.0}}"#);
        assert_eq!(script.list("tools"), [r#"{"name":"x","inputSchema":{"minimum":1.0}}"#]);
    }

    #[test]
    fn last_behaviour_repeats() {
        let script = Script::new().calls("a", [Behaviour::text("1"), Behaviour::silence()]);
        let actions = [0, 1, 2].map(|turn| script.behaviour("calls", "a", turn).unwrap().action().to_owned());
        assert_eq!(actions, ["result", "silence", "silence"]);
    }
}
