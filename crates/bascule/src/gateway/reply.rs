//! Builds the responses to clients.

use bascule_mcp::{Id, ResponseStream, error_response, success_response_from, with_extra_members};
use bascule_model::{BridgeError, ErrorCode};
use serde_json::json;
use serde_json::value::RawValue;

/// The JSON text of a result, or a JSON-RPC error.
pub(super) type Reply = Result<String, ErrorReply>;

/// A JSON-RPC error.
#[derive(Debug)]
pub(super) struct ErrorReply {
    code: i64,
    message: String,
    /// JSON text.
    data: Option<String>,
    /// A server's own error object, as the server sent it.
    raw: Option<String>,
}

impl ErrorReply {
    const METHOD_NOT_FOUND: i64 = -32601;
    const INVALID_PARAMS: i64 = -32602;
    const INTERNAL: i64 = -32603;

    pub(super) fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None, raw: None }
    }

    pub(super) fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(Self::INVALID_PARAMS, message)
    }

    pub(super) fn unknown_method(method: &str) -> Self {
        Self::new(Self::METHOD_NOT_FOUND, format!("unknown method `{method}`"))
    }
}

/// Converts the failure of a request that is no tool call: a server's own error stays as it is.
impl From<Box<BridgeError>> for ErrorReply {
    fn from(error: Box<BridgeError>) -> Self {
        match (error.code, error.provider_error) {
            (ErrorCode::ProviderError, Some(fault)) => Self {
                code: fault.code,
                message: fault.message,
                data: fault.data.map(|data| data.get().to_owned()),
                raw: fault.raw.map(|raw| raw.get().to_owned()),
            },
            (_, provider_error) => {
                let error = BridgeError { provider_error, ..*error };
                let code = match error.code {
                    ErrorCode::ToolNotFound => Self::INVALID_PARAMS,
                    _ => Self::INTERNAL,
                };
                let data = serde_json::to_string(&json!({ "bascule/error": &error })).ok();
                Self { code, message: error.message, data, raw: None }
            }
        }
    }
}

/// Converts the failure of a tool call, in the form that MCP clients expect (BR-05).
pub(super) fn call_failure(error: Box<BridgeError>) -> Reply {
    match error.code {
        // The tool has responded: the client gets the result, and the record tells the operator.
        ErrorCode::InvalidOutput if error.result.is_some() => {
            Ok(error.result.map(into_text).unwrap_or_default())
        }
        ErrorCode::InvalidInput => {
            let content = [json!({ "type": "text", "text": error.message })];
            let structured = json!({ "violations": error.violations });
            Ok(json!({ "content": content, "structuredContent": structured, "isError": true }).to_string())
        }
        ErrorCode::ToolNotFound => Err(ErrorReply::invalid_params(error.message)),
        ErrorCode::ProviderError if error.provider_error.is_some() => Err(error.into()),
        _ => {
            let content = [json!({ "type": "text", "text": error.message })];
            Ok(json!({ "content": content, "isError": true, "_meta": { "bascule/error": error } })
                .to_string())
        }
    }
}

/// Returns the text of a result without copying it.
pub(super) fn into_text(result: Box<RawValue>) -> String {
    Box::<str>::from(result).into_string()
}

/// Builds a whole response.
pub(super) fn frame(id: Id<'_>, reply: Reply) -> Vec<u8> {
    match reply {
        Ok(result) => success_response_from(id, result),
        Err(ErrorReply { raw: Some(error), .. }) => {
            format!(r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#, id.as_json()).into_bytes()
        }
        Err(ErrorReply { code, message, data: None, .. }) => error_response(id, code, &message),
        Err(ErrorReply { code, message, data: Some(data), .. }) => {
            let message = serde_json::Value::from(message);
            let error = format!(r#"{{"code":{code},"message":{message},"data":{data}}}"#);
            format!(r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#, id.as_json()).into_bytes()
        }
    }
}

/// Finishes a request's stream with its response and the response's unknown members.
pub(super) fn finish(stream: &ResponseStream, id: &str, reply: Reply, extra_members: Option<&str>) {
    match Id::from_json(id) {
        Some(id) => stream.finish(with_extra_members(frame(id, reply), extra_members)),
        None => stream.close(),
    }
}
