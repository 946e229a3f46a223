//! The chain of hashes: the form of a line, and the check of one line after another.
//!
//! A line is a JSON object whose last member is `hash`. The hash is the SHA-256 over the hash of the line before, as 64
//! characters, and the line's own text up to that member. The first line follows 64 zeros.

use ring::digest::{SHA256, digest};

/// Before the hash of a line, and after it.
const BEFORE_HASH: &[u8] = br#","hash":""#;
const AFTER_HASH: &[u8] = br#""}"#;
/// The longest line. The writer keeps every text short.
pub(super) const MAX_LINE: usize = 64 << 10;

/// A hash in hexadecimal digits.
pub(super) type Hash = [u8; 64];

/// A place between two lines of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ChainPosition {
    /// The number of lines before, which is the sequence number of the next one. Interrupted lines do not count.
    pub(super) lines: u64,
    /// The number of bytes before.
    pub(super) bytes: u64,
    /// The hash of the line before.
    pub(super) hash: Hash,
}

impl ChainPosition {
    pub(super) const START: Self = Self { lines: 0, bytes: 0, hash: [b'0'; 64] };

    /// Appends a line with these members to `text`, and moves behind it.
    pub(super) fn seal(&mut self, members: &str, text: &mut Vec<u8>) {
        let begin = text.len();
        text.extend_from_slice(format!(r#"{{"seq":{},{members}"#, self.lines).as_bytes());
        self.hash = chained(&self.hash, &text[begin..]);
        for part in [BEFORE_HASH, &self.hash, AFTER_HASH, b"\n"] {
            text.extend_from_slice(part);
        }
        self.lines += 1;
        self.bytes += (text.len() - begin) as u64;
    }

    /// Checks the next line, which is given without its line break, and moves behind it.
    pub(super) fn check(&mut self, line: &[u8]) -> Result<(), LineFault> {
        let (content, hash) = split(line).ok_or(LineFault::NoLine)?;
        let found = sequence_number(content).ok_or(LineFault::NoLine)?;
        if chained(&self.hash, content) != *hash {
            return Err(match found.cmp(&self.lines) {
                std::cmp::Ordering::Equal => LineFault::Changed,
                std::cmp::Ordering::Greater => LineFault::Missing { expected: self.lines, found },
                std::cmp::Ordering::Less => LineFault::Inserted { expected: self.lines, found },
            });
        }
        if found != self.lines {
            return Err(LineFault::Inserted { expected: self.lines, found });
        }
        self.lines += 1;
        self.bytes += line.len() as u64 + 1;
        self.hash = *hash;
        Ok(())
    }
}

/// The reason why a line does not continue the chain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum LineFault {
    #[error("it is no line of an audit log: it was changed or inserted")]
    NoLine,
    #[error("its hash does not match its content and the line before it: it was changed")]
    Changed,
    #[error("lines are missing before it: it has the sequence number {found}, and {expected} is expected")]
    Missing { expected: u64, found: u64 },
    #[error(
        "it was inserted, moved or repeated: it has the sequence number {found}, and {expected} is expected"
    )]
    Inserted { expected: u64, found: u64 },
}

/// Returns the end of `text` after a line with this hash.
pub(super) fn line_end(hash: &Hash) -> Vec<u8> {
    [BEFORE_HASH, hash, AFTER_HASH, b"\n"].concat()
}

/// Returns the SHA-256 of a text in hexadecimal digits.
pub(super) fn sha256(text: &[u8]) -> Hash {
    encode(digest(&SHA256, text).as_ref())
}

fn chained(before: &Hash, content: &[u8]) -> Hash {
    let mut context = ring::digest::Context::new(&SHA256);
    context.update(before);
    context.update(content);
    encode(context.finish().as_ref())
}

/// Unlike `hexadecimal` it needs no memory: it runs for every line.
fn encode(digest: &[u8]) -> Hash {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut hash = [0; 64];
    for (pair, byte) in hash.chunks_exact_mut(2).zip(digest) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
    hash
}

/// Splits a line into its hashed content and its hash.
fn split(line: &[u8]) -> Option<(&[u8], &Hash)> {
    let (line, hash) = line.strip_suffix(AFTER_HASH)?.split_last_chunk::<64>()?;
    Some((line.strip_suffix(BEFORE_HASH)?, hash))
}

/// The facts about its side file in the first line of a chain.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Opening {
    chain: Option<String>,
    /// The SHA-256 of the key. Logs of earlier versions have none.
    key_sha256: Option<String>,
}

impl Opening {
    /// Returns `None` if this is no line of a log.
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        serde_json::from_slice(line).ok()
    }

    /// Returns true if the side file has the chain and the key of the log.
    pub(super) fn is_of(&self, chain: &str, key: &str) -> bool {
        let is_key = |digest: &String| digest.as_bytes() == sha256(key.as_bytes());
        self.chain.as_deref() == Some(chain) && self.key_sha256.as_ref().is_none_or(is_key)
    }
}

fn sequence_number(content: &[u8]) -> Option<u64> {
    let digits = content.strip_prefix(br#"{"seq":"#)?;
    let end = digits.iter().position(|byte| *byte == b',')?;
    std::str::from_utf8(&digits[..end]).ok()?.parse().ok()
}
