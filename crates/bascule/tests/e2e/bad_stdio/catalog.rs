//! Faulty tool lists and schemas, and tool filters.

use bascule_testkit::{Behaviour, Script};
use serde_json::{Value, json};

use super::{check, scripted, scripted_with, tool_x};
use crate::support::{Bascule, text};

/// Ids of the tools that `bascule tools` lists.
fn tool_ids(bascule: &Bascule) -> Vec<String> {
    let (code, tools) = bascule.run_json(&["tools"]);
    assert_eq!(code, 0, "{tools:#}");
    tools.as_array().unwrap().iter().map(|tool| tool["id"].as_str().unwrap().to_owned()).collect()
}

/// A server with one tool, `x`, that has this input schema and echoes its arguments.
fn with_schema(schema: Value) -> Script {
    Script::new().tool(json!({ "name": "x", "inputSchema": schema }))
}

// req: BR-04
#[test]
fn uses_tool_with_invalid_schema_with_warning() {
    let broken = [
        json!({ "type": "no such type" }),
        json!({ "type": "object", "properties": { "a": { "pattern": "(" } } }),
        json!({ "$ref": "#/$defs/nowhere" }),
        json!({ "$ref": "http://schema.example/never-fetched.json" }),
        json!(7),
    ];
    for schema in broken {
        let (bascule, _server) = scripted(with_schema(schema.clone()));
        let output = bascule.run(&["call", "s:x", r#"{"a":1}"#]);
        assert_eq!((output.code, output.stdout.as_str()), (Some(0), "{\"a\":1}\n"), "{schema}: {output:?}");
        assert!(
            output.stderr.contains("warning") && output.stderr.contains("unvalidated"),
            "{schema}: {output:?}"
        );
    }
}

// req: BR-03
#[test]
fn tool_without_schema_accepts_any_arguments() {
    let (bascule, _server) = scripted(Script::new().tool(json!({ "name": "x" })));
    assert_eq!(text(&bascule.call("s:x", r#"{"a":1}"#)), r#"{"a":1}"#);
}

// req: BR-03
#[test]
fn skips_invalid_entries_of_tool_list() {
    let script = Script::new().tools(["a"]).tool(json!({ "title": "nameless" })).tool(json!(7)).tools(["b"]);
    let (bascule, _server) = scripted(script);
    assert_eq!(tool_ids(&bascule), ["s:a", "s:b"]);
    let output = bascule.run(&["tools"]);
    assert!(output.stderr.contains("warning") && output.stderr.contains("invalid entry"), "{output:?}");
}

// req: BR-03
#[test]
fn keeps_first_of_duplicate_tools_with_warning() {
    let (bascule, _server) = scripted(Script::new().tools(["a", "a", "b"]));
    assert_eq!(tool_ids(&bascule), ["s:a", "s:b"]);
    let output = bascule.run(&["call", "s:a"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(output.stderr.contains("warning") && output.stderr.contains("`a`"), "{output:?}");
}

// req: BR-03
#[test]
fn reads_all_pages_of_tool_list() {
    let names: Vec<String> = (0..120).map(|n| format!("t{n}")).collect();
    let script = Script::new().tools(names.iter().map(String::as_str)).page_size(1);
    let ids: Vec<String> = names.iter().map(|name| format!("s:{name}")).collect();
    assert_eq!(tool_ids(&scripted(script).0), ids);
}

// req: BR-05
#[test]
fn gives_up_endless_tool_list() {
    let (bascule, _server) = scripted(Script::new().tools(["a", "b"]).page_size(1).with_endless_pages());
    let error = bascule.call_error("s:a", "{}");
    check(&error, "PROVIDER_INIT_FAILED not_sent false", &["does not end", "1000 pages"]);
}

// req: BR-05
#[test]
fn gives_up_tool_list_with_repeated_cursor() {
    let page = json!({ "tools": [], "nextCursor": "again" });
    let (bascule, server) = scripted(Script::new().on("tools/list", [Behaviour::result(page)]));
    let error = bascule.call_error("s:x", "{}");
    check(&error, "PROVIDER_INIT_FAILED not_sent false", &["does not end", "`again`"]);
    assert_eq!(server.methods().iter().filter(|method| *method == "tools/list").count(), 2);
}

// req: BR-05
#[test]
fn invalid_tool_list_is_a_failed_start() {
    for invalid in [json!(7), json!({}), json!({ "tools": "none" })] {
        let (bascule, _server) = scripted(Script::new().on("tools/list", [Behaviour::result(invalid)]));
        let error = bascule.call_error("s:x", "{}");
        check(&error, "PROVIDER_INIT_FAILED not_sent false", &["`tools/list`", "is invalid"]);
    }
}

// req: BR-03
#[test]
fn accepts_server_without_tools() {
    let refusal = json!({ "code": -32601, "message": "no such method" });
    let (bascule, _server) = scripted(Script::new().on("tools/list", [Behaviour::error(refusal)]));
    assert!(tool_ids(&bascule).is_empty());
    assert_eq!(bascule.call_error("s:x", "{}")["code"], "TOOL_NOT_FOUND");
}

// req: BR-01
// req: BR-04
// req: BR-05
#[test]
fn filtered_tools_are_hidden_denied_and_not_sent() {
    let script = Script::new().tools(["read_file", "read_secret", "write_file"]);
    let filters = json!({ "allowedTools": ["read_*"], "deniedTools": ["*secret*"] });
    let (bascule, server) = scripted_with(script, filters);
    assert_eq!(tool_ids(&bascule), ["s:read_file"]);
    for hidden in ["s:read_secret", "s:write_file"] {
        check(&bascule.call_error(hidden, "{}"), "POLICY_DENIED not_sent false", &[hidden]);
        assert_eq!(bascule.run_json(&["describe", hidden]).1["error"]["code"], "POLICY_DENIED");
    }
    assert!(!server.methods().contains(&"tools/call".to_owned()), "{:?}", server.methods());
    bascule.call("s:read_file", "{}");
}

// req: BR-04
#[test]
fn unknown_tool_names_nearest_and_is_not_sent() {
    let (bascule, server) = scripted(Script::new().tools(["read_file", "write_file"]));
    let error = bascule.call_error("s:read_fiel", "{}");
    check(&error, "TOOL_NOT_FOUND not_sent false", &["s:read_fiel", "s:read_file"]);
    assert_eq!(error["nearest"][0], "s:read_file");
    assert!(!server.methods().contains(&"tools/call".to_owned()), "{:?}", server.methods());
}

// req: BR-04
// req: BR-05
#[test]
fn invalid_output_error_contains_the_result() {
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
fn reports_malformed_tool_result() {
    for invalid in [json!(7), json!([]), json!(null), json!({ "isError": "yes" })] {
        let error = scripted(tool_x([Behaviour::result(invalid.clone())])).0.call_error("s:x", "{}");
        check(&error, "INVALID_OUTPUT answered false", &["not a tool result"]);
        assert_eq!(error["result"], invalid);
    }
}

#[test]
fn escapes_control_characters_in_tool_names() {
    let forged = "a\u{1b}[2J\nforged:tool\u{202e}";
    let (bascule, _server) = scripted(Script::new().tools([forged, &"x".repeat(70_000), "plain"]));
    for command in ["tools", "check"] {
        let output = bascule.run(&[command]);
        assert_eq!(output.code, Some(0), "{command}");
        let is_control = |c: char| c != '\n' && c.is_control() || c == '\u{202e}';
        assert!(!output.stdout.contains(is_control) && !output.stdout.contains("\nforged"), "{command}");
        assert!(output.stdout.len() < 80_000, "{command}: the long name is not padded into other lines");
    }
    assert_eq!(tool_ids(&bascule).len(), 3);
}

#[test]
fn server_text_cannot_forge_output_lines() {
    let info = json!({ "name": "good\n✓ bank  9 tools", "version": "1" });
    let fault = json!({ "code": 1, "message": "no\nbascule: all fine" });
    let script = tool_x([Behaviour::error(fault)]).server_info(info);
    let (bascule, _server) = scripted(script);
    assert!(!bascule.run(&["check"]).stdout.contains("\n✓ bank"));
    assert!(!bascule.run(&["call", "s:x"]).stderr.contains("\nbascule: all fine"));
}

// req: BR-12
#[test]
fn counts_invalid_entries_in_one_warning() {
    let script = (0..2_000).fold(Script::new().tools(["x"]), |script, _| script.tool(json!({})));
    let (bascule, _server) = scripted(script);
    let output = bascule.run(&["tools"]);
    assert!(
        output.stderr.contains("2000 invalid entries") && output.stderr.lines().count() < 12,
        "{}",
        output.stderr
    );
}

// req: BR-12
#[test]
fn limits_tool_list_to_message_size() {
    let long =
        |n: usize| json!({ "name": format!("t{n}"), "description": "x".repeat(30_000), "inputSchema": {} });
    let script = (0..10).fold(Script::new().page_size(1), |script, n| script.tool(long(n)));
    let server = bascule_testkit::ScriptedStdio::new(script);
    let config = json!({ "mcpServers": { "s": server.entry() }, "bascule": { "maxMessageBytes": 100_000 } });
    let error = Bascule::with_text(&config.to_string()).call_error("s:t0", "{}");
    check(&error, "PROVIDER_INIT_FAILED not_sent false", &["does not end"]);
}

#[test]
fn ignores_log_line_with_matching_id() {
    let log = r#"{"level":30,"id":3,"msg":"handling request"}"#;
    let (bascule, _server) = scripted(tool_x([Behaviour::text("fine").after_line(log)]));
    assert_eq!(text(&bascule.call("s:x", "{}")), "fine");
}
