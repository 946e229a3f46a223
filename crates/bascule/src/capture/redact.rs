//! Hides secrets in JSON and in texts: by names, by schemas and by the form of known tokens.

use bascule_catalog::NamePattern;
use serde_json::{Map, Value};

use super::schemas::{Budget, SchemaSet, TooComplex};

/// Replaces a secret.
const MASK: &str = "***";
/// Texts that are JSON again are read so deep. Deeper ones are hidden as a whole.
const MAX_NESTED: usize = 4;
/// Replaces a text whose redaction takes too many steps.
const TOO_COMPLEX: &str = "\"(not captured: too complex)\"";
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
/// A word that begins like this and is long enough is a token.
const TOKEN_PREFIXES: [&str; 18] = [
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "sk-",
    "sk_live_",
    "rk_live_",
    "xoxb-",
    "xoxp-",
    "xoxa-",
    "AKIA",
    "ASIA",
    "AIza",
    "npm_",
    "hf_",
];
const MIN_TOKEN: usize = 16;

pub(super) struct Redactor {
    /// Further names.
    names: Vec<String>,
}

impl Redactor {
    pub(super) fn new(names: &[String]) -> Self {
        Self { names: names.iter().map(|name| name.to_lowercase()).collect() }
    }

    /// Returns JSON without secrets. A text that is no JSON is treated as a text.
    pub(super) fn redact_json(&self, text: &str, schema: Option<&Value>) -> String {
        self.try_redact_json(text, schema).unwrap_or_else(|TooComplex| TOO_COMPLEX.to_owned())
    }

    /// Returns a text for people without secrets.
    pub(super) fn redact_message(&self, text: &str) -> String {
        self.redact_text(text, 0, &mut Budget::new()).unwrap_or_else(|TooComplex| MASK.to_owned())
    }

    fn try_redact_json(&self, text: &str, schema: Option<&Value>) -> Result<String, TooComplex> {
        let mut budget = Budget::new();
        let Ok(mut value) = serde_json::from_str::<Value>(text) else {
            return self.redact_text(text, 0, &mut budget);
        };
        let Some(schema) = schema else {
            self.walk(&mut value, &SchemaSet::none(), 0, &mut budget)?;
            return Ok(value.to_string());
        };
        let schemas = SchemaSet::of_root(schema, &mut budget)?;
        self.walk(&mut value, &schemas, 0, &mut budget)?;
        // The structured content of a result has the schema; the result itself has none.
        if let Some(structured) = value.get_mut("structuredContent") {
            self.walk(structured, &schemas, 0, &mut budget)?;
        }
        Ok(value.to_string())
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
        for (name, value) in members.iter_mut() {
            if self.is_secret_name(name) && !value.is_null() {
                *value = MASK.into();
                continue;
            }
            self.walk(value, &schemas.of_member(name, budget)?, nested, budget)?;
        }
        Ok(())
    }

    fn is_secret_name(&self, name: &str) -> bool {
        let lower = name.to_lowercase();
        let plain: String = lower.chars().filter(|c| !"_-. ".contains(*c)).collect();
        SECRET_NAMES.iter().any(|secret| plain.contains(secret))
            || self.names.iter().any(|pattern| NamePattern::parse(pattern).matches(&lower))
    }

    /// Hides secrets in a text, which may be JSON again.
    fn redact_text(&self, text: &str, nested: usize, budget: &mut Budget) -> Result<String, TooComplex> {
        if text.trim_start().starts_with(['{', '[', '"'])
            && let Ok(mut value) = serde_json::from_str::<Value>(text)
        {
            if nested == MAX_NESTED {
                return Ok(MASK.to_owned());
            }
            self.walk(&mut value, &SchemaSet::none(), nested + 1, budget)?;
            return Ok(value.to_string());
        }
        Ok(self.redact_words(&hide_private_keys(text)))
    }

    /// Looks at each word: a name before `=` or `:` says that the next word is a secret, and tokens are known by their form.
    fn redact_words(&self, text: &str) -> String {
        let (mut out, mut rest, mut state) = (String::with_capacity(text.len()), text, WordState::default());
        while !rest.is_empty() {
            let start = rest.find(|c| !is_separator(c)).unwrap_or(rest.len());
            out += &rest[..start];
            rest = &rest[start..];
            let end = rest.find(is_separator).unwrap_or(rest.len());
            out += &self.redact_word(&rest[..end], &mut state);
            rest = &rest[end..];
        }
        out
    }

    fn redact_word(&self, word: &str, state: &mut WordState) -> String {
        if word.is_empty() {
            return String::new();
        }
        if std::mem::take(&mut state.is_value) {
            // `Authorization: Bearer TOKEN`, and `password = x` in words of their own.
            if is_scheme(word) || matches!(word, ":" | "=" | ":=" | "=>") {
                state.is_value = true;
                return word.to_owned();
            }
            return MASK.to_owned();
        }
        let follows_name = std::mem::replace(&mut state.is_name, self.is_secret_name(word));
        if matches!(word, ":" | "=" | ":=" | "=>") {
            state.is_value = follows_name;
            return word.to_owned();
        }
        if let Some(at) = word.find(['=', ':']).filter(|at| self.is_secret_name(&word[..*at])) {
            state.is_name = false;
            let value = &word[at + 1..];
            if value.is_empty() || is_scheme(value) {
                state.is_value = true;
                return word.to_owned();
            }
            return format!("{}{MASK}", &word[..=at]);
        }
        // A word that begins with the separator: `"password" ="x"`.
        if let Some(value) = word.strip_prefix(['=', ':']).filter(|value| follows_name && !value.is_empty()) {
            let separator = &word[..word.len() - value.len()];
            return format!("{separator}{MASK}");
        }
        if word.eq_ignore_ascii_case("bearer") {
            state.is_value = true;
            return word.to_owned();
        }
        match is_token(word) {
            true => MASK.to_owned(),
            false => hide_user(word),
        }
    }
}

#[derive(Default)]
struct WordState {
    /// The last word is the name of a secret.
    is_name: bool,
    /// The next word is a secret.
    is_value: bool,
}

fn is_separator(c: char) -> bool {
    c.is_whitespace() || "\"'`,;&?<>(){}[]\\".contains(c)
}

fn is_scheme(word: &str) -> bool {
    ["bearer", "basic", "token", "digest"].iter().any(|scheme| word.eq_ignore_ascii_case(scheme))
}

fn is_token(word: &str) -> bool {
    let is_jwt = word.starts_with("eyJ") && word.matches('.').count() == 2;
    let is_prefixed = word.len() >= MIN_TOKEN && TOKEN_PREFIXES.iter().any(|prefix| word.starts_with(prefix));
    is_jwt || is_prefixed
}

/// Hides the user of a URL.
fn hide_user(word: &str) -> String {
    let Some((scheme, rest)) = word.split_once("://") else { return word.to_owned() };
    let host_end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest[..host_end].rfind('@') {
        Some(at) => format!("{scheme}://{MASK}{}", &rest[at..]),
        None => word.to_owned(),
    }
}

/// Hides private keys in PEM.
fn hide_private_keys(text: &str) -> String {
    const MARK: &str = "PRIVATE KEY-----";
    let (mut out, mut rest) = (String::new(), text);
    while let Some(begin) = rest.find("-----BEGIN ").filter(|begin| rest[*begin..].contains(MARK)) {
        let body = begin + rest[begin..].find(MARK).unwrap_or(0) + MARK.len();
        let end = rest[body..].find(MARK).map_or(rest.len(), |end| body + end + MARK.len());
        out += &rest[..begin];
        out += MASK;
        rest = &rest[end..];
    }
    out + rest
}

#[cfg(test)]
mod tests;
