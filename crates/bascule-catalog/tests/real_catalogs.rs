//! Checks the catalog with the unchanged tool lists of 25 real servers.

#![allow(clippy::unwrap_used, reason = "test helpers may panic")]

use std::path::PathBuf;

use bascule_catalog::{Catalog, CatalogTool, ServerTools, ToolFilter, Validation};
use bascule_model::{ServerName, ToolDefinition, ToolId};
use serde::Deserialize;
use serde_json::value::RawValue;

#[derive(Deserialize)]
struct Listing {
    server: String,
    tools: Vec<Box<RawValue>>,
}

fn catalog() -> Catalog {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/catalogs");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let server = |file: &PathBuf| {
        let Listing { server, tools } = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        let tools = tools.into_iter().map(|tool| ToolDefinition::parse(tool).unwrap()).collect();
        ServerTools::new(ServerName::parse(&server).unwrap(), ToolFilter::default(), tools)
    };
    files.iter().map(server).collect()
}

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.into()).unwrap()
}

fn tool<'c>(catalog: &'c Catalog, id: &str) -> &'c CatalogTool {
    catalog.resolve(&ToolId::parse(id).unwrap()).unwrap()
}

fn check(id: &str, arguments: &str, expected: &[&str]) {
    let found = match tool(&catalog(), id).check_arguments(&raw(arguments)) {
        Validation::Valid => Vec::new(),
        Validation::Violations(all) => all.iter().map(|v| format!("{}: {}", v.pointer, v.message)).collect(),
        Validation::Unchecked { reason } => panic!("{reason}"),
    };
    assert_eq!(found, expected, "{id} {arguments}");
}

// req: BR-04
#[test]
fn compiles_every_schema() {
    let catalog = catalog();
    assert_eq!(catalog.tools().count(), 260);
    for server in catalog.servers() {
        assert_eq!(server.warnings(), [""; 0], "{}", server.name());
    }
    for tool in catalog.tools() {
        assert_eq!(tool.warnings(), [""; 0], "{}", tool.id());
    }
}

// req: BR-04
#[test]
fn reports_every_missing_required_property() {
    #[derive(Deserialize)]
    struct Required {
        #[serde(default)]
        required: Vec<String>,
    }
    for tool in catalog().tools() {
        let Required { required } = serde_json::from_str(tool.definition().input_schema.get()).unwrap();
        match tool.check_arguments(&raw("{}")) {
            Validation::Valid => assert_eq!(required, [""; 0], "{}", tool.id()),
            Validation::Violations(found) => {
                assert_eq!(found.len(), required.len(), "{} {found:?}", tool.id())
            }
            Validation::Unchecked { reason } => panic!("{}: {reason}", tool.id()),
        }
    }
}

// req: BR-04
#[test]
fn accepts_valid_and_explains_invalid_arguments() {
    check("everything:get-sum", r#"{"a":1,"b":2.5}"#, &[]);
    check(
        "everything:get-sum",
        r#"{"a":"1"}"#,
        &["/b: `b` is required", "/a: must be a number, is a string; leave out the quotes"],
    );
    check(
        "time:get_current_time",
        r#"{"time_zone":"Europe/Berlin"}"#,
        &["/timezone: `timezone` is required"],
    );
}

// req: BR-03
#[test]
fn serializes_schemas_verbatim() {
    let printed =
        serde_json::to_string(&catalog().tools().map(AsRef::as_ref).collect::<Vec<&CatalogTool>>()).unwrap();
    for tool in catalog().tools() {
        assert!(printed.contains(tool.definition().input_schema.get()), "{}", tool.id());
    }
}

// req: BR-04
#[test]
fn suggests_real_names_for_misremembered_ones() {
    let catalog = catalog();
    for (wanted, expected) in [
        ("filesystem:readTextFile", "filesystem:read_text_file"),
        ("everything:getSum", "everything:get-sum"),
        ("github:create_pr", "github:create_pull_request"),
        ("git:status", "git:git_status"),
        ("time:current_time", "time:get_current_time"),
        ("fs:list_directory", "filesystem:list_directory"),
        ("slack:send_message", "slack:slack_post_message"),
        ("sqlite:querry", "sqlite:read_query"),
        ("playwright:click", "playwright:browser_click"),
    ] {
        let bascule_catalog::ResolveError::Unknown { nearest } =
            catalog.resolve(&ToolId::parse(wanted).unwrap()).unwrap_err()
        else {
            panic!("{wanted} is denied")
        };
        assert!(nearest.iter().any(|id| id.as_str() == expected), "{wanted}: {nearest:?}");
    }
}
