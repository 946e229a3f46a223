//! Translates a JSON Schema into a type.
//!
//! Keywords that TypeScript cannot express (`not`, `if`, `dependentSchemas`) widen the type and leave a note.

use std::collections::{HashMap, HashSet};

use percent_encoding::percent_decode_str;

use super::json::Json;
use super::names::{pascal_case, take_name};
use super::types::{Alternative, Definition, LiteralKind, Object, Property, Rest, Tuple, Type, TypeDocument};

/// The deepest translated schema.
const MAX_DEPTH: usize = 100;
/// The largest number of translated subschemas of one schema.
const MAX_SUBSCHEMAS: usize = 20_000;
/// The longest translated schema in bytes. The limits below keep the time of its translation short.
const MAX_LENGTH: usize = 256 << 10;
/// The largest number of properties of an object, and of required ones. The others are not declared.
const MAX_PROPERTIES: usize = 2_000;
/// The largest number of members of `anyOf` or `oneOf`.
const MAX_MEMBERS: usize = 1_000;
/// The largest number of different references.
const MAX_REFERENCES: usize = 2_000;
/// The longest enumeration whose values are listed.
const MAX_VALUES: usize = 200;
/// The longest default value in a comment.
const MAX_DEFAULT: usize = 60;

const OBJECT_KEYWORDS: [&str; 6] =
    ["properties", "required", "additionalProperties", "patternProperties", "minProperties", "propertyNames"];
const ARRAY_KEYWORDS: [&str; 5] = ["items", "prefixItems", "minItems", "uniqueItems", "contains"];
/// Keywords that restrict values in ways that no type expresses, and that change much of a schema's meaning.
const WIDENED: [&str; 6] =
    ["not", "if", "dependentSchemas", "dependentRequired", "dependencies", "$dynamicRef"];

pub(super) fn translate_text(schema: &str) -> TypeDocument {
    if schema.len() > MAX_LENGTH {
        let root = Type::unknown_because("the schema is too long");
        return TypeDocument { root, definitions: Vec::new() };
    }
    translate(&Json::parse(schema))
}

fn translate(schema: &Json) -> TypeDocument {
    let mut translator = Translator::new(schema);
    let root = translator.translate(schema);
    TypeDocument { root, definitions: translator.definitions }
}

struct Translator<'a> {
    document: &'a Json,
    definitions: Vec<Definition>,
    /// The definitions by reference, and if their translation is complete.
    references: HashMap<String, (usize, bool)>,
    names: HashSet<String>,
    depth: usize,
    subschemas: usize,
    /// The number of different references so far.
    looked_up: usize,
}

impl<'a> Translator<'a> {
    fn new(document: &'a Json) -> Self {
        Self {
            document,
            definitions: Vec::new(),
            references: HashMap::new(),
            names: HashSet::new(),
            depth: 0,
            subschemas: 0,
            looked_up: 0,
        }
    }

    fn translate(&mut self, schema: &Json) -> Type {
        self.subschemas += 1;
        if self.depth >= MAX_DEPTH {
            return Type::unknown_because("nested too deeply");
        }
        if self.subschemas > MAX_SUBSCHEMAS {
            return Type::unknown_because("the schema is too large");
        }
        match schema {
            Json::Bool(true) => Type::unknown(),
            Json::Bool(false) => Type::default(),
            Json::Object(_) => {
                self.depth += 1;
                let translated = self.translate_object(schema);
                self.depth -= 1;
                translated
            }
            Json::Unreadable => Type::unknown_because("the schema cannot be read"),
            _ => Type::unknown_because("not a schema"),
        }
    }

    fn translate_object(&mut self, schema: &Json) -> Type {
        let mut result = self.stated_type(schema);
        if let Some(reference) = schema.get("$ref").or_else(|| schema.get("$recursiveRef")) {
            result = self.reference(reference).intersect(result);
        }
        for member in schema.get("allOf").map_or(&[][..], Json::items) {
            result = result.intersect(self.translate(member));
        }
        for keyword in ["anyOf", "oneOf"] {
            if let Some(members) = schema.get(keyword).map(Json::items).filter(|members| !members.is_empty())
            {
                result = result.intersect(self.union(members));
            }
        }
        if let Some(values) = enumerated(schema) {
            result = result.intersect(values);
        }
        if schema.get("nullable") == Some(&Json::Bool(true)) {
            result.add(Alternative::Null);
        }
        result.add_note(widened_note(schema));
        result
    }

    fn union(&mut self, members: &[Json]) -> Type {
        if members.len() > MAX_MEMBERS {
            return Type::unknown_because(format!("more than {MAX_MEMBERS} alternatives"));
        }
        Type::union(members.iter().map(|member| self.translate(member)))
    }

    /// The type that `type` states, or that the other keywords imply.
    fn stated_type(&mut self, schema: &Json) -> Type {
        let kinds: Vec<&str> = match schema.get("type") {
            Some(Json::String(kind)) => vec![kind],
            Some(Json::Array(kinds)) => kinds.iter().filter_map(Json::as_str).collect(),
            Some(_) => return Type::unknown_because("`type` is not a string"),
            None => implied_kinds(schema),
        };
        if kinds.is_empty() {
            return Type::unknown();
        }
        Type::union(kinds.into_iter().map(|kind| self.type_of_kind(kind, schema)))
    }

    fn type_of_kind(&mut self, kind: &str, schema: &Json) -> Type {
        match kind {
            "null" => Alternative::Null.into(),
            "boolean" => Alternative::Boolean.into(),
            "number" | "integer" => Alternative::Number.into(),
            "string" => Alternative::String.into(),
            "array" => self.array(schema).into(),
            "object" => Alternative::Object(self.object(schema)).into(),
            other => Type::unknown_because(format!("unknown type `{other}`")),
        }
    }

    fn array(&mut self, schema: &Json) -> Alternative {
        let items = schema.get("items");
        let (prefix, rest) = match (schema.get("prefixItems"), items) {
            (Some(prefix), rest) => (prefix.items(), rest),
            (None, Some(Json::Array(prefix))) => (prefix.as_slice(), schema.get("additionalItems")),
            (None, rest) => (&[][..], rest),
        };
        let rest = rest.map_or_else(Type::unknown, |rest| self.translate(rest));
        if prefix.is_empty() {
            return Alternative::Array(Box::new(rest));
        }
        let least = schema.get("minItems").and_then(Json::as_count).unwrap_or(0);
        let most = schema.get("maxItems").and_then(Json::as_count).unwrap_or(usize::MAX);
        let items: Vec<Type> = prefix.iter().take(most).map(|item| self.translate(item)).collect();
        let is_closed = rest.is_never() || most <= items.len();
        let required = least.min(items.len());
        Alternative::Tuple(Tuple { items, required, rest: (!is_closed).then(|| Box::new(rest)) })
    }

    fn object(&mut self, schema: &Json) -> Object {
        let required = schema.get("required").map_or(&[][..], Json::items).iter().filter_map(Json::as_str);
        let required: Vec<&str> = required.take(MAX_PROPERTIES).collect();
        let stated = schema.get("properties").map_or(&[][..], Json::members);
        let mut properties: Vec<Property> = Vec::new();
        for (name, value) in stated.iter().take(MAX_PROPERTIES) {
            let value_type = self.translate(value);
            let is_required = required.contains(&name.as_str());
            properties.retain(|earlier| earlier.name != *name);
            // No value is valid for an optional property: it must be absent.
            properties.push(Property { name: name.clone(), value: value_type, is_required, doc: doc(value) });
        }
        for name in required {
            if !properties.iter().any(|property| property.name == name) {
                let (name, value) = (name.to_owned(), Type::unknown());
                properties.push(Property { name, value, is_required: true, doc: None });
            }
        }
        let rest = if stated.len() > MAX_PROPERTIES { Rest::Unstated } else { self.rest(schema) };
        Object { properties, rest }
    }

    fn rest(&mut self, schema: &Json) -> Rest {
        let additional = schema.get("additionalProperties").or_else(|| schema.get("unevaluatedProperties"));
        let patterns = schema.get("patternProperties").map_or(&[][..], Json::members);
        let additional = match additional {
            None if patterns.is_empty() => return Rest::Unstated,
            Some(Json::Bool(false)) if patterns.is_empty() => return Rest::Closed,
            None => Type::default(),
            Some(additional) => self.translate(additional),
        };
        let patterned: Vec<Type> = patterns.iter().map(|(_, value)| self.translate(value)).collect();
        let mut rest = Type::union(std::iter::once(additional).chain(patterned));
        if !patterns.is_empty() {
            let names: Vec<String> = patterns.iter().map(|(pattern, _)| format!("/{pattern}/")).collect();
            rest.add_note(Some(format!("keys match {}", names.join(" or "))));
        }
        Rest::Typed(Box::new(rest))
    }

    /// Translates the target of a reference once. Small types replace the reference; others are named.
    fn reference(&mut self, reference: &Json) -> Type {
        let Some(reference) = reference.as_str() else {
            return Type::unknown_because("`$ref` is not a string");
        };
        if let Some((index, is_complete)) = self.references.get(reference).copied() {
            self.definitions[index].is_recursive |= !is_complete;
            return self.named(index, is_complete);
        }
        let document = self.document;
        self.looked_up += 1;
        if self.looked_up > MAX_REFERENCES {
            return Type::unknown_because("too many references");
        }
        let Some(target) = resolve(document, reference) else {
            return Type::unknown_because(format!("`$ref` to `{reference}` is not in the schema"));
        };
        let index = self.definitions.len();
        let name =
            take_name(&mut self.names, &pascal_case(reference.rsplit(['/', '#']).next().unwrap_or("")));
        self.definitions.push(Definition { name, value: Type::unknown(), is_recursive: false });
        self.references.insert(reference.to_owned(), (index, false));
        let value = self.translate(target);
        self.definitions[index].value = value;
        self.references.insert(reference.to_owned(), (index, true));
        self.named(index, true)
    }

    /// Returns the definition itself if it is complete and not recursive, so that it can be combined with other types.
    fn named(&self, index: usize, is_complete: bool) -> Type {
        let definition = &self.definitions[index];
        let is_open = is_complete && !definition.is_recursive && is_small(&definition.value);
        if is_open { definition.value.clone() } else { Alternative::Named(index).into() }
    }
}

/// Returns true if a type is as short as the name of a definition.
fn is_small(value: &Type) -> bool {
    let is_plain = |alternative: &Alternative| {
        !matches!(alternative, Alternative::Object(_) | Alternative::Tuple(_) | Alternative::Array(_))
    };
    value.alternatives.len() <= 8 && value.alternatives.iter().all(is_plain)
}

/// Finds the target of a local reference: a pointer, an anchor, or the whole schema.
fn resolve<'a>(document: &'a Json, reference: &str) -> Option<&'a Json> {
    let fragment = match reference.split_once('#') {
        Some(("", fragment)) => fragment,
        Some((id, fragment)) if document.get("$id").and_then(Json::as_str) == Some(id) => fragment,
        _ => return None,
    };
    let fragment = percent_decode_str(fragment).decode_utf8().ok()?;
    match fragment.strip_prefix('/') {
        Some(pointer) => document.pointer(pointer),
        None if fragment.is_empty() => Some(document),
        None => find_anchor(document, &fragment),
    }
}

fn find_anchor<'a>(schema: &'a Json, name: &str) -> Option<&'a Json> {
    let is_anchor = |key: &str| schema.get(key).and_then(Json::as_str) == Some(name);
    if is_anchor("$anchor") || is_anchor("$dynamicAnchor") {
        return Some(schema);
    }
    let members = schema.members().iter().map(|(_, value)| value);
    members.chain(schema.items()).find_map(|value| find_anchor(value, name))
}

/// The kinds of values that keywords imply where `type` is missing.
fn implied_kinds(schema: &Json) -> Vec<&'static str> {
    let has_any = |keywords: &[&str]| keywords.iter().any(|keyword| schema.get(keyword).is_some());
    let mut kinds = Vec::new();
    if has_any(&OBJECT_KEYWORDS) {
        kinds.push("object");
    }
    if has_any(&ARRAY_KEYWORDS) {
        kinds.push("array");
    }
    kinds
}

/// The type of `enum` and `const`.
fn enumerated(schema: &Json) -> Option<Type> {
    let constant = schema.get("const").map(std::slice::from_ref);
    let listed = schema.get("enum").filter(|listed| matches!(listed, Json::Array(_))).map(Json::items);
    let union = |values: &[Json]| match values.len() > MAX_VALUES {
        true => Type::unknown_because(format!("one of {} values", values.len())),
        false => Type::union(values.iter().map(literal)),
    };
    match (constant, listed) {
        (None, None) => None,
        (Some(values), None) | (None, Some(values)) => Some(union(values)),
        (Some(constant), Some(listed)) => Some(union(constant).intersect(union(listed))),
    }
}

/// The type with one value.
fn literal(value: &Json) -> Type {
    let alternative = match value {
        Json::Null => Alternative::Null,
        Json::Bool(_) => Alternative::Literal(LiteralKind::Boolean, value.to_string()),
        Json::Number(text) => match text.parse::<f64>() {
            Ok(number) if number.is_finite() => Alternative::Literal(LiteralKind::Number, value.to_string()),
            _ => return Type::unknown_because("a number out of range"),
        },
        Json::String(_) => Alternative::Literal(LiteralKind::String, value.to_string()),
        Json::Array(items) => {
            let items: Vec<Type> = items.iter().map(literal).collect();
            Alternative::Tuple(Tuple { required: items.len(), items, rest: None })
        }
        Json::Object(members) => {
            let property = |(name, value): &(String, Json)| Property {
                name: name.clone(),
                value: literal(value),
                is_required: true,
                doc: None,
            };
            Alternative::Object(Object {
                properties: members.iter().map(property).collect(),
                rest: Rest::Closed,
            })
        }
        Json::Unreadable => return Type::unknown_because("a value that cannot be read"),
    };
    alternative.into()
}

/// Names the keywords that the type does not express.
fn widened_note(schema: &Json) -> Option<String> {
    let widened: Vec<String> =
        WIDENED.iter().filter(|key| schema.get(key).is_some()).map(|key| format!("`{key}`")).collect();
    (!widened.is_empty()).then(|| format!("further restricted by {}", widened.join(", ")))
}

/// The comment of a property: its description, format and default value.
fn doc(schema: &Json) -> Option<String> {
    let description = schema.get("description").and_then(Json::as_str);
    let mut parts: Vec<String> = description.map(|text| text.trim().to_owned()).into_iter().collect();
    if let Some(format) = schema.get("format").and_then(Json::as_str) {
        parts.push(format!("(format: {format})"));
    }
    let default = schema.get("default").map(Json::to_string).filter(|text| text.len() <= MAX_DEFAULT);
    parts.extend(default.map(|text| format!("(default: {text})")));
    let doc = parts.join(" ");
    (!doc.is_empty()).then_some(doc)
}
