//! Arguments of every kind on their way to the server, results on theirs back, and the id of the call.

use bascule_testkit::{Behaviour, Script};
use serde_json::{Value, json};

use super::{check, scripted, tool_x};
use crate::support::{Bascule, text};

/// Sends these arguments to a tool that takes any object. Gives what is on stderr, once they have arrived so.
#[track_caller]
fn check_arrival(arguments: &str, expected: &str) -> String {
    let (bascule, server) = scripted(tool_x([Behaviour::text("arrived")]));
    let ran = bascule.run_with_input(&["call", "s:x", "-"], arguments);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "arrived\n"), "{}", ran.stderr);
    let call = server.wait_for("tools/call");
    assert!(call.contains(&format!(r#""arguments":{expected}"#)), "{call}");
    ran.stderr
}

/// A server with one tool, `x`, that needs a whole number `n` and a text `t`.
fn picky() -> Script {
    let properties = json!({ "n": { "type": "integer" }, "t": { "type": "string" } });
    let schema = json!({ "type": "object", "properties": properties, "required": ["n", "t"] });
    Script::new().tool(json!({ "name": "x", "inputSchema": schema }))
}

// req: BR-04
#[test]
fn arguments_nested_ten_thousand_deep_pass_with_a_warning_byte_for_byte() {
    let deep = format!(r#"{{"a":{}{}}}"#, "[".repeat(10_000), "]".repeat(10_000));
    let said = check_arrival(&deep, &deep);
    assert!(said.contains("warning") && said.contains("unvalidated"), "{said}");
}

// req: BR-04
#[test]
fn a_number_beyond_all_bounds_passes_with_a_warning_as_it_is_spelled() {
    let said = check_arrival(r#"{"a":1e400,"b":-1e400}"#, r#"{"a":1e400,"b":-1e400}"#);
    assert!(said.contains("warning") && said.contains("unvalidated"), "{said}");
}

// req: BR-04
#[test]
fn every_number_and_every_blank_arrives_as_it_is_spelled() {
    let spelled = r#"{ "a":1.0,"b":18446744073709551616, "c" :-0,"d":1E+2,"e":0.1000,"a":2,"f":"\u00e9\/" }"#;
    let said = check_arrival(spelled, spelled);
    assert_eq!(said, "");
}

// req: BR-04
#[test]
fn arguments_with_line_breaks_arrive_as_one_line() {
    check_arrival("{\n  \"a\":\r\n \"b\\n\"\n}\n", r#"{   "a":   "b\n" }"#);
}

// req: BR-16
#[test]
fn a_result_comes_back_as_the_server_spelled_it() {
    let spelled = r#"{"content":[ ],"structuredContent":{"n":1e400,"m":1.0},"x-more":{"b":1,"a":[-0]}}"#;
    let ran = scripted(tool_x([Behaviour::result(spelled)])).0.run(&["call", "s:x", "--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.ends_with(&format!(r#""result":{spelled}}}{}"#, "\n")), "{}", ran.stdout);
}

// req: BR-04
// req: BR-05
#[test]
fn wrong_arguments_are_explained_and_never_sent() {
    let (bascule, server) = scripted(picky());
    let error = bascule.call_error("s:x", r#"{"n":"seven"}"#);
    check(&error, "INVALID_INPUT not_sent false", &["s:x", "/n"]);
    let violations = error["violations"].as_array().unwrap();
    let told = |pointer: &str, part: &str| {
        let at = violations.iter().find(|violation| violation["pointer"] == pointer).unwrap();
        assert!(at["message"].as_str().unwrap().contains(part), "{error:#}");
    };
    told("/n", "integer");
    told("/t", "required");
    assert_eq!(violations.len(), 2, "{error:#}");
    for no_object in ["[]", "7", "null", r#""n""#] {
        check(&bascule.call_error("s:x", no_object), "INVALID_INPUT not_sent false", &["object"]);
    }
    assert!(!server.methods().contains(&"tools/call".to_owned()), "{:?}", server.methods());
    assert_eq!(text(&bascule.call("s:x", r#"{"n":7,"t":""}"#)), r#"{"n":7,"t":""}"#);
}

// req: CL-03
#[test]
fn a_tool_that_reports_failure_has_answered() {
    let failed = json!({ "content": [{ "type": "text", "text": "disk full" }], "isError": true });
    let (bascule, _server) = scripted(tool_x([Behaviour::result(failed.clone())]));
    let (code, document) = bascule.run_json(&["call", "s:x"]);
    assert_eq!((code, &document["result"]), (1, &failed));
    let ran = bascule.run(&["call", "s:x"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), "disk full\n"), "{ran:?}");
}

// req: BR-05
#[test]
fn a_servers_own_error_keeps_its_code_and_its_data() {
    let fault = json!({ "code": -31999, "message": "no such row", "data": { "row": 7 } });
    let error = scripted(tool_x([Behaviour::error(fault.clone())])).0.call_error("s:x", "{}");
    check(&error, "PROVIDER_ERROR answered false", &["no such row", "-31999"]);
    assert_eq!(error["providerError"], fault);
}

// req: BR-06
#[test]
fn a_callers_correlation_id_is_on_results_errors_and_log_lines() {
    let (bascule, _server) = scripted(tool_x([Behaviour::text("fine"), Behaviour::exit(1)]));
    for expected in [0, 3] {
        let ran = bascule.run(&["call", "s:x", "--correlation-id", "order-17/3", "--json", "-v"]);
        assert_eq!(ran.code, Some(expected), "{ran:?}");
        let document = ran.document();
        let told = if expected == 0 { &document } else { &document["error"] };
        assert_eq!(told["correlationId"], "order-17/3");
        assert!(ran.stderr.contains("correlation_id=order-17/3"), "{ran:?}");
    }
    let gone = Bascule::with_server("s", json!({ "command": "no-such-program" }));
    let (_, document) = gone.run_json(&["call", "s:x", "--correlation-id", "order-18"]);
    assert_eq!(document["error"]["correlationId"], "order-18");
}

// req: BR-06
#[test]
fn without_one_a_fresh_correlation_id_is_made_for_every_call() {
    let (bascule, _server) = scripted(tool_x([Behaviour::text("fine"), Behaviour::exit(1)]));
    let result = bascule.run_json(&["call", "s:x"]).1["correlationId"].clone();
    let error = bascule.run_json(&["call", "s:x"]).1["error"]["correlationId"].clone();
    let is_made = |id: &Value| id.as_str().is_some_and(|id| id.len() == 32);
    assert!(is_made(&result) && is_made(&error) && result != error, "{result} {error}");
}

// req: BR-06
#[test]
fn a_correlation_id_that_could_forge_a_line_is_wrong_usage() {
    let (bascule, server) = scripted(tool_x([]));
    for illegal in ["", "two words", "a\nb", "é", &"x".repeat(129)] {
        let ran = bascule.run(&["call", "s:x", "--correlation-id", illegal]);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{illegal:?}: {ran:?}");
        assert!(ran.stderr.contains("correlation id"), "{ran:?}");
    }
    assert!(server.started().is_empty(), "nothing is started for nothing");
}
