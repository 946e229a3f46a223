//! A message of OTLP: a list of fields, written as protobuf or as the JSON of the protocol.

use serde_json::{Map, Value};

use crate::hexadecimal::hexadecimal;

/// The kinds of fields on the wire of protobuf.
const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const LENGTH: u32 = 2;

/// A message. Fields are written in the order in which they were added.
#[derive(Debug, Clone, Default)]
pub(super) struct OtlpMessage(Vec<Field>);

#[derive(Debug, Clone)]
struct Field {
    number: u32,
    /// The name in JSON.
    name: &'static str,
    value: FieldValue,
}

/// The value of a field. The variants are types of protobuf; JSON has 64-bit integers as text.
#[derive(Debug, Clone)]
pub(super) enum FieldValue {
    Text(String),
    /// The bytes of an id; hexadecimal in JSON.
    Id(Vec<u8>),
    Int(i64),
    /// A value of an enumeration.
    Enum(u32),
    Flag(bool),
    Fixed(u64),
    Double(f64),
    FixedList(Vec<u64>),
    DoubleList(Vec<f64>),
    One(OtlpMessage),
    Many(Vec<OtlpMessage>),
}

impl OtlpMessage {
    pub(super) fn with(mut self, number: u32, name: &'static str, value: impl Into<FieldValue>) -> Self {
        self.0.push(Field { number, name, value: value.into() });
        self
    }

    pub(super) fn to_protobuf(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.0.iter().for_each(|field| field.write_protobuf(&mut bytes));
        bytes
    }

    pub(super) fn to_json(&self) -> Value {
        let fields = self.0.iter().map(|field| (field.name.to_owned(), field.value.to_json()));
        Value::Object(fields.collect::<Map<String, Value>>())
    }
}

impl Field {
    fn write_protobuf(&self, bytes: &mut Vec<u8>) {
        match &self.value {
            FieldValue::Text(text) => self.write_bytes(bytes, text.as_bytes()),
            FieldValue::Id(id) => self.write_bytes(bytes, id),
            FieldValue::Int(value) => self.write_number(bytes, value.cast_unsigned()),
            FieldValue::Enum(value) => self.write_number(bytes, u64::from(*value)),
            FieldValue::Flag(value) => self.write_number(bytes, u64::from(*value)),
            FieldValue::Fixed(value) => self.write_fixed(bytes, value.to_le_bytes()),
            FieldValue::Double(value) => self.write_fixed(bytes, value.to_le_bytes()),
            FieldValue::FixedList(values) => self.write_packed(bytes, values, |value| value.to_le_bytes()),
            FieldValue::DoubleList(values) => self.write_packed(bytes, values, |value| value.to_le_bytes()),
            FieldValue::One(message) => self.write_bytes(bytes, &message.to_protobuf()),
            FieldValue::Many(messages) => {
                messages.iter().for_each(|message| self.write_bytes(bytes, &message.to_protobuf()));
            }
        }
    }

    fn write_tag(&self, bytes: &mut Vec<u8>, kind: u32) {
        write_varint(bytes, u64::from(self.number << 3 | kind));
    }

    fn write_number(&self, bytes: &mut Vec<u8>, value: u64) {
        self.write_tag(bytes, VARINT);
        write_varint(bytes, value);
    }

    fn write_fixed(&self, bytes: &mut Vec<u8>, value: [u8; 8]) {
        self.write_tag(bytes, FIXED64);
        bytes.extend(value);
    }

    fn write_bytes(&self, bytes: &mut Vec<u8>, value: &[u8]) {
        self.write_tag(bytes, LENGTH);
        write_varint(bytes, value.len() as u64);
        bytes.extend(value);
    }

    fn write_packed<T>(&self, bytes: &mut Vec<u8>, values: &[T], to_bytes: fn(&T) -> [u8; 8]) {
        self.write_bytes(bytes, &values.iter().flat_map(to_bytes).collect::<Vec<u8>>());
    }
}

/// Writes seven bits a byte, the lowest first.
fn write_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

impl FieldValue {
    fn to_json(&self) -> Value {
        match self {
            Self::Text(text) => text.as_str().into(),
            Self::Id(id) => hexadecimal(id).into(),
            Self::Int(value) => value.to_string().into(),
            Self::Enum(value) => (*value).into(),
            Self::Flag(value) => (*value).into(),
            Self::Fixed(value) => value.to_string().into(),
            Self::Double(value) => (*value).into(),
            Self::FixedList(values) => values.iter().map(u64::to_string).collect::<Vec<_>>().into(),
            Self::DoubleList(values) => values.clone().into(),
            Self::One(message) => message.to_json(),
            Self::Many(messages) => messages.iter().map(OtlpMessage::to_json).collect::<Vec<_>>().into(),
        }
    }
}

impl From<&str> for FieldValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<OtlpMessage> for FieldValue {
    fn from(message: OtlpMessage) -> Self {
        Self::One(message)
    }
}

impl From<Vec<OtlpMessage>> for FieldValue {
    fn from(messages: Vec<OtlpMessage>) -> Self {
        Self::Many(messages)
    }
}

/// Returns an attribute with a text.
pub(super) fn attribute(key: &str, value: &str) -> OtlpMessage {
    let value = OtlpMessage::default().with(1, "stringValue", value);
    OtlpMessage::default().with(1, "key", key).with(2, "value", value)
}

/// Returns an attribute with a number.
pub(super) fn number(key: &str, value: u64) -> OtlpMessage {
    let value = FieldValue::Int(i64::try_from(value).unwrap_or(i64::MAX));
    OtlpMessage::default().with(1, "key", key).with(
        2,
        "value",
        OtlpMessage::default().with(3, "intValue", value),
    )
}

/// Returns the part of the program that makes the spans and metrics.
pub(super) fn scope() -> OtlpMessage {
    OtlpMessage::default().with(1, "name", "bascule").with(2, "version", env!("CARGO_PKG_VERSION"))
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: TR-01
    #[test]
    fn writes_the_wire_of_protobuf() {
        let check = |value: FieldValue, expected: &[u8]| {
            assert_eq!(OtlpMessage::default().with(1, "x", value).to_protobuf(), expected);
        };
        check("ab".into(), b"\x0a\x02ab");
        check("".into(), b"\x0a\x00");
        check(FieldValue::Int(300), b"\x08\xac\x02");
        check(FieldValue::Int(-1), b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01");
        check(FieldValue::Flag(true), b"\x08\x01");
        check(FieldValue::Fixed(258), b"\x09\x02\x01\0\0\0\0\0\0");
        check(FieldValue::Double(1.0), b"\x09\0\0\0\0\0\0\xf0\x3f");
        check(FieldValue::FixedList(vec![1]), b"\x0a\x08\x01\0\0\0\0\0\0\0");
        check(FieldValue::Many(vec![OtlpMessage::default(), OtlpMessage::default()]), b"\x0a\x00\x0a\x00");
        let far = OtlpMessage::default().with(16, "x", FieldValue::Enum(127));
        assert_eq!(far.to_protobuf(), b"\x80\x01\x7f");
    }

    // req: TR-01
    #[test]
    fn writes_the_json_of_the_protocol() {
        let id = FieldValue::Id(vec![0, 0xab]);
        let message = attribute("k", "v").with(3, "id", id).with(4, "n", FieldValue::Fixed(u64::MAX)).with(
            5,
            "e",
            FieldValue::Enum(2),
        );
        let expected =
            r#"{"key":"k","value":{"stringValue":"v"},"id":"00ab","n":"18446744073709551615","e":2}"#;
        assert_eq!(message.to_json(), serde_json::from_str::<Value>(expected).unwrap());
    }
}
