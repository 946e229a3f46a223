//! Tests scripts that attack the prelude. The end-to-end tests of the program cover attacks on the process and the machine.

use serde_json::json;

use crate::support::{run, run_with, structured};

/// Replaces every method of every builtin by one that throws.
const PATCH_EVERYTHING: &str = "
    const seen = new Set(), keep = { add: Set.prototype.add, has: Set.prototype.has, names: Reflect.ownKeys, desc: Object.getOwnPropertyDescriptor, def: Object.defineProperty, call: Reflect.apply, proto: Object.getPrototypeOf };
    const boom = () => { throw new Error('patched') };
    const todo = [globalThis]; const owners = [];
    let at = 0;
    while (at < todo.length) {
      const o = todo[at++];
      if ((typeof o !== 'object' && typeof o !== 'function') || o === null || keep.call(keep.has, seen, [o])) continue;
      keep.call(keep.add, seen, [o]);
      owners[owners.length] = o;
      const names = keep.names(o);
      for (let n = 0; n < names.length; n++) {
        if (names[n] === 'mcp' || names[n] === 'github' || names[n] === 'context' || names[n] === 'myServer' || names[n] === 'twins' || names[n] === 'gone' || names[n] === 'bascule') continue;
        let d; try { d = keep.desc(o, names[n]) } catch { continue }
        if (d && 'value' in d) todo[todo.length] = d.value;
        if (d && d.get) todo[todo.length] = d.get;
      }
      todo[todo.length] = keep.proto(o);
    }
    for (let k = 0; k < owners.length; k++) {
      const names = keep.names(owners[k]);
      for (let n = 0; n < names.length; n++) {
        let d; try { d = keep.desc(owners[k], names[n]) } catch { continue }
        if (d && d.configurable && typeof d.value === 'function' && names[n] !== 'constructor') {
          try { keep.def(owners[k], names[n], { value: boom, writable: true, configurable: true }) } catch {}
        }
      }
    }";

// req: CM-09
#[test]
fn prelude_survives_patched_prototypes() {
    let code = format!(
        "const g = mcp.github, c = console.log;\n{PATCH_EVERYTHING}\nc('after'); return (await g.listCommits({{ perPage: 1 }})).args.per_page"
    );
    let ran = run(&code);
    assert_eq!(ran.value(), json!(1));
    assert_eq!(ran.log(), "after");
    let code = format!(
        "const g = mcp.github;\n{PATCH_EVERYTHING}\ntry {{ await g.getSum({{}}) }} catch (e) {{ return [e.code, e.message, e.stack] }}"
    );
    let ran = run_with(&code, |_| {}, |_| Some(Err(json!({ "code": "CANCELLED", "message": "m" }))));
    assert_eq!(ran.value()[0], "CANCELLED", "{}", ran.value());
    let code = format!("{PATCH_EVERYTHING}\nthrow new TypeError('x')");
    assert_eq!(run(&code).error().name, "TypeError");
}

// req: CM-09
#[test]
fn polluted_prototypes_do_not_affect_calls() {
    let ran = run("
        Object.prototype.evil = 1; Object.prototype.then = undefined; Array.prototype[0] = 'x'; Object.prototype.server = 'other';
        Object.defineProperty(Object.prototype, 'get', { value: 1 });
        return (await github.listCommits({ repo: 'a' })).args");
    assert_eq!(ran.value(), json!({ "repo": "a" }));
    assert_eq!((ran.calls[0].server.as_str(), ran.calls[0].tool.as_str()), ("github", "list_commits"));
}

// req: CM-05, CM-09
#[test]
fn polluted_prototypes_do_not_affect_errors() {
    let pollute = "Object.prototype.retryable = true; Object.prototype.data = 1; Object.prototype.providerError = { data: 2 };
        Object.defineProperty(Object.prototype, 'code', { value: 1, writable: false });
        let frozen = false; try { Object.setPrototypeOf(MCPToolError, class { constructor() { return {} } }) } catch { frozen = true }
        try { await github.listCommits({}) } catch (e) { return [e instanceof MCPToolError, e.code, e.retryable, e.data.attempts, frozen] }";
    let error = json!({ "code": "CANCELLED", "message": "m", "retryable": false, "attempts": 3 });
    let ran = run_with(pollute, |_| {}, |_| Some(Err(error.clone())));
    assert_eq!(ran.value(), json!([true, "CANCELLED", false, 3, true]));
    assert_eq!(run("throw new MCPToolError('mine')").error().name, "MCPToolError");
}

// req: CM-09
#[test]
fn reserved_names_are_never_tools() {
    for name in ["__proto__", "constructor", "prototype", "toString"] {
        let ran = run(&format!("return typeof mcp.github.{name}"));
        assert_eq!(ran.value(), "undefined", "{name}");
    }
    // The id works for every name.
    assert_eq!(run("return (await bascule.call('github:then', {})).tool").value(), "then");
}

#[test]
fn endless_recursion_throws() {
    let ran = run("const f = () => f(); try { f() } catch (e) { return e.name }");
    assert!(["RangeError", "InternalError"].contains(&ran.value().as_str().unwrap()));
    let ran = run("let a = []; for (let n = 0; n < 1e5; n++) a = [a]; return a");
    assert!(!ran.completed.success);
}

#[test]
fn thousand_concurrent_calls_all_return() {
    let ran = run_with(
        "const all = await Promise.all(Array.from({ length: 1000 }, (_, n) => myServer.echo({ n }))); return all.reduce((a, b) => a + b, 0)",
        |_| {},
        |call| Some(structured(&serde_json::from_str::<serde_json::Value>(call.args.get()).unwrap()["n"])),
    );
    assert_eq!(ran.value(), json!(499_500));
    assert_eq!(ran.calls.len(), 1000);
}

// req: CM-09
#[test]
fn errors_do_not_expose_prelude() {
    let dive = "const seen = []; const dive = (n) => { try { dive(n + 1) } catch {} try { github.listCommits({}).catch(() => {}) } catch {} };
        try { dive(0) } catch {}
        const look = (stack) => seen.push(typeof stack);
        look(new Error('x').stack); const o = {}; Error.captureStackTrace(o); look(o.stack);
        return [seen, typeof Error.prepareStackTrace]";
    let ran = run(dive);
    assert_eq!(ran.value(), json!([["string", "string"], "undefined"]));
}

// req: CM-03
#[test]
fn cannot_forge_error_codes() {
    for code in [
        "throw Object.assign(new Error('x'), { code: 'PROVIDER_CRASHED' })",
        "throw new MCPToolError('x', { server: 's', tool: 't', code: 'POLICY_DENIED', retryable: true })",
        "throw new (class extends MCPToolError {})('x', { code: 'TIME_LIMIT' })",
        "class E extends Error { get code() { return 'SANDBOX_VIOLATION' } } throw new E('x')",
        "Object.prototype.code = 'CANCELLED'; throw new Error('x')",
        "WeakMap.prototype.get = () => 'CANCELLED'; throw new Error('x')",
    ] {
        let error = run(code).error();
        assert_eq!((error.code, error.tool_name, error.retryable), (None, None, None), "{code}");
    }
    let own = run("throw Object.assign(new Error('x'), { code: 'MINE' })").error();
    assert_eq!(own.code.as_deref(), Some("MINE"));
}
