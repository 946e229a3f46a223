//! Unreachable URLs, HTTP failures, broken bodies and slow responses.

use std::time::Duration;

use bascule_testkit::{Behaviour, HttpFault, IdPosition, Script, ScriptedHttp, SseFeature};
use serde_json::{Value, json};

use super::{check, echoing, served, served_with, tool_x};
use crate::support::{Bascule, text};

const START_FAILED: &str = "PROVIDER_INIT_FAILED not_sent false";
const START_TIMED_OUT: &str = "PROVIDER_INIT_FAILED not_sent true";
const UNKNOWN: &str = "OUTCOME_UNKNOWN unknown false";
const REFUSED: &str = "PROVIDER_ERROR answered false";

/// Error of a call when requests with this method get this fault.
fn call_with_fault(method: &str, fault: HttpFault) -> Value {
    let (bascule, server) = served_with(echoing(), json!({ "timeoutMs": 60_000, "startTimeoutMs": 60_000 }));
    server.fail_always(method, fault);
    bascule.call_error("s:x", "{}")
}

/// Checks the error of this fault during `initialize` and during a call.
#[track_caller]
fn check_fault(fault: HttpFault, call_error: &str, parts: &[&str]) {
    check(&call_with_fault("initialize", fault.clone()), START_FAILED, parts);
    check(&call_with_fault("tools/call", fault), call_error, parts);
}

// req: BR-05
#[test]
fn names_address_that_refuses_connections() {
    let (bascule, mut server) = served(echoing());
    server.stop();
    let address = server.url();
    check(&bascule.call_error("s:x", "{}"), START_FAILED, &["`s`", &address, "refused"]);
}

// req: BR-05
#[test]
fn names_unknown_host() {
    let entry = json!({ "url": "http://no-such-host.invalid/mcp", "startTimeoutMs": 30_000 });
    let error = Bascule::with_server("s", entry).call_error("s:x", "{}");
    check(&error, START_FAILED, &["could not connect", "no-such-host.invalid"]);
}

// req: BR-05
#[test]
fn names_redirect_and_does_not_follow_it() {
    for status in [301, 302, 307, 308] {
        let elsewhere = ScriptedHttp::start(echoing());
        let (bascule, server) = served(echoing());
        server.fail_always("*", HttpFault::redirect(status, &elsewhere.url()));
        let error = bascule.call_error("s:x", "{}");
        check(&error, START_FAILED, &[&status.to_string(), &elsewhere.url(), "not followed"]);
        assert_eq!((server.requests().len(), elsewhere.requests().len()), (1, 0), "{status}");
    }
    let in_a_call = call_with_fault("tools/call", HttpFault::redirect(307, "http://elsewhere.example/"));
    check(&in_a_call, REFUSED, &["http://elsewhere.example/"]);
}

// req: BR-05
#[test]
fn reports_html_page() {
    check_fault(HttpFault::html(), UNKNOWN, &["does not respond as an MCP server", "text/html", "Welcome"]);
}

// req: BR-05
#[test]
fn reports_missing_authorization() {
    let challenge = r#"Bearer resource_metadata="https://auth.example/""#;
    let parts = ["authorisation", "401", challenge, "`Authorization`"];
    check_fault(HttpFault::unauthorised(challenge), REFUSED, &parts);
}

// req: BR-05
#[test]
fn quotes_http_failure() {
    check_fault(HttpFault::status(403, "not for you"), REFUSED, &["HTTP 403", "not for you"]);
    check_fault(HttpFault::status(404, "no such page"), REFUSED, &["HTTP 404", "no such page"]);
    check_fault(HttpFault::status(500, "out of cheese"), UNKNOWN, &["HTTP 500", "out of cheese"]);
    check_fault(HttpFault::status(503, &"x".repeat(100_000)), UNKNOWN, &["HTTP 503", "xxx…"]);
}

// req: BR-05
#[test]
fn keeps_json_rpc_error_in_http_failure() {
    let error = json!({ "code": -32042, "message": "odd id", "data": { "n": 1 } });
    let body = json!({ "jsonrpc": "2.0", "id": null, "error": error }).to_string();
    let headers = vec![("Content-Type".to_owned(), "application/json".to_owned())];
    let fault = HttpFault::Response { status: 400, headers, body };
    check_fault(fault.clone(), REFUSED, &["odd id", "-32042"]);
    assert_eq!(call_with_fault("tools/call", fault)["providerError"], error);
}

// req: BR-05
#[test]
fn outcome_is_unknown_if_response_is_cut() {
    let cuts = [HttpFault::CutBody, HttpFault::CutChunks, HttpFault::CutStream, HttpFault::EmptyStream];
    for fault in cuts {
        check_fault(fault, UNKNOWN, &["was interrupted"]);
    }
}

// req: BR-05
#[test]
fn outcome_is_unknown_if_connection_closes() {
    let (bascule, _server) = served(tool_x([Behaviour::exit(1)]));
    check(&bascule.call_error("s:x", "{}"), UNKNOWN, &["was interrupted"]);
}

// req: BR-05
#[test]
fn outcome_is_unknown_if_body_is_no_response() {
    for body in ["", "{}", "[]", "null", "not JSON", r#"{"jsonrpc":"2.0","id":"other","result":{}}"#] {
        let headers = vec![("Content-Type".to_owned(), "application/json".to_owned())];
        let fault = HttpFault::Response { status: 200, headers, body: body.to_owned() };
        check_fault(fault, UNKNOWN, &["holds no response to the request"]);
    }
}

// req: BR-05
#[test]
fn outcome_is_unknown_if_request_is_only_accepted() {
    check_fault(HttpFault::status(202, ""), UNKNOWN, &["HTTP 202"]);
}

// req: BR-05
// req: CL-07
#[test]
fn cancels_unanswered_call_at_deadline() {
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
fn initialize_times_out_without_cancellation() {
    let (bascule, server) = served_with(echoing(), json!({ "startTimeoutMs": 3000 }));
    server.fail_always("*", HttpFault::Silence);
    check(&bascule.call_error("s:x", "{}"), START_TIMED_OUT, &["3000 ms", "`startTimeoutMs`"]);
    assert_eq!(server.methods(), ["initialize"]);
}

// req: BR-05
// req: BR-12
#[test]
fn silent_server_does_not_delay_exit() {
    let (bascule, server) = served_with(echoing().session("a"), json!({ "timeoutMs": 300 }));
    for matching in ["tools/call", "notifications/cancelled", "DELETE"] {
        server.fail_always(matching, HttpFault::Silence);
    }
    check(&bascule.call_error("s:x", "{}"), "PROVIDER_TIMEOUT unknown true", &["300 ms"]);
}

// req: BR-12
#[test]
fn rejects_oversized_body() {
    let message = "the response is longer than 67108864 bytes";
    check_fault(HttpFault::Giant { bytes: 100_000_000 }, REFUSED, &[message]);
}

// req: BR-12
#[test]
fn rejects_oversized_event() {
    let cases = [(IdPosition::Before, REFUSED), (IdPosition::After, REFUSED), (IdPosition::Missing, UNKNOWN)];
    for (place, expected) in cases {
        let (bascule, _server) = served(tool_x([Behaviour::big(100_000_000, place).as_sse()]));
        check(&bascule.call_error("s:x", "{}"), expected, &["longer than 67108864 bytes"]);
    }
}

// req: BR-12
#[test]
fn accepts_slow_response() {
    for script in [echoing(), echoing().sse([])] {
        let (bascule, server) = served(script);
        server.fail_always("*", HttpFault::Trickle { bytes: 16, every: Duration::from_millis(5) });
        assert_eq!(text(&bascule.call("s:x", r#"{"a":1}"#)), r#"{"a":1}"#);
    }
}

// req: BR-05
#[test]
fn slow_response_times_out() {
    let (bascule, server) = served_with(echoing(), json!({ "timeoutMs": 500 }));
    server.fail_always("tools/call", HttpFault::Trickle { bytes: 1, every: Duration::from_millis(100) });
    check(&bascule.call_error("s:x", "{}"), "PROVIDER_TIMEOUT unknown true", &["500 ms"]);
}

// req: BR-01
#[test]
fn understands_every_sse_variant() {
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
fn ignores_other_messages_in_response_stream() {
    let stray = Behaviour::text("fine").after_stray_response().after_log("hello").after_line("%$!");
    let (bascule, _server) = served(tool_x([stray.after_progress(2).twice()]));
    assert_eq!(text(&bascule.call("s:x", "{}")), "fine");
}

// req: BR-05
#[test]
fn invalid_response_with_known_id_fails_the_call() {
    for script in [Script::new(), Script::new().sse([])] {
        let script = script.tools(["x"]).calls("x", [Behaviour::result(r#"{"content":[}"#)]);
        check(&served(script).0.call_error("s:x", "{}"), REFUSED, &["not valid JSON-RPC"]);
    }
}

// req: BR-05
#[test]
fn answers_requests_of_server() {
    let requests = ["ping", "roots/list"].map(|method| json!({ "method": method }));
    let (bascule, _server) = served(tool_x([Behaviour::asking(requests)]));
    let answers = bascule.call("s:x", "{}")["structuredContent"]["answers"].clone();
    assert_eq!((&answers[0]["result"], &answers[1]["error"]["code"]), (&json!({}), &json!(-32601)));
}

// req: BR-05
#[test]
fn progress_restarts_timeout_of_server() {
    // The pauses add up to more than `timeoutMs`; each is far shorter.
    let pause = Duration::from_secs(1);
    let busy = (0..7).fold(Behaviour::text("done"), |busy, _| busy.after_delay(pause).after_progress(1));
    let (bascule, _server) = served_with(tool_x([busy]), json!({ "timeoutMs": 5000 }));
    assert_eq!(text(&bascule.call("s:x", "{}")), "done");
}

// req: BR-02
#[test]
fn rejects_unknown_protocol_version() {
    let (bascule, _server) = served(echoing().version("1999-12-31"));
    check(&bascule.call_error("s:x", "{}"), START_FAILED, &["`1999-12-31`", "`2025-11-25`"]);
}

// req: BR-05
#[test]
fn reports_https_to_plain_http_port() {
    let server = ScriptedHttp::start(echoing());
    let url = server.url().replace("http://", "https://");
    let entry = json!({ "url": url, "startTimeoutMs": 60_000 });
    let error = Bascule::with_server("s", entry).call_error("s:x", "{}");
    check(&error, START_FAILED, &["could not connect", &url]);
    assert!(server.received().is_empty());
}

// req: BR-01
#[test]
fn uses_http_sse_if_configured_or_as_fallback() {
    for settings in [json!({ "type": "sse" }), json!({})] {
        let (bascule, server) = served_with(echoing().legacy("/messages?s=1"), settings.clone());
        assert_eq!(text(&bascule.call("s:x", r#"{"a":1.0}"#)), r#"{"a":1.0}"#, "{settings}");
        assert_eq!(server.count("GET"), 1);
    }
    let (bascule, server) = served_with(echoing().legacy("/messages"), json!({ "type": "http" }));
    check(&bascule.call_error("s:x", "{}"), START_FAILED, &["HTTP 405"]);
    assert_eq!(server.count("GET"), 0);
}

// req: BR-05
#[test]
fn reports_both_transports_if_neither_works() {
    let (bascule, server) = served(echoing());
    server.fail_always("*", HttpFault::status(404, "no such page"));
    check(&bascule.call_error("s:x", "{}"), START_FAILED, &["HTTP 404: no such page; HTTP+SSE failed, too"]);
}

// req: BR-05, BR-12
#[test]
fn outcome_is_unknown_if_sse_stream_is_cut() {
    let (bascule, _server) =
        served_with(tool_x([Behaviour::exit(1)]).legacy("/messages"), json!({ "type": "sse" }));
    check(&bascule.call_error("s:x", "{}"), UNKNOWN, &["was interrupted"]);
}

// req: BR-05
#[test]
fn sse_start_times_out_without_endpoint_event() {
    let settings = json!({ "type": "sse", "startTimeoutMs": 300 });
    let (bascule, server) = served_with(echoing().legacy("/messages"), settings);
    server.fail_always("GET", HttpFault::Silence);
    check(&bascule.call_error("s:x", "{}"), START_TIMED_OUT, &["300 ms", "`startTimeoutMs`"]);
    assert_eq!(server.count("POST"), 0);
}
