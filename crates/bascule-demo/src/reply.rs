//! The outcome of a tool call, and its form as a `CallToolResult`.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

#[derive(Debug, PartialEq)]
pub(crate) enum Reply {
    /// Responds with a `CallToolResult`.
    Result(Value),
    /// Responds with a JSON-RPC error.
    Error(i32, String),
    /// Sends no response.
    Silence,
    /// Exits the process with this code.
    Exit(u8),
    /// Ends the process by SIGABRT.
    Abort,
}

/// Lets a tool return a failure early with `?`.
pub(crate) type ReplyResult = Result<Reply, Reply>;

impl Reply {
    /// Returns a structured result with its JSON as text, for clients that read only text.
    pub(crate) fn structured(content: Value) -> Reply {
        let text = json!([{"type": "text", "text": content.to_string()}]);
        Reply::Result(json!({"content": text, "structuredContent": content, "isError": false}))
    }

    pub(crate) fn text(text: impl Into<String>) -> Reply {
        Reply::Result(json!({"content": [{"type": "text", "text": text.into()}], "isError": false}))
    }

    /// Returns a result with `isError: true`.
    pub(crate) fn failure(text: impl Into<String>) -> Reply {
        Reply::Result(json!({"content": [{"type": "text", "text": text.into()}], "isError": true}))
    }

    pub(crate) fn unknown_tool(tool: &str) -> Reply {
        Reply::Error(-32602, format!("unknown tool `{tool}`"))
    }
}

/// Deserialises the arguments of a call. Missing arguments are an empty object.
pub(crate) fn parse_arguments<T: DeserializeOwned>(arguments: &Value) -> Result<T, Reply> {
    let none = json!({});
    let arguments = if arguments.is_null() { &none } else { arguments };
    T::deserialize(arguments).map_err(|error| Reply::failure(format!("invalid arguments: {error}")))
}
