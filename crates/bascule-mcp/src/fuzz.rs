//! Fuzz tests: for any bytes the parsers return without a panic and keep their invariants.
//!
//! Each runs for a second, or for the time that `make fuzz` sets.

use std::cell::Cell;

use bascule_testkit::fuzz;
use serde_json::value::RawValue;

use crate::scan::Scan;
use crate::sse::{EventReader, SseEvent};
use crate::{Message, RpcError, parse_qualified_uri, patch, qualify_uri};

const MESSAGES: [&[u8]; 8] = [
    br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"n":1.0},"_meta":{"progressToken":"p"}}}"#,
    br#"{"jsonrpc":"2.0","id":"\u0061","result":{"content":[{"type":"text","text":"x\n\ud800"}],"n":1e400}}"#,
    br#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000.0,"message":"no","data":[[[[{}]]]]}}"#,
    br#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":0.5}}"#,
    br#" { "a" : { "a" : { "b" : 1 , "b" : [ ] } } , "a" : null , "_meta":null}"#,
    br#"[{"jsonrpc":"2.0","method":"x"}]"#,
    b"{}",
    b"",
];

const STREAMS: [&[u8]; 5] = [
    b"event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n",
    b"\xef\xbb\xbf: hello\r\nid: 7\r\nretry: 10\r\ndata: a\r\ndata:b\r\n\r\n",
    b"event: endpoint\ndata: /messages?x=1\n\ndata\n\nid\n\n",
    b"data: a\rdata: b\r\r",
    b"data: {\"id\":1,\"result\":\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"}\n\n",
];

const PATHS: [&[&str]; 6] =
    [&[], &["a"], &["id"], &["a", "b"], &["params", "_meta", "progressToken"], &["a", "a", "b"]];

// req: GW-03
#[test]
fn envelopes() {
    let read = Cell::new(0);
    let tried = fuzz(&MESSAGES, |bytes| {
        let Ok(message) = Message::parse(bytes) else { return };
        read.set(read.get() + 1);
        let is_part = |raw: &RawValue| bytes.as_ptr_range().contains(&raw.get().as_ptr());
        match message {
            Message::Request { params, .. } | Message::Notification { params, .. } => {
                assert!(params.is_none_or(is_part), "params are borrowed");
            }
            Message::Response { outcome: Ok(result), .. } => assert!(is_part(result)),
            Message::Response { outcome: Err(error), .. } => {
                RpcError::parse(error);
            }
        }
    });
    assert!(read.get() > 0 && tried > 100, "{tried} tried, {} of them messages", read.get());
}

// req: GW-03
#[test]
fn patches() {
    fuzz(&MESSAGES, |bytes| {
        let Ok(text) = std::str::from_utf8(bytes) else { return };
        // For anything but JSON the result has no meaning.
        let is_json = serde_json::from_str::<&RawValue>(text).is_ok();
        for path in PATHS {
            let (found, inserted) = (patch::find(text, path), patch::insert(text, path, "\"new\""));
            let removed = patch::remove(text, path);
            patch::find_string(text, path);
            patch::find_elements(text, path);
            if !is_json {
                continue;
            }
            for changed in [&inserted, &removed] {
                assert!(serde_json::from_str::<&RawValue>(changed).is_ok(), "{path:?}: {changed}");
            }
            if found.is_some() {
                assert_eq!(patch::find(&inserted, path), Some("\"new\""), "{path:?}: {inserted}");
            }
            if !path.is_empty() && text.trim_ascii_start().starts_with('{') {
                assert_eq!(patch::find(&inserted, path), Some("\"new\""), "{path:?}: {inserted}");
                assert_eq!(patch::find(&removed, path), None, "{path:?}: {removed}");
            }
        }
    });
}

fn events(bytes: &[u8], piece: usize, limit: usize) -> Vec<SseEvent> {
    let (mut reader, mut events) = (EventReader::new(limit), Vec::new());
    bytes.chunks(piece).for_each(|bytes| reader.feed(bytes, |event| events.push(event)));
    events
}

// req: GW-03
#[test]
fn event_streams() {
    fuzz(&STREAMS, |bytes| {
        for limit in [64, 1 << 20] {
            let whole = events(bytes, bytes.len().max(1), limit);
            for piece in [1, 2, 7] {
                assert_eq!(events(bytes, piece, limit), whole, "in pieces of {piece}, {limit} bytes at most");
            }
            for event in whole {
                let SseEvent::Data(data) = event else { continue };
                assert!(data.len() <= limit);
            }
        }
    });
}

// req: GW-03
#[test]
fn overlong_messages() {
    fuzz(&MESSAGES, |bytes| {
        let outcome = |piece: usize| {
            let mut scan = Scan::default();
            bytes.chunks(piece).for_each(|bytes| scan.feed(bytes));
            scan.finish()
        };
        assert_eq!(outcome(1), outcome(bytes.len().max(1)));
    });
}

// req: GW-02
#[test]
fn qualified_uris() {
    let seeds: [&[u8]; 3] = [b"bascule://docs/file:///a%20b", b"bascule://a%2Fb/x", b"bascule:///"];
    fuzz(&seeds, |bytes| {
        let Ok(text) = std::str::from_utf8(bytes) else { return };
        if let Some((server, uri)) = parse_qualified_uri(text) {
            assert_eq!(qualify_uri(&server, &uri), text);
        }
    });
}
