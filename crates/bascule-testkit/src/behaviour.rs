//! Describes how one request is answered: what happens first, in the order written, and then the one act.
//!
//! Only the description: `steps` works out what is said, and `perform` says it.

use std::time::Duration;

use serde_json::{Value, json};

/// How one request is answered.
#[derive(Clone, Debug)]
pub struct Behaviour(Value);

/// Where an oversized answer carries its `id`.
#[derive(Clone, Copy, Debug)]
pub enum IdPlace {
    /// Before the big part.
    Before,
    /// After the big part.
    After,
    /// Nowhere.
    Missing,
}

/// The acts.
impl Behaviour {
    /// Succeeds with this result. A JSON string is the verbatim text of the result.
    pub fn result(result: impl Into<Value>) -> Behaviour {
        Behaviour(json!({"do": "result", "result": result.into()}))
    }

    /// Succeeds with one piece of text.
    pub fn text(text: &str) -> Behaviour {
        Behaviour::result(json!({"content": [{"type": "text", "text": text}], "isError": false}))
    }

    /// Succeeds with the arguments as they came: as text, and as `structuredContent`.
    pub fn echo() -> Behaviour {
        Behaviour(json!({"do": "echo"}))
    }

    /// Fails with this JSON-RPC error object. A JSON string is its verbatim text.
    pub fn error(error: impl Into<Value>) -> Behaviour {
        Behaviour(json!({"do": "error", "error": error.into()}))
    }

    /// Answers as a well-behaved server would.
    pub fn usual() -> Behaviour {
        Behaviour(json!({"do": "usual"}))
    }

    /// Answers with one line of exactly so many bytes.
    pub fn big(bytes: usize, id: IdPlace) -> Behaviour {
        Behaviour(json!({"do": "big", "bytes": bytes, "id": format!("{id:?}")}))
    }

    /// Asks the client these things (`method`, `params`), one after another, and answers with what it said:
    /// its whole answers under `structuredContent.answers`.
    pub fn asking(requests: impl IntoIterator<Item = Value>) -> Behaviour {
        let recount = Behaviour(json!({"do": "recount"}));
        requests.into_iter().fold(recount, |recount, request| recount.first(json!({"ask": request})))
    }

    /// Never answers.
    pub fn silence() -> Behaviour {
        Behaviour(json!({"do": "silence"}))
    }

    /// Says no more: a stream ends there (HTTP only).
    pub fn end() -> Behaviour {
        Behaviour(json!({"do": "end"}))
    }

    /// Exits with this code; over HTTP, closes the connection.
    pub fn exit(code: i32) -> Behaviour {
        Behaviour(json!({"do": "exit", "code": code}))
    }

    /// Dies by SIGABRT; over HTTP, closes the connection.
    pub fn abort() -> Behaviour {
        Behaviour(json!({"do": "abort"}))
    }
}

/// What happens before the act.
impl Behaviour {
    /// Waits first. Other requests are answered meanwhile.
    pub fn after_delay(self, time: Duration) -> Behaviour {
        self.first(json!({"wait": time.as_millis() as u64}))
    }

    /// Sends this line first, whatever it is: garbage, or a message of any kind.
    pub fn after_line(self, line: impl Into<Value>) -> Behaviour {
        self.first(json!({"say": line.into()}))
    }

    /// Reports progress so many times first, if the caller gave a token.
    pub fn after_progress(self, times: u64) -> Behaviour {
        self.first(json!({"progress": times}))
    }

    /// Sends a log message first.
    pub fn after_log(self, text: &str) -> Behaviour {
        let params = json!({"level": "info", "data": text});
        self.after_line(json!({"jsonrpc": "2.0", "method": "notifications/message", "params": params}))
    }

    /// Says first that the list of tools has changed.
    pub fn after_list_changed(self) -> Behaviour {
        self.after_line(json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}))
    }

    /// Answers an id that nobody used first.
    pub fn after_stray_answer(self) -> Behaviour {
        self.after_line(json!({"jsonrpc": "2.0", "id": "nobody-used-this", "result": {}}))
    }

    /// Cuts the stream here. The rest is said when the client takes it up again, after the last id (HTTP only).
    pub fn after_cut(self) -> Behaviour {
        self.first(json!({"break": "cut"}))
    }

    /// Ends the stream here, properly. The rest is said when the client takes it up again (HTTP only).
    pub fn after_end(self) -> Behaviour {
        self.first(json!({"break": "end"}))
    }

    /// Gives the answer twice.
    pub fn twice(self) -> Behaviour {
        self.with("twice", true)
    }

    /// Puts these members, verbatim, into the answer beside its result or error.
    pub fn beside(self, members: &str) -> Behaviour {
        self.with("beside", members)
    }

    /// Answers this one with an SSE stream, whatever the script says (HTTP only).
    pub fn as_sse(self) -> Behaviour {
        self.with("as", "sse")
    }

    /// Answers this one with a JSON body, whatever the script says (HTTP only). More than one message still
    /// makes a stream: a body has room for one.
    pub fn as_json(self) -> Behaviour {
        self.with("as", "json")
    }

    fn first(mut self, event: Value) -> Behaviour {
        match self.0.get_mut("first").and_then(Value::as_array_mut) {
            Some(events) => events.push(event),
            None => self.0["first"] = json!([event]),
        }
        self
    }

    fn with(mut self, key: &str, value: impl Into<Value>) -> Behaviour {
        self.0[key] = value.into();
        self
    }
}

impl Behaviour {
    pub(crate) fn act(&self) -> &str {
        self.0["do"].as_str().unwrap_or("usual")
    }

    pub(crate) fn events(&self) -> &[Value] {
        self.0["first"].as_array().map_or(&[], Vec::as_slice)
    }

    pub(crate) fn get(&self, key: &str) -> &Value {
        &self.0[key]
    }
}

impl From<Value> for Behaviour {
    fn from(value: Value) -> Behaviour {
        Behaviour(value)
    }
}

impl From<Behaviour> for Value {
    fn from(behaviour: Behaviour) -> Value {
        behaviour.0
    }
}
