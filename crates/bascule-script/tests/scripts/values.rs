//! Tests the conversion of values to JSON.

use serde_json::{Value, json};

use crate::support::{ScriptRun, run, run_with};

fn check(code: &str, expected: &Value) {
    let ran = run(&format!("return {code}"));
    assert_eq!((&ran.value(), ran.log().as_str()), (expected, ""), "{code}");
}

/// Checks a value that loses something, and the warning about it.
fn check_loss(code: &str, expected: &Value, warning: &str) {
    let ran: ScriptRun = run(&format!("return {code}"));
    assert_eq!((&ran.value(), ran.log().as_str()), (expected, warning), "{code}");
    assert!(ran.logs.iter().all(|line| line.level == "warn"));
}

// req: CM-13
#[test]
fn converts_values_that_json_has_not() {
    check("new Map([['a', { b: new Map([[1, 2]]) }]])", &json!({ "a": { "b": { "1": 2 } } }));
    check("new Map([[{ k: 1 }, 2]])", &json!([[{ "k": 1 }, 2]]));
    check("new Map([[1, 'a'], ['1', 'b']])", &json!([[1, "a"], ["1", "b"]]));
    check("{ set: new Set([1, new Set(['x'])]) }", &json!({ "set": [1, ["x"]] }));
    check(
        "[new Date(0), /x/g, 5n, 2n ** 64n, Object(7), Object('s'), Object(false)]",
        &json!(["1970-01-01T00:00:00.000Z", "/x/g", 5, "18446744073709551616", 7, "s", false]),
    );
    check(
        "[new Uint8Array([1, 2]), new Float64Array([1.5]), new BigInt64Array([3n]), new Uint8Array([7, 8, 9]).buffer, new DataView(new ArrayBuffer(1))]",
        &json!([[1, 2], [1.5], [3], [7, 8, 9], [0]]),
    );
    check("new Map([['a', 1]]).values()", &json!([1]));
    check("(function* () { yield 1; yield [2n] })()", &json!([1, [2]]));
    check(
        "{ u: new URL('http://a/'), own: { toJSON: () => new Map([['x', 1]]) } }",
        &json!({ "u": "http://a/", "own": { "x": 1 } }),
    );
    check("JSON.parse('{\"__proto__\": {\"x\": 1}, \"n\": 1}')", &json!({ "__proto__": { "x": 1 }, "n": 1 }));
    check("{ a: undefined, b: null }", &json!({ "b": null }));
}

// req: CM-13
#[test]
fn converts_errors() {
    let code = "Object.assign(new TypeError('t', { cause: new Error('inner') }), { code: 'MINE' })";
    let inner = json!({ "name": "Error", "message": "inner" });
    check(code, &json!({ "name": "TypeError", "message": "t", "code": "MINE", "cause": inner }));
    check(
        "new AggregateError([new Error('inner')], 'all')",
        &json!({ "name": "AggregateError", "message": "all", "errors": [inner] }),
    );
    let code = "return await Promise.allSettled([myServer.echo({})])";
    let failed = |_: &_| Some(Err(json!({ "code": "PROVIDER_TIMEOUT", "message": "too slow" })));
    let settled = run_with(code, |_| {}, failed).value();
    assert_eq!(settled[0]["reason"]["code"], "PROVIDER_TIMEOUT", "{settled}");
    assert_eq!(settled[0]["reason"]["name"], "MCPToolError", "{settled}");
}

// req: CM-13
#[test]
fn awaits_nested_promises() {
    check("{ a: Promise.resolve([Promise.resolve(new Set([1]))]), b: 1 }", &json!({ "a": [[1]], "b": 1 }));
    let ran = run("return { list: [1, 2].map(async (n) => (await myServer.echo({ n })).args.n) }");
    assert_eq!((ran.value(), ran.log()), (json!({ "list": [1, 2] }), String::new()));
    let error = run("return { a: (async () => { throw new RangeError('r') })() }").error();
    assert_eq!((error.name.as_str(), error.message.as_str()), ("RangeError", "r"));
    check_loss(
        "[new Promise(() => {})]",
        &json!([null]),
        "`result[0]` is a promise that never settles: it became null",
    );
}

// req: CM-13
#[test]
fn reports_values_that_are_lost() {
    check_loss(
        "{ rows: [{ n: NaN }, { n: 0 / 0 }, { n: 1 }] }",
        &json!({ "rows": [{ "n": null }, { "n": null }, { "n": 1 }] }),
        "`result.rows[0].n` is NaN, which JSON has not: it became null (so did 1 more beside it)",
    );
    check_loss(
        "{ 'a b': Infinity }",
        &json!({ "a b": null }),
        "`result[\"a b\"]` is Infinity, which JSON has not: it became null",
    );
    check_loss("{ f: () => 1, n: 1 }", &json!({ "n": 1 }), "`result.f` is a function and was left out");
    check_loss(
        "[1, 2].map((n) => { n })",
        &json!([null, null]),
        "`result[0]` is undefined and became null (so did 1 more beside it)",
    );
    check_loss("new Date(NaN)", &json!(null), "`result` is an invalid date: it became null");
    check_loss(
        "{ w: new WeakMap() }",
        &json!({ "w": {} }),
        "`result.w` is WeakMap, whose content JSON cannot hold: it became {}",
    );
    let error = run("const a = { b: {} }; a.b.c = a; return a").error();
    assert!(
        error.message.contains("`result.b.c`") && error.message.contains("circular"),
        "{}",
        error.message
    );
    let error = run("function main() {} return main").error();
    assert!(error.message.contains("it is a function (`main`); call it"), "{}", error.message);
}

// req: CM-13
#[test]
fn converts_arguments() {
    let ran = run("return (await myServer.echo({ m: new Map([['k', 1]]), d: new Date(0), b: 3n })).args");
    assert_eq!(ran.value(), json!({ "m": { "k": 1 }, "d": "1970-01-01T00:00:00.000Z", "b": 3 }));
    let ran = run("return (await myServer.echo({ at: { n: NaN } })).args");
    assert_eq!(ran.value(), json!({ "at": { "n": null } }));
    assert_eq!(
        ran.log(),
        "`at.n` is NaN, which JSON has not: it became null (in the arguments of `my-server:echo`)"
    );
    let error = run("await myServer.echo({ path: (async () => 'x')() })").error();
    assert_eq!(error.code.as_deref(), Some("INVALID_INPUT"));
    assert!(error.message.contains("`path` is a promise; write `await`"), "{}", error.message);
}

// req: CM-13
#[test]
fn value_of_many_objects_is_converted_in_time() {
    let ran = run("return Array.from({ length: 50_000 }, (_, n) => ({ n, t: [n] })).length");
    assert_eq!(ran.value(), json!(50_000));
}

// req: CM-15
#[test]
fn python_literal_reaches_the_script_as_data() {
    let text = "[{'id': 1, 'email': None}]";
    let answer = |_: &_| Some(Ok(json!({ "content": [{ "type": "text", "text": text }] })));
    let ran = run_with("return (await myServer.echo({}))[0].id", |_| {}, answer);
    assert_eq!(ran.value(), json!(1));
    let ran = run_with("return (await bascule.raw(myServer.echo({}))).content[0].text", |_| {}, answer);
    assert_eq!(ran.value(), text);
}

// req: CM-13
#[test]
fn reports_objects_and_promises_in_text() {
    check_loss(
        "{ a: `got ${{}}`, b: ['' + Promise.resolve(1)] }",
        &json!({ "a": "got [object Object]", "b": ["[object Promise]"] }),
        "`result.a` contains \"[object Object]\": an object was put into text; use JSON.stringify, or one of its fields\n\
         `result.b[0]` contains \"[object Promise]\": a promise was put into text; write `await` before it",
    );
    let ran = run("await github.listCommits({ repo: 'x' + {} }); return 1");
    assert!(ran.log().contains("in the arguments of `github:list_commits`"), "{}", ran.log());
}

// req: CM-13
#[test]
fn half_of_a_character_is_replaced_and_reported() {
    let warning = |place: &str| {
        format!(
            "`{place}` contains half of a character (a cut emoji?), which became U+FFFD; \
             cut text with [...text].slice(0, n).join(\"\")"
        )
    };
    check_loss("{ a: 'ab🚀'.slice(0, 3) }", &json!({ "a": "ab\u{fffd}" }), &warning("result.a"));
    let in_name = |place: &str| format!("`{place}` has half of a character in its name, which became U+FFFD");
    let name = "{ ['🚀'.slice(1)]: '🚀' }";
    check_loss(name, &json!({ "\u{fffd}": "🚀" }), &in_name("result[\"\\ude80\"]"));
    let ran = run(&format!("return (await myServer.echo({name})).args"));
    assert_eq!(ran.value(), json!({ "\u{fffd}": "🚀" }));
    assert_eq!(ran.log(), in_name("[\"\\ude80\"]") + " (in the arguments of `my-server:echo`)");
    let ran = run("return (await myServer.echo({ t: '🚀'.slice(0, 1) })).args");
    assert_eq!(ran.value(), json!({ "t": "\u{fffd}" }));
    assert_eq!(ran.log(), warning("t") + " (in the arguments of `my-server:echo`)");
}

// req: CM-13
#[test]
fn reports_blobs() {
    let warning = "`result` is a Blob, whose content JSON cannot hold: it became {}; use await blob.text()";
    check_loss("new Blob(['a'])", &json!({}), warning);
}

// req: CM-13
#[test]
fn converts_objects_of_the_web() {
    check("new DOMException('late', 'AbortError')", &json!({ "name": "AbortError", "message": "late" }));
    let reason = json!({ "name": "AbortError", "message": "This operation was aborted" });
    check(
        "await Promise.allSettled([(async () => AbortSignal.abort().throwIfAborted())()])",
        &json!([{ "status": "rejected", "reason": reason }]),
    );
    check("{ q: new URLSearchParams({ a: '1 2', b: 'é' }) }", &json!({ "q": "a=1+2&b=%C3%A9" }));
    let ran = run("return (await myServer.echo({ q: new URL('http://a/?x=1').searchParams })).args");
    assert_eq!((ran.value(), ran.log()), (json!({ "q": "x=1" }), String::new()));
}

// req: CM-13
#[test]
fn reports_instances_whose_fields_json_cannot_see() {
    for (code, name) in [
        ("new AbortController()", "AbortController"),
        ("new AbortController().signal", "AbortSignal"),
        ("new Intl.NumberFormat('en-US')", "Intl.NumberFormat"),
        ("new TextEncoder()", "TextEncoder"),
        ("new (class Account { #balance = 1 })()", "Account"),
    ] {
        let warning =
            format!("`result.it` is an instance of {name} without fields that JSON can hold: it became {{}}");
        check_loss(&format!("{{ it: {code} }}"), &json!({ "it": {} }), &warning);
    }
    let ran = run("await myServer.echo({ at: [new TextDecoder()] }); return 1");
    assert!(ran.log().contains("`at[0]` is an instance of TextDecoder"), "{}", ran.log());
    check("[{}, Object.create(null), new (class Point { x = 1 })()]", &json!([{}, {}, { "x": 1 }]));
}
