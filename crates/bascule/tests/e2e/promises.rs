//! What the project promises of itself.

use std::fs;
use std::path::{Path, PathBuf};

/// The requirements that this version claims to meet, whole or in the part that README names.
const CLAIMED: [&str; 55] = [
    "CL-01", "CL-02", "CL-03", "CL-04", "CL-05", "CL-06", "CL-07", "CL-08", "CL-09", "CL-10", "BR-01",
    "BR-02", "BR-03", "BR-04", "BR-05", "BR-06", "BR-07", "BR-08", "BR-09", "BR-10", "BR-13", "BR-14",
    "BR-17", "SB-01", "BU-01", "BU-03", "BR-11", "BR-12", "BR-16", "SB-02", "SB-03", "SB-04", "SB-05",
    "SB-06", "QA-01", "QA-02", "BR-15", "GW-01", "GW-02", "GW-03", "GW-04", "GW-06", "GW-07", "CM-01",
    "CM-02", "CM-03", "CM-04", "CM-05", "CM-06", "CM-09", "CM-10", "CM-11", "CM-12", "TR-01", "GW-08",
];

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn sources(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        match entry.extension().is_some_and(|kind| kind == "rs") {
            true => found.push(fs::read_to_string(entry).unwrap()),
            false if entry.is_dir() => sources(&entry, found),
            false => {}
        }
    }
}

// req: QA-02
#[test]
fn every_requirement_that_is_claimed_is_named_by_a_test() {
    let mut files = Vec::new();
    sources(&project().join("crates"), &mut files);
    let comments: Vec<&str> = files
        .iter()
        .flat_map(|file| file.lines())
        .filter(|line| line.trim_start().starts_with("// req:"))
        .collect();
    let unnamed: Vec<&&str> =
        CLAIMED.iter().filter(|claim| !comments.iter().any(|line| line.contains(**claim))).collect();
    assert!(unnamed.is_empty(), "no test names {unnamed:?}");
}

// req: QA-01
#[test]
fn coverage_below_85_percent_fails() {
    let script = fs::read_to_string(project().join("scripts/coverage")).unwrap();
    assert!(script.contains("least=85") && script.contains(r#"--fail-under "$least""#));
    assert!(fs::read_to_string(project().join("Makefile")).unwrap().contains("scripts/coverage"));
}
