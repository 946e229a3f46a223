//! What 25 real servers list, taken as it is: every schema compiles, and every tool says no to nonsense.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use bascule_catalog::{Catalog, CatalogTool, ToolFilter, Verdict};
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
    Catalog::assemble(files.iter().map(|file| {
        let Listing { server, tools } = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        let tools = tools.into_iter().map(|tool| ToolDefinition::parse(tool).unwrap()).collect();
        (ServerName::parse(&server).unwrap(), ToolFilter::default(), tools)
    }))
}

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.into()).unwrap()
}

fn tool<'c>(catalog: &'c Catalog, id: &str) -> &'c CatalogTool {
    catalog.resolve(&ToolId::parse(id).unwrap()).unwrap()
}

fn check(id: &str, arguments: &str, expected: &[&str]) {
    let found = match tool(&catalog(), id).check_arguments(&raw(arguments)) {
        Verdict::Valid => Vec::new(),
        Verdict::Violations(all) => all.iter().map(|v| format!("{}: {}", v.pointer, v.message)).collect(),
        Verdict::Unchecked { why } => panic!("{why}"),
    };
    assert_eq!(found, expected, "{id} {arguments}");
}

// req: BR-04
#[test]
fn every_schema_of_every_real_tool_compiles() {
    let catalog = catalog();
    assert_eq!(catalog.tools().count(), 260);
    for server in catalog.servers() {
        assert_eq!(server.warnings(), [""; 0], "{}", server.name());
    }
}

// req: BR-04
#[test]
fn every_real_tool_that_requires_something_says_so() {
    #[derive(Deserialize)]
    struct Required {
        #[serde(default)]
        required: Vec<String>,
    }
    for tool in catalog().tools() {
        let Required { required } = serde_json::from_str(tool.definition().input_schema.get()).unwrap();
        match tool.check_arguments(&raw("{}")) {
            Verdict::Valid => assert_eq!(required, [""; 0], "{}", tool.id()),
            Verdict::Violations(found) => assert_eq!(found.len(), required.len(), "{} {found:?}", tool.id()),
            Verdict::Unchecked { why } => panic!("{}: {why}", tool.id()),
        }
    }
}

// req: BR-04
#[test]
fn real_tools_take_what_is_right_and_explain_what_is_wrong() {
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
fn the_whole_catalog_prints_as_it_was_listed() {
    let printed =
        serde_json::to_string(&catalog().tools().map(AsRef::as_ref).collect::<Vec<&CatalogTool>>()).unwrap();
    for tool in catalog().tools() {
        assert!(printed.contains(tool.definition().input_schema.get()), "{}", tool.id());
    }
}

// req: BR-04
#[test]
fn misremembered_names_lead_to_the_real_ones() {
    let catalog = catalog();
    for (wanted, meant) in [
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
        let bascule_catalog::Miss::Unknown { nearest } =
            catalog.resolve(&ToolId::parse(wanted).unwrap()).unwrap_err()
        else {
            panic!("{wanted} is denied")
        };
        assert!(nearest.iter().any(|id| id.as_str() == meant), "{wanted}: {nearest:?}");
    }
}
