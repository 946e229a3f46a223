//! Fuzz tests: parsing of frames, tool results and scripts never panics or hangs, and chunking does not change frames.
//!
//! Each runs for a second, or for the time that `make fuzz` sets.

use bascule_testkit::fuzz;
use serde_json::value::RawValue;

use crate::argument_keys::ArgumentKeys;
use crate::tool_result::ParsedResult;
use crate::typescript::TranspiledScript;
use crate::wire::{FrameDecoder, FromWorker, ToWorker, WireMessage};

fn frame(body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).expect("seeds are short");
    [&length.to_le_bytes()[..], body].concat()
}

/// Decodes the messages up to the first error.
fn decode<M: WireMessage + std::fmt::Debug>(bytes: &[u8], chunk: usize) -> Vec<String> {
    let (mut frames, mut messages) = (FrameDecoder::default(), Vec::new());
    for chunk in bytes.chunks(chunk.max(1)) {
        frames.feed(chunk);
        loop {
            match frames.next_message::<M>() {
                Ok(Some(message)) => messages.push(format!("{message:?}")),
                Ok(None) => break,
                Err(error) => {
                    messages.push(error.to_string());
                    return messages;
                }
            }
        }
    }
    messages
}

// req: CM-03
#[test]
fn decodes_frames() {
    let bodies: [&[u8]; 7] = [
        br#"{"type":"ready","missing":[]}"#,
        br#"{"type":"rpc_call","id":"s-1","server":"a","tool":"b","args":{"n":1.0}}"#,
        br#"{"type":"console","level":"log","text":"x\u0000"}"#,
        br#"{"type":"execution_complete","success":true,"result":[1,2]}"#,
        br#"{"type":"rpc_result","id":"s-1","success":false,"error":{"code":"X"}}"#,
        br#"{"type":"init","id":"s","name":"a","code":"1","toolDefinitions":[{"server":"a","name":"b"}],"limits":{"timeMs":1,"memoryBytes":1,"outputBytes":1,"logBytes":1,"calls":1}}"#,
        b"{}",
    ];
    let seeds: Vec<Vec<u8>> = bodies.iter().map(|body| [frame(body), frame(bodies[2])].concat()).collect();
    let seeds: Vec<&[u8]> = seeds.iter().map(Vec::as_slice).collect();
    fuzz(&seeds, |bytes| {
        let whole = decode::<FromWorker>(bytes, bytes.len());
        for chunk in [1, 3, 7] {
            assert_eq!(decode::<FromWorker>(bytes, chunk), whole, "in chunks of {chunk}");
        }
        decode::<ToWorker>(bytes, 5);
    });
}

// req: CM-02
#[test]
fn parses_results_and_argument_keys() {
    let seeds: [&[u8]; 4] = [
        br#"{"content":[{"type":"text","text":"{\"a\":1}"}],"structuredContent":null,"isError":true}"#,
        br#"{"content":[{"type":"image","data":"x"}]}"#,
        br#"{"properties":{"per_page":{"items":{"properties":{"a_b":{}}}}}}"#,
        br#"{"perPage":[{"aB":1}],"x":{"y":2}}"#,
    ];
    fuzz(&seeds, |bytes| {
        let Ok(text) = std::str::from_utf8(bytes) else { return };
        ParsedResult::parse(text);
        let schema = serde_json::from_str::<Box<RawValue>>(text).ok();
        let respelled = ArgumentKeys::from_schema(schema.as_deref()).respell(r#"{"perPage":[{"aB":1}]}"#);
        assert!(respelled.is_none_or(|json| serde_json::from_str::<&RawValue>(&json).is_ok()));
        let known = RawValue::from_string(r#"{"properties":{"per_page":{}}}"#.into()).expect("it is JSON");
        if schema.is_some() {
            let respelled = ArgumentKeys::from_schema(Some(&known)).respell(text);
            assert!(respelled.is_none_or(|json| serde_json::from_str::<&RawValue>(&json).is_ok()));
        }
    });
}

// req: CM-06
#[test]
fn transpiles_scripts() {
    let seeds: [&[u8]; 4] = [
        b"enum E { A } namespace N { export const x = 1 } const a: number = <any>1 satisfies T; return a!",
        b"class A<T> { #p?: T; constructor(private x = 1) { super() } get y(): T { return await this.#p } }",
        "import type x from 'y'; for await (const a of b) { label: while (/[/]/u) break label } `${1}é😀`"
            .as_bytes(),
        b"function f<T>(this: T, a?: [x: 1, ...y: 2]): asserts a is T { return <T>(a as unknown) }",
    ];
    // The parser recurses: too deep a script kills a worker, but must not kill the tests.
    let thread = std::thread::Builder::new().stack_size(256 << 20).spawn(move || fuzz(&seeds, transpile));
    thread.expect("a thread can be spawned").join().expect("nothing panics");
}

fn transpile(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match TranspiledScript::from_source(text, &crate::tool_lookup::ToolLookup::default(), &|_| true) {
        Ok(script) => drop(script.origin(3, 5)),
        Err(error) => {
            let lines =
                u32::try_from(text.split(['\n', '\r', '\u{2028}', '\u{2029}']).count()).unwrap_or(u32::MAX);
            assert!(error.position.is_none_or(|position| position.line <= lines), "{error:?}");
        }
    }
}
