//! Keeps the end of a stream of unlimited length: the stderr of a server process.

use std::collections::VecDeque;
use std::sync::Mutex;

/// Number of bytes kept.
const KEPT: usize = 8 << 10;

/// A buffer of the last bytes pushed.
#[derive(Debug, Default)]
pub(crate) struct Tail(Mutex<VecDeque<u8>>);

impl Tail {
    /// Appends bytes and drops the oldest.
    pub(crate) fn push(&self, bytes: &[u8]) {
        let bytes = &bytes[bytes.len().saturating_sub(KEPT)..];
        let mut kept = self.0.lock().expect("nothing panics while holding it");
        let excess = (kept.len() + bytes.len()).saturating_sub(KEPT);
        kept.drain(..excess);
        kept.extend(bytes);
    }

    /// Returns the content as text without trailing whitespace.
    pub(crate) fn text(&self) -> String {
        let mut kept = self.0.lock().expect("nothing panics while holding it");
        String::from_utf8_lossy(kept.make_contiguous()).trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: SB-06
    #[test]
    fn only_the_end_is_kept() {
        let tail = Tail::default();
        for n in 0..3000 {
            tail.push(format!("line {n}\n").as_bytes());
        }
        assert!(tail.text().ends_with("line 2999") && tail.text().len() < KEPT);
        tail.push(&vec![b'x'; 5 * KEPT]);
        assert_eq!(tail.text(), "x".repeat(KEPT));
    }
}
