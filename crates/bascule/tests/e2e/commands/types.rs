//! The declarations of `bascule types`, judged by the real TypeScript compiler.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Map, Value, json};

use crate::support::{Bascule, project_file, test_env};

/// The saved tool lists of 25 real servers.
fn catalogs() -> Vec<PathBuf> {
    let entries = fs::read_dir(project_file("tests/catalogs")).unwrap();
    let files = entries.map(|entry| entry.unwrap().path());
    files.filter(|file| file.extension().is_some_and(|extension| extension == "json")).collect()
}

fn run_types(bascule: &Bascule, output: &Path) -> Value {
    let files = catalogs();
    let mut arguments = vec!["types", "-o", output.to_str().unwrap(), "--catalog"];
    arguments.extend(files.iter().map(|file| file.to_str().unwrap()));
    let (code, document) = bascule.run_json(&arguments);
    assert_eq!(code, 0, "{document}");
    document
}

/// The input schemas by `server:tool`.
fn schemas() -> Map<String, Value> {
    let mut schemas = Map::new();
    for file in catalogs() {
        let saved: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        for tool in saved["tools"].as_array().unwrap() {
            let server = file.file_stem().unwrap().to_str().unwrap();
            schemas
                .insert(format!("{server}:{}", tool["name"].as_str().unwrap()), tool["inputSchema"].clone());
        }
    }
    schemas
}

/// A value that the schema accepts: required properties only.
fn sample(schema: &Value, root: &Value) -> Value {
    if let Some(reference) = schema["$ref"].as_str() {
        return sample(root.pointer(&reference[1..]).unwrap(), root);
    }
    if let Some(value) = schema.get("const").or_else(|| schema["enum"].get(0)) {
        return value.clone();
    }
    let union = ["anyOf", "oneOf", "allOf"].iter().find_map(|key| schema[key].get(0));
    if let (None, Some(member)) = (schema.get("type"), union) {
        return sample(member, root);
    }
    let implied = schema.get("properties").map(|_| "object");
    match schema["type"].as_str().or_else(|| schema["type"][0].as_str()).or(implied) {
        Some("string") => json!("text"),
        Some("number" | "integer") => json!(1),
        Some("boolean") => json!(true),
        Some("array") => json!([sample(&schema["items"], root)]),
        Some("object") => {
            let required =
                schema["required"].as_array().into_iter().flatten().map(|name| name.as_str().unwrap());
            required.map(|name| (name.to_owned(), sample(&schema["properties"][name], root))).collect()
        }
        _ => Value::Null,
    }
}

/// Calls that the compiler must refuse: a required property is missing, or a plain one has another type.
fn wrong_calls(arguments: &Value, schema: &Value) -> Vec<Value> {
    let mut wrong = Vec::new();
    for (name, value) in arguments.as_object().unwrap() {
        let mut missing = arguments.clone();
        missing.as_object_mut().unwrap().remove(name);
        wrong.push(missing);
        if value.is_string() || (value.is_number() && schema["properties"][name]["type"].is_string()) {
            let mut other = arguments.clone();
            other[name] = json!({ "unexpected": [] });
            wrong.push(other);
        }
    }
    wrong
}

// req: CM-08
#[test]
fn compiler_accepts_right_calls_and_refuses_wrong_ones() {
    let bascule = Bascule::with_demo_servers();
    let document = run_types(&bascule, &bascule.folder().join("mcp.d.ts"));
    let schemas = schemas();
    let mut program = String::new();
    for tool in document["tools"].as_array().unwrap() {
        let (id, signature) = (tool["id"].as_str().unwrap(), tool["signature"].as_str().unwrap());
        let call = signature.split_once("(args").unwrap().0;
        let schema = &schemas[id];
        let arguments = Some(sample(schema, schema)).filter(Value::is_object).unwrap_or_else(|| json!({}));
        program.push_str(&format!("{call}({arguments});\n"));
        for wrong in wrong_calls(&arguments, schema) {
            program.push_str(&format!("// @ts-expect-error\n{call}({wrong});\n"));
        }
    }
    assert!(program.matches("@ts-expect-error").count() > 300, "{program}");
    fs::write(bascule.folder().join("calls.ts"), &program).unwrap();
    let output = Command::new("node")
        .arg(test_env("peers/node_modules/typescript/bin/tsc"))
        .args(["--noEmit", "--strict", "--target", "es2022", "mcp.d.ts", "calls.ts"])
        .current_dir(bascule.folder())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

// req: CM-08
#[test]
fn types_of_one_server_come_from_the_configuration() {
    let output = Bascule::with_demo_servers().run(&["types", "clock"]);
    assert!(output.stdout.contains("declare namespace Clock"), "{output:?}");
    assert!(!output.stdout.contains("Notes"), "{output:?}");
    let output = Bascule::with_demo_servers().run(&["types", "clok:*"]);
    assert_eq!(output.code, Some(2), "{output:?}");
}

// req: CM-08
#[test]
fn names_are_taken_in_every_spelling_and_unknown_ones_refused() {
    let (bascule, git) =
        (Bascule::with_text("this is no configuration"), project_file("tests/catalogs/git.json"));
    let types =
        |names: &[&str]| bascule.run(&[&["types", "--catalog", git.to_str().unwrap()], names].concat());
    for spelling in ["git:git_log", "mcp.git.gitLog", "git__git_log", "git.gitLog", "gitLog"] {
        let output = types(&[spelling]);
        assert_eq!(output.code, Some(0), "{spelling}: {output:?}");
        assert!(output.stdout.contains("gitLog(") && !output.stdout.contains("gitDiff("), "{output:?}");
    }
    let output = types(&["git:git_log", "git:git_lgo", "zzz"]);
    assert_eq!((output.code, output.stdout.as_str()), (Some(2), ""), "{output:?}");
    assert!(output.stderr.contains("`git:git_lgo`") && output.stderr.contains("`zzz`"), "{output:?}");
    assert!(output.stderr.contains("`git:git_log`"), "the nearest: {output:?}");
    let output = Bascule::with_demo_servers().run(&["types", "mcp.clock.listTimezones"]);
    assert!(output.stdout.contains("listTimezones(") && !output.stdout.contains("convert("), "{output:?}");
}
