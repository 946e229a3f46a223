//! Invalid and unexpected messages on stdout of a server.

use bascule_testkit::{Behaviour, Script};
use serde_json::json;

use super::{check, scripted, scripted_with, tool_x};
use crate::support::text;

/// Lines that servers print and that are no messages: logs, banners, incomplete or unrelated JSON, escape codes.
const JUNK: [&str; 8] = [
    "[info] server listening",
    "",
    "{",
    "{}",
    "[1, 2]",
    "null",
    r#"{"level":"info","msg":"starting"}"#,
    "\u{1b}[31mred\u{1b}[0m \u{fffd}",
];

// req: SB-06
// req: BR-12
#[test]
fn skips_and_logs_junk_on_stdout() {
    let script = Script::new().tools(["x"]).junk_at_start(JUNK).junk_between(JUNK);
    let (bascule, _server) = scripted(script);
    let output = bascule.run(&["call", "s:x", r#"{"a":1}"#]);
    assert_eq!((output.code, output.stdout.as_str()), (Some(0), "{\"a\":1}\n"), "{output:?}");
    assert!(
        output.stderr.contains("not a valid message") && output.stderr.contains("server=s"),
        "{output:?}"
    );
    assert!(!output.stderr.contains('\u{1b}'), "escape codes of a server reached the terminal");
}

// req: BR-05
#[test]
fn invalid_response_with_known_id_fails_the_call() {
    let broken = [r#"{"content":[}"#, r#"{"content":["#, "tru", "\u{1}"];
    for result in broken {
        let error = scripted(tool_x([Behaviour::result(result)])).0.call_error("s:x", "{}");
        check(&error, "PROVIDER_ERROR answered false", &["not valid JSON-RPC"]);
    }
}

// req: BR-05
#[test]
fn invalid_line_without_id_is_skipped() {
    let behaviour = Behaviour::text("fine").after_line(r#"{"jsonrpc":"2.0","result":{"content":["#);
    assert_eq!(text(&scripted(tool_x([behaviour])).0.call("s:x", "{}")), "fine");
}

// req: BR-05
#[test]
fn ignores_duplicate_responses() {
    let script = tool_x([Behaviour::text("once").twice()]);
    let script = script.on("initialize", [Behaviour::usual().twice()]);
    let script = script.on("tools/list", [Behaviour::usual().twice()]);
    assert_eq!(text(&scripted(script).0.call("s:x", "{}")), "once");
}

// req: BR-05
#[test]
fn ignores_responses_with_unknown_ids() {
    let stray = |id: &str| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[]}}}}"#);
    let strays = ["999", "-1", "3.5", "null", r#""3""#, "18446744073709551616"];
    let behaviour = strays.iter().fold(Behaviour::text("mine"), |b, id| b.after_line(stray(id)));
    assert_eq!(text(&scripted(tool_x([behaviour])).0.call("s:x", "{}")), "mine");
}

// req: BR-05
#[test]
fn call_times_out_if_only_unknown_ids_are_answered() {
    let behaviour = Behaviour::silence().after_stray_response();
    let (bascule, _server) = scripted_with(tool_x([behaviour]), json!({ "timeoutMs": 300 }));
    check(&bascule.call_error("s:x", "{}"), "PROVIDER_TIMEOUT unknown true", &["300 ms"]);
}

// req: BR-05
#[test]
fn answers_requests_of_server() {
    let methods = ["ping", "roots/list", "sampling/createMessage", "elicitation/create", "no/such/method"];
    let asking = Behaviour::asking(methods.map(|method| json!({ "method": method, "params": {} })));
    let result = scripted(tool_x([asking])).0.call("s:x", "{}");
    let answers = result["structuredContent"]["answers"].as_array().unwrap();
    assert_eq!((answers.len(), &answers[0]["result"]), (methods.len(), &json!({})));
    for (answer, method) in answers.iter().zip(methods).skip(1) {
        assert_eq!(answer["error"]["code"], -32601, "{answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains(method), "{answer}");
    }
}

// req: BR-05
#[test]
fn rejects_batch_and_continues() {
    let batch = r#"[{"jsonrpc":"2.0","id":"b","method":"ping"}]"#;
    let (bascule, server) = scripted(tool_x([Behaviour::text("fine").after_line(batch)]));
    assert_eq!(text(&bascule.call("s:x", "{}")), "fine");
    let refusal = server.wait_for("batches are not supported");
    assert!(refusal.contains("-32600") && refusal.contains(r#""id":null"#), "{refusal}");
}

// req: BR-05
#[test]
fn ignores_unexpected_notifications() {
    let odd = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"not ours"}}"#;
    let behaviour = Behaviour::text("fine").after_log("hello").after_list_changed().after_line(odd);
    assert_eq!(text(&scripted(tool_x([behaviour.after_progress(3)])).0.call("s:x", "{}")), "fine");
}
