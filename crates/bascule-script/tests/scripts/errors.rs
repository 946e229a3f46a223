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
    assert_eq!(run("throw 'words'").error().message, "the script threw words");
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
        "1n",
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
fn returns_with_pending_calls_and_timers() {
    let ran = run_with("mcp.github.listCommits({}); setTimeout(() => {}, 1e6); return 1", |_| {}, |_| None);
    assert_eq!(ran.value(), json!(1));
}

#[test]
fn missing_features_suggest_alternatives() {
    for (code, part) in [
        ("await fetch('http://x')", "call a tool instead"),
        ("require('fs')", "call tools through mcp"),
        ("import fs from 'fs'; fs.x", "cannot import modules"),
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
fn logs_unhandled_rejections() {
    let ran = run(
        "Promise.reject(new RangeError('lost')); const late = Promise.reject(1); await null; late.catch(() => {}); return 1",
    );
    assert_eq!(ran.value(), json!(1));
    assert_eq!(ran.log(), "unhandled promise rejection: RangeError: lost");
}

#[test]
fn clips_thrown_values() {
    let error = run("throw new Error('x'.repeat(1e7))").error();
    assert!(error.message.len() < 100_000 && error.stack.unwrap().len() < 100_000);
    assert!(run("throw 'x'.repeat(9e7)").error().message.len() < 100_000);
    assert_eq!(run("Object.prototype.toJSON = () => 1; throw 'x'").error().message, "the script threw x");
}

// req: CM-01
#[test]
fn reports_memory_limit_while_serializing_value() {
    let ran = run_with("return 'x'.repeat(4e7)", |init| init.limits.memory_bytes = 64 << 20, |_| None);
    assert_eq!(ran.error().name, "MemoryLimitError");
    let ran = run("const r = JSON.parse('{\"e\":null}'); throw r.e");
    assert_eq!(ran.error().message, "the script threw null");
}
