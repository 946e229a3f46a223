//! Refuses schemas that are too expensive to compile or apply, and estimates the cost of a check for the others.
//!
//! The validator compiles recursively. It follows `allOf`, `$ref` and similar keywords without visiting the value.
//! This module limits both; `budget` limits all work that visits the value. The limits are ten times as large as
//! the largest real schemas require.

use std::collections::HashMap;

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

use super::SchemaError;
use super::regex_cost::RegexCost;

/// The maximum length of a schema.
const MAX_BYTES: usize = 1 << 20;
/// The maximum recursion of the compiler.
const MAX_DEPTH: usize = 300;
/// The number of references that the compiler follows on its stack.
const REFERENCES_ON_STACK: usize = 8;
/// The maximum number of schemas that apply to one location of the value.
const MAX_APPLIED: u64 = 10_000;
/// The maximum length of a chain of schemas that apply to one location.
const MAX_CHAIN: usize = 200;
/// The maximum product of `unevaluated…` keywords and references: the validator compiles all their combinations,
/// which takes exponential time and memory.
const MAX_UNEVALUATED: usize = 100;
/// The maximum number of schemas embedded by `$id`: each reference is looked up in each of them.
const MAX_BASES: usize = 100;
/// The maximum number of states of all regular expressions; compiling them takes about 50 milliseconds.
const MAX_STATES: u64 = 100_000;

/// The number of applied schemas, or of states of a regular expression, that cost one unit of the budget.
const PER_UNIT: u64 = 16;

/// The cost of visiting a value, in units of the budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CheckCost {
    /// For each value that is visited.
    pub per_visit: u64,
    /// For each byte passed to a regular expression; zero if there is none.
    per_byte: u64,
    /// True if a regular expression may take quadratic time or reach its backtracking limit.
    pub backtracks: bool,
}

impl CheckCost {
    /// An upper bound for text whose regular expressions are unknown.
    pub(super) const WORST_CASE: Self = Self { per_visit: 1, per_byte: 16, backtracks: true };

    /// Returns the cost of reading a text, which the validator does to match it with a regular expression.
    pub(super) fn text_cost(self, length: usize) -> u64 {
        let length = length as u64;
        // The engine's own limit covers only a part of the work of backtracking.
        let backtracking = if self.backtracks { length.saturating_mul(length) / 64 } else { 0 };
        (length * self.per_byte).saturating_add(backtracking)
    }
}

/// Checks the text before parsing.
pub(super) fn check_length(text: &str) -> Result<(), SchemaError> {
    match text.len() {
        0..=MAX_BYTES => Ok(()),
        length => Err(SchemaError::TooLong { length }),
    }
}

/// Checks the structure of the parsed schema and returns the cost of a check.
pub(super) fn check_complexity(schema: &Value) -> Result<CheckCost, SchemaError> {
    let mut stats = SchemaStats { bases: vec![schema], ..SchemaStats::default() };
    stats.visit(schema, 1);
    if stats.depth * (1 + stats.references.min(REFERENCES_ON_STACK)) > MAX_DEPTH {
        return Err(SchemaError::TooDeep);
    }
    if stats.bases.len() > MAX_BASES || stats.unevaluated * stats.references > MAX_UNEVALUATED {
        return Err(SchemaError::TooComplex);
    }
    if stats.regexes.states > MAX_STATES {
        return Err(SchemaError::RegexTooLarge);
    }
    let RegexCost { largest, backtracks, .. } = stats.regexes;
    Ok(CheckCost {
        per_visit: 1 + stats.max_applied()? / PER_UNIT,
        per_byte: largest.div_ceil(PER_UNIT),
        backtracks,
    })
}

/// Counts over the whole schema. The walk cannot tell keywords from property names: a property called `allOf`
/// counts as the keyword. So the counts may be too high, but never too low.
#[derive(Default)]
struct SchemaStats<'a> {
    /// The deepest nesting of the text.
    depth: usize,
    references: usize,
    /// The number of `unevaluated…` keywords.
    unevaluated: usize,
    regexes: RegexCost,
    /// The base schemas of references: the root and all schemas with an `$id`.
    bases: Vec<&'a Value>,
    /// The schemas with each anchor.
    anchors: HashMap<&'a str, Vec<&'a Value>>,
    /// Schemas that apply other schemas to the same location.
    combinators: Vec<&'a Value>,
}

impl<'a> SchemaStats<'a> {
    /// Counts a part of the schema and all parts in it.
    fn visit(&mut self, node: &'a Value, depth: usize) {
        self.depth = self.depth.max(depth);
        match node {
            Value::Array(items) => items.iter().for_each(|item| self.visit(item, depth + 1)),
            Value::Object(members) => {
                self.count_keywords(node, members);
                members.values().for_each(|member| self.visit(member, depth + 1));
            }
            _ => {}
        }
    }

    fn count_keywords(&mut self, node: &'a Value, members: &'a Map<String, Value>) {
        for (key, member) in members {
            match (key.as_str(), member) {
                ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(_)) => self.references += 1,
                ("unevaluatedProperties" | "unevaluatedItems", _) => self.unevaluated += 1,
                ("$anchor" | "$dynamicAnchor", Value::String(name)) => self.add_anchor(name, node),
                ("$id" | "id", Value::String(id)) => match id.strip_prefix('#') {
                    Some(name) => self.add_anchor(name, node),
                    None => push_once(&mut self.bases, node),
                },
                ("pattern", Value::String(pattern)) => self.regexes.add(pattern),
                ("patternProperties", Value::Object(by_pattern)) => {
                    by_pattern.keys().for_each(|pattern| self.regexes.add(pattern));
                }
                _ => {}
            }
        }
        if members.keys().any(|key| is_in_place_applicator(key)) {
            self.combinators.push(node);
        }
    }

    fn add_anchor(&mut self, name: &'a str, node: &'a Value) {
        push_once(self.anchors.entry(name).or_default(), node);
    }

    /// Returns the maximum number of schemas that references and combinations apply to one location.
    fn max_applied(&self) -> Result<u64, SchemaError> {
        let mut counter = AppliedCounter { stats: self, known: HashMap::new() };
        let mut max = 1;
        for schema in &self.combinators {
            max = max.max(counter.count(schema, 1)?.schemas);
        }
        Ok(max)
    }

    /// Returns all possible targets of a reference. There are several only if schemas are embedded by `$id`.
    fn targets(&self, reference: &str) -> Vec<&'a Value> {
        let (_, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        // Invalid escapes stay: a reference that is not a URI has no target anyway.
        let fragment = percent_decode_str(fragment).decode_utf8_lossy();
        match self.anchors.get(&*fragment) {
            Some(named) => named.clone(),
            None => self.bases.iter().filter_map(|base| base.pointer(&fragment)).collect(),
        }
    }
}

/// A schema with two names counts once.
fn push_once<'a>(nodes: &mut Vec<&'a Value>, node: &'a Value) {
    if nodes.last().is_none_or(|last| !std::ptr::eq(*last, node)) {
        nodes.push(node);
    }
}

/// The number of schemas that one schema applies to its location, including itself, and the length of their chain.
#[derive(Clone, Copy)]
struct AppliedSchemas {
    schemas: u64,
    chain: usize,
}

/// Counts the schemas that schemas apply to their own location. Each schema is counted once.
struct AppliedCounter<'s, 'a> {
    stats: &'s SchemaStats<'a>,
    known: HashMap<*const Value, AppliedSchemas>,
}

impl<'a> AppliedCounter<'_, 'a> {
    fn count(&mut self, node: &'a Value, depth: usize) -> Result<AppliedSchemas, SchemaError> {
        let key = std::ptr::from_ref(node);
        let applied = match self.known.get(&key) {
            Some(applied) => *applied,
            None => {
                // A cycle of references ends here.
                self.known.insert(key, AppliedSchemas { schemas: 1, chain: 1 });
                let applied = self.count_unknown(node, depth)?;
                self.known.insert(key, applied);
                applied
            }
        };
        match depth + applied.chain > MAX_CHAIN || applied.schemas > MAX_APPLIED {
            true => Err(SchemaError::TooComplex),
            false => Ok(applied),
        }
    }

    fn count_unknown(&mut self, node: &'a Value, depth: usize) -> Result<AppliedSchemas, SchemaError> {
        if depth > MAX_CHAIN {
            return Err(SchemaError::TooComplex);
        }
        let mut sum = AppliedSchemas { schemas: 1, chain: 1 };
        for next in self.applied_by(node) {
            let applied = self.count(next, depth + 1)?;
            sum.schemas = sum.schemas.saturating_add(applied.schemas);
            sum.chain = sum.chain.max(applied.chain + 1);
        }
        Ok(sum)
    }

    /// Returns the schemas that `node` applies to its own location.
    fn applied_by(&self, node: &'a Value) -> Vec<&'a Value> {
        let Value::Object(members) = node else { return Vec::new() };
        let mut found = Vec::new();
        for (_, member) in members.iter().filter(|(key, _)| is_in_place_applicator(key)) {
            match member {
                Value::String(reference) => found.extend(self.stats.targets(reference)),
                Value::Array(branches) => found.extend(branches),
                Value::Object(_) => found.push(member),
                _ => {}
            }
        }
        found
    }
}

/// Returns true for a keyword that applies schemas to the location of its own schema.
fn is_in_place_applicator(keyword: &str) -> bool {
    matches!(
        keyword,
        "$ref"
            | "$dynamicRef"
            | "$recursiveRef"
            | "allOf"
            | "anyOf"
            | "oneOf"
            | "not"
            | "if"
            | "then"
            | "else"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(schema: &Value, expected: Result<(), SchemaError>) {
        assert_eq!(check_complexity(schema).map(|_| ()), expected);
    }

    /// Returns `count` definitions, each made from the next by `link`.
    fn chain(count: usize, link: impl Fn(Value) -> Value) -> Value {
        let name = |i: usize| format!("#/$defs/d{i}");
        let defs = (0..count).map(|i| (format!("d{i}"), link(json!({"$ref": name(i + 1)}))));
        let mut defs: Map<_, _> = defs.collect();
        defs.insert(format!("d{count}"), json!({}));
        json!({"$ref": name(0), "$defs": defs})
    }

    #[test]
    fn ordinary_schema_costs_one_per_visit() {
        let schema = json!({"properties": {"a": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/x"}]}},
            "$defs": {"x": {"items": {"$ref": "#"}}}});
        assert_eq!(check_complexity(&schema), Ok(CheckCost { per_visit: 1, per_byte: 0, backtracks: false }));
    }

    #[test]
    fn refuses_schema_that_doubles_at_every_step() {
        let twice = |next: Value| json!({"allOf": [next, next]});
        check(&chain(10, twice), Ok(()));
        check(&chain(14, twice), Err(SchemaError::TooComplex));
        check(&chain(60, twice), Err(SchemaError::TooComplex));
    }

    #[test]
    fn refuses_doubling_through_anchors_ids_and_escapes() {
        let by_anchor = |i: usize| json!({"$anchor": format!("a{i}"), "anyOf": vec![json!({"$ref": format!("#a{}", i + 1)}); 2]});
        let anchors: Vec<_> = (0..60).map(by_anchor).collect();
        check(&json!({"$ref": "#a0", "$defs": anchors}), Err(SchemaError::TooComplex));
        let by_id = |i: usize| json!({"$id": format!("u{i}"), "oneOf": vec![json!({"$ref": format!("u{}", i + 1)}); 2]});
        let ids: Vec<_> = (0..60).map(by_id).collect();
        check(&json!({"$ref": "u0", "$defs": ids}), Err(SchemaError::TooComplex));
        let escaped = |i: usize| json!({"allOf": vec![json!({"$ref": format!("#/%24defs/{}", i + 1)}); 2]});
        let defs: Vec<_> = (0..60).map(escaped).collect();
        check(&json!({"$ref": "#/$defs/0", "$defs": defs}), Err(SchemaError::TooComplex));
    }

    #[test]
    fn counts_schema_with_two_names_once() {
        let mut named = chain(100, |next| next);
        named["$id"] = json!("http://example.com/s");
        named["id"] = json!("s");
        check(&named, Ok(()));
        let by_anchor = |i: usize| json!({"$anchor": format!("a{i}"), "$dynamicAnchor": format!("a{i}"), "$ref": format!("#a{}", i + 1)});
        check(&json!({"$ref": "#a0", "$defs": (0..100).map(by_anchor).collect::<Vec<_>>()}), Ok(()));
    }

    #[test]
    fn refuses_long_chain_of_references() {
        check(&chain(100, |next| next), Ok(()));
        check(&chain(5_000, |next| next), Err(SchemaError::TooComplex));
    }

    #[test]
    fn accepts_cyclic_references() {
        check(&json!({"$ref": "#"}), Ok(()));
        check(&json!({"allOf": [{"$ref": "#"}, {"$ref": "#/allOf/0"}]}), Ok(()));
    }

    #[test]
    fn depth_limit_is_lower_with_references() {
        let deep =
            |levels: usize, inner: Value| (0..levels).fold(inner, |schema, _| json!({"items": schema}));
        check(&deep(100, json!({})), Ok(()));
        check(&deep(100, json!({"$ref": "#"})), Ok(()));
        let references = vec![json!({"$ref": "#"}); 8];
        check(&deep(100, json!({"allOf": references})), Err(SchemaError::TooDeep));
    }

    #[test]
    fn refuses_many_references_with_unevaluated_properties() {
        let schema = |count: usize| {
            let one = json!({"$ref": "#", "unevaluatedProperties": false});
            json!({"properties": {"a": {"items": {"prefixItems": vec![one; count]}}}})
        };
        check(&schema(10), Ok(()));
        check(&schema(11), Err(SchemaError::TooComplex));
    }

    #[test]
    fn refuses_hundreds_of_embedded_schemas() {
        let ids: Vec<_> = (0..200).map(|i| json!({"$id": format!("u{i}")})).collect();
        check(&json!({"$defs": ids}), Err(SchemaError::TooComplex));
    }

    #[test]
    fn refuses_too_many_or_too_large_regexes() {
        let properties: Map<_, _> = (0..1_000).map(|i| (format!("p{i}"), json!({"pattern": "a"}))).collect();
        check(&json!({"properties": properties}), Err(SchemaError::RegexTooLarge));
        check(&json!({"patternProperties": {r"\p{L}{1000}": {}}}), Err(SchemaError::RegexTooLarge));
    }

    #[test]
    fn text_cost_depends_on_regexes() {
        let cost = |pattern: &str| check_complexity(&json!({"pattern": pattern})).unwrap().text_cost(1_000);
        assert!(cost("^a+$") < 10_000);
        assert!(cost("a{5000}") > 100_000);
        assert!(cost("(?=a)") > cost("(?:a)"));
        assert_eq!(check_complexity(&json!({})).unwrap().text_cost(1_000), 0);
    }

    #[test]
    fn decodes_escapes_in_references() {
        let schema = json!({ "$defs": { "a~b%": 1, "%zzé": 2 } });
        let stats = SchemaStats { bases: vec![&schema], ..SchemaStats::default() };
        assert_eq!(stats.targets("#/%24defs/a%7E0b%"), [&json!(1)]);
        assert_eq!(stats.targets("#/$defs/%zz%c3%a9"), [&json!(2)]);
    }
}
