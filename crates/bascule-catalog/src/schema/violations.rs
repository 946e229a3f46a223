//! Converts the validator's errors to violations: selects the helpful ones and drops the uncertain ones.

use bascule_model::Violation;
use jsonschema::error::ValidationErrorKind::{self, *};
use jsonschema::{JsonType, ValidationError};
use serde_json::Value;

use super::Validation;
use super::message::{
    MAX_MESSAGE, describe_error, describe_type_mismatch, describe_unknown_property, expected_types,
    format_choices, truncate,
};
use crate::nearest::nearest_name;

/// The maximum number of violations.
const MAX_VIOLATIONS: usize = 100;
/// The maximum number of known properties that an unknown one is compared with.
const MAX_COMPARED: usize = 200;
/// The maximum nesting of alternatives that are explained.
const MAX_NESTING: usize = 4;
/// The maximum length of a pointer in bytes.
const MAX_POINTER: usize = 1000;
/// The parser stores integers from this value on as floating-point numbers, which are rounded.
const FIRST_ROUNDED: f64 = 9_223_372_036_854_775_808.0;

pub(super) struct ViolationCollector<'s> {
    value: &'s Value,
    schema: &'s Value,
    violations: Vec<Violation>,
    omitted: usize,
    doubt: Option<&'static str>,
}

impl<'s> ViolationCollector<'s> {
    pub(super) fn collect<'i>(
        errors: impl Iterator<Item = ValidationError<'i>>,
        value: &'s Value,
        schema: &'s Value,
    ) -> Self {
        let mut collector = Self::new(value, schema);
        errors.for_each(|error| collector.add(&error, 0));
        collector
    }

    /// Converts a single error.
    pub(super) fn convert(error: &ValidationError<'_>) -> Violation {
        let mut collector = ViolationCollector::new(&Value::Null, &Value::Null);
        collector.add(error, 0);
        collector.violations.into_iter().next().unwrap_or_else(general_violation)
    }

    fn new(value: &'s Value, schema: &'s Value) -> Self {
        Self { value, schema, violations: Vec::new(), omitted: 0, doubt: None }
    }

    /// A value with only uncertain errors is `Unchecked`.
    pub(super) fn into_validation(mut self) -> Validation {
        if let (true, Some(doubt)) = (self.violations.is_empty(), self.doubt) {
            return Validation::Unchecked { reason: doubt.into() };
        }
        if self.omitted > 0 {
            let message = format!("and {} more", self.omitted);
            self.violations.push(Violation { pointer: String::new(), message });
        }
        match self.violations.is_empty() {
            true => Validation::Violations(vec![general_violation()]),
            false => Validation::Violations(self.violations),
        }
    }

    fn add(&mut self, error: &ValidationError<'_>, nesting: usize) {
        if let Some(doubt) = doubt_about(error) {
            self.doubt = Some(doubt);
            return;
        }
        let location = error.instance_path().as_str();
        match error.kind() {
            AdditionalProperties { unexpected } | UnevaluatedProperties { unexpected } => {
                self.add_unknown_properties(error, unexpected);
            }
            FalseSchema if !self.forbidden_members(error).is_empty() => {
                self.add_unknown_properties(error, &self.forbidden_members(error));
            }
            AnyOf { context } | OneOfNotValid { context } => self.add_alternatives(error, context, nesting),
            // The pointer names the missing property, because that is where the correction goes. The validator also
            // reports a present property as missing if `additionalProperties` forbids what `required` demands.
            Required { property } => {
                let name = property.as_str().unwrap_or_default();
                if error.instance().get(name).is_none() {
                    self.push(member_pointer(location, name), describe_error(error));
                }
            }
            PropertyNames { error: inner } => {
                let name = inner.instance().as_str().unwrap_or_default();
                let message = format!("the property name `{}` {}", truncate(name, 60), describe_error(inner));
                self.push(location.into(), message);
            }
            _ => self.push(location.into(), describe_error(error)),
        }
    }

    fn push(&mut self, pointer: String, message: String) {
        let violation =
            Violation { pointer: shorten_pointer(pointer), message: truncate(&message, MAX_MESSAGE) };
        if self.violations.len() == MAX_VIOLATIONS {
            self.omitted += 1;
        } else if !self.violations.contains(&violation) {
            self.violations.push(violation);
        }
    }

    fn add_unknown_properties(&mut self, error: &ValidationError<'_>, unexpected: &[String]) {
        let location = error.instance_path().as_str();
        let known = self.known_properties(error);
        let room = MAX_VIOLATIONS - self.violations.len();
        self.omitted += unexpected.len().saturating_sub(room);
        for name in unexpected.iter().take(room) {
            let message = describe_unknown_property(name, nearest_name(known.iter().copied(), name));
            self.push(member_pointer(location, name), message);
        }
    }

    /// If a schema allows no properties at all, the validator reports only the first one. This returns all.
    fn forbidden_members(&self, error: &ValidationError<'_>) -> Vec<String> {
        let members = self.value.pointer(error.instance_path().as_str()).and_then(Value::as_object);
        let by_name = error.schema_path().as_str().ends_with("/additionalProperties");
        let members = members.filter(|all| by_name && all.values().next() == Some(error.instance()));
        members.into_iter().flat_map(|all| all.keys().cloned()).collect()
    }

    /// Returns the properties that the schema defines and the value lacks.
    fn known_properties(&self, error: &ValidationError<'_>) -> Vec<&'s str> {
        let path = error.schema_path().as_str();
        let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        let schema = self.schema.pointer(parent).and_then(|schema| schema.get("properties"));
        let names = schema.and_then(Value::as_object).into_iter().flat_map(|properties| properties.keys());
        let missing = names.filter(|name| error.instance().get(name.as_str()).is_none());
        missing.map(String::as_str).take(MAX_COMPARED).collect()
    }

    /// No alternative matches. Reports the errors of the one that the value is closest to.
    fn add_alternatives(&mut self, error: &ValidationError<'_>, all: &[Alternative], nesting: usize) {
        let location = error.instance_path().as_str();
        let candidates = closest(all, location);
        match candidates.as_slice() {
            [] => self
                .push(location.into(), describe_type_mismatch(&all_types(all, location), error.instance())),
            [only] if nesting < MAX_NESTING => {
                only.iter().for_each(|error| self.add(error, nesting + 1));
            }
            [first, ..] => match shared_choice(&candidates) {
                Some((pointer, message)) => self.push(pointer, message),
                None => {
                    let (count, first) = (all.len(), self.describe_first(first, location, nesting));
                    self.push(
                        location.into(),
                        format!("matches none of the {count} alternatives; the closest: {first}"),
                    );
                }
            },
        }
    }

    fn describe_first(&self, errors: &[ValidationError<'_>], location: &str, nesting: usize) -> String {
        if nesting >= MAX_NESTING {
            return "nested too deeply to explain".into();
        }
        let mut inner = ViolationCollector::new(self.value, self.schema);
        errors.iter().for_each(|error| inner.add(error, nesting + 1));
        match inner.violations.first() {
            Some(first) if first.pointer == location => first.message.clone(),
            Some(first) => format!("at `{}`, {}", first.pointer, first.message),
            None => "cannot be checked".into(),
        }
    }
}

/// The errors of one alternative.
type Alternative = Vec<ValidationError<'static>>;

/// The violation to report if the details are unknown.
pub(super) fn general_violation() -> Violation {
    Violation { pointer: String::new(), message: "does not match its schema".into() }
}

/// Returns the alternatives that the value is probably meant for, the one with the fewest errors first: those of
/// the right type and, if there are any, only those whose constants (`"kind": "circle"`) match.
fn closest<'e>(alternatives: &'e [Alternative], location: &str) -> Vec<&'e Alternative> {
    let mut candidates: Vec<_> =
        alternatives.iter().filter(|errors| type_error(errors, location).is_none()).collect();
    if candidates.iter().any(|errors| constant_error(errors).is_none()) {
        candidates.retain(|errors| constant_error(errors).is_none());
    }
    candidates.sort_by_key(|errors| errors.len());
    candidates
}

fn type_error<'e>(errors: &'e Alternative, location: &str) -> Option<&'e ValidationErrorKind> {
    let errors_here = errors.iter().filter(|error| error.instance_path().as_str() == location);
    errors_here.map(|error| error.kind()).find(|kind| matches!(kind, Type { .. }))
}

fn constant_error(errors: &Alternative) -> Option<&ValidationError<'static>> {
    errors.iter().find(|error| matches!(error.kind(), Constant { .. } | Enum { .. }))
}

/// If one constant distinguishes all alternatives, returns its pointer and all choices.
fn shared_choice(alternatives: &[&Alternative]) -> Option<(String, String)> {
    let errors: Option<Vec<_>> = alternatives.iter().map(|errors| constant_error(errors)).collect();
    let errors = errors?;
    let pointer = errors.first()?.instance_path().as_str();
    let choices = errors.iter().flat_map(|error| choices(error.kind()));
    let is_shared = errors.iter().all(|error| error.instance_path().as_str() == pointer);
    is_shared.then(|| (pointer.into(), format!("must be {}", format_choices(choices))))
}

fn choices(kind: &ValidationErrorKind) -> &[Value] {
    match kind {
        Constant { expected_value } => std::slice::from_ref(expected_value),
        Enum { options } => options.as_array().map_or(&[], Vec::as_slice),
        _ => &[],
    }
}

fn all_types(alternatives: &[Alternative], location: &str) -> Vec<JsonType> {
    let mut types = Vec::new();
    for errors in alternatives {
        if let Some(Type { kind }) = type_error(errors, location) {
            let new: Vec<_> = expected_types(kind).into_iter().filter(|kind| !types.contains(kind)).collect();
            types.extend(new);
        }
    }
    types
}

/// Returns the reason why an error may be wrong: the validator reached a limit or compared rounded numbers.
fn doubt_about(error: &ValidationError<'_>) -> Option<&'static str> {
    let value = error.instance().as_ref();
    let rounded = match error.kind() {
        BacktrackLimitExceeded { .. } | RegexEngineFailure { .. } => {
            return Some("a regular expression of its schema takes too long on it");
        }
        Minimum { limit } | Maximum { limit } | ExclusiveMinimum { limit } | ExclusiveMaximum { limit } => {
            has_rounded_number(value) && has_rounded_number(limit)
        }
        MultipleOf { .. } | UniqueItems | Not { .. } | OneOfMultipleValid { .. } => has_rounded_number(value),
        AnyOf { context } | OneOfNotValid { context } => {
            let mut doubts = context.iter().filter_map(|errors| doubt_about_alternative(errors));
            return doubts.next();
        }
        _ => false,
    };
    rounded.then_some("it contains a number too large to be compared exactly")
}

/// An alternative is uncertain if all its errors are.
fn doubt_about_alternative(errors: &Alternative) -> Option<&'static str> {
    let doubts: Option<Vec<_>> = errors.iter().map(|error| doubt_about(error)).collect();
    doubts?.first().copied()
}

fn has_rounded_number(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.is_f64() && number.as_f64().is_some_and(|n| n.abs() >= FIRST_ROUNDED),
        Value::Array(items) => items.iter().any(has_rounded_number),
        Value::Object(members) => members.values().any(has_rounded_number),
        _ => false,
    }
}

/// Returns the pointer of an object's member.
pub(crate) fn member_pointer(pointer: &str, name: &str) -> String {
    format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// Replaces a pointer that is too long by that of its nearest ancestor that is not.
fn shorten_pointer(mut pointer: String) -> String {
    while pointer.len() > MAX_POINTER {
        pointer.truncate(pointer.rfind('/').unwrap_or(0));
    }
    pointer
}
