//! Compares globals with those of Node: the same expressions give the same values.

use std::process::Command;

use serde_json::Value;

use crate::support::run;

/// Evaluates the expressions in Node and in a script, and compares the values.
fn compare(setup: &str, expressions: &[String]) {
    let list: String = expressions.iter().map(|expression| format!("async () => ({expression}),")).collect();
    let code = format!(
        "{setup}\nconst out = []; for (const f of [{list}]) {{ try {{ out.push(await f()) }} catch (e) {{ out.push('threw ' + e.name) }} }}"
    );
    let node = Command::new("node")
        .args(["--input-type=module", "-e", &format!("{code}\nconsole.log(JSON.stringify(out))")])
        .env("TZ", "UTC")
        .output()
        .expect("the tests need Node");
    assert!(node.status.success(), "{}", String::from_utf8_lossy(&node.stderr));
    let expected: Vec<Value> = serde_json::from_slice(&node.stdout).unwrap();
    let actual = run(&format!("{code}\nreturn out")).value();
    let differing: Vec<String> = expressions
        .iter()
        .zip(expected.iter().zip(actual.as_array().unwrap()))
        .filter(|(_, (expected, actual))| expected != actual)
        .map(|(expression, (expected, actual))| {
            format!("{expression}\n  node:   {expected}\n  script: {actual}")
        })
        .collect();
    assert!(
        differing.is_empty(),
        "{} of {} differ:\n{}",
        differing.len(),
        expressions.len(),
        differing.join("\n")
    );
}

const LOCALES: [&str; 6] = ["undefined", "'en-US'", "'en-GB'", "'de-DE'", "'fr-FR'", "'de'"];

fn for_each_locale(expressions: &[&str]) -> Vec<String> {
    let per_locale = |locale| expressions.iter().map(move |expression| expression.replace("LOC", locale));
    LOCALES.into_iter().flat_map(per_locale).collect()
}

// req: CM-06
#[test]
fn formats_numbers_as_node() {
    let values = "[0, -0, 1, 5.005, 1.005, 0.1 + 0.2, 999.999, 1234.5, -1234567.891, 123456789012345680000, 0.000123, NaN, -Infinity, 12n]";
    let options = [
        "{}",
        "{ maximumFractionDigits: 2 }",
        "{ minimumFractionDigits: 2, maximumFractionDigits: 2 }",
        "{ maximumFractionDigits: 0 }",
        "{ style: 'percent' }",
        "{ style: 'percent', maximumFractionDigits: 1 }",
        "{ style: 'currency', currency: 'USD' }",
        "{ style: 'currency', currency: 'EUR' }",
        "{ style: 'currency', currency: 'JPY' }",
        "{ style: 'currency', currency: 'CHF' }",
        "{ style: 'currency', currency: 'GBP', currencyDisplay: 'code' }",
        "{ style: 'currency', currency: 'USD', currencyDisplay: 'name' }",
        "{ style: 'currency', currency: 'USD', currencySign: 'accounting' }",
        "{ style: 'currency', currency: 'EUR', maximumFractionDigits: 0 }",
        "{ maximumSignificantDigits: 3 }",
        "{ minimumSignificantDigits: 4 }",
        "{ useGrouping: false }",
        "{ minimumIntegerDigits: 3 }",
        "{ signDisplay: 'always' }",
        "{ signDisplay: 'exceptZero' }",
        "{ notation: 'scientific' }",
        "{ notation: 'engineering' }",
        "{ style: 'unit', unit: 'kilometer-per-hour' }",
        "{ style: 'unit', unit: 'megabyte', unitDisplay: 'narrow' }",
        "{ style: 'unit', unit: 'day', unitDisplay: 'long' }",
    ];
    let formats = options
        .map(|options| format!("{values}.map((n) => new Intl.NumberFormat(LOC, {options}).format(n))"));
    let mut expressions: Vec<&str> = formats.iter().map(String::as_str).collect();
    expressions.extend([
        "(1234567.891).toLocaleString(LOC)",
        "(1234.5).toLocaleString(LOC, { style: 'currency', currency: 'EUR' })",
        "12345678901234567890n.toLocaleString(LOC)",
        "new Intl.NumberFormat(LOC, { style: 'currency', currency: 'USD' }).formatToParts(-1234.5)",
        "[1, 12, 999, 1000, 1500, 1999, 15300, 999_999, 1e6, 1_250_000, 12_345_678, 1e9, 2.5e12].map((n) => new Intl.NumberFormat(LOC, { notation: 'compact' }).format(n))",
        "[1, 12, 999, 1500, 15300, 1e6, 1_250_000, 12_345_678, 1e9, 2.5e12].map((n) => new Intl.NumberFormat(LOC, { notation: 'compact', compactDisplay: 'long' }).format(n))",
        "[1500, 1_250_000].map((n) => new Intl.NumberFormat(LOC, { notation: 'compact', maximumFractionDigits: 2 }).format(n))",
        "[1, 2, 3].map(new Intl.NumberFormat(LOC).format)",
        "Intl.NumberFormat(LOC).format(5)",
    ]);
    let mut expressions = for_each_locale(&expressions);
    expressions.extend(
        [
            "new Intl.NumberFormat('en-US', { style: 'currency' })",
            "new Intl.NumberFormat('en-US', { style: 'x' })",
            "(1).toLocaleString('en-US', { maximumFractionDigits: 200 })",
        ]
        .map(str::to_owned),
    );
    compare("", &expressions);
}

// req: CM-06
#[test]
fn formats_dates_as_node() {
    let setup = "const dates = [new Date('2024-03-05T03:07:09.045Z'), new Date('2024-09-15T15:45:00Z'), new Date('1999-12-31T23:59:59Z'), new Date('2024-07-01T00:30:00Z')];
        const all = (locale, options) => dates.map((d) => d.toLocaleString(locale, options));";
    let options = [
        "undefined",
        "{}",
        "{ year: 'numeric', month: '2-digit', day: '2-digit' }",
        "{ year: 'numeric', month: 'numeric', day: 'numeric' }",
        "{ year: '2-digit', month: 'numeric', day: 'numeric' }",
        "{ year: 'numeric', month: 'short', day: 'numeric' }",
        "{ year: 'numeric', month: 'long', day: 'numeric' }",
        "{ weekday: 'long', year: 'numeric', month: 'long', day: 'numeric' }",
        "{ weekday: 'short', month: 'short', day: 'numeric' }",
        "{ weekday: 'short', year: 'numeric', month: 'numeric', day: 'numeric' }",
        "{ weekday: 'long' }",
        "{ weekday: 'short' }",
        "{ month: 'long' }",
        "{ month: 'short' }",
        "{ month: 'long', year: 'numeric' }",
        "{ month: 'short', day: 'numeric' }",
        "{ month: 'numeric', day: 'numeric' }",
        "{ month: '2-digit', year: 'numeric' }",
        "{ year: 'numeric' }",
        "{ day: 'numeric' }",
        "{ hour: 'numeric' }",
        "{ hour: '2-digit', minute: '2-digit' }",
        "{ hour: 'numeric', minute: '2-digit', second: '2-digit' }",
        "{ hour: '2-digit', minute: '2-digit', hour12: false }",
        "{ hour: '2-digit', minute: '2-digit', hourCycle: 'h23' }",
        "{ hour: 'numeric', minute: 'numeric', hour12: true }",
        "{ minute: '2-digit', second: '2-digit' }",
        "{ hour: 'numeric', minute: 'numeric', second: 'numeric', fractionalSecondDigits: 3 }",
        "{ year: 'numeric', month: '2-digit', day: '2-digit', hour: '2-digit', minute: '2-digit' }",
        "{ year: 'numeric', month: '2-digit', day: '2-digit', hour: '2-digit', minute: '2-digit', second: '2-digit', hour12: false }",
        "{ year: 'numeric', month: 'short', day: 'numeric', hour: 'numeric', minute: '2-digit' }",
        "{ year: 'numeric', month: 'long', day: 'numeric', hour: 'numeric', minute: '2-digit' }",
        "{ weekday: 'long', year: 'numeric', month: 'long', day: 'numeric', hour: 'numeric', minute: '2-digit' }",
        "{ dateStyle: 'full' }",
        "{ dateStyle: 'long' }",
        "{ dateStyle: 'medium' }",
        "{ dateStyle: 'short' }",
        "{ timeStyle: 'short' }",
        "{ timeStyle: 'medium' }",
        "{ timeStyle: 'long' }",
        "{ timeStyle: 'full' }",
        "{ dateStyle: 'medium', timeStyle: 'short' }",
        "{ dateStyle: 'full', timeStyle: 'long' }",
        "{ dateStyle: 'short', timeStyle: 'short' }",
        "{ timeZone: 'America/New_York' }",
        "{ timeZone: 'Asia/Tokyo', dateStyle: 'medium', timeStyle: 'medium' }",
        "{ timeZone: 'Asia/Kolkata', hour: '2-digit', minute: '2-digit', timeZoneName: 'short' }",
        "{ timeZone: 'America/Los_Angeles', hour: 'numeric', minute: '2-digit', timeZoneName: 'short' }",
        "{ timeZone: 'Europe/Berlin', hour: 'numeric', minute: '2-digit', timeZoneName: 'short' }",
        "{ timeZone: 'Europe/London', dateStyle: 'full', timeStyle: 'full' }",
        "{ timeZone: 'America/New_York', dateStyle: 'long', timeStyle: 'long' }",
        "{ timeZone: 'Asia/Kathmandu', hour: 'numeric', minute: 'numeric', timeZoneName: 'longOffset' }",
    ];
    let formats = options.map(|options| format!("all(LOC, {options})"));
    let mut expressions: Vec<&str> = formats.iter().map(String::as_str).collect();
    expressions.extend([
        "dates.map((d) => d.toLocaleDateString(LOC))",
        "dates.map((d) => d.toLocaleTimeString(LOC))",
        "dates.map((d) => d.toLocaleDateString(LOC, { timeZone: 'Pacific/Auckland' }))",
        "dates.map((d) => d.toLocaleTimeString(LOC, { hour: '2-digit', minute: '2-digit' }))",
        "dates.map((d) => d.toLocaleDateString(LOC, { weekday: 'long' }))",
        "dates.map((d) => d.toLocaleTimeString(LOC, { timeZone: 'America/Chicago', timeZoneName: 'short' }))",
        "dates.map((d) => new Intl.DateTimeFormat(LOC).format(d))",
        "new Intl.DateTimeFormat(LOC, { dateStyle: 'medium', timeStyle: 'short', timeZone: 'UTC' }).formatToParts(dates[0])",
        "new Date(NaN).toLocaleString(LOC)",
        "new Intl.DateTimeFormat(LOC, { timeZone: 'europe/paris' }).resolvedOptions().timeZone",
    ]);
    let mut expressions = for_each_locale(&expressions);
    expressions.extend(
        [
            "Intl.DateTimeFormat().resolvedOptions().timeZone",
            "new Date(0).toLocaleString('en-US', { timeZone: 'Nowhere/Land' })",
            "new Intl.DateTimeFormat('en-US').format(new Date(NaN))",
            "dates.map((d) => d.toLocaleDateString('sv-SE'))",
            "dates.map((d) => d.toLocaleString('sv-SE', { timeZone: 'Europe/Stockholm' }))",
            "dates.map((d) => d.toLocaleDateString('en-CA'))",
            "dates.map((d) => d.toLocaleDateString('en-CA', { timeZone: 'America/New_York', year: 'numeric', month: '2-digit', day: '2-digit' }))",
        ]
        .map(str::to_owned),
    );
    compare(setup, &expressions);
}

// req: CM-06
#[test]
fn compares_and_lists_as_node() {
    let expressions = for_each_locale(&[
        "['b', 'a', 'C', 'A', 'c', 'é', 'e', 'É', 'z', 'ä', 'Zebra', 'zebra', '10', '9', '_x', '-y', 'a b', 'ab', 'a-b', 'ß', 'ss', 'øre', 'ore', '', '#1', '1a'].sort((x, y) => x.localeCompare(y, LOC))",
        "['item 10', 'item 9', 'Item 1', 'item 010'].sort((x, y) => x.localeCompare(y, LOC, { numeric: true }))",
        "['a'.localeCompare('A', LOC, { sensitivity: 'base' }), 'a'.localeCompare('á', LOC, { sensitivity: 'base' }), 'a'.localeCompare('á', LOC, { sensitivity: 'accent' }), 'a'.localeCompare('A', LOC, { sensitivity: 'accent' })]",
        "['b', 'a', 'B', 'A'].sort(new Intl.Collator(LOC, { caseFirst: 'upper' }).compare)",
        "[0, 1, 2, 1.5, 21, 1e6].map((n) => new Intl.PluralRules(LOC).select(n))",
        "[1, 2, 3, 4, 11, 12, 13, 21, 22, 103].map((n) => new Intl.PluralRules(LOC, { type: 'ordinal' }).select(n))",
        "[[-1, 'day'], [1, 'days'], [0, 'day'], [-3, 'month'], [2, 'week'], [-1.5, 'hour'], [1000, 'year'], [-1, 'second'], [5, 'minutes']].map(([n, u]) => [new Intl.RelativeTimeFormat(LOC).format(n, u), new Intl.RelativeTimeFormat(LOC, { numeric: 'auto', style: 'short' }).format(n, u)])",
        "[[], ['a'], ['a', 'b'], ['a', 'b', 'c', 'd']].map((l) => [new Intl.ListFormat(LOC).format(l), new Intl.ListFormat(LOC, { type: 'disjunction', style: 'short' }).format(l), new Intl.ListFormat(LOC, { type: 'unit' }).format(l)])",
    ]);
    compare("", &expressions);
}

// req: CM-06
#[test]
fn provides_web_and_node_globals() {
    let setup = "const hex = (b) => [...new Uint8Array(b)].map((x) => x.toString(16).padStart(2, '0')).join(''); const bytes = new TextEncoder().encode('héllo');";
    let expressions = [
        "hex(await crypto.subtle.digest('SHA-256', bytes))",
        "hex(await crypto.subtle.digest({ name: 'sha-1' }, bytes.buffer))",
        "hex(await crypto.subtle.digest('SHA-512', new Uint8Array(0)))",
        "hex(await crypto.subtle.digest('SHA-384', bytes))",
        "await crypto.subtle.digest('MD5', bytes)",
        "['utf8', 'hex', 'base64', 'base64url', 'latin1'].map((e) => Buffer.from('héllo ÿ😀').toString(e))",
        "[Buffer.from('68c3a9', 'hex').toString(), Buffer.from('aMOpIQ==', 'base64').toString('utf8'), Buffer.from('aMOpIQ', 'base64url').toString(), Buffer.from([104, 105]).toString(), Buffer.from('hi', 'utf16le').length]",
        "[Buffer.concat([Buffer.from('a'), Buffer.from('b')]).toString(), Buffer.alloc(3, 'x').toString(), Buffer.byteLength('é'), Buffer.isBuffer(Buffer.from('')), Buffer.from('abc').equals(Buffer.from('abc')), Buffer.from('abcd').slice(1, 3).toString(), Buffer.from('abcd').subarray(-2).toString()]",
        "JSON.stringify(Buffer.from('ab'))",
        "((b) => [b.readUInt8(1), b.readUint8(), b.readInt8(0), b.readUInt16LE(0), b.readUInt16BE(0), b.readInt32LE(2), b.readUInt32BE(1), b.readFloatLE(0), b.readDoubleBE(0), String(b.readBigInt64LE(0)), String(b.readBigUInt64BE(0))])(Buffer.from([254, 2, 3, 4, 5, 6, 7, 8]))",
        "((b) => [b.writeUInt16BE(258, 1), b.writeInt8(-1, 0), b.writeFloatLE(1.5, 4), b.toString('hex')])(Buffer.alloc(8))",
        "Buffer.alloc(1).readUInt16LE(0)",
        "Buffer.from('zz', 'hex').length",
        "Buffer.from('a b\\nc=', 'base64').toString('hex')",
        "Buffer.from('x', 'nope')",
        "await (async () => { const b = new Blob(['a', bytes, new Blob(['z'])], { type: 'Text/Plain' }); return [b.size, b.type, await b.text(), hex(await b.arrayBuffer()), await b.slice(1, 3).text(), await b.slice(-1).text()] })()",
        "(() => { const h = new Headers({ 'Content-Type': 'a', X: 'b' }); h.append('x', 'c'); h.set('A', ' d '); h.delete('nope'); return [[...h], h.get('CONTENT-TYPE'), h.get('none'), h.has('x')] })()",
        "new Headers([['a b', 'c']])",
        "(() => { const c = new AbortController(); const seen = []; c.signal.addEventListener('abort', () => seen.push(c.signal.reason.name)); c.signal.onabort = () => seen.push('on'); c.abort(); c.abort(); return [seen, c.signal.aborted] })()",
        "(() => { const c = new AbortController(); c.abort(new RangeError('r')); try { c.signal.throwIfAborted() } catch (e) { return e.message } })()",
        "(() => { const s = AbortSignal.any([new AbortController().signal, AbortSignal.abort('now')]); return [s.aborted, s.reason] })()",
        // Node would end before the signal's timer, which does not keep it running.
        "await new Promise((done) => { const running = setTimeout(() => {}, 60_000); AbortSignal.timeout(1).addEventListener('abort', (e) => { clearTimeout(running); done(e.target.reason.name) }) })",
        "typeof Intl + typeof Buffer + typeof Blob + ('Intl' in globalThis)",
        "'ABC'.toLocaleLowerCase() + 'abc'.toLocaleUpperCase('en-US')",
    ]
    .map(str::to_owned);
    compare(setup, &expressions);
}

// req: CM-06
#[test]
fn absent_globals_say_what_to_use() {
    for (code, part) in [
        ("new Intl.DisplayNames(['en'], { type: 'region' })", "use a table of names"),
        ("new Intl.Segmenter()", "[...text]"),
        ("new Intl.DateTimeFormat('en').formatRange(0, 1)", "format both ends"),
        ("crypto.createHash('sha256')", "crypto.subtle.digest"),
        ("new Response('x')", "call a tool instead"),
        ("new Intl.NumberFormat('en', { roundingMode: 'floor' })", "round the number"),
    ] {
        let message = run(code).error().message;
        assert!(message.contains(part), "{code}: {message}");
    }
    let ran = run(
        "return [new Date(0).toLocaleString('ja-JP'), (1234.5).toLocaleString('ja-JP'), new Date(0).toLocaleDateString('ja-JP', { month: 'long', year: 'numeric' })]",
    );
    assert_eq!(ran.value(), serde_json::json!(["1970-01-01 00:00:00", "1,234.5", "January 1970"]));
    assert!(ran.log().contains("the locale `ja-JP` is not available"), "{}", ran.log());
    assert_eq!(ran.logs.len(), 1);
    let ran = run(
        "console.group('a'); console.log('b\\nc'); console.groupEnd(); console.count(); console.count(); console.count('x'); console.countReset(); console.count()",
    );
    assert_eq!(ran.log(), "a\n  b\n  c\ndefault: 1\ndefault: 2\nx: 1\ndefault: 1");
}

// req: CM-06
#[test]
fn buffer_searches_and_fills_as_node() {
    let setup = "const b = Buffer.from('hello world, hello'); const bytes = (x) => [...x];";
    let mut expressions: Vec<String> = Vec::new();
    for method in ["indexOf", "lastIndexOf", "includes"] {
        for arguments in [
            "'world'",
            "'ell'",
            "'nope'",
            "''",
            "'', 5",
            "'', 99",
            "'', -99",
            "'hello', 1",
            "'hello', -5",
            "'hello', -99",
            "'hello', 99",
            "'hello', 12",
            "'hello', 13",
            "'hello', 14",
            "'o', 4.9",
            "'hello', null",
            "'hello', {}",
            "'6c6c', 'hex'",
            "'6c6c', 5, 'hex'",
            "'bGxv', 'base64'",
            "Buffer.from('wor')",
            "new Uint8Array([111])",
            "Buffer.alloc(0)",
            "Buffer.alloc(0), 3",
            "111",
            "111 + 256",
            "111, 5",
            "111, -1",
            "0",
            "99.5",
            "'x'.repeat(50)",
            "'é'",
            "'h', 'latin1'",
            "[1]",
            "undefined",
            "'a', 0, 'nope'",
        ] {
            expressions.push(format!("b.{method}({arguments})"));
        }
        for arguments in [
            "'b', 'utf16le'",
            "'b', 1, 'utf16le'",
            "'b', 3, 'ucs2'",
            "Buffer.from('c', 'utf16le'), 0, 'utf16le'",
            "'', 'utf16le'",
        ] {
            expressions.push(format!("Buffer.from('abcb', 'utf16le').{method}({arguments})"));
        }
        expressions.push(format!("Buffer.alloc(0).{method}('a')"));
    }
    for arguments in [
        "'a'",
        "'abc'",
        "''",
        "'é'",
        "'abc', 2",
        "'abc', 2, 4",
        "'abcd', 'hex'",
        "'abcd', 1, 'hex'",
        "'abcd', 1, 3, 'hex'",
        "'zz', 'hex'",
        "7",
        "263",
        "-1",
        "1.9",
        "Buffer.from('xy')",
        "new Uint8Array([1, 2, 3]), 1",
        "Buffer.alloc(0)",
        "'a', 9",
        "'a', -1",
        "'a', 0, 9",
        "'a', 4, 2",
        "true",
        "null",
        "'a', 'nope'",
        "'ab', 'utf16le'",
        "'\\u00ff', 'latin1'",
    ] {
        expressions.push(format!("bytes(Buffer.alloc(7).fill({arguments}))"));
    }
    for arguments in [
        "3, 'a'",
        "4, 'ab', 'hex'",
        "5, 'YWI=', 'base64'",
        "3, ''",
        "3, 7",
        "3, Buffer.from('xy')",
        "0, 'a'",
        "3, 'zz', 'hex'",
        "3, 'a', 'nope'",
    ] {
        expressions.push(format!("bytes(Buffer.alloc({arguments}))"));
    }
    for arguments in [
        "", "3", "3, 1", "3, 1, 3", "6", "0, 5", "0, 6", "-1", "0, -1", "0, 0, -1", "0, 3, 2", "0, 0, 99",
        "1.7, 0.9", "'2'",
    ] {
        let call = format!(
            "((to) => [Buffer.from('abcde').copy(to{}), bytes(to)])(Buffer.alloc(6, '.'))",
            if arguments.is_empty() { String::new() } else { format!(", {arguments}") }
        );
        expressions.push(call);
    }
    expressions.extend(
        [
            "((x) => [x.copy(x, 1), x.toString()])(Buffer.from('abcde'))",
            "((to) => [Buffer.from('abc').copy(to), bytes(to)])(new Uint8Array(2))",
            "Buffer.from('abc').copy([])",
            "[new Buffer(3).length, bytes(new Buffer([1, 2])), new Buffer(new ArrayBuffer(4), 1, 2).length]",
            "bytes(b.subarray(0, 3).map((n) => n + 1))",
        ]
        .map(str::to_owned),
    );
    compare(setup, &expressions);
    let message = run("return new Buffer('abc')").error().message;
    assert!(message.contains("Buffer.from"), "{message}");
}

// req: CM-06
#[test]
fn groups_and_strips_numbers_as_node() {
    let values = "[0, 1, 1.5, 999, 1234, 1234.5, 12345, 123456.7]";
    let mut expressions: Vec<String> = Vec::new();
    for options in [
        "{ useGrouping: 'min2' }",
        "{ useGrouping: 'always' }",
        "{ useGrouping: 'auto' }",
        "{ useGrouping: true }",
        "{ useGrouping: 'true' }",
        "{ useGrouping: 'false' }",
        "{ useGrouping: null }",
        "{ useGrouping: '' }",
        "{ useGrouping: 'x' }",
        "{ notation: 'compact', maximumFractionDigits: 0 }",
        "{ trailingZeroDisplay: 'stripIfInteger', minimumFractionDigits: 2 }",
        "{ trailingZeroDisplay: 'stripIfInteger', style: 'currency', currency: 'EUR' }",
        "{ trailingZeroDisplay: 'auto', minimumFractionDigits: 2 }",
        "{ trailingZeroDisplay: 'x' }",
        "{ roundingPriority: 'auto' }",
        "{ roundingPriority: 'x' }",
    ] {
        expressions.push(format!("{values}.map((n) => new Intl.NumberFormat(LOC, {options}).format(n))"));
    }
    let expressions: Vec<&str> = expressions.iter().map(String::as_str).collect();
    compare("", &for_each_locale(&expressions));
    for priority in ["morePrecision", "lessPrecision"] {
        let message = run(&format!("new Intl.NumberFormat('en', {{ roundingPriority: '{priority}' }})"))
            .error()
            .message;
        assert!(message.contains("round the number"), "{message}");
    }
}

// req: CM-06
#[test]
fn options_of_each_comparison_count() {
    let expressions = for_each_locale(&[
        "['a10', 'a2', 'A2'].sort((x, y) => x.localeCompare(y, LOC, { numeric: true, sensitivity: 'base' }))",
        "[{}, { numeric: true }, { numeric: false }, { sensitivity: 'base' }, { caseFirst: 'upper' }, undefined, { ignorePunctuation: true }].map((o) => ['a10'.localeCompare('a2', LOC, o), 'a'.localeCompare('A', LOC, o), 'a-b'.localeCompare('ab', LOC, o)])",
        "'a'.localeCompare('b', LOC, { sensitivity: 'x' })",
        "'a'.localeCompare('b', ['de-DE'])",
        "['é', 'e', 'f', '\\ud800', '', '\\n', 'A\\tb', 'a b', '007', '7', '~', 'ß'].sort((x, y) => x.localeCompare(y, LOC)).length",
    ]);
    compare("", &expressions);
}

// req: CM-06
#[test]
fn buffers_are_written_as_in_node() {
    let setup = "const written = (bytes, count) => [count, [...bytes]]";
    let mut expressions = Vec::new();
    for arguments in [
        "'abc'",
        "'68c3a9', 'hex'",
        "'YWI=', 'base64'",
        "'abc', 'utf8'",
        "'abc', 2",
        "'abc', 2, 1",
        "'6869', 1, 'hex'",
        "'6869', 1, 1, 'hex'",
        "'abc', 0, 99",
        "'abc', 6, 7",
        "'abcdefghij', 5",
        "'aé😀', 3",
        "'😀', 0, 3",
        "'héé', 0, 4, 'utf16le'",
        "'hé', 1, 'ucs2'",
        "'hé', 0, 3, 'utf16le'",
        "'\\u00ff', 'latin1'",
        "'zz', 'hex'",
        "'', 3",
        "'a', 8",
        "'a', 7",
        "'a', -1",
        "'a', 1.5",
        "'a', 0, 1.5",
        "'a', 0, -1",
        "'a', 'nope'",
        "'a', 0, 'nope'",
        "'a', 0, 1, 'nope'",
        "'a', undefined, 1, 'hex'",
        "'a', undefined",
        "'6869', 0, undefined, 'hex'",
        "'a', 'hex', 1",
        "'a', null",
        "'a', 0, 1, ''",
        "5",
        "undefined",
        "{}",
    ] {
        expressions.push(format!("((b) => written(b, b.write({arguments})))(Buffer.alloc(7, '.'))"));
    }
    compare(setup, &expressions);
}

// req: CM-06
#[test]
fn timers_have_the_functions_of_node() {
    let setup = "const wait = () => new Promise((done) => setTimeout(done, 5))";
    compare(
        setup,
        &[
            "((t) => [t.hasRef(), t.unref() === t, t.hasRef(), t.ref() === t, t.hasRef(), clearTimeout(t), typeof +t])(setTimeout(() => {}, 1))",
            "((t) => [typeof t, typeof `${t}`, clearInterval(t)])(setInterval(() => {}, 1))",
            "await (async () => { let n = 0; const t = setInterval(() => n++, 1); clearTimeout(+t); await wait(); return n })()",
            "await (async () => { let n = 0; const t = setTimeout(() => n++, 1); t.close(); await wait(); return n })()",
            "[clearTimeout(undefined), clearTimeout(null), clearTimeout({}), clearTimeout(99)]",
        ]
        .map(str::to_owned),
    );
}
