//! Parses and writes JSON-RPC messages over raw JSON.
//!
//! A parsed message borrows from the bytes. The contents of `params`, `result` and `error` are validated as JSON and
//! otherwise left alone.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::json_check::{checked_raw_value, plain_string, read_object};
use crate::patch;

/// A message, borrowed from the bytes it was parsed from.
#[derive(Debug, Clone)]
pub enum Message<'a> {
    /// Expects a response with its id.
    Request { id: Id<'a>, method: Cow<'a, str>, params: Option<&'a RawValue> },
    /// Expects no response.
    Notification { method: Cow<'a, str>, params: Option<&'a RawValue> },
    /// Holds a result or an error object (see [`RpcError::parse`]).
    Response { id: Id<'a>, outcome: Result<&'a RawValue, &'a RawValue> },
}

/// The reason why bytes are not a message.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// Not JSON at all, or not UTF-8.
    #[error("not JSON: {0}")]
    NotJson(String),
    /// MCP removed JSON-RPC batches, and no known peer sends them.
    #[error("batches are not supported")]
    Batch,
    /// JSON, but not a JSON-RPC message.
    #[error("not a JSON-RPC message: {0}")]
    Invalid(&'static str),
    /// Another decoder could read it as another message: one that ignores case takes `"Method"` for the method, for
    /// example.
    #[error("ambiguous message: {0}")]
    Ambiguous(String),
}

/// The JSON text of a request's id as its sender wrote it: a string, any number, or (in responses) `null`.
///
/// Ids are equal if their texts are: `1` and `1.0` differ, and so do `"a"` and `"\u0061"`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Id<'a>(&'a str);

impl<'a> Id<'a> {
    /// The id of responses to requests that could not be parsed.
    pub const NULL: Id<'static> = Id("null");

    /// Takes the text of a JSON value, which must be valid. Returns `None` for booleans, arrays and objects.
    pub fn from_json(text: &'a str) -> Option<Self> {
        matches!(text.as_bytes().first()?, b'"' | b'-' | b'0'..=b'9' | b'n').then_some(Self(text))
    }

    pub fn as_json(self) -> &'a str {
        self.0
    }

    /// Returns the id as a number, if it may be one of ours: this side sends only whole numbers.
    pub fn as_number(self) -> Option<u64> {
        self.0.parse().ok()
    }
}

impl fmt::Debug for Id<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl fmt::Display for Id<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl<'a> Message<'a> {
    /// Parses a message and ignores members that JSON-RPC does not define.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, MessageError> {
        Envelope::parse(bytes)?.into_message()
    }

    /// Parses a message and returns the members that JSON-RPC does not define as raw text, without braces.
    /// Most messages have none.
    pub fn parse_with_extra_members(bytes: &'a [u8]) -> Result<(Self, Option<String>), MessageError> {
        let envelope = Envelope::parse(bytes)?;
        let extra_members = if envelope.has_extra_members { find_extra_members(bytes) } else { None };
        Ok((envelope.into_message()?, extra_members))
    }
}

/// Returns the members of an object that JSON-RPC does not define, without braces.
fn find_extra_members(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?.trim();
    let rest = JSONRPC_MEMBERS.iter().fold(text.to_owned(), |rest, name| patch::remove(&rest, &[name]));
    let rest = rest.strip_prefix('{')?.strip_suffix('}')?.trim();
    (!rest.is_empty()).then(|| rest.to_owned())
}

/// The members that JSON-RPC defines.
pub(crate) const JSONRPC_MEMBERS: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];

/// Adds members, given as raw text without braces, to a message.
pub fn with_extra_members(mut frame: Vec<u8>, extra_members: Option<&str>) -> Vec<u8> {
    if let (Some(extra_members), Some(b'}')) = (extra_members, frame.last()) {
        frame.pop();
        frame.push(b',');
        frame.extend_from_slice(extra_members.as_bytes());
        frame.push(b'}');
        replace_line_breaks(&mut frame);
    }
    frame
}

#[derive(Default)]
#[cfg_attr(test, derive(Debug))]
struct Envelope<'a> {
    jsonrpc: Option<Cow<'a, str>>,
    id: Option<&'a RawValue>,
    method: Option<Cow<'a, str>>,
    params: Option<&'a RawValue>,
    result: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
    has_extra_members: bool,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "lowercase")]
enum EnvelopeKey {
    Jsonrpc,
    Id,
    Method,
    Params,
    Result,
    Error,
    #[serde(other)]
    Other,
}

/// A string that is borrowed unless it holds escapes.
#[derive(Deserialize)]
pub(crate) struct BorrowedText<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Envelope<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EnvelopeVisitor)
    }
}

/// Written by hand because it notes unknown members.
struct EnvelopeVisitor;

impl<'de> Visitor<'de> for EnvelopeVisitor {
    type Value = Envelope<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Envelope<'de>, A::Error> {
        let mut envelope = Envelope::default();
        while let Some(key) = map.next_key()? {
            let is_duplicate = match key {
                EnvelopeKey::Jsonrpc => {
                    envelope.jsonrpc.replace(map.next_value::<BorrowedText<'de>>()?.0).is_some()
                }
                // `"method":null` and `"error":null` count as absent. `null` is a value of the others: `"result":null` is a
                // response.
                EnvelopeKey::Method => match map.next_value::<Option<BorrowedText<'de>>>()? {
                    Some(method) => envelope.method.replace(method.0).is_some(),
                    None => false,
                },
                EnvelopeKey::Id => envelope.id.replace(map.next_value()?).is_some(),
                EnvelopeKey::Params => envelope.params.replace(map.next_value()?).is_some(),
                EnvelopeKey::Result => envelope.result.replace(map.next_value()?).is_some(),
                EnvelopeKey::Error => match map.next_value::<&'de RawValue>()? {
                    null if null.get() == "null" => false,
                    error => envelope.error.replace(error).is_some(),
                },
                EnvelopeKey::Other => {
                    map.next_value::<IgnoredAny>()?;
                    envelope.has_extra_members = true;
                    false
                }
            };
            if is_duplicate {
                return Err(A::Error::custom("a duplicate field"));
            }
        }
        Ok(envelope)
    }
}

impl<'a> Envelope<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Self, MessageError> {
        // One check of the whole text is cheaper than one for each string in it.
        let text = std::str::from_utf8(bytes).map_err(|error| MessageError::NotJson(error.to_string()))?;
        if let Some(envelope) = Self::parse_ordinary(text) {
            return Ok(envelope);
        }
        if text.trim_ascii_start().starts_with('[') {
            return match serde_json::from_str::<&RawValue>(text) {
                Ok(_) => Err(MessageError::Batch),
                Err(error) => Err(MessageError::NotJson(error.to_string())),
            };
        }
        serde_json::from_str(text).map_err(|error| match error.classify() {
            serde_json::error::Category::Data if !text.trim_ascii_start().starts_with('{') => {
                MessageError::Invalid("not an object")
            }
            serde_json::error::Category::Data => MessageError::Invalid("wrong or duplicate fields"),
            _ => MessageError::NotJson(error.to_string()),
        })
    }

    /// Parses a message that holds only members of JSON-RPC, each of them once and spelled without escapes. This takes a third of the
    /// time of the complete parser, which decides on every other message.
    fn parse_ordinary(text: &'a str) -> Option<Self> {
        let mut envelope = Envelope::default();
        read_object(text, |key, value| {
            let is_duplicate = match key {
                "jsonrpc" => envelope.jsonrpc.replace(plain_string(value)?.into()).is_some(),
                "method" => envelope.method.replace(plain_string(value)?.into()).is_some(),
                "id" => envelope.id.replace(checked_raw_value(value)?).is_some(),
                "params" => envelope.params.replace(checked_raw_value(value)?).is_some(),
                "result" => envelope.result.replace(checked_raw_value(value)?).is_some(),
                "error" if value != "null" => envelope.error.replace(checked_raw_value(value)?).is_some(),
                _ => return None,
            };
            (!is_duplicate).then_some(())
        })?;
        Some(envelope)
    }

    fn into_message(self) -> Result<Message<'a>, MessageError> {
        if self.jsonrpc.as_deref() != Some("2.0") {
            return Err(MessageError::Invalid("`jsonrpc` is not \"2.0\""));
        }
        let id = match self.id {
            None => None,
            Some(raw) => Some(
                Id::from_json(raw.get()).ok_or(MessageError::Invalid("`id` is not a string or number"))?,
            ),
        };
        // Some servers send both fields; the one that is not null counts.
        let result = self.result.filter(|result| self.error.is_none() || result.get() != "null");
        match (self.method, id, result, self.error) {
            (Some(_), Some(Id::NULL), ..) => Err(MessageError::Invalid("the `id` of a request is null")),
            (Some(method), Some(id), None, None) => Ok(Message::Request { id, method, params: self.params }),
            (Some(method), None, None, None) => Ok(Message::Notification { method, params: self.params }),
            (None, Some(id), Some(result), None) => Ok(Message::Response { id, outcome: Ok(result) }),
            (None, Some(id), None, Some(error)) => Ok(Message::Response { id, outcome: Err(error) }),
            (None, None, None, Some(error)) => Ok(Message::Response { id: Id::NULL, outcome: Err(error) }),
            _ => Err(MessageError::Invalid("neither request, notification nor response")),
        }
    }
}

/// A JSON-RPC error object.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message} (JSON-RPC error {code})")]
pub struct RpcError {
    pub code: i64,
    pub message: String,
    pub data: Option<Box<RawValue>>,
    /// The object as it was received. `None` if this side created the error, or received no object.
    pub raw: Option<Box<RawValue>>,
}

impl RpcError {
    /// The message is not JSON.
    pub const PARSE_ERROR: i64 = -32700;
    /// The message is not a valid request.
    pub const INVALID_REQUEST: i64 = -32600;
    /// The method does not exist.
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// The parameters do not fit the method.
    pub const INVALID_PARAMS: i64 = -32602;
    /// The receiver of the request failed to handle it.
    pub const INTERNAL_ERROR: i64 = -32603;
    /// The official MCP SDKs' code for a closed connection.
    pub const CONNECTION_CLOSED: i64 = -32000;
    /// The official MCP SDKs' code for a request that timed out.
    pub const REQUEST_TIMEOUT: i64 = -32001;

    /// Parses an error object. One that is malformed still becomes an error.
    pub fn parse(raw: &RawValue) -> Self {
        #[derive(Deserialize)]
        struct ErrorObject<'a> {
            #[serde(borrow)]
            code: Option<&'a RawValue>,
            #[serde(borrow)]
            message: Option<&'a RawValue>,
            data: Option<Box<RawValue>>,
        }
        let Ok(object) = serde_json::from_str::<ErrorObject<'_>>(raw.get()) else {
            return Self {
                code: Self::INTERNAL_ERROR,
                message: raw.get().chars().take(200).collect(),
                data: None,
                raw: None,
            };
        };
        // Encoders without integers write `-32601.0` or `-3.2601e4`.
        let code =
            object.code.and_then(|c| c.get().parse::<f64>().ok()).map_or(Self::INTERNAL_ERROR, |c| c as i64);
        let text = |m: &RawValue| serde_json::from_str(m.get()).unwrap_or_else(|_| m.get().to_owned());
        let message = object.message.map(text).unwrap_or_default();
        Self { code, message, data: object.data, raw: Some(raw.to_owned()) }
    }
}

/// Writes a request. `params` are copied as they are, except for line breaks (see `replace_line_breaks`).
pub fn request(id: u64, method: &str, params: Option<&str>) -> Vec<u8> {
    request_with_id(decimal(id, &mut [0; 20]), method, params)
}

/// Writes a number into a buffer: every request has an id, which needs no text of its own.
fn decimal(mut number: u64, buffer: &mut [u8; 20]) -> &str {
    let mut at = buffer.len();
    loop {
        at -= 1;
        buffer[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return std::str::from_utf8(&buffer[at..]).expect("digits are ASCII");
        }
    }
}

/// Writes a request with an id of any kind, given as JSON.
pub fn request_with_id(id: &str, method: &str, params: Option<&str>) -> Vec<u8> {
    write_message(Some(id), Some(method), params.map(|params| ("params", params)))
}

pub fn notification(method: &str, params: Option<&str>) -> Vec<u8> {
    write_message(None, Some(method), params.map(|params| ("params", params)))
}

pub fn success_response(id: Id<'_>, result: &str) -> Vec<u8> {
    write_message(Some(id.0), None, Some(("result", result)))
}

/// Writes a response like [`success_response`], but into the memory of its result if that is long.
pub fn success_response_owned(id: Id<'_>, result: String) -> Vec<u8> {
    if result.len() < LONG_RESULT {
        return success_response(id, &result);
    }
    let head = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"#);
    let mut out = result.into_bytes();
    let length = out.len();
    out.reserve_exact(head.len() + 1);
    out.resize(length + head.len(), b' ');
    out.copy_within(..length, head.len());
    out[..head.len()].copy_from_slice(head.as_bytes());
    out.push(b'}');
    replace_line_breaks(&mut out);
    out
}

/// A shorter result is copied.
const LONG_RESULT: usize = 64 << 10;

pub fn error_response(id: Id<'_>, code: i64, message: &str) -> Vec<u8> {
    let mut error = format!(r#"{{"code":{code},"message":"#);
    push_quoted(&mut error, message);
    error.push('}');
    error_response_from(id, &error)
}

/// Writes a response with an error object, given as JSON.
pub fn error_response_from(id: Id<'_>, error: &str) -> Vec<u8> {
    write_message(Some(id.0), None, Some(("error", error)))
}

fn write_message(id: Option<&str>, method: Option<&str>, field: Option<(&str, &str)>) -> Vec<u8> {
    const PUNCTUATION: usize = r#"{"jsonrpc":"2.0","id":,"method":"","":}"#.len();
    let (name, value) = field.unwrap_or_default();
    let lengths = [id.unwrap_or_default(), method.unwrap_or_default(), name, value].map(str::len);
    let mut out = String::with_capacity(PUNCTUATION + lengths.iter().sum::<usize>());
    out.push_str(r#"{"jsonrpc":"2.0""#);
    if let Some(id) = id {
        out.extend([r#","id":"#, id]);
    }
    if let Some(method) = method {
        out.push_str(r#","method":"#);
        push_quoted(&mut out, method);
    }
    if let Some((name, value)) = field {
        out.extend([",\"", name, "\":", value]);
    }
    out.push('}');
    let mut out = out.into_bytes();
    replace_line_breaks(&mut out);
    out
}

/// Replaces line breaks by blanks: a message is one line on stdio. JSON strings hold no raw line break, so in valid JSON
/// each one is white space.
pub(crate) fn replace_line_breaks(message: &mut [u8]) {
    let mut from = 0;
    while let Some(at) = memchr::memchr2(b'\n', b'\r', &message[from..]) {
        message[from + at] = b' ';
        from += at + 1;
    }
}

/// Appends text as a JSON string.
pub(crate) fn push_quoted(out: &mut String, text: &str) {
    if text.bytes().any(|byte| byte < b' ' || byte == b'"' || byte == b'\\') {
        return out.push_str(&serde_json::to_string(text).expect("a string always serializes"));
    }
    out.push('"');
    out.push_str(text);
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(line: &str, expected: &str) {
        let parsed = match Message::parse(line.as_bytes()) {
            Ok(Message::Request { id, method, params }) => {
                format!("request {id} {method} {}", params.map_or("-", RawValue::get))
            }
            Ok(Message::Notification { method, params }) => {
                format!("notification {method} {}", params.map_or("-", RawValue::get))
            }
            Ok(Message::Response { id, outcome: Ok(result) }) => format!("response {id} {}", result.get()),
            Ok(Message::Response { id, outcome: Err(error) }) => format!("error {id} {}", error.get()),
            Err(error) => format!("{error}"),
        };
        assert!(parsed.starts_with(expected), "{line}\n  gave {parsed}\n  want {expected}");
    }

    #[test]
    fn keeps_the_text_of_every_kind_of_id() {
        for id in ["7", "-1", "1.0", "1e3", r#""a""#, r#""\u0061""#, "184467440737095516160"] {
            check(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#), &format!("response {id} {{}}"));
        }
        check(r#"{"jsonrpc":"2.0","id":null,"error":{"code":1}}"#, r#"error null {"code":1}"#);
        check(r#"{"jsonrpc":"2.0","error":{"code":1}}"#, r#"error null {"code":1}"#);
    }

    #[test]
    fn rejects_invalid_ids() {
        for id in ["true", "[1]", "{}"] {
            check(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#), "not a JSON-RPC message: `id`");
        }
    }

    #[test]
    fn keeps_params_and_results_raw() {
        check(
            r#"{"id":1,"result":{"n":1.0,"n":1e400,"s":"\ud800"},"jsonrpc":"2.0","x-more":true}"#,
            r#"response 1 {"n":1.0,"n":1e400,"s":"\ud800"}"#,
        );
        check(r#"{"jsonrpc":"2.0","id":1,"result":null}"#, "response 1 null");
        check(r#"{"jsonrpc":"2.0","id":1,"result":null,"error":{"code":1}}"#, r#"error 1 {"code":1}"#);
        check(r#"{"jsonrpc":"2.0","id":1,"result":2,"error":null}"#, "response 1 2");
        check(r#"{"jsonrpc":"2.0","method":"m\u0061","params":[1]}"#, "notification ma [1]");
    }

    // req: GW-03
    #[test]
    fn returns_extra_members() {
        let extra_members = |line: &str| Message::parse_with_extra_members(line.as_bytes()).unwrap().1;
        assert_eq!(extra_members(r#"{"jsonrpc":"2.0","id":1,"result":{"x":1}}"#), None);
        let line = r#"{ "x" :1.0,"jsonrpc":"2.0","y":{"id":1}, "id":1,"result":{},"x":2 }"#;
        assert_eq!(extra_members(line).as_deref(), Some(r#""x" :1.0,"y":{"id":1},"x":2"#));
        let spelled = with_extra_members(b"{\"a\":1}".to_vec(), Some("\"b\":\n2"));
        assert_eq!(spelled, b"{\"a\":1,\"b\": 2}");
    }

    // req: GW-03
    #[test]
    fn rejects_invalid_utf8_in_every_member() {
        for name in ["id", "method", "params", "result", "x"] {
            let mut line = format!(r#"{{"jsonrpc":"2.0","{name}":"?"}}"#).into_bytes();
            let at = line.iter().position(|byte| *byte == b'?').unwrap();
            line[at] = 0xff;
            let parsed = Message::parse_with_extra_members(&line);
            assert!(matches!(parsed, Err(MessageError::NotJson(_))), "{name}: {parsed:?}");
        }
    }

    #[test]
    fn rejects_batches() {
        check(r#" [{"jsonrpc":"2.0","method":"x"}]"#, "batches are not supported");
        check("[info] starting", "not JSON");
    }

    #[test]
    fn names_the_fault_of_invalid_messages() {
        check("hello", "not JSON");
        check("", "not JSON");
        check("17", "not a JSON-RPC message: not an object");
        check(r#"{"jsonrpc":"2.0","id":1}"#, "not a JSON-RPC message: neither");
        check(r#"{"id":1,"result":{}}"#, "not a JSON-RPC message: `jsonrpc`");
        check(r#"{"jsonrpc":"2.0","id":1,"id":2,"result":{}}"#, "not a JSON-RPC message: wrong or duplicate");
        check(r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#, "not a JSON-RPC message: neither");
    }

    #[test]
    fn parses_ten_thousand_levels() {
        let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        check(&format!(r#"{{"jsonrpc":"2.0","id":1,"result":{deep}}}"#), "response 1 [[[");
    }

    #[test]
    fn parses_malformed_error_objects() {
        let read = |text: &str| {
            let error = RpcError::parse(&RawValue::from_string(text.into()).unwrap());
            (error.code, error.message, error.data.map(|d| d.get().to_owned()))
        };
        assert_eq!(
            read(r#"{"code":-31999,"message":"no","data":{"a":[1]}}"#),
            (-31999, "no".into(), Some(r#"{"a":[1]}"#.into()))
        );
        assert_eq!(read(r#"{"code":"E1","message":5}"#), (-32603, "5".into(), None));
        assert_eq!(read(r#"{"code":-3.2601e4,"message":"no"}"#), (-32601, "no".into(), None));
        assert_eq!(read(r#""boom""#), (-32603, "\"boom\"".into(), None));
    }

    #[test]
    fn writes_every_id() {
        for id in [0, 9, 10, 1_234_567_890, u64::MAX] {
            let line = request(id, "x", None);
            check(std::str::from_utf8(&line).unwrap(), &format!("request {id} x -"));
        }
    }

    #[test]
    fn writes_params_with_line_breaks_on_one_line() {
        let line = request(1, "tools/call", Some("{\n  \"a\": \"x\\ny\"\r\n}"));
        assert!(!line.contains(&b'\n') && !line.contains(&b'\r'));
        check(std::str::from_utf8(&line).unwrap(), "request 1 tools/call {   \"a\": \"x\\ny\"  }");
        let line = error_response_from(Id("1"), "{\n\"code\":\r\n1}");
        check(std::str::from_utf8(&line).unwrap(), "error 1 { \"code\":  1}");
    }

    fn json() -> impl Strategy<Value = serde_json::Value> {
        use serde_json::Value;
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            ".*".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::hash_map(".*", inner, 0..6).prop_map(|m| m.into_iter().collect()),
            ]
        })
    }

    #[test]
    fn ordinary_messages_are_parsed_in_one_pass() {
        for text in [
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}}"#,
            r#"{"result":{"content":[]},"jsonrpc":"2.0","id":"a"}"#,
        ] {
            assert!(Envelope::parse_ordinary(text).is_some(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn parses_what_it_writes(id: u64, method in ".*", params in json()) {
            let params = params.to_string();
            let line = request(id, &method, Some(&params));
            let Ok(Message::Request { id: got, method: named, params: Some(body) }) = Message::parse(&line) else {
                panic!("{}", String::from_utf8_lossy(&line));
            };
            prop_assert_eq!((got.as_number(), &*named, body.get()), (Some(id), &*method, &*params));

            let line = success_response(got, &params);
            let Ok(Message::Response { id: got, outcome: Ok(body) }) = Message::parse(&line) else { panic!() };
            prop_assert_eq!((got.as_number(), body.get()), (Some(id), &*params));

            let line = error_response(got, -5, &method);
            let Ok(Message::Response { outcome: Err(error), .. }) = Message::parse(&line) else { panic!() };
            let error = RpcError::parse(error);
            prop_assert_eq!((error.code, error.message), (-5, method));
        }

        // req: GW-03
        #[test]
        fn ordinary_messages_are_parsed_as_others_are(
            members in prop::collection::vec((
                prop::sample::select(vec!["jsonrpc", "id", "method", "params", "result", "error", "x", "i\\u0064"]),
                prop::sample::select(vec!["\"2.0\"", "1", "null", "\"a\\n\"", "{\"a\":[1e400]}", "[", "\"\\ud800\"", "\"b\""]),
                prop::sample::select(vec!["", " ", "\n"]),
            ), 0..6),
            end in prop::sample::select(vec!["}", " } ", "", "}}"]),
        ) {
            let members: Vec<_> = members.iter().map(|(key, value, space)| format!("{space}\"{key}\"{space}:{value}")).collect();
            let text = format!("{{{}{end}", members.join(","));
            if let Some(ordinary) = Envelope::parse_ordinary(&text) {
                let complete: Envelope<'_> = serde_json::from_str(&text).unwrap();
                prop_assert_eq!(format!("{ordinary:?}"), format!("{complete:?}"));
            }
        }

        #[test]
        fn never_panics(bytes: Vec<u8>) {
            let _ = Message::parse(&bytes);
        }
    }
}
