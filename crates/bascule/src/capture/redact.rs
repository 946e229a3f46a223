//! Hides secrets in JSON and in texts: by names, by schemas and by the form of known tokens.

mod text;

use std::collections::HashSet;
use std::ops::Range;

use bascule_catalog::NamePattern;
use bascule_script::replace_lone_surrogates;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::schemas::{Budget, SchemaSet, TooComplex};
use crate::redaction::{MASK, SecretForms, mask};

/// Texts that are JSON again are read so deep. Deeper ones are hidden as a whole.
const MAX_NESTED: usize = 4;
/// Replaces a text whose redaction takes too many steps.
const TOO_COMPLEX: &str = "\"(not captured: too complex)\"";
/// Replaces JSON that no value can hold, such as `1e999`. Its names and schemas cannot be looked at.
const UNREADABLE: &str = "\"(not captured: cannot be read)\"";
/// A name with one of these is that of a secret. Names are compared without case, `_`, `-`, `.` and spaces.
const SECRET_NAMES: [&str; 14] = [
    "password",
    "passwd",
    "passphrase",
    "passcode",
    "secret",
    "token",
    "apikey",
    "authorization",
    "credential",
    "privatekey",
    "accesskey",
    "cookie",
    "sessionid",
    "connectionstring",
];
/// A name with one of these as a whole word is that of a secret: `db_pwd`, `userOtp`, but not `author`.
const SECRET_WORDS: [&str; 7] = ["pwd", "pass", "otp", "jwt", "auth", "cred", "creds"];
/// The most values that are searched for in the texts beside a structured result. Beyond it the texts are hidden.
const MAX_COPIES: usize = 64;
/// All of them together may have this many bytes.
const MAX_COPIED_BYTES: usize = 16 << 10;

pub(super) struct Redactor<'a> {
    /// Further names, in small letters.
    pub(super) names: &'a [String],
    /// The configured secrets.
    pub(super) secrets: &'a SecretForms,
}

/// Returns true for the name of a secret, without those of the configuration.
pub(crate) fn is_secret_name(name: &str) -> bool {
    let lower = name.to_lowercase();
    let plain: String = lower.chars().filter(|c| !"_-. ".contains(*c)).collect();
    SECRET_NAMES.iter().any(|secret| plain.contains(secret))
        || words_of(name).iter().any(|word| SECRET_WORDS.contains(&word.as_str()))
}

impl Redactor<'_> {
    /// Returns JSON without secrets.
    pub(super) fn redact_json(&self, text: &str, schema: Option<&str>) -> String {
        let mut redacted =
            self.try_redact_json(text, schema).unwrap_or_else(|TooComplex| TOO_COMPLEX.to_owned());
        // A number, or a form that crosses values.
        self.secrets.hide(&mut redacted);
        redacted
    }

    /// Returns a text for people without secrets.
    pub(super) fn redact_message(&self, text: &str) -> String {
        let redacted = self.redact_text(text, 0, &mut Budget::new());
        let mut redacted = redacted.unwrap_or_else(|TooComplex| MASK.to_owned());
        self.secrets.hide(&mut redacted);
        redacted
    }

    fn try_redact_json(&self, text: &str, schema: Option<&str>) -> Result<String, TooComplex> {
        let mut budget = Budget::new();
        let ParsedText::Json(mut value) = ParsedText::parse(text) else { return Ok(UNREADABLE.to_owned()) };
        let Some(schema) = schema else {
            self.walk(&mut value, &SchemaSet::none(), 0, &mut budget)?;
            return Ok(value.to_string());
        };
        let ParsedText::Json(schema) = ParsedText::parse(schema) else { return Ok(UNREADABLE.to_owned()) };
        let schemas = SchemaSet::of_root(&schema, &mut budget)?;
        self.redact_copies(&mut value, &schemas, &mut budget)?;
        self.walk(&mut value, &schemas, 0, &mut budget)?;
        // The structured content of a result has the schema; the result itself has none.
        if let Some(structured) = value.get_mut("structuredContent") {
            self.walk(structured, &schemas, 0, &mut budget)?;
        }
        Ok(value.to_string())
    }

    /// Hides the secrets of the schema in the texts beside a structured result. Servers repeat it there: as a whole in one text,
    /// or each item of a list in a text of its own.
    fn redact_copies(
        &self,
        result: &mut Value,
        schemas: &SchemaSet<'_>,
        budget: &mut Budget,
    ) -> Result<(), TooComplex> {
        let mut secrets = HashSet::new();
        if let Some(structured) = result.get("structuredContent") {
            find_secrets(structured, schemas, &mut secrets, budget)?;
        }
        let length: usize = secrets.iter().map(String::len).sum();
        let is_many = secrets.len() > MAX_COPIES || length > MAX_COPIED_BYTES;
        let forms = SecretForms::new(secrets.iter().map(String::as_str).filter(|_| !is_many));
        for text in content_texts(result) {
            if is_many {
                *text = MASK.to_owned();
                continue;
            }
            match ParsedText::parse(text) {
                ParsedText::Json(mut copy) => {
                    self.walk(&mut copy, schemas, 1, budget)?;
                    *text = copy.to_string();
                    forms.hide(text);
                }
                ParsedText::Unreadable => *text = MASK.to_owned(),
                // All secrets are found before one is hidden: it may be a part of another one.
                ParsedText::Plain => {
                    let hidden = [self.find_secrets_in_plain(text), forms.find(text)].concat();
                    *text = mask(text, hidden);
                }
            }
        }
        Ok(())
    }

    fn walk(
        &self,
        value: &mut Value,
        schemas: &SchemaSet<'_>,
        nested: usize,
        budget: &mut Budget,
    ) -> Result<(), TooComplex> {
        budget.take(1)?;
        if !value.is_null() && schemas.is_secret() {
            *value = MASK.into();
            return Ok(());
        }
        match value {
            Value::Object(members) => self.walk_members(members, schemas, nested, budget)?,
            Value::Array(items) => {
                let (first, others) = schemas.of_items(budget)?;
                for (at, item) in items.iter_mut().enumerate() {
                    self.walk(item, first.get(at).unwrap_or(&others), nested, budget)?;
                }
            }
            Value::String(text) => *text = self.redact_text(text, nested, budget)?,
            _ => {}
        }
        Ok(())
    }

    fn walk_members(
        &self,
        members: &mut Map<String, Value>,
        schemas: &SchemaSet<'_>,
        nested: usize,
        budget: &mut Budget,
    ) -> Result<(), TooComplex> {
        let names_secret = self.has_secret_name(members);
        for (name, mut value) in std::mem::take(members) {
            let is_secret =
                self.is_secret_name(&name) || (names_secret && name.eq_ignore_ascii_case("value"));
            match is_secret && !value.is_null() {
                true => value = MASK.into(),
                false => self.walk(&mut value, &schemas.of_member(&name, budget)?, nested, budget)?,
            }
            members.insert(self.redact_plain(&name), value);
        }
        Ok(())
    }

    /// Returns true for a pair like `{"name": "DB_PASSWORD", "value": "…"}`.
    fn has_secret_name(&self, members: &Map<String, Value>) -> bool {
        members.iter().any(|(name, value)| {
            ["name", "key"].iter().any(|key| name.eq_ignore_ascii_case(key))
                && value.as_str().is_some_and(|name| self.is_secret_name(name))
        })
    }

    fn is_secret_name(&self, name: &str) -> bool {
        let lower = name.to_lowercase();
        is_secret_name(name) || self.names.iter().any(|pattern| NamePattern::parse(pattern).matches(&lower))
    }

    /// Hides secrets in a text, which may be JSON again.
    fn redact_text(&self, text: &str, nested: usize, budget: &mut Budget) -> Result<String, TooComplex> {
        if !text.trim_start().starts_with(['{', '[', '"']) {
            return Ok(self.redact_plain(text));
        }
        match ParsedText::parse(text) {
            ParsedText::Json(mut value) if nested < MAX_NESTED => {
                self.walk(&mut value, &SchemaSet::none(), nested + 1, budget)?;
                Ok(value.to_string())
            }
            ParsedText::Json(_) | ParsedText::Unreadable => Ok(MASK.to_owned()),
            ParsedText::Plain => Ok(self.redact_plain(text)),
        }
    }

    /// Hides secrets in a text that is no JSON. All of them are found in the text as it is: after one kind was hidden, a part of
    /// another one could not be told.
    fn redact_plain(&self, text: &str) -> String {
        mask(text, self.find_secrets_in_plain(text))
    }

    fn find_secrets_in_plain(&self, text: &str) -> Vec<Range<usize>> {
        [self.find_in_plain(text), find_private_keys(text), self.secrets.find(text)].concat()
    }
}

/// A text that may be JSON.
enum ParsedText {
    Json(Value),
    /// It is JSON, but a value cannot hold it: a number is too large, or the nesting too deep.
    Unreadable,
    Plain,
}

impl ParsedText {
    /// Each lone surrogate, which Rust text cannot hold, becomes U+FFFD.
    fn parse(text: &str) -> Self {
        if let Ok(value) = serde_json::from_str(text) {
            return Self::Json(value);
        }
        if serde_json::from_str::<&RawValue>(text).is_err() {
            return Self::Plain;
        }
        serde_json::from_str(&replace_lone_surrogates(text)).map_or(Self::Unreadable, Self::Json)
    }
}

/// Returns the words of a name, in small letters.
fn words_of(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_small = false;
    for c in name.chars() {
        if !c.is_alphanumeric() || (was_small && c.is_uppercase()) {
            words.push(String::new());
        }
        words
            .last_mut()
            .expect("there is a first word")
            .extend(c.to_lowercase().filter(|c| c.is_alphanumeric()));
        was_small = c.is_lowercase() || c.is_numeric();
    }
    words
}

/// Returns the texts of a tool's result, which usually repeat its structured content.
fn content_texts(result: &mut Value) -> impl Iterator<Item = &mut String> {
    let items = result.get_mut("content").and_then(Value::as_array_mut).into_iter().flatten();
    items.filter_map(|item| {
        let holder = if item.get("resource").is_some() { item.get_mut("resource")? } else { item };
        match holder.get_mut("text")? {
            Value::String(text) => Some(text),
            _ => None,
        }
    })
}

/// Adds the secrets of a value to `secrets`.
fn find_secrets(
    value: &Value,
    schemas: &SchemaSet<'_>,
    secrets: &mut HashSet<String>,
    budget: &mut Budget,
) -> Result<(), TooComplex> {
    budget.take(1)?;
    if schemas.is_secret() {
        add_leaves(value, secrets);
        return Ok(());
    }
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                find_secrets(value, &schemas.of_member(name, budget)?, secrets, budget)?;
            }
        }
        Value::Array(items) => {
            let (first, others) = schemas.of_items(budget)?;
            for (at, item) in items.iter().enumerate() {
                find_secrets(item, first.get(at).unwrap_or(&others), secrets, budget)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// Adds the texts and numbers of a secret to `values`.
fn add_leaves(secret: &Value, values: &mut HashSet<String>) {
    match secret {
        Value::String(text) => drop(values.insert(text.clone())),
        Value::Number(number) => drop(values.insert(number.to_string())),
        Value::Array(items) => items.iter().for_each(|item| add_leaves(item, values)),
        Value::Object(members) => members.values().for_each(|value| add_leaves(value, values)),
        _ => {}
    }
}

/// Returns the places of private keys in PEM.
fn find_private_keys(text: &str) -> Vec<Range<usize>> {
    const MARK: &str = "PRIVATE KEY-----";
    let find = |what: &str, from: usize| text[from..].find(what).map(|at| from + at);
    let (mut keys, mut from) = (Vec::new(), 0);
    while let Some(begin) = find("-----BEGIN ", from)
        && let Some(body) = find(MARK, begin).map(|at| at + MARK.len())
    {
        from = find(MARK, body).map_or(text.len(), |at| at + MARK.len());
        keys.push(begin..from);
    }
    keys
}

#[cfg(test)]
mod tests;
