//! `bascule serve` notices that its configuration file has changed.

use std::fs;

use bascule_testkit::{Script, ScriptedStdio};
use serde_json::{Value, json};

use super::eager;
use super::held::Held;
use super::serving::{Serving, begin, configuration, finish};
use crate::commands::demo;
use crate::support::{eventually, is_running, text};

fn counting() -> ScriptedStdio {
    ScriptedStdio::new(Script::new().tools(["x"]))
}

/// Waits until these tools are told of as available. What is written slowly may be read twice, and told twice.
fn available(events: &super::serving::Lines, tools: &[&str]) {
    let is_such = |event: &Value| event["type"] == "provider.mcp.tools.available";
    events.until(|event| is_such(event) && event["body"]["tools"] == json!(tools));
}

// req: BR-13
#[test]
fn a_file_that_is_written_or_replaced_is_taken_over() {
    let (stays, comes, other) = (counting(), counting(), counting());
    let serving = Serving::start(json!({ "stays": stays.entry() }));
    serving.bascule.call("stays:x", "{}");
    let (events, pid) = (serving.events(), serving.server("stays")["pid"].clone());

    serving.configure(&json!({ "stays": stays.entry(), "comes": comes.entry() }));
    available(&events, &["comes:x", "stays:x"]);
    serving.bascule.call("comes:x", "{}");

    let draft = serving.bascule.folder().join("mcp.json.new");
    fs::write(&draft, configuration(&json!({ "stays": stays.entry(), "comes": other.entry() }))).unwrap();
    fs::rename(draft, serving.file()).unwrap();
    eventually("what was replaced has ended", || !is_running(comes.started()[0]));
    available(&events, &["comes:x", "stays:x"]);
    serving.bascule.call("comes:x", "{}");
    assert_eq!(other.started().len(), 1);

    serving.configure(&json!({ "stays": stays.entry() }));
    available(&events, &["stays:x"]);
    eventually("what went has ended", || !is_running(other.started()[0]));
    assert_eq!(serving.bascule.call_error("comes:x", "{}")["code"], "TOOL_NOT_FOUND");
    assert_eq!(
        (serving.server("stays")["pid"].clone(), stays.started().len()),
        (pid, 1),
        "it was not touched"
    );
    let told = serving.lines(&["events", "provider.mcp.tools.available", "--replay", "100", "--json"]);
    for tools in [&["comes:x", "stays:x"][..], &["comes:x", "stays:x"], &["stays:x"]] {
        available(&told, tools);
    }
    serving.signal("HUP");
    available(&told, &["stays:x"]);
    assert_eq!(stays.started().len(), 1);
}

// req: BR-13
#[test]
fn a_hang_up_signal_reads_the_file_again() {
    let server = counting();
    let serving = Serving::start(json!({ "clock": demo("clock") }));
    let events = serving.events();
    // Through another name of the same file, which is not watched.
    let elsewhere = tempfile::tempdir_in(serving.bascule.folder()).unwrap();
    let alias = elsewhere.path().join("alias.json");
    fs::hard_link(serving.file(), &alias).unwrap();
    fs::write(&alias, configuration(&json!({ "clock": demo("clock"), "s": server.entry() }))).unwrap();
    serving.signal("HUP");
    events.event("tools.available");
    serving.bascule.call("s:x", "{}");
}

// req: BR-13
#[test]
fn a_broken_file_changes_nothing_and_says_why() {
    let server = counting();
    let serving = Serving::start(json!({ "s": server.entry() }));
    serving.bascule.call("s:x", "{}");
    let good = fs::read_to_string(serving.file()).unwrap();
    let good_name = serving.bascule.folder().join("good.json");
    let call = || {
        // The file that commands read is broken; the bridge goes by what it knew.
        let ran = serving.bascule.run(&["call", "s:x", "--json"]);
        assert_eq!(ran.code, Some(2), "{ran:?}");
    };
    for (broken, said) in
        [("{ \"mcpServers\": {", "mcp.json:1"), (r#"{"mcpServers": {"s": {"command": 7}}}"#, "command")]
    {
        let before = serving.said().len();
        fs::write(serving.file(), broken).unwrap();
        eventually("it says why", || {
            let news = serving.said()[before..].to_owned();
            news.contains("is not taken over") && news.contains(said)
        });
        call();
    }
    fs::write(&good_name, &good).unwrap();
    fs::rename(good_name, serving.file()).unwrap();
    serving.events().event("tools.available");
    serving.bascule.call("s:x", "{}");
    assert_eq!(server.started().len(), 1, "it ran on all the time");
}

// req: BR-13
#[test]
fn a_server_whose_new_command_does_not_start_goes_on_with_the_old() {
    let server = counting();
    let serving = Serving::start(json!({ "s": server.entry() }));
    serving.bascule.call("s:x", "{}");
    let events = serving.events();
    serving.configure(&json!({ "s": eager(json!({ "command": "./not-there" })) }));
    serving.wait_said("it goes on with the old one");
    assert!(serving.said().contains("./not-there"), "{}", serving.said());
    available(&events, &["s:x"]);
    serving.bascule.call("s:x", "{}");
    assert_eq!(serving.server("s")["health"], "healthy");
    assert_eq!(server.started().len(), 1);
}

// req: BR-13
#[test]
fn a_call_under_way_finishes_though_its_server_went() {
    let (goes, stays) = (Held::new(), Held::new());
    let serving = Serving::start(json!({ "goes": goes.entry(), "stays": stays.entry() }));
    let calls = ["goes:x", "stays:x"].map(|tool| begin(&serving.bascule, &["call", tool, "--json"]));
    let pids = [goes.wait_called(), stays.wait_called()];
    let events = serving.events();
    serving.configure(&json!({ "stays": stays.entry() }));
    available(&events, &["stays:x"]);
    assert_eq!(pids.map(is_running), [true, true]);
    goes.release();
    stays.release();
    for call in calls {
        let ran = finish(call);
        assert_eq!((ran.code, text(&ran.document()["result"]).as_str()), (Some(0), "finished"), "{ran:?}");
    }
    eventually("what went has ended", || !is_running(pids[0]));
    assert!(is_running(pids[1]));
}
