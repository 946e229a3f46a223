//! Makes `docs/asyncapi.yaml` from the message types, and fails if the file differs from them.
//!
//! `BASCULE_UPDATE=1 cargo test -p bascule-bus --test asyncapi` writes the file. The fields of a schema must be those of an example
//! with every field set, which is a value of the message type. Required fields are those without which the type cannot be
//! read. The reference parser of AsyncAPI judges the file.

#![allow(clippy::unwrap_used, reason = "test helpers may panic")]

mod bodies;
mod document;
mod envelopes;
mod schema;
mod yaml;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use bascule_bus::{ContentTrust, Envelope};
use serde_json::{Value, json};

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

// req: BU-03
#[test]
fn document_equals_the_types() {
    let path = project().join("docs/asyncapi.yaml");
    let expected = yaml::write(&document::document());
    if std::env::var_os("BASCULE_UPDATE").is_some() {
        std::fs::write(&path, &expected).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    let line = expected.lines().zip(found.lines()).position(|(expected, found)| expected != found);
    assert!(
        expected == found,
        "docs/asyncapi.yaml differs from the message types from line {} on: run `BASCULE_UPDATE=1 cargo test -p bascule-bus --test asyncapi`",
        line.unwrap_or(expected.lines().count().min(found.lines().count())) + 1
    );
}

/// Returns all examples with the names of their messages.
fn examples(document: &Value) -> Vec<(String, Value)> {
    let messages = document["components"]["messages"].as_object().unwrap();
    let of = |(name, message): (&String, &Value)| {
        let examples = message["examples"].as_array().unwrap().clone();
        examples.into_iter().map(|example| (name.clone(), example)).collect::<Vec<_>>()
    };
    messages.iter().flat_map(of).collect()
}

// req: BU-03
// req: BU-04
#[test]
fn every_message_has_examples_that_the_types_read() {
    let document = document::document();
    for (name, example) in examples(&document) {
        let envelope = Envelope::parse(example["payload"].to_string().as_bytes()).unwrap();
        assert!(envelope.unknown.is_empty(), "{name}: {:?}", envelope.unknown);
        assert_eq!(serde_json::to_value(&envelope).unwrap(), example["payload"], "{name}");
        bodies::check_reads(&envelope);
        // Headers of the envelope are headers of the broker too.
        assert_eq!(example["headers"], json!(envelope.headers), "{name}");
        if !name.starts_with("provider.") {
            assert!(ContentTrust::from_headers(&envelope.headers).is_some(), "{name} has no trust label");
        }
    }
}

// req: BU-03
#[test]
fn every_example_is_valid_and_every_schema_is_strict_enough() {
    let document = document::document();
    for (name, example) in examples(&document) {
        let validator = payload_validator(&document, &name);
        let payload = &example["payload"];
        let errors: Vec<_> = validator.iter_errors(payload).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{name}: {errors:?}");
        // Each mistake is found: a missing field, another type, another version.
        for field in ["messageId", "type", "source", "timestamp", "body"] {
            let mut broken = payload.clone();
            broken.as_object_mut().unwrap().remove(field);
            assert!(!validator.is_valid(&broken), "{name} without `{field}`");
        }
        let changes =
            [("version", json!(2)), ("type", json!("Other")), ("body", json!(7)), ("headers", json!([]))];
        for (field, value) in changes {
            let mut broken = payload.clone();
            broken[field] = value;
            assert!(!validator.is_valid(&broken), "{name} with another `{field}`");
        }
    }
}

fn payload_validator(document: &Value, message: &str) -> jsonschema::Validator {
    let schema = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "allOf": [{"$ref": format!("#/components/messages/{message}/payload")}],
        "components": document["components"],
    });
    jsonschema::validator_for(&schema).unwrap()
}

// req: BU-03
#[test]
fn reference_parser_accepts_the_document() {
    let output = validate(&project().join("docs/asyncapi.yaml"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // The parser reads from the YAML what was written.
    let read: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(read, document::document());
}

// req: BU-03
#[test]
fn reference_parser_refuses_a_broken_document() {
    let mut document = document::document();
    document["operations"]["callTool"]["action"] = json!("listen");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("broken.yaml");
    std::fs::write(&path, yaml::write(&document)).unwrap();
    let output = validate(&path);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && errors.contains("operations/callTool/action"), "{errors}");
}

fn validate(document: &Path) -> Output {
    let default = || project().join(".testenv");
    let root = std::env::var_os("BASCULE_TESTENV").map_or_else(default, PathBuf::from);
    let parser = root.join("validators/node_modules/@asyncapi/parser");
    assert!(parser.exists(), "the AsyncAPI parser is not installed: run `make test-env`");
    Command::new("node")
        .arg(project().join("crates/bascule-bus/tests/asyncapi/validate.cjs"))
        .args([&parser, document])
        .output()
        .expect("Node 20 or later is installed")
}
