//! Nothing is lost on the way (GW-03): what need not change arrives as it was spelled, and in order.

use bascule_testkit::{Behaviour, IdPlace, Script};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::json;

use super::client::Client;
use super::{Bridge, TOGETHER, parsed};
use crate::fleet::serving::Serving;

/// JSON as people and programs spell it, which is not always how we would.
fn spelled() -> impl Strategy<Value = String> {
    let odd = [
        "1.0",
        "1e400",
        "-0",
        "-0.0E-0",
        "9223372036854775808",
        "-9223372036854775809",
        "1E+2",
        "0.10",
        "null",
        "true",
        "false",
        r#""\ud800""#,
        r#""\udc00\ud800""#,
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
    let leaf = prop_oneof![
        prop::sample::select(odd.to_vec()).prop_map(str::to_owned),
        any::<f64>().prop_map(|number| json!(number).to_string()),
        ".{0,12}".prop_map(|text| json!(text).to_string()),
        // Deeper than parsers that recurse can follow.
        (1..3000usize).prop_map(|depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth))),
    ];
    leaf.prop_recursive(4, 48, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(|items| format!("[{}]", items.join(" , "))),
            members(inner),
        ]
    })
}

/// An object, in which keys may be doubled and spelled strangely.
fn members(value: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    let key = prop::sample::select(
        &["a", "a", "\\u0061", "_meta", "type", "id", "jsonrpc", "error", "x-y", "", "\\ud800"][..],
    );
    prop::collection::vec((key, value), 0..6).prop_map(|members| {
        let spelled: Vec<String> = members.iter().map(|(key, value)| format!("\"{key}\" :{value}")).collect();
        format!("{{{}}}", spelled.join(","))
    })
}

fn object() -> impl Strategy<Value = String> {
    members(spelled().boxed())
}

/// The server's word on one thing and another.
fn script(result: &str, fault: &str, said: &str, beside: &str) -> Script {
    let notification = format!(r#"{{"jsonrpc":"2.0","method":"x/said","params":{said},{beside}}}"#);
    Script::new()
        .tools(["take", "give", "fail"])
        .calls("give", [Behaviour::result(result).after_line(notification).beside(beside)])
        .calls("fail", [Behaviour::error(fault).beside(beside)])
        .on("x/ask", [Behaviour::result(result).beside(beside)])
        .on("x/fail", [Behaviour::error(fault).beside(beside)])
}

/// What follows this in the text, which must be there.
fn after<'a>(text: &'a str, part: &str) -> &'a str {
    text.split_once(part).unwrap_or_else(|| panic!("no `{part}` in {text}")).1
}

fn check_call(bridge: &Bridge, client: &Client, prefix: &str, sent: &str, meta: &str, case: usize) {
    let params =
        format!(r#"{{ "x":{sent},"name":"{prefix}take" ,"arguments":{sent},"n":{case},"_meta":{meta}}}"#);
    let answer = client.request("1", "tools/call", &params).last();
    let expected = format!(r#""structuredContent":{sent},"isError":false}}}}"#);
    assert!(answer.ends_with(&expected), "sent {sent}\n got {answer}");
    let received = bridge.server.wait_for(&format!(r#","n":{case},"#));
    let expected = format!(r#""params":{{ "x":{sent},"name":"take" ,"arguments":{sent},"n":{case},"_meta":"#);
    let rest = after(&received, &expected);
    // The token is ours, whatever else is there is not.
    let (kept, _) = rest.rsplit_once("\"progressToken\"").unwrap();
    assert_eq!(kept.strip_suffix(','), meta.strip_suffix('}'), "{received}");
}

fn check_answers(client: &Client, prefix: &str, result: &str, fault: &str, said: &str, beside: &str) {
    let params = format!(r#"{{"name":"{prefix}give"}}"#);
    let mut given = client.request(r#""\u0061""#, "tools/call", &params);
    let notified = given.some();
    assert_eq!(notified, format!(r#"{{"jsonrpc":"2.0","method":"x/said","params":{said},{beside}}}"#));
    assert_eq!(given.some(), format!(r#"{{"jsonrpc":"2.0","id":"\u0061","result":{result},{beside}}}"#));
    let failed = client.request("1e3", "tools/call", &format!(r#"{{"name":"{prefix}fail"}}"#)).last();
    assert_eq!(failed, format!(r#"{{"jsonrpc":"2.0","id":1e3,"error":{fault},{beside}}}"#));
}

fn check_unknown(
    bridge: &Bridge,
    client: &Client,
    sent: &str,
    (result, fault): (&str, &str),
    beside: &str,
    case: usize,
) {
    let params = format!(r#""params":{{"n":"ask {case}","x":{sent}}},{beside}"#);
    let asked = client.post(&format!(r#"{{"jsonrpc":"2.0","id":2,"method":"x/ask",{params}}}"#)).last();
    assert_eq!(asked, format!(r#"{{"jsonrpc":"2.0","id":2,"result":{result},{beside}}}"#));
    let received = bridge.server.wait_for(&format!("ask {case}"));
    assert!(received.ends_with(&format!(r#"{params}}}"#)), "{received}");
    let failed = client.request("3", "x/fail", sent).last();
    assert_eq!(failed, format!(r#"{{"jsonrpc":"2.0","id":3,"error":{fault},{beside}}}"#));
    let told = format!(
        r#"{{"jsonrpc":"2.0","method":"x/told","params":{{"n":"told {case}","x":{sent}}},{beside}}}"#
    );
    client.tell(&told);
    assert_eq!(bridge.server.wait_for(&format!("told {case}")), told);
}

/// As many, however many are asked for elsewhere: to find a line, a server's log is read from its beginning, so that twice
/// as many take four times as long.
const CASES: u32 = 48;

// req: GW-03
#[test]
fn what_need_not_change_arrives_as_it_was_spelled() {
    let bridge = Bridge::of(script("{}", "{}", "{}", r#""x":1"#));
    let (alone, together) = (bridge.alone(), bridge.together());
    let case = std::cell::Cell::new(0);
    let config = ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() };
    let spellings = (object(), spelled(), spelled());
    let tried = TestRunner::new(config).run(&spellings, |(sent, meta, body)| {
        let meta = format!(r#"{{"own":{meta}}}"#);
        let result =
            format!(r#"{{"x":{body},"content":[{{"type":"x-new","y":{body}}}], "_meta":{{"z":{body}}}}}"#);
        let fault = format!(r#"{{"code":-31999,"x":{body},"message":"n\u006fo \ud800","data":{body}}}"#);
        let beside = format!(r#""x-new":{body},"y" :{sent},"x-new":1"#);
        bridge.server.change(script(&result, &fault, &body, &beside));
        for (client, prefix) in [(&alone, ""), (&together, "s__")] {
            case.set(case.get() + 1);
            check_call(&bridge, client, prefix, &sent, &meta, case.get());
            check_answers(client, prefix, &result, &fault, &body, &beside);
        }
        case.set(case.get() + 1);
        check_unknown(&bridge, &alone, &sent, (&result, &fault), &beside, case.get());
        Ok(())
    });
    tried.unwrap();
}

// req: GW-03, GW-04
#[test]
fn two_hundred_reports_of_progress_come_in_order_before_the_answer() {
    let bridge =
        Bridge::of(Script::new().tools(["t"]).calls("t", [Behaviour::text("done").after_progress(200)]));
    for (client, tool) in [(bridge.alone(), "t"), (bridge.together(), "s__t")] {
        for token in [r#""mine""#, "7", "1.50", r#""\u0061""#] {
            let params = format!(r#"{{"name":"{tool}","_meta":{{"progressToken":{token}}}}}"#);
            let mut exchange = client.request("5", "tools/call", &params);
            for n in 1..=200 {
                let expected = format!(
                    r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":{n},"total":200}}}}"#
                );
                assert_eq!(exchange.some(), expected);
            }
            assert_eq!(parsed(&exchange.some())["result"]["content"][0]["text"], "done");
            assert_eq!(exchange.next(), None);
        }
        // Who gave no token hears nothing.
        let mut exchange = client.request("6", "tools/call", &format!(r#"{{"name":"{tool}"}}"#));
        assert_eq!(parsed(&exchange.some())["id"], 6);
    }
}

// req: GW-03
#[test]
fn long_results_pass_and_longer_ones_are_refused() {
    const MB: usize = 1 << 20;
    let big = |megabytes: usize| [Behaviour::big(megabytes * MB, IdPlace::Before)];
    let script = Script::new().tools(["eight", "much", "more"]);
    let script = script.calls("eight", big(8)).calls("much", big(24)).calls("more", big(80));
    let bridge = Bridge::of(script);
    for (client, prefix) in [(bridge.alone(), ""), (bridge.together(), "s__")] {
        for (tool, megabytes) in [("eight", 8), ("much", 24)] {
            let params = format!(r#"{{"name":"{prefix}{tool}"}}"#);
            let answer = client.request("1", "tools/call", &params).last();
            // Only the ids differ in length, and they are of one digit or two.
            assert!(answer.len().abs_diff(megabytes * MB) < 8, "{}", answer.len());
            assert_eq!(
                answer.bytes().filter(|byte| *byte != b'x').count(),
                answer.len() - answer.matches('x').count()
            );
        }
        let params = format!(r#"{{"name":"{prefix}more"}}"#);
        let answer = parsed(&client.request("1", "tools/call", &params).last());
        assert_eq!(answer["result"]["isError"], true, "{answer}");
        let said = answer["result"]["content"][0]["text"].as_str().unwrap();
        assert!(said.contains("67108864"), "the limit is named: {said}");
        assert_eq!(client.call(&format!("{prefix}eight"), &json!({}))["id"], 1, "the rest is served");
    }
}

// req: GW-03
#[test]
fn a_long_message_of_a_client_passes_and_a_longer_one_is_refused() {
    let bridge = Bridge::of(Script::new().tools(["t"]).calls("t", [Behaviour::text("taken")]));
    let client = bridge.alone();
    let long = "y".repeat(24 << 20);
    let answer = client.call("t", &json!({ "long": long }));
    assert_eq!(answer["result"]["content"][0]["text"], "taken");
    let mut exchange = client.call_of_length(65 << 20);
    assert_eq!(exchange.status, 413);
    assert!(exchange.last().contains("67108864"));
    assert_eq!(client.call("t", &json!({}))["result"]["content"][0]["text"], "taken");
}

// req: GW-03
#[test]
fn a_limit_of_ones_own_holds_both_ways() {
    let server = bascule_testkit::ScriptedStdio::new(
        Script::new().tools(["t", "big"]).calls("big", [Behaviour::big(20_000, IdPlace::After)]),
    );
    let text = json!({ "mcpServers": { "s": server.entry() }, "bascule": { "maxMessageBytes": 10_000 } });
    let serving = Serving::start_configured(&text.to_string(), &[]);
    let client = Client::begin(serving.address(), TOGETHER);
    let long = "z".repeat(10_000);
    let params = json!({ "name": "s__t", "arguments": { "z": long } }).to_string();
    assert_eq!(client.request("1", "tools/call", &params).status, 413);
    let answer = client.call("s__big", &json!({}));
    assert!(answer["result"]["content"][0]["text"].as_str().unwrap().contains("10000"), "{answer}");
    assert_eq!(client.call("s__t", &json!({}))["result"]["isError"], false);
}

// req: GW-03
#[test]
fn what_is_no_tool_result_still_reaches_the_client() {
    let odd = r#"{"contents":[{"type":7}],"isError":"perhaps"}"#;
    let bridge = Bridge::of(Script::new().tools(["t"]).calls("t", [Behaviour::result(odd)]));
    let answer = bridge.alone().request("1", "tools/call", r#"{"name":"t"}"#).last();
    assert_eq!(answer, format!(r#"{{"jsonrpc":"2.0","id":1,"result":{odd}}}"#));
}

// req: GW-03
#[test]
fn notifications_of_a_client_keep_their_order() {
    let bridge = Bridge::of(Script::new());
    let client = bridge.alone();
    for n in 0..200 {
        client.notify("x/count", &json!({ "n": n }));
    }
    bridge.server.wait_for(r#""n":199}"#);
    bridge
        .server
        .wait_until(|_| bridge.server.methods().iter().filter(|method| *method == "x/count").count() == 200);
    let lines = bridge.server.received();
    let counts =
        lines.iter().filter(|line| line.contains("x/count")).map(|line| parsed(line)["params"]["n"].clone());
    assert_eq!(counts.collect::<Vec<_>>(), (0..200).map(|n| json!(n)).collect::<Vec<_>>());
}
