//! Reads typed values from the syntax tree and reports values of the wrong type.
//!
//! A failed read reports its problem and returns `None`; the caller continues, so that all problems of a file are
//! reported together. The callers decide the meaning of the values.

use std::collections::HashSet;
use std::fmt::Display;
use std::time::Duration;

use bascule_catalog::nearest_name;
use jsonc_parser::ast::Value;
use jsonc_parser::common::Ranged;

use super::problem::{MAX_PER_SEVERITY, ProblemCollector, escape_and_truncate};

const MAX_QUOTED_CHARS: usize = 40;

/// One value with its position.
pub(super) struct FieldReader<'a> {
    problems: &'a ProblemCollector,
    path: String,
    key_at: usize,
    value: &'a Value<'a>,
}

impl<'a> FieldReader<'a> {
    /// Reads the value of the whole file.
    pub(super) fn root(value: &'a Value<'a>, problems: &'a ProblemCollector) -> Self {
        Self { problems, path: String::new(), key_at: value.start(), value }
    }

    /// Returns the byte offset of the value.
    pub(super) fn offset(&self) -> usize {
        self.value.start()
    }

    pub(super) fn error(&self, message: impl Display) {
        self.problems.error(self.value.start(), &self.path, message);
    }

    /// Adds an error at the key instead of the value.
    pub(super) fn key_error(&self, message: impl Display) {
        self.problems.error(self.key_at, &self.path, message);
    }

    pub(super) fn warning(&self, message: impl Display) {
        self.problems.warning(self.value.start(), &self.path, message);
    }

    pub(super) fn key_warning(&self, message: impl Display) {
        self.problems.warning(self.key_at, &self.path, message);
    }

    /// Reports the expected type and the value found. Quotes the value, so never use it for secrets.
    pub(super) fn expected<T>(&self, expected: impl Display) -> Option<T> {
        self.error(format_args!("must be {expected}, is {}", quote(self.value)));
        None
    }

    // Names the type of the value only: the value may contain a secret.
    fn expected_type<T>(&self, expected: &str) -> Option<T> {
        self.error(format_args!("must be {expected}, is {}", type_name(self.value)));
        None
    }

    pub(super) fn read_string(&self) -> Option<&'a str> {
        match self.value {
            Value::StringLit(text) => Some(&text.value),
            _ => self.expected("a string"),
        }
    }

    /// Reads a string that no message may quote. Accepts a number as its spelling, as VS Code does.
    pub(super) fn read_secret_string(&self) -> Option<&'a str> {
        match self.value {
            Value::StringLit(text) => Some(&text.value),
            Value::NumberLit(number) => Some(number.value),
            _ => self.expected_type("a string"),
        }
    }

    pub(super) fn read_bool(self) -> Option<bool> {
        match self.value {
            Value::BooleanLit(flag) => Some(flag.value),
            _ => self.expected("true or false"),
        }
    }

    /// Reads an integer of at least 1.
    pub(super) fn read_positive(self) -> Option<u32> {
        self.read_integer(1, "a positive integer")
    }

    /// Reads an integer of at least 0.
    pub(super) fn read_count(self) -> Option<u32> {
        self.read_integer(0, "zero or a positive integer")
    }

    /// Reads a duration of at least one millisecond.
    pub(super) fn read_millis(self) -> Option<Duration> {
        self.read_positive().map(|millis| Duration::from_millis(millis.into()))
    }

    fn read_integer(self, min: u32, expected: &str) -> Option<u32> {
        match self.as_number() {
            Some(n) if n > u32::MAX.into() => self.expected(format_args!("at most {}", u32::MAX)),
            Some(n) if n.fract() == 0.0 && n >= min.into() => Some(n as u32),
            _ => self.expected(expected),
        }
    }

    pub(super) fn read_number(self, min: f64, max: f64) -> Option<f64> {
        match self.as_number() {
            Some(n) if (min..=max).contains(&n) => Some(n),
            _ => self.expected(format_args!("a number from {min} to {max}")),
        }
    }

    fn as_number(&self) -> Option<f64> {
        self.value.as_number_lit().and_then(|number| number.value.parse().ok())
    }

    /// Reads one of the given words.
    pub(super) fn read_one_of<T: Clone>(self, words: &[(&str, T)]) -> Option<T> {
        let word = self.value.as_string_lit();
        match words.iter().find(|(name, _)| word.is_some_and(|word| word.value == *name)) {
            Some((_, meaning)) => Some(meaning.clone()),
            None => self.expected(list_alternatives(words)),
        }
    }

    /// Accepts `null`, which is read as `Some(None)`.
    pub(super) fn or_null<T>(self, read: impl FnOnce(Self) -> Option<T>) -> Option<Option<T>> {
        if self.is_null() { Some(None) } else { read(self).map(Some) }
    }

    pub(super) fn is_null(&self) -> bool {
        self.value.as_null_keyword().is_some()
    }

    /// Returns the text of a string, and reports nothing otherwise.
    pub(super) fn as_string(&self) -> Option<&'a str> {
        self.value.as_string_lit().map(|text| &*text.value)
    }

    /// Returns the texts of a list, without reporting its problems.
    pub(super) fn strings(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let elements = self.value.as_array().map_or(&[][..], |array| &array.elements[..]);
        elements.iter().filter_map(|value| value.as_string_lit()).map(|text| &*text.value)
    }

    pub(super) fn is_string(&self) -> bool {
        self.value.as_string_lit().is_some()
    }

    /// Reads each element of a list with `read`. Elements that fail are left out.
    pub(super) fn read_list<T>(self, read: impl Fn(Self) -> Option<T>) -> Option<Vec<T>> {
        let Value::Array(array) = self.value else {
            return self.expected_type("a list");
        };
        let element = |(index, value): (usize, &'a Value<'a>)| Self {
            problems: self.problems,
            path: format!("{}[{index}]", self.path),
            key_at: value.start(),
            value,
        };
        Some(array.elements.iter().enumerate().map(element).filter_map(read).collect())
    }

    /// Reads an object. A duplicate key is reported, and its first value is used.
    pub(super) fn read_object(self) -> Option<ObjectReader<'a>> {
        let Value::Object(object) = self.value else {
            return self.expected_type("an object");
        };
        let (mut seen, mut entries) = (HashSet::new(), Vec::new());
        for property in &object.properties {
            let key = property.name.as_str();
            let path = join_path(&self.path, key);
            let field =
                Self { problems: self.problems, path, key_at: property.start(), value: &property.value };
            match seen.insert(key) {
                true => entries.push((key, field)),
                false => field.key_error("duplicate key in the same object: remove one"),
            }
        }
        Some(ObjectReader { field: self, entries, known: Vec::new() })
    }
}

/// An object whose keys are taken one by one. Keys that nobody takes are unknown.
pub(super) struct ObjectReader<'a> {
    field: FieldReader<'a>,
    entries: Vec<(&'a str, FieldReader<'a>)>,
    known: Vec<&'static str>,
}

impl<'a> ObjectReader<'a> {
    /// Returns the object as a value.
    pub(super) fn field(&self) -> &FieldReader<'a> {
        &self.field
    }

    /// Returns the value of a key without taking it.
    pub(super) fn peek(&self, key: &str) -> Option<&FieldReader<'a>> {
        self.entries.iter().find(|(name, _)| *name == key).map(|(_, field)| field)
    }

    /// Takes the value of a key and marks the key as known.
    pub(super) fn take(&mut self, key: &'static str) -> Option<FieldReader<'a>> {
        self.known.push(key);
        let index = self.entries.iter().position(|(name, _)| *name == key)?;
        Some(self.entries.remove(index).1)
    }

    /// Takes and reads the value of a key.
    pub(super) fn read<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(FieldReader<'a>) -> Option<T>,
    ) -> Option<T> {
        self.take(key).and_then(read)
    }

    /// Reads a duration of at least one millisecond.
    pub(super) fn read_millis_or(&mut self, key: &'static str, default: Duration) -> Duration {
        self.read(key, FieldReader::read_millis).unwrap_or(default)
    }

    /// Reads an integer of at least 1.
    pub(super) fn read_positive_or(&mut self, key: &'static str, default: usize) -> usize {
        self.read(key, FieldReader::read_positive).map_or(default, |number| number as usize)
    }

    /// Returns the remaining entries, for objects whose keys are user-chosen names.
    pub(super) fn into_entries(self) -> Vec<(&'a str, FieldReader<'a>)> {
        self.entries
    }

    /// Warns about the remaining keys. Not an error: other programs put their own keys here.
    pub(super) fn warn_unknown_keys(self) {
        for (key, field) in self.entries.iter().take(MAX_PER_SEVERITY + 1) {
            match nearest_name(self.known.iter().copied(), key) {
                Some(known) => field.key_warning(format_args!("unknown key, did you mean `{known}`?")),
                None => field.key_warning("unknown key"),
            }
        }
    }
}

fn join_path(path: &str, key: &str) -> String {
    let is_plain = !key.is_empty() && key.chars().all(|c| c.is_alphanumeric() || "_-$".contains(c));
    match (is_plain && key.len() <= MAX_QUOTED_CHARS, path.is_empty()) {
        (true, true) => key.into(),
        (true, false) => format!("{path}.{key}"),
        (false, _) => format!("{path}[\"{}\"]", escape_and_truncate(key, MAX_QUOTED_CHARS)),
    }
}

fn list_alternatives<T>(words: &[(&str, T)]) -> String {
    let words: Vec<String> = words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
    match words.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

fn quote(value: &Value) -> String {
    match value {
        Value::StringLit(text) => format!("\"{}\"", escape_and_truncate(&text.value, MAX_QUOTED_CHARS)),
        Value::NumberLit(number) => escape_and_truncate(number.value, MAX_QUOTED_CHARS),
        Value::BooleanLit(flag) => flag.value.to_string(),
        other => type_name(other).into(),
    }
}

fn type_name(value: &Value) -> &'static str {
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

    /// Reads `{"it": …}` and returns the value or the problems.
    fn read<T: std::fmt::Debug>(value: &str, read: impl FnOnce(FieldReader) -> Option<T>) -> String {
        let text = format!(r#"{{"it": {value}}}"#);
        let problems = ProblemCollector::default();
        let tree = syntax::parse(&text, &problems).unwrap();
        let it = FieldReader::root(&tree, &problems).read_object().unwrap().read("it", read);
        it.map_or_else(|| Problems(problems.into_problems("f", &text)).to_string(), |it| format!("{it:?}"))
    }

    #[track_caller]
    fn check<T: std::fmt::Debug>(
        values: &[&str],
        reader: impl Fn(FieldReader) -> Option<T> + Copy,
        expected: &str,
    ) {
        for value in values {
            let expected = expected.replace("VALUE", value);
            assert_eq!(read(value, reader), expected);
        }
    }

    #[test]
    fn accepts_every_json_spelling_of_an_integer() {
        check(&["30", "30.0", "3e1", "0.3E+2"], |f| f.read_positive(), "30");
        check(&["0", "-0"], |f| f.read_count(), "0");
        check(&["1500"], |f| f.read_millis(), "1.5s");
    }

    #[test]
    fn quotes_a_value_that_is_no_positive_integer() {
        let wrong = ["0", "-1", "1.5", "\"soon\"", "true", "null"];
        check(&wrong, |f| f.read_positive(), "f:1:8: it: must be a positive integer, is VALUE");
        check(&["[]"], |f| f.read_positive(), "f:1:8: it: must be a positive integer, is a list");
        check(&["-1"], |f| f.read_count(), "f:1:8: it: must be zero or a positive integer, is VALUE");
        check(
            &["4294967296", "1e400"],
            |f| f.read_positive(),
            "f:1:8: it: must be at most 4294967295, is VALUE",
        );
    }

    #[test]
    fn checks_the_bounds_of_a_number() {
        check(&["0.5"], |f| f.read_number(0.0, 1.0), "0.5");
        check(
            &["1.1", "-1", "\"x\""],
            |f| f.read_number(0.0, 1.0),
            "f:1:8: it: must be a number from 0 to 1, is VALUE",
        );
    }

    #[test]
    fn accepts_null_only_with_or_null() {
        check(&["null"], |f| f.or_null(FieldReader::read_positive), "None");
        check(&["7"], |f| f.or_null(FieldReader::read_positive), "Some(7)");
    }

    #[test]
    fn accepts_only_the_given_words() {
        let one = |f: FieldReader| f.read_one_of(&[("a", 1), ("b", 2), ("c", 3)]);
        check(&["\"b\""], one, "2");
        check(&["\"d\"", "7"], one, "f:1:8: it: must be \"a\", \"b\" or \"c\", is VALUE");
    }

    #[test]
    fn truncates_long_quotes() {
        let long = format!("\"{}\"", "x".repeat(1000));
        let short = format!("f:1:8: it: must be true or false, is \"{}…\"", "x".repeat(40));
        assert_eq!(read(&long, |f| f.read_bool()), short);
    }

    #[test]
    fn reports_the_position_of_a_wrong_list_element() {
        let texts = |f: FieldReader| {
            f.read_list(|f| f.read_string().map(str::to_owned)).filter(|texts| texts.len() == 2)
        };
        check(&["[\"a\", \"b\"]"], texts, "[\"a\", \"b\"]");
        check(&["[\"a\", 7]"], texts, "f:1:14: it[1]: must be a string, is 7");
        check(&["\"a\""], texts, "f:1:8: it: must be a list, is a string");
    }

    #[test]
    fn never_quotes_a_secret() {
        check(&["\"x\""], |f| f.read_object().map(|_| ()), "f:1:8: it: must be an object, is a string");
        check(&["\"x\""], |f| f.read_secret_string().map(str::to_owned), "\"x\"");
        check(&["1.50"], |f| f.read_secret_string().map(str::to_owned), "\"1.50\"");
        check(
            &["true"],
            |f| f.read_secret_string().map(str::to_owned),
            "f:1:8: it: must be a string, is a boolean",
        );
    }

    #[test]
    fn finds_the_nearest_known_key() {
        let known = ["command", "cwd", "env", "timeoutMs", "allowedTools", "tools", "type"];
        let cases =
            [("comand", "command"), ("cmd", "command"), ("timeout", "timeoutMs"), ("TimeoutMS", "timeoutMs")];
        for (key, expected) in cases {
            assert_eq!(nearest_name(known, key), Some(expected), "{key}");
        }
        for key in ["autoApprove", "gallery", "x", "", "description"] {
            assert_eq!(nearest_name(known, key), None, "{key}");
        }
    }

    #[test]
    fn paths_put_special_keys_in_brackets() {
        assert_eq!(join_path("mcpServers", "my-files_2"), "mcpServers.my-files_2");
        assert_eq!(join_path("mcpServers", "a b"), "mcpServers[\"a b\"]");
        assert_eq!(join_path("", "a.b\u{1b}"), "[\"a.b\\u{1b}\"]");
        assert_eq!(join_path("a", ""), "a[\"\"]");
    }
}
