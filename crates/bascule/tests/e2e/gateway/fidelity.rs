//! Lossless forwarding: messages keep their bytes, except ids, names and tokens, and their order.

use bascule_testkit::{Behaviour, IdPosition, Script};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::json;

use super::client::Client;
use super::{AGGREGATE_PATH, ScriptedBridge, parse};
use crate::fleet::serve_process::ServeProcess;

/// Generates JSON text with unusual numbers, escapes, nesting and white space, also beyond what a validator can read.
fn json_text() -> impl Strategy<Value = String> {
    let unreadable = ["1e400", r#""\ud800""#, r#""\udc00\ud800""#];
    // Deeper than recursive parsers can follow.
    let deep = (1..3000usize).prop_map(|depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth)));
    let leaf =
        prop_oneof![readable_leaf(), prop::sample::select(unreadable.to_vec()).prop_map(str::to_owned), deep];
    nested(leaf, false)
}

/// Generates an object that a validator can read.
fn arguments_text() -> impl Strategy<Value = String> {
    object_of(nested(readable_leaf(), true).boxed(), true)
}

fn readable_leaf() -> impl Strategy<Value = String> {
    let odd = [
        "1.0",
        "-0",
        "-0.0E-0",
        "9223372036854775808",
        "-9223372036854775809",
        "1E+2",
        "0.10",
        "null",
        "true",
        "false",
        r#""\u0061\/\b""#,
        r#""\u0000""#,
        r#""é𝄞""#,
        r#""""#,
        "123456789012345678901234567890.5",
        "[]",
        "{}",
        "[ ]",
        "{ }",
    ];
    prop_oneof![
        prop::sample::select(odd.to_vec()).prop_map(str::to_owned),
        any::<f64>().prop_map(|number| json!(number).to_string()),
        ".{0,12}".prop_map(|text| json!(text).to_string()),
        (1..100usize).prop_map(|depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth))),
    ]
}

fn nested(
    leaf: impl Strategy<Value = String> + 'static,
    has_unique_keys: bool,
) -> impl Strategy<Value = String> {
    leaf.prop_recursive(4, 48, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(|items| format!("[{}]", items.join(" , "))),
            object_of(inner, has_unique_keys),
        ]
    })
}

/// Generates an object with escaped keys, and with duplicate ones if they need not be unique.
fn object_of(value: impl Strategy<Value = String>, has_unique_keys: bool) -> impl Strategy<Value = String> {
    let key = prop::sample::select(
        &["a", "a", "\\u0061", "_meta", "type", "id", "jsonrpc", "error", "x-y", "", "\\ud800"][..],
    );
    prop::collection::vec((key, value), 0..6).prop_map(move |mut members| {
        if has_unique_keys {
            let decoded = |key: &str| key.replace("\\u0061", "a");
            members.retain(|(key, _)| !key.contains("\\ud800"));
            members.sort_by_key(|(key, _)| decoded(key));
            members.dedup_by_key(|(key, _)| decoded(key));
        }
        let members: Vec<String> = members.iter().map(|(key, value)| format!("\"{key}\" :{value}")).collect();
        format!("{{{}}}", members.join(","))
    })
}

fn object_text() -> impl Strategy<Value = String> {
    object_of(json_text().boxed(), false)
}

/// A server that answers calls and unknown requests with these bytes, and adds `extra` members to every envelope.
fn script(result: &str, fault: &str, params: &str, extra: &str) -> Script {
    let notification = format!(r#"{{"jsonrpc":"2.0","method":"x/notify","params":{params},{extra}}}"#);
    Script::new()
        .tools(["take", "give", "fail"])
        .calls("give", [Behaviour::result(result).after_line(notification).with_members(extra)])
        .calls("fail", [Behaviour::error(fault).with_members(extra)])
        .on("x/echo", [Behaviour::result(result).with_members(extra)])
        .on("x/fail", [Behaviour::error(fault).with_members(extra)])
}

/// Returns the text after `part`.
fn after<'a>(text: &'a str, part: &str) -> &'a str {
    text.split_once(part).unwrap_or_else(|| panic!("no `{part}` in {text}")).1
}

fn check_call_parameters(
    bridge: &ScriptedBridge,
    client: &Client,
    prefix: &str,
    (sent, arguments): (&str, &str),
    meta: &str,
    case: usize,
) {
    let params = format!(
        r#"{{ "x":{sent},"name":"{prefix}take" ,"arguments":{arguments},"n":{case},"_meta":{meta}}}"#
    );
    let answer = client.send_request("1", "tools/call", &params).last_message();
    let expected = format!(r#""structuredContent":{arguments},"isError":false}}}}"#);
    assert!(answer.ends_with(&expected), "sent {arguments}\n got {answer}");
    let received = bridge.server.wait_for(&format!(r#","n":{case},"#));
    let expected =
        format!(r#""params":{{ "x":{sent},"name":"take" ,"arguments":{arguments},"n":{case},"_meta":"#);
    let rest = after(&received, &expected);
    // The bridge adds its progress token after the members of the client.
    let (kept, _) = rest.rsplit_once("\"progressToken\"").unwrap();
    assert_eq!(kept.strip_suffix(','), meta.strip_suffix('}'), "{received}");
}

fn check_call_responses(client: &Client, prefix: &str, result: &str, fault: &str, params: &str, extra: &str) {
    let call = format!(r#"{{"name":"{prefix}give"}}"#);
    let mut given = client.send_request(r#""\u0061""#, "tools/call", &call);
    let notified = given.next_message();
    assert_eq!(notified, format!(r#"{{"jsonrpc":"2.0","method":"x/notify","params":{params},{extra}}}"#));
    assert_eq!(
        given.next_message(),
        format!(r#"{{"jsonrpc":"2.0","id":"\u0061","result":{result},{extra}}}"#)
    );
    let failed =
        client.send_request("1e3", "tools/call", &format!(r#"{{"name":"{prefix}fail"}}"#)).last_message();
    assert_eq!(failed, format!(r#"{{"jsonrpc":"2.0","id":1e3,"error":{fault},{extra}}}"#));
}

fn check_unknown_methods(
    bridge: &ScriptedBridge,
    client: &Client,
    sent: &str,
    (result, fault): (&str, &str),
    extra: &str,
    case: usize,
) {
    let params = format!(r#""params":{{"n":"echo {case}","x":{sent}}},{extra}"#);
    let answered =
        client.post(&format!(r#"{{"jsonrpc":"2.0","id":2,"method":"x/echo",{params}}}"#)).last_message();
    assert_eq!(answered, format!(r#"{{"jsonrpc":"2.0","id":2,"result":{result},{extra}}}"#));
    let received = bridge.server.wait_for(&format!("echo {case}"));
    assert!(received.ends_with(&format!(r#"{params}}}"#)), "{received}");
    let failed = client.send_request("3", "x/fail", sent).last_message();
    assert_eq!(failed, format!(r#"{{"jsonrpc":"2.0","id":3,"error":{fault},{extra}}}"#));
    let notification =
        format!(r#"{{"jsonrpc":"2.0","method":"x/note","params":{{"n":"note {case}","x":{sent}}},{extra}}}"#);
    client.post_accepted(&notification);
    assert_eq!(bridge.server.wait_for(&format!("note {case}")), notification);
}

/// Not `PROPTEST_CASES`: to find a line, the server's log is read from its beginning, so that twice as many cases take
/// four times as long.
const CASES: u32 = 48;

// req: GW-03
#[test]
fn forwards_messages_byte_for_byte() {
    let bridge = ScriptedBridge::start(script("{}", "{}", "{}", r#""x":1"#));
    let (passthrough, aggregate) = (bridge.passthrough_client(), bridge.aggregate_client());
    let case = std::cell::Cell::new(0);
    let config = ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() };
    let inputs = (object_text(), arguments_text(), json_text(), json_text());
    let outcome = TestRunner::new(config).run(&inputs, |(sent, arguments, meta, body)| {
        let meta = format!(r#"{{"own":{meta}}}"#);
        let result =
            format!(r#"{{"x":{body},"content":[{{"type":"x-new","y":{body}}}], "_meta":{{"z":{body}}}}}"#);
        let fault = format!(r#"{{"code":-31999,"x":{body},"message":"n\u006fo \ud800","data":{body}}}"#);
        let extra = format!(r#""x-new":{body},"y" :{sent},"x-new":1"#);
        bridge.server.set_script(script(&result, &fault, &body, &extra));
        for (client, prefix) in [(&passthrough, ""), (&aggregate, "s__")] {
            case.set(case.get() + 1);
            check_call_parameters(&bridge, client, prefix, (&sent, &arguments), &meta, case.get());
            check_call_responses(client, prefix, &result, &fault, &body, &extra);
        }
        case.set(case.get() + 1);
        check_unknown_methods(&bridge, &passthrough, &sent, (&result, &fault), &extra, case.get());
        Ok(())
    });
    outcome.unwrap();
}

// req: GW-03, GW-04
#[test]
fn delivers_progress_in_order_before_response() {
    let bridge = ScriptedBridge::start(
        Script::new().tools(["t"]).calls("t", [Behaviour::text("done").after_progress(200)]),
    );
    for (client, tool) in [(bridge.passthrough_client(), "t"), (bridge.aggregate_client(), "s__t")] {
        for token in [r#""mine""#, "7", "1.50", r#""\u0061""#] {
            let params = format!(r#"{{"name":"{tool}","_meta":{{"progressToken":{token}}}}}"#);
            let mut response = client.send_request("5", "tools/call", &params);
            for n in 1..=200 {
                let expected = format!(
                    r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":{n},"total":200}}}}"#
                );
                assert_eq!(response.next_message(), expected);
            }
            assert_eq!(parse(&response.next_message())["result"]["content"][0]["text"], "done");
            assert_eq!(response.next(), None);
        }
        // Without a token there is no progress.
        let mut response = client.send_request("6", "tools/call", &format!(r#"{{"name":"{tool}"}}"#));
        assert_eq!(parse(&response.next_message())["id"], 6);
    }
}

// req: GW-03
#[test]
fn forwards_long_results_up_to_the_limit() {
    const MB: usize = 1 << 20;
    let big = |megabytes: usize| [Behaviour::big(megabytes * MB, IdPosition::Before)];
    let script = Script::new().tools(["eight", "much", "more"]);
    let script = script.calls("eight", big(8)).calls("much", big(24)).calls("more", big(80));
    let bridge = ScriptedBridge::start(script);
    for (client, prefix) in [(bridge.passthrough_client(), ""), (bridge.aggregate_client(), "s__")] {
        for (tool, megabytes) in [("eight", 8), ("much", 24)] {
            let params = format!(r#"{{"name":"{prefix}{tool}"}}"#);
            let answer = client.send_request("1", "tools/call", &params).last_message();
            // Only the lengths of the ids differ.
            assert!(answer.len().abs_diff(megabytes * MB) < 8, "{}", answer.len());
            assert_eq!(
                answer.bytes().filter(|byte| *byte != b'x').count(),
                answer.len() - answer.matches('x').count()
            );
        }
        let params = format!(r#"{{"name":"{prefix}more"}}"#);
        let answer = parse(&client.send_request("1", "tools/call", &params).last_message());
        assert_eq!(answer["result"]["isError"], true, "{answer}");
        let message = answer["result"]["content"][0]["text"].as_str().unwrap();
        assert!(message.contains("67108864"), "the limit is not named: {message}");
        assert_eq!(client.call(&format!("{prefix}eight"), &json!({}))["id"], 1, "other calls still work");
    }
}

// req: GW-03
#[test]
fn accepts_long_client_messages_up_to_the_limit() {
    let bridge = ScriptedBridge::start(Script::new().tools(["t"]).calls("t", [Behaviour::text("taken")]));
    let client = bridge.passthrough_client();
    let long = "y".repeat(24 << 20);
    let answer = client.call("t", &json!({ "long": long }));
    assert_eq!(answer["result"]["content"][0]["text"], "taken");
    let mut response = client.call_of_length(65 << 20);
    assert_eq!(response.status, 413);
    assert!(response.last_message().contains("67108864"));
    assert_eq!(client.call("t", &json!({}))["result"]["content"][0]["text"], "taken");
}

// req: GW-03
#[test]
fn configured_message_limit_applies_in_both_directions() {
    let server = bascule_testkit::ScriptedStdio::new(
        Script::new().tools(["t", "big"]).calls("big", [Behaviour::big(20_000, IdPosition::After)]),
    );
    let text = json!({ "mcpServers": { "s": server.entry() }, "bascule": { "maxMessageBytes": 10_000 } });
    let bridge = ServeProcess::start_with_config(&text.to_string(), &[]);
    let client = Client::connect(bridge.address(), AGGREGATE_PATH);
    let long = "z".repeat(10_000);
    let params = json!({ "name": "s__t", "arguments": { "z": long } }).to_string();
    assert_eq!(client.send_request("1", "tools/call", &params).status, 413);
    let answer = client.call("s__big", &json!({}));
    assert!(answer["result"]["content"][0]["text"].as_str().unwrap().contains("10000"), "{answer}");
    assert_eq!(client.call("s__t", &json!({}))["result"]["isError"], false);
}

// req: GW-03
#[test]
fn forwards_malformed_tool_result_to_client() {
    let odd = r#"{"contents":[{"type":7}],"isError":"perhaps"}"#;
    let bridge = ScriptedBridge::start(Script::new().tools(["t"]).calls("t", [Behaviour::result(odd)]));
    let answer =
        bridge.passthrough_client().send_request("1", "tools/call", r#"{"name":"t"}"#).last_message();
    assert_eq!(answer, format!(r#"{{"jsonrpc":"2.0","id":1,"result":{odd}}}"#));
}

// req: GW-03
#[test]
fn forwards_client_notifications_in_order() {
    let bridge = ScriptedBridge::start(Script::new());
    let client = bridge.passthrough_client();
    for n in 0..200 {
        client.notify("x/count", &json!({ "n": n }));
    }
    bridge.server.wait_for(r#""n":199}"#);
    bridge
        .server
        .wait_until(|_| bridge.server.methods().iter().filter(|method| *method == "x/count").count() == 200);
    let lines = bridge.server.received();
    let counts =
        lines.iter().filter(|line| line.contains("x/count")).map(|line| parse(line)["params"]["n"].clone());
    assert_eq!(counts.collect::<Vec<_>>(), (0..200).map(|n| json!(n)).collect::<Vec<_>>());
}
