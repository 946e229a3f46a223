//! Oversized messages, floods on stderr, and servers that do not read stdin.

use bascule_testkit::{Behaviour, IdPosition, Script, ScriptedStdio};
use serde_json::json;

use super::{check, in_shell, scripted, scripted_with, tool_x};
use crate::embedded::{bridge, bridge_with_config, call, terminate};
use crate::support::{Bascule, text};

const HUNDRED_MEGABYTES: usize = 100_000_000;

/// Expected errors for an oversized message, by the position of the request id in it.
const OVERSIZED: [(IdPosition, &str, &str); 3] = [
    (IdPosition::Before, "PROVIDER_ERROR answered false", "the response is longer than 67108864 bytes"),
    (IdPosition::After, "PROVIDER_ERROR answered false", "the response is longer than 67108864 bytes"),
    (IdPosition::Missing, "OUTCOME_UNKNOWN unknown false", "longer than 67108864 bytes"),
];

// req: BR-05
// req: BR-12
#[test]
fn rejects_line_of_hundred_megabytes() {
    for (place, expected, message) in OVERSIZED {
        let (bascule, _server) = scripted(tool_x([Behaviour::big(HUNDRED_MEGABYTES, place)]));
        check(&bascule.call_error("s:x", "{}"), expected, &[message]);
    }
}

// req: BR-05
// req: BR-12
#[tokio::test]
async fn connection_survives_line_of_hundred_megabytes() {
    for (place, expected, message) in OVERSIZED {
        let behaviours = [Behaviour::big(HUNDRED_MEGABYTES, place), Behaviour::text("still here")];
        let server = ScriptedStdio::new(tool_x(behaviours));
        let bridge = bridge(server.entry()).await;
        check(&call(&bridge, "s:x", "{}").await.unwrap_err(), expected, &[message]);
        assert_eq!(text(&call(&bridge, "s:x", "{}").await.unwrap()), "still here");
        assert_eq!(server.started().len(), 1, "the server is not restarted");
        terminate(&bridge).await;
    }
}

// req: BR-12
#[tokio::test]
async fn oversized_response_fails_only_its_call() {
    let script = Script::new().tools(["slow", "big"]);
    let script = script.calls("slow", [Behaviour::asking([json!({ "method": "ping" })])]);
    let script = script.calls("big", [Behaviour::big(300_000, IdPosition::After)]);
    let server = ScriptedStdio::new(script.clone().calls("slow", [Behaviour::silence()]));
    let limit = json!({ "maxMessageBytes": 100_000 });
    let bridge = bridge_with_config(json!({ "mcpServers": { "s": server.entry() }, "bascule": limit })).await;
    let slow = call(&bridge, "s:slow", "{}");
    let big = async {
        server.wait_for(r#""slow""#);
        let error = call(&bridge, "s:big", "{}").await.unwrap_err();
        check(&error, "PROVIDER_ERROR answered false", &["the response is longer than 100000 bytes"]);
        // Answers the first call now, with its id.
        let waiting: serde_json::Value = serde_json::from_str(&server.wait_for(r#""slow""#)).unwrap();
        let answer = json!({ "jsonrpc": "2.0", "id": waiting["id"], "result": { "content": [] } });
        server.set_script(script.calls("big", [Behaviour::text("next").after_line(answer)]));
        assert_eq!(text(&call(&bridge, "s:big", "{}").await.unwrap()), "next");
    };
    let (slow, ()) = tokio::join!(slow, big);
    assert_eq!(slow.unwrap(), json!({ "content": [] }));
    terminate(&bridge).await;
}

// req: BR-12
#[test]
fn message_limit_is_configurable_and_named_in_error() {
    let server = ScriptedStdio::new(tool_x([Behaviour::big(2_000, IdPosition::Before)]));
    let with_limit = |bytes: u64| {
        let servers = json!({ "s": server.entry() });
        let text = json!({ "mcpServers": servers, "bascule": { "maxMessageBytes": bytes } });
        Bascule::with_text(&text.to_string())
    };
    with_limit(2_000).call("s:x", "{}");
    let error = with_limit(1_999).call_error("s:x", "{}");
    check(&error, "PROVIDER_ERROR answered false", &["longer than 1999 bytes"]);
}

// req: SB-06
// req: BR-12
#[test]
fn keeps_only_the_end_of_stderr() {
    let flood = format!("{}the very last words\n", "All work and no play.\n".repeat(100_000));
    let script = tool_x([Behaviour::text("dry"), Behaviour::exit(9)]).stderr(&flood);
    let (bascule, _server) = scripted(script);
    assert_eq!(text(&bascule.call("s:x", "{}")), "dry");
    let error = bascule.call_error("s:x", "{}");
    let kept = error["stderr"].as_str().unwrap();
    assert!(kept.ends_with("the very last words") && kept.len() <= 8 << 10, "{} bytes", kept.len());
}

// req: BR-05
// req: BR-12
#[test]
fn huge_call_times_out_if_server_does_not_read() {
    let mut entry = in_shell("exec sleep 600", "not-reading");
    entry["timeoutMs"] = json!(500);
    let huge = format!(r#"{{"a":"{}"}}"#, "x".repeat(4 << 20));
    let output = Bascule::with_server("s", entry).run_with_input(&["call", "s:x", "-", "--json"], &huge);
    assert_eq!(output.code, Some(3), "{}", output.stderr);
    check(&output.document()["error"], "PROVIDER_TIMEOUT unknown true", &["500 ms"]);
}

// req: BR-05
// req: BR-12
#[tokio::test]
async fn bounds_queue_for_server_that_does_not_read() {
    let mut entry = in_shell("exec sleep 600", "not-reading");
    entry["timeoutMs"] = json!(500);
    let bridge = bridge_with_config(json!({ "mcpServers": { "s": entry } })).await;
    let huge = format!(r#"{{"a":"{}"}}"#, "x".repeat((64 << 20) + 100_000));
    let late = call(&bridge, "s:x", &huge).await.unwrap_err();
    check(&late, "PROVIDER_TIMEOUT unknown true", &[]);
    let refused = call(&bridge, "s:x", "{}").await.unwrap_err();
    check(&refused, "PROVIDER_UNAVAILABLE not_sent true", &["does not read its input"]);
    terminate(&bridge).await;
}

// req: SB-02
#[test]
fn applies_output_limit_of_server() {
    let long = tool_x([Behaviour::big(50_000, IdPosition::Before), Behaviour::text("short")]);
    let (bascule, _server) = scripted_with(long, json!({ "limits": { "maxOutputBytes": 10_000 } }));
    check(&bascule.call_error("s:x", "{}"), "PROVIDER_ERROR answered false", &["longer than 10000 bytes"]);
    bascule.call("s:x", "{}");
}
