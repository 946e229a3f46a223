//! Finds where the tokens and values of JSON text end. Positions are byte offsets.

use memchr::memchr2;

use crate::json_check::{plain_end, skip_space};

/// Strings of up to this many bytes are searched eight bytes at a time, which costs less than a call of `memchr2`.
const SHORT: usize = 64;

/// Returns where the member after this one begins, or where this one ends if it is the last.
pub(super) fn next_member(bytes: &[u8], end: usize) -> usize {
    let comma = skip_space(bytes, end);
    if bytes.get(comma) == Some(&b',') { skip_space(bytes, comma + 1) } else { end }
}

pub(super) fn value_end(bytes: &[u8], at: usize) -> usize {
    match bytes.get(at) {
        Some(b'"') => string_end(bytes, at).0,
        Some(b'{' | b'[') => container_end(bytes, at),
        Some(_) => {
            at + bytes[at..]
                .iter()
                .take_while(|b| !matches!(b, b',' | b']' | b'}' | b' ' | b'\t' | b'\n' | b'\r'))
                .count()
        }
        None => bytes.len(),
    }
}

fn container_end(bytes: &[u8], mut at: usize) -> usize {
    let mut depth = 0usize;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => {
                (at, _) = string_end(bytes, at);
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            _ => {}
        }
        at += 1;
        if depth == 0 {
            break;
        }
    }
    at
}

/// Returns the position behind the closing quote, and whether the string holds an escape.
pub(super) fn string_end(bytes: &[u8], start: usize) -> (usize, bool) {
    let (mut at, mut is_escaped) = (start + 1, false);
    let near = &bytes[..bytes.len().min(start + SHORT)];
    loop {
        at = match bytes.get(at..) {
            Some(rest) if at >= near.len() => at + memchr2(b'"', b'\\', rest).unwrap_or(rest.len()),
            _ => plain_end(near, at),
        };
        match bytes.get(at) {
            Some(b'"') => return (at + 1, is_escaped),
            Some(b'\\') => (at, is_escaped) = (at + 2, true),
            Some(_) => at += 1,
            None => return (bytes.len(), is_escaped),
        }
    }
}

/// Returns true if the quoted key between `start` and `end` spells `key`.
pub(super) fn is_key(json: &str, start: usize, end: usize, is_escaped: bool, key: &str) -> bool {
    if !is_escaped {
        return json.as_bytes().get(start + 1..end - 1) == Some(key.as_bytes());
    }
    // No escape is longer than six times the text it stands for, so no long key is unescaped in vain.
    let lengths = key.len() + 2..=key.len().saturating_mul(6) + 2;
    lengths.contains(&(end - start))
        && json.get(start..end).and_then(unescape).is_some_and(|name| name == key)
}

pub(super) fn unescape(raw: &str) -> Option<String> {
    serde_json::from_str(raw).ok()
}
