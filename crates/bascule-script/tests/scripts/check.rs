//! Tests the check of a script before its first call.

use bascule_script::wire::{Init, InjectedTool};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use crate::support::{ScriptRun, run_with, structured};

fn add_tools(init: &mut Init) {
    let tool = |name: &str, input: Value, output: Option<Value>| InjectedTool {
        server: "shop".into(),
        name: name.into(),
        input_schema: Some(to_raw_value(&input).unwrap()),
        output_schema: output.map(|schema| to_raw_value(&schema).unwrap()),
        signature: Some(format!("mcp.shop.{name}(args: …)")),
        ..InjectedTool::default()
    };
    let order = json!({ "type": "object", "properties": { "id": { "type": "string" }, "lines": { "type": "array", "items": { "type": "object", "properties": { "sku": { "type": "string" } } } }, "total": { "type": "number" } } });
    let orders = json!({ "type": "object", "properties": { "orders": { "type": "array", "items": order }, "next": { "type": ["string", "null"] } }, "required": ["orders"], "additionalProperties": false });
    let list = json!({ "type": "object", "properties": {
        "customer_id": { "type": "string" }, "page": { "type": "integer" }, "sort": { "enum": ["asc", "desc"] },
        "tags": { "type": "array", "items": { "type": "string" } }, "since": { "anyOf": [{ "type": "string" }, { "type": "null" }] },
    }, "required": ["customer_id"], "additionalProperties": false });
    init.tool_definitions.push(tool("list_orders", list, Some(orders)));
    let open =
        json!({ "type": "object", "properties": { "query": { "type": "string" } }, "required": ["query"] });
    let observed = json!({ "type": "object", "properties": { "orders": { "type": "array", "items": {} }, "next": { "type": "null" } } });
    init.tool_definitions.push(InjectedTool {
        observed_schema: Some(to_raw_value(&observed).unwrap()),
        ..tool("peek", json!({ "type": "object", "properties": { "customer": {} } }), None)
    });
    init.tool_definitions.push(tool("search", open, Some(json!({ "type": "array", "items": {} }))));
}

fn run(code: &str) -> ScriptRun {
    run_with(code, add_tools, |_| {
        Some(structured(&json!({ "orders": [{ "id": "1", "lines": [], "total": 2 }], "next": null })))
    })
}

/// Checks that a script is stopped before its first call.
fn check_stopped(code: &str, line: u32, part: &str) {
    let ran = run(code);
    let error = ran.error();
    assert!(error.message.contains(part), "{code}: {}", error.message);
    assert!(error.message.contains("before any call"), "{code}: {}", error.message);
    assert_eq!((error.line, ran.calls.len()), (Some(line), 0), "{code}");
}

/// Checks that a script runs until it fails, and that the message of its failure tells the mistake.
fn check_told(code: &str, part: &str) {
    let ran = run(code);
    let error = ran.error();
    assert!(error.message.contains(part), "{code}: {}", error.message);
    assert!(!error.message.contains("before any call") && !ran.calls.is_empty(), "{code}: {}", error.message);
}

/// Checks that a script runs.
fn check_runs(code: &str) {
    let ran = run(code);
    assert!(ran.completed.success, "{code}: {:?}", ran.completed.error);
}

// req: CM-14
#[test]
fn stops_unknown_tools() {
    check_stopped(
        "const a = await shop.search({ query: 'x' });\nawait mcp.shop.listOrder({ customerId: 'a' })",
        2,
        "did you mean `listOrders`?",
    );
    check_stopped("await mcp.shopp.search({ query: 'x' })", 1, "did you mean `shop`?");
    check_stopped("const { shop: s } = mcp;\nawait s.nothing()", 2, "has no tool `nothing`");
    check_stopped("await bascule.call('shop:list_ordrs', {})", 1, "did you mean");
    check_stopped("async function main() {\n  await context.shop.nothing();\n}\nmain()", 2, "has no tool");
}

// req: CM-14
#[test]
fn stops_wrong_arguments() {
    let error = run("await shop.listOrders({ customerId: 5 })").error();
    assert_eq!(
        (error.code.as_deref(), error.tool_name.as_deref()),
        (Some("INVALID_INPUT"), Some("shop:list_orders"))
    );
    check_stopped(
        "await shop.listOrders({ customerId: 5 })",
        1,
        "the argument `customer_id` must be string, not number",
    );
    check_stopped("await shop.listOrders({})", 1, "the required argument `customer_id` is missing");
    check_stopped("await shop.listOrders()", 1, "the required argument `customer_id` is missing");
    check_stopped("await shop.listOrders('x')", 1, "it takes one object, not a string");
    check_stopped("await shop.listOrders({ customer_id: 'a', pages: 2 })", 1, "did you mean `page`?");
    check_stopped("await shop.listOrders({ customer_id: 'a', page: 1.5 })", 1, "must be integer");
    check_stopped(
        "await shop.listOrders({ customer_id: 'a', sort: 'up' })",
        1,
        "must be one of \"asc\", \"desc\"",
    );
    check_stopped(
        "await shop.listOrders({ customer_id: 'a', tags: ['x', 1] })",
        1,
        "`tags[1]` must be string",
    );
    check_stopped("await shop.listOrders({ customer_id: 'a', since: 1 })", 1, "`since`");
    check_stopped(
        "await shop.listOrders({ customer_id: shop.search({ query: 'x' }) })",
        1,
        "is a promise: write `await`",
    );
    check_stopped(
        "const list = mcp.shop.listOrders;\nawait list({ nope: 1 })",
        2,
        "`customer_id` is missing",
    );
    check_stopped("await Promise.all([shop.listOrders({})])", 1, "`customer_id` is missing");
}

// req: CM-14
#[test]
fn stops_wrong_use_of_promises() {
    check_stopped("const r = shop.listOrders({ customerId: 'a' });\nreturn r.orders", 2, "is a promise");
    check_stopped(
        "for (const o of shop.search({ query: 'a' })) console.log(o)",
        1,
        "is a promise: write `await` before `mcp.shop.search(…)`",
    );
}

// req: CM-14
#[test]
fn tells_wrong_use_of_results_if_the_script_fails() {
    let list = "const r = await shop.listOrders({ customerId: 'a' });";
    check_told(&format!("{list}\nreturn r.map((o) => o.id)"), "an object with `next`, `orders`");
    check_told(&format!("{list}\nreturn r.items.map((o) => o.id)"), "has no member `items`");
    check_told(&format!("{list}\nconst {{ orders }} = r;\nreturn orders.rows.length"), "an array");
    check_told(&format!("{list}\nfor (const o of r) console.log(o)"), "is no list");
}

// req: CM-14
#[test]
fn lets_good_scripts_run() {
    check_runs(
        "const r = await shop.listOrders({ customerId: 'a', page: 2, since: null, tags: [], sort: 'asc' }); return r.orders.map((o) => o.id)",
    );
    check_runs("const id = 'a'; return await shop.listOrders({ customerId: id, ...{ page: 1 } })");
    check_runs("const args = { customerId: 'a' }; return await shop.listOrders(args)");
    check_runs("const all = { customerId: 'a' }; return await shop.listOrders({ ...all })");
    check_runs("try { await shop.nothing() } catch (e) { return e.code }");
    check_runs("try { await shop.listOrders({}) } catch (e) { return e.code }");
    check_runs("return await shop.listOrders({ customerId: 1 }).catch((e) => e.code)");
    check_runs("return await Promise.allSettled([shop.listOrders({ customerId: 1 })])");
    check_runs("if (bascule.tools.includes('shop:nothing')) await shop.nothing()");
    check_runs("const r = await shop.listOrders({ customerId: 'a' }); return r.items ?? r.orders");
    check_runs("const r = await shop.listOrders({ customerId: 'a' }); return r.items?.length ?? 0");
    check_runs("const p = shop.listOrders({ customerId: 'a' }); return p.then((r) => r.orders.length)");
    check_runs("const shop = { nothing: () => 1 }; return shop.nothing()");
    check_runs("let r = shop.listOrders({ customerId: 'a' }); r = await r; return r.orders");
    check_runs(
        "for (const f of [() => shop.nothing(), () => shop.listOrders({})]) { try { await f() } catch {} } return 1",
    );
    check_runs(
        "async function safe(f) { try { return await f() } catch { return null } } return await safe(() => shop.listOrders({ customerId: 1 }))",
    );
    check_runs("function never() { return shop.nothing() } return 1");
    check_runs("await mcp.gone.anything({ a: 1 }); return 1");
    check_runs("return await shop.search({ query: 'x', limit: 5 })");
    check_runs("const { nothing = 1 } = {}; return nothing");
    check_runs(
        "const orders = (await shop.listOrders({ customerId: 'a' })).orders; for (const o of orders) console.log(o.id); return orders.length",
    );
}

// req: CM-14
#[test]
fn doubtful_mistakes_are_told_if_the_script_fails() {
    let ran = run("const r = await shop.search({ query: 'x', limits: 5 });\nthrow new Error('empty')");
    assert!(
        ran.error().message.starts_with("empty\n  line 1: shop:search: unknown argument `limits`"),
        "{:?}",
        ran.error()
    );
    assert_eq!(ran.calls.len(), 1);
}

// req: CM-14
#[test]
fn reports_several_mistakes_together() {
    let error = run("await shop.nothing();\nawait shop.listOrders({});").error();
    assert!(
        error.message.contains("has no tool `nothing`") && error.message.contains("\n  line 2: "),
        "{}",
        error.message
    );
}

// req: CM-14, CM-15
#[test]
fn observed_types_never_stop_a_script() {
    check_runs("return (await shop.peek({})).rows?.length ?? 0");
    check_runs("const found = await shop.peek({});\nreturn [found.rows, found.total]");
    let ran = run("const found = await shop.peek({});\nreturn found.rows.map((row) => row.id)");
    let message = ran.error().message;
    assert!(
        message.contains("line 2: `found` has no member `rows`: earlier results of shop:peek were an object with `next`, `orders`"),
        "{message}"
    );
    assert_eq!(ran.calls.len(), 1);
    let ran = run("for (const order of await shop.peek({})) console.log(order)");
    assert!(ran.error().message.contains("is no list: earlier results of shop:peek"), "{:?}", ran.error());
    assert_eq!(ran.calls.len(), 1);
    check_stopped("return shop.peek({}).orders.length", 1, "is a promise");
}

// req: CM-05
#[test]
fn argument_errors_show_the_signature() {
    let signature = "\n  mcp.shop.list_orders(args: …)";
    for code in ["await shop.listOrders({ customerId: 5 })", "let f = shop.listOrders; await f(7 as any)"] {
        let message = run(code).error().message;
        assert!(message.contains(signature), "{code}: {message}");
    }
    let refused = |answer: Result<Value, Value>| {
        let code = "const customer = 'x'; await shop.listOrders({ customer_id: customer })";
        run_with(code, add_tools, move |_| Some(answer.clone())).error().message
    };
    let bridge = |code: Value| Err(json!({ "code": code, "message": "wrong", "retryable": false }));
    let failed = |text: &str| Ok(json!({ "content": [{ "type": "text", "text": text }], "isError": true }));
    assert!(refused(bridge(json!("INVALID_INPUT"))).contains(signature));
    assert!(refused(failed("MCP error -32602: Input validation error")).contains(signature));
    assert!(!refused(bridge(json!("PROVIDER_TIMEOUT"))).contains(signature));
    assert!(!refused(failed("no such order")).contains(signature));
}

// req: CM-14
#[test]
fn stops_names_that_nothing_declares_and_assignments_to_constants() {
    check_stopped("const a = 1;\nfs.readFileSync('x')", 2, "scripts have no files");
    check_stopped("const results = [];\nreturn resuts.length", 2, "did you mean `results`?");
    check_stopped("await shops.search({ query: 'x' })", 1, "did you mean `shop`?");
    check_stopped("const n = 0;\n[n] = [1]", 2, "`n` is a constant");
    assert_eq!(run("fs.x").error().name, "ReferenceError");
    assert_eq!(run("const n = 0; n++").error().name, "TypeError");
    check_runs("return typeof window === 'undefined' ? 1 : window.x");
    check_runs("globalThis.later = 5; return later");
    check_runs("function f() { return arguments.length } return f(1)");
    check_runs(
        "type A = Missing<string>; const x: Gone = 1 as any; return [x, undefined, NaN, structuredClone(1)]",
    );
    check_runs("try { process.exit() } catch { return 1 }");
    check_runs("let n = 0; n++; return n");
}

// req: CM-14
#[test]
fn follows_results_into_callbacks_loops_and_patterns() {
    let list = "const r = await shop.listOrders({ customerId: 'a' });";
    check_told(
        &format!("{list}\nr.orders.map((order) => order.id.map((x) => x))"),
        "`order.id` has no member `map`",
    );
    check_told(&format!("{list}\nfor (const order of r.orders) order.id.join()"), "`order.id` has no member");
    check_told(&format!("{list}\nreturn r.orders[0].total.split('.')"), "has no member `split`");
    check_told(
        &format!(
            "{list}\nconst rows = typeof r === 'string' ? JSON.parse(r) : r;\nreturn rows.map(async (o) => o)"
        ),
        "line 3: `rows` has no member `map`",
    );
    check_told(
        "await shop.listOrders({ customerId: 'a' }).then((r) => r.map((x) => x))",
        "`r` has no member `map`",
    );
    check_told(
        "const { items } = await shop.listOrders({ customerId: 'a' });\nitems.map((x) => x)",
        "`items` is undefined",
    );
    check_runs(&format!(
        "{list} return r.orders.map((order) => [order.id.toUpperCase(), order.total.toFixed(1)])"
    ));
    check_runs("const { next = 'none' } = await shop.listOrders({ customerId: 'a' }); return next");
}

// req: CM-14
#[test]
fn doubtful_mistakes_do_not_hide_certain_ones() {
    let doubtful = "await shop.search({ query: 'x', unknown: 1 });\n".repeat(40);
    check_stopped(&format!("{doubtful}await shop.nothing({{}})"), 41, "has no tool `nothing`");
}

// req: CM-14
#[test]
fn stops_mistakes_in_functions_that_every_run_calls() {
    check_stopped("const main = async () => {\n  await shop.nothing();\n};\nawait main()", 2, "has no tool");
    check_stopped("return main();\nasync function main() { await shop.listOrders({}) }", 2, "is missing");
    check_stopped("(async () => {\n  await shop.nothing();\n})()", 2, "has no tool");
    check_stopped(
        "async function inner() { return shop.listOrders({}) }\nasync function main() { return await inner() }\nmain()",
        1,
        "is missing",
    );
}

// req: CM-14
#[test]
fn mistakes_that_a_run_may_avoid_do_not_stop_it() {
    check_runs("for (const id of []) await shop.nothing(id); return 1");
    check_runs("while (false) await shop.listOrders({}); return 1");
    check_runs("const undo = () => shop.listOrders({}); return 1");
    check_runs("const undo = async () => { await shop.nothing() }; const all = [undo]; return all.length");
    check_runs("function* lazy() { shop.nothing() } lazy(); return 1");
    check_runs("class Later { orders = shop.nothing() } return typeof Later");
    check_runs("if (context.x === undefined) return 1; await shop.nothing()");
    check_runs("await main(); async function main() { if (!context.x) return; await shop.nothing() }");
    check_runs("done: { if (!context.x) break done; await shop.nothing() } return 1");
    check_runs("const f = (a = shop.nothing()) => a; return f(1)");
    check_runs("const { a = shop.nothing() } = { a: 1 }; return a");
    for operator in ["??=", "||="] {
        check_runs(&format!("let a = 1; a {operator} await shop.nothing(); return a"));
    }
    check_runs("let a = 0; a &&= await shop.nothing(); return a");
    check_runs("const a = 1; a ||= 2; return a");
    check_runs("function f() { return shop.nothing() } function f() { return 1 } return f()");
}

// req: CM-14
#[test]
fn call_that_is_left_alone_may_end_after_the_script() {
    let search = "return await mcp.shop.search({ query: 'x' });";
    check_runs(&format!(
        "async function watchdog() {{ await bascule.sleep(120_000); process.exit(1); }} watchdog(); {search}"
    ));
    check_runs(&format!(
        "async function last() {{ process.exit(1) }} async function watchdog() {{ await bascule.sleep(120_000); await last() }} watchdog(); {search}"
    ));
    check_runs(&format!(
        "async function watchdog() {{ await bascule.sleep(120_000); process.exit(1) }} async function main() {{ watchdog(); }} await main(); {search}"
    ));
    check_runs(&format!(
        "async function watchdog() {{ for await (const tick of [bascule.sleep(120_000)]) tick; process.exit(1) }} watchdog(); {search}"
    ));
    check_runs(&format!(
        "async function watchdog() {{ require(await bascule.sleep(120_000)) }} watchdog(); {search}"
    ));
    // The mistake is reached before anything is awaited, or nothing comes after the call.
    check_stopped(
        &format!(
            "async function early() {{ await late() }} async function late() {{ process.exit(1); await null }} early(); {search}"
        ),
        1,
        "no process",
    );
    check_stopped(
        "async function main() { await shop.search({ query: 'x' }); process.exit(1) }\nmain();\nfunction unused() {}",
        1,
        "no process",
    );
}

// req: CM-14
#[test]
fn globals_that_the_script_replaces_are_its_own() {
    check_runs("shop = { nothing: () => 1 }; return shop.nothing()");
    check_runs("globalThis.shop = Date.now(); return shop.toFixed()");
    check_runs("context.shop = { nothing: () => 1 }; return context.shop.nothing()");
    check_runs("const own = context; own['shop'] = { nothing: () => 1 }; return context.shop.nothing()");
    check_runs("Object.assign(context, { shop: { nothing: () => 1 } }); return context.shop.nothing()");
    check_runs("[context.shop] = [{ nothing: () => 1 }]; return context.shop.nothing()");
    check_runs("this.total = 3; return total");
    check_runs("const keep = () => { this.total = 3 }; keep(); return total");
    check_runs("this.fetch = () => 1; return fetch('x')");
    check_runs("Intl.Segmenter = class {}; return typeof new Intl.Segmenter()");
    check_runs(
        "Object.defineProperty(globalThis, 'shop', { value: { nothing: () => 1 } }); return shop.nothing()",
    );
    check_stopped("console.log(typeof globalThis);\nawait shop.nothing()", 2, "has no tool");
    check_stopped("function f() { this.total = 3 }\nreturn total", 2, "`total` is not defined");
    check_stopped("const out = { shop: 1 };\nout.shop = 2;\nawait context.shop.nothing()", 3, "has no tool");
}

// req: CM-14
#[test]
fn names_of_an_earlier_part_of_an_enum_are_defined() {
    assert_eq!(run("enum E { A = 1 } enum E { B = A + 1 } return E.B").value(), json!(2));
}

// req: CM-14
#[test]
fn members_that_are_read_from_any_object_are_no_tools() {
    for name in ["inspect", "nodeType", "asymmetricMatch", "$$typeof", "@@iterator", "__proto__", "then"] {
        check_runs(&format!("return [mcp.shop['{name}'], mcp['{name}']].length"));
    }
}

// req: CM-14
#[test]
fn mistakes_that_a_run_handles_do_not_stop_it() {
    check_runs(
        "const fallback = () => mcp.missing.read({}); try { await shop.search({ query: 'x' }) } catch { await fallback() } return 1",
    );
    check_runs("const bad = async () => shop.nothing(); return await bad().catch(() => 'text')");
    check_runs("const bad = async () => shop.nothing(); return await bad().then(() => 1, () => 2)");
    check_runs(
        "const bad = async () => shop.nothing(); return await bad().finally(() => {}).catch(() => 'text')",
    );
    check_runs("return await shop.listOrders({}).finally(() => {}).catch(() => 'text')");
    check_runs("const p = shop.listOrders({ customerId: 1 }); try { await p } catch {} return 1");
    check_runs("const all = [shop.listOrders({ customerId: 1 })]; return await Promise.allSettled(all)");
    check_runs("return await Promise.all([shop.listOrders({ customerId: 1 })]).catch(() => 'text')");
    check_runs("try { await shop.nothing() } finally { return 1 }");
    check_runs("const bad = async () => shop.nothing(); const p = bad(); return await p.catch(() => 1)");
    check_runs("const p = shop.search({ query: 'x' }); p.label = 'x'; return await p");
}

// req: CM-14
#[test]
fn results_that_differ_from_their_declared_type_do_not_stop_a_script() {
    let code = "const r = await shop.listOrders({ customerId: 'a' }); if (!Array.isArray(r)) { return r.items.length; } return r.map((x) => x.id)";
    let ran = run_with(code, add_tools, |_| Some(structured(&json!([{ "id": 7 }]))));
    assert_eq!(ran.value(), json!([7]));
    let code = "return (await shop.listOrders({ customerId: 'a' })).split('\\n')";
    let text = |_: &_| Some(Ok(json!({ "content": [{ "type": "text", "text": "one\ntwo" }] })));
    assert_eq!(run_with(code, add_tools, text).value(), json!(["one", "two"]));
    let code = "const names = []; for (const name of await shop.listOrders({ customerId: 'a' })) names.push(name); return names";
    let ran = run_with(code, add_tools, |_| Some(structured(&json!(["a"]))));
    assert_eq!(ran.value(), json!(["a"]));
}

// req: CM-14
#[test]
fn unknown_keys_that_json_leaves_out_do_not_stop_a_script() {
    check_runs("return await shop.listOrders({ customerId: 'a', encoding: undefined })");
    check_runs("return await shop.listOrders({ customerId: 'a', encoding: context.encoding })");
    check_stopped(
        "await shop.listOrders({ customerId: 'a', encoding: 'x' })",
        1,
        "unknown argument `encoding`",
    );
    check_stopped("await shop.listOrders({ customerId: 'a', options: {} })", 1, "unknown argument `options`");
}

// req: CM-14
#[test]
fn accepts_literals_of_schemas_that_take_too_long_to_visit() {
    // Each of six levels refers forty times to the next one, and the last one refuses text.
    let level = |n: i32| json!({ "anyOf": vec![json!({ "$ref": format!("#/$defs/D{}", n + 1) }); 40] });
    let mut definitions: serde_json::Map<String, Value> =
        (0..6).map(|n| (format!("D{n}"), level(n))).collect();
    definitions.insert("D6".into(), json!({ "type": "number" }));
    let schema =
        json!({ "type": "object", "properties": { "a": { "$ref": "#/$defs/D0" } }, "$defs": definitions });
    let add = |init: &mut Init| {
        init.tool_definitions.push(InjectedTool {
            server: "maze".into(),
            name: "walk".into(),
            input_schema: Some(to_raw_value(&schema).unwrap()),
            ..InjectedTool::default()
        });
    };
    let ran = run_with("return await maze.walk({ a: 'x' })", add, |_| Some(structured(&json!({ "b": 1 }))));
    assert_eq!(ran.value(), json!({ "b": 1 }));
}

// req: CM-14
#[test]
fn arguments_that_are_replaced_or_converted_do_not_stop_a_script() {
    check_runs("const mine = { customerId: 'a' }; return await shop.listOrders({ customerId: 5, ...mine })");
    check_runs("const key = 'page'; return await shop.listOrders({ customerId: 'a', page: 'x', [key]: 2 })");
    check_runs("return await shop.listOrders({ customerId: 'a', tags: () => [] })");
    check_runs("return await shop.listOrders({ customerId: { toJSON() { return 'a' } } })");
    check_runs("return await shop.listOrders({ toJSON() { return { customer_id: 'a' } } })");
    check_runs("return await shop.listOrders({ __proto__: null, customerId: 'a' })");
    check_stopped("const mine = {};\nawait shop.listOrders({ ...mine, customerId: 5 })", 2, "must be string");
}

/// Checks that a script succeeds, and its warnings.
fn check_warned(code: &str, expected: &str) {
    let ran = run(code);
    assert!(ran.completed.success, "{code}: {:?}", ran.completed.error);
    assert_eq!(ran.log(), expected, "{code}");
}

// req: CM-14
#[test]
fn warns_of_members_that_results_did_not_have() {
    let list = "const r = await shop.listOrders({ customer_id: 'a' });\n";
    let warning = "line 2: `r` has no member `items`: the result of shop:list_orders is an object with `next`, `orders`";
    check_warned(&format!("{list}return {{ items: r.items }}"), warning);
    check_warned(
        "const { items } = await shop.listOrders({ customer_id: 'a' });\nreturn items",
        "line 1: `await shop.listOrders({ customer_id: 'a' })` has no member `items`: the result of shop:list_orders is an object with `next`, `orders`",
    );
    // The script expects that the member may be missing.
    for tested in [
        "return r.items ?? r.orders",
        "return r.items?.length ?? 0",
        "return r.items ? 1 : 2",
        "if (r.items) return 1; return 2",
        "return r.items === undefined",
        "return typeof r.items",
        "const { items = [] } = r; return items",
    ] {
        check_warned(&format!("{list}{tested}"), "");
    }
    // The result has a member that its declared type has not.
    let has_more = |_: &_| Some(structured(&json!({ "orders": [], "items": [1] })));
    let ran = run_with(&format!("{list}return r.items"), add_tools, has_more);
    assert_eq!((ran.value(), ran.log().as_str()), (json!([1]), ""));
}

/// The type of a query's result is that of earlier queries. Each answer of the tool may have other members.
// req: CM-14, CM-15
#[test]
fn warns_of_no_member_that_an_answer_of_the_tool_had() {
    let add_query = |init: &mut Init| {
        let row = json!({ "type": "object", "properties": { "name": { "type": "string" }, "stock": { "type": "number" } }, "required": ["name", "stock"] });
        init.tool_definitions.push(InjectedTool {
            server: "db".into(),
            name: "query".into(),
            input_schema: Some(to_raw_value(&json!({ "type": "object" })).unwrap()),
            observed_schema: Some(to_raw_value(&json!({ "type": "array", "items": row })).unwrap()),
            ..InjectedTool::default()
        });
    };
    // As SQLite servers answer: the text of a Python list.
    let answer = |call: &bascule_script::wire::RpcCall| {
        let rows = match call.args.get() {
            r#"{"q":"id"}"# => "[{'id': 1}]",
            r#"{"q":"none"}"# => "[]",
            _ => "[{'name': 'x', 'stock': 2}]",
        };
        Some(Ok(json!({ "content": [{ "type": "text", "text": rows }] })))
    };
    let check = |code: &str, expected: &str| {
        let ran = run_with(code, add_query, answer);
        assert!(ran.completed.success, "{code}: {:?}", ran.completed.error);
        assert_eq!(ran.log(), expected, "{code}");
    };
    let first = "const a = await db.query({ q: 'id' });\n";
    check(&format!("{first}return a[0].id"), "");
    check(&format!("{first}const b = await db.query({{ q: 'name' }});\nreturn [a[0].id, b[0].name]"), "");
    check(&format!("const b = await db.query({{ q: 'name' }});\n{first}return [a[0].id, b[0].name]"), "");
    check("const a = await db.query({ q: 'none' });\nreturn a.map((row) => row.id)", "");
    let warning =
        "line 2: `a[0]` has no member `id`: earlier results of db:query were an object with `name`, `stock`";
    check("const a = await db.query({ q: 'name' });\nreturn a[0].id ", warning);
}

// req: CM-13
#[test]
fn warns_of_undefined_in_the_value_or_an_argument() {
    let check = |code: &str, result: serde_json::Value, expected: &str| {
        let answer = |_: &_| Some(structured(&result));
        let ran =
            run_with(&format!("const r: any = await mcp.myServer.echo({{}});\n{code}"), add_tools, answer);
        assert!(ran.completed.success, "{code}: {:?}", ran.completed.error);
        assert_eq!(ran.log(), expected, "{code}");
    };
    let words = json!({ "content": "words" });
    let warning = "line 2: `r.content[0]` has no member `text`: it is a character of a string: \"words\", of the result of my-server:echo";
    for code in [
        "return r.content[0].text",
        "return { text: r.content[0].text }",
        "const text = r.content[0].text; return [{ text }]",
        "const text = r.content[0].text; if (r.content) 1; return `${text}`.length ? { text } : 1",
        "return JSON.stringify({ text: r.content[0].text })",
        "await mcp.github.getSum({ text: r.content[0].text }); return 1",
    ] {
        check(code, words.clone(), warning);
    }
    let time =
        "line 2: `r` has no member `time`: it is an object with `content`, the result of my-server:echo";
    check("return r.time?.split(':')", words.clone(), time);
    check("return r.time?.parts[0].hour", words.clone(), time);
    check(
        "async function main() {\n  return { at: r.time }\n}\nreturn await main()",
        words.clone(),
        &time.replace('2', "3"),
    );
    for call in [
        "main();",
        "await main()",
        "main().catch(console.error)",
        "const at = await main(); return at",
        "return { at: await main() }",
        "async function all() { return await main() }; return await all()",
    ] {
        let declared = "async function main() { return r.time }";
        check(&format!("{declared} {call}"), words.clone(), time);
    }
    check("(async () => { return r.time })()", words.clone(), time);
    for tested in [
        "return r.time ?? 'none'",
        "return r.time?.split(':') ?? []",
        "return r.time ? 1 : 2",
        "const t = r.time; if (t) return t; return 1",
        "const t = r.time; return t ?? 1",
        "r.time = 1; return r.time",
        "return r.content[99]",
        "return r.content.length",
        "return r.content.toUpperCase()",
        "return r.time === undefined",
        "String(r.time); return 1",
        "return Array.isArray(r.content) ? r.time : r.content",
        "const rows = typeof r === 'object' ? r : r.rows; return rows",
        "if (Array.isArray(r)) return r.foo; return r.content",
        "if (r.content) return 1; return r.time",
        "const alt = () => { return r.time }; return r.content ? r.content : alt()",
        "const alt = () => { return r.time }; return r.content",
        "const alt = () => { return r.time }; const a = alt() ?? 1; return a",
        "const alt = () => { return r.time }; alt(); return 1",
        "function alt() { return r.content ? 1 : alt() || r.time } return alt()",
        "const alt = () => { return r.time }; return r.content || [alt, alt()]",
        "async function main() { return r.time }; main().then((x) => x ?? 1)",
        "async function main() { return r.time }; void main()",
    ] {
        check(tested, words.clone(), "");
    }
    check("return r.rows[0]", json!({ "rows": [] }), "");
    // A member that the declared type has may be absent.
    let ran = run_with(
        "const r = await shop.listOrders({ customer_id: 'a' }); return { next: r.next }",
        add_tools,
        |_| Some(structured(&json!({ "orders": [] }))),
    );
    assert_eq!(ran.log(), "");
}

// req: CM-13
#[test]
fn variables_with_many_uses_are_followed_once() {
    let all = |item: &str| format!("[{}]", [item].repeat(1_000).join(", "));
    let code = format!(
        "const r: any = await mcp.myServer.echo({{}});\nconst a = {};\nconst b = {}; const c = {}; const all = {}; return 1",
        all("r.x"),
        all("a"),
        all("b"),
        all("c")
    );
    let start = std::time::Instant::now();
    assert_eq!(run(&code).value(), json!(1));
    assert!(start.elapsed().as_secs() < 10, "{:?}", start.elapsed());
}

fn add_clock(init: &mut Init) {
    let now = json!({ "type": "object", "properties": {
        "timeZone": { "type": "string" },
        "range": { "type": "object", "properties": { "startDate": { "type": "string" } }, "required": ["startDate"] },
        "all": { "type": "array", "items": { "type": "object", "properties": { "max_count": { "type": "integer" } }, "required": ["max_count"] } },
    }, "required": ["timeZone"] });
    init.tool_definitions.push(InjectedTool {
        server: "clk".into(),
        name: "now".into(),
        input_schema: Some(to_raw_value(&now).unwrap()),
        ..InjectedTool::default()
    });
}

// req: CM-14
#[test]
fn keys_that_a_call_respells_are_those_of_the_schema() {
    let run = |arguments: &str| {
        let code = format!("return await mcp.clk.now({arguments})");
        run_with(&code, add_clock, |call| Some(structured(&json!(call.args))))
    };
    for (arguments, expected) in [
        ("{ timezone: 'UTC' }", json!({ "timeZone": "UTC" })),
        ("{ 'time-zone': 'UTC' }", json!({ "timeZone": "UTC" })),
        (
            "{ timezone: 'UTC', Range: { startdate: 'x' } }",
            json!({ "timeZone": "UTC", "range": { "startDate": "x" } }),
        ),
        (
            "{ timezone: 'UTC', all: [{ maxcount: 1 }] }",
            json!({ "timeZone": "UTC", "all": [{ "max_count": 1 }] }),
        ),
    ] {
        assert_eq!(run(arguments).value(), expected, "{arguments}");
    }
    for (arguments, part) in [
        ("{ timezone: 5 }", "the argument `timeZone` must be string"),
        ("{ timezone: 'UTC', range: { start: 'x' } }", "`range.startDate` is missing"),
        ("{ timezone: 'UTC', all: [{ maxcount: 'x' }] }", "`all[0].max_count` must be integer"),
        ("{ zone: 'UTC' }", "`timeZone` is missing"),
    ] {
        let message = run(arguments).error().message;
        assert!(message.contains(part) && message.contains("before any call"), "{arguments}: {message}");
    }
}

// req: CM-14
#[test]
fn members_that_the_script_assigns_are_known() {
    let call = "const p = shop.listOrders({ customerId: 'a' });";
    check_runs(&format!("{call} p.tag = 't'; return [p.tag, await p].length"));
    check_runs(&format!("{call} p['tag'] = 't'; return p.tag"));
    check_runs(&format!("{call} Object.assign(p, {{ tag: 't' }}); return p.tag"));
    check_runs(&format!("const mark = (it) => {{ it.tag = 't'; return it }}; {call} mark(p); return p.tag"));
    check_warned(
        "const r = await shop.listOrders({ customerId: 'a' }); r.count = r.orders.length; return r.count",
        "",
    );
    let or_null = "function () { return this.catch(() => null) }";
    let search = "return await mcp.shop.search({ query: 'x' }).orNull()";
    check_runs(&format!("Promise.prototype.orNull = {or_null}; {search}"));
    check_runs(&format!("Object.assign(Promise.prototype, {{ orNull: {or_null} }}); {search}"));
    check_runs(&format!("const kind = Promise.prototype; kind['orNull'] = {or_null}; {search}"));
    check_runs(&format!("{call} const all = [p]; for (const one of all) one.tag = 't'; return p.tag"));
    check_runs(&format!("{call} const all = [p]; all[0].tag = 't'; return p.tag"));
    check_stopped(&format!("const out = {{}};\n{call} out.orders = p.orders; return out"), 2, "is a promise");
    check_stopped(
        &format!("const all = Object.assign({{}}, {{ a: 1 }});\n{call} return p.orders"),
        2,
        "is a promise",
    );
}

// req: CM-14
#[test]
fn schema_that_the_bridge_cannot_use_stops_nothing() {
    let add = |init: &mut Init| {
        add_clock(init);
        init.tool_definitions.last_mut().unwrap().is_unchecked = true;
    };
    let answer = |call: &bascule_script::wire::RpcCall| Some(structured(&json!(call.args)));
    let ran = run_with("return await mcp.clk.now({ timezone: 5, all: 1 })", add, answer);
    assert_eq!(ran.value(), json!({ "timeZone": 5, "all": 1 }));
    let ran = run_with("await mcp.clk.now({});\nthrow new Error('x')", add, answer);
    assert!(ran.error().message.contains("`timeZone` is missing"), "{:?}", ran.error());
    assert_eq!(ran.calls.len(), 1);
}

// req: CM-14
#[test]
fn value_of_the_context_comes_before_a_server_of_its_name() {
    let with_context = |code: &str| {
        let add = |init: &mut Init| {
            add_tools(init);
            let context = json!({ "shop": { "name": "corner", "open": { "days": 5 } }, "place": "here" });
            init.context = Some(to_raw_value(&context).unwrap());
        };
        run_with(code, add, |_| Some(structured(&json!({}))))
    };
    assert_eq!(with_context("return context.shop.name").value(), json!("corner"));
    assert_eq!(with_context("const { shop } = context; return shop.open.days").value(), json!(5));
    let error = with_context("return await mcp.shop.name({})").error();
    assert!(error.message.contains("before any call"), "{}", error.message);
    check_stopped("return await context.shop.name({})", 1, "has no tool `name`");
}

// req: CM-14
#[test]
fn variable_with_two_declarations_has_no_known_value() {
    check_runs("var x = mcp.shop; var x = { nothing: () => 1 }; return x.nothing()");
    check_runs("var { shop: x } = mcp; var x = { nothing: () => 1 }; return x.nothing()");
    check_runs(
        "var [a, b] = await Promise.all([mcp.shop.listOrders({ customerId: 'c' }), 1]); var a = { nothing: { more: 1 } }; return a.nothing.more",
    );
}

// req: CM-14
#[test]
fn items_after_those_of_a_tuple_have_the_schema_of_the_rest() {
    let tool = |init: &mut Init| {
        let range = json!({ "type": "array", "prefixItems": [{ "type": "string" }, { "type": "string" }], "items": { "type": "number" } });
        init.tool_definitions.push(InjectedTool {
            server: "shop".into(),
            name: "between".into(),
            input_schema: Some(
                to_raw_value(&json!({ "type": "object", "properties": { "range": range } })).unwrap(),
            ),
            ..InjectedTool::default()
        });
    };
    let run = |code: &str| run_with(code, tool, |_| Some(structured(&json!({}))));
    for good in ["['a', 'b']", "['a', 'b', 1]", "['a', ...['b'], 1]", "[...[], 'a', 'b', 1]"] {
        let ran = run(&format!("return await mcp.shop.between({{ range: {good} }})"));
        assert!(ran.completed.success, "{good}: {:?}", ran.completed.error);
    }
    let error = run("return await mcp.shop.between({ range: ['a', 'b', 'c'] })").error();
    assert!(error.message.contains("`range[2]` must be number"), "{}", error.message);
}

// req: CM-14
#[test]
fn absent_fetch_names_a_tool_of_that_name() {
    let add_fetch = |init: &mut Init| {
        let (server, name) = ("web-pages".into(), "fetch".into());
        init.tool_definitions.push(InjectedTool { server, name, ..InjectedTool::default() });
    };
    for code in ["await fetch('http://x')", "const f = globalThis['fet' + 'ch']; await f('http://x')"] {
        let message = run_with(code, add_fetch, |_| None).error().message;
        assert!(message.contains("such as mcp.webPages.fetch({ … })"), "{code}: {message}");
        let message = run(code).error().message;
        assert!(message.contains("such as mcp.SERVER.TOOL({ … })"), "{code}: {message}");
    }
}

// req: CM-14
#[test]
fn stops_calls_of_absent_functions() {
    let call = "await shop.search({ query: 'x' });\n";
    for (code, part) in [
        ("await fetch('http://x')", "fetch is not available: scripts have no network"),
        ("const fs = require('fs')", "`crypto.subtle.digest` are global; join paths as text"),
        ("new XMLHttpRequest()", "XMLHttpRequest is not available"),
        ("crypto.createHash('sha1')", "crypto.subtle.digest('SHA-1', "),
        ("crypto.createHash('md5').update('x')", "nor is `md5`"),
        ("crypto.createHmac('sha256', 'k')", "crypto.createHmac is not available"),
        ("await crypto.subtle.importKey('raw')", "crypto.subtle.importKey is not available"),
        ("new Intl.Segmenter('en')", "Intl.Segmenter is not available: use [...text]"),
    ] {
        check_stopped(&format!("{call}{code}"), 2, part);
        // The error at run time is the same.
        let error =
            run(&format!("const late = () => {{ {} }}; [1].map(late)", code.replace("await ", ""))).error();
        assert!(error.message.contains(part), "{code}: {}", error.message);
    }
    let md5 = run("crypto.createHash('md5')").error().message;
    assert!(!md5.contains("use "), "{md5}");
    check_told(&format!("{call}if (context.x !== 1) await fetch('http://x')"), "fetch is not available");
    for code in [
        "return typeof fetch === 'function' && context.x ? fetch('x') : 1",
        "try { require('fs') } catch {}",
        "const fetch = () => 1; return fetch()",
        "const crypto = { createHash: () => 1 }; return crypto.createHash()",
        "globalThis.fetch = () => 1; return fetch()",
        "fetch = () => 1; return fetch()",
    ] {
        check_runs(code);
    }
}
