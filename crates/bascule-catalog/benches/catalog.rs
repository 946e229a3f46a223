//! Measures the catalog with the real tools of 25 servers, each four times: 1,040 tools, 1,224 schemas.
//!
//! `cargo bench -p bascule-catalog` prints the best wall time and the average processor time, which varies less on
//! a busy machine.

#![allow(clippy::print_stdout, reason = "the program prints its measurements")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use bascule_catalog::{Catalog, CatalogTool, ServerTools, ToolFilter, Validation};
use bascule_model::{ServerName, ToolDefinition, ToolId};
use serde::Deserialize;
use serde_json::value::RawValue;

fn main() {
    let listed = listed();
    let compiled = || compile(assemble(listed.clone()));
    measure("the first time: clone, assemble, compile all", 1, 1, compiled);
    measure("clone the definitions", 100, 1, || listed.clone());
    measure("clone, assemble", 100, 1, || assemble(listed.clone()));
    measure("clone, assemble, compile all", 50, 1, compiled);

    let catalog = assemble(listed);
    let id = ToolId::parse("s0-everything:get-sum").expect("a name");
    let tool = catalog.resolve(&id).expect("it is there");
    measure("check {\"a\":1,\"b\":2}", 50, 10_000, || check(tool, r#"{"a":1,"b":2}"#));
    measure("parse alone", 50, 10_000, || drop(parse(black_box(r#"{"a":1,"b":2}"#))));
    measure("explain two violations", 50, 1_000, || check(tool, r#"{"a":"1"}"#));
    measure("resolve", 50, 100_000, || drop(black_box(catalog.resolve(black_box(&id)))));
    let typo = ToolId::parse("s0-everything:get-sun").expect("a name");
    measure("resolve an unknown name", 20, 10, || drop(black_box(catalog.resolve(&typo))));
}

fn assemble(listed: Vec<(ServerName, ToolFilter, Vec<ToolDefinition>)>) -> Catalog {
    listed.into_iter().map(|(name, filter, tools)| ServerTools::new(name, filter, tools)).collect()
}

fn check(tool: &CatalogTool, arguments: &'static str) {
    let arguments: &RawValue = serde_json::from_str(arguments).expect("JSON");
    assert!(!matches!(black_box(tool.check_arguments(arguments)), Validation::Unchecked { .. }));
}

fn parse(text: &str) -> serde_json::Value {
    serde_json::from_str(text).expect("JSON")
}

fn compile(catalog: Catalog) -> Catalog {
    assert!(catalog.tools().all(|tool| tool.warnings().is_empty()));
    catalog
}

/// Runs `work` in rounds of `iterations`. The results are dropped outside of the measurement.
fn measure<T>(name: &str, rounds: u32, iterations: u32, mut work: impl FnMut() -> T) {
    let (mut best, mut processor) = (Duration::MAX, Duration::ZERO);
    for _ in 0..rounds {
        let mut results = Vec::with_capacity(iterations as usize);
        let (started, used) = (Instant::now(), processor_time());
        results.extend((0..iterations).map(|_| work()));
        processor += processor_time() - used;
        best = best.min(started.elapsed());
    }
    println!("{name:<48} {:>10.1?} {:>10.1?}", best / iterations, processor / iterations / rounds);
}

/// Returns the processor time of this thread; zero if the system does not report it.
fn processor_time() -> Duration {
    let scheduled = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanos = scheduled.and_then(|text| text.split(' ').next()?.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
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
