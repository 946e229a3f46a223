//! Keeps the beginning of the last result of each tool, to describe it in errors.

use std::collections::{HashMap, HashSet};

use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

/// Bytes of a result to keep.
const MAX_KEPT: usize = 4096;
/// Keys, and characters of a text, to show.
const MAX_KEYS: usize = 10;
const MAX_TEXT: usize = 40;
/// Tools to describe the results of, if it is not known which one matters.
const MAX_LATEST: usize = 2;
/// Tools to keep a result of.
const MAX_TOOLS: usize = 100;

#[derive(Debug, Default)]
pub(crate) struct LastResults {
    by_tool: HashMap<String, KeptValue>,
    /// Number of results so far.
    count: u64,
    /// Members, by tool, that a result had or may have had.
    present: HashSet<(String, String)>,
}

#[derive(Debug)]
struct KeptValue {
    is_text: bool,
    beginning: String,
    is_cut: bool,
    number: u64,
}

impl LastResults {
    pub(crate) fn keep(&mut self, tool: &str, is_text: bool, value: &str) {
        if self.by_tool.len() < MAX_TOOLS || self.by_tool.contains_key(tool) {
            let beginning = value[..value.floor_char_boundary(MAX_KEPT)].to_owned();
            self.count += 1;
            let (is_cut, number) = (beginning.len() < value.len(), self.count);
            self.by_tool.insert(tool.to_owned(), KeptValue { is_text, beginning, is_cut, number });
        }
    }

    /// Describes the last results of the tools that were called last.
    pub(crate) fn describe_latest(&self) -> Vec<(&str, String)> {
        let mut latest: Vec<_> = self.by_tool.iter().collect();
        latest.sort_by_key(|(_, kept)| std::cmp::Reverse(kept.number));
        let described = latest.into_iter().filter_map(|(tool, _)| Some((&**tool, self.describe(tool, &[])?)));
        described.take(MAX_LATEST).collect()
    }

    /// Notes which of these members the last result of a tool had or may have had.
    pub(crate) fn note_members<'m>(&mut self, tool: &str, members: impl Iterator<Item = &'m str>) {
        for member in members {
            if !self.last_lacks(tool, member) {
                self.present.insert((tool.to_owned(), member.to_owned()));
            }
        }
    }

    /// Returns true if a tool has answered, and no answer had this member, which every answer was searched for.
    pub(crate) fn lack(&self, tool: &str, member: &str) -> bool {
        self.by_tool.contains_key(tool) && !self.present.contains(&(tool.to_owned(), member.to_owned()))
    }

    /// Returns true if the last result of a tool is data with objects, none of which has this member.
    fn last_lacks(&self, tool: &str, member: &str) -> bool {
        let Some(kept) = self.by_tool.get(tool) else { return false };
        let key = Value::from(member).to_string();
        let has_objects = !kept.is_text && kept.beginning.contains('{');
        has_objects && !kept.is_cut && !kept.beginning.contains(&key)
    }

    /// Describes the last result of a tool, or the value at a path in it; `None` if that is not known.
    pub(crate) fn describe(&self, tool: &str, path: &[String]) -> Option<String> {
        let KeptValue { is_text, beginning, .. } = self.by_tool.get(tool)?;
        if path.is_empty() {
            return match is_text {
                true => Some(format!("a string: {}", shortened(beginning))),
                false => described(beginning),
            };
        }
        // A result that was cut does not parse.
        let whole: Value = serde_json::from_str(beginning).ok().filter(|_| !is_text)?;
        let value = path.iter().try_fold(&whole, |value, name| member(value, name))?;
        described(&value.to_string())
    }
}

/// Returns a member of an object, or an element of a list.
pub(crate) fn member<'v>(value: &'v Value, name: &str) -> Option<&'v Value> {
    match value {
        Value::Array(items) => items.get(name.parse::<usize>().ok()?),
        value => value.get(name),
    }
}

/// Describes a JSON text, which may be cut.
pub(crate) fn described(json: &str) -> Option<String> {
    Some(match json.trim_start().as_bytes().first()? {
        b'{' => match keys(json).as_slice() {
            [] => "an object".into(),
            keys => format!("an object with `{}`", keys.join("`, `")),
        },
        b'[' => "an array".into(),
        b'"' => format!("a string: {}", shortened(json.trim_start().trim_matches('"'))),
        b't' | b'f' => "a boolean".into(),
        b'n' => "null".into(),
        _ => format!("a number: {json}"),
    })
}

/// Quotes the beginning of a text on one line.
fn shortened(text: &str) -> String {
    let (text, rest) = match text.char_indices().nth(MAX_TEXT) {
        Some((end, _)) => (&text[..end], "…"),
        None => (text, ""),
    };
    format!("\"{}{rest}\"", text.replace('\n', "\\n"))
}

/// Returns the first keys of an object, whose text may be cut.
fn keys(json: &str) -> Vec<String> {
    struct KeysVisitor<'k>(&'k mut Vec<String>);
    impl<'de> Visitor<'de> for KeysVisitor<'_> {
        type Value = ();
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
            while let Some(key) = map.next_key::<String>()? {
                if self.0.len() < MAX_KEYS {
                    self.0.push(key);
                }
                map.next_value::<IgnoredAny>()?;
            }
            Ok(())
        }
    }
    let mut keys = Vec::new();
    // An error means that the text ends early: the keys before it count.
    let _ = serde_json::Deserializer::from_str(json).deserialize_map(KeysVisitor(&mut keys));
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: CM-05
    #[test]
    fn describes_results() {
        let mut results = LastResults::default();
        let mut check = |is_text: bool, value: &str, expected: &str| {
            results.keep("a:b", is_text, value);
            assert_eq!(results.describe("a:b", &[]).as_deref(), Some(expected));
        };
        check(true, "words", "a string: \"words\"");
        check(true, &"x".repeat(5000), &format!("a string: \"{}…\"", "x".repeat(40)));
        check(false, r#"{"a":1,"b":{"c":2}}"#, "an object with `a`, `b`");
        check(false, &format!(r#"{{"a":1,"b":["{}"]}}"#, "x".repeat(9000)), "an object with `a`, `b`");
        check(false, "[1]", "an array");
        check(false, "5", "a number: 5");
        assert_eq!(results.describe("other", &[]), None);
        results.keep("a:b", false, r#"{"a":{"b":"words"}}"#);
        let part = |path: &[&str]| {
            results.describe("a:b", &path.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(part(&["a", "b"]).as_deref(), Some("a string: \"words\""));
        assert_eq!(part(&["a", "c"]), None);
        assert!(
            results.last_lacks("a:b", "c")
                && !results.last_lacks("a:b", "b")
                && !results.last_lacks("other", "c")
        );
        results.keep("a:c", true, "words");
        results.keep("a:d", false, "[1]");
        let latest = results.describe_latest();
        assert_eq!(latest, [("a:d", "an array".into()), ("a:c", "a string: \"words\"".into())]);
        assert!(!results.last_lacks("a:c", "c"), "text");
        results.keep("a:b", false, &format!("[{}", "1,".repeat(5000)));
        assert!(!results.last_lacks("a:b", "c"), "the rest is not known");
    }
}
