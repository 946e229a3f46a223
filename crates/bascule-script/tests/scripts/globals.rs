//! Tests the globals of scripts.

use serde_json::json;

use crate::support::{run, run_with};

// req: CM-06
#[test]
fn console_formats_values() {
    let ran = run("
        console.log('a', 1, { b: [1, 'x'], c: new Map([[1, { d: 2 }]]), e: new Set([1]) }, null, undefined, 1n);
        console.error(new Error('oops').message); console.warn(); console.info('\\ud800');
        const loop = {}; loop.self = loop; console.debug(loop, [[[[[[[1]]]]]]]); console.log(new Date(0), /x/g, () => 1);
        console.log(mcp.github, github.listCommits);");
    let texts: Vec<_> = ran.logs.iter().map(|line| (line.level.as_str(), line.text.as_str())).collect();
    assert_eq!(
        texts[0],
        ("log", "a 1 { b: [ 1, 'x' ], c: Map(1) {1 => { d: 2 }}, e: Set(1) {1} } null undefined 1n")
    );
    assert_eq!(texts[1], ("error", "oops"));
    assert_eq!(texts[2], ("warn", ""));
    assert_eq!(texts[3], ("info", "\u{fffd}"));
    assert_eq!(texts[4], ("debug", "{ self: [Circular] } [ [ [ [ [ [Array] ] ] ] ] ]"));
    assert_eq!(texts[5], ("log", "1970-01-01T00:00:00.000Z /x/g [Function]"));
}

// req: CM-06
#[test]
fn console_output_is_limited() {
    let ran = run_with(
        "for (let n = 0; n < 1000; n++) console.log('line ' + n); return 1",
        |init| init.limits.log_bytes = 100,
        |_| None,
    );
    let wide = "let a = 1; for (let n = 0; n < 6; n++) a = Array(100).fill(a); console.log(a); return 1";
    assert_eq!(run(wide).value(), json!(1));
    assert!(ran.logs.len() < 15);
    assert!(ran.log().contains("more lines"), "{}", ran.log());
    assert_eq!(ran.value(), json!(1));
}

#[test]
fn timers_fire_in_order_and_stop() {
    let ran = run("
        const seen = [];
        setTimeout((a, b) => seen.push(a + b), 2, 'l', 'ate'); setTimeout(() => seen.push('early'), 1);
        const gone = setTimeout(() => seen.push('gone'), 1); clearTimeout(gone);
        let n = 0;
        await new Promise((done) => { const every = setInterval(() => { if (++n === 3) { clearInterval(every); done() } }, 1) });
        await bascule.sleep(3); queueMicrotask(() => seen.push('micro')); await null;
        return [seen, n]");
    assert_eq!(ran.value(), json!([["early", "late", "micro"], 3]));
    assert_eq!(
        run("setTimeout(() => { throw new RangeError('late') }, 1); await new Promise(() => {})")
            .error()
            .name,
        "RangeError"
    );
}

#[test]
fn structured_clone_copies_values() {
    let ran = run("
        const from = { d: new Date(5), m: new Map([['k', { v: 1 }]]), s: new Set([1]), b: new Uint8Array([1, 2]), e: new TypeError('t'), r: /a/i, u: undefined };
        from.self = from;
        const to = structuredClone(from);
        let refused; try { structuredClone(() => 1) } catch (e) { refused = e.name }
        return [to !== from, to.self === to, to.d.getTime(), to.m.get('k').v, to.m !== from.m, to.s.has(1), [...to.b], to.b.buffer !== from.b.buffer,
          to.e instanceof TypeError, String(to.r), 'u' in to, refused]");
    assert_eq!(
        ran.value(),
        json!([true, true, 5, 1, true, true, [1, 2], true, true, "/a/i", true, "DataCloneError"])
    );
}

#[test]
fn parses_and_changes_urls() {
    let ran = run("
        const u = new URL('../x?a=1&b=2#h', 'http://me:pw@ExAmple.com:8080/p/q/');
        u.searchParams.append('c', 'd e'); u.searchParams.delete('a'); u.port = '80'; u.pathname = '/ü';
        const q = new URLSearchParams({ z: '1', y: '2' }); q.sort(); q.set('z', 'ä&');
        let wrong; try { new URL('nope') } catch (e) { wrong = e.name }
        return [u.href, u.host, u.origin, u.search, u.hash, u.username, `${q}`, [...new URLSearchParams('?a=1&a=2').entries()], wrong, URL.canParse('x:y'), JSON.stringify({ u })]");
    let href = "http://me:pw@example.com/%C3%BC?b=2&c=d+e#h";
    assert_eq!(
        ran.value(),
        json!([
            href,
            "example.com",
            "http://example.com",
            "?b=2&c=d+e",
            "#h",
            "me",
            "y=2&z=%C3%A4%26",
            [["a", "1"], ["a", "2"]],
            "TypeError",
            true,
            format!(r#"{{"u":"{href}"}}"#)
        ])
    );
}

#[test]
fn encodes_and_decodes_text() {
    let ran = run("
        const bytes = new TextEncoder().encode('aé€😀');
        const d = new TextDecoder(); let streamed = '';
        for (const b of bytes) streamed += d.decode(new Uint8Array([b]), { stream: true });
        streamed += d.decode();
        let fatal; try { new TextDecoder('utf-8', { fatal: true }).decode(new Uint8Array([255])) } catch (e) { fatal = e.name }
        return [[...bytes], new TextDecoder().decode(bytes), streamed, new TextDecoder().decode(new Uint8Array([0xef, 0xbb, 0xbf, 65, 255])), fatal,
          btoa('hello'), atob('aGVsbG8='), new TextDecoder('utf-16le').decode(new Uint8Array([65, 0])), new TextDecoder().decode(new Uint8Array([65, 66]).buffer)]");
    let bytes = "aé€😀".as_bytes();
    assert_eq!(
        ran.value(),
        json!([bytes, "aé€😀", "aé€😀", "A\u{fffd}", "TypeError", "aGVsbG8=", "hello", "A", "AB"])
    );
}

#[test]
fn provides_random_values_and_time() {
    let ran = run("
        const id = crypto.randomUUID(), bytes = crypto.getRandomValues(new Uint8Array(32));
        return [/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/.test(id), new Set(bytes).size > 4,
          typeof performance.now(), new Date(2020, 0, 2).getDate(), typeof Date.now(), new Date(0).toLocaleString().length > 0]");
    assert_eq!(ran.value(), json!([true, true, "number", 2, "number", true]));
}
