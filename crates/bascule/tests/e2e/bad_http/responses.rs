//! What can stand, or fail to stand, at the other end of a URL.

use std::time::Duration;

use bascule_testkit::{Behaviour, HttpFault, IdPosition, Script, ScriptedHttp, SseFeature};
use serde_json::{Value, json};

use super::{check, echoing, served, served_with, tool_x};
use crate::support::{Bascule, text};

const NEVER_STARTED: &str = "PROVIDER_INIT_FAILED not_sent false";
const UNKNOWN: &str = "OUTCOME_UNKNOWN unknown false";
const REFUSED: &str = "PROVIDER_ERROR answered false";

/// What a call comes to when requests of this method meet this trouble.
fn meeting(method: &str, trouble: HttpFault) -> Value {
    let (bascule, server) = served_with(echoing(), json!({ "timeoutMs": 60_000, "startTimeoutMs": 60_000 }));
    server.fail_always(method, trouble);
    bascule.call_error("s:x", "{}")
}

/// Checks what trouble comes to while connecting, and in the middle of a call.
#[track_caller]
fn check_trouble(trouble: HttpFault, in_a_call: &str, parts: &[&str]) {
    check(&meeting("initialize", trouble.clone()), NEVER_STARTED, parts);
    check(&meeting("tools/call", trouble), in_a_call, parts);
}

// req: BR-05
#[test]
fn a_port_that_refuses_is_named() {
    let (bascule, mut server) = served(echoing());
    server.stop();
    let address = server.url();
    check(&bascule.call_error("s:x", "{}"), NEVER_STARTED, &["`s`", &address, "refused"]);
}

// req: BR-05
#[test]
fn a_host_that_does_not_exist_is_named() {
    let entry = json!({ "url": "http://no-such-host.invalid/mcp", "startTimeoutMs": 30_000 });
    let error = Bascule::with_server("s", entry).call_error("s:x", "{}");
    check(&error, NEVER_STARTED, &["could not connect", "no-such-host.invalid"]);
}

// req: BR-05
#[test]
fn a_redirect_is_named_and_not_followed() {
    for status in [301, 302, 307, 308] {
        let elsewhere = ScriptedHttp::start(echoing());
        let (bascule, server) = served(echoing());
        server.fail_always("*", HttpFault::redirect(status, &elsewhere.url()));
        let error = bascule.call_error("s:x", "{}");
        check(&error, NEVER_STARTED, &[&status.to_string(), &elsewhere.url(), "not followed"]);
        assert_eq!((server.requests().len(), elsewhere.requests().len()), (1, 0), "{status}");
    }
    let in_a_call = meeting("tools/call", HttpFault::redirect(307, "http://elsewhere.example/"));
    check(&in_a_call, REFUSED, &["http://elsewhere.example/"]);
}

// req: BR-05
#[test]
fn a_page_for_people_is_no_mcp_server() {
    check_trouble(HttpFault::html(), UNKNOWN, &["does not answer as an MCP server", "text/html", "Welcome"]);
}

// req: BR-05
#[test]
fn a_server_that_wants_to_know_who_we_are_says_so() {
    let challenge = r#"Bearer resource_metadata="https://auth.example/""#;
    let parts = ["authorisation", "401", challenge, "`Authorization`"];
    check_trouble(HttpFault::unauthorised(challenge), REFUSED, &parts);
}

// req: BR-05
#[test]
fn an_http_failure_is_quoted() {
    check_trouble(HttpFault::status(403, "not for you"), REFUSED, &["HTTP 403", "not for you"]);
    check_trouble(HttpFault::status(404, "no such page"), REFUSED, &["HTTP 404", "no such page"]);
    check_trouble(HttpFault::status(500, "out of cheese"), UNKNOWN, &["HTTP 500", "out of cheese"]);
    check_trouble(HttpFault::status(503, &"x".repeat(100_000)), UNKNOWN, &["HTTP 503", "xxx…"]);
}

// req: BR-05
#[test]
fn a_json_rpc_error_behind_an_http_failure_keeps_its_code() {
    let fault = json!({ "code": -32042, "message": "odd id", "data": { "n": 1 } });
    let body = json!({ "jsonrpc": "2.0", "id": null, "error": fault }).to_string();
    let headers = vec![("Content-Type".to_owned(), "application/json".to_owned())];
    let trouble = HttpFault::Response { status: 400, headers, body };
    check_trouble(trouble.clone(), REFUSED, &["odd id", "-32042"]);
    assert_eq!(meeting("tools/call", trouble)["providerError"], fault);
}

// req: BR-05
#[test]
fn an_answer_that_stops_in_the_middle_leaves_the_outcome_unknown() {
    let cuts = [HttpFault::CutBody, HttpFault::CutChunks, HttpFault::CutStream, HttpFault::EmptyStream];
    for trouble in cuts {
        check_trouble(trouble, UNKNOWN, &["broke off"]);
    }
}

// req: BR-05
#[test]
fn a_connection_that_closes_without_a_word_leaves_the_outcome_unknown() {
    let (bascule, _server) = served(tool_x([Behaviour::exit(1)]));
    check(&bascule.call_error("s:x", "{}"), UNKNOWN, &["broke off"]);
}

// req: BR-05
#[test]
fn a_body_that_is_no_answer_leaves_the_outcome_unknown() {
    for body in ["", "{}", "[]", "null", "not JSON", r#"{"jsonrpc":"2.0","id":"other","result":{}}"#] {
        let headers = vec![("Content-Type".to_owned(), "application/json".to_owned())];
        let trouble = HttpFault::Response { status: 200, headers, body: body.to_owned() };
        check_trouble(trouble, UNKNOWN, &["did not answer the request"]);
    }
}

// req: BR-05
#[test]
fn a_request_that_is_only_accepted_leaves_the_outcome_unknown() {
    check_trouble(HttpFault::status(202, ""), UNKNOWN, &["HTTP 202"]);
}

// req: BR-05
// req: CL-07
#[test]
fn silence_meets_the_deadline_and_is_cancelled_at_the_server() {
    let (bascule, server) = served_with(echoing(), json!({ "timeoutMs": 300 }));
    server.fail_always("tools/call", HttpFault::Silence);
    check(&bascule.call_error("s:x", "{}"), "PROVIDER_TIMEOUT unknown true", &["300 ms", "`timeoutMs`"]);
    let read = |part| serde_json::from_str::<Value>(&server.wait_for(part)).unwrap();
    let (called, cancelled) = (read("tools/call"), read("notifications/cancelled"));
    assert_eq!(cancelled["params"]["requestId"], called["id"]);
}

// req: BR-05
// req: CL-07
#[test]
fn silence_from_the_start_meets_the_deadline_and_is_not_cancelled() {
    let (bascule, server) = served_with(echoing(), json!({ "startTimeoutMs": 3000 }));
    server.fail_always("*", HttpFault::Silence);
    check(&bascule.call_error("s:x", "{}"), NEVER_STARTED, &["3000 ms", "`startTimeoutMs`"]);
    assert_eq!(server.methods(), ["initialize"]);
}

// req: BR-05
// req: BR-12
#[test]
fn a_server_that_falls_silent_for_good_cannot_hold_up_the_end() {
    let (bascule, server) = served_with(echoing().session("a"), json!({ "timeoutMs": 300 }));
    for matching in ["tools/call", "notifications/cancelled", "DELETE"] {
        server.fail_always(matching, HttpFault::Silence);
    }
    check(&bascule.call_error("s:x", "{}"), "PROVIDER_TIMEOUT unknown true", &["300 ms"]);
}

// req: BR-12
#[test]
fn a_giant_body_is_a_clear_error_that_names_the_limit() {
    let said = "the answer is longer than 67108864 bytes";
    check_trouble(HttpFault::Giant { bytes: 100_000_000 }, REFUSED, &[said]);
}

// req: BR-12
#[test]
fn a_giant_event_is_a_clear_error_wherever_its_id_stands() {
    let fates = [(IdPosition::Before, REFUSED), (IdPosition::After, REFUSED), (IdPosition::Missing, UNKNOWN)];
    for (place, expected) in fates {
        let (bascule, _server) = served(tool_x([Behaviour::big(100_000_000, place).as_sse()]));
        check(&bascule.call_error("s:x", "{}"), expected, &["longer than 67108864 bytes"]);
    }
}

// req: BR-12
#[test]
fn a_trickle_arrives_in_the_end() {
    for script in [echoing(), echoing().sse([])] {
        let (bascule, server) = served(script);
        server.fail_always("*", HttpFault::Trickle { bytes: 16, every: Duration::from_millis(5) });
        assert_eq!(text(&bascule.call("s:x", r#"{"a":1}"#)), r#"{"a":1}"#);
    }
}

// req: BR-05
#[test]
fn a_trickle_that_is_too_slow_meets_the_deadline() {
    let (bascule, server) = served_with(echoing(), json!({ "timeoutMs": 500 }));
    server.fail_always("tools/call", HttpFault::Trickle { bytes: 1, every: Duration::from_millis(100) });
    check(&bascule.call_error("s:x", "{}"), "PROVIDER_TIMEOUT unknown true", &["500 ms"]);
}

// req: BR-01
#[test]
fn every_habit_of_an_event_stream_is_understood() {
    use SseFeature::*;
    let all = [Bom, Crlf, Comments, MultiLine, Retry, Ids, UnknownEvents];
    let each = all.iter().map(|habit| vec![*habit]);
    for habits in each.chain([vec![], all.to_vec()]) {
        let (bascule, _server) = served(echoing().sse(habits.clone()));
        assert_eq!(text(&bascule.call("s:x", r#"{"a":1}"#)), r#"{"a":1}"#, "{habits:?}");
    }
}

// req: BR-05
#[test]
fn a_stream_may_hold_more_than_the_answer() {
    let stray = Behaviour::text("fine").after_stray_response().after_log("hello").after_line("%$!");
    let (bascule, _server) = served(tool_x([stray.after_progress(2).twice()]));
    assert_eq!(text(&bascule.call("s:x", "{}")), "fine");
}

// req: BR-05
#[test]
fn a_broken_answer_with_the_calls_id_fails_at_once() {
    for script in [Script::new(), Script::new().sse([])] {
        let script = script.tools(["x"]).calls("x", [Behaviour::result(r#"{"content":[}"#)]);
        check(&served(script).0.call_error("s:x", "{}"), REFUSED, &["not valid JSON-RPC"]);
    }
}

// req: BR-05
#[test]
fn a_server_that_asks_gets_a_proper_answer() {
    let questions = ["ping", "roots/list"].map(|method| json!({ "method": method }));
    let (bascule, _server) = served(tool_x([Behaviour::asking(questions)]));
    let answers = bascule.call("s:x", "{}")["structuredContent"]["answers"].clone();
    assert_eq!((&answers[0]["result"], &answers[1]["error"]["code"]), (&json!({}), &json!(-32601)));
}

// req: BR-05
#[test]
fn progress_restarts_the_time_out_of_the_server() {
    // Together longer than it may be silent, and each far from it.
    let pause = Duration::from_secs(1);
    let busy = (0..7).fold(Behaviour::text("done"), |busy, _| busy.after_delay(pause).after_progress(1));
    let (bascule, _server) = served_with(tool_x([busy]), json!({ "timeoutMs": 5000 }));
    assert_eq!(text(&bascule.call("s:x", "{}")), "done");
}

// req: BR-02
#[test]
fn a_server_of_an_unknown_version_is_refused_naming_both() {
    let (bascule, _server) = served(echoing().version("1999-12-31"));
    check(&bascule.call_error("s:x", "{}"), NEVER_STARTED, &["`1999-12-31`", "`2025-11-25`"]);
}

// req: BR-05
#[test]
fn https_to_a_port_that_speaks_plain_http_is_a_clear_error() {
    let server = ScriptedHttp::start(echoing());
    let url = server.url().replace("http://", "https://");
    let entry = json!({ "url": url, "startTimeoutMs": 60_000 });
    let error = Bascule::with_server("s", entry).call_error("s:x", "{}");
    check(&error, NEVER_STARTED, &["could not connect", &url]);
    assert!(server.received().is_empty());
}

// req: BR-01
#[test]
fn the_older_transport_is_spoken_when_asked_for_and_when_nothing_else_is_understood() {
    for also in [json!({ "type": "sse" }), json!({})] {
        let (bascule, server) = served_with(echoing().legacy("/messages?s=1"), also.clone());
        assert_eq!(text(&bascule.call("s:x", r#"{"a":1.0}"#)), r#"{"a":1.0}"#, "{also}");
        assert_eq!(server.count("GET"), 1);
    }
    let (bascule, server) = served_with(echoing().legacy("/messages"), json!({ "type": "http" }));
    check(&bascule.call_error("s:x", "{}"), NEVER_STARTED, &["HTTP 405"]);
    assert_eq!(server.count("GET"), 0);
}

// req: BR-05
#[test]
fn a_server_that_speaks_neither_is_told_about_both() {
    let (bascule, server) = served(echoing());
    server.fail_always("*", HttpFault::status(404, "no such page"));
    check(&bascule.call_error("s:x", "{}"), NEVER_STARTED, &["HTTP 404: no such page; nor does", "HTTP+SSE"]);
}

// req: BR-05, BR-12
#[test]
fn an_older_server_that_breaks_off_leaves_the_outcome_unknown() {
    let (bascule, _server) =
        served_with(tool_x([Behaviour::exit(1)]).legacy("/messages"), json!({ "type": "sse" }));
    check(&bascule.call_error("s:x", "{}"), UNKNOWN, &["broke off"]);
}

// req: BR-05
#[test]
fn an_older_server_that_never_says_where_to_post_meets_the_deadline() {
    let late = json!({ "type": "sse", "startTimeoutMs": 300 });
    let (bascule, server) = served_with(echoing().legacy("/messages"), late);
    server.fail_always("GET", HttpFault::Silence);
    check(&bascule.call_error("s:x", "{}"), NEVER_STARTED, &["300 ms", "`startTimeoutMs`"]);
    assert_eq!(server.count("POST"), 0);
}
