//! Checks the arguments of a call that are written as literals against the tool's input schema.

use std::borrow::Cow;
use std::collections::HashMap;

use oxc::ast::ast::{
    Argument, ArrayExpressionElement, Expression, ObjectExpression, ObjectProperty, ObjectPropertyKind,
    PropertyKind, UnaryOperator,
};
use oxc::span::GetSpan;
use serde_json::Value;

use super::targets::Target;
use super::{Checker, Finding, FindingKind};
use crate::argument_keys::ArgumentKeys;
use crate::names;

/// Objects below this depth are not checked.
const MAX_DEPTH: usize = 4;
/// Number of schemas to visit for one literal.
const MAX_SCHEMAS: usize = 200;

/// A literal of the script, as far as its type is known.
enum Literal<'e> {
    Text(Option<&'e str>),
    Number(f64),
    Boolean,
    Null,
    Array,
    Object,
    Function,
    /// A call of a tool without `await`.
    Promise,
}

impl Literal<'_> {
    fn type_name(&self) -> &'static str {
        match self {
            Self::Text(_) => "string",
            Self::Number(_) => "number",
            Self::Boolean => "boolean",
            Self::Null => "null",
            Self::Array => "array",
            Self::Object => "object",
            Self::Function => "function",
            Self::Promise => "promise",
        }
    }
}

/// The place of a mistake, and its description.
struct Mistake {
    offset: u32,
    message: String,
    /// The bridge refuses the call.
    is_refused: bool,
}

/// The path of a value in the arguments, and what is known of it.
#[derive(Clone, Copy)]
struct ValuePath<'p> {
    /// The keys that a call respells in this value.
    keys: Option<&'p ArgumentKeys>,
    /// The whole schema.
    root: &'p Value,
    path: &'p str,
    /// The number of levels to check.
    depth: usize,
}

impl<'a> Checker<'a, '_> {
    pub(super) fn check_arguments(
        &mut self,
        tool: (usize, usize),
        offset: u32,
        arguments: &[Argument<'a>],
        is_certain: bool,
    ) {
        let (server, index) = tool;
        let entry = &self.tools.servers()[server].tools[index];
        let Some(schema) = entry.input_schema() else { return };
        let keys = entry.argument_keys();
        let mut mistakes = Vec::new();
        match arguments.first() {
            None => missing_keys(schema, &[], "", offset, &mut mistakes),
            Some(argument) => match argument.as_expression().map(Expression::get_inner_expression) {
                Some(Expression::ObjectExpression(object)) => {
                    let at = ValuePath { keys: Some(keys), root: schema, path: "", depth: MAX_DEPTH };
                    self.check_object(object, schema, at, &mut mistakes);
                    self.check_unknown_keys(object, keys, schema, &mut mistakes);
                }
                Some(other) => {
                    if let Some(literal) =
                        self.literal(other).filter(|literal| !matches!(literal, Literal::Object))
                    {
                        let message = format!("it takes one object, not a {}", literal.type_name());
                        mistakes.push(Mistake { offset: other.span().start, message, is_refused: true });
                    }
                }
                None => {}
            },
        }
        let (id, signature) = (self.tool_id(tool), entry.signature.clone());
        let is_certain = is_certain && !entry.is_unchecked;
        for Mistake { offset, message, is_refused } in mistakes {
            self.findings.push(Finding {
                offset,
                message: format!("{id}: {message}"),
                is_certain: is_certain && is_refused,
                kind: FindingKind::Call("INVALID_INPUT"),
                tool: Some(id.clone()),
                signature: signature.clone(),
                missing_member: None,
            });
        }
    }

    fn check_unknown_keys(
        &self,
        object: &ObjectExpression<'a>,
        keys: &ArgumentKeys,
        schema: &Value,
        mistakes: &mut Vec<Mistake>,
    ) {
        for (index, property) in object.properties.iter().enumerate() {
            let (ObjectPropertyKind::ObjectProperty(property), Some(key)) = (property, key_of(property))
            else {
                continue;
            };
            if keys.is_unknown(&key) {
                let is_refused = schema["additionalProperties"] == Value::Bool(false)
                    && is_plain(schema)
                    && is_final(object, index)
                    && self.is_kept(&property.value);
                mistakes.push(Mistake {
                    offset: property.key.span().start,
                    message: keys.unknown_key(&key),
                    is_refused,
                });
            }
        }
    }

    /// Returns true if JSON surely keeps the value: it leaves out keys whose value is `undefined`.
    fn is_kept(&self, value: &Expression<'a>) -> bool {
        let literal = self.literal(value.get_inner_expression());
        literal.is_some_and(|literal| !matches!(literal, Literal::Function | Literal::Promise))
    }

    /// Checks the values of an object, and that required keys are there.
    fn check_object(
        &self,
        object: &ObjectExpression<'a>,
        schema: &Value,
        at: ValuePath<'_>,
        mistakes: &mut Vec<Mistake>,
    ) {
        let given: Vec<Option<Cow<'_, str>>> = object.properties.iter().map(key_of).collect();
        let is_complete = given.iter().all(Option::is_some);
        let spelled = spelled_keys(at.keys, given.iter().flatten());
        for (index, (property, key)) in object.properties.iter().zip(&given).enumerate() {
            let (ObjectPropertyKind::ObjectProperty(property), Some(key)) = (property, key) else { continue };
            let name = spelled.get(&**key).copied().unwrap_or(key);
            let Some(value) = schema["properties"].get(name) else { continue };
            let path = match at.path {
                "" => name.to_owned(),
                path => format!("{path}.{name}"),
            };
            let keys = at.keys.and_then(|keys| keys.property(name));
            let found = mistakes.len();
            self.check_value(&property.value, value, ValuePath { keys, path: &path, ..at }, mistakes);
            // A key that another part of the object has in the schema's spelling is not respelled: it stays an unknown one.
            let is_closed = schema["additionalProperties"] == Value::Bool(false);
            let is_final = is_final(object, index) && (is_complete || is_closed || name == key);
            mistakes[found..].iter_mut().for_each(|mistake| mistake.is_refused &= is_final);
        }
        if is_complete && !has_json_form(object) {
            let given: Vec<&str> = spelled.into_values().collect();
            missing_keys(schema, &given, at.path, object.span.start, mistakes);
        }
    }

    fn check_value(
        &self,
        value: &Expression<'a>,
        schema: &Value,
        at: ValuePath<'_>,
        mistakes: &mut Vec<Mistake>,
    ) {
        let ValuePath { root, path, keys, .. } = at;
        let value = value.get_inner_expression();
        let (Some(literal), Some(depth)) = (self.literal(value), at.depth.checked_sub(1)) else { return };
        let schema = resolved(schema, root);
        let offset = value.span().start;
        let mut budget = MAX_SCHEMAS;
        let message = match &literal {
            Literal::Promise => {
                Some(format!("the argument `{path}` is a promise: write `await` before the call"))
            }
            Literal::Function => Some(format!("the argument `{path}` is a function, which is no JSON")),
            literal if !accepts(schema, root, literal, &mut budget) => Some(refusal(schema, path, literal)),
            _ => None,
        };
        match (message, value) {
            (Some(message), _) => {
                // JSON leaves out functions, so the bridge may accept the other arguments.
                let is_refused = !matches!(literal, Literal::Function);
                mistakes.push(Mistake { offset, message, is_refused });
            }
            (None, Expression::ObjectExpression(object)) if is_plain(schema) => {
                self.check_object(object, schema, ValuePath { depth, ..at }, mistakes);
            }
            (None, Expression::ArrayExpression(array)) if is_plain(schema) && schema["items"].is_object() => {
                let keys = keys.and_then(ArgumentKeys::items);
                // The first elements have schemas of their own, and a spread may have any number of them.
                let own = schema["prefixItems"].as_array().map_or(0, Vec::len);
                let has_spread = array.elements.iter().any(|element| element.is_spread());
                let own = if own > 0 && has_spread { array.elements.len() } else { own };
                for (index, element) in array.elements.iter().enumerate().skip(own) {
                    let Some(element) = element_expression(element) else { continue };
                    let path = &*format!("{path}[{index}]");
                    self.check_value(
                        element,
                        &schema["items"],
                        ValuePath { keys, path, depth, ..at },
                        mistakes,
                    );
                }
            }
            _ => {}
        }
    }

    fn literal<'e>(&self, expression: &'e Expression<'a>) -> Option<Literal<'e>> {
        Some(match expression {
            Expression::StringLiteral(text) => Literal::Text(Some(text.value.as_str())),
            Expression::TemplateLiteral(_) => Literal::Text(None),
            Expression::NumericLiteral(number) => Literal::Number(number.value),
            Expression::UnaryExpression(unary) if unary.operator == UnaryOperator::UnaryNegation => {
                match &unary.argument {
                    Expression::NumericLiteral(number) => Literal::Number(-number.value),
                    _ => return None,
                }
            }
            Expression::BooleanLiteral(_) => Literal::Boolean,
            Expression::NullLiteral(_) => Literal::Null,
            Expression::ArrayExpression(_) => Literal::Array,
            Expression::ObjectExpression(object) if has_json_form(object) => return None,
            Expression::ObjectExpression(_) => Literal::Object,
            Expression::ArrowFunctionExpression(_) | Expression::FunctionExpression(_) => Literal::Function,
            Expression::CallExpression(call) => match self.resolve(&call.callee, 0) {
                Target::Tool { .. } => Literal::Promise,
                _ => return None,
            },
            _ => return None,
        })
    }
}

/// Returns true if no later part of the object can replace the property, and the object has no form of its own in JSON.
fn is_final(object: &ObjectExpression<'_>, index: usize) -> bool {
    let name = |property: &ObjectPropertyKind<'_>| key_of(property).map(|name| names::to_snake_case(&name));
    let own = name(&object.properties[index]);
    let is_replaced =
        object.properties[index + 1..].iter().map(name).any(|later| later.is_none() || later == own);
    !is_replaced && !has_json_form(object)
}

/// Returns true if `toJSON` may convert the object: it has one, or a prototype that may have one.
fn has_json_form(object: &ObjectExpression<'_>) -> bool {
    object.properties.iter().any(|property| match property {
        ObjectPropertyKind::ObjectProperty(property) => {
            property.key.static_name().is_some_and(|name| name == "toJSON") || is_prototype(property)
        }
        ObjectPropertyKind::SpreadProperty(_) => false,
    })
}

/// Returns true for `__proto__: value`, which is no key of the object.
fn is_prototype(property: &ObjectProperty<'_>) -> bool {
    let is_plain = !property.computed && !property.shorthand && !property.method;
    is_plain && property.kind == PropertyKind::Init && property.key.is_specific_static_name("__proto__")
}

fn element_expression<'a, 'e>(element: &'e ArrayExpressionElement<'a>) -> Option<&'e Expression<'a>> {
    element.as_expression()
}

/// Returns true if the schema has no part that could allow more than its plain keywords say.
fn is_plain(schema: &Value) -> bool {
    ["anyOf", "oneOf", "allOf", "$ref", "if", "not", "patternProperties"]
        .iter()
        .all(|key| schema.get(key).is_none())
}

/// Follows a reference within the document.
pub(super) fn resolved<'v>(schema: &'v Value, root: &'v Value) -> &'v Value {
    let pointer = schema["$ref"].as_str().and_then(|pointer| pointer.strip_prefix('#'));
    pointer.and_then(|pointer| root.pointer(pointer)).unwrap_or(schema)
}

/// Returns the name of a property; `None` for a part of the object whose keys are not known.
fn key_of<'e>(property: &'e ObjectPropertyKind<'_>) -> Option<Cow<'e, str>> {
    match property {
        ObjectPropertyKind::ObjectProperty(property) if !is_prototype(property) => property.key.static_name(),
        ObjectPropertyKind::ObjectProperty(_) | ObjectPropertyKind::SpreadProperty(_) => None,
    }
}

/// Returns the spelling of each key in the call, by its spelling in the script.
fn spelled_keys<'k>(
    keys: Option<&'k ArgumentKeys>,
    given: impl Iterator<Item = &'k Cow<'k, str>>,
) -> HashMap<&'k str, &'k str> {
    let mut distinct: Vec<&str> = Vec::new();
    for key in given {
        if !distinct.contains(&&**key) {
            distinct.push(key);
        }
    }
    let respelled = keys.map_or(Vec::new(), |keys| keys.respelled_keys(&distinct));
    let respelled = respelled.into_iter().chain(std::iter::repeat(None));
    distinct.iter().zip(respelled).map(|(key, new_key)| (*key, new_key.unwrap_or(key))).collect()
}

/// Reports the required keys that are not among the given ones, which are spelled as in the call.
fn missing_keys(schema: &Value, given: &[&str], path: &str, offset: u32, mistakes: &mut Vec<Mistake>) {
    if !is_plain(schema) {
        return;
    }
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let dot = if path.is_empty() { "" } else { "." };
    let missing: Vec<String> =
        required.filter(|name| !given.contains(name)).map(|name| format!("`{path}{dot}{name}`")).collect();
    if !missing.is_empty() {
        let message = match missing.as_slice() {
            [one] => format!("the required argument {one} is missing"),
            all => format!("the required arguments {} are missing", all.join(", ")),
        };
        mistakes.push(Mistake { offset, message, is_refused: true });
    }
}

/// Returns false only if the schema surely refuses the literal. `budget` is the number of schemas to visit: when it is spent, the
/// literal is accepted.
fn accepts(schema: &Value, root: &Value, literal: &Literal<'_>, budget: &mut usize) -> bool {
    let Some(rest) = budget.checked_sub(1) else { return true };
    *budget = rest;
    let schema = resolved(schema, root);
    for keyword in ["anyOf", "oneOf"] {
        if let Some(alternatives) = schema[keyword].as_array() {
            return alternatives.iter().any(|schema| accepts(schema, root, literal, budget));
        }
    }
    if let (Some(allowed), Literal::Text(Some(text))) = (schema["enum"].as_array(), literal)
        && !allowed.iter().any(|value| value.as_str() == Some(text))
    {
        return false;
    }
    let is_type = |name: &str| match (name, literal) {
        ("string", Literal::Text(_)) | ("boolean", Literal::Boolean) | ("null", Literal::Null) => true,
        ("array", Literal::Array) | ("object", Literal::Object) | ("number", Literal::Number(_)) => true,
        ("integer", Literal::Number(number)) => number.fract() == 0.0,
        _ => !["string", "boolean", "null", "array", "object", "number", "integer"].contains(&name),
    };
    match &schema["type"] {
        Value::String(name) => is_type(name),
        Value::Array(names) => names.iter().filter_map(Value::as_str).any(is_type),
        _ => true,
    }
}

fn refusal(schema: &Value, path: &str, literal: &Literal<'_>) -> String {
    if let (Some(allowed), Literal::Text(Some(text))) = (schema["enum"].as_array(), literal) {
        let allowed: Vec<String> = allowed.iter().take(20).map(ToString::to_string).collect();
        return format!("the argument `{path}` is {text:?}, but must be one of {}", allowed.join(", "));
    }
    let expected = match &schema["type"] {
        Value::String(name) => name.clone(),
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or "),
        _ => "of another type".into(),
    };
    format!("the argument `{path}` must be {expected}, not {}", literal.type_name())
}
