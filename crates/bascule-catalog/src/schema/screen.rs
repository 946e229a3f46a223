//! Refuses schemas that the validator could not compile or apply within bounds, and says what looking at a
//! value under the others may cost.
//!
//! The validator compiles by recursion and applies schemas to one another without looking at the value where
//! they only refer: `allOf`, `$ref` and their like. Both are bounded here; all else is bounded by `meter`.
//! The bounds lie an order of magnitude above the largest of the real schemas we know.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::SchemaError;
use super::regexes::Regexes;

/// How much text is compiled.
const MAX_BYTES: usize = 1 << 20;
/// How deep the compiler may recurse: it follows up to eight references on its stack.
const MAX_DEPTH: usize = 300;
const REFERENCES_ON_STACK: usize = 8;
/// How many schemas may come to bear on one place of the value, and how long a chain they may form.
const MAX_WEIGHT: u64 = 10_000;
const MAX_CHAIN: usize = 200;
/// How often `unevaluated…` and references may meet: the validator compiles all they could lead to, together
/// and again, which takes time and memory exponential in both.
const MAX_UNEVALUATED: usize = 100;
/// How many schemas may be embedded by `$id`: each reference is looked up in each of them.
const MAX_BASES: usize = 100;
/// How many states all regular expressions together may have: compiling them takes about 50 milliseconds.
const MAX_STATES: u64 = 100_000;

/// What a value is charged for being looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cost {
    /// For each value met.
    pub per_look: u64,
    /// For each byte handed to a regular expression; nothing if there are none.
    per_byte: u64,
    /// Whether a regular expression may take time quadratic in its text, or give up.
    pub backtracks: bool,
}

impl Cost {
    /// For text of which nobody knows what is done with it.
    pub(super) const CAUTIOUS: Self = Self { per_look: 1, per_byte: 16, backtracks: true };

    /// For handing a text to the validator, which asks for it where it holds a pattern.
    pub(super) fn of_text(self, length: usize) -> u64 {
        let length = length as u64;
        // The engine's own limit counts only a part of what it does when it backtracks.
        let search_in_search = if self.backtracks { length.saturating_mul(length) / 64 } else { 0 };
        (length * self.per_byte).saturating_add(search_in_search)
    }
}

/// Before parsing: the text alone.
pub(super) fn screen_text(text: &str) -> Result<(), SchemaError> {
    match text.len() {
        0..=MAX_BYTES => Ok(()),
        length => Err(SchemaError::TooLong { length }),
    }
}

/// After parsing: the shape.
pub(super) fn screen(schema: &Value) -> Result<Cost, SchemaError> {
    let mut survey = Survey { bases: vec![schema], ..Survey::default() };
    survey.walk(schema, 1);
    if survey.depth * (1 + survey.references.min(REFERENCES_ON_STACK)) > MAX_DEPTH {
        return Err(SchemaError::TooDeep);
    }
    if survey.bases.len() > MAX_BASES || survey.unevaluated * survey.references > MAX_UNEVALUATED {
        return Err(SchemaError::TooIntricate);
    }
    if survey.regexes.states > MAX_STATES {
        return Err(SchemaError::LargePatterns);
    }
    let Regexes { largest, backtracks, .. } = survey.regexes;
    Ok(Cost { per_look: 1 + survey.heaviest()? / 16, per_byte: largest.div_ceil(16), backtracks })
}

/// What is found on a first walk, which does not know where in a schema it is: a property called `allOf` is
/// taken for the keyword. So it may find too much, but never too little.
#[derive(Default)]
struct Survey<'a> {
    depth: usize,
    references: usize,
    unevaluated: usize,
    regexes: Regexes,
    /// Where a reference may start from: the root and whatever has an `$id`.
    bases: Vec<&'a Value>,
    anchors: HashMap<&'a str, Vec<&'a Value>>,
    /// Schemas that bring in others at the same place.
    joints: Vec<&'a Value>,
}

impl<'a> Survey<'a> {
    fn walk(&mut self, node: &'a Value, depth: usize) {
        self.depth = self.depth.max(depth);
        match node {
            Value::Array(items) => items.iter().for_each(|item| self.walk(item, depth + 1)),
            Value::Object(members) => {
                self.note(node, members);
                members.values().for_each(|member| self.walk(member, depth + 1));
            }
            _ => {}
        }
    }

    fn note(&mut self, node: &'a Value, members: &'a Map<String, Value>) {
        for (key, member) in members {
            match (key.as_str(), member) {
                ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(_)) => self.references += 1,
                ("unevaluatedProperties" | "unevaluatedItems", _) => self.unevaluated += 1,
                ("$anchor" | "$dynamicAnchor", Value::String(name)) => self.anchor(name, node),
                ("$id" | "id", Value::String(id)) => match id.strip_prefix('#') {
                    Some(name) => self.anchor(name, node),
                    None => push_once(&mut self.bases, node),
                },
                ("pattern", Value::String(pattern)) => self.regexes.add(pattern),
                ("patternProperties", Value::Object(by_pattern)) => {
                    by_pattern.keys().for_each(|pattern| self.regexes.add(pattern));
                }
                _ => {}
            }
        }
        if members.keys().any(|key| applies_in_place(key)) {
            self.joints.push(node);
        }
    }

    fn anchor(&mut self, name: &'a str, node: &'a Value) {
        push_once(self.anchors.entry(name).or_default(), node);
    }

    /// The most schemas that any one place of a value can meet through references and combinations.
    fn heaviest(&self) -> Result<u64, SchemaError> {
        let mut scale = Scale { survey: self, known: HashMap::new() };
        let mut heaviest = 1;
        for joint in &self.joints {
            heaviest = heaviest.max(scale.weigh(joint, 1)?.weight);
        }
        Ok(heaviest)
    }

    /// Wherever a reference may lead. More than one place only where a schema embeds others by `$id`.
    fn targets(&self, reference: &str) -> Vec<&'a Value> {
        let (_, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let fragment = percent_decoded(fragment);
        match self.anchors.get(fragment.as_str()) {
            Some(named) => named.clone(),
            None => self.bases.iter().filter_map(|base| base.pointer(&fragment)).collect(),
        }
    }
}

/// A schema with two names is still one schema.
fn push_once<'a>(nodes: &mut Vec<&'a Value>, node: &'a Value) {
    if nodes.last().is_none_or(|last| !std::ptr::eq(*last, node)) {
        nodes.push(node);
    }
}

/// How many schemas one of them brings to bear on one place, itself included, and in how long a chain.
#[derive(Clone, Copy)]
struct Measure {
    weight: u64,
    chain: usize,
}

struct Scale<'s, 'a> {
    survey: &'s Survey<'a>,
    known: HashMap<*const Value, Measure>,
}

impl<'a> Scale<'_, 'a> {
    fn weigh(&mut self, node: &'a Value, above: usize) -> Result<Measure, SchemaError> {
        let key = std::ptr::from_ref(node);
        let measure = match self.known.get(&key) {
            Some(measure) => *measure,
            None => {
                // Whoever comes here again before we are done has gone in a circle, which ends there.
                self.known.insert(key, Measure { weight: 1, chain: 1 });
                let measure = self.weigh_anew(node, above)?;
                self.known.insert(key, measure);
                measure
            }
        };
        match above + measure.chain > MAX_CHAIN || measure.weight > MAX_WEIGHT {
            true => Err(SchemaError::TooIntricate),
            false => Ok(measure),
        }
    }

    fn weigh_anew(&mut self, node: &'a Value, above: usize) -> Result<Measure, SchemaError> {
        if above > MAX_CHAIN {
            return Err(SchemaError::TooIntricate);
        }
        let mut sum = Measure { weight: 1, chain: 1 };
        for next in self.in_place(node) {
            let measure = self.weigh(next, above + 1)?;
            sum.weight = sum.weight.saturating_add(measure.weight);
            sum.chain = sum.chain.max(measure.chain + 1);
        }
        Ok(sum)
    }

    /// The schemas that `node` applies to the same place as itself.
    fn in_place(&self, node: &'a Value) -> Vec<&'a Value> {
        let Value::Object(members) = node else { return Vec::new() };
        let mut found = Vec::new();
        for (_, member) in members.iter().filter(|(key, _)| applies_in_place(key)) {
            match member {
                Value::String(reference) => found.extend(self.survey.targets(reference)),
                Value::Array(branches) => found.extend(branches),
                Value::Object(_) => found.push(member),
                _ => {}
            }
        }
        found
    }
}

fn applies_in_place(keyword: &str) -> bool {
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

/// `%24` as `$`. What is not an escape stays: a reference that is no URI finds nothing in any case.
fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let escaped = (byte == b'%').then(|| after.get(..2).and_then(hex)).flatten();
        bytes.push(escaped.unwrap_or(byte));
        rest = if escaped.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn hex(digits: &[u8]) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(schema: &Value, expected: Result<(), SchemaError>) {
        assert_eq!(screen(schema).map(|_| ()), expected);
    }

    /// `count` definitions, each made of the next by `link`.
    fn chain(count: usize, link: impl Fn(Value) -> Value) -> Value {
        let name = |i: usize| format!("#/$defs/d{i}");
        let defs = (0..count).map(|i| (format!("d{i}"), link(json!({"$ref": name(i + 1)}))));
        let mut defs: Map<_, _> = defs.collect();
        defs.insert(format!("d{count}"), json!({}));
        json!({"$ref": name(0), "$defs": defs})
    }

    #[test]
    fn ordinary_schemas_cost_one_a_look() {
        let schema = json!({"properties": {"a": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/x"}]}},
            "$defs": {"x": {"items": {"$ref": "#"}}}});
        assert_eq!(screen(&schema), Ok(Cost { per_look: 1, per_byte: 0, backtracks: false }));
    }

    #[test]
    fn a_schema_that_doubles_at_every_step_is_refused() {
        let twice = |next: Value| json!({"allOf": [next, next]});
        check(&chain(10, twice), Ok(()));
        check(&chain(14, twice), Err(SchemaError::TooIntricate));
        check(&chain(60, twice), Err(SchemaError::TooIntricate));
    }

    #[test]
    fn doubling_hidden_behind_names_ids_and_escapes_is_refused_too() {
        let by_anchor = |i: usize| json!({"$anchor": format!("a{i}"), "anyOf": vec![json!({"$ref": format!("#a{}", i + 1)}); 2]});
        let anchors: Vec<_> = (0..60).map(by_anchor).collect();
        check(&json!({"$ref": "#a0", "$defs": anchors}), Err(SchemaError::TooIntricate));
        let by_id = |i: usize| json!({"$id": format!("u{i}"), "oneOf": vec![json!({"$ref": format!("u{}", i + 1)}); 2]});
        let ids: Vec<_> = (0..60).map(by_id).collect();
        check(&json!({"$ref": "u0", "$defs": ids}), Err(SchemaError::TooIntricate));
        let escaped = |i: usize| json!({"allOf": vec![json!({"$ref": format!("#/%24defs/{}", i + 1)}); 2]});
        let defs: Vec<_> = (0..60).map(escaped).collect();
        check(&json!({"$ref": "#/$defs/0", "$defs": defs}), Err(SchemaError::TooIntricate));
    }

    #[test]
    fn a_schema_with_two_names_counts_once() {
        let mut named = chain(100, |next| next);
        named["$id"] = json!("http://example.com/s");
        named["id"] = json!("s");
        check(&named, Ok(()));
        let by_anchor = |i: usize| json!({"$anchor": format!("a{i}"), "$dynamicAnchor": format!("a{i}"), "$ref": format!("#a{}", i + 1)});
        check(&json!({"$ref": "#a0", "$defs": (0..100).map(by_anchor).collect::<Vec<_>>()}), Ok(()));
    }

    #[test]
    fn a_long_chain_of_references_is_refused() {
        check(&chain(100, |next| next), Ok(()));
        check(&chain(5_000, |next| next), Err(SchemaError::TooIntricate));
    }

    #[test]
    fn going_in_circles_is_no_reason_to_refuse() {
        check(&json!({"$ref": "#"}), Ok(()));
        check(&json!({"allOf": [{"$ref": "#"}, {"$ref": "#/allOf/0"}]}), Ok(()));
    }

    #[test]
    fn depth_counts_more_where_there_are_references() {
        let deep =
            |levels: usize, inner: Value| (0..levels).fold(inner, |schema, _| json!({"items": schema}));
        check(&deep(100, json!({})), Ok(()));
        check(&deep(100, json!({"$ref": "#"})), Ok(()));
        let references = vec![json!({"$ref": "#"}); 8];
        check(&deep(100, json!({"allOf": references})), Err(SchemaError::TooDeep));
    }

    #[test]
    fn unevaluated_properties_and_references_are_refused_where_there_are_many_of_both() {
        let schema = |count: usize| {
            let one = json!({"$ref": "#", "unevaluatedProperties": false});
            json!({"properties": {"a": {"items": {"prefixItems": vec![one; count]}}}})
        };
        check(&schema(10), Ok(()));
        check(&schema(11), Err(SchemaError::TooIntricate));
    }

    #[test]
    fn embedding_hundreds_of_schemas_is_refused() {
        let ids: Vec<_> = (0..200).map(|i| json!({"$id": format!("u{i}")})).collect();
        check(&json!({"$defs": ids}), Err(SchemaError::TooIntricate));
    }

    #[test]
    fn thousands_of_regular_expressions_and_giant_ones_are_refused() {
        let properties: Map<_, _> = (0..1_000).map(|i| (format!("p{i}"), json!({"pattern": "a"}))).collect();
        check(&json!({"properties": properties}), Err(SchemaError::LargePatterns));
        check(&json!({"patternProperties": {r"\p{L}{1000}": {}}}), Err(SchemaError::LargePatterns));
    }

    #[test]
    fn text_costs_what_its_patterns_may_cost() {
        let cost = |pattern: &str| screen(&json!({"pattern": pattern})).unwrap().of_text(1_000);
        assert!(cost("^a+$") < 10_000);
        assert!(cost("a{5000}") > 100_000);
        assert!(cost("(?=a)") > cost("(?:a)"));
        assert_eq!(screen(&json!({})).unwrap().of_text(1_000), 0);
    }

    #[test]
    fn escapes_in_references_are_understood() {
        assert_eq!(percent_decoded("/%24defs/a%7Eb%"), "/$defs/a~b%");
        assert_eq!(percent_decoded("%zz%c3%a9"), "%zzé");
    }
}
