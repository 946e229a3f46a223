//! A law on generated values, judged by the real TypeScript compiler: for the schemas that types express exactly, a value is
//! accepted by the type if and only if it is valid by the schema.
//!
//! Types cannot express limits on numbers and texts, `integer`, `not`, or that exactly one alternative is valid. They do not
//! name further properties beside named ones of other types. The generator makes no such schemas; the translation widens
//! them, which is tested elsewhere.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use bascule_catalog::{CatalogTool, DeclaredServer, DeclaredTool, Schema, Validation, declarations};
use bascule_model::{ServerName, ToolDefinition};
use serde_json::value::to_raw_value;
use serde_json::{Map, Value, json};

const SCHEMAS: usize = 250;
const VALUES: usize = 16;
const NAMES: [&str; 6] = ["a", "b", "with-hyphen", "class", "1st", "é"];

/// A small generator of pseudo-random numbers (xorshift), so that every run tests the same values.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % limit
    }

    fn pick<T: Clone>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())].clone()
    }

    fn is_one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }
}

fn scalar_schema(random: &mut Random) -> Value {
    match random.below(8) {
        0 => json!({ "type": "null" }),
        1 => json!({ "type": "boolean" }),
        2 => json!({ "type": "number" }),
        3 => json!({ "type": "string", "description": "ends */ here" }),
        4 => json!({ "const": scalar(random) }),
        5 => json!({ "enum": [scalar(random), scalar(random), scalar(random)] }),
        6 => json!({ "type": ["string", "null"] }),
        _ => json!({ "type": ["number", "boolean"] }),
    }
}

fn scalar(random: &mut Random) -> Value {
    random.pick(&[
        json!(null),
        json!(true),
        json!(false),
        json!(0),
        json!(-1.5),
        json!(1e21),
        json!(""),
        json!("a"),
        json!("\"'\\\n"),
    ])
}

fn schema(random: &mut Random, depth: usize) -> Value {
    if depth == 0 {
        return scalar_schema(random);
    }
    match random.below(16) {
        0 => json!({}),
        1 => json!(true),
        2 | 3 => json!({ "type": "array", "items": schema(random, depth - 1) }),
        4 => tuple(random, depth - 1),
        5 => json!({ "type": "object", "additionalProperties": schema(random, depth - 1) }),
        6 => {
            json!({ "type": "object", "properties": { "a": schema(random, depth - 1) }, "additionalProperties": true })
        }
        7 => {
            json!({ "anyOf": [scalar_schema(random), json!({ "type": "array", "items": schema(random, depth - 1) })] })
        }
        // The alternatives differ in the kind of value, so an object is judged by one of them alone.
        8 => json!({ "oneOf": [object(random, depth - 1), { "type": "string" }, { "type": "null" }] }),
        9 => json!({ "$ref": "#/$defs/shared" }),
        10 => json!({ "allOf": [object(random, depth - 1)], "nullable": false }),
        12..=14 => combined_reference(random, depth - 1),
        11 => json!({ "anyOf": [tagged(random, "x", depth - 1), tagged(random, "y", depth - 1)] }),
        _ => object(random, depth - 1),
    }
}

/// A reference in `allOf`, or beside other keywords.
fn combined_reference(random: &mut Random, depth: usize) -> Value {
    let extension = json!({ "properties": { "x": schema(random, depth) }, "required": ["x"] });
    let (open, further) = (json!({ "$ref": "#/$defs/open" }), json!({ "$ref": "#/$defs/further" }));
    match random.below(9) {
        0 => json!({ "allOf": [open, further] }),
        1 => json!({ "allOf": [open, extension], "unevaluatedProperties": false }),
        2 => {
            json!({ "$ref": "#/$defs/open", "properties": extension["properties"], "required": ["x"], "unevaluatedProperties": false })
        }
        3 => json!({ "type": "array", "$ref": "#/$defs/list" }),
        4 => json!({ "type": "string", "allOf": [{ "$ref": "#/$defs/many" }] }),
        5 => json!({ "type": "object", "$ref": "#/$defs/shared" }),
        6 => json!({ "allOf": [{ "$ref": "#/$defs/node" }, extension] }),
        7 => json!({ "type": "object", "$ref": "#/$defs/node" }),
        _ => json!({ "type": "string", "$ref": "#/$defs/shared" }),
    }
}

/// The definitions that schemas refer to. Types of open objects are closed, so their values have no further properties.
fn definitions(random: &mut Random) -> Value {
    let open = |name: &str, kind: &str| json!({ "type": "object", "properties": { name: { "type": kind } }, "required": [name] });
    json!({
        "shared": object(random, 0),
        "open": open("o", "string"),
        "further": open("f", "number"),
        "list": { "type": "array", "items": scalar_schema(random) },
        "many": { "enum": ["a", "b", "c", "d", "e", "f", "g", "h", "i"] },
        "node": {
            "type": "object",
            "properties": { "next": { "$ref": "#/$defs/node" }, "label": { "type": "string" } },
            "required": ["label"],
        },
    })
}

/// An object that a property tells apart from others.
fn tagged(random: &mut Random, tag: &str, depth: usize) -> Value {
    let mut tagged = object(random, depth);
    tagged["properties"]["kind"] = json!({ "const": tag });
    tagged["required"].as_array_mut().unwrap().push("kind".into());
    tagged
}

fn tuple(random: &mut Random, depth: usize) -> Value {
    let items: Vec<Value> = (0..1 + random.below(3)).map(|_| schema(random, depth)).collect();
    let least = random.below(items.len() + 1);
    json!({ "type": "array", "prefixItems": items, "items": false, "minItems": least })
}

fn object(random: &mut Random, depth: usize) -> Value {
    let names: BTreeSet<&str> = (0..1 + random.below(4)).map(|_| random.pick(&NAMES)).collect();
    let required: Vec<&str> = names.iter().copied().filter(|_| !random.is_one_in(3)).collect();
    let properties: Map<String, Value> =
        names.iter().map(|name| ((*name).to_owned(), schema(random, depth))).collect();
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

/// A value that is probably valid by the schema, or differs from such a value in one place.
fn value(random: &mut Random, schema: &Value, root: &Value) -> Value {
    if random.is_one_in(12) {
        return any_value(random, 2);
    }
    if schema.get("$ref").is_some() || schema.get("allOf").is_some() {
        return combined_value(random, schema, root);
    }
    for keyword in ["anyOf", "oneOf"] {
        if let Some(members) = schema[keyword].as_array() {
            let member = random.pick(members);
            return value(random, &member, root);
        }
    }
    if let Some(constant) = schema.get("const") {
        return constant.clone();
    }
    if let Some(values) = schema["enum"].as_array() {
        return random.pick(values);
    }
    let kind = match &schema["type"] {
        Value::Array(kinds) => random.pick(kinds),
        kind => kind.clone(),
    };
    match kind.as_str() {
        Some("null") => Value::Null,
        Some("boolean") => json!(random.is_one_in(2)),
        Some("number") => random.pick(&[json!(0), json!(2.5), json!(-7)]),
        Some("string") => random.pick(&[json!(""), json!("a"), json!("b")]),
        Some("array") => array_value(random, schema, root),
        Some("object") => object_value(random, schema, root),
        _ => any_value(random, 2),
    }
}

/// A value of all parts of a combination, if they are objects; else of one.
fn combined_value(random: &mut Random, schema: &Value, root: &Value) -> Value {
    let mut parts: Vec<Value> = schema["allOf"].as_array().cloned().unwrap_or_default();
    parts.extend(schema["$ref"].as_str().map(|reference| root.pointer(&reference[1..]).unwrap().clone()));
    parts.extend(schema.get("properties").is_some().then(|| json!({ "properties": schema["properties"] })));
    if parts.len() == 1 {
        return value(random, &parts[0], root);
    }
    let references = parts.iter_mut().filter(|part| part.get("$ref").is_some());
    references.for_each(|part| *part = root.pointer(&part["$ref"].as_str().unwrap()[1..]).unwrap().clone());
    let objects = parts.iter().map(|part| object_value(random, part, root));
    Value::from_iter(objects.flat_map(|object| object.as_object().unwrap().clone()))
}

fn array_value(random: &mut Random, schema: &Value, root: &Value) -> Value {
    match schema["prefixItems"].as_array() {
        Some(items) => {
            let count = items.len() - usize::from(random.is_one_in(4)) + usize::from(random.is_one_in(6));
            let item = |index: usize| items.get(index).cloned().unwrap_or(json!({}));
            (0..count).map(|index| value(random, &item(index), root)).collect()
        }
        None => (0..random.below(3)).map(|_| value(random, &schema["items"], root)).collect(),
    }
}

fn object_value(random: &mut Random, schema: &Value, root: &Value) -> Value {
    let mut members = Map::new();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        if !random.is_one_in(6) {
            members.insert(name.clone(), value(random, property, root));
        }
    }
    let further = match &schema["additionalProperties"] {
        Value::Bool(false) => random.is_one_in(8).then(|| json!({})),
        // The type of an open object is closed.
        Value::Null => None,
        rest => Some(rest.clone()),
    };
    if let Some(further) = further {
        members.insert("further".into(), value(random, &further, root));
    }
    members.into()
}

fn any_value(random: &mut Random, depth: usize) -> Value {
    match random.below(if depth == 0 { 1 } else { 3 }) {
        0 => scalar(random),
        1 => (0..random.below(3)).map(|_| any_value(random, depth - 1)).collect(),
        _ => (0..random.below(3))
            .map(|_| (random.pick(&NAMES).to_owned(), any_value(random, depth - 1)))
            .collect(),
    }
}

fn tool(index: usize, schema: &Value) -> CatalogTool {
    let definition = json!({ "name": format!("t{index}"), "inputSchema": {}, "outputSchema": schema });
    let definition = ToolDefinition::parse(to_raw_value(&definition).unwrap()).unwrap();
    CatalogTool::new(&ServerName::parse("s").unwrap(), definition)
}

fn compiler() -> PathBuf {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.testenv");
    let root = std::env::var_os("BASCULE_TESTENV").map_or_else(default, PathBuf::from);
    let file = root.join("peers/node_modules/typescript/bin/tsc");
    assert!(file.exists(), "TypeScript is not installed: run `make test-env`");
    file.canonicalize().unwrap()
}

/// Returns the lines of `values.ts` that the compiler refuses.
fn refused_lines(folder: &Path) -> BTreeSet<usize> {
    let output = Command::new("node")
        .arg(compiler())
        .args(["--noEmit", "--strict", "--pretty", "false", "--target", "es2022", "mcp.d.ts", "values.ts"])
        .current_dir(folder)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = text.lines().filter(|line| line.contains("error TS"));
    let number = |line: &str| {
        let position = line.strip_prefix("values.ts(").unwrap_or_else(|| panic!("not in a value: {line}"));
        position.split(',').next().unwrap().parse().unwrap()
    };
    errors.map(number).collect()
}

/// Schemas whose definitions are names of each other, or of themselves.
const CIRCULAR: [&str; 8] = [
    r##"{"$ref":"#"}"##,
    r##"{"properties":{"x":{"$ref":"#"}}}"##,
    r##"{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}}"##,
    r##"{"properties":{"x":{"$ref":"#/$defs/a"},"y":{"$ref":"#/$defs/b"}},"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}}"##,
    r##"{"$ref":"#/$defs/a","$defs":{"a":{"allOf":[{"$ref":"#/$defs/b"}]},"b":{"allOf":[{"$ref":"#/$defs/a"},{"type":"object"}]}}}"##,
    r##"{"$ref":"#/$defs/a","$defs":{"a":{"anyOf":[{"$ref":"#/$defs/b"},{"type":"string"}]},"b":{"anyOf":[{"$ref":"#/$defs/a"},{"type":"null"}]}}}"##,
    r##"{"allOf":[{"$ref":"#/allOf/1"},{"$ref":"#/allOf/0"}]}"##,
    r##"{"$ref":"#/$defs/a","$defs":{"a":{"type":"array","items":{"anyOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/b"}]}},"b":{"anyOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/b"}]}}}"##,
];

// req: CM-08
#[test]
fn compiler_accepts_definitions_that_refer_to_each_other() {
    let tools: Vec<CatalogTool> = CIRCULAR
        .iter()
        .enumerate()
        .map(|(index, schema)| tool(index, &serde_json::from_str(schema).unwrap()))
        .collect();
    let declared = tools.iter().map(|tool| DeclaredTool { name: tool.id().tool().into(), tool }).collect();
    let declared = declarations(&[DeclaredServer { name: "s".into(), tools: declared }]);
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("mcp.d.ts"), &declared).unwrap();
    fs::write(folder.path().join("values.ts"), "").unwrap();
    assert!(refused_lines(folder.path()).is_empty(), "{declared}");
}

// req: CM-08
#[test]
fn value_has_the_type_if_and_only_if_it_is_valid() {
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let (mut tools, mut program, mut expected) = (Vec::new(), String::new(), Vec::new());
    for index in 0..SCHEMAS {
        let mut schema = schema(&mut random, 3);
        if !schema.is_object() {
            schema = json!({ "allOf": [schema] });
        }
        schema["$defs"] = definitions(&mut random);
        let tool = tool(index, &schema);
        let compiled = Schema::compile(&to_raw_value(&schema).unwrap()).unwrap();
        for _ in 0..VALUES {
            let value = value(&mut random, &schema, &schema);
            let is_valid = compiled.check(&to_raw_value(&value).unwrap()) == Validation::Valid;
            program.push_str(&format!("{{ const value: S.T{index}Result = {value}; void value; }}\n"));
            expected.push((is_valid, schema.clone(), value));
        }
        tools.push(tool);
    }
    let declared = tools.iter().map(|tool| DeclaredTool { name: tool.id().tool().into(), tool }).collect();
    let declared = declarations(&[DeclaredServer { name: "s".into(), tools: declared }]);
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("mcp.d.ts"), &declared).unwrap();
    fs::write(folder.path().join("values.ts"), &program).unwrap();
    let refused = refused_lines(folder.path());
    let mut differing = Vec::new();
    for (index, (is_valid, schema, value)) in expected.iter().enumerate() {
        if refused.contains(&(index + 1)) == *is_valid {
            differing.push(format!("valid: {is_valid}, schema: {schema}, value: {value}"));
        }
    }
    let valid = expected.iter().filter(|(is_valid, ..)| *is_valid).count();
    assert!(valid > 1_000 && expected.len() - valid > 500, "{valid} of {} are valid", expected.len());
    assert!(
        differing.is_empty(),
        "{} differ:\n{}",
        differing.len(),
        differing[..differing.len().min(12)].join("\n")
    );
}
