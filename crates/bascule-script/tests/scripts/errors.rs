//! Tests the results and errors of scripts.

use serde_json::json;

use crate::support::{run, run_with};

// req: CM-06
#[test]
fn supports_top_level_await_and_return() {
    assert_eq!(run("const x: number = await Promise.resolve(20);\nreturn x + 1").value(), json!(21));
    assert_eq!(run("").value(), json!(null));
    assert_eq!(
        run("return { a: [1, 'x', null, undefined], b: undefined }").value(),
        json!({ "a": [1, "x", null, null] })
    );
}

// req: CM-06
#[test]
fn accepts_typescript() {
    let code = "
        enum Colour { Red, Green = 'g' }
        namespace Geometry { export const side = 3; export function area(): number { return side * side } }
        interface Point { x: number; y?: number }
        class Box<T extends object> { constructor(private readonly held: T, public n = 1) {} get(): T { return this.held } }
        abstract class Shape { abstract area(): number; protected declare tag: string }
        function over(a: string): string; function over(a: number): number; function over(a: any) { return a }
        const point = { x: 1 } satisfies Point as Point;
        const list = <T,>(...all: T[]): T[] => all;
        type Keys = keyof Point;
        let maybe: string | undefined;
        const { y = 5 }: Point = point;
        const label: `p-${number}` = 'p-1';
        using_ = point!.x;
        var using_: number;
        return [Colour.Red, Colour.Green, Geometry.area(), new Box({ a: 1 }).get().a, list<number>(1, 2), y, over(3), maybe ?? label, using_]";
    assert_eq!(run(code).value(), json!([0, "g", 9, 1, [1, 2], 5, 3, "p-1", 1]));
}

// req: CM-06
#[test]
fn syntax_error_has_line_and_column() {
    let error = run("interface A { b: string }\n\nconst b = ;").error();
    assert_eq!(error.name, "SyntaxError");
    assert_eq!((error.line, error.column), (Some(3), Some(11)));
    assert!(error.stack.unwrap().contains("script.ts:3:11"));
    let error = run("\nconst r = /(/;").error();
    assert_eq!((error.name.as_str(), error.code.as_deref()), ("SyntaxError", Some("SYNTAX_ERROR")));
    assert_eq!(error.line, Some(2), "{error:?}");
}

// req: CM-05, CM-06
#[test]
fn stack_has_source_positions() {
    let code = "interface A {\n  a: string\n}\n\nfunction inner(a: A): void {\n    throw new RangeError('deep');\n}\n\n  inner({ a: 'x' });";
    let error = run(code).error();
    assert_eq!((error.name.as_str(), error.message.as_str()), ("RangeError", "deep"));
    assert_eq!((error.line, error.column), (Some(6), Some(15)));
    let stack = error.stack.unwrap();
    assert_eq!(stack, "RangeError: deep\n    at inner (script.ts:6:15)\n    at script.ts:9:3");
    let own = run("type T = 1\n\ntry { null.x } catch (e) { return e.stack }").value();
    assert!(own.as_str().unwrap().contains("script.ts:3:"), "{own}");
}

#[test]
fn reports_thrown_values_that_are_no_errors() {
    assert_eq!(run("throw 'words'").error().message, "the script threw \"words\"");
    assert_eq!(run("throw { a: 1 }").error().message, "the script threw { a: 1 }");
    assert_eq!(run("throw null").error().message, "the script threw null");
    assert_eq!(run("await Promise.reject(undefined)").error().message, "the script threw undefined");
    let odd = "throw { get name() { throw 1 }, __proto__: Error.prototype }";
    assert_eq!(run(odd).error().name, "Error");
}

// req: CM-06
#[test]
fn refuses_value_that_is_not_json() {
    for value in [
        "() => 1",
        "Symbol()",
        "(() => { const a = {}; a.a = a; return a })()",
        "{ toJSON() { throw new Error('no') } }",
    ] {
        let error = run(&format!("return {value}")).error();
        assert_eq!(error.name, "TypeError", "{value}");
        assert!(error.message.contains("cannot be converted to JSON"), "{value}: {}", error.message);
    }
}

// req: CM-01
#[test]
fn exceeded_limits_have_named_errors() {
    let ran = run_with("for (;;) {}", |init| init.limits.time_ms = 50, |_| None);
    assert_eq!(
        (ran.error().name.as_str(), ran.error().code.as_deref()),
        ("TimeLimitError", Some("TIME_LIMIT"))
    );
    let forever = "const f = async () => { for (;;) await null }; await f()";
    assert_eq!(run_with(forever, |init| init.limits.time_ms = 50, |_| None).error().name, "TimeLimitError");
    let hungry = "const a = []; for (;;) a.push(new Array(1000).fill(1))";
    let ran = run_with(hungry, |init| init.limits.memory_bytes = 32 << 20, |_| None);
    assert_eq!(ran.error().name, "MemoryLimitError");
    let ran = run_with("return 'x'.repeat(100)", |init| init.limits.output_bytes = 50, |_| None);
    assert_eq!(ran.error().name, "OutputLimitError");
}

#[test]
fn reports_deadlock() {
    assert_eq!(run("await new Promise(() => {})").error().name, "DeadlockError");
    assert_eq!(run("setTimeout(() => {}, 5); await new Promise(() => {})").error().name, "DeadlockError");
}

#[test]
fn missing_features_suggest_alternatives() {
    for (code, part) in [
        ("await fetch('http://x')", "call a tool instead"),
        ("require('fs')", "call tools through mcp"),
        ("import fs from 'fs'; fs.x", "`TextEncoder` and `crypto.subtle.digest` are global"),
        ("await import('fs')", "cannot import modules"),
        ("eval('1')", "cannot create code from text"),
        ("new Function('return 1')()", "cannot create code from text"),
        ("(() => {}).constructor('return 1')()", "cannot create code from text"),
        ("(async () => {}).constructor('return 1')()", "cannot create code from text"),
        ("(function* () {}).constructor('return 1')()", "cannot create code from text"),
        ("(async function* () {}).constructor('return 1')()", "cannot create code from text"),
        ("Reflect.construct(Function, ['return 1'])", "cannot create code from text"),
        ("setTimeout('1', 1)", "takes a function"),
    ] {
        let message = run(code).error().message;
        assert!(message.contains(part), "{code}: {message}");
    }
    assert_eq!(
        run(
            "return [(() => 1) instanceof Function, typeof eval, Function.prototype === (() => 1).__proto__]"
        )
        .value(),
        json!([true, "function", true])
    );
}

#[test]
fn clips_thrown_values() {
    let error = run("throw new Error('x'.repeat(1e7))").error();
    assert!(error.message.len() < 100_000 && error.stack.unwrap().len() < 100_000);
    assert!(run("throw 'x'.repeat(9e7)").error().message.len() < 100_000);
    assert_eq!(run("Object.prototype.toJSON = () => 1; throw 'x'").error().message, "the script threw \"x\"");
}

// req: CM-01
#[test]
fn reports_memory_limit_while_serializing_value() {
    let ran = run_with("return 'x'.repeat(4e7)", |init| init.limits.memory_bytes = 64 << 20, |_| None);
    assert_eq!(ran.error().name, "MemoryLimitError");
    let ran = run("const r = JSON.parse('{\"e\":null}'); throw r.e");
    assert_eq!(ran.error().message, "the script threw null");
}

// req: CM-13
#[test]
fn error_tells_its_causes() {
    let error = run("throw new Error('x', { cause: new TypeError('inner', { cause: 'words' }) })").error();
    assert_eq!(error.message, "x; caused by TypeError: inner; caused by words");
    let stack = error.stack.unwrap();
    assert!(stack.starts_with("Error: x; caused by TypeError: inner; caused by words\n    at "), "{stack}");
    let error = run("await Promise.any([Promise.reject(new RangeError('q')), Promise.reject(5)])").error();
    assert!(error.message.ends_with("; [1] RangeError: q; [2] 5"), "{}", error.message);
}

// req: CM-05
#[test]
fn engine_errors_name_the_expression_and_its_value() {
    let answered =
        |text: &'static str| move |_: &_| Some(Ok(json!({ "content": [{ "type": "text", "text": text }] })));
    let check = |code: &str, text: &'static str, expected: &str| {
        let error = run_with(code, |_| {}, answered(text)).error();
        assert_eq!(error.message, expected, "{code}");
        assert!(error.stack.unwrap().starts_with(&format!("TypeError: {expected}\n    at ")), "{code}");
    };
    let rows = "const rows = await myServer.echo({});\nreturn rows.map((r) => r)";
    check(
        rows,
        "some rows",
        "`rows.map` is not a function (`rows` is a string: \"some rows\", the result of my-server:echo)",
    );
    check(
        rows,
        r#"{"items":[],"next":1}"#,
        "`rows.map` is not a function (`rows` is an object with `items`, `next`, the result of my-server:echo)",
    );
    let read = "const r = await myServer.echo({});\nreturn r.rows.length";
    check(
        read,
        r#"{"items":[]}"#,
        "cannot read `length` of undefined: `r.rows` is undefined (`r` is an object with `items`, the result of my-server:echo)",
    );
    let each = "const r = await myServer.echo({});\nfor (const x of r) console.log(x)";
    check(
        each,
        r#"{"items":[]}"#,
        "`r` is not iterable (`r` is an object with `items`, the result of my-server:echo)",
    );
    check("const f = 1;\nf()", "", "`f` is not a function");
    check(
        "const r = await myServer.echo({});\nconst rows = Array.isArray(r) ? r : r.rows ?? r;\nreturn rows.map((x) => x)",
        "two\nlines",
        "`rows.map` is not a function (the result of my-server:echo is a string: \"two\\nlines\")",
    );
    check(
        "const [a, b] = await Promise.all([myServer.echo({}), github.listCommits({})]);\nreturn b.map((x) => x)",
        "words",
        "`b.map` is not a function (`b` is a string: \"words\", the result of github:list_commits)",
    );
    check(
        "const load = async () => await myServer.echo({});\nconst rows = await load();\nreturn rows.map((x) => x)",
        "words",
        "`rows.map` is not a function (the last result of my-server:echo is a string: \"words\")",
    );
    check(
        "let rows;\nrows = myServer.echo({});\nreturn rows.map((x) => x)",
        "words",
        "`rows.map` is not a function (the call of my-server:echo had not ended: is an `await` missing?)",
    );
    check(
        "return (await myServer.echo({})).rows.length",
        r#"{"items":[]}"#,
        "cannot read `length` of undefined: `(await myServer.echo({})).rows` is undefined (the result of my-server:echo is an object with `items`)",
    );
    check(
        "const list: any = [[1], null];\nfor (const [n] of list as any) console.log(n)",
        "",
        "`list`, or an element of it, is not iterable",
    );
    check(
        "const o = { a: [{}] };\no.a.forEach((x) => x.tags.join())",
        "",
        "cannot read `join` of undefined: `x.tags` is undefined",
    );
    let ran = run("const total = 0;\nfor (const n of [1]) {\n  if (n) total += n;\n}");
    assert_eq!(
        (ran.error().message.as_str(), ran.error().line),
        ("`total` is a constant: declare it with `let` to change it", Some(3))
    );
}

// req: CM-01
#[test]
fn exceeded_limit_tells_figures_line_and_calls() {
    let ran = run_with("let a = 1;\nfor (;;) a += Math.random();", |init| init.limits.time_ms = 60, |_| None);
    let message = "the script exceeded its time limit of 60 ms; it has a loop in line 2";
    assert_eq!((ran.error().message.as_str(), ran.error().line), (message, Some(2)));
    let code = "const a = 1;\nawait Promise.all([myServer.echo({}),\n  github.listCommits({})])";
    let error = run_with(code, |init| init.limits.time_ms = 60, |_| None).error();
    assert_eq!(
        error.message,
        "the script exceeded its time limit of 60 ms; 2 calls were under way: `my-server:echo` (line 2), `github:list_commits` (line 3)"
    );
    assert_eq!(error.line, Some(2));
    let hungry = "const a = [];\nfor (;;) a.push(new Array(1000).fill(1))";
    let error = run_with(hungry, |init| init.limits.memory_bytes = 32 << 20, |_| None).error();
    assert!(error.message.starts_with("the script exceeded its memory limit of 32 MB"), "{}", error.message);
    assert_eq!(error.line, Some(2));
}

// req: CM-05
#[test]
fn errors_of_patterns_have_line_and_value() {
    let check = |code: &str, line: u32, expected: &str| {
        let error = run(code).error();
        assert_eq!((error.message.as_str(), error.line), (expected, Some(line)), "{code}");
        let stack = error.stack.unwrap();
        assert!(stack.contains(&format!("script.ts:{line}:")), "{code}: {stack}");
    };
    check(
        "const rows = null;\nconst y = 1;\nconst [first] = rows;",
        3,
        "cannot destructure `[first]`: `rows` is null",
    );
    check(
        "function f({ a }) {\n  return a;\n}\nconst z = 3;\nf(undefined)",
        1,
        "cannot destructure `{ a }`: the argument is undefined or null",
    );
    check(
        "const pairs = [[1, 2], null];\nconst n = Math.max(1, 2);\npairs.map(([a, b]) => a + b)",
        3,
        "cannot destructure `[a, b]`: the argument is null",
    );
    check(
        "const n = Math.max(1, 2);\nfor (const [a, b] of [5]) console.log(a, b)",
        2,
        "cannot destructure `[a, b]`: an element of `[5]` is not iterable",
    );
    check(
        "const r = await myServer.echo({});\nconst { hours: { minutes } } = r;",
        2,
        "cannot destructure `{ hours: { minutes } }`: `r`, or a part of it, is undefined or null (`r` is an object with `args`, `tool`, the result of my-server:echo)",
    );
    check(
        "const r = await myServer.echo({});\nconst x = r.foo;\nx.split('T')",
        3,
        "cannot read `split` of undefined: `x` is undefined (the result of my-server:echo is an object with `args`, `tool`)",
    );
    check(
        "const r = await myServer.echo({});\nr.tool.toISOString()",
        2,
        "`r.tool.toISOString` is not a function (`r.tool` is a string: \"echo\", of the result of my-server:echo)",
    );
}

// req: CM-13
#[test]
fn console_shows_causes_and_collected_errors() {
    let log =
        run("console.log(new AggregateError([new RangeError('q')], 'all', { cause: new Error('why') }))")
            .log();
    assert!(log.contains("[cause]: Error: why") && log.contains("[errors]: [ RangeError: q"), "{log}");
    let log =
        run("console.log('%s has %d%% of %j', 'it', 5, { a: 1 }, 'rest'); console.log('100%', 1)").log();
    assert_eq!(log, "it has 5% of {\"a\":1} rest\n100% 1");
}

// req: CM-05
#[test]
fn failed_call_as_cause_is_told_once() {
    let code = "try { await myServer.echo({}) } catch (cause) { throw new Error('x', { cause }) }";
    let failed = |_: &_| Some(Ok(json!({ "isError": true, "content": [{ "type": "text", "text": "no" }] })));
    assert_eq!(
        run_with(code, |_| {}, failed).error().message,
        "x; caused by MCPToolError: my-server:echo: no"
    );
}

/// The engine throws `null` if it has no memory left for an error.
// req: CM-05
#[test]
fn exceeded_memory_is_named_however_little_is_left() {
    for (size, other) in
        [(10, 0), (10, 2_000), (50, 100), (100, 500), (700, 100), (1_000, 100), (3_000, 2_000)]
    {
        let code = format!(
            "const other = new Array({other}).fill(1); const a = [];\nfor (;;) a.push(new Array({size}).fill(1))"
        );
        let error = run_with(&code, |init| init.limits.memory_bytes = 32 << 20, |_| None).error();
        assert_eq!((error.name.as_str(), error.line), ("MemoryLimitError", Some(2)), "{size} {other}");
    }
    assert_eq!(run("throw null").error().message, "the script threw null");
}

// req: CM-05
#[test]
fn names_results_that_are_read_as_the_whole_mcp_result() {
    let message = |code: &str, answer: serde_json::Value| {
        crate::support::run_with(code, |_| {}, move |_| Some(Ok(answer.clone()))).error().message
    };
    let structured =
        json!({ "content": [{ "type": "text", "text": "{}" }], "structuredContent": { "content": "{}" } });
    let parsed = message(
        "const r = await mcp.github.listCommits({});\nreturn JSON.parse(r.content[0].text)",
        structured.clone(),
    );
    assert_eq!(
        parsed,
        "JSON.parse takes text, and `r.content[0].text` is undefined; `r` is the value itself (an object with \
         `content`): `bascule.raw` gives the MCP result with `content`"
    );
    let text = json!({ "content": [{ "type": "text", "text": "words" }] });
    let read = message("const r = await mcp.github.listCommits({});\nreturn r.content[0].text", text.clone());
    assert!(read.starts_with("cannot read `0` of undefined: `r.content` is undefined"), "{read}");
    assert!(
        read.ends_with(
            "`r` is the value itself (a string: \"words\"): `bascule.raw` gives the MCP result with `content`"
        ),
        "{read}"
    );
    let map =
        message("const r = await mcp.github.listCommits({});\nreturn r.content.map((x) => x)", structured);
    assert!(map.contains("`bascule.raw`"), "{map}");
    let raw =
        message("const r = await bascule.raw(mcp.github.listCommits({}));\nreturn r.content[1].text", text);
    assert!(!raw.contains("`bascule.raw`"), "{raw}");
    assert!(run("JSON.parse(undefined)").error().message.contains("was given undefined"));
}

// req: CM-05
#[test]
fn names_the_value_without_a_method_also_before_a_function_argument() {
    let check = |code: &str, expected: &str| {
        let content = json!([{ "type": "text", "text": r#"{"content":"words"}"# }]);
        let ran = run_with(code, |_| {}, |_| Some(Ok(json!({ "content": content }))));
        assert_eq!(ran.error().message, expected, "{code}");
    };
    let raw = "`raw.map` is not a function (`raw` is an object with `content`, the result of my-server:echo)";
    for callback in ["async (x: any) => x", "async x => x", "function (x) { return x }", "[Math.max(1)]"] {
        check(&format!("const raw: any = await myServer.echo({{}}); return raw.map({callback})"), raw);
        check(&format!("const o: any = {{ a: 1 }}; return o.map({callback})"), "`o.map` is not a function");
    }
    check(
        "const raw: any = await myServer.echo({});\nreturn await Promise.all(\n  raw.map(async (x) => {\n    return await x;\n  }))",
        raw,
    );
    check(
        "const raw: any = await myServer.echo({});\nconst rows = typeof raw === 'string' ? JSON.parse(raw) : raw;\nreturn rows.map(async (x) => x)",
        "`rows.map` is not a function (`rows` is an object with `content`, the result of my-server:echo)",
    );
    check(
        "const raw: any = await myServer.echo({});\nreturn JSON.parse(raw).map(async (x) => x)",
        "`JSON.parse(raw).map` is not a function (`JSON.parse(raw)` is an object with `content`, the result of my-server:echo)",
    );
    check("const f = 1; return f(async () => 1)", "`f` is not a function");
}

// req: CM-05
#[test]
fn absent_function_of_the_language_is_named_itself() {
    for (code, expected) in [
        ("const rows = [1];\nreturn rows.map((r) => JSON.stringfy(r))", "`JSON.stringfy` is not a function"),
        ("const out = [], xs = [1]; out.push(Math.sum(xs))", "`Math.sum` is not a function"),
        ("const out = []; out.push(Object.item({}))", "`Object.item` is not a function"),
        ("const o = {}; [1].forEach((x) => { o.add(Math.max(x)) })", "`o.add` is not a function"),
        ("const f = {}; return [1].map((x) => f[0](Math.max(x)))", "`f[0]` is not a function"),
        ("const add = 1; return [1].map((x) => { add(Math.max(x)) })", "`add` is not a function"),
    ] {
        let error = run(code).error();
        assert_eq!(error.message, expected, "{code}");
    }
    // The engine's own functions call the argument.
    for code in ["new Promise(5)", "return Array.from([1], 5)", "return [1].map((x) => Array.from([x], 5))"] {
        assert_eq!(run(code).error().message, "not a function", "{code}");
    }
}

// req: CM-05
#[test]
fn error_has_the_name_that_the_script_gave_it() {
    for code in [
        "const e = new Error('x');\ne.name = 'ValidationError';\nthrow e",
        "class ValidationError extends Error {\n  constructor(message) { super(message); this.name = 'ValidationError' }\n}\nthrow new ValidationError('x')",
        "class ValidationError extends Error {}\nthrow new ValidationError('x')",
        "class ValidationError extends Error { name = 'ValidationError' }\nconst e = new ValidationError('old'); e.message = 'x'; throw e",
    ] {
        let error = run(code).error();
        assert_eq!((error.name.as_str(), error.message.as_str()), ("ValidationError", "x"), "{code}");
        let stack = error.stack.unwrap();
        assert!(stack.starts_with("ValidationError: x\n    at "), "{code}: {stack}");
    }
}

// req: CM-13
#[test]
fn raw_result_of_an_awaited_call_is_advised_against() {
    let text = json!({ "content": [{ "type": "text", "text": "note: words" }] });
    for (answer, code) in [
        (text, "return await bascule.raw(await myServer.echo({}))"),
        (
            json!({ "content": [], "structuredContent": { "a": 1 } }),
            "const r = await myServer.echo({}); bascule.raw(r)",
        ),
    ] {
        let error = run_with(code, |_| {}, |_| Some(Ok(answer.clone()))).error();
        assert!(error.message.contains("pass the call itself, without `await`"), "{}", error.message);
    }
    let settled = run("const call = myServer.echo({}); await call; await bascule.raw(call)").error().message;
    assert!(settled.contains("a call in flight"), "{settled}");
    for arguments in ["", ", {}"] {
        let unknown =
            run(&format!("const id = 'nosuch:' + 'tool'; await bascule.raw(id{arguments})")).error();
        assert_eq!(unknown.code.as_deref(), Some("TOOL_NOT_FOUND"), "{unknown:?}");
        assert!(unknown.message.contains("no server is named `nosuch`"), "{unknown:?}");
        let code = format!("const id = 'other:' + 'x'; await bascule.raw(id{arguments})");
        let withheld = run_with(&code, |init| init.not_granted = vec!["other:x".into()], |_| None).error();
        assert!(withheld.message.contains("grant"), "{withheld:?}");
    }
}

// req: CM-05
#[test]
fn endless_recursion_has_a_line() {
    for code in [
        "function f(n) {\n  return f(n + 1) + 1;\n}\nf(1)",
        "const f = (n) => {\n  return f(n + 1) + 1;\n};\nf(1)",
    ] {
        let error = run(code).error();
        let message = "Maximum call stack size exceeded: `f` calls itself in line 2";
        assert_eq!((error.message.as_str(), error.line), (message, Some(2)), "{code}");
    }
    let twice = "const f = (n) =>\n  f(n - 1) + f(n - 2);\nf(1)";
    assert!(run(twice).error().message.ends_with("`f` calls itself in line 2"));
    // Nothing tells which one it was.
    let two =
        "const down = (n) => n > 0 ? down(n - 1) : 0;\nconst up = (n) => up(n + 1) + 1;\ndown(3); up(1)";
    assert_eq!(run(two).error().message, "Maximum call stack size exceeded");
}
