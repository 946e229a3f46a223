//! Tests the end of scripts: calls, timers and rejections that were not awaited.

use serde_json::json;

use crate::support::{run, run_with};

// req: CM-13
#[test]
fn finishes_calls_that_were_not_awaited() {
    let main = "async function main() { await github.listCommits({}); await myServer.echo({ n: 1 }); await myServer.echo({ n: 2 }); }\nmain();";
    let ran = run(main);
    assert_eq!(ran.value(), json!(null));
    assert_eq!(ran.calls.len(), 3);
    assert_eq!(
        ran.log(),
        "these calls were not awaited, and ended after the script had returned: `github:list_commits`, \
         `my-server:echo` (2 calls); the script returned no value: write `return await main()`"
    );
    let ran = run(
        "const all = []; [1, 2].forEach(async (n) => { all.push((await myServer.echo({ n })).args.n) }); return all",
    );
    assert_eq!(ran.value(), json!([1, 2]), "the value is converted at the end");
    assert!(ran.log().contains("not awaited") && !ran.log().contains("no value"), "{}", ran.log());
    let ran = run("const call = myServer.echo({}); await github.listCommits({}); await call; return 1");
    assert_eq!((ran.value(), ran.log()), (json!(1), String::new()));
}

// req: CM-13
#[test]
fn call_that_lost_a_race_is_told() {
    let ran = run("return await Promise.race([myServer.echo({}), Promise.resolve('gave up')])");
    assert_eq!(ran.value(), "gave up");
    assert_eq!(
        ran.log(),
        "these calls were not awaited, and ended after the script had returned: `my-server:echo`"
    );
}

// req: CM-13
#[test]
fn finishes_timers() {
    let ran =
        run("setTimeout(async () => { console.log((await myServer.echo({ late: 1 })).tool) }, 5); return 1");
    assert_eq!(ran.value(), json!(1));
    assert!(ran.log().starts_with("echo\n"), "{}", ran.log());
    let ran = run(
        "let n = 0; const i = setInterval(() => { if (++n === 3) { clearInterval(i); console.log('three') } }, 1)",
    );
    assert_eq!((ran.value(), ran.log()), (json!(null), "three".into()));
}

// req: CM-13
#[test]
fn timers_beyond_the_time_limit_do_not_fail_the_script() {
    let race = "const late = new Promise((_, reject) => setTimeout(() => reject(new Error('late')), 60_000));
        return await Promise.race([myServer.echo({ n: 1 }), late])";
    let ran = run(race);
    assert_eq!(ran.value()["args"]["n"], 1);
    assert!(ran.log().contains("timers"), "{}", ran.log());
    // A busy machine may stop the worker for longer than a twentieth of a short limit, which is the room before it.
    let ran = run_with("setInterval(() => {}, 1); return 1", |init| init.limits.time_ms = 2_000, |_| None);
    assert_eq!(ran.value(), json!(1));
}

// req: CM-13
#[test]
fn unhandled_rejection_fails_the_script() {
    let error = run("async function main() {\n  throw new RangeError('lost');\n}\nmain();\nreturn 1").error();
    assert_eq!((error.name.as_str(), error.line), ("RangeError", Some(2)));
    assert_eq!(error.message, "lost (in a promise that was not awaited and has no `catch`)");
    let failing = |code: &str| {
        run_with(code, |_| {}, |_| Some(Err(json!({ "code": "PROVIDER_TIMEOUT", "message": "too slow" }))))
    };
    let error = failing("\nmyServer.echo({})").error();
    assert_eq!((error.code.as_deref(), error.line), (Some("PROVIDER_TIMEOUT"), Some(2)));
    assert_eq!(failing("myServer.echo({}).catch(() => {}); return 1").value(), json!(1));
    // A rejection that is handled later is no failure.
    let late = "const call = myServer.echo({}); await bascule.sleep(5); try { await call } catch (e) { return e.code }";
    assert_eq!(failing(late).value(), "PROVIDER_TIMEOUT");
    assert_eq!(
        run("const late = Promise.reject(1); await null; late.catch(() => {}); return 1").value(),
        json!(1)
    );
    assert_eq!(run("Promise.reject(new Error('lost')); await new Promise(() => {})").error().name, "Error");
}

// req: CM-13
#[test]
fn failed_script_names_cancelled_calls() {
    let ran = run_with("myServer.echo({}); throw new Error('x')", |_| {}, |_| None);
    assert_eq!(ran.error().message, "x");
    assert!(ran.log().contains("cancelled, and may have run: `my-server:echo`"), "{}", ran.log());
    let many = "for (let n = 0; n < 50; n++) myServer.echo({}); throw new Error('x')";
    let ran = run_with(many, |init| init.limits.calls = 20, |_| None);
    assert!(ran.log().ends_with("`my-server:echo` (20 calls)"), "the others were refused: {}", ran.log());
}

// req: CM-13
#[test]
fn keeps_iterators_of_a_result_that_is_converted_again() {
    let ran = run("const m = new Map([['a', 1]]); return { keys: m.keys(), text: myServer.echo({ n: 1 }) }");
    assert_eq!(ran.value(), json!({ "keys": ["a"], "text": { "tool": "echo", "args": { "n": 1 } } }));
    let ran = run("const m = new Map([['a', 1]]); myServer.echo({}); return m.values()");
    assert_eq!(ran.value(), json!([1]), "converted again when the call has ended");
    let ran = run("return (function* () { yield myServer.echo({ n: 2 }); yield 3 })()");
    assert_eq!(ran.value(), json!([{ "tool": "echo", "args": { "n": 2 } }, 3]));
    let ran = run("return { all: (function* () { for (;;) yield 1 })(), late: myServer.echo({}) }");
    assert_eq!(ran.value()["all"].as_array().unwrap().len(), 100_000);
    assert!(ran.log().contains("more than 100000 items"), "{}", ran.log());
}

// req: CM-13
#[test]
fn drains_an_iterator_in_arguments_once() {
    let ran = run(
        "const keys = [7].values(); const first = await myServer.echo({ keys }); return [first.args, (await myServer.echo({ keys })).args]",
    );
    assert_eq!(ran.value(), json!([{ "keys": [7] }, { "keys": [] }]));
}

// req: CM-13
#[test]
fn exception_in_a_microtask_fails_the_script() {
    let error = run("queueMicrotask(() => {\n  throw new RangeError('lost');\n});\nreturn 1").error();
    assert_eq!((error.name.as_str(), error.line), ("RangeError", Some(2)));
    assert!(error.message.starts_with("lost"), "{}", error.message);
    let ran = run(
        "const seen = []; Promise.resolve().then(() => seen.push('then')); queueMicrotask(() => seen.push('task')); \
         Promise.resolve().then(() => seen.push('last')); await null; await null; return seen",
    );
    assert_eq!(ran.value(), json!(["then", "task", "last"]));
    assert_eq!(run("queueMicrotask('x')").error().name, "TypeError");
}

// req: CM-13
#[test]
fn script_does_not_wait_for_released_timers() {
    let ran = run("const signal = AbortSignal.timeout(60_000); return signal.aborted");
    assert_eq!((ran.value(), ran.log()), (json!(false), String::new()));
    let ran = run("setTimeout(() => console.log('never'), 60_000).unref(); return 1");
    assert_eq!((ran.value(), ran.log()), (json!(1), String::new()));
    let ran = run("setInterval(() => {}, 1).unref(); setTimeout(() => console.log('held'), 20); return 1");
    assert_eq!((ran.value(), ran.log()), (json!(1), "held".into()));
    let ran = run("setTimeout(() => console.log('again'), 5).unref().ref(); return 1");
    assert_eq!((ran.value(), ran.log()), (json!(1), "again".into()));
    // A script that has not returned may wait for one.
    let ran = run(
        "return await new Promise((done) => AbortSignal.timeout(1).addEventListener('abort', () => done('late')))",
    );
    assert_eq!(ran.value(), json!("late"));
}

// req: CM-13
#[test]
fn calls_a_script_that_is_one_function() {
    for code in [
        "async () => { return (await myServer.echo({ n: 1 })).args.n }",
        "(async () => (await myServer.echo({ n: 1 })).args.n);",
        "interface A {}\n(async function main() { return (await myServer.echo({ n: 1 })).args.n })",
        "```ts\nasync (): Promise<number> => { return (await myServer.echo({ n: 1 })).args.n };\n```",
    ] {
        let ran = run(code);
        assert_eq!((ran.value(), ran.log()), (json!(1), String::new()), "{code}");
    }
    let error = run("async () => {\n  await github.nothing();\n}").error();
    assert!(error.message.contains("before any call"), "{}", error.message);
    assert_eq!(error.line, Some(2));
    assert_eq!(run("async () => 1;\nreturn 2").value(), json!(2));
}

// req: CM-13
#[test]
fn names_what_a_script_does_not_return() {
    for (code, expected) in [
        ("const a = 1;\na", "line 2: the script returned nothing: write `return a`"),
        ("const a = 1;\n({ a, b: 2 });", "line 2: the script returned nothing: write `return ({ a, b: 2 })`"),
        ("const a = 1;\n{ a }", "line 2: the script returned nothing: write `return { a }`"),
        ("[1,\n2]", "line 1: the script returned nothing: write `return` before its last value"),
        ("const a = { b: 1 }; a.b", "line 1: the script returned nothing: write `return a.b`"),
        (
            "\nasync function main() {}",
            "line 2: the function `main` is never called: write `return await main()`",
        ),
        ("const go = async () => 1;", "line 1: the function `go` is never called: write `return await go()`"),
        (
            "function main() {}\nmain",
            "line 1: the function `main` is never called: write `return await main()`",
        ),
        (
            "async function main() { return { done: 1 }; }\nmain().then(console.debug);",
            "{ done: 1 }\nline 2: the value of the call is not returned: write `return await main()`",
        ),
    ] {
        let ran = run(code);
        assert_eq!((ran.value(), ran.log()), (json!(null), expected.to_owned()), "{code}");
    }
    for code in [
        "function unused() {} return null",
        "await null",
        "function main() {} main()",
        "function main() { [1].map(() => { return 1 }); return } main()",
        "if (!context.x) return; 1",
        // These functions return no value that anyone wants.
        "const show = (x) => x; show(1)",
        "function add(list, x) { return list.push(x) } add([], 1)",
        "async function load() { return 1 } await load(); await null",
        "if (!context.x) return; await main(); async function main() { return 1 }",
    ] {
        assert_eq!((run(code).value(), run(code).log()), (json!(null), String::new()), "{code}");
    }
    let log = |code: &str| run(code).log();
    for code in [
        "const print = (x) => console.log(JSON.stringify(x));\nprint(await myServer.echo({}));",
        "const print = async () => console.log('x'); await print(); await myServer.echo({})",
        "const print = async () => console.log(await myServer.echo({})); await print()",
    ] {
        assert!(!log(code).contains("write `"), "{code}: {}", log(code));
    }
    let other = "async function main() { await myServer.echo({}) }\nmain();\nconst done = () => {};\ndone()";
    assert!(log(other).ends_with("write `return await main()`"), "{}", log(other));
    let awaited = "const go = async () => { myServer.echo({}) };\nawait go()";
    assert!(log(awaited).ends_with("the script returned no value"), "{}", log(awaited));
    assert!(
        log("myServer.echo({})").ends_with("the script returned no value"),
        "{}",
        log("myServer.echo({})")
    );
    let named = "const go = async () => { await null; await myServer.echo({}); };\ngo().catch(console.error)";
    assert!(log(named).ends_with("write `return await go()`"), "{}", log(named));
    let valued = "async function main() { await myServer.echo({}); return 1 }\nmain()";
    assert_eq!(log(valued).lines().count(), 1, "{}", log(valued));
    let nameless = "(async () => { await null; await myServer.echo({}); })()";
    assert!(log(nameless).ends_with("before the call of the function"), "{}", log(nameless));
}

// req: CM-13
#[test]
fn value_of_last_call_is_that_of_a_script_without_return() {
    let declared = "async function main(n = 1) { await myServer.echo({}); return { n } }\n";
    let unawaited = "these calls were not awaited, and ended after the script had returned: `my-server:echo`";
    for (call, n) in [
        ("main();", 1),
        ("main(2).catch(console.error)", 2),
        ("(main());", 1),
        ("!main()", 1),
        ("main().then((x) => x)", 1),
    ] {
        let ran = run(&format!("{declared}{call}"));
        assert_eq!((ran.value(), ran.log()), (json!({ "n": n }), unawaited.into()), "{call}");
    }
    for code in [
        "const go = async () => 1;\ngo().catch(console.error)",
        "(async () => { return 1 })()",
        "function run(a) { return a.a }\nrun({\n  a: 1,\n});",
        "const f = async (a) => { return a };\nawait f(1);",
        "go(); async function go() { await bascule.sleep(2); return 1 }",
        "(async () => { const all = []; setTimeout(() => all.push(1), 5); return { get n() { return all[0] } } })()",
    ] {
        let (value, ran) = (run(code).value(), run(code));
        let value = value.get("n").cloned().unwrap_or(value);
        assert_eq!((value, ran.log()), (json!(1), String::new()), "{code}");
    }
    let error =
        run("async function main() {\n  throw new RangeError('lost');\n  return 1;\n}\nmain()").error();
    assert_eq!(error.message, "lost (in a promise that was not awaited and has no `catch`)");
    let own = run("async function main() { return 1 }\nmain();\nreturn 2");
    assert_eq!(own.value(), json!(2));
    let pending = run("async function main() { await new Promise(() => {}); return 1 }\nmain()");
    assert_eq!(pending.value(), json!(null));
}

// req: CM-13
#[test]
fn value_of_last_call_never_fails_the_script() {
    let circular = "const a = {}; a.a = a; return a";
    let caught =
        "const p = Promise.reject(new RangeError('late')); p.catch(() => {}); return { p }".to_owned();
    for (body, reason) in [
        (
            circular.to_owned(),
            "left out: TypeError: the returned value cannot be converted to JSON: `result.a` refers",
        ),
        ("return () => 1".into(), "is a function"),
        ("return 'x'.repeat(2_000)".into(), "left out: OutputLimitError: the returned value is 2002 bytes"),
        (caught, "the value of the last call was left out: RangeError: late"),
    ] {
        for call in ["main();", "await main()", "main().catch(console.error)"] {
            let code = format!("async function main() {{ await myServer.echo({{}}); {body} }}\n{call}");
            let answer = |_: &_| Some(crate::support::structured(&json!({})));
            let ran = run_with(&code, |init| init.limits.output_bytes = 1_000, answer);
            assert_eq!((ran.value(), ran.calls.len()), (json!(null), 1), "{code}");
            assert!(ran.log().contains(reason), "{code}: {}", ran.log());
        }
        let ran = run(&format!("function main() {{ {} }}\nmain()", body.replace("2_000", "9e6")));
        assert_eq!(ran.value(), json!(null), "{body}");
        let returned = run(&format!("return (() => {{ {} }})()", body.replace("2_000", "9e6")));
        assert!(!returned.completed.success, "{body}");
    }
    // The rejection of the call itself fails the script, and so does one in its value that nothing handles.
    let rejected = "const failing = Promise.reject(new RangeError('lost')); failing.catch(() => {});
        const main = async () => { return await failing };\n";
    for call in ["main()", "await main()"] {
        assert_eq!(run(&format!("{rejected}{call}")).error().name, "RangeError", "{call}");
    }
    let lost = "async function main() { return { p: Promise.reject(new RangeError('lost')) } }\n";
    for call in ["main()", "await main()"] {
        assert_eq!(run(&format!("{lost}{call}")).error().name, "RangeError", "{call}");
    }
}

// req: CM-13
#[test]
fn last_call_that_has_not_ended_is_told() {
    let timed = |code: &str| {
        let answer = |_: &_| Some(crate::support::structured(&json!({})));
        let ran = run_with(code, |init| init.limits.time_ms = 2_000, answer);
        assert_eq!(ran.value(), json!(null), "{code}");
        ran.log()
    };
    let slow = "async function main() { await myServer.echo({}); await bascule.sleep(60_000); return 1 }\n";
    let lost = "the last call had not ended when the script ended, and its value is lost: write `return await main()`";
    let log = timed(&format!("{slow}main();"));
    assert!(log.ends_with(lost), "{log}");
    let inside = "const main = async () => { return { late: bascule.sleep(60_000) } };\nmain();";
    let log = timed(inside);
    assert!(log.contains("promises in the value of the last call had not settled"), "{log}");
    assert!(!timed(&format!("{slow}void main();")).contains("is lost"));
}

// req: CM-13
#[test]
fn void_drops_the_value_of_the_last_call() {
    for call in ["void main()", "(void main());", "void (main())", "void main().catch(console.error)"] {
        let ran = run(&format!("async function main() {{ return 1 }}\n{call}"));
        assert_eq!((ran.value(), ran.log()), (json!(null), String::new()), "{call}");
    }
}

// req: CM-13
#[test]
fn long_wait_for_timers_is_told() {
    let race = "const late = new Promise((_, reject) => setTimeout(() => reject(new Error('late')), 2_500));
        return await Promise.race([myServer.echo({ n: 1 }), late])";
    let ran = run(race);
    assert_eq!(ran.value()["args"]["n"], 1);
    assert!(ran.log().starts_with("the answer waited "), "{}", ran.log());
    let warning = "s for timers after the script had returned: stop them with `clearTimeout`";
    assert!(ran.log().contains(warning), "{}", ran.log());
    let worked = "async function main() { await bascule.sleep(1_100); return 1 }\nmain()";
    assert_eq!((run(worked).value(), run(worked).log()), (json!(1), String::new()));
}

// req: CM-13
#[test]
fn second_argument_of_a_call_is_an_error() {
    for code in [
        "await myServer.echo({ n: 1 }, { timeoutMs: 500 })",
        "await myServer.echo({ n: 1 }, { signal: new AbortController().signal })",
        "await bascule.call('my-server:echo', { n: 1 }, { timeoutMs: 500 })",
        "await bascule.raw(myServer.echo, { n: 1 }, { timeoutMs: 500 })",
    ] {
        let ran = run(code);
        assert_eq!(ran.error().code.as_deref(), Some("INVALID_INPUT"), "{code}");
        let message = ran.error().message;
        assert!(message.starts_with("`my-server:echo` takes one argument"), "{message}");
        assert!(message.contains("`timeoutMs` of the script"), "{message}");
        assert_eq!(ran.calls.len(), 0, "{code}");
    }
    let mapped = run("return (await Promise.all([{ n: 1 }, { n: 2 }].map(myServer.echo))).length");
    assert_eq!((mapped.value(), mapped.calls.len()), (json!(2), 2));
    for each in ["new Set([{ n: 1 }])", "new Map([[{ key: 1 }, { n: 1 }]])"] {
        let ran = run(&format!("{each}.forEach(myServer.echo)"));
        assert_eq!((ran.value(), ran.calls.len()), (json!(null), 1), "{each}");
    }
}
