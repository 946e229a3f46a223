//! JSON-RPC envelopes over raw JSON: what a message is, and how one is spelled.
//!
//! Reading borrows from the bytes that came; what is inside `params`, `result` and `error` is not looked at.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::patch;

/// A message as it stands in the bytes it was read from.
#[derive(Debug, Clone)]
pub enum Message<'a> {
    /// Wants an answer under its id.
    Request { id: Id<'a>, method: Cow<'a, str>, params: Option<&'a RawValue> },
    /// Wants none.
    Notification { method: Cow<'a, str>, params: Option<&'a RawValue> },
    /// Answers a request: with a result, or with an error object (see [`RpcError::read`]).
    Response { id: Id<'a>, outcome: Result<&'a RawValue, &'a RawValue> },
}

/// Why bytes are not a message.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// Not JSON at all, or not UTF-8.
    #[error("not JSON: {0}")]
    NotJson(String),
    /// JSON-RPC batches left MCP again; nobody we know sends them.
    #[error("batches are not supported")]
    Batch,
    /// JSON, but no JSON-RPC message.
    #[error("not a JSON-RPC message: {0}")]
    Invalid(&'static str),
}

/// A request's id exactly as its sender spelled it: a string, any number, or (in answers) `null`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Id<'a>(&'a str);

impl<'a> Id<'a> {
    /// The id nobody has; answers to unreadable requests carry it.
    pub const NULL: Id<'static> = Id("null");

    /// Takes the JSON text of an id. Booleans, arrays and objects are none.
    pub fn from_json(text: &'a str) -> Option<Self> {
        matches!(text.as_bytes().first()?, b'"' | b'-' | b'0'..=b'9' | b'n').then_some(Self(text))
    }

    /// The id's JSON text.
    pub fn as_json(self) -> &'a str {
        self.0
    }

    /// The id as one of ours: we only ever send whole numbers.
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
    /// Reads an envelope.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, MessageError> {
        Self::read(bytes).map(|(message, _)| message)
    }

    /// Reads an envelope, and what stands in it that JSON-RPC does not know: members, as they are spelled. There hardly
    /// ever are any.
    pub fn parse_with_extras(bytes: &'a [u8]) -> Result<(Self, Option<String>), MessageError> {
        let (message, has_more) = Self::read(bytes)?;
        Ok((message, if has_more { more(bytes) } else { None }))
    }

    fn read(bytes: &'a [u8]) -> Result<(Self, bool), MessageError> {
        if bytes.trim_ascii_start().first() == Some(&b'[') {
            return match serde_json::from_slice::<&RawValue>(bytes) {
                Ok(_) => Err(MessageError::Batch),
                Err(error) => Err(MessageError::NotJson(error.to_string())),
            };
        }
        let wire: Wire<'a> = serde_json::from_slice(bytes).map_err(|error| match error.classify() {
            serde_json::error::Category::Data => MessageError::Invalid("wrong or doubled fields"),
            _ => MessageError::NotJson(error.to_string()),
        })?;
        let has_more = wire.has_more;
        Ok((wire.sort()?, has_more))
    }
}

/// What is left of an object without the members that JSON-RPC knows, and without its braces.
fn more(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?.trim();
    let rest = KNOWN.iter().fold(text.to_owned(), |rest, known| patch::remove(&rest, &[known]));
    let rest = rest.strip_prefix('{')?.strip_suffix('}')?.trim();
    (!rest.is_empty()).then(|| rest.to_owned())
}

const KNOWN: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];

/// A message to which further members are added, as they are spelled.
pub fn with_extras(mut frame: Vec<u8>, more: Option<&str>) -> Vec<u8> {
    if let (Some(more), Some(b'}')) = (more, frame.last()) {
        frame.pop();
        frame.push(b',');
        frame.extend_from_slice(more.as_bytes());
        frame.push(b'}');
        one_line(&mut frame);
    }
    frame
}

#[derive(Default)]
struct Wire<'a> {
    jsonrpc: Option<Cow<'a, str>>,
    id: Option<&'a RawValue>,
    method: Option<Cow<'a, str>>,
    params: Option<&'a RawValue>,
    result: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
    has_more: bool,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "lowercase")]
enum Key {
    Jsonrpc,
    Id,
    Method,
    Params,
    Result,
    Error,
    #[serde(other)]
    Other,
}

/// Text, which need not be copied unless there are escapes in it.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Wire<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Members).map(|wire: Wire<'de>| wire)
    }
}

/// By hand, because it has to be seen whether there is anything else.
struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = Wire<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Wire<'de>, A::Error> {
        let mut wire = Wire::default();
        while let Some(key) = map.next_key()? {
            let is_doubled = match key {
                Key::Jsonrpc => wire.jsonrpc.replace(map.next_value::<Text<'de>>()?.0).is_some(),
                Key::Method => match map.next_value::<Option<Text<'de>>>()? {
                    Some(method) => wire.method.replace(method.0).is_some(),
                    None => false,
                },
                // `null` is kept apart from absence: `"result":null` is an answer.
                Key::Id => wire.id.replace(map.next_value()?).is_some(),
                Key::Params => wire.params.replace(map.next_value()?).is_some(),
                Key::Result => wire.result.replace(map.next_value()?).is_some(),
                Key::Error => match map.next_value::<&'de RawValue>()? {
                    null if null.get() == "null" => false,
                    error => wire.error.replace(error).is_some(),
                },
                Key::Other => {
                    map.next_value::<IgnoredAny>()?;
                    wire.has_more = true;
                    false
                }
            };
            if is_doubled {
                return Err(A::Error::custom("a doubled field"));
            }
        }
        Ok(wire)
    }
}

impl<'a> Wire<'a> {
    fn sort(self) -> Result<Message<'a>, MessageError> {
        if self.jsonrpc.as_deref() != Some("2.0") {
            return Err(MessageError::Invalid("`jsonrpc` is not \"2.0\""));
        }
        let id = match self.id {
            None => None,
            Some(raw) => {
                Some(Id::from_json(raw.get()).ok_or(MessageError::Invalid("`id` is no string or number"))?)
            }
        };
        // Some servers send both fields and mean the one that is not null.
        let result = self.result.filter(|result| self.error.is_none() || result.get() != "null");
        match (self.method, id, result, self.error) {
            (Some(_), Some(Id::NULL), ..) => Err(MessageError::Invalid("the `id` of a request is null")),
            (Some(method), Some(id), None, None) => Ok(Message::Request { id, method, params: self.params }),
            (Some(method), None, None, None) => Ok(Message::Notification { method, params: self.params }),
            (None, Some(id), Some(result), None) => Ok(Message::Response { id, outcome: Ok(result) }),
            (None, Some(id), None, Some(error)) => Ok(Message::Response { id, outcome: Err(error) }),
            (None, None, None, Some(error)) => Ok(Message::Response { id: Id::NULL, outcome: Err(error) }),
            _ => Err(MessageError::Invalid("neither request, notification nor answer")),
        }
    }
}

/// A JSON-RPC error object.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message} (JSON-RPC error {code})")]
pub struct RpcError {
    /// JSON-RPC's number.
    pub code: i64,
    /// What the sender says about it.
    pub message: String,
    /// Whatever else it says.
    pub data: Option<Box<RawValue>>,
    /// The object as it was spelled, if it came over a wire.
    pub raw: Option<Box<RawValue>>,
}

impl RpcError {
    /// The message could not be read.
    pub const PARSE_ERROR: i64 = -32700;
    /// It was read and is no request.
    pub const INVALID_REQUEST: i64 = -32600;
    /// Nobody knows the method.
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// The parameters do not fit the method.
    pub const INVALID_PARAMS: i64 = -32602;
    /// The other side failed.
    pub const INTERNAL_ERROR: i64 = -32603;
    /// The SDKs' number for a connection that closed.
    pub const CONNECTION_CLOSED: i64 = -32000;
    /// The SDKs' number for a request that took too long.
    pub const REQUEST_TIMEOUT: i64 = -32001;

    /// Reads an error object, making the best of one that is not quite right: an error stays an error.
    pub fn read(raw: &RawValue) -> Self {
        #[derive(Deserialize)]
        struct Object<'a> {
            #[serde(borrow)]
            code: Option<&'a RawValue>,
            #[serde(borrow)]
            message: Option<&'a RawValue>,
            data: Option<Box<RawValue>>,
        }
        let Ok(object) = serde_json::from_str::<Object<'_>>(raw.get()) else {
            return Self {
                code: Self::INTERNAL_ERROR,
                message: raw.get().chars().take(200).collect(),
                data: None,
                raw: None,
            };
        };
        let code =
            object.code.and_then(|c| c.get().parse::<f64>().ok()).map_or(Self::INTERNAL_ERROR, |c| c as i64);
        let text = |m: &RawValue| serde_json::from_str(m.get()).unwrap_or_else(|_| m.get().to_owned());
        let message = object.message.map(text).unwrap_or_default();
        Self { code, message, data: object.data, raw: Some(raw.to_owned()) }
    }
}

/// Spells a request. `params` are taken over as they are, save for line breaks (see `one_line`).
pub fn request(id: u64, method: &str, params: Option<&str>) -> Vec<u8> {
    let head = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{}"#, quoted(method));
    finish(head, "params", params)
}

/// Spells a request under an id of any kind, given as JSON.
pub fn request_with_id(id: &str, method: &str, params: Option<&str>) -> Vec<u8> {
    finish(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{}"#, quoted(method)), "params", params)
}

/// Spells a notification.
pub fn notification(method: &str, params: Option<&str>) -> Vec<u8> {
    finish(format!(r#"{{"jsonrpc":"2.0","method":{}"#, quoted(method)), "params", params)
}

/// Spells a successful answer.
pub fn success_response(id: Id<'_>, result: &str) -> Vec<u8> {
    finish(format!(r#"{{"jsonrpc":"2.0","id":{id}"#), "result", Some(result))
}

/// The same in the room that the result has, which may be long: it is moved, not copied.
pub fn success_response_from(id: Id<'_>, result: String) -> Vec<u8> {
    let head = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"#);
    let mut out = result.into_bytes();
    let length = out.len();
    out.reserve_exact(head.len() + 1);
    out.resize(length + head.len(), b' ');
    out.copy_within(..length, head.len());
    out[..head.len()].copy_from_slice(head.as_bytes());
    out.push(b'}');
    one_line(&mut out);
    out
}

/// Spells an answer that is an error.
pub fn error_response(id: Id<'_>, code: i64, message: &str) -> Vec<u8> {
    let error = format!(r#"{{"code":{code},"message":{}}}"#, quoted(message));
    finish(format!(r#"{{"jsonrpc":"2.0","id":{id}"#), "error", Some(&error))
}

fn finish(head: String, field: &str, value: Option<&str>) -> Vec<u8> {
    let mut out = head.into_bytes();
    if let Some(value) = value {
        out.reserve(value.len() + field.len() + 6);
        for part in [",\"", field, "\":", value] {
            out.extend_from_slice(part.as_bytes());
        }
    }
    out.push(b'}');
    one_line(&mut out);
    out
}

/// A message is a line on stdio. Inside JSON strings a raw line break is illegal, so whatever breaks a line
/// in valid JSON is white space, and a blank says the same.
pub(crate) fn one_line(message: &mut [u8]) {
    let mut from = 0;
    while let Some(at) = memchr::memchr2(b'\n', b'\r', &message[from..]) {
        message[from + at] = b' ';
        from += at + 1;
    }
}

fn quoted(text: &(impl Serialize + ?Sized)) -> String {
    serde_json::to_string(text).expect("text is always JSON")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(line: &str, expected: &str) {
        let said = match Message::parse(line.as_bytes()) {
            Ok(Message::Request { id, method, params }) => {
                format!("request {id} {method} {}", params.map_or("-", RawValue::get))
            }
            Ok(Message::Notification { method, params }) => {
                format!("notification {method} {}", params.map_or("-", RawValue::get))
            }
            Ok(Message::Response { id, outcome: Ok(result) }) => format!("answer {id} {}", result.get()),
            Ok(Message::Response { id, outcome: Err(error) }) => format!("error {id} {}", error.get()),
            Err(error) => format!("{error}"),
        };
        assert!(said.starts_with(expected), "{line}\n  gave {said}\n  want {expected}");
    }

    #[test]
    fn ids_of_every_legal_kind_keep_their_spelling() {
        for id in ["7", "-1", "1.0", "1e3", r#""a""#, r#""\u0061""#, "184467440737095516160"] {
            check(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#), &format!("answer {id} {{}}"));
        }
        check(r#"{"jsonrpc":"2.0","id":null,"error":{"code":1}}"#, r#"error null {"code":1}"#);
        check(r#"{"jsonrpc":"2.0","error":{"code":1}}"#, r#"error null {"code":1}"#);
    }

    #[test]
    fn what_is_no_id_is_refused() {
        for id in ["true", "[1]", "{}"] {
            check(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#), "not a JSON-RPC message: `id`");
        }
    }

    #[test]
    fn bodies_pass_unread() {
        check(
            r#"{"id":1,"result":{"n":1.0,"n":1e400,"s":"\ud800"},"jsonrpc":"2.0","x-more":true}"#,
            r#"answer 1 {"n":1.0,"n":1e400,"s":"\ud800"}"#,
        );
        check(r#"{"jsonrpc":"2.0","id":1,"result":null}"#, "answer 1 null");
        check(r#"{"jsonrpc":"2.0","id":1,"result":null,"error":{"code":1}}"#, r#"error 1 {"code":1}"#);
        check(r#"{"jsonrpc":"2.0","id":1,"result":2,"error":null}"#, "answer 1 2");
        check(r#"{"jsonrpc":"2.0","method":"m\u0061","params":[1]}"#, "notification ma [1]");
    }

    // req: GW-03
    #[test]
    fn what_json_rpc_does_not_know_can_be_kept() {
        let more = |line: &str| Message::parse_with_extras(line.as_bytes()).unwrap().1;
        assert_eq!(more(r#"{"jsonrpc":"2.0","id":1,"result":{"x":1}}"#), None);
        let line = r#"{ "x" :1.0,"jsonrpc":"2.0","y":{"id":1}, "id":1,"result":{},"x":2 }"#;
        assert_eq!(more(line).as_deref(), Some(r#""x" :1.0,"y":{"id":1},"x":2"#));
        let spelled = with_extras(b"{\"a\":1}".to_vec(), Some("\"b\":\n2"));
        assert_eq!(spelled, b"{\"a\":1,\"b\": 2}");
    }

    #[test]
    fn batches_are_refused_by_name() {
        check(r#" [{"jsonrpc":"2.0","method":"x"}]"#, "batches are not supported");
        check("[info] starting", "not JSON");
    }

    #[test]
    fn nonsense_is_named() {
        check("hello", "not JSON");
        check("", "not JSON");
        check(r#"{"jsonrpc":"2.0","id":1}"#, "not a JSON-RPC message: neither");
        check(r#"{"id":1,"result":{}}"#, "not a JSON-RPC message: `jsonrpc`");
        check(r#"{"jsonrpc":"2.0","id":1,"id":2,"result":{}}"#, "not a JSON-RPC message: wrong or doubled");
        check(r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#, "not a JSON-RPC message: neither");
    }

    #[test]
    fn ten_thousand_levels_do_not_overflow_the_stack() {
        let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        check(&format!(r#"{{"jsonrpc":"2.0","id":1,"result":{deep}}}"#), "answer 1 [[[");
    }

    #[test]
    fn an_error_object_stays_an_error_however_odd() {
        let read = |text: &str| {
            let error = RpcError::read(&RawValue::from_string(text.into()).unwrap());
            (error.code, error.message, error.data.map(|d| d.get().to_owned()))
        };
        assert_eq!(
            read(r#"{"code":-31999,"message":"no","data":{"a":[1]}}"#),
            (-31999, "no".into(), Some(r#"{"a":[1]}"#.into()))
        );
        assert_eq!(read(r#"{"code":"E1","message":5}"#), (-32603, "5".into(), None));
        assert_eq!(read(r#""boom""#), (-32603, "\"boom\"".into(), None));
    }

    #[test]
    fn line_breaks_in_arguments_do_not_break_the_line() {
        let line = request(1, "tools/call", Some("{\n  \"a\": \"x\\ny\"\r\n}"));
        assert!(!line.contains(&b'\n') && !line.contains(&b'\r'));
        check(std::str::from_utf8(&line).unwrap(), "request 1 tools/call {   \"a\": \"x\\ny\"  }");
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

    proptest! {
        #[test]
        fn what_is_printed_is_what_is_parsed(id: u64, method in ".*", params in json()) {
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
            let error = RpcError::read(error);
            prop_assert_eq!((error.code, error.message), (-5, method));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            let _ = Message::parse(&bytes);
        }
    }
}
