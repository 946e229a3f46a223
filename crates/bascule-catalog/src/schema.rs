//! A compiled JSON Schema, and the one wall behind which the validator stays.
//!
//! Schemas and values both come from strangers. So nothing is ever fetched, what could hurt is refused
//! (`screen`), work is measured (`meter`), and whatever cannot be judged is `Unchecked`, never wrong.

mod findings;
mod meter;
mod regexes;
mod screen;
mod words;

use std::panic::{AssertUnwindSafe, catch_unwind};

use bascule_model::Violation;
use jsonschema::error::ValidationErrorKind;
use jsonschema::{PatternOptions, ReferencingError, ValidationError, Validator};
use serde_json::Value;
use serde_json::value::RawValue;

use findings::{Findings, in_general};
use meter::{Metered, Stopped, metered};
use screen::Cost;
use words::brief;

/// How large the state machine of one regular expression may get.
const PATTERN_BYTES: usize = 1 << 20;
/// How often a regular expression that looks around or refers back may change its mind.
const PATTERN_BACKTRACKS: usize = 10_000;

/// Tells whether values are as a schema wants them. Draft 2020-12 unless `$schema` names another.
#[derive(Debug)]
pub struct Schema {
    validator: Validator<Metered>,
    cost: Cost,
    /// As it came: read again only to explain violations, which is rarer than keeping it parsed is dear.
    text: Box<RawValue>,
}

/// What came of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The value is as the schema wants it.
    Valid,
    /// Every way in which it is not, up to a hundred.
    Violations(Vec<Violation>),
    /// It could not be judged, and should pass.
    Unchecked {
        /// What stood in the way, to be read after "not checked: ".
        why: String,
    },
}

/// Why a schema cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// The parser gave up: nested too deeply, or a number beyond all bounds.
    #[error("the schema cannot be read: {0}")]
    Unreadable(String),
    /// Compiling it would take too long.
    #[error("the schema is {length} bytes long, more than is compiled")]
    TooLong {
        /// In bytes.
        length: usize,
    },
    /// Compiling it would take too much stack.
    #[error("the schema is nested too deeply")]
    TooDeep,
    /// Checking by it could take for ever.
    #[error("the schema refers to itself in too many ways")]
    TooIntricate,
    /// Compiling them, or matching them, would take too long.
    #[error("the schema has too many or too large regular expressions")]
    LargePatterns,
    /// A reference leads out of the schema, and we fetch nothing.
    #[error("the schema refers to `{uri}`, and nothing is fetched")]
    Elsewhere {
        /// Where it leads.
        uri: String,
    },
    /// It breaks the rules for schemas.
    #[error("the schema is broken{place}: {what}", place = at(.pointer))]
    Broken {
        /// Where in the schema.
        pointer: String,
        /// In a sentence.
        what: String,
    },
    /// A bug in the validator.
    #[error("the validator failed on the schema")]
    Panicked,
}

fn at(pointer: &str) -> String {
    if pointer.is_empty() { String::new() } else { format!(" at `{pointer}`") }
}

impl Schema {
    /// Reads and compiles a schema. `format` only annotates; remote references are refused.
    pub fn compile(text: &RawValue) -> Result<Self, SchemaError> {
        screen::screen_text(text.get())?;
        let schema = parse(text).map_err(SchemaError::Unreadable)?;
        let cost = screen::screen(&schema)?;
        let validator = catch_unwind(AssertUnwindSafe(|| build(&schema)));
        let validator = validator.map_err(|_| SchemaError::Panicked)??;
        Ok(Self { validator, cost, text: text.to_owned() })
    }

    /// Judges a value.
    pub fn check(&self, text: &RawValue) -> Verdict {
        let value = match parse(text) {
            Ok(value) => value,
            Err(why) => return Verdict::Unchecked { why },
        };
        match metered(&value, text.get().len(), self.cost, |view| self.validator.is_valid(view)) {
            Ok(true) => Verdict::Valid,
            Ok(false) => self.explain(&value, text.get().len()),
            Err(stopped) => Verdict::Unchecked { why: why(stopped) },
        }
    }

    /// Asks again, this time for every error; if those are too many, for one.
    fn explain(&self, value: &Value, length: usize) -> Verdict {
        let schema = parse(&self.text).unwrap_or_default();
        let all = metered(value, length, self.cost, |view| {
            Findings::collect(self.validator.iter_errors(view), value, &schema).into_verdict()
        });
        let one = |_| {
            metered(value, length, self.cost, |view| {
                Findings::collect(self.validator.validate(view).err().into_iter(), value, &schema)
                    .into_verdict()
            })
        };
        all.or_else(one).unwrap_or_else(|stopped| self.unexplained(stopped))
    }

    /// An expression that backtracks may have given up, which the validator takes for a mismatch. Otherwise
    /// the value is surely wrong, even if it would take too long to say how.
    fn unexplained(&self, stopped: Stopped) -> Verdict {
        match self.cost.backtracks {
            true => Verdict::Unchecked { why: why(stopped) },
            false => Verdict::Violations(vec![in_general()]),
        }
    }
}

fn build(schema: &Value) -> Result<Validator<Metered>, SchemaError> {
    let patterns = PatternOptions::fancy_regex()
        .size_limit(PATTERN_BYTES)
        .dfa_size_limit(PATTERN_BYTES)
        .backtrack_limit(PATTERN_BACKTRACKS);
    jsonschema::options_for::<Metered>()
        .offline()
        .should_validate_formats(false)
        .with_pattern_options(patterns)
        .build(schema)
        .map_err(|error| refusal(&error))
}

fn refusal(error: &ValidationError<'_>) -> SchemaError {
    match error.kind() {
        ValidationErrorKind::Referencing(ReferencingError::Unretrievable { uri, .. }) => {
            SchemaError::Elsewhere { uri: brief(uri, 200) }
        }
        _ => {
            let Violation { pointer, message } = Findings::first(error);
            SchemaError::Broken { pointer, what: message }
        }
    }
}

/// A `RawValue` is always JSON, so what fails here is more than a `Value` can hold.
fn parse(text: &RawValue) -> Result<Value, String> {
    serde_json::from_str(text.get()).map_err(|error| brief(&error.to_string(), 200))
}

fn why(stopped: Stopped) -> String {
    match stopped {
        Stopped::TooMuchWork => "checking it against its schema would take too long",
        Stopped::TooDeep => "checking it against its schema would nest too deeply",
        Stopped::Panicked => "the validator failed on it",
    }
    .into()
}

#[cfg(test)]
mod tests;
