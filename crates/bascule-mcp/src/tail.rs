//! Keeps the last bytes of a stream: the stderr of a server's process.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

/// In bytes.
const CAPACITY: usize = 8 << 10;

#[derive(Debug, Default)]
pub(crate) struct Tail(Mutex<KeptBytes>);

#[derive(Debug, Default)]
struct KeptBytes {
    bytes: VecDeque<u8>,
    /// The number of all bytes so far.
    total: u64,
}

impl Tail {
    /// Adds bytes and drops the oldest ones.
    pub(crate) fn push(&self, bytes: &[u8]) {
        let mut kept = self.kept();
        kept.total += bytes.len() as u64;
        let bytes = &bytes[bytes.len().saturating_sub(CAPACITY)..];
        let excess = (kept.bytes.len() + bytes.len()).saturating_sub(CAPACITY);
        kept.bytes.drain(..excess);
        kept.bytes.extend(bytes);
    }

    /// Returns the bytes as text without the trailing line break.
    pub(crate) fn text(&self) -> String {
        self.text_after(0)
    }

    /// Returns the number of all bytes so far.
    pub(crate) fn position(&self) -> u64 {
        self.kept().total
    }

    /// Returns the bytes after a position as text without the trailing line break, as far as they are kept.
    pub(crate) fn text_after(&self, position: u64) -> String {
        let mut kept = self.kept();
        let count = usize::try_from(kept.total.saturating_sub(position)).unwrap_or(usize::MAX);
        let bytes = kept.bytes.make_contiguous();
        let bytes = &bytes[bytes.len().saturating_sub(count)..];
        String::from_utf8_lossy(bytes).trim_end().to_owned()
    }

    fn kept(&self) -> MutexGuard<'_, KeptBytes> {
        self.0.lock().expect("no code panics while it holds the lock")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: SB-06
    #[test]
    fn keeps_only_the_end() {
        let tail = Tail::default();
        for n in 0..3000 {
            tail.push(format!("line {n}\n").as_bytes());
        }
        assert!(tail.text().ends_with("line 2999") && tail.text().len() < CAPACITY);
        tail.push(&vec![b'x'; 5 * CAPACITY]);
        assert_eq!(tail.text(), "x".repeat(CAPACITY));
    }

    // req: SB-09
    #[test]
    fn returns_the_bytes_after_a_position() {
        let tail = Tail::default();
        tail.push(b"before\n");
        let position = tail.position();
        assert_eq!(tail.text_after(position), "");
        tail.push(b"after\n");
        assert_eq!(tail.text_after(position), "after");
        assert_eq!(tail.text_after(u64::MAX), "", "of an earlier process");
        tail.push(&vec![b'x'; 5 * CAPACITY]);
        assert_eq!(tail.text_after(position).len(), CAPACITY);
    }
}
