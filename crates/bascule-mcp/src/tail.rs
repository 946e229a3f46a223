//! Keeps the last bytes of a stream: the stderr of a server's process.

use std::collections::VecDeque;
use std::sync::Mutex;

/// In bytes.
const CAPACITY: usize = 8 << 10;

#[derive(Debug, Default)]
pub(crate) struct Tail(Mutex<VecDeque<u8>>);

impl Tail {
    /// Adds bytes and drops the oldest ones.
    pub(crate) fn push(&self, bytes: &[u8]) {
        let bytes = &bytes[bytes.len().saturating_sub(CAPACITY)..];
        let mut kept = self.0.lock().expect("no code panics while it holds the lock");
        let excess = (kept.len() + bytes.len()).saturating_sub(CAPACITY);
        kept.drain(..excess);
        kept.extend(bytes);
    }

    /// Returns the bytes as text without the trailing line break.
    pub(crate) fn text(&self) -> String {
        let mut kept = self.0.lock().expect("no code panics while it holds the lock");
        String::from_utf8_lossy(kept.make_contiguous()).trim_end().to_owned()
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
}
