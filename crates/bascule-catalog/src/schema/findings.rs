//! Gathers what is wrong with a value: which errors are told, where, and which are too doubtful to tell.

use bascule_model::Violation;
use jsonschema::error::ValidationErrorKind::{self, *};
use jsonschema::{JsonType, ValidationError};
use serde_json::Value;

use super::Verdict;
use super::words::{SENTENCE, brief, expected_types, one_of, sentence, type_sentence, unknown_property};
use crate::nearest::nearest_text;

/// How many violations are listed.
const LISTED: usize = 100;
/// How many known properties an unknown one is compared with.
const COMPARED: usize = 200;
/// How far we look into alternatives within alternatives.
const NESTED_ALTERNATIVES: usize = 4;
/// The longest pointer, in bytes.
const POINTER: usize = 1000;
/// From here on integers are kept as floating-point numbers, and so rounded.
const ROUNDED: f64 = 9_223_372_036_854_775_808.0;

/// What is known of one value.
pub(super) struct Findings<'s> {
    value: &'s Value,
    schema: &'s Value,
    violations: Vec<Violation>,
    unlisted: usize,
    doubt: Option<&'static str>,
}

impl<'s> Findings<'s> {
    /// Goes through all errors of a value by its schema.
    pub(super) fn collect<'i>(
        errors: impl Iterator<Item = ValidationError<'i>>,
        value: &'s Value,
        schema: &'s Value,
    ) -> Self {
        let mut findings = Self::none(value, schema);
        errors.for_each(|error| findings.add(&error, 0));
        findings
    }

    /// What a single error comes to.
    pub(super) fn first(error: &ValidationError<'_>) -> Violation {
        let mut findings = Findings::none(&Value::Null, &Value::Null);
        findings.add(error, 0);
        findings.violations.into_iter().next().unwrap_or_else(in_general)
    }

    fn none(value: &'s Value, schema: &'s Value) -> Self {
        Self { value, schema, violations: Vec::new(), unlisted: 0, doubt: None }
    }

    /// A value about which there are only doubts passes.
    pub(super) fn into_verdict(mut self) -> Verdict {
        if let (true, Some(doubt)) = (self.violations.is_empty(), self.doubt) {
            return Verdict::Unchecked { why: doubt.into() };
        }
        if self.unlisted > 0 {
            let message = format!("and {} more", self.unlisted);
            self.violations.push(Violation { pointer: String::new(), message });
        }
        match self.violations.is_empty() {
            true => Verdict::Violations(vec![in_general()]),
            false => Verdict::Violations(self.violations),
        }
    }

    fn add(&mut self, error: &ValidationError<'_>, nesting: usize) {
        if let Some(doubt) = doubt_about(error) {
            self.doubt = Some(doubt);
            return;
        }
        let here = error.instance_path().as_str();
        match error.kind() {
            AdditionalProperties { unexpected } | UnevaluatedProperties { unexpected } => {
                self.add_unknown_properties(error, unexpected);
            }
            FalseSchema if !self.forbidden_members(error).is_empty() => {
                self.add_unknown_properties(error, &self.forbidden_members(error));
            }
            AnyOf { context } | OneOfNotValid { context } => self.add_alternatives(error, context, nesting),
            // It points to where the property should be: that is where the mending is done. The validator also
            // misses what is there where `additionalProperties` forbids what `required` demands.
            Required { property } => {
                let name = property.as_str().unwrap_or_default();
                if error.instance().get(name).is_none() {
                    self.push(member(here, name), sentence(error));
                }
            }
            PropertyNames { error: inner } => {
                let name = inner.instance().as_str().unwrap_or_default();
                let message = format!("the property name `{}` {}", brief(name, 60), sentence(inner));
                self.push(here.into(), message);
            }
            _ => self.push(here.into(), sentence(error)),
        }
    }

    fn push(&mut self, pointer: String, message: String) {
        let violation = Violation { pointer: within_bounds(pointer), message: brief(&message, SENTENCE) };
        if self.violations.len() == LISTED {
            self.unlisted += 1;
        } else if !self.violations.contains(&violation) {
            self.violations.push(violation);
        }
    }

    fn add_unknown_properties(&mut self, error: &ValidationError<'_>, unexpected: &[String]) {
        let here = error.instance_path().as_str();
        let known = self.known_properties(error);
        let room = LISTED - self.violations.len();
        self.unlisted += unexpected.len().saturating_sub(room);
        for name in unexpected.iter().take(room) {
            let message = unknown_property(name, nearest_text(known.iter().copied(), name));
            self.push(member(here, name), message);
        }
    }

    /// Where a schema allows no properties at all, the validator tells only of the first.
    fn forbidden_members(&self, error: &ValidationError<'_>) -> Vec<String> {
        let members = self.value.pointer(error.instance_path().as_str()).and_then(Value::as_object);
        let by_name = error.schema_path().as_str().ends_with("/additionalProperties");
        let members = members.filter(|all| by_name && all.values().next() == Some(error.instance()));
        members.into_iter().flat_map(|all| all.keys().cloned()).collect()
    }

    /// The properties that the schema behind an error knows and the value does not have yet.
    fn known_properties(&self, error: &ValidationError<'_>) -> Vec<&'s str> {
        let path = error.schema_path().as_str();
        let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        let schema = self.schema.pointer(parent).and_then(|schema| schema.get("properties"));
        let names = schema.and_then(Value::as_object).into_iter().flat_map(|properties| properties.keys());
        let missing = names.filter(|name| error.instance().get(name.as_str()).is_none());
        missing.map(String::as_str).take(COMPARED).collect()
    }

    /// Of several alternatives, none fits. Whoever wrote the value had one in mind: that one's errors help.
    fn add_alternatives(&mut self, error: &ValidationError<'_>, all: &[Alternative], nesting: usize) {
        let here = error.instance_path().as_str();
        let meant = closest(all, here);
        match meant.as_slice() {
            [] => self.push(here.into(), type_sentence(&all_types(all, here), error.instance())),
            [only] if nesting < NESTED_ALTERNATIVES => {
                only.iter().for_each(|error| self.add(error, nesting + 1));
            }
            [first, ..] => match shared_choice(&meant) {
                Some((place, message)) => self.push(place, message),
                None => {
                    let (count, first) = (all.len(), self.first_of(first, here, nesting));
                    self.push(
                        here.into(),
                        format!("fits none of the {count} alternatives; the closest: {first}"),
                    );
                }
            },
        }
    }

    fn first_of(&self, errors: &[ValidationError<'_>], here: &str, nesting: usize) -> String {
        if nesting >= NESTED_ALTERNATIVES {
            return "nested too deeply to tell".into();
        }
        let mut inner = Findings::none(self.value, self.schema);
        errors.iter().for_each(|error| inner.add(error, nesting + 1));
        match inner.violations.first() {
            Some(first) if first.pointer == here => first.message.clone(),
            Some(first) => format!("at `{}`, {}", first.pointer, first.message),
            None => "cannot be judged".into(),
        }
    }
}

/// The errors that keep a value from being one of its alternatives.
type Alternative = Vec<ValidationError<'static>>;

/// What is said when nothing better can be.
pub(super) fn in_general() -> Violation {
    Violation { pointer: String::new(), message: "does not fit its schema".into() }
}

/// The alternatives that the value may have been meant for, the one with the fewest errors first: those of
/// the right type and, if any, those whose fixed values (`"kind": "circle"`) are as they should be.
fn closest<'e>(alternatives: &'e [Alternative], here: &str) -> Vec<&'e Alternative> {
    let mut meant: Vec<_> = alternatives.iter().filter(|errors| type_error(errors, here).is_none()).collect();
    if meant.iter().any(|errors| fixed_error(errors).is_none()) {
        meant.retain(|errors| fixed_error(errors).is_none());
    }
    meant.sort_by_key(|errors| errors.len());
    meant
}

fn type_error<'e>(errors: &'e Alternative, here: &str) -> Option<&'e ValidationErrorKind> {
    let errors_here = errors.iter().filter(|error| error.instance_path().as_str() == here);
    errors_here.map(|error| error.kind()).find(|kind| matches!(kind, Type { .. }))
}

fn fixed_error(errors: &Alternative) -> Option<&ValidationError<'static>> {
    errors.iter().find(|error| matches!(error.kind(), Constant { .. } | Enum { .. }))
}

/// If all alternatives are told apart by one fixed value, every choice there is for it.
fn shared_choice(alternatives: &[&Alternative]) -> Option<(String, String)> {
    let errors: Option<Vec<_>> = alternatives.iter().map(|errors| fixed_error(errors)).collect();
    let errors = errors?;
    let place = errors.first()?.instance_path().as_str();
    let choices = errors.iter().flat_map(|error| choices(error.kind()));
    let is_shared = errors.iter().all(|error| error.instance_path().as_str() == place);
    is_shared.then(|| (place.into(), format!("must be {}", one_of(choices))))
}

fn choices(kind: &ValidationErrorKind) -> &[Value] {
    match kind {
        Constant { expected_value } => std::slice::from_ref(expected_value),
        Enum { options } => options.as_array().map_or(&[], Vec::as_slice),
        _ => &[],
    }
}

fn all_types(alternatives: &[Alternative], here: &str) -> Vec<JsonType> {
    let mut types = Vec::new();
    for errors in alternatives {
        if let Some(Type { kind }) = type_error(errors, here) {
            types.extend(expected_types(kind));
        }
    }
    let mut seen = Vec::new();
    types.retain(|kind| {
        !seen.contains(kind) && {
            seen.push(*kind);
            true
        }
    });
    types
}

/// Why an error may be none: the validator gave up, or compared numbers that had been rounded.
fn doubt_about(error: &ValidationError<'_>) -> Option<&'static str> {
    let value = error.instance().as_ref();
    let rounded = match error.kind() {
        BacktrackLimitExceeded { .. } | RegexEngineFailure { .. } => {
            return Some("a regular expression of its schema takes too long on it");
        }
        Minimum { limit } | Maximum { limit } | ExclusiveMinimum { limit } | ExclusiveMaximum { limit } => {
            holds_rounded(value) && holds_rounded(limit)
        }
        MultipleOf { .. } | UniqueItems | Not { .. } | OneOfMultipleValid { .. } => holds_rounded(value),
        AnyOf { context } | OneOfNotValid { context } => {
            let mut doubts = context.iter().filter_map(|errors| doubt_about_all(errors));
            return doubts.next();
        }
        _ => false,
    };
    rounded.then_some("it holds a number too large to be compared exactly")
}

/// An alternative is doubtful if there is nothing certain against it.
fn doubt_about_all(errors: &Alternative) -> Option<&'static str> {
    let doubts: Option<Vec<_>> = errors.iter().map(|error| doubt_about(error)).collect();
    doubts?.first().copied()
}

fn holds_rounded(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.is_f64() && number.as_f64().is_some_and(|n| n.abs() >= ROUNDED),
        Value::Array(items) => items.iter().any(holds_rounded),
        Value::Object(members) => members.values().any(holds_rounded),
        _ => false,
    }
}

/// The pointer of an object's member.
fn member(pointer: &str, name: &str) -> String {
    format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// An overlong pointer points to the nearest ancestor that can be written down.
fn within_bounds(mut pointer: String) -> String {
    while pointer.len() > POINTER {
        pointer.truncate(pointer.rfind('/').unwrap_or(0));
    }
    pointer
}
