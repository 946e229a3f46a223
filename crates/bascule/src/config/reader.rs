//! Reads typed values out of the syntax tree, and notes what is not as it should be.
//!
//! A reading that fails has said why and gives `None`; the caller goes on, so that all problems of a file come
//! out together. What the values mean is left to the callers.

use std::collections::HashSet;
use std::fmt::Display;
use std::time::Duration;

use jsonc_parser::ast::Value;
use jsonc_parser::common::Ranged;

use super::problem::{MOST_SHOWN, Notes, printable};

const LONGEST_QUOTE: usize = 40;

/// Names further from each other than this (Jaro–Winkler, 1 is equal) are not mistaken for each other.
const NEAR: f64 = 0.8;

/// One value, and where it stands.
pub(super) struct Field<'a> {
    notes: &'a Notes,
    path: String,
    key_at: usize,
    value: &'a Value<'a>,
}

impl<'a> Field<'a> {
    /// The value that is the whole file.
    pub(super) fn root(value: &'a Value<'a>, notes: &'a Notes) -> Self {
        Self { notes, path: String::new(), key_at: value.start(), value }
    }

    /// Where it stands in the file, to compare with others.
    pub(super) fn offset(&self) -> usize {
        self.value.start()
    }

    /// Notes an error about this value.
    pub(super) fn error(&self, message: impl Display) {
        self.notes.error(self.value.start(), &self.path, message);
    }

    /// Notes an error about this value's key.
    pub(super) fn key_error(&self, message: impl Display) {
        self.notes.error(self.key_at, &self.path, message);
    }

    /// Notes that this value's key is odd.
    pub(super) fn key_warning(&self, message: impl Display) {
        self.notes.warning(self.key_at, &self.path, message);
    }

    /// Notes what the value should have been, and what it is. Not for secrets: it quotes.
    pub(super) fn expected<T>(&self, what: impl Display) -> Option<T> {
        self.error(format_args!("must be {what}, is {}", quoted(self.value)));
        None
    }

    // For what may be, or may have been meant to hold, a secret.
    fn expected_kind<T>(&self, what: &str) -> Option<T> {
        self.error(format_args!("must be {what}, is {}", kind(self.value)));
        None
    }

    /// Any string.
    pub(super) fn text(&self) -> Option<&'a str> {
        match self.value {
            Value::StringLit(text) => Some(&text.value),
            _ => self.expected("a string"),
        }
    }

    /// A string that no message may quote. A number counts as its spelling: VS Code allows that too.
    pub(super) fn secret_text(&self) -> Option<&'a str> {
        match self.value {
            Value::StringLit(text) => Some(&text.value),
            Value::NumberLit(number) => Some(number.value),
            _ => self.expected_kind("a string"),
        }
    }

    /// `true` or `false`.
    pub(super) fn flag(self) -> Option<bool> {
        match self.value {
            Value::BooleanLit(flag) => Some(flag.value),
            _ => self.expected("true or false"),
        }
    }

    /// A whole number from 1.
    pub(super) fn positive(self) -> Option<u32> {
        self.integer(1, "a positive integer")
    }

    /// A whole number from 0.
    pub(super) fn count(self) -> Option<u32> {
        self.integer(0, "zero or a positive integer")
    }

    /// Some milliseconds, at least one.
    pub(super) fn millis(self) -> Option<Duration> {
        self.positive().map(|millis| Duration::from_millis(millis.into()))
    }

    fn integer(self, least: u32, what: &str) -> Option<u32> {
        match self.as_number() {
            Some(n) if n > u32::MAX.into() => self.expected(format_args!("at most {}", u32::MAX)),
            Some(n) if n.fract() == 0.0 && n >= least.into() => Some(n as u32),
            _ => self.expected(what),
        }
    }

    /// A number between two others.
    pub(super) fn number(self, least: f64, most: f64) -> Option<f64> {
        match self.as_number() {
            Some(n) if (least..=most).contains(&n) => Some(n),
            _ => self.expected(format_args!("a number from {least} to {most}")),
        }
    }

    fn as_number(&self) -> Option<f64> {
        self.value.as_number_lit().and_then(|number| number.value.parse().ok())
    }

    /// One of a few words.
    pub(super) fn one_of<T: Clone>(self, words: &[(&str, T)]) -> Option<T> {
        let word = self.value.as_string_lit();
        match words.iter().find(|(name, _)| word.is_some_and(|word| word.value == *name)) {
            Some((_, meaning)) => Some(meaning.clone()),
            None => self.expected(alternatives(words)),
        }
    }

    /// Where `null` is a value: it reads as `Some(None)`.
    pub(super) fn or_null<T>(self, read: impl FnOnce(Self) -> Option<T>) -> Option<Option<T>> {
        if self.is_null() { Some(None) } else { read(self).map(Some) }
    }

    /// Whether it is `null`.
    pub(super) fn is_null(&self) -> bool {
        self.value.as_null_keyword().is_some()
    }

    /// Whether it is a string.
    pub(super) fn is_text(&self) -> bool {
        self.value.as_string_lit().is_some()
    }

    /// A list, of which `read` reads each element. Those it cannot read are missing from the result.
    pub(super) fn list<T>(self, read: impl Fn(Self) -> Option<T>) -> Option<Vec<T>> {
        let Value::Array(array) = self.value else {
            return self.expected_kind("a list");
        };
        let element = |(index, value): (usize, &'a Value<'a>)| Self {
            notes: self.notes,
            path: format!("{}[{index}]", self.path),
            key_at: value.start(),
            value,
        };
        Some(array.elements.iter().enumerate().map(element).filter_map(read).collect())
    }

    /// An object. A key that it has twice is noted, and its first value counts.
    pub(super) fn object(self) -> Option<Object<'a>> {
        let Value::Object(object) = self.value else {
            return self.expected_kind("an object");
        };
        let (mut seen, mut entries) = (HashSet::new(), Vec::new());
        for property in &object.properties {
            let key = property.name.as_str();
            let path = join(&self.path, key);
            let field = Self { notes: self.notes, path, key_at: property.start(), value: &property.value };
            match seen.insert(key) {
                true => entries.push((key, field)),
                false => field.key_error("is given twice in the same object"),
            }
        }
        Some(Object { this: self, entries, known: Vec::new() })
    }
}

/// An object whose keys are taken one after the other; what nobody took is unknown.
pub(super) struct Object<'a> {
    this: Field<'a>,
    entries: Vec<(&'a str, Field<'a>)>,
    known: Vec<&'static str>,
}

impl<'a> Object<'a> {
    /// The object as a value of its own.
    pub(super) fn this(&self) -> &Field<'a> {
        &self.this
    }

    /// Looks at the value of a key without taking it.
    pub(super) fn peek(&self, key: &str) -> Option<&Field<'a>> {
        self.entries.iter().find(|(name, _)| *name == key).map(|(_, field)| field)
    }

    /// Takes the value of a key, which thereby is a known one.
    pub(super) fn take(&mut self, key: &'static str) -> Option<Field<'a>> {
        self.known.push(key);
        let index = self.entries.iter().position(|(name, _)| *name == key)?;
        Some(self.entries.remove(index).1)
    }

    /// Takes and reads the value of a key.
    pub(super) fn read<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(Field<'a>) -> Option<T>,
    ) -> Option<T> {
        self.take(key).and_then(read)
    }

    /// All that was not taken, where keys are names and not words of ours.
    pub(super) fn into_entries(self) -> Vec<(&'a str, Field<'a>)> {
        self.entries
    }

    /// Warns about all that was not taken. Other programs put their own keys here, so it is no error.
    pub(super) fn warn_unknown(self) {
        for (key, field) in self.entries.iter().take(MOST_SHOWN + 1) {
            match nearest(key, &self.known) {
                Some(known) => field.key_warning(format_args!("unknown key, did you mean `{known}`?")),
                None => field.key_warning("unknown key"),
            }
        }
    }
}

fn nearest<'k>(key: &str, known: &[&'k str]) -> Option<&'k str> {
    if key.len() > LONGEST_QUOTE {
        return None;
    }
    let key = key.to_lowercase();
    let likeness = |known: &str| strsim::jaro_winkler(&key, &known.to_lowercase());
    let near = known.iter().map(|known| (likeness(known), *known)).filter(|(likeness, _)| *likeness >= NEAR);
    near.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, known)| known)
}

fn join(path: &str, key: &str) -> String {
    let plain = !key.is_empty() && key.chars().all(|c| c.is_alphanumeric() || "_-$".contains(c));
    match (plain && key.len() <= LONGEST_QUOTE, path.is_empty()) {
        (true, true) => key.into(),
        (true, false) => format!("{path}.{key}"),
        (false, _) => format!("{path}[\"{}\"]", printable(key, LONGEST_QUOTE)),
    }
}

fn alternatives<T>(words: &[(&str, T)]) -> String {
    let words: Vec<String> = words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
    match words.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

fn quoted(value: &Value) -> String {
    match value {
        Value::StringLit(text) => format!("\"{}\"", printable(&text.value, LONGEST_QUOTE)),
        Value::NumberLit(number) => printable(number.value, LONGEST_QUOTE),
        Value::BooleanLit(flag) => flag.value.to_string(),
        other => kind(other).into(),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::StringLit(_) => "a string",
        Value::NumberLit(_) => "a number",
        Value::BooleanLit(_) => "a boolean",
        Value::Object(_) => "an object",
        Value::Array(_) => "a list",
        Value::NullKeyword(_) => "null",
    }
}

#[cfg(test)]
mod tests {
    use super::super::problem::Problems;
    use super::super::syntax;
    use super::*;

    /// Reads `{"it": …}` and tells the value, or else the problems.
    fn read<T: std::fmt::Debug>(value: &str, read: impl FnOnce(Field) -> Option<T>) -> String {
        let text = format!(r#"{{"it": {value}}}"#);
        let notes = Notes::default();
        let tree = syntax::parse(&text, &notes).unwrap();
        let it = Field::root(&tree, &notes).object().unwrap().read("it", read);
        it.map_or_else(|| Problems(notes.place("f", &text)).to_string(), |it| format!("{it:?}"))
    }

    #[track_caller]
    fn check<T: std::fmt::Debug>(
        values: &[&str],
        reader: impl Fn(Field) -> Option<T> + Copy,
        expected: &str,
    ) {
        for value in values {
            let expected = expected.replace("VALUE", value);
            assert_eq!(read(value, reader), expected);
        }
    }

    #[test]
    fn a_whole_number_may_be_spelled_in_any_way_json_has() {
        check(&["30", "30.0", "3e1", "0.3E+2"], |f| f.positive(), "30");
        check(&["0", "-0"], |f| f.count(), "0");
        check(&["1500"], |f| f.millis(), "1.5s");
    }

    #[test]
    fn what_is_no_positive_integer_is_quoted() {
        let wrong = ["0", "-1", "1.5", "\"soon\"", "true", "null"];
        check(&wrong, |f| f.positive(), "f:1:8: it: must be a positive integer, is VALUE");
        check(&["[]"], |f| f.positive(), "f:1:8: it: must be a positive integer, is a list");
        check(&["-1"], |f| f.count(), "f:1:8: it: must be zero or a positive integer, is VALUE");
        check(&["4294967296", "1e400"], |f| f.positive(), "f:1:8: it: must be at most 4294967295, is VALUE");
    }

    #[test]
    fn a_number_lies_between_its_bounds() {
        check(&["0.5"], |f| f.number(0.0, 1.0), "0.5");
        check(
            &["1.1", "-1", "\"x\""],
            |f| f.number(0.0, 1.0),
            "f:1:8: it: must be a number from 0 to 1, is VALUE",
        );
    }

    #[test]
    fn null_is_a_value_only_where_it_is_asked_for() {
        check(&["null"], |f| f.or_null(Field::positive), "None");
        check(&["7"], |f| f.or_null(Field::positive), "Some(7)");
    }

    #[test]
    fn a_word_is_one_of_those_offered() {
        let one = |f: Field| f.one_of(&[("a", 1), ("b", 2), ("c", 3)]);
        check(&["\"b\""], one, "2");
        check(&["\"d\"", "7"], one, "f:1:8: it: must be \"a\", \"b\" or \"c\", is VALUE");
    }

    #[test]
    fn a_long_value_is_quoted_shortly() {
        let long = format!("\"{}\"", "x".repeat(1000));
        let short = format!("f:1:8: it: must be true or false, is \"{}…\"", "x".repeat(40));
        assert_eq!(read(&long, |f| f.flag()), short);
    }

    #[test]
    fn the_wrong_element_of_a_list_is_pointed_at() {
        let texts = |f: Field| f.list(|f| f.text().map(str::to_owned)).filter(|texts| texts.len() == 2);
        check(&["[\"a\", \"b\"]"], texts, "[\"a\", \"b\"]");
        check(&["[\"a\", 7]"], texts, "f:1:14: it[1]: must be a string, is 7");
        check(&["\"a\""], texts, "f:1:8: it: must be a list, is a string");
    }

    #[test]
    fn a_secret_is_never_quoted() {
        check(&["\"x\""], |f| f.object().map(|_| ()), "f:1:8: it: must be an object, is a string");
        check(&["\"x\""], |f| f.secret_text().map(str::to_owned), "\"x\"");
        check(&["1.50"], |f| f.secret_text().map(str::to_owned), "\"1.50\"");
        check(&["true"], |f| f.secret_text().map(str::to_owned), "f:1:8: it: must be a string, is a boolean");
    }

    #[test]
    fn the_nearest_known_key_is_found_when_there_is_one() {
        let known = ["command", "cwd", "env", "timeoutMs", "allowedTools", "tools", "type"];
        let cases = [("comand", "command"), ("timeout", "timeoutMs"), ("TimeoutMS", "timeoutMs")];
        for (key, expected) in cases {
            assert_eq!(nearest(key, &known), Some(expected), "{key}");
        }
        for key in ["cmd", "autoApprove", "gallery", "x", "", "description"] {
            assert_eq!(nearest(key, &known), None, "{key}");
        }
    }

    #[test]
    fn a_path_shows_odd_keys_in_brackets() {
        assert_eq!(join("mcpServers", "my-files_2"), "mcpServers.my-files_2");
        assert_eq!(join("mcpServers", "a b"), "mcpServers[\"a b\"]");
        assert_eq!(join("", "a.b\u{1b}"), "[\"a.b\\u{1b}\"]");
        assert_eq!(join("a", ""), "a[\"\"]");
    }
}
