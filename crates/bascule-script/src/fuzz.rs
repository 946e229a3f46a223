//! Whatever bytes come over the worker's socket, from either side, reading them ends and does not panic; and however they
//! are cut, they mean the same.
//!
//! A second each, or as long as `make fuzz` says.

use bascule_testkit::fuzz;
use serde_json::value::RawValue;

use crate::fit::Keys;
use crate::outcome;
use crate::typescript::Translated;
use crate::wire::{Frames, FromWorker, Message, ToWorker};

fn framed(body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).expect("seeds are short");
    [&length.to_le_bytes()[..], body].concat()
}

/// What is read, as far as it can be.
fn read<M: Message + std::fmt::Debug>(bytes: &[u8], piece: usize) -> Vec<String> {
    let (mut frames, mut messages) = (Frames::default(), Vec::new());
    for piece in bytes.chunks(piece.max(1)) {
        frames.feed(piece);
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
fn frames() {
    let bodies: [&[u8]; 7] = [
        br#"{"type":"ready","missing":[]}"#,
        br#"{"type":"rpc_call","id":"s-1","server":"a","tool":"b","args":{"n":1.0}}"#,
        br#"{"type":"console","level":"log","text":"x\u0000"}"#,
        br#"{"type":"execution_complete","success":true,"result":[1,2]}"#,
        br#"{"type":"rpc_result","id":"s-1","success":false,"error":{"code":"X"}}"#,
        br#"{"type":"init","id":"s","name":"a","code":"1","toolDefinitions":[{"server":"a","name":"b"}],"limits":{"timeMs":1,"memoryBytes":1,"outputBytes":1,"logBytes":1}}"#,
        b"{}",
    ];
    let seeds: Vec<Vec<u8>> = bodies.iter().map(|body| [framed(body), framed(bodies[2])].concat()).collect();
    let seeds: Vec<&[u8]> = seeds.iter().map(Vec::as_slice).collect();
    fuzz(&seeds, |bytes| {
        let whole = read::<FromWorker>(bytes, bytes.len());
        for piece in [1, 3, 7] {
            assert_eq!(read::<FromWorker>(bytes, piece), whole, "in pieces of {piece}");
        }
        read::<ToWorker>(bytes, 5);
    });
}

// req: CM-02
#[test]
fn what_tools_answer_and_are_given() {
    let seeds: [&[u8]; 4] = [
        br#"{"content":[{"type":"text","text":"{\"a\":1}"}],"structuredContent":null,"isError":true}"#,
        br#"{"content":[{"type":"image","data":"x"}]}"#,
        br#"{"properties":{"per_page":{"items":{"properties":{"a_b":{}}}}}}"#,
        br#"{"perPage":[{"aB":1}],"x":{"y":2}}"#,
    ];
    fuzz(&seeds, |bytes| {
        let Ok(text) = std::str::from_utf8(bytes) else { return };
        outcome::read(text);
        let schema = serde_json::from_str::<Box<RawValue>>(text).ok();
        let fitted = Keys::of(schema.as_deref()).fit(r#"{"perPage":[{"aB":1}]}"#);
        assert!(fitted.is_none_or(|fitted| serde_json::from_str::<&RawValue>(&fitted).is_ok()));
        let known = RawValue::from_string(r#"{"properties":{"per_page":{}}}"#.into()).expect("it is JSON");
        if schema.is_some() {
            let fitted = Keys::of(Some(&known)).fit(text);
            assert!(fitted.is_none_or(|fitted| serde_json::from_str::<&RawValue>(&fitted).is_ok()));
        }
    });
}

// req: CM-06
#[test]
fn texts_of_scripts() {
    let seeds: [&[u8]; 4] = [
        b"enum E { A } namespace N { export const x = 1 } const a: number = <any>1 satisfies T; return a!",
        b"class A<T> { #p?: T; constructor(private x = 1) { super() } get y(): T { return await this.#p } }",
        "import type x from 'y'; for await (const a of b) { label: while (/[/]/u) break label } `${1}é😀`"
            .as_bytes(),
        b"function f<T>(this: T, a?: [x: 1, ...y: 2]): asserts a is T { return <T>(a as unknown) }",
    ];
    // Parsers recurse: what is too deep for the worker's stack ends the worker, but must not end the tests.
    let tried = std::thread::Builder::new().stack_size(256 << 20).spawn(move || fuzz(&seeds, translate));
    tried.expect("a thread can be had").join().expect("nothing panics");
}

fn translate(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match Translated::of(text) {
        Ok(translated) => drop(translated.origin(3, 5)),
        Err(error) => {
            let lines =
                u32::try_from(text.split(['\n', '\r', '\u{2028}', '\u{2029}']).count()).unwrap_or(u32::MAX);
            assert!(error.place.is_none_or(|place| place.line <= lines), "{error:?}");
        }
    }
}
