//! Parses values for validation, within a limit on the memory that they take.
//!
//! Arguments are parsed so that every decoder reads the same values in them.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Number, Value};

/// The most memory that a parsed value may take. Sixty megabytes of empty objects would take ten times this, and a `Value`
/// may take a hundred times as much as its text.
const MAX_BYTES: usize = 256 << 20;
/// The memory of each value, and of each object that is not empty, which allocates a node for several members.
const VALUE_BYTES: usize = size_of::<Value>();
const OBJECT_BYTES: usize = 12 * (size_of::<String>() + size_of::<Value>());

/// Parses arguments. Fails if a number, a string or the depth is beyond a `Value`, or if an object has a key twice: then the
/// server could read something else than the validator. Fails if the value takes too much memory.
pub(crate) fn parse_arguments(text: &RawValue) -> Result<Value, String> {
    parse(text, true)
}

/// Parses a result. Fails if a `Value` cannot represent it, or takes too much memory.
pub(crate) fn parse_result(text: &RawValue) -> Result<Value, String> {
    parse(text, false)
}

fn parse(text: &RawValue, is_strict: bool) -> Result<Value, String> {
    let remaining = Cell::new(MAX_BYTES);
    let mut deserializer = serde_json::Deserializer::from_str(text.get());
    let seed = BoundedValue { remaining: &remaining, is_strict };
    seed.deserialize(&mut deserializer).map_err(|error| error.to_string())
}

/// A value within a limit. Objects of a strict one have each key once, without control characters.
#[derive(Clone, Copy)]
struct BoundedValue<'a> {
    remaining: &'a Cell<usize>,
    is_strict: bool,
}

impl BoundedValue<'_> {
    fn charge<E: Error>(self, bytes: usize) -> Result<(), E> {
        let remaining = self.remaining.get().checked_sub(bytes);
        self.remaining.set(remaining.ok_or_else(|| E::custom("the value is too large to validate"))?);
        Ok(())
    }

    fn check_key<E: Error>(self, key: &str, object: &Map<String, Value>) -> Result<(), E> {
        if key.chars().any(char::is_control) {
            let key = key.escape_debug();
            return Err(E::custom(format_args!("the key `{key}` has a control character")));
        }
        match object.contains_key(key) {
            true => Err(E::custom(format_args!("the key `{key}` occurs twice"))),
            false => Ok(()),
        }
    }
}

impl<'de> DeserializeSeed<'de> for BoundedValue<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.charge(VALUE_BYTES)?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for BoundedValue<'_> {
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

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        self.charge(value.len())?;
        Ok(Value::String(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            if object.is_empty() {
                self.charge(OBJECT_BYTES)?;
            }
            if self.is_strict {
                self.check_key(&key, &object)?;
            }
            self.charge(key.len() + size_of::<String>())?;
            let value = members.next_value_seed(self)?;
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

    // req: BR-04
    #[test]
    fn refuses_values_that_take_too_much_memory() {
        let list_of = |item: &str, count: usize| format!("[{}{item}]", format!("{item},").repeat(count));
        for parse in [parse_arguments, parse_result] {
            let parse = |text: String| parse(&RawValue::from_string(text).unwrap());
            let error = parse(list_of("{}", MAX_BYTES / VALUE_BYTES)).unwrap_err();
            assert!(error.starts_with("the value is too large to validate"), "{error}");
            assert!(parse(list_of(r#"{"a":1}"#, MAX_BYTES / OBJECT_BYTES)).is_err());
            assert!(
                parse(list_of("1", 1000)).is_ok() && parse(format!("\"{}\"", "x".repeat(1 << 20))).is_ok()
            );
        }
    }

    // req: BR-04
    #[test]
    fn keeps_the_last_of_equal_keys_in_results() {
        let result = RawValue::from_string(r#"{"a":1,"a":2,"b\u0000":1e1}"#.to_owned()).unwrap();
        assert_eq!(parse_result(&result).unwrap(), serde_json::from_str::<Value>(result.get()).unwrap());
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
