//! Notes if the results of calls have the members that a script reads.

use serde_json::Value;

use crate::check::is_member_of_type;
use crate::last_results::{described, member};

/// Longer results are not looked into, and only this much of a text.
const MAX_LENGTH: usize = 64 << 10;

/// The reading of a member of a result.
#[derive(Debug, Default)]
pub(crate) struct ResultRead {
    /// Offset of the name in the source.
    pub(crate) offset: u32,
    /// The text of the expression whose member is read.
    pub(crate) owner: String,
    pub(crate) name: String,
    /// The tool, as `server:tool`.
    pub(crate) tool: String,
    /// The members of the result that lead to the owner.
    pub(crate) path: Vec<String>,
    /// The script parses text before it reads the member.
    pub(crate) is_parsed: bool,
}

/// The members that no result had so far.
#[derive(Debug, Default)]
pub(crate) struct ReadMembers {
    /// For each read: `None` before the first result.
    states: Vec<Option<ReadState>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum ReadState {
    /// The member was there, or that is not known.
    Present,
    /// The member was missing. The text describes the value that did not have it.
    Missing(String),
}

impl ReadMembers {
    /// Notes the result of a call, which is JSON or text.
    pub(crate) fn note(&mut self, reads: &[ResultRead], tool: &str, is_text: bool, value: &str) {
        self.states.resize(reads.len(), None);
        let is_open = |state: &Option<ReadState>| *state != Some(ReadState::Present);
        let mut open = reads.iter().zip(&mut self.states).filter(|(read, _)| read.tool == tool);
        let Some(first) = open.by_ref().find(|(_, state)| is_open(state)) else { return };
        let result = match is_text {
            true => Some(Value::from(&value[..value.floor_char_boundary(MAX_LENGTH)])),
            false if value.len() > MAX_LENGTH => None,
            false => serde_json::from_str(value).ok(),
        };
        for (read, state) in std::iter::once(first).chain(open).filter(|(_, state)| is_open(state)) {
            let missing = result.as_ref().and_then(|result| read.missing_in(result));
            *state = Some(missing.map_or(ReadState::Present, ReadState::Missing));
        }
    }

    /// Returns the reads whose member no result had, each with a warning.
    pub(crate) fn warnings<'r>(
        &self,
        reads: &'r [ResultRead],
    ) -> impl Iterator<Item = (&'r ResultRead, String)> {
        reads.iter().zip(&self.states).filter_map(|(read, state)| match state {
            Some(ReadState::Missing(description)) => {
                let ResultRead { owner, name, tool, path, .. } = read;
                let part = if path.is_empty() { "the" } else { "of the" };
                let warning =
                    format!("{owner} has no member `{name}`: it is {description}, {part} result of {tool}");
                Some((read, warning))
            }
            _ => None,
        })
    }
}

impl ResultRead {
    /// Describes the owner if it does not have the member.
    fn missing_in(&self, result: &Value) -> Option<String> {
        let (mut owner, mut text) = (result, None);
        for name in &self.path {
            if let Some(all) = owner.as_str() {
                // A character of a text is a text too.
                let is_index = name.parse::<usize>().is_ok_and(|index| index < all.chars().count());
                text = Some(all).filter(|_| is_index && text.is_none());
                text?;
                continue;
            }
            owner = member(owner, name)?;
        }
        if has_member(owner, &self.name) || (self.is_parsed && owner.is_string()) {
            return None;
        }
        match text {
            Some(text) => Some(format!("a character of {}", described(&Value::from(text).to_string())?)),
            None => described(&owner.to_string()),
        }
    }
}

/// Returns true if reading the member gives a value, or fails. An index beyond the end of a list is no mistake.
fn has_member(owner: &Value, name: &str) -> bool {
    let is_index = name.parse::<usize>().is_ok();
    match owner {
        Value::Null => true,
        Value::Object(members) => members.contains_key(name) || is_member_of_type("object", name),
        Value::Array(_) => is_index || is_member_of_type("array", name),
        Value::String(_) => is_index || is_member_of_type("string", name),
        Value::Number(_) => is_member_of_type("number", name),
        Value::Bool(_) => is_member_of_type("boolean", name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the warnings about a read of `path` (the last name is the member) after some results.
    fn check(path: &[&str], results: &[&str], expected: Option<&str>) {
        check_results(path, false, results, expected);
    }

    fn check_results(path: &[&str], is_text: bool, results: &[&str], expected: Option<&str>) {
        let (name, path) = path.split_last().unwrap();
        let path = path.iter().map(|name| (*name).to_owned()).collect();
        let (owner, name, tool) = ("`r`".into(), (*name).to_owned(), "a:b".into());
        let reads = [ResultRead { owner, name, tool, path, ..ResultRead::default() }];
        let mut members = ReadMembers::default();
        for result in results {
            members.note(&reads, "a:b", is_text, result);
        }
        let warnings: Vec<_> = members.warnings(&reads).map(|(_, text)| text).collect();
        assert_eq!(warnings.first().map(String::as_str), expected, "{results:?}");
    }

    // req: CM-13
    #[test]
    fn warns_of_a_member_that_no_result_had() {
        let missing = "`r` has no member `x`: it is an object with `a`, the result of a:b";
        check(&["x"], &[r#"{"a":1}"#], Some(missing));
        check(&["x"], &[r#"{"a":1}"#, r#"{"x":1}"#], None);
        check(&["x"], &[r#"{"x":null}"#], None);
        check(&["x"], &[], None);
        check(&["a", "x"], &[r#"{}"#], None);
        check(&["a", "x"], &[r#"{"a":null}"#], None);
        check(&["a", "0"], &[r#"{"a":[]}"#], None);
        check(&["a", "length"], &[r#"{"a":[]}"#], None);
        check(
            &["a", "0", "x"],
            &[r#"{"a":"words"}"#],
            Some("`r` has no member `x`: it is a character of a string: \"words\", of the result of a:b"),
        );
        check(&["a", "0", "x"], &[r#"{"a":""}"#], None);
    }

    // req: CM-13
    #[test]
    fn warns_of_a_member_of_a_long_text() {
        let text = "é".repeat(MAX_LENGTH + 1);
        let start = "é".repeat(40);
        let warning = |what: &str, part: &str| {
            format!("`r` has no member `x`: it is {what}: \"{start}…\", {part} result of a:b")
        };
        check_results(&["x"], true, &[&text], Some(&warning("a string", "the")));
        check_results(&["5", "x"], true, &[&text], Some(&warning("a character of a string", "of the")));
        // The rest of the text is not looked into.
        check_results(&["65530", "x"], true, &[&text], None);
    }
}
