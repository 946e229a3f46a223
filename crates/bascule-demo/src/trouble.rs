//! The demo server `trouble`: its tools misbehave in ways that a bridge must survive.

use std::io::{self, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::reply::{Reply, ReplyResult, parse_arguments};
use crate::serve::{DemoCall, DemoServer};
use crate::tool::{ToolDeclaration, integer, up_to};

#[derive(Default)]
pub(crate) struct Trouble {
    leaked: Mutex<Vec<Vec<u8>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SleepArguments {
    ms: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CrashArguments {
    code: Option<u8>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LeakArguments {
    mb: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JunkArguments {
    lines: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FloodArguments {
    kb: usize,
}

impl DemoServer for Trouble {
    fn name(&self) -> &'static str {
        "trouble"
    }

    fn tools(&self) -> Vec<ToolDeclaration> {
        vec![
            ToolDeclaration::new("sleep", "Sleeps; reports progress and can be cancelled")
                .required("ms", up_to(600_000))
                .returns("sleptMs", integer())
                .read_only(),
            ToolDeclaration::new("crash", "Writes a line to stderr and exits")
                .optional("code", up_to(255))
                .destructive(false),
            ToolDeclaration::new("abort", "Dies by a signal").destructive(false),
            ToolDeclaration::new("leak", "Allocates memory and never frees it")
                .required("mb", up_to(65_536))
                .returns("leakedMb", integer())
                .destructive(false),
            ToolDeclaration::new("junk", "Prints lines that are not messages, then responds")
                .optional("lines", up_to(10_000))
                .read_only(),
            ToolDeclaration::new("lie", "Returns a result that its schema forbids")
                .returns("value", integer())
                .read_only(),
            ToolDeclaration::new("fail", "Returns a result with `isError: true`").read_only(),
            ToolDeclaration::new("rpc_error", "Fails with a JSON-RPC error").read_only(),
            ToolDeclaration::new("silence", "Never responds").read_only(),
            ToolDeclaration::new("flood_stderr", "Prints this much on stderr, then responds")
                .required("kb", up_to(1_048_576))
                .read_only(),
        ]
    }

    fn call(&self, tool: &str, arguments: &Value, call: &DemoCall) -> ReplyResult {
        match tool {
            "sleep" => Ok(sleep(parse_arguments(arguments)?, call)),
            "crash" => Ok(crash(parse_arguments(arguments)?)),
            "abort" => Ok(Reply::Abort),
            "leak" => Ok(self.leak(parse_arguments(arguments)?)),
            "junk" => Ok(junk(parse_arguments(arguments)?, call)),
            "lie" => Ok(Reply::structured(json!({"value": "not a number"}))),
            "fail" => Ok(Reply::failure("this tool always fails")),
            "rpc_error" => Ok(Reply::Error(-32050, "this tool always returns a JSON-RPC error".to_owned())),
            "silence" => Ok(Reply::Silence),
            "flood_stderr" => Ok(flood(parse_arguments(arguments)?)),
            _ => Err(Reply::unknown_tool(tool)),
        }
    }

    fn runs_in_thread(&self, tool: &str) -> bool {
        matches!(tool, "sleep" | "leak" | "flood_stderr")
    }
}

impl Trouble {
    fn leak(&self, LeakArguments { mb }: LeakArguments) -> Reply {
        const MB: usize = 1 << 20;
        let mut leaked = self.leaked.lock().expect("no code panics while it holds the lock");
        // Ones, because the system does not back zeroed memory until it is written.
        leaked.extend((0..mb).map(|_| vec![1; MB]));
        Reply::structured(json!({"leakedMb": leaked.len()}))
    }
}

/// Sleeps and reports progress. A cancelled call gets no response, because the protocol forbids one.
fn sleep(SleepArguments { ms }: SleepArguments, call: &DemoCall) -> Reply {
    const REPORT_EVERY: Duration = Duration::from_millis(100);
    let (start, whole) = (Instant::now(), Duration::from_millis(ms));
    while let Some(left) = whole.checked_sub(start.elapsed()).filter(|left| !left.is_zero()) {
        if !call.sleep_unless_cancelled(left.min(REPORT_EVERY)) {
            return Reply::Silence;
        }
        call.progress((start.elapsed().as_millis() as u64).min(ms), ms);
    }
    Reply::structured(json!({"sleptMs": start.elapsed().as_millis() as u64}))
}

fn crash(CrashArguments { code }: CrashArguments) -> Reply {
    let code = code.unwrap_or(1);
    eprintln!("trouble: crashing with code {code}, as asked");
    Reply::Exit(code)
}

fn junk(JunkArguments { lines }: JunkArguments, call: &DemoCall) -> Reply {
    let lines = lines.unwrap_or(3);
    for line in 1..=lines {
        call.junk(&format!("*** line {line} of junk, not JSON"));
    }
    Reply::text(format!("printed {lines} lines of junk"))
}

fn flood(FloodArguments { kb }: FloodArguments) -> Reply {
    let line = "x".repeat(1023) + "\n";
    let mut stderr = io::stderr().lock();
    let done = (0..kb).try_for_each(|_| stderr.write_all(line.as_bytes()));
    match done {
        Ok(()) => Reply::text(format!("printed {kb} kB on stderr")),
        Err(error) => Reply::failure(format!("stderr is closed: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::tests::TestClient;

    fn call(id: u32, tool: &str, rest: &str) -> String {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}"{rest}}}}}"#)
    }

    #[test]
    fn slow_call_does_not_block_others() {
        let client = TestClient::with(Trouble::default());
        client.send(&call(1, "sleep", r#","arguments":{"ms":50}"#));
        client.send(&call(2, "fail", ""));
        assert!(client.receive().starts_with(r#"{"jsonrpc":"2.0","id":2"#));
        assert!(client.receive().starts_with(r#"{"jsonrpc":"2.0","id":1"#));
    }

    #[test]
    fn sleep_reports_progress() {
        let client = TestClient::with(Trouble::default());
        client.send(&call(1, "sleep", r#","arguments":{"ms":5},"_meta":{"progressToken":7}"#));
        let report: Value = serde_json::from_str(&client.receive()).unwrap();
        assert_eq!(report["params"], json!({"progressToken": 7, "progress": 5, "total": 5}));
        assert!(client.receive().contains("sleptMs"));
    }

    #[test]
    fn cancelled_sleep_sends_no_response() {
        let client = TestClient::with(Trouble::default());
        client.send(&call(1, "sleep", r#","arguments":{"ms":30},"_meta":{"progressToken":7}"#));
        client.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
        client.send(&call(2, "sleep", r#","arguments":{"ms":60}"#));
        assert!(client.receive().starts_with(r#"{"jsonrpc":"2.0","id":2"#));
    }

    #[test]
    fn junk_precedes_the_response() {
        let client = TestClient::with(Trouble::default());
        client.send(&call(1, "junk", r#","arguments":{"lines":1}"#));
        assert_eq!(client.receive(), "*** line 1 of junk, not JSON");
        assert!(client.receive().contains("printed 1 lines of junk"));
    }

    #[test]
    fn lie_violates_its_output_schema() {
        let lie = TestClient::with(Trouble::default()).call_structured("lie", json!({}));
        assert!(lie["value"].is_string());
    }

    #[test]
    fn distinguishes_tool_failure_rpc_error_and_silence() {
        let client = TestClient::with(Trouble::default());
        assert_eq!(client.failure("fail", json!({})), "this tool always fails");
        client.send(&call(1, "rpc_error", ""));
        assert!(client.receive().contains(r#""error":{"code":-32050"#));
        client.send(&call(2, "silence", ""));
        client.send(&call(3, "nothing", ""));
        assert!(client.receive().contains(r#""id":3,"error":{"code":-32602"#), "`silence` sends no response");
    }

    #[test]
    fn leak_accumulates() {
        let client = TestClient::with(Trouble::default());
        client.call_structured("leak", json!({"mb": 2}));
        assert_eq!(client.call_structured("leak", json!({"mb": 1})), json!({"leakedMb": 3}));
    }
}
