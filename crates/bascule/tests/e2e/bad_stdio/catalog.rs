//! Tool lists and schemas that are not as they should be, and tools that may not be used.

use bascule_testkit::{Behaviour, Script};
use serde_json::{Value, json};

use super::{check, scripted, scripted_with, tool_x};
use crate::support::{Bascule, text};

/// The names of the tools that `bascule tools` lists.
fn listed(bascule: &Bascule) -> Vec<String> {
    let (code, tools) = bascule.run_json(&["tools"]);
    assert_eq!(code, 0, "{tools:#}");
    tools.as_array().unwrap().iter().map(|tool| tool["id"].as_str().unwrap().to_owned()).collect()
}

/// A tool `x` of this input schema, whose calls are echoed.
fn with_schema(schema: Value) -> Script {
    Script::new().tool(json!({ "name": "x", "inputSchema": schema }))
}

// req: BR-04
#[test]
fn a_tool_whose_schema_does_not_compile_stays_usable_with_a_warning() {
    let broken = [
        json!({ "type": "no such type" }),
        json!({ "type": "object", "properties": { "a": { "pattern": "(" } } }),
        json!({ "$ref": "#/$defs/nowhere" }),
        json!({ "$ref": "http://schema.example/never-fetched.json" }),
        json!(7),
    ];
    for schema in broken {
        let (bascule, _server) = scripted(with_schema(schema.clone()));
        let ran = bascule.run(&["call", "s:x", r#"{"a":1}"#]);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "{\"a\":1}\n"), "{schema}: {ran:?}");
        assert!(ran.stderr.contains("warning") && ran.stderr.contains("unvalidated"), "{schema}: {ran:?}");
    }
}

// req: BR-03
#[test]
fn a_tool_without_a_schema_takes_anything() {
    let (bascule, _server) = scripted(Script::new().tool(json!({ "name": "x" })));
    assert_eq!(text(&bascule.call("s:x", r#"{"a":1}"#)), r#"{"a":1}"#);
}

// req: BR-03
#[test]
fn one_bad_entry_does_not_lose_the_others() {
    let script = Script::new().tools(["a"]).tool(json!({ "title": "nameless" })).tool(json!(7)).tools(["b"]);
    let (bascule, _server) = scripted(script);
    assert_eq!(listed(&bascule), ["s:a", "s:b"]);
    let ran = bascule.run(&["tools"]);
    assert!(ran.stderr.contains("warning") && ran.stderr.contains("no tool"), "{ran:?}");
}

// req: BR-03
#[test]
fn of_two_tools_with_one_name_one_is_kept_with_a_warning() {
    let (bascule, _server) = scripted(Script::new().tools(["a", "a", "b"]));
    assert_eq!(listed(&bascule), ["s:a", "s:b"]);
    let ran = bascule.run(&["call", "s:a"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stderr.contains("warning") && ran.stderr.contains("`a`"), "{ran:?}");
}

// req: BR-03
#[test]
fn a_list_of_many_pages_is_read_to_its_end() {
    let names: Vec<String> = (0..120).map(|n| format!("t{n}")).collect();
    let script = Script::new().tools(names.iter().map(String::as_str)).page_size(1);
    let ids: Vec<String> = names.iter().map(|name| format!("s:{name}")).collect();
    assert_eq!(listed(&scripted(script).0), ids);
}

// req: BR-05
#[test]
fn a_list_that_pages_for_ever_is_given_up() {
    let (bascule, _server) = scripted(Script::new().tools(["a", "b"]).page_size(1).with_endless_pages());
    let error = bascule.call_error("s:a", "{}");
    check(&error, "PROVIDER_INIT_FAILED not_sent false", &["does not end", "1000 pages"]);
}

// req: BR-05
#[test]
fn a_cursor_that_comes_twice_ends_the_list_at_once() {
    let page = json!({ "tools": [], "nextCursor": "again" });
    let (bascule, server) = scripted(Script::new().on("tools/list", [Behaviour::result(page)]));
    let error = bascule.call_error("s:x", "{}");
    check(&error, "PROVIDER_INIT_FAILED not_sent false", &["does not end", "`again`"]);
    assert_eq!(server.methods().iter().filter(|method| *method == "tools/list").count(), 2);
}

// req: BR-05
#[test]
fn a_list_that_makes_no_sense_is_a_failed_start() {
    for nonsense in [json!(7), json!({}), json!({ "tools": "none" })] {
        let (bascule, _server) = scripted(Script::new().on("tools/list", [Behaviour::result(nonsense)]));
        let error = bascule.call_error("s:x", "{}");
        check(&error, "PROVIDER_INIT_FAILED not_sent false", &["`tools/list`", "not understood"]);
    }
}

// req: BR-03
#[test]
fn a_server_without_tools_is_no_failure() {
    let refusal = json!({ "code": -32601, "message": "no such method" });
    let (bascule, _server) = scripted(Script::new().on("tools/list", [Behaviour::error(refusal)]));
    assert!(listed(&bascule).is_empty());
    assert_eq!(bascule.call_error("s:x", "{}")["code"], "TOOL_NOT_FOUND");
}

// req: BR-01
// req: BR-04
// req: BR-05
#[test]
fn what_the_filters_keep_back_is_hidden_denied_and_never_sent() {
    let script = Script::new().tools(["read_file", "read_secret", "write_file"]);
    let filters = json!({ "allowedTools": ["read_*"], "deniedTools": ["*secret*"] });
    let (bascule, server) = scripted_with(script, filters);
    assert_eq!(listed(&bascule), ["s:read_file"]);
    for hidden in ["s:read_secret", "s:write_file"] {
        check(&bascule.call_error(hidden, "{}"), "POLICY_DENIED not_sent false", &[hidden]);
        assert_eq!(bascule.run_json(&["describe", hidden]).1["error"]["code"], "POLICY_DENIED");
    }
    assert!(!server.methods().contains(&"tools/call".to_owned()), "{:?}", server.methods());
    bascule.call("s:read_file", "{}");
}

// req: BR-04
#[test]
fn a_tool_that_is_not_there_is_answered_with_the_nearest_names_and_never_sent() {
    let (bascule, server) = scripted(Script::new().tools(["read_file", "write_file"]));
    let error = bascule.call_error("s:read_fiel", "{}");
    check(&error, "TOOL_NOT_FOUND not_sent false", &["s:read_fiel", "s:read_file"]);
    assert_eq!(error["nearest"][0], "s:read_file");
    assert!(!server.methods().contains(&"tools/call".to_owned()), "{:?}", server.methods());
}

// req: BR-04
// req: BR-05
#[test]
fn a_result_that_breaks_its_schema_is_carried_by_the_error() {
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] });
    let tool = json!({ "name": "x", "inputSchema": { "type": "object" }, "outputSchema": schema });
    let result = json!({ "content": [], "structuredContent": { "n": "seven" } });
    let script = Script::new().tool(tool).calls("x", [Behaviour::result(result.clone())]);
    let error = scripted(script).0.call_error("s:x", "{}");
    check(&error, "INVALID_OUTPUT answered false", &["s:x", "schema"]);
    assert_eq!((&error["result"], &error["violations"][0]["pointer"]), (&result, &json!("/n")));
}

// req: BR-04
#[test]
fn what_is_no_tool_result_is_called_so() {
    for nonsense in [json!(7), json!([]), json!(null), json!({ "isError": "yes" })] {
        let error = scripted(tool_x([Behaviour::result(nonsense.clone())])).0.call_error("s:x", "{}");
        check(&error, "INVALID_OUTPUT answered false", &["no tool result"]);
        assert_eq!(error["result"], nonsense);
    }
}

#[test]
fn names_can_neither_paint_the_screen_nor_break_the_table() {
    let forged = "a\u{1b}[2J\nforged:tool\u{202e}";
    let (bascule, _server) = scripted(Script::new().tools([forged, &"x".repeat(70_000), "plain"]));
    for command in ["tools", "check"] {
        let ran = bascule.run(&[command]);
        assert_eq!(ran.code, Some(0), "{command}");
        let tricky = |c: char| c != '\n' && c.is_control() || c == '\u{202e}';
        assert!(!ran.stdout.contains(tricky) && !ran.stdout.contains("\nforged"), "{command}");
        assert!(ran.stdout.len() < 80_000, "{command}: nobody else's line is as long");
    }
    assert_eq!(listed(&bascule).len(), 3);
}

#[test]
fn a_server_cannot_forge_a_line_of_ours() {
    let info = json!({ "name": "good\n✓ bank  9 tools", "version": "1" });
    let fault = json!({ "code": 1, "message": "no\nbascule: all fine" });
    let script = tool_x([Behaviour::error(fault)]).server_info(info);
    let (bascule, _server) = scripted(script);
    assert!(!bascule.run(&["check"]).stdout.contains("\n✓ bank"));
    assert!(!bascule.run(&["call", "s:x"]).stderr.contains("\nbascule: all fine"));
}

// req: BR-12
#[test]
fn entries_that_are_no_tools_are_counted_rather_than_listed() {
    let script = (0..2_000).fold(Script::new().tools(["x"]), |script, _| script.tool(json!({})));
    let (bascule, _server) = scripted(script);
    let ran = bascule.run(&["tools"]);
    assert!(ran.stderr.contains("2000 entries") && ran.stderr.lines().count() < 12, "{}", ran.stderr);
}

// req: BR-12
#[test]
fn a_tool_list_may_not_be_longer_than_a_message() {
    let long =
        |n: usize| json!({ "name": format!("t{n}"), "description": "x".repeat(30_000), "inputSchema": {} });
    let script = (0..10).fold(Script::new().page_size(1), |script, n| script.tool(long(n)));
    let server = bascule_testkit::ScriptedStdio::new(script);
    let config = json!({ "mcpServers": { "s": server.entry() }, "bascule": { "maxMessageBytes": 100_000 } });
    let error = Bascule::with_text(&config.to_string()).call_error("s:t0", "{}");
    check(&error, "PROVIDER_INIT_FAILED not_sent false", &["does not end"]);
}

#[test]
fn a_log_line_with_an_id_is_not_taken_for_the_answer() {
    let log = r#"{"level":30,"id":3,"msg":"handling request"}"#;
    let (bascule, _server) = scripted(tool_x([Behaviour::text("fine").after_line(log)]));
    assert_eq!(text(&bascule.call("s:x", "{}")), "fine");
}
