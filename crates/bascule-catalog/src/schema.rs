//! A compiled JSON Schema. This module hides the validator from the rest of the crate.
//!
//! Schemas and values are untrusted. Remote references are never fetched, expensive schemas are refused
//! (`complexity`), and each check has a budget (`budget`). A result that cannot be checked is `Unchecked`, not invalid;
//! arguments are invalid then.

mod budget;
mod complexity;
mod message;
mod property_tree;
mod regex_cost;
mod violations;

use std::panic::{AssertUnwindSafe, catch_unwind};

use bascule_model::Violation;
use jsonschema::error::ValidationErrorKind;
use jsonschema::{PatternOptions, ReferencingError, ValidationError, Validator};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::arguments::{parse_arguments, parse_result};
use budget::{CheckAborted, MeteredJson, run_quickly, run_with_budget};
use complexity::CheckCost;
use message::truncate;
use property_tree::PropertyTree;
pub(crate) use violations::member_pointer;
use violations::{ViolationCollector, general_violation};

/// The maximum size of the state machine of one regular expression.
const MAX_REGEX_BYTES: usize = 1 << 20;
/// The backtracking limit of a regular expression with look-around or back-references.
const MAX_REGEX_BACKTRACKS: usize = 10_000;

/// The longest value of a quick check.
const QUICK_BYTES: usize = 64 << 10;

/// Validates values. The dialect is draft 2020-12 unless `$schema` names another.
#[derive(Debug)]
pub struct Schema {
    validator: Validator<MeteredJson>,
    cost: CheckCost,
    properties: PropertyTree,
    /// The original text. It is parsed again to explain violations: that is rare, and a parsed copy is large.
    text: Box<RawValue>,
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Validation {
    Valid,
    /// All mismatches, up to a hundred.
    Violations(Vec<Violation>),
    /// The check was not possible; callers let the value pass. The reason completes "not checked: ".
    Unchecked {
        reason: String,
    },
}

/// The reason why a schema cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// Nested too deeply for the parser, or a number out of range.
    #[error("the schema cannot be parsed: {0}")]
    Unparseable(String),
    /// Compiling would take too long.
    #[error("the schema is too long: {length} bytes")]
    TooLong { length: usize },
    /// Compiling would take too much stack.
    #[error("the schema is nested too deeply")]
    TooDeep,
    /// A check could take unlimited time.
    #[error("the schema has too many nested references or combinations")]
    TooComplex,
    /// Compiling or matching them would take too long.
    #[error("the schema has too many or too large regular expressions")]
    RegexTooLarge,
    #[error("the schema refers to `{uri}`; remote schemas are not fetched")]
    RemoteReference { uri: String },
    /// Invalid according to its meta-schema.
    #[error("the schema is invalid{location}: {message}", location = format_location(.pointer))]
    Invalid { pointer: String, message: String },
    /// The validator panicked, which is a bug in it.
    #[error("the validator failed on the schema")]
    Panicked,
}

fn format_location(pointer: &str) -> String {
    if pointer.is_empty() { String::new() } else { format!(" at `{pointer}`") }
}

impl Schema {
    /// Compiles a schema. `format` is not validated; remote references are refused.
    pub fn compile(text: &RawValue) -> Result<Self, SchemaError> {
        complexity::check_length(text.get())?;
        let schema = parse(text).map_err(SchemaError::Unparseable)?;
        let cost = complexity::check_complexity(&schema)?;
        let validator = catch_unwind(AssertUnwindSafe(|| build(&schema)));
        let validator = validator.map_err(|_| SchemaError::Panicked)??;
        let properties = PropertyTree::from_schema(&schema);
        Ok(Self { validator, cost, properties, text: text.to_owned() })
    }

    /// Returns true if short arguments are valid and about a millisecond is enough to see it.
    pub(crate) fn accepts_arguments_quickly(&self, text: &RawValue) -> bool {
        text.get().len() <= QUICK_BYTES
            && parse_arguments(text).is_ok_and(|value| {
                self.properties.find_lookalike(&value).is_none() && self.is_quickly_valid(&value)
            })
    }

    /// Returns true if a short result is valid and about a millisecond is enough to see it.
    pub(crate) fn accepts_result_quickly(&self, text: &RawValue) -> bool {
        text.get().len() <= QUICK_BYTES && parse_result(text).is_ok_and(|value| self.is_quickly_valid(&value))
    }

    fn is_quickly_valid(&self, value: &Value) -> bool {
        run_quickly(value, self.cost, |view| self.validator.is_valid(view)).unwrap_or(false)
    }

    /// Checks the arguments of a call. Arguments that cannot be checked are invalid: a caller could otherwise pass any
    /// arguments by adding a value that the validator cannot read.
    pub fn check_arguments(&self, text: &RawValue) -> Validation {
        let violation = |pointer, message| Validation::Violations(vec![Violation { pointer, message }]);
        let value = match parse_arguments(text) {
            Ok(value) => value,
            Err(reason) => {
                return violation(String::new(), format!("cannot be checked: {}", truncate(&reason, 200)));
            }
        };
        if let Some((key, property)) = self.properties.find_lookalike(&value) {
            return violation(
                String::new(),
                format!("the key `{key}` differs from `{property}` only in letter case"),
            );
        }
        match self.check_value(&value, text.get().len()) {
            Validation::Unchecked { reason } => violation(String::new(), reason),
            validation => validation,
        }
    }

    pub fn check(&self, text: &RawValue) -> Validation {
        match parse_result(text) {
            Ok(value) => self.check_value(&value, text.get().len()),
            Err(reason) => Validation::Unchecked { reason: truncate(&reason, 200) },
        }
    }

    fn check_value(&self, value: &Value, length: usize) -> Validation {
        match run_with_budget(value, length, self.cost, |view| self.validator.is_valid(view)) {
            Ok(true) => Validation::Valid,
            Ok(false) => self.explain(value, length),
            Err(aborted) => Validation::Unchecked { reason: describe_abort(aborted) },
        }
    }

    /// Repeats the check to collect all errors; if the budget is too small for that, only the first.
    fn explain(&self, value: &Value, length: usize) -> Validation {
        let schema = parse(&self.text).unwrap_or_default();
        let all = run_with_budget(value, length, self.cost, |view| {
            ViolationCollector::collect(self.validator.iter_errors(view), value, &schema).into_validation()
        });
        let one = |_| {
            run_with_budget(value, length, self.cost, |view| {
                ViolationCollector::collect(self.validator.validate(view).err().into_iter(), value, &schema)
                    .into_validation()
            })
        };
        all.or_else(one).unwrap_or_else(|aborted| self.unexplained(aborted))
    }

    /// The validator treats a backtracking regular expression that reaches its limit as a mismatch, so with such
    /// expressions the result is uncertain. Otherwise the value is invalid, and only the details are unknown.
    fn unexplained(&self, aborted: CheckAborted) -> Validation {
        match self.cost.backtracks {
            true => Validation::Unchecked { reason: describe_abort(aborted) },
            false => Validation::Violations(vec![general_violation()]),
        }
    }
}

fn build(schema: &Value) -> Result<Validator<MeteredJson>, SchemaError> {
    let patterns = PatternOptions::fancy_regex()
        .size_limit(MAX_REGEX_BYTES)
        .dfa_size_limit(MAX_REGEX_BYTES)
        .backtrack_limit(MAX_REGEX_BACKTRACKS);
    jsonschema::options_for::<MeteredJson>()
        .offline()
        .should_validate_formats(false)
        .with_pattern_options(patterns)
        .build(schema)
        .map_err(|error| schema_error(&error))
}

fn schema_error(error: &ValidationError<'_>) -> SchemaError {
    match error.kind() {
        ValidationErrorKind::Referencing(ReferencingError::Unretrievable { uri, .. }) => {
            SchemaError::RemoteReference { uri: truncate(uri, 200) }
        }
        _ => {
            let Violation { pointer, message } = ViolationCollector::convert(error);
            SchemaError::Invalid { pointer, message }
        }
    }
}

/// A `RawValue` is always valid JSON, so this fails only if a `Value` cannot represent it.
fn parse(text: &RawValue) -> Result<Value, String> {
    serde_json::from_str(text.get()).map_err(|error| truncate(&error.to_string(), 200))
}

fn describe_abort(aborted: CheckAborted) -> String {
    match aborted {
        CheckAborted::TooMuchWork => "checking it against its schema would take too long",
        CheckAborted::TooDeep => "checking it against its schema would nest too deeply",
        CheckAborted::Panicked => "the validator failed on it",
    }
    .into()
}

#[cfg(test)]
mod tests;
