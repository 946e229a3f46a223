//! Builds the responses to clients.

use bascule_mcp::{Id, ResponseStream, error_response_from, success_response_owned, with_extra_members};
use bascule_model::{BridgeError, CorrelationId, ErrorCode};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::correlation;
use crate::normalise::describe_nearest;

/// The JSON text of a result, or a JSON-RPC error.
pub(crate) type Reply = Result<String, ErrorReply>;

/// A JSON-RPC error.
#[derive(Debug)]
pub(crate) struct ErrorReply {
    code: i64,
    message: String,
    origin: ErrorOrigin,
}

/// The author of an error decides on its `data`.
#[derive(Debug)]
enum ErrorOrigin {
    /// The bridge adds the correlation id and, where there is one, the normalised error.
    Bridge(Box<Value>),
    /// A server's own error stays as it is. `raw` is the whole object as the server sent it, unless it held a secret.
    Server { data: Option<String>, raw: Option<String> },
}

impl ErrorReply {
    const METHOD_NOT_FOUND: i64 = -32601;
    const INVALID_PARAMS: i64 = -32602;
    const INTERNAL: i64 = -32603;

    pub(super) fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), origin: ErrorOrigin::Bridge(Box::new(json!({}))) }
    }

    pub(crate) fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(Self::INVALID_PARAMS, message)
    }

    pub(crate) fn unknown_method(method: &str) -> Self {
        Self::new(Self::METHOD_NOT_FOUND, format!("unknown method `{method}`"))
    }

    /// Makes the error of a tool that does not exist. Clients can only call the names that they see: these are named.
    pub(crate) fn unknown_tool(shown: &str, nearest: &[String], error: Option<Box<BridgeError>>) -> Self {
        let message = format!("there is no tool `{shown}`{}", describe_nearest(nearest));
        let mut data = json!({});
        if let Some(mut error) = error {
            error.message.clone_from(&message);
            error.nearest.clear();
            data["bascule/error"] = json!(error);
            data["bascule/error"]["nearest"] = json!(nearest);
        }
        Self { code: Self::INVALID_PARAMS, message, origin: ErrorOrigin::Bridge(Box::new(data)) }
    }

    pub(super) fn message(&self) -> &str {
        &self.message
    }

    /// Adds the id of the request. A server's own error does not change.
    pub(super) fn with_correlation_id(mut self, id: &CorrelationId) -> Self {
        if let ErrorOrigin::Bridge(data) = &mut self.origin {
            data[correlation::MEMBER] = json!(id);
            if let Some(Value::Object(error)) = data.get_mut("bascule/error") {
                error.entry("correlationId").or_insert_with(|| json!(id));
            }
        }
        self
    }

    /// Returns the JSON text of the error object.
    fn into_json(self) -> String {
        let Self { code, message, origin } = self;
        let (data, message) = match origin {
            ErrorOrigin::Server { raw: Some(raw), .. } => return raw,
            ErrorOrigin::Server { data, .. } => (data, Value::from(message)),
            ErrorOrigin::Bridge(data) => {
                (Some(data.to_string()).filter(|data| data != "{}"), Value::from(message))
            }
        };
        match data {
            Some(data) => format!(r#"{{"code":{code},"message":{message},"data":{data}}}"#),
            None => format!(r#"{{"code":{code},"message":{message}}}"#),
        }
    }
}

/// Converts the failure of a request that is no tool call: a server's own error stays as it is.
impl From<Box<BridgeError>> for ErrorReply {
    fn from(error: Box<BridgeError>) -> Self {
        match (error.code, error.provider_error) {
            (ErrorCode::ProviderError, Some(fault)) => Self {
                code: fault.code,
                message: fault.message,
                origin: ErrorOrigin::Server {
                    data: fault.data.map(|data| data.get().to_owned()),
                    raw: fault.raw.map(|raw| raw.get().to_owned()),
                },
            },
            (_, provider_error) => {
                let error = BridgeError { provider_error, ..*error };
                let code = match error.code {
                    ErrorCode::ToolNotFound => Self::INVALID_PARAMS,
                    _ => Self::INTERNAL,
                };
                let data = json!({ "bascule/error": &error });
                Self { code, message: error.message, origin: ErrorOrigin::Bridge(Box::new(data)) }
            }
        }
    }
}

/// Converts the failure of a tool call, in the form that MCP clients expect.
pub(crate) fn call_failure(error: Box<BridgeError>) -> Reply {
    match error.code {
        // The tool has responded: the client gets the result, and the record tells the operator.
        ErrorCode::InvalidOutput if error.result.is_some() => {
            Ok(error.result.map(into_text).unwrap_or_default())
        }
        ErrorCode::InvalidInput => {
            let mut result = failed_call(&error);
            if let Some(signature) = &error.signature {
                result["content"][0]["text"] = json!(format!("{}\n{signature}", error.message));
            }
            result["structuredContent"] = json!({ "violations": error.violations });
            Ok(result.to_string())
        }
        ErrorCode::ToolNotFound => Err(error.into()),
        ErrorCode::ProviderError if error.provider_error.is_some() => Err(error.into()),
        _ => Ok(failed_call(&error).to_string()),
    }
}

fn failed_call(error: &BridgeError) -> Value {
    failed_result(&error.message, json!({ "bascule/error": error }))
}

/// Builds the result of a tool that failed.
pub(super) fn failed_result(message: &str, meta: Value) -> Value {
    let content = [json!({ "type": "text", "text": message })];
    json!({ "content": content, "isError": true, "_meta": meta })
}

/// Returns the text of a result without copying it.
pub(crate) fn into_text(result: Box<RawValue>) -> String {
    Box::<str>::from(result).into_string()
}

/// Builds a whole response.
pub(crate) fn frame(id: Id<'_>, reply: Reply) -> Vec<u8> {
    match reply {
        Ok(result) => success_response_owned(id, result),
        Err(error) => error_response_from(id, &error.into_json()),
    }
}

/// Finishes a request's stream with its response and the response's unknown members.
pub(crate) fn finish(stream: &ResponseStream, id: &str, reply: Reply, extra_members: Option<&str>) {
    match Id::from_json(id) {
        Some(id) => stream.finish(with_extra_members(frame(id, reply), extra_members)),
        None => stream.close(),
    }
}
