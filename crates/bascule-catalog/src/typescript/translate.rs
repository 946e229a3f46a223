//! Translates a JSON Schema into a type.
//!
//! Keywords that TypeScript cannot express (`not`, `if`, `dependentSchemas`) widen the type and leave a note.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};

use percent_encoding::percent_decode_str;

use super::circles::on_circles;
use super::combine::TypeIntersector;
use super::json::Json;
use super::names::{pascal_case, take_name};
use super::types::{Alternative, Definition, LiteralKind, Object, Property, Rest, Tuple, Type, TypeDocument};
use super::work::Work;

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
/// The longest name of a definition.
const MAX_NAME: usize = 80;
/// The largest number of kinds in `type`. JSON Schema has seven.
const MAX_KINDS: usize = 8;

const OBJECT_KEYWORDS: [&str; 6] =
    ["properties", "required", "additionalProperties", "patternProperties", "minProperties", "propertyNames"];
const ARRAY_KEYWORDS: [&str; 5] = ["items", "prefixItems", "minItems", "uniqueItems", "contains"];
/// Keywords that add parts to a schema.
const COMBINATIONS: [&str; 5] = ["$ref", "$recursiveRef", "allOf", "anyOf", "oneOf"];
/// Keywords that restrict values in ways that no type expresses, and that change much of a schema's meaning.
const WIDENED: [&str; 6] =
    ["not", "if", "dependentSchemas", "dependentRequired", "dependencies", "$dynamicRef"];

pub(super) fn translate_text(schema: &str) -> TypeDocument {
    translate_within(schema, &Work::default())
}

pub(super) fn translate_within(schema: &str, work: &Work) -> TypeDocument {
    if schema.len() > MAX_LENGTH {
        let root = Type::unknown_because("the schema is too long");
        return TypeDocument { root, definitions: Vec::new() };
    }
    // A property of such a name only makes the type wider.
    let is_expressible = !WIDENED.iter().any(|keyword| schema.contains(&format!("\"{keyword}\"")));
    let schema = Json::parse(schema);
    let mut translator = Translator::new(&schema, work);
    translator.is_expressible = is_expressible;
    let root = translator.translate(&schema);
    let mut definitions = translator.definitions;
    open_circles(&mut definitions);
    TypeDocument { root, definitions }
}

/// Replaces definitions that are only names of each other, which the compiler refuses: no value of theirs is described. A
/// definition may contain itself in an object or an array.
fn open_circles(definitions: &mut [Definition]) {
    let is_circular = on_circles(definitions);
    for (definition, _) in definitions.iter_mut().zip(is_circular).filter(|(_, is_circular)| *is_circular) {
        definition.value = Type::unknown_because("the definition refers only to itself");
    }
}

struct Translator<'a> {
    document: &'a Json,
    work: &'a Work,
    definitions: Vec<Definition>,
    /// The definitions by reference.
    references: HashMap<String, usize>,
    /// The parts of the document by anchor.
    anchors: OnceCell<HashMap<&'a str, &'a Json>>,
    names: HashSet<String>,
    depth: usize,
    subschemas: usize,
    /// The number of different references so far.
    looked_up: usize,
    /// No part of the document has a keyword that types cannot express.
    is_expressible: bool,
}

impl<'a> Translator<'a> {
    fn new(document: &'a Json, work: &'a Work) -> Self {
        Self {
            document,
            work,
            definitions: Vec::new(),
            references: HashMap::new(),
            anchors: OnceCell::new(),
            names: HashSet::new(),
            depth: 0,
            subschemas: 0,
            looked_up: 0,
            is_expressible: true,
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
        if self.work.is_exceeded() {
            return Work::exceeded_type();
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
            let target = self.reference(reference);
            result = self.intersect(target, result);
        }
        for member in schema.get("allOf").map_or(&[][..], Json::items) {
            let member = self.translate(member);
            result = self.intersect(result, member);
        }
        for keyword in ["anyOf", "oneOf"] {
            if let Some(members) = schema.get(keyword).map(Json::items).filter(|members| !members.is_empty())
            {
                let union = self.union(members);
                result = self.intersect(result, union);
            }
        }
        if let Some(values) = self.enumerated(schema) {
            result = self.intersect(result, values);
        }
        self.apply_unevaluated(&mut result, schema);
        result.add_note(widened_note(schema));
        result
    }

    fn intersect(&self, left: Type, right: Type) -> Type {
        TypeIntersector::new(&self.definitions, self.work).intersect(left, right)
    }

    fn union(&mut self, members: &[Json]) -> Type {
        if members.len() > MAX_MEMBERS {
            return Type::unknown_because(format!("more than {MAX_MEMBERS} alternatives"));
        }
        let work = self.work;
        Type::union(members.iter().map(|member| self.translate(member)), work)
    }

    /// Closes the objects of a combination: `unevaluatedProperties` is about what none of its parts names.
    fn apply_unevaluated(&mut self, combined: &mut Type, schema: &Json) {
        let Some(further) = schema.get("unevaluatedProperties").filter(|_| has_any(schema, &COMBINATIONS))
        else {
            return;
        };
        // Parts of the schema, or of what it combines, that no type expresses may name properties too.
        if !self.is_expressible || has_any(schema, &["additionalProperties"]) {
            return;
        }
        let rest = match further {
            Json::Bool(false) => Rest::Closed,
            further => Rest::Typed(Box::new(self.translate(further))),
        };
        for alternative in &mut combined.alternatives {
            if let Alternative::Object(object) = alternative
                && object.rest == Rest::Unstated
                && object.properties.len() < MAX_PROPERTIES
            {
                object.rest = rest.clone();
            }
        }
    }

    /// The type that `type` states, or that the other keywords imply.
    fn stated_type(&mut self, schema: &Json) -> Type {
        let kinds: Vec<&str> = match schema.get("type") {
            Some(Json::String(kind)) => vec![kind],
            Some(Json::Array(kinds)) => distinct_kinds(kinds),
            Some(_) => return Type::unknown_because("`type` is not a string"),
            None => implied_kinds(schema),
        };
        if kinds.is_empty() {
            return Type::unknown();
        }
        let work = self.work;
        Type::union(kinds.into_iter().map(|kind| self.type_of_kind(kind, schema)), work)
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
        let least = schema.get("minItems").and_then(Json::as_usize).unwrap_or(0);
        let most = schema.get("maxItems").and_then(Json::as_usize).unwrap_or(usize::MAX);
        let items: Vec<Type> = prefix.iter().take(most).map(|item| self.translate(item)).collect();
        let is_closed = rest.is_never() || most <= items.len();
        let required = least.min(items.len());
        Alternative::Tuple(Tuple { items, required, rest: (!is_closed).then(|| Box::new(rest)) })
    }

    fn object(&mut self, schema: &Json) -> Object {
        let required = schema.get("required").map_or(&[][..], Json::items).iter().filter_map(Json::as_str);
        let required: Vec<&str> = required.take(MAX_PROPERTIES).collect();
        let is_required: HashSet<&str> = required.iter().copied().collect();
        let stated = schema.get("properties").map_or(&[][..], Json::members);
        let declared = &stated[..stated.len().min(MAX_PROPERTIES)];
        // The last of several properties with the same name counts.
        let last: HashMap<&str, usize> =
            declared.iter().enumerate().map(|(index, (name, _))| (name.as_str(), index)).collect();
        let mut properties: Vec<Property> = Vec::new();
        for (index, (name, value)) in declared.iter().enumerate() {
            if last.get(name.as_str()) == Some(&index) {
                // No value is valid for an optional property: it must be absent.
                let (name, doc, is_required) =
                    (name.clone(), doc(value), is_required.contains(name.as_str()));
                properties.push(Property { name, value: self.translate(value), is_required, doc });
            }
        }
        let mut undeclared = HashSet::new();
        for name in required.into_iter().filter(|name| !last.contains_key(name) && undeclared.insert(*name)) {
            let (name, value) = (name.to_owned(), Type::unknown());
            properties.push(Property { name, value, is_required: true, doc: None });
        }
        let rest = if stated.len() > MAX_PROPERTIES { Rest::Unstated } else { self.rest(schema) };
        Object { properties, rest }
    }

    fn rest(&mut self, schema: &Json) -> Rest {
        let unevaluated = || schema.get("unevaluatedProperties").filter(|_| !has_any(schema, &COMBINATIONS));
        let additional = schema.get("additionalProperties").or_else(unevaluated);
        let patterns = schema.get("patternProperties").map_or(&[][..], Json::members);
        let additional = match additional {
            None if patterns.is_empty() => return Rest::Unstated,
            Some(Json::Bool(false)) if patterns.is_empty() => return Rest::Closed,
            None => Type::default(),
            Some(additional) => self.translate(additional),
        };
        let patterned: Vec<Type> = patterns.iter().map(|(_, value)| self.translate(value)).collect();
        let mut rest = Type::union(std::iter::once(additional).chain(patterned), self.work);
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
        if let Some(index) = self.references.get(reference).copied() {
            let definition = &mut self.definitions[index];
            definition.is_recursive |= !definition.is_complete;
            return self.named(index);
        }
        self.looked_up += 1;
        if self.looked_up > MAX_REFERENCES {
            return Type::unknown_because("too many references");
        }
        let Some(target) = self.resolve(reference) else {
            return Type::unknown_because(format!("`$ref` to `{reference}` is not in the schema"));
        };
        let index = self.definitions.len();
        let mut name = pascal_case(reference.rsplit(['/', '#']).next().unwrap_or(""));
        name.truncate(MAX_NAME);
        let name = take_name(&mut self.names, &name);
        let value = Type::unknown();
        self.definitions.push(Definition { name, value, is_recursive: false, is_complete: false });
        self.references.insert(reference.to_owned(), index);
        let value = self.translate(target);
        let definition = &mut self.definitions[index];
        (definition.value, definition.is_complete) = (value, true);
        self.named(index)
    }

    /// Returns the definition itself if it is complete and not recursive, so that it can be combined with other types.
    fn named(&self, index: usize) -> Type {
        let definition = &self.definitions[index];
        let is_open = definition.is_complete && !definition.is_recursive && is_small(&definition.value);
        match is_open {
            true if self.work.spend(definition.value.weight()) => definition.value.clone(),
            true => Work::exceeded_type(),
            false => Alternative::Named(index).into(),
        }
    }

    /// Finds the target of a local reference: a pointer, an anchor, or the whole schema.
    fn resolve(&self, reference: &str) -> Option<&'a Json> {
        let document = self.document;
        let fragment = match reference.split_once('#') {
            Some(("", fragment)) => fragment,
            Some((id, fragment)) if document.get("$id").and_then(Json::as_str) == Some(id) => fragment,
            _ => return None,
        };
        let fragment = percent_decode_str(fragment).decode_utf8().ok()?;
        match fragment.strip_prefix('/') {
            Some(pointer) => document.find_pointer(pointer),
            None if fragment.is_empty() => Some(document),
            None => self.anchors.get_or_init(|| anchors(document)).get(&*fragment).copied(),
        }
    }

    /// The type of `enum` and `const`.
    fn enumerated(&self, schema: &Json) -> Option<Type> {
        let constant = schema.get("const").map(std::slice::from_ref);
        let listed = schema.get("enum").filter(|listed| matches!(listed, Json::Array(_))).map(Json::items);
        let union = |values: &[Json]| match values.len() > MAX_VALUES {
            true => Type::unknown_because(format!("one of {} values", values.len())),
            false => Type::union(values.iter().map(literal), self.work),
        };
        match (constant, listed) {
            (None, None) => None,
            (Some(values), None) | (None, Some(values)) => Some(union(values)),
            (Some(constant), Some(listed)) => Some(self.intersect(union(constant), union(listed))),
        }
    }
}

/// Returns true if a type is as short as the name of a definition.
fn is_small(value: &Type) -> bool {
    let is_plain = |alternative: &Alternative| {
        !matches!(alternative, Alternative::Object(_) | Alternative::Tuple(_) | Alternative::Array(_))
    };
    value.alternatives.len() <= 8 && value.alternatives.iter().all(is_plain)
}

/// The parts of a document by anchor. The first of several with the same anchor counts.
fn anchors(document: &Json) -> HashMap<&str, &Json> {
    let mut anchors = HashMap::new();
    let mut pending = vec![document];
    while let Some(schema) = pending.pop() {
        for keyword in ["$anchor", "$dynamicAnchor"] {
            if let Some(name) = schema.get(keyword).and_then(Json::as_str) {
                anchors.entry(name).or_insert(schema);
            }
        }
        pending.extend(schema.members().iter().rev().map(|(_, value)| value));
        pending.extend(schema.items().iter().rev());
    }
    anchors
}

/// The kinds that `type` lists, each once.
fn distinct_kinds(kinds: &[Json]) -> Vec<&str> {
    let mut distinct = Vec::new();
    for kind in kinds.iter().filter_map(Json::as_str) {
        if distinct.len() < MAX_KINDS && !distinct.contains(&kind) {
            distinct.push(kind);
        }
    }
    distinct
}

fn has_any(schema: &Json, keywords: &[&str]) -> bool {
    keywords.iter().any(|keyword| schema.get(keyword).is_some())
}

/// The kinds of values that keywords imply where `type` is missing.
fn implied_kinds(schema: &Json) -> Vec<&'static str> {
    let mut kinds = Vec::new();
    if has_any(schema, &OBJECT_KEYWORDS) {
        kinds.push("object");
    }
    if has_any(schema, &ARRAY_KEYWORDS) {
        kinds.push("array");
    }
    kinds
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
