//! The demo server `trouble`: its tools do what a bridge must survive.

use std::io::{self, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};

use super::reply::{Attempt, Reply, arguments};
use super::serve::{Call, Demo};
use super::tool::{Tool, integer, up_to};

/// The server, and all it has leaked.
#[derive(Default)]
pub(super) struct Trouble {
    leaked: Mutex<Vec<Vec<u8>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sleep {
    ms: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Crash {
    code: Option<u8>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Leak {
    mb: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Junk {
    lines: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Flood {
    kb: usize,
}

impl Demo for Trouble {
    fn name(&self) -> &'static str {
        "trouble"
    }

    fn tools(&self) -> Vec<Tool> {
        vec![
            Tool::new("sleep", "Sleeps; reports progress, and can be cancelled")
                .takes("ms", up_to(600_000))
                .returns("sleptMs", integer())
                .read_only(),
            Tool::new("crash", "Says so on stderr and exits").may_take("code", up_to(255)).destructive(false),
            Tool::new("abort", "Dies by a signal").destructive(false),
            Tool::new("leak", "Takes memory and never gives it back")
                .takes("mb", up_to(65_536))
                .returns("leakedMb", integer())
                .destructive(false),
            Tool::new("junk", "Prints lines that are no protocol, then answers")
                .may_take("lines", up_to(10_000))
                .read_only(),
            Tool::new("lie", "Returns what its schema forbids").returns("value", integer()).read_only(),
            Tool::new("fail", "Reports failure as a result").read_only(),
            Tool::new("rpc_error", "Fails with a JSON-RPC error").read_only(),
            Tool::new("silence", "Never answers").read_only(),
            Tool::new("flood_stderr", "Prints much on stderr, then answers")
                .takes("kb", up_to(1_048_576))
                .read_only(),
        ]
    }

    fn call(&self, tool: &str, arguments: &Value, call: &Call) -> Reply {
        self.attempt(tool, arguments, call).unwrap_or_else(|failure| failure)
    }

    fn is_slow(&self, tool: &str) -> bool {
        matches!(tool, "sleep" | "leak" | "flood_stderr")
    }
}

impl Trouble {
    fn attempt(&self, tool: &str, given: &Value, call: &Call) -> Attempt {
        match tool {
            "sleep" => Ok(sleep(arguments(given)?, call)),
            "crash" => Ok(crash(arguments(given)?)),
            "abort" => Ok(Reply::Abort),
            "leak" => Ok(self.leak(arguments(given)?)),
            "junk" => Ok(junk(arguments(given)?, call)),
            "lie" => Ok(Reply::structured(json!({"value": "not a number"}))),
            "fail" => Ok(Reply::failure("this tool always fails")),
            "rpc_error" => Ok(Reply::Error(-32050, "this tool answers with a JSON-RPC error".to_owned())),
            "silence" => Ok(Reply::Silence),
            "flood_stderr" => Ok(flood(arguments(given)?)),
            _ => Err(Reply::unknown_tool(tool)),
        }
    }

    fn leak(&self, Leak { mb }: Leak) -> Reply {
        const MB: usize = 1 << 20;
        let mut leaked = self.leaked.lock().expect("nothing panics while it leaks");
        // One at a time and not of zeros, which the system would only promise.
        leaked.extend((0..mb).map(|_| vec![1; MB]));
        Reply::structured(json!({"leakedMb": leaked.len()}))
    }
}

/// A cancelled call gets no answer, as the protocol wants it.
fn sleep(Sleep { ms }: Sleep, call: &Call) -> Reply {
    const REPORT_EVERY: Duration = Duration::from_millis(100);
    let (start, whole) = (Instant::now(), Duration::from_millis(ms));
    while let Some(left) = whole.checked_sub(start.elapsed()).filter(|left| !left.is_zero()) {
        if !call.wait(left.min(REPORT_EVERY)) {
            return Reply::Silence;
        }
        call.progress((start.elapsed().as_millis() as u64).min(ms), ms);
    }
    Reply::structured(json!({"sleptMs": start.elapsed().as_millis() as u64}))
}

fn crash(Crash { code }: Crash) -> Reply {
    let code = code.unwrap_or(1);
    eprintln!("trouble: crashing with code {code}, as asked");
    Reply::Exit(code)
}

fn junk(Junk { lines }: Junk, call: &Call) -> Reply {
    let lines = lines.unwrap_or(3);
    for line in 1..=lines {
        call.junk(&format!("*** this is line {line} of junk, and no JSON"));
    }
    Reply::text(format!("printed {lines} lines of junk"))
}

fn flood(Flood { kb }: Flood) -> Reply {
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
    use crate::demo::serve::tests::Talk;

    fn call(id: u32, tool: &str, rest: &str) -> String {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}"{rest}}}}}"#)
    }

    #[test]
    fn a_sleeper_holds_up_nobody() {
        let talk = Talk::with(Trouble::default());
        talk.say(&call(1, "sleep", r#","arguments":{"ms":50}"#));
        talk.say(&call(2, "fail", ""));
        assert!(talk.hear().starts_with(r#"{"jsonrpc":"2.0","id":2"#));
        assert!(talk.hear().starts_with(r#"{"jsonrpc":"2.0","id":1"#));
    }

    #[test]
    fn a_sleeper_reports_progress_to_whoever_asked() {
        let talk = Talk::with(Trouble::default());
        talk.say(&call(1, "sleep", r#","arguments":{"ms":5},"_meta":{"progressToken":7}"#));
        let report: Value = serde_json::from_str(&talk.hear()).unwrap();
        assert_eq!(report["params"], json!({"progressToken": 7, "progress": 5, "total": 5}));
        assert!(talk.hear().contains("sleptMs"));
    }

    #[test]
    fn a_cancelled_sleeper_says_nothing_more() {
        let talk = Talk::with(Trouble::default());
        talk.say(&call(1, "sleep", r#","arguments":{"ms":30},"_meta":{"progressToken":7}"#));
        talk.say(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
        talk.say(&call(2, "sleep", r#","arguments":{"ms":60}"#));
        assert!(talk.hear().starts_with(r#"{"jsonrpc":"2.0","id":2"#));
    }

    #[test]
    fn junk_comes_before_the_answer() {
        let talk = Talk::with(Trouble::default());
        talk.say(&call(1, "junk", r#","arguments":{"lines":1}"#));
        assert_eq!(talk.hear(), "*** this is line 1 of junk, and no JSON");
        assert!(talk.hear().contains("printed 1 lines of junk"));
    }

    #[test]
    fn a_lie_is_structured_and_not_what_was_promised() {
        let lie = Talk::with(Trouble::default()).structure("lie", json!({}));
        assert!(lie["value"].is_string());
    }

    #[test]
    fn a_failure_is_a_result_and_an_error_is_not() {
        let talk = Talk::with(Trouble::default());
        assert_eq!(talk.failure("fail", json!({})), "this tool always fails");
        talk.say(&call(1, "rpc_error", ""));
        assert!(talk.hear().contains(r#""error":{"code":-32050"#));
        talk.say(&call(2, "silence", ""));
        talk.say(&call(3, "nothing", ""));
        assert!(talk.hear().contains(r#""id":3,"error":{"code":-32602"#), "the silent one said nothing");
    }

    #[test]
    fn what_leaks_stays() {
        let talk = Talk::with(Trouble::default());
        talk.structure("leak", json!({"mb": 2}));
        assert_eq!(talk.structure("leak", json!({"mb": 1})), json!({"leakedMb": 3}));
    }
}
