//! Claimed requirements have tests, and coverage below the threshold fails.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Requirements that this version claims to meet, fully or in the part that README names.
const CLAIMED: [&str; 56] = [
    "CL-01", "CL-02", "CL-03", "CL-04", "CL-05", "CL-06", "CL-07", "CL-08", "CL-09", "CL-10", "BR-01",
    "BR-02", "BR-03", "BR-04", "BR-05", "BR-06", "BR-07", "BR-08", "BR-09", "BR-10", "BR-13", "BR-14",
    "BR-17", "SB-01", "BU-01", "BU-03", "BR-11", "BR-12", "BR-16", "SB-02", "SB-03", "SB-04", "SB-05",
    "SB-06", "QA-01", "QA-02", "BR-15", "GW-01", "GW-02", "GW-03", "GW-04", "GW-06", "GW-07", "CM-01",
    "CM-02", "CM-03", "CM-04", "CM-05", "CM-06", "CM-09", "CM-10", "CM-11", "CM-12", "TR-01", "GW-08",
    "US-04",
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
fn every_claimed_requirement_has_a_test() {
    let mut files = Vec::new();
    sources(&project().join("crates"), &mut files);
    let comments: Vec<&str> = files
        .iter()
        .flat_map(|file| file.lines())
        .filter(|line| line.trim_start().starts_with("// req:"))
        .collect();
    let unnamed: Vec<&&str> =
        CLAIMED.iter().filter(|claim| !comments.iter().any(|line| line.contains(**claim))).collect();
    assert!(unnamed.is_empty(), "no test has a `req:` comment for {unnamed:?}");
}

/// Writes an lcov report with this many covered and uncovered lines and returns the exit code of the check.
fn coverage_check(covered: usize, uncovered: usize) -> Option<i32> {
    let lines = (1..=covered + uncovered).map(|line| format!("DA:{line},{}\n", u8::from(line <= covered)));
    let report = format!("SF:src/lib.rs\n{}end_of_record\n", lines.collect::<String>());
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), report).unwrap();
    let check = Command::new(project().join("scripts/coverage-check")).arg(file.path()).output();
    check.unwrap().status.code()
}

/// `make coverage` measures all crates and gives the report to the same check.
// req: QA-01
#[test]
fn coverage_below_85_percent_fails() {
    assert_eq!(coverage_check(850, 150), Some(0));
    assert_eq!(coverage_check(849, 151), Some(1));
    assert_eq!(coverage_check(0, 0), Some(1), "a report without lines");
    let missing = Command::new(project().join("scripts/coverage-check")).arg("missing.info").output();
    assert_eq!(missing.unwrap().status.code(), Some(1));
}

// req: QA-01
#[test]
fn coverage_measures_before_it_checks() {
    let dry_run = Command::new("make").args(["-n", "coverage"]).current_dir(project()).output().unwrap();
    assert!(String::from_utf8_lossy(&dry_run.stdout).contains("scripts/coverage"), "{dry_run:?}");
    let folder = tempfile::tempdir().unwrap();
    let output = run_coverage_with_fake_tarpaulin(folder.path(), 849, 151);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let output = run_coverage_with_fake_tarpaulin(folder.path(), 850, 150);
    assert!(output.status.success(), "{output:?}");
}

/// Runs `scripts/coverage` with a stand-in for cargo-tarpaulin, which takes minutes to build and more to run. The
/// stand-in reports half of the lines of the small crate as covered, and these numbers for the workspace.
fn run_coverage_with_fake_tarpaulin(folder: &Path, covered: usize, uncovered: usize) -> Output {
    let bin = folder.join("cargo/bin");
    fs::create_dir_all(&bin).unwrap();
    let program = format!(
        r#"#!/bin/bash
while [ "$1" != --output-dir ]; do shift; done
case $2 in */half-covered) covered=1 uncovered=1;; *) covered={covered} uncovered={uncovered};; esac
mkdir -p "$2"
{{ for _ in $(seq $covered); do echo DA:1,1; done; for _ in $(seq $uncovered); do echo DA:2,0; done; }} >"$2/lcov.info"
"#
    );
    let file = bin.join("cargo-tarpaulin");
    fs::write(&file, program).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    Command::new(project().join("scripts/coverage")).env("BASCULE_TESTENV", folder).output().unwrap()
}
