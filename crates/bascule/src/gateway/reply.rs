//! How answers and errors are spelled on the MCP wire.

use bascule_mcp::ResponseStream;
use bascule_mcp::{Id, error_response, success_response_from, with_extras};
use bascule_model::{BridgeError, ErrorCode};
use serde_json::json;
use serde_json::value::RawValue;

/// The JSON text of a result, or a refusal.
pub(super) type Reply = Result<String, ErrorReply>;

/// A JSON-RPC error.
#[derive(Debug)]
pub(super) struct ErrorReply {
    code: i64,
    message: String,
    /// JSON text.
    data: Option<String>,
    /// A server's own error object, as it was spelled.
    raw: Option<String>,
}

impl ErrorReply {
    pub(super) const METHOD_NOT_FOUND: i64 = -32601;
    pub(super) const INVALID_PARAMS: i64 = -32602;
    const INTERNAL: i64 = -32603;

    pub(super) fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None, raw: None }
    }
}

/// A failure that is no tool's: the server's own error as it was, or ours with all that is known.
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

/// How a failed call looks to a client (the one `match` of this face).
pub(super) fn failed_call(error: Box<BridgeError>) -> Reply {
    match error.code {
        // The tool did answer: the client gets the answer as it came, and the operator the report.
        ErrorCode::InvalidOutput if error.result.is_some() => {
            Ok(error.result.map(text_of).unwrap_or_default())
        }
        ErrorCode::InvalidInput => {
            let content = [json!({ "type": "text", "text": error.message })];
            let structured = json!({ "violations": error.violations });
            Ok(json!({ "content": content, "structuredContent": structured, "isError": true }).to_string())
        }
        ErrorCode::ToolNotFound => Err(ErrorReply::new(ErrorReply::INVALID_PARAMS, error.message)),
        ErrorCode::ProviderError if error.provider_error.is_some() => Err(error.into()),
        _ => {
            let content = [json!({ "type": "text", "text": error.message })];
            Ok(json!({ "content": content, "isError": true, "_meta": { "bascule/error": error } })
                .to_string())
        }
    }
}

/// The text of a result, which may be long: itself, not a copy.
pub(super) fn text_of(result: Box<RawValue>) -> String {
    Box::<str>::from(result).into_string()
}

/// An answer in full.
pub(super) fn spell(id: Id<'_>, outcome: Reply) -> Vec<u8> {
    match outcome {
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

/// Gives the answer to the request of this id, with what stood in it besides.
pub(super) fn finish(stream: &ResponseStream, id: &str, outcome: Reply, more: Option<&str>) {
    match Id::from_json(id) {
        Some(id) => stream.finish(with_extras(spell(id, outcome), more)),
        None => stream.close(),
    }
}

/// How grave a backend of a log is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

impl Level {
    const NAMES: [(&'static str, Level); 8] = [
        ("debug", Level::Debug),
        ("info", Level::Info),
        ("notice", Level::Notice),
        ("warning", Level::Warning),
        ("error", Level::Error),
        ("critical", Level::Critical),
        ("alert", Level::Alert),
        ("emergency", Level::Emergency),
    ];

    pub(super) fn parse(text: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(name, _)| *name == text).map(|(_, level)| *level)
    }

    /// What a server goes back to when nobody wants anything else.
    pub(super) const USUAL: Self = Self::Info;

    /// The parameters of `logging/setLevel`.
    pub(super) fn spelled(self) -> String {
        format!(r#"{{"level":"{}"}}"#, self.name())
    }

    fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, level)| *level == self).map_or("debug", |(name, _)| name)
    }
}
