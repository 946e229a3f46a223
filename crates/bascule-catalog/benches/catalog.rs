//! What the catalog costs, over the real tools of 25 servers taken four times: 1,040 tools, 1,224 schemas.
//!
//! `cargo bench -p bascule-catalog`. Each figure is the best and the median of its rounds.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use bascule_catalog::{Catalog, CatalogTool, ToolFilter, Verdict};
use bascule_model::{ServerName, ToolDefinition, ToolId};
use serde::Deserialize;
use serde_json::value::RawValue;

fn main() {
    let listed = listed();
    let first = Instant::now();
    compile(&Catalog::assemble(listed.clone()));
    println!("{:<48} {:>10.1?}", "assemble and compile all, the first time", first.elapsed());
    rounds("clone the definitions", 50, 1, || drop(black_box(listed.clone())));
    rounds("clone, assemble", 50, 1, || drop(black_box(Catalog::assemble(listed.clone()))));
    rounds("clone, assemble and compile all", 50, 1, || compile(&Catalog::assemble(listed.clone())));

    let catalog = Catalog::assemble(listed);
    let id = ToolId::parse("s0-everything:get-sum").expect("a name");
    let tool = catalog.resolve(&id).expect("it is there");
    rounds("check {\"a\":1,\"b\":2}", 50, 10_000, || check(tool, r#"{"a":1,"b":2}"#));
    rounds("parse alone", 50, 10_000, || {
        black_box(serde_json::from_str::<serde_json::Value>(r#"{"a":1,"b":2}"#).expect("JSON"));
    });
    rounds("explain two violations", 50, 1_000, || check(tool, r#"{"a":"1"}"#));
    rounds("resolve", 50, 100_000, || drop(black_box(catalog.resolve(black_box(&id)))));
    let typo = ToolId::parse("s0-everything:get-sun").expect("a name");
    rounds("resolve a name nobody has", 20, 10, || drop(black_box(catalog.resolve(&typo))));
}

fn check(tool: &CatalogTool, arguments: &'static str) {
    let arguments: &RawValue = serde_json::from_str(arguments).expect("JSON");
    assert!(!matches!(black_box(tool.check_arguments(arguments)), Verdict::Unchecked { .. }));
}

fn compile(catalog: &Catalog) {
    for server in catalog.servers() {
        assert!(server.warnings().is_empty());
    }
}

fn rounds(what: &str, rounds: usize, times: u32, mut work: impl FnMut()) {
    let mut one_round = || -> Duration {
        let started = Instant::now();
        (0..times).for_each(|_| work());
        started.elapsed() / times
    };
    let mut took: Vec<_> = (0..rounds).map(|_| one_round()).collect();
    took.sort();
    println!("{what:<48} {:>10.1?} {:>10.1?}", took[0], took[rounds / 2]);
}

#[derive(Deserialize)]
struct Listing {
    server: String,
    tools: Vec<Box<RawValue>>,
}

fn listed() -> Vec<(ServerName, ToolFilter, Vec<ToolDefinition>)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/catalogs");
    let files = std::fs::read_dir(folder).expect("the catalogs");
    let listings: Vec<Listing> = files
        .map(|file| std::fs::read(file.expect("a file").path()).expect("a catalog"))
        .map(|text| serde_json::from_slice(&text).expect("JSON"))
        .collect();
    (0..4).flat_map(|copy| listings.iter().map(move |listing| server(copy, listing))).collect()
}

fn server(copy: usize, listing: &Listing) -> (ServerName, ToolFilter, Vec<ToolDefinition>) {
    let name = ServerName::parse(&format!("s{copy}-{}", listing.server)).expect("a name");
    let tools = listing.tools.iter().map(|tool| ToolDefinition::parse(tool.clone()).expect("a tool"));
    (name, ToolFilter::default(), tools.collect())
}
