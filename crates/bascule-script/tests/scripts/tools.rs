//! Tests tool calls from scripts.

use serde_json::json;

use crate::support::{run, run_with, structured};

// req: CM-02
#[test]
fn calls_tool_by_every_spelling() {
    for call in [
        "mcp.github.listCommits({})",
        "github.listCommits({})",
        "mcp['github']['list_commits']({})",
        "github.list_commits({})",
        "context.github.listCommits({})",
        "bascule.call('github:list_commits', {})",
        "bascule.call('mcp.github.listCommits', {})",
        "bascule.call('github.listCommits', {})",
        "bascule.call('github__list_commits', {})",
    ] {
        let ran = run(&format!("return await {call}"));
        assert_eq!(ran.value()["tool"], "list_commits", "{call}");
        assert_eq!(ran.calls[0].server, "github");
    }
    let ran = run(
        "const { github } = context; return [await github.getSum(), await myServer.echo({}), await mcp['my-server'].echo({})]",
    );
    assert_eq!(ran.calls.len(), 3);
    assert_eq!(ran.calls[1].server, "my-server");
}

// req: CM-02
#[test]
fn server_with_taken_global_name_is_on_mcp() {
    let ran = run("console.log('still here'); return await mcp.console.write({ a: 1 })");
    assert_eq!(ran.value()["args"], json!({ "a": 1 }));
    assert_eq!(ran.log(), "still here");
}

// req: CM-02
#[test]
fn respells_argument_keys() {
    let ran = run("return await github.listCommits({ perPage: 2, repo: 'x' })");
    assert_eq!(ran.value()["args"], json!({ "per_page": 2, "repo": "x" }));
}

// req: CM-03
#[test]
fn call_ids_are_unique() {
    let ran = run("return await Promise.all([1, 2, 3].map((n) => myServer.echo({ n })))");
    let ids: Vec<_> = ran.calls.iter().map(|call| call.id.as_str()).collect();
    assert_eq!(ids, ["s-1", "s-2", "s-3"]);
    let numbers: Vec<_> = ran.value().as_array().unwrap().iter().map(|v| v["args"]["n"].clone()).collect();
    assert_eq!(numbers, [json!(1), json!(2), json!(3)]);
}

// req: CM-04
#[test]
fn converts_result_to_value() {
    let answered = |content: serde_json::Value| {
        move |_: &_| Some(Ok(json!({ "content": content.clone(), "_meta": { "x": 1.5 } })))
    };
    let text = |text: &str| json!([{ "type": "text", "text": text }]);
    let code = "return await myServer.echo({})";
    assert_eq!(run_with(code, |_| {}, answered(text("[1, 2]"))).value(), json!([1, 2]));
    assert_eq!(run_with(code, |_| {}, answered(text("hello"))).value(), json!("hello"));
    for code in [
        "return await bascule.raw(myServer.echo({}))",
        "return await bascule.raw(myServer.echo, {})",
        "return await bascule.raw('my-server:echo', {})",
    ] {
        assert_eq!(run_with(code, |_| {}, answered(text("hello"))).value()["_meta"]["x"], 1.5, "{code}");
    }
}

// req: CM-05
#[test]
fn failed_call_throws_tool_error() {
    let error = json!({
        "code": "PROVIDER_TIMEOUT", "message": "too slow", "retryable": true, "correlationId": "c", "attempts": 2,
    });
    let code = "try {\n  await github.listCommits({});\n} catch (e) {\n  return { name: e.name, is: e instanceof MCPToolError, \
                err: e instanceof Error, tool: e.toolName, code: e.code, message: e.message, again: e.retryable, \
                attempts: e.data.attempts, cause: e.cause.correlationId, server: e.server, t: e.tool, stack: e.stack };\n}";
    let seen = run_with(code, |_| {}, |_| Some(Err(error.clone()))).value();
    assert_eq!(seen["name"], "MCPToolError");
    assert_eq!((&seen["is"], &seen["err"], &seen["again"]), (&json!(true), &json!(true), &json!(true)));
    assert_eq!(seen["tool"], "github:list_commits");
    assert_eq!(seen["code"], "PROVIDER_TIMEOUT");
    assert_eq!((&seen["attempts"], &seen["cause"]), (&json!(2), &json!("c")));
    assert_eq!((&seen["server"], &seen["t"]), (&json!("github"), &json!("list_commits")));
    assert_eq!(seen["stack"], "MCPToolError: github:list_commits: too slow\n    at script.ts:2:16");
}

// req: CM-05
#[test]
fn reported_failure_throws_its_text() {
    let failed = json!({ "isError": true, "content": [{ "type": "text", "text": "no such repo" }] });
    let ran = run_with("\n  await github.listCommits({})", |_| {}, |_| Some(Ok(failed.clone())));
    let error = ran.error();
    assert_eq!((error.name.as_str(), error.code.as_deref()), ("MCPToolError", Some("TOOL_ERROR")));
    assert_eq!(error.message, "github:list_commits: no such repo");
    assert_eq!(error.tool_name.as_deref(), Some("github:list_commits"));
    assert_eq!(error.line, Some(2));
    let whole =
        run_with("return await bascule.raw(github.listCommits({}))", |_| {}, |_| Some(Ok(failed.clone())));
    assert_eq!(whole.value()["isError"], true);
}

// req: CM-05
#[test]
fn calls_absent_server() {
    let error = json!({ "code": "PROVIDER_INIT_FAILED", "message": "gone" });
    let ran = run_with("await mcp.gone.anything({ a: 1 })", |_| {}, |_| Some(Err(error.clone())));
    assert_eq!(ran.error().code.as_deref(), Some("PROVIDER_INIT_FAILED"));
    assert_eq!((ran.calls[0].server.as_str(), ran.calls[0].tool.as_str()), ("gone", "anything"));
}

#[test]
fn unknown_name_throws_with_suggestions() {
    let ran = run("await github.lstCommits({})");
    let error = ran.error();
    assert_eq!((error.name.as_str(), error.code.as_deref()), ("MCPToolError", Some("TOOL_NOT_FOUND")));
    assert!(error.message.contains("`listCommits`"), "{}", error.message);
    assert!(ran.calls.is_empty());
    assert!(run("await mcp.githb.x()").error().message.contains("`github`"));
    assert_eq!(run("try { await github.nope() } catch (e) { return e.toolName }").value(), "github:nope");
}

// req: CM-09
#[test]
fn colliding_names_need_original_spelling() {
    let error = run("await twins.aB({})").error();
    assert!(error.message.contains("`a_b`, `a-b`"), "{}", error.message);
    let ran = run("return [await twins.a_b({}), await twins['a-b']({})]");
    assert_eq!((ran.calls[0].tool.as_str(), ran.calls[1].tool.as_str()), ("a_b", "a-b"));
}

#[test]
fn proxies_support_inspection() {
    let ran = run("
        const m = await mcp, g = await mcp.github;
        return {
          same: m === mcp && g === mcp.github, text: JSON.stringify(mcp), keys: Object.keys(mcp), tools: Object.keys(github),
          has: ['github' in mcp, 'nope' in mcp, 'listCommits' in github], type: typeof github.listCommits,
          again: github.listCommits === github.listCommits, name: github.listCommits.name, proto: Object.getPrototypeOf(mcp),
          shown: `${typeof mcp} ${mcp.constructor} ${mcp.toString}`, tools2: bascule.tools.length,
        }");
    let seen = ran.value();
    assert_eq!(seen["same"], true);
    assert_eq!(seen["text"], r#"{"github":{},"myServer":{},"console":{},"twins":{},"gone":{}}"#);
    assert_eq!(seen["keys"], json!(["github", "myServer", "console", "twins", "gone"]));
    assert_eq!(seen["tools"], json!(["listCommits", "getSum", "then"]));
    assert_eq!(seen["has"], json!([true, false, true]));
    assert_eq!((&seen["type"], &seen["again"]), (&json!("function"), &json!(true)));
    assert_eq!(seen["tools2"], 7);
    for change in [
        "mcp.x = 1",
        "delete mcp.github",
        "github.listCommits = 1",
        "Object.setPrototypeOf(mcp, {})",
        "bascule.call = 1",
    ] {
        assert_eq!(run(change).error().name, "TypeError", "{change}");
    }
}

#[test]
fn refuses_arguments_too_long_for_frame() {
    let code = "try { await myServer.echo({ a: 'x'.repeat(9e7) }) } catch (e) { return [e.code, (await myServer.echo({})).tool] }";
    assert_eq!(run(code).value(), json!(["INVALID_INPUT", "echo"]));
}

#[test]
fn raw_result_can_be_requested_twice() {
    let ran = run(
        "const p = myServer.echo({}); const [a, b] = await Promise.all([bascule.raw(p), bascule.raw(p)]); return a === b",
    );
    assert_eq!(ran.value(), json!(true));
}

#[test]
fn refuses_arguments_that_are_not_an_object() {
    for arguments in ["'a'", "[1]", "1n", "() => 1", "(() => { const a = {}; a.a = a; return a })()"] {
        let ran = run(&format!("await myServer.echo({arguments})"));
        assert_eq!(ran.error().code.as_deref(), Some("INVALID_INPUT"), "{arguments}");
        assert!(ran.calls.is_empty());
    }
}

// req: CM-02
#[test]
fn context_holds_given_json() {
    let context = r#"{ "user": { "id": 7 }, "github": "mine", "__proto__": { "x": 1 } }"#;
    let context = serde_json::value::RawValue::from_string(context.into()).unwrap();
    let ran = run_with(
        "return [context.user.id, context.github, typeof context.twins, ({}).x, JSON.stringify(context)]",
        |init| init.context = Some(context),
        |_| Some(structured(&json!(1))),
    );
    let text = r#"{"user":{"id":7},"github":"mine","__proto__":{"x":1}}"#;
    assert_eq!(ran.value(), json!([7, "mine", "object", null, text]));
}

// req: CM-05
#[test]
fn failed_call_names_unknown_arguments() {
    let failed = json!({ "isError": true, "content": [{ "type": "text", "text": "bad" }] });
    let ran = run_with("await github.listCommits({ per_pages: 1 })", |_| {}, |_| Some(Ok(failed.clone())));
    let message = "github:list_commits: bad\n  unknown argument `per_pages`: did you mean `per_page`?";
    assert_eq!(ran.error().message, message);
}

// req: CM-05
#[test]
fn tool_that_was_not_granted_is_no_unknown_tool() {
    let not_granted = |init: &mut bascule_script::wire::Init| {
        init.not_granted = vec!["github:delete_repo".into(), "other:x".into()];
    };
    let error = run_with("await github.deleteRepo({})", not_granted, |_| None).error();
    let message = "`github:delete_repo` exists, but was not granted to this script: name it in `tools`";
    assert!(error.message.starts_with(message), "{}", error.message);
    let caught = "try { await github.deleteRepo({}) } catch (e) { return e.message }";
    assert_eq!(run_with(caught, not_granted, |_| None).value(), message);
    let error = run_with("await mcp.other.x({})", not_granted, |_| None).error();
    assert!(error.message.contains("exists, but none of its tools was granted"), "{}", error.message);
    assert!(error.message.contains("name them in `tools`"), "{}", error.message);
}

// req: CM-05
#[test]
fn tool_that_an_intent_left_out_names_the_intent() {
    let limited = |init: &mut bascule_script::wire::Init| {
        init.not_granted = vec!["github:delete_repo".into(), "other:x".into()];
        init.is_limited_by_intent = true;
    };
    for code in [
        "await github.deleteRepo({})",
        "await mcp.other.x({})",
        "await other.x({})",
        "try { await github.deleteRepo({}) } catch (e) { throw e }",
        "const name = 'oth' + 'er'; await mcp[name].x({})",
    ] {
        let error = run_with(code, limited, |_| None).error();
        let reason = "limited to the best `k` tools for its `intent`; leave `intent` out";
        assert!(error.message.contains(reason), "{code}: {}", error.message);
    }
}

// req: CM-15
#[test]
fn kept_results_come_from_the_bridge() {
    let ran = run_with("return await bascule.result('r1')", |_| {}, |_| Some(structured(&json!([1, 2]))));
    assert_eq!(ran.value(), json!([1, 2]));
    assert_eq!((ran.calls[0].server.as_str(), ran.calls[0].tool.as_str()), ("", "result"));
    assert_eq!(ran.calls[0].args.get(), r#"{"id":"r1"}"#);
}

// req: CM-04
#[test]
fn result_that_was_json_text_can_be_parsed_again() {
    let text =
        |text: &'static str| move |_: &_| Some(Ok(json!({ "content": [{ "type": "text", "text": text }] })));
    let parse = "const rows = JSON.parse(await myServer.echo({})); return rows[0].id";
    assert_eq!(run_with(parse, |_| {}, text(r#"[{"id": 7}]"#)).value(), json!(7));
    assert_eq!(run_with(parse, |_| {}, text("[{'id': 8}]")).value(), json!(8), "a Python literal");
    let revived = "return JSON.parse(await myServer.echo({}), (_, v) => (v === 1 ? 2 : v))";
    assert_eq!(run_with(revived, |_| {}, text("[1]")).value(), json!([2]));
    let error = run_with(parse, |_| {}, text("Done: two rows")).error();
    assert_eq!(error.message, "unexpected token: 'Done' (the text is \"Done: two rows\")");
    assert_eq!((error.name.as_str(), error.line), ("SyntaxError", Some(1)));
    let error = run("return JSON.parse(await myServer.echo({}))").error();
    assert_eq!(error.message, "JSON.parse takes text, and was given an object with `args`, `tool`");
}

// req: CM-14
#[test]
fn warns_of_arguments_that_the_tool_does_not_have() {
    let ran = run(
        "const all = { repo: 'x', perPages: 2 }; await github.listCommits(all); return (await github.listCommits(all)).args",
    );
    assert_eq!(ran.value(), json!({ "repo": "x", "perPages": 2 }), "the argument is passed on");
    assert_eq!(
        ran.log(),
        "github:list_commits: unknown argument `perPages`: did you mean `per_page`?",
        "once"
    );
    assert_eq!(run("return (await github.listCommits({ repo: 'x', perpage: 2 })).args").log(), "");
}

// req: CM-05
#[test]
fn every_tool_error_names_server_and_tool() {
    let failed = |_: &_| {
        Some(Ok(
            json!({ "isError": true, "content": [{ "type": "text", "text": "Error executing tool echo of my-server" }] }),
        ))
    };
    let error = run_with("await myServer.echo({})", |_| {}, failed).error();
    assert_eq!(error.message, "my-server:echo: Error executing tool echo of my-server");
}

// req: CM-02
#[test]
fn content_beside_text_is_appended_or_reported() {
    let content = json!([
        { "type": "text", "text": "see image" },
        { "type": "image", "data": "AA==", "mimeType": "image/png" },
        { "type": "resource", "resource": { "uri": "file:///a", "text": "important data" } },
        { "type": "resource", "resource": { "uri": "file:///b", "blob": "AA==" } },
    ]);
    let answer = |_: &_| Some(Ok(json!({ "content": content })));
    let ran = run_with("await myServer.echo({}); return await myServer.echo({})", |_| {}, answer);
    assert_eq!(ran.value(), "see image\nimportant data");
    assert_eq!(
        ran.log(),
        "my-server:echo also returned 1 image and 1 binary resource: `bascule.raw` has them"
    );
    let ran = run_with("return (await bascule.raw(myServer.echo({}))).content.length", |_| {}, answer);
    assert_eq!((ran.value(), ran.log()), (json!(4), String::new()));
    let data = |_: &_| Some(Ok(json!({ "content": [content[1]], "structuredContent": { "n": 1 } })));
    let ran = run_with("return await myServer.echo({})", |_| {}, data);
    assert_eq!(ran.value(), json!({ "n": 1 }));
    assert_eq!(ran.log(), "my-server:echo also returned 1 image: `bascule.raw` has it");
    let only = |_: &_| Some(Ok(json!({ "content": [content[1]] })));
    let ran = run_with("return (await myServer.echo({})).length", |_| {}, only);
    assert_eq!((ran.value(), ran.log()), (json!(1), String::new()));
}

// req: CM-02, CM-15
#[test]
fn text_blocks_that_are_each_data_become_an_array() {
    let texts = |texts: &[&str]| {
        let content: Vec<_> = texts.iter().map(|text| json!({ "type": "text", "text": text })).collect();
        let answer = move |_: &_| Some(Ok(json!({ "content": content })));
        run_with("return await myServer.echo({})", |_| {}, answer).value()
    };
    assert_eq!(texts(&["{\"id\":1}", "{'id': None}"]), json!([{ "id": 1 }, { "id": null }]));
    assert_eq!(texts(&["[1]", "2"]), json!([[1], 2]));
    assert_eq!(texts(&["{\"id\":1}", "done"]), json!("{\"id\":1}\ndone"));
    assert_eq!(texts(&["[1,", "2]"]), json!([1, 2]));
}

// req: CM-02
#[test]
fn integers_that_lose_digits_are_reported() {
    let text = |text: &str| json!({ "content": [{ "type": "text", "text": text }] });
    let log = |result: serde_json::Value| {
        let answer = move |_: &_| Some(Ok(result.clone()));
        let ran = run_with("await myServer.echo({}); await myServer.echo({}); return 1", |_| {}, answer);
        assert_eq!(ran.value(), json!(1));
        ran.log()
    };
    let advice = "the text in `bascule.raw` has all digits";
    assert_eq!(
        log(text(r#"{"id":12345678901234567891}"#)),
        format!(
            "my-server:echo: `result.id` is 12345678901234567891, which a number cannot hold: it became 12345678901234567000; {advice}"
        )
    );
    assert_eq!(
        log(text("{'rows': [{'a b': -9007199254740993}, {'a b': 9007199254740995}]}")),
        format!(
            "my-server:echo: `result.rows[0][\"a b\"]` is -9007199254740993, which a number cannot hold: it became -9007199254740992 (so did 1 more); {advice}"
        )
    );
    let structured = json!({ "content": [], "structuredContent": { "n": [1, 9_007_199_254_740_993u64] } });
    assert_eq!(
        log(structured),
        "my-server:echo: `result.n[1]` is 9007199254740993, which a number cannot hold: it became 9007199254740992; only a tool that returns it as text keeps its digits"
    );
    for exact in [
        "[9007199254740992, 10000000000000000000, 12345678901234567891.5, 1e300]",
        r#"{"12345678901234567891":"9007199254740993 \" 9007199254740993"}"#,
    ] {
        assert_eq!(log(text(exact)), "", "{exact}");
    }
    let raw = "return JSON.parse((await bascule.raw(myServer.echo({}))).content[0].text)[0]";
    let ran = run_with(raw, |_| {}, |_| Some(Ok(text("[9007199254740993]"))));
    assert_eq!(ran.log(), "");
}
