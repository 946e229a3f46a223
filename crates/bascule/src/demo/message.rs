//! Reads one line as a JSON-RPC message, or says what is wrong with it.
//!
//! The parameters stay raw at first: they may be nested too deep to be read, and even then the refusal must
//! carry the request's id.

use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// A message to a server.
pub(super) enum Message<'a> {
    Request {
        id: &'a str,
        method: String,
        params: Value,
    },
    Notification {
        method: String,
        params: Value,
    },
    /// To something that was asked: a demo asks nothing.
    Answer,
}

/// Why a line is no message.
pub(super) struct Refusal<'a> {
    /// The id's JSON text, as far as it is known.
    pub(super) id: &'a str,
    pub(super) code: i32,
    pub(super) message: &'static str,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(default)]
    jsonrpc: String,
    #[serde(borrow, default, deserialize_with = "even_null")]
    id: Option<&'a RawValue>,
    method: Option<String>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "even_null")]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

impl<'a> Message<'a> {
    pub(super) fn parse(line: &'a str) -> Result<Message<'a>, Refusal<'a>> {
        let envelope = Envelope::parse(line)?;
        let id = envelope.id()?;
        let known = id.unwrap_or("null");
        if envelope.jsonrpc != "2.0" {
            return Err(Refusal { id: known, code: -32600, message: "this is no JSON-RPC 2.0 message" });
        }
        let params = envelope.params().ok_or(Refusal {
            id: known,
            code: -32602,
            message: "the parameters are nested too deep, or hold a number out of range",
        })?;
        match (envelope.method, id) {
            (Some(method), Some(id)) => Ok(Message::Request { id, method, params }),
            (Some(method), None) => Ok(Message::Notification { method, params }),
            (None, Some(_)) if envelope.result.or(envelope.error).is_some() => Ok(Message::Answer),
            (None, _) => Err(Refusal { id: known, code: -32600, message: "this message has no method" }),
        }
    }
}

impl<'a> Envelope<'a> {
    fn parse(line: &'a str) -> Result<Envelope<'a>, Refusal<'a>> {
        match serde_json::from_str(line) {
            // Serde would take an array for an envelope too, field by field.
            Ok(envelope) if line.trim_start().starts_with('{') => Ok(envelope),
            Err(error) if !error.is_data() => {
                Err(Refusal { id: "null", code: -32700, message: "this is no JSON" })
            }
            Ok(_) | Err(_) => {
                Err(Refusal { id: "null", code: -32600, message: "this is no JSON-RPC message" })
            }
        }
    }

    /// The id's JSON text, which must be a string's or a number's.
    fn id(&self) -> Result<Option<&'a str>, Refusal<'a>> {
        let is_good = |id: &str| id.starts_with(|c: char| c == '"' || c == '-' || c.is_ascii_digit());
        match self.id.map(RawValue::get) {
            Some(id) if !is_good(id) => {
                Err(Refusal { id: "null", code: -32600, message: "an id is a string or a number" })
            }
            id => Ok(id),
        }
    }

    fn params(&self) -> Option<Value> {
        serde_json::from_str(self.params.map_or("null", RawValue::get)).ok()
    }
}

/// Tells what is `null` from what is not there.
fn even_null<'de, D: Deserializer<'de>>(value: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(value).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: &str) {
        let read = match Message::parse(line) {
            Ok(Message::Request { id, method, params }) => format!("request {id} {method} {params}"),
            Ok(Message::Notification { method, params }) => format!("notification {method} {params}"),
            Ok(Message::Answer) => "answer".to_owned(),
            Err(refusal) => format!("{} {} {}", refusal.code, refusal.id, refusal.message),
        };
        assert_eq!(read, expected);
    }

    #[test]
    fn the_three_kinds_are_told_apart() {
        check(r#"{"jsonrpc":"2.0","id":"é","method":"ping"}"#, r#"request "é" ping null"#);
        check(r#"{"jsonrpc":"2.0","id":-1.50,"method":"x","params":{"a":1}}"#, r#"request -1.50 x {"a":1}"#);
        check(r#"{"jsonrpc":"2.0","method":"x"}"#, "notification x null");
        check(r#"{"jsonrpc":"2.0","id":1,"result":null}"#, "answer");
    }

    #[test]
    fn what_is_no_json_is_a_parse_error() {
        check("hello", "-32700 null this is no JSON");
        check(r#"{"jsonrpc":"2.0","id":1"#, "-32700 null this is no JSON");
    }

    #[test]
    fn what_is_no_message_is_an_invalid_request() {
        check("7", "-32600 null this is no JSON-RPC message");
        check(r#"["2.0",1,"ping",null,null,null]"#, "-32600 null this is no JSON-RPC message");
        check(r#"{"id":1,"method":"ping"}"#, "-32600 1 this is no JSON-RPC 2.0 message");
        check(r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, "-32600 null an id is a string or a number");
        check(r#"{"jsonrpc":"2.0","id":1}"#, "-32600 1 this message has no method");
    }

    #[test]
    fn parameters_nested_too_deep_are_refused_under_their_id() {
        let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        let line =
            format!(r#"{{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{{"arguments":{deep}}}}}"#);
        check(&line, "-32602 5 the parameters are nested too deep, or hold a number out of range");
    }
}
