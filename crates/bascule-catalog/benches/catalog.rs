//! What the catalog costs, over the real tools of 25 servers taken four times: 1,040 tools, 1,224 schemas.
//!
//! `cargo bench -p bascule-catalog` prints the best time of all rounds, and the processor time of an average
//! one: machines that run benchmarks are seldom idle.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use bascule_catalog::{Catalog, CatalogTool, ToolFilter, Verdict};
use bascule_model::{ServerName, ToolDefinition, ToolId};
use serde::Deserialize;
use serde_json::value::RawValue;

fn main() {
    let listed = listed();
    let compiled = || compile(Catalog::assemble(listed.clone()));
    rounds("the first time: clone, assemble, compile all", 1, 1, compiled);
    rounds("clone the definitions", 100, 1, || listed.clone());
    rounds("clone, assemble", 100, 1, || Catalog::assemble(listed.clone()));
    rounds("clone, assemble, compile all", 50, 1, compiled);

    let catalog = Catalog::assemble(listed);
    let id = ToolId::parse("s0-everything:get-sum").expect("a name");
    let tool = catalog.resolve(&id).expect("it is there");
    rounds("check {\"a\":1,\"b\":2}", 50, 10_000, || check(tool, r#"{"a":1,"b":2}"#));
    rounds("parse alone", 50, 10_000, || drop(parse(black_box(r#"{"a":1,"b":2}"#))));
    rounds("explain two violations", 50, 1_000, || check(tool, r#"{"a":"1"}"#));
    rounds("resolve", 50, 100_000, || drop(black_box(catalog.resolve(black_box(&id)))));
    let typo = ToolId::parse("s0-everything:get-sun").expect("a name");
    rounds("resolve a name nobody has", 20, 10, || drop(black_box(catalog.resolve(&typo))));
}

fn check(tool: &CatalogTool, arguments: &'static str) {
    let arguments: &RawValue = serde_json::from_str(arguments).expect("JSON");
    assert!(!matches!(black_box(tool.check_arguments(arguments)), Verdict::Unchecked { .. }));
}

fn parse(text: &str) -> serde_json::Value {
    serde_json::from_str(text).expect("JSON")
}

fn compile(catalog: Catalog) -> Catalog {
    assert!(catalog.servers().iter().all(|server| server.warnings().is_empty()));
    catalog
}

/// Does `work` in rounds of so many times each. What it makes is dropped after the clock has stopped.
fn rounds<T>(what: &str, rounds: u32, times: u32, mut work: impl FnMut() -> T) {
    let (mut best, mut processor) = (Duration::MAX, Duration::ZERO);
    for _ in 0..rounds {
        let mut made = Vec::with_capacity(times as usize);
        let (started, used) = (Instant::now(), processor_time());
        made.extend((0..times).map(|_| work()));
        processor += processor_time() - used;
        best = best.min(started.elapsed());
    }
    println!("{what:<48} {:>10.1?} {:>10.1?}", best / times, processor / times / rounds);
}

/// How long this thread has run so far; zero where the system does not say.
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
