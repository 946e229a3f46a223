//! Arguments, results and correlation ids of calls over stdio.

use bascule_testkit::{Behaviour, Script};
use serde_json::{Value, json};

use super::{check, scripted, tool_x};
use crate::support::{Bascule, text};

/// Checks that the server receives `arguments` as `expected`. Returns stderr.
#[track_caller]
fn check_received(arguments: &str, expected: &str) -> String {
    let (bascule, server) = scripted(tool_x([Behaviour::text("arrived")]));
    let output = bascule.run_with_input(&["call", "s:x", "-"], arguments);
    assert_eq!((output.code, output.stdout.as_str()), (Some(0), "arrived\n"), "{}", output.stderr);
    let call = server.wait_for("tools/call");
    assert!(call.contains(&format!(r#""arguments":{expected}"#)), "{call}");
    output.stderr
}

/// Checks that the arguments are refused and nothing is sent.
#[track_caller]
fn check_refused(arguments: &str, expected: &str) {
    let (bascule, server) = scripted(tool_x([Behaviour::text("arrived")]));
    let output = bascule.run_with_input(&["call", "s:x", "-", "--json"], arguments);
    let error = &output.document()["error"];
    assert_eq!(
        (&error["code"], &error["delivery"]),
        (&json!("INVALID_INPUT"), &json!("not_sent")),
        "{error}"
    );
    assert!(error["message"].as_str().unwrap().contains(expected), "{error}");
    assert!(!server.methods().contains(&"tools/call".to_owned()));
}

/// A server with one tool, `x`, that requires an integer `n` and a string `t`.
fn server_with_schema() -> Script {
    let properties = json!({ "n": { "type": "integer" }, "t": { "type": "string" } });
    let schema = json!({ "type": "object", "properties": properties, "required": ["n", "t"] });
    Script::new().tool(json!({ "name": "x", "inputSchema": schema }))
}

// req: BR-04
#[test]
fn refuses_deeply_nested_arguments() {
    check_refused(&format!(r#"{{"a":{}{}}}"#, "[".repeat(10_000), "]".repeat(10_000)), "recursion limit");
}

// req: BR-04
#[test]
fn refuses_numbers_out_of_range_and_duplicate_keys() {
    check_refused(r#"{"a":1e400}"#, "number out of range");
    check_refused(r#"{"a":-1e400}"#, "number out of range");
    check_refused(r#"{"a":"\ud800"}"#, "hex escape");
    check_refused(r#"{"a":1,"b":{"c":1,"c":2}}"#, "the key `c` occurs twice");
}

// req: BR-04
#[test]
fn passes_arguments_byte_for_byte() {
    let sent = r#"{ "a":1.0,"b":18446744073709551616, "c" :-0,"d":1E+2,"e":0.1000,"f":"\u00e9\/" }"#;
    let stderr = check_received(sent, sent);
    assert_eq!(stderr, "");
}

// req: BR-04
#[test]
fn joins_lines_of_arguments() {
    check_received("{\n  \"a\":\r\n \"b\\n\"\n}\n", r#"{   "a":   "b\n" }"#);
}

// req: BR-16
#[test]
fn returns_result_byte_for_byte() {
    let sent = r#"{"content":[ ],"structuredContent":{"n":1e400,"m":1.0},"x-more":{"b":1,"a":[-0]}}"#;
    let output = scripted(tool_x([Behaviour::result(sent)])).0.run(&["call", "s:x", "--json"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(output.stdout.ends_with(&format!(r#""result":{sent}}}{}"#, "\n")), "{}", output.stdout);
}

// req: BR-04
// req: BR-05
#[test]
fn rejects_invalid_arguments_without_sending() {
    let (bascule, server) = scripted(server_with_schema());
    let error = bascule.call_error("s:x", r#"{"n":"seven"}"#);
    check(&error, "INVALID_INPUT not_sent false", &["s:x", "/n"]);
    let violations = error["violations"].as_array().unwrap();
    let check_violation = |pointer: &str, part: &str| {
        let violation = violations.iter().find(|violation| violation["pointer"] == pointer).unwrap();
        assert!(violation["message"].as_str().unwrap().contains(part), "{error:#}");
    };
    check_violation("/n", "integer");
    check_violation("/t", "required");
    assert_eq!(violations.len(), 2, "{error:#}");
    for not_an_object in ["[]", "7", "null", r#""n""#] {
        let (code, document) = bascule.run_json(&["call", "s:x", not_an_object]);
        assert_eq!(code, 2, "{document}");
        check(&document["error"], "INVALID_INPUT not_sent false", &["object"]);
    }
    assert!(!server.methods().contains(&"tools/call".to_owned()), "{:?}", server.methods());
    assert_eq!(text(&bascule.call("s:x", r#"{"n":7,"t":""}"#)), r#"{"n":7,"t":""}"#);
}

// req: CL-03
#[test]
fn tool_error_is_a_result() {
    let failed = json!({ "content": [{ "type": "text", "text": "disk full" }], "isError": true });
    let (bascule, _server) = scripted(tool_x([Behaviour::result(failed.clone())]));
    let (code, document) = bascule.run_json(&["call", "s:x"]);
    assert_eq!((code, &document["result"]), (1, &failed));
    let output = bascule.run(&["call", "s:x"]);
    assert_eq!((output.code, output.stdout.as_str()), (Some(1), "disk full\n"), "{output:?}");
}

// req: BR-05
#[test]
fn keeps_code_and_data_of_server_error() {
    let fault = json!({ "code": -31999, "message": "no such row", "data": { "row": 7 } });
    let error = scripted(tool_x([Behaviour::error(fault.clone())])).0.call_error("s:x", "{}");
    check(&error, "PROVIDER_ERROR answered false", &["no such row", "-31999"]);
    assert_eq!(error["providerError"], fault);
}

// req: BR-06
#[test]
fn adds_given_correlation_id_to_results_errors_and_logs() {
    let (bascule, _server) = scripted(tool_x([Behaviour::text("fine"), Behaviour::exit(1)]));
    for expected in [0, 3] {
        let output = bascule.run(&["call", "s:x", "--correlation-id", "order-17/3", "--json", "-v"]);
        assert_eq!(output.code, Some(expected), "{output:?}");
        let document = output.document();
        let reported = if expected == 0 { &document } else { &document["error"] };
        assert_eq!(reported["correlationId"], "order-17/3");
        assert!(output.stderr.contains("correlation_id=order-17/3"), "{output:?}");
    }
    let gone = Bascule::with_server("s", json!({ "command": "no-such-program" }));
    let (_, document) = gone.run_json(&["call", "s:x", "--correlation-id", "order-18"]);
    assert_eq!(document["error"]["correlationId"], "order-18");
}

// req: BR-06
#[test]
fn generates_correlation_id_for_every_call() {
    let (bascule, _server) = scripted(tool_x([Behaviour::text("fine"), Behaviour::exit(1)]));
    let result = bascule.run_json(&["call", "s:x"]).1["correlationId"].clone();
    let error = bascule.run_json(&["call", "s:x"]).1["error"]["correlationId"].clone();
    let is_generated = |id: &Value| id.as_str().is_some_and(|id| id.len() == 32);
    assert!(is_generated(&result) && is_generated(&error) && result != error, "{result} {error}");
}

// req: BR-06
#[test]
fn rejects_invalid_correlation_ids() {
    let (bascule, server) = scripted(tool_x([]));
    for illegal in ["", "two words", "a\nb", "é", &"x".repeat(129)] {
        let output = bascule.run(&["call", "s:x", "--correlation-id", illegal]);
        assert_eq!((output.code, output.stdout.as_str()), (Some(2), ""), "{illegal:?}: {output:?}");
        assert!(output.stderr.contains("correlation id"), "{output:?}");
    }
    assert!(server.started().is_empty(), "no server is started for wrong usage");
}
