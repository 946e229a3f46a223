//! What a demo's tool makes of a call, and how that looks as a `CallToolResult`.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// What a tool makes of a call.
#[derive(Debug, PartialEq)]
pub(super) enum Reply {
    /// A `CallToolResult`.
    Result(Value),
    /// A JSON-RPC error.
    Error(i32, String),
    /// No answer.
    Silence,
    /// The end of the process, with this code.
    Exit(u8),
    /// The end of the process, by SIGABRT.
    Abort,
}

/// Lets a tool return early with `?`, its failure as a [`Reply`].
pub(super) type Attempt = Result<Reply, Reply>;

impl Reply {
    /// A structured result, and the same as text for clients that know no structure.
    pub(super) fn structured(content: Value) -> Reply {
        let text = json!([{"type": "text", "text": content.to_string()}]);
        Reply::Result(json!({"content": text, "structuredContent": content, "isError": false}))
    }

    pub(super) fn text(text: impl Into<String>) -> Reply {
        Reply::Result(json!({"content": [{"type": "text", "text": text.into()}], "isError": false}))
    }

    /// The tool has worked, and reports failure.
    pub(super) fn failure(text: impl Into<String>) -> Reply {
        Reply::Result(json!({"content": [{"type": "text", "text": text.into()}], "isError": true}))
    }

    pub(super) fn unknown_tool(tool: &str) -> Reply {
        Reply::Error(-32602, format!("there is no tool `{tool}`"))
    }
}

/// Reads a call's arguments into a type of the tool's own. A call without arguments is a call with none.
pub(super) fn arguments<T: DeserializeOwned>(given: &Value) -> Result<T, Reply> {
    let none = json!({});
    let given = if given.is_null() { &none } else { given };
    T::deserialize(given).map_err(|error| Reply::failure(format!("bad arguments: {error}")))
}
