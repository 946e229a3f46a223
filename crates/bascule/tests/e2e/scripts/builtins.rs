//! Tests that no builtin of JavaScript kills the confined worker.

use serde_json::json;

use super::{empty_bridge, run_with, value};
use crate::embedded::terminate;

/// Calls and constructs every function that can be reached from the global object, with several arguments and receivers.
const WALK: &str = r"
    const skip = new Set(['console', 'mcp', 'bascule', 'context']);
    const seen = new Set(), functions = [];
    const walk = (o, path) => {
      if ((typeof o !== 'object' && typeof o !== 'function') || o === null || seen.has(o)) return;
      seen.add(o);
      if (typeof o === 'function') functions.push([o, path]);
      for (const key of Reflect.ownKeys(o)) {
        if (path === '' && skip.has(key)) continue;
        let d; try { d = Object.getOwnPropertyDescriptor(o, key) } catch { continue }
        const name = `${path}.${String(key)}`;
        if ('value' in d) walk(d.value, name);
        if (d.get) { walk(d.get, name); try { walk(o[key], name) } catch {} }
        if (d.set) walk(d.set, name);
      }
      try { walk(Object.getPrototypeOf(o), `${path}.[proto]`) } catch {}
    };
    walk(globalThis, '');
    for (const make of [async () => {}, function* () {}, async function* () {}]) { walk(make, 'made'); try { walk(make(), 'made()') } catch {} }
    for (const made of [[][Symbol.iterator](), new Map().entries(), new Set().values(), ''.matchAll(/./g), 'x'[Symbol.iterator](), new URLSearchParams().entries(), new Date(), /x/g, new Error('x'), Promise.resolve()]) walk(made, 'made');
    const receivers = () => [undefined, {}, [3, 1, 2], 'text', 7, new Date(0), /a/g, new Map([[1, 2]]), new Set([1]), new Uint8Array(4), new ArrayBuffer(8), Promise.resolve(1), Symbol('s'), 3n, () => 1, new DataView(new ArrayBuffer(8)), new URL('http://a/b?c=d'), new URLSearchParams('a=1'), new TextDecoder(), new TextEncoder(), new WeakMap(), new Error('x')];
    const inputs = [[], [0], ['a', 1], [{}, {}], [[1, 2], 1], [() => 1, 2], ['%', 'x'], [new Uint8Array(2)], [1n], [new Date(), 'UTC']];
    // These would never return, or end the script.
    const never = /setInterval|setTimeout|setImmediate|Atomics\.wait|\.repeat$|padStart|padEnd/;
    let calls = 0;
    for (const [f, path] of functions) {
      if (never.test(path)) continue;
      for (const input of inputs) {
        for (const self of receivers()) {
          calls++;
          try { const made = Reflect.apply(f, self, input); if (made && typeof made.catch === 'function') made.catch(() => {}) } catch {}
        }
        try { Reflect.construct(f, input) } catch {}
      }
    }
    await bascule.sleep(1);
    return [functions.length, calls]";

// req: CM-01
#[tokio::test]
async fn no_builtin_kills_the_worker() {
    let bridge = empty_bridge().await;
    let outcome = run_with(&bridge, WALK, |request| {
        request.timeout = Some(std::time::Duration::from_secs(100));
    })
    .await;
    let seen = value(&outcome);
    assert!(seen[0].as_u64().unwrap() > 500, "{seen}");
    // The functions that were skipped above.
    let outcome = run_with(
        &bridge,
        "const i = setInterval(() => clearInterval(i), 1); setImmediate(() => {}); await bascule.sleep(3);
         return ['ab'.repeat(3), 'a'.padStart(3), 'a'.padEnd(3), typeof performance.now(), new Date().getTimezoneOffset(), crypto.getRandomValues(new Uint8Array(8)).length]",
        |_| {},
    )
    .await;
    assert_eq!(value(&outcome)[0], json!("ababab"));
    terminate(&bridge).await;
}
