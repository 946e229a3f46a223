//! Parses one line as a JSON-RPC message.
//!
//! The envelope is parsed before the parameters: if the parameters are nested too deeply, the error response still
//! carries the request's id.

use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

pub(crate) enum IncomingMessage<'a> {
    Request {
        id: &'a str,
        method: String,
        params: Value,
    },
    Notification {
        method: String,
        params: Value,
    },
    /// Ignored: a demo server sends no requests.
    Response,
}

/// The JSON-RPC error for a line that is not a valid message.
pub(crate) struct InvalidMessage<'a> {
    /// The id as JSON text; `null` if unknown.
    pub(crate) id: &'a str,
    pub(crate) code: i32,
    pub(crate) message: &'static str,
}

#[derive(Deserialize)]
struct RawMessage<'a> {
    #[serde(default)]
    jsonrpc: String,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    method: Option<String>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

impl<'a> IncomingMessage<'a> {
    pub(crate) fn parse(line: &'a str) -> Result<IncomingMessage<'a>, InvalidMessage<'a>> {
        let envelope = RawMessage::parse(line)?;
        let id = envelope.id()?;
        let id_or_null = id.unwrap_or("null");
        if envelope.jsonrpc != "2.0" {
            return Err(invalid(id_or_null, -32600, "not a JSON-RPC 2.0 message"));
        }
        let bad_params = "`params` is nested too deeply or holds a number out of range";
        let params = envelope.params().ok_or(invalid(id_or_null, -32602, bad_params))?;
        match (envelope.method, id) {
            (Some(method), Some(id)) => Ok(IncomingMessage::Request { id, method, params }),
            (Some(method), None) => Ok(IncomingMessage::Notification { method, params }),
            (None, Some(_)) if envelope.result.or(envelope.error).is_some() => Ok(IncomingMessage::Response),
            (None, _) => Err(invalid(id_or_null, -32600, "`method` is missing")),
        }
    }
}

impl<'a> RawMessage<'a> {
    fn parse(line: &'a str) -> Result<RawMessage<'a>, InvalidMessage<'a>> {
        match serde_json::from_str(line) {
            // Serde also deserialises a struct from an array.
            Ok(envelope) if line.trim_start().starts_with('{') => Ok(envelope),
            Err(error) if !error.is_data() => Err(invalid("null", -32700, "not valid JSON")),
            Ok(_) | Err(_) => Err(invalid("null", -32600, "not a JSON-RPC message")),
        }
    }

    /// Returns the id as JSON text; it must be a string or a number.
    fn id(&self) -> Result<Option<&'a str>, InvalidMessage<'a>> {
        let is_valid = |id: &str| id.starts_with(|c: char| c == '"' || c == '-' || c.is_ascii_digit());
        match self.id.map(RawValue::get) {
            Some(id) if !is_valid(id) => Err(invalid("null", -32600, "`id` must be a string or a number")),
            id => Ok(id),
        }
    }

    fn params(&self) -> Option<Value> {
        serde_json::from_str(self.params.map_or("null", RawValue::get)).ok()
    }
}

fn invalid<'a>(id: &'a str, code: i32, message: &'static str) -> InvalidMessage<'a> {
    InvalidMessage { id, code, message }
}

/// Distinguishes `null` from a missing member.
fn present<'de, D: Deserializer<'de>>(value: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(value).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: &str) {
        let parsed = match IncomingMessage::parse(line) {
            Ok(IncomingMessage::Request { id, method, params }) => format!("request {id} {method} {params}"),
            Ok(IncomingMessage::Notification { method, params }) => format!("notification {method} {params}"),
            Ok(IncomingMessage::Response) => "response".to_owned(),
            Err(invalid) => format!("{} {} {}", invalid.code, invalid.id, invalid.message),
        };
        assert_eq!(parsed, expected);
    }

    #[test]
    fn distinguishes_requests_notifications_and_responses() {
        check(r#"{"jsonrpc":"2.0","id":"é","method":"ping"}"#, r#"request "é" ping null"#);
        check(r#"{"jsonrpc":"2.0","id":-1.50,"method":"x","params":{"a":1}}"#, r#"request -1.50 x {"a":1}"#);
        check(r#"{"jsonrpc":"2.0","method":"x"}"#, "notification x null");
        check(r#"{"jsonrpc":"2.0","id":1,"result":null}"#, "response");
    }

    #[test]
    fn invalid_json_is_a_parse_error() {
        check("hello", "-32700 null not valid JSON");
        check(r#"{"jsonrpc":"2.0","id":1"#, "-32700 null not valid JSON");
    }

    #[test]
    fn invalid_message_is_an_invalid_request() {
        check("7", "-32600 null not a JSON-RPC message");
        check(r#"["2.0",1,"ping",null,null,null]"#, "-32600 null not a JSON-RPC message");
        check(r#"{"id":1,"method":"ping"}"#, "-32600 1 not a JSON-RPC 2.0 message");
        check(
            r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
            "-32600 null `id` must be a string or a number",
        );
        check(r#"{"jsonrpc":"2.0","id":1}"#, "-32600 1 `method` is missing");
    }

    #[test]
    fn error_for_deep_parameters_carries_the_id() {
        let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        let line =
            format!(r#"{{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{{"arguments":{deep}}}}}"#);
        check(&line, "-32602 5 `params` is nested too deeply or holds a number out of range");
    }
}
