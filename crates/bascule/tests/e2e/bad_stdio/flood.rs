//! Servers that say too much, and servers that do not listen.

use bascule_testkit::{Behaviour, IdPosition, Script, ScriptedStdio};
use serde_json::json;

use super::{check, in_shell, scripted, scripted_with, tool_x};
use crate::embedded::{bridge, bridge_with_config, call, terminate};
use crate::support::{Bascule, text};

const HUNDRED_MEGABYTES: usize = 100_000_000;

/// What a hundred megabytes come to, depending on where in them the call's id stands.
const FATES: [(IdPosition, &str, &str); 3] = [
    (IdPosition::Before, "PROVIDER_ERROR answered false", "the answer is longer than 67108864 bytes"),
    (IdPosition::After, "PROVIDER_ERROR answered false", "the answer is longer than 67108864 bytes"),
    (IdPosition::Missing, "OUTCOME_UNKNOWN unknown false", "longer than 67108864 bytes"),
];

// req: BR-05
// req: BR-12
#[test]
fn a_line_of_a_hundred_megabytes_is_a_clear_error() {
    for (place, expected, said) in FATES {
        let (bascule, _server) = scripted(tool_x([Behaviour::big(HUNDRED_MEGABYTES, place)]));
        check(&bascule.call_error("s:x", "{}"), expected, &[said]);
    }
}

// req: BR-05
// req: BR-12
#[tokio::test]
async fn after_a_line_of_a_hundred_megabytes_the_connection_goes_on() {
    for (place, expected, said) in FATES {
        let behaviours = [Behaviour::big(HUNDRED_MEGABYTES, place), Behaviour::text("still here")];
        let server = ScriptedStdio::new(tool_x(behaviours));
        let bridge = bridge(server.entry()).await;
        check(&call(&bridge, "s:x", "{}").await.unwrap_err(), expected, &[said]);
        assert_eq!(text(&call(&bridge, "s:x", "{}").await.unwrap()), "still here");
        assert_eq!(server.started().len(), 1, "it is the same process");
        terminate(&bridge).await;
    }
}

// req: BR-12
#[tokio::test]
async fn an_overlong_answer_of_a_known_call_harms_no_other() {
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
        check(&error, "PROVIDER_ERROR answered false", &["the answer is longer than 100000 bytes"]);
        // Only now may the first call be answered: by hand, under its id.
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
fn the_limit_of_a_message_is_configurable_and_named() {
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
fn a_flood_on_stderr_hinders_nothing_and_only_its_end_is_kept() {
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
fn a_server_that_never_reads_cannot_hold_up_a_huge_call() {
    let mut entry = in_shell("exec sleep 600", "deaf");
    entry["timeoutMs"] = json!(500);
    let huge = format!(r#"{{"a":"{}"}}"#, "x".repeat(4 << 20));
    let ran = Bascule::with_server("s", entry).run_with_input(&["call", "s:x", "-", "--json"], &huge);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    check(&ran.document()["error"], "PROVIDER_TIMEOUT unknown true", &["500 ms"]);
}

// req: BR-05
// req: BR-12
#[tokio::test]
async fn what_waits_for_a_server_that_never_reads_is_bounded() {
    let mut entry = in_shell("exec sleep 600", "deaf");
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
fn a_server_may_be_allowed_less_output_than_others() {
    let long = tool_x([Behaviour::big(50_000, IdPosition::Before), Behaviour::text("short")]);
    let (bascule, _server) = scripted_with(long, json!({ "limits": { "maxOutputBytes": 10_000 } }));
    check(&bascule.call_error("s:x", "{}"), "PROVIDER_ERROR answered false", &["longer than 10000 bytes"]);
    bascule.call("s:x", "{}");
}
