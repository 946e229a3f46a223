//! Describes the response to one request: preliminary events in order, then one action.
//!
//! `steps` turns the description into steps, and `perform` executes them.

use std::time::Duration;

use serde_json::{Value, json};

/// The response to one request.
#[derive(Clone, Debug)]
pub struct Behaviour(Value);

/// The position of the `id` in an oversized response.
#[derive(Clone, Copy, Debug)]
pub enum IdPosition {
    /// Before the padding.
    Before,
    /// After the padding.
    After,
    /// No `id`.
    Missing,
}

/// The actions.
impl Behaviour {
    /// Returns this result. A JSON string is the verbatim text of the result.
    pub fn result(result: impl Into<Value>) -> Behaviour {
        Behaviour(json!({"do": "result", "result": result.into()}))
    }

    /// Returns a result with one text content.
    pub fn text(text: &str) -> Behaviour {
        Behaviour::result(json!({"content": [{"type": "text", "text": text}], "isError": false}))
    }

    /// Returns the arguments unchanged, as text and as `structuredContent`.
    pub fn echo() -> Behaviour {
        Behaviour(json!({"do": "echo"}))
    }

    /// Returns this JSON-RPC error object. A JSON string is its verbatim text.
    pub fn error(error: impl Into<Value>) -> Behaviour {
        Behaviour(json!({"do": "error", "error": error.into()}))
    }

    /// Responds like a well-behaved server.
    pub fn usual() -> Behaviour {
        Behaviour(json!({"do": "usual"}))
    }

    /// Responds with one line of exactly `bytes` bytes.
    pub fn big(bytes: usize, id: IdPosition) -> Behaviour {
        Behaviour(json!({"do": "big", "bytes": bytes, "id": format!("{id:?}")}))
    }

    /// Sends these requests (`method`, `params`) to the client, one after another, and returns the client's whole
    /// responses under `structuredContent.answers`.
    pub fn asking(requests: impl IntoIterator<Item = Value>) -> Behaviour {
        let respond = Behaviour(json!({"do": "respond_with_answers"}));
        requests.into_iter().fold(respond, |behaviour, request| behaviour.first(json!({"request": request})))
    }

    /// Never responds.
    pub fn silence() -> Behaviour {
        Behaviour(json!({"do": "silence"}))
    }

    /// Ends the stream without a response (HTTP only).
    pub fn end() -> Behaviour {
        Behaviour(json!({"do": "end"}))
    }

    /// Exits with this code; over HTTP, closes the connection.
    pub fn exit(code: i32) -> Behaviour {
        Behaviour(json!({"do": "exit", "code": code}))
    }

    /// Ends by SIGABRT; over HTTP, closes the connection.
    pub fn abort() -> Behaviour {
        Behaviour(json!({"do": "abort"}))
    }
}

/// The events before the action.
impl Behaviour {
    /// Waits first. Other requests are served meanwhile.
    pub fn after_delay(self, time: Duration) -> Behaviour {
        self.first(json!({"wait": time.as_millis() as u64}))
    }

    /// Sends this line first: a message of any kind or garbage.
    pub fn after_line(self, line: impl Into<Value>) -> Behaviour {
        self.first(json!({"send": line.into()}))
    }

    /// Reports progress `times` times first, if the request has a progress token.
    pub fn after_progress(self, times: u64) -> Behaviour {
        self.first(json!({"progress": times}))
    }

    /// Sends a log message first.
    pub fn after_log(self, text: &str) -> Behaviour {
        let params = json!({"level": "info", "data": text});
        self.after_line(json!({"jsonrpc": "2.0", "method": "notifications/message", "params": params}))
    }

    /// Sends `notifications/tools/list_changed` first.
    pub fn after_list_changed(self) -> Behaviour {
        self.after_line(json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}))
    }

    /// Sends a response with an unknown id first.
    pub fn after_stray_response(self) -> Behaviour {
        self.after_line(json!({"jsonrpc": "2.0", "id": "nobody-used-this", "result": {}}))
    }

    /// Cuts the stream here. The rest is sent when the client resumes after the last event id (HTTP only).
    pub fn after_cut(self) -> Behaviour {
        self.first(json!({"break": "cut"}))
    }

    /// Ends the stream properly here. The rest is sent when the client resumes the stream (HTTP only).
    pub fn after_end(self) -> Behaviour {
        self.first(json!({"break": "end"}))
    }

    /// Sends the response twice.
    pub fn twice(self) -> Behaviour {
        self.with("twice", true)
    }

    /// Adds these members verbatim to the response, next to its result or error.
    pub fn with_members(self, members: &str) -> Behaviour {
        self.with("members", members)
    }

    /// Responds with an SSE stream, regardless of the script (HTTP only).
    pub fn as_sse(self) -> Behaviour {
        self.with("as", "sse")
    }

    /// Responds with a JSON body, regardless of the script (HTTP only). More than one message still makes a stream.
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
    pub(crate) fn action(&self) -> &str {
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
