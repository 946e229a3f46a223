//! Parses the arguments of a call so that every decoder reads the same values in them.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Number, Value};

/// Parses arguments. Fails if a number, a string or the depth is beyond a `Value`, or if an object has a key twice: then the
/// server could read something else than the validator.
pub(crate) fn parse_arguments(text: &RawValue) -> Result<Value, String> {
    serde_json::from_str::<UniqueValue>(text.get()).map(|value| value.0).map_err(|error| error.to_string())
}

/// A value whose objects have each key once.
struct UniqueValue(Value);

impl<'de> Deserialize<'de> for UniqueValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UniqueVisitor).map(Self)
    }
}

struct UniqueVisitor;

impl<'de> Visitor<'de> for UniqueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(UniqueValue(item)) = items.next_element()? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            if key.chars().any(char::is_control) {
                let key = key.escape_debug();
                return Err(A::Error::custom(format_args!("the key `{key}` has a control character")));
            }
            if object.contains_key(&key) {
                return Err(A::Error::custom(format_args!("the key `{key}` occurs twice")));
            }
            let UniqueValue(value) = members.next_value()?;
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Result<Value, String> {
        parse_arguments(&RawValue::from_string(text.to_owned()).unwrap())
    }

    // req: BR-04
    #[test]
    fn refuses_values_that_decoders_read_differently() {
        for (text, expected) in [
            (r#"{"a":1,"a":1}"#, "the key `a` occurs twice at line 1 column 10"),
            (r#"{"b":[{"a":1,"\u0061":2}]}"#, "the key `a` occurs twice at line 1 column 21"),
            (r#"{"a\u0000":1}"#, r"the key `a\0` has a control character at line 1 column 10"),
            (r#"{"a":1e999}"#, "number out of range at line 1 column 10"),
            (r#"{"a":"\ud800"}"#, "unexpected end of hex escape at line 1 column 13"),
        ] {
            assert_eq!(parse(text), Err(expected.into()), "{text}");
        }
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        assert!(parse(&deep).unwrap_err().starts_with("recursion limit exceeded"));
    }

    proptest! {
        // req: BR-04
        #[test]
        fn parses_like_serde_json(keys in proptest::collection::btree_set("[a-z]{0,3}", 0..5), number: f64, whole: i64, text: String) {
            let items = serde_json::json!([number, whole, text, null, true, {}]);
            let object: Map<String, Value> = keys.into_iter().map(|key| (key, items.clone())).collect();
            let text = Value::Object(object).to_string();
            prop_assert_eq!(parse(&text).unwrap(), serde_json::from_str::<Value>(&text).unwrap());
        }
    }
}
