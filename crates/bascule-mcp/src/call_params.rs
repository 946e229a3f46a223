//! The parameters of `tools/call`, parsed once and strictly.
//!
//! A filter and a schema decide on the members that the bridge sees. A server whose decoder ignores letter case, ends names at
//! NUL, or takes another one of two equal members, would run something else, so such parameters are refused.

use std::borrow::Cow;
use std::fmt;

use bascule_model::are_confusable;
use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::envelope::BorrowedText;
use crate::json_check::{checked_raw_value, plain_string, read_object};
use crate::patch;

/// The parameters of `tools/call`, borrowed from the message.
#[derive(Debug, Default)]
pub struct CallParams<'a> {
    /// `None` if it is missing or not a string.
    pub name: Option<Cow<'a, str>>,
    pub arguments: Option<&'a RawValue>,
    /// `_meta` as JSON.
    pub meta: Option<&'a str>,
    /// `_meta.progressToken` as JSON.
    pub progress_token: Option<&'a str>,
}

const KNOWN: [&str; 4] = ["name", "arguments", "_meta", "task"];

impl<'a> CallParams<'a> {
    /// Parses the parameters. The error completes "the parameters are invalid: ".
    pub fn parse(params: &'a RawValue) -> Result<Self, String> {
        match Self::parse_ordinary(params.get()) {
            Some(params) => Ok(params),
            None => serde_json::from_str(params.get()).map_err(|error| error.to_string()),
        }
    }

    /// Parses parameters that hold only known members, each of them once and spelled without escapes. The complete parser decides on
    /// all others.
    fn parse_ordinary(json: &'a str) -> Option<Self> {
        let (mut params, mut seen) = (CallParams::default(), [false; KNOWN.len()]);
        read_object(json, |key, value| {
            let place = KNOWN.iter().position(|known| *known == key)?;
            match place {
                0 => params.name = Some(plain_string(value)?.into()),
                1 => params.arguments = Some(checked_raw_value(value)?),
                2 => params.set_meta(value),
                _ => {}
            }
            (!std::mem::replace(&mut seen[place], true)).then_some(())
        })?;
        Some(params)
    }

    fn set_meta(&mut self, meta: &'a str) {
        self.meta = Some(meta);
        self.progress_token = patch::find(meta, &["progressToken"]);
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for CallParams<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(CallParamsVisitor)
    }
}

struct CallParamsVisitor;

impl<'de> Visitor<'de> for CallParamsVisitor {
    type Value = CallParams<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<CallParams<'de>, A::Error> {
        let mut params = CallParams::default();
        let mut seen = [false; KNOWN.len()];
        while let Some(BorrowedText(key)) = map.next_key()? {
            let Some(place) = KNOWN.iter().position(|known| *known == key) else {
                refuse_lookalike(&key, &KNOWN).map_err(A::Error::custom)?;
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            if std::mem::replace(&mut seen[place], true) {
                return Err(A::Error::custom(format_args!("`{key}` occurs twice")));
            }
            let value: &RawValue = map.next_value()?;
            match place {
                0 => {
                    params.name =
                        serde_json::from_str::<BorrowedText<'_>>(value.get()).ok().map(|name| name.0)
                }
                1 => params.arguments = Some(value),
                2 => params.set_meta(value.get()),
                _ => {}
            }
        }
        Ok(params)
    }
}

/// Refuses members of a message, given as raw text without braces, that a decoder may take for a known one.
#[cfg(feature = "server")]
pub(crate) fn refuse_lookalikes(members: &str, known: &[&str]) -> Result<(), String> {
    let keys = serde_json::from_str::<MemberNames>(&format!("{{{members}}}"));
    keys.map_err(|error| error.to_string())?.0.iter().try_for_each(|key| refuse_lookalike(key, known))
}

fn refuse_lookalike(key: &str, known: &[&str]) -> Result<(), String> {
    match known.iter().find(|known| are_confusable(key, known)) {
        Some(known) => Err(format!("`{}` may be read as `{known}`", key.escape_debug())),
        None => Ok(()),
    }
}

/// The names of an object's members, duplicates included.
#[cfg(feature = "server")]
struct MemberNames(Vec<String>);

#[cfg(feature = "server")]
impl<'de> Deserialize<'de> for MemberNames {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NamesVisitor;
        impl<'de> Visitor<'de> for NamesVisitor {
            type Value = MemberNames;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<MemberNames, A::Error> {
                let mut names = Vec::new();
                while let Some((name, IgnoredAny)) = map.next_entry()? {
                    names.push(name);
                }
                Ok(MemberNames(names))
            }
        }
        deserializer.deserialize_map(NamesVisitor)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(params: &str, expected: &str) {
        let params = RawValue::from_string(params.to_owned()).unwrap();
        let found = match CallParams::parse(&params) {
            Ok(CallParams { name, arguments, progress_token, .. }) => {
                let arguments = arguments.map(RawValue::get);
                format!(
                    "{} {} {}",
                    name.unwrap_or_default(),
                    arguments.unwrap_or("-"),
                    progress_token.unwrap_or("-")
                )
            }
            Err(error) => error.split(" at line").next().unwrap().to_owned(),
        };
        assert_eq!(found, expected);
    }

    // req: BR-04
    #[test]
    fn parses_name_arguments_and_progress_token() {
        check(
            r#"{"name":"a\u0062","arguments":{ "x":1.0 },"_meta":{"progressToken":"t"},"other":[]}"#,
            r#"ab { "x":1.0 } "t""#,
        );
        check("{}", " - -");
        check(r#"{"name":7}"#, " - -");
        check("[]", "invalid type: sequence, expected an object");
    }

    #[test]
    fn ordinary_parameters_are_parsed_in_one_pass() {
        let text = r#"{"name":"a","arguments":{"x":1},"_meta":{"progressToken":7}}"#;
        assert!(CallParams::parse_ordinary(text).is_some());
    }

    // req: BR-04
    #[test]
    fn refuses_duplicates_and_lookalikes() {
        check(r#"{"name":"a","name":"b"}"#, "`name` occurs twice");
        check(r#"{"name":"a","n\u0061me":"b"}"#, "`name` occurs twice");
        check(r#"{"name":"a","Name":"b"}"#, "`Name` may be read as `name`");
        check(r#"{"NAME":"b"}"#, "`NAME` may be read as `name`");
        check(r#"{"\u004eame":"b"}"#, "`Name` may be read as `name`");
        check(r#"{"argumentſ":{}}"#, "`argumentſ` may be read as `arguments`");
        check(r#"{"name\u0000":"b"}"#, r"`name\0` may be read as `name`");
        check(r#"{"arguments ":{}}"#, "`arguments ` may be read as `arguments`");
        check(r#"{"_Meta":{}}"#, "`_Meta` may be read as `_meta`");
    }

    /// Reads the value of a member like a decoder that ignores letter case and takes the last match.
    fn decode_loosely(object: &str, member: &str) -> Option<String> {
        let members: Vec<(String, Box<RawValue>)> = serde_json::from_str::<Members>(object).unwrap().0;
        let matches = |key: &str| key == member || are_confusable(key, member);
        members.into_iter().rfind(|(key, _)| matches(key)).map(|(_, value)| value.get().to_owned())
    }

    struct Members(Vec<(String, Box<RawValue>)>);

    impl<'de> Deserialize<'de> for Members {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct MembersVisitor;
            impl<'de> Visitor<'de> for MembersVisitor {
                type Value = Members;
                fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str("an object")
                }
                fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                    let mut members = Vec::new();
                    while let Some(member) = map.next_entry()? {
                        members.push(member);
                    }
                    Ok(Members(members))
                }
            }
            deserializer.deserialize_map(MembersVisitor)
        }
    }

    fn any_key() -> impl Strategy<Value = String> {
        prop_oneof![
            "(?i:name)",
            "(?i:arguments)",
            "[nN][aA][mM][eE]",
            Just("argumentſ".to_owned()),
            Just("n\\u0061me".to_owned()),
            Just("\\u004eame".to_owned()),
            "[a-z]{1,4}",
        ]
    }

    proptest! {
        // req: BR-04
        #[test]
        fn ordinary_parameters_are_parsed_as_others_are(
            members in prop::collection::vec((
                prop_oneof![prop::sample::select(KNOWN.to_vec()).prop_map(str::to_owned), any_key()],
                prop::sample::select(vec!["\"a\"", "\"\\u0061\"", "{\"x\":1}", "{\"progressToken\":7}", "{", "1e400", "null"]),
            ), 0..5),
        ) {
            let members: Vec<_> = members.iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
            let text = format!("{{{}}}", members.join(","));
            if let Some(ordinary) = CallParams::parse_ordinary(&text) {
                let complete: CallParams<'_> = serde_json::from_str(&text).unwrap();
                prop_assert_eq!(format!("{ordinary:?}"), format!("{complete:?}"));
            }
        }

        // req: BR-04
        #[test]
        fn accepted_parameters_mean_the_same_to_a_loose_decoder(
            members in proptest::collection::vec((any_key(), prop_oneof!["[0-9]", r#""[a-z]""#, Just("{}".to_owned())]), 0..5),
        ) {
            let members: Vec<String> = members.iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
            let text = format!("{{{}}}", members.join(","));
            let raw = RawValue::from_string(text.clone()).unwrap();
            if let Ok(params) = CallParams::parse(&raw) {
                let name = decode_loosely(&text, "name").and_then(|name| serde_json::from_str::<String>(&name).ok());
                prop_assert_eq!(params.name.map(Cow::into_owned), name);
                prop_assert_eq!(params.arguments.map(|raw| raw.get().to_owned()), decode_loosely(&text, "arguments"));
            }
        }
    }
}
