//! The built-in table of word pieces and their meaning as vectors.
//!
//! `tools/make-token-table` makes the file from all-MiniLM-L6-v2. The file is used in place: nothing is read or built at start.
//! Layout, little endian: magic, dimensions, pieces, slots (u32 each); the scale of each row (f32); the end of each piece's text
//! (u32); the hash table of piece ids (u16); the texts; the rows (i8).

mod pages;

pub use self::pages::release_table;
use crate::word_pieces::{CONTINUATION, Vocabulary, letter_ends};

static FILE: &[u8] = include_bytes!("../data/token-table.bin");

const MAGIC: &[u8; 4] = b"BTT1";
const HEADER: usize = 16;
/// A slot of the hash table without a piece.
const EMPTY: u16 = u16::MAX;
/// The longest text of a piece in bytes, without the mark of a continuation.
const LONGEST_PIECE: usize = 18;

/// The dimensions, pieces and hash slots of the table.
pub(crate) struct TokenTable {
    dimensions: usize,
    pieces: usize,
    slots: usize,
}

impl TokenTable {
    pub(crate) fn open() -> Self {
        debug_assert_eq!(&FILE[..4], MAGIC);
        let number = |index: usize| read_u32(4 + 4 * index) as usize;
        Self { dimensions: number(0), pieces: number(1), slots: number(2) }
    }

    pub(crate) fn dimensions(&self) -> usize {
        self.dimensions
    }

    fn ends(&self) -> usize {
        HEADER + 4 * self.pieces
    }

    fn slot_table(&self) -> usize {
        self.ends() + 4 * self.pieces
    }

    fn texts(&self) -> usize {
        self.slot_table() + 2 * self.slots
    }

    /// Returns the end of a piece's text within the texts; that of the piece before it is its beginning.
    fn end(&self, piece: usize) -> usize {
        read_u32(self.ends() + 4 * piece) as usize
    }

    fn text(&self, piece: usize) -> &'static [u8] {
        let start = if piece == 0 { 0 } else { self.end(piece - 1) };
        &FILE[self.texts() + start..self.texts() + self.end(piece)]
    }

    /// Returns the vector of a piece and the unit of its numbers.
    pub(crate) fn row(&self, piece: usize) -> (&'static [u8], f32) {
        let rows = self.texts() + self.end(self.pieces - 1);
        let row = &FILE[rows + piece * self.dimensions..][..self.dimensions];
        (row, f32::from_bits(read_u32(HEADER + 4 * piece)))
    }
}

impl Vocabulary for TokenTable {
    fn longest(&self, text: &str, continues: bool) -> Option<(usize, u32)> {
        let prefix = if continues { CONTINUATION.as_bytes() } else { &[] };
        let (mut hash, mut hashed, mut longest) = (fnv_1a(0x811c_9dc5, prefix), 0, None);
        for end in letter_ends(text).take_while(|end| *end <= LONGEST_PIECE) {
            hash = fnv_1a(hash, &text.as_bytes()[hashed..end]);
            hashed = end;
            longest = self.find(hash, prefix, &text[..end]).map(|id| (end, id)).or(longest);
        }
        longest
    }
}

impl TokenTable {
    /// Finds the piece with a prefix and a text by the hash of both.
    fn find(&self, hash: u32, prefix: &[u8], piece: &str) -> Option<u32> {
        let mut slot = hash as usize % self.slots;
        loop {
            let at = self.slot_table() + 2 * slot;
            let id = u16::from_le_bytes([FILE[at], FILE[at + 1]]);
            if id == EMPTY {
                return None;
            }
            if self.text(id.into()).strip_prefix(prefix) == Some(piece.as_bytes()) {
                return Some(id.into());
            }
            slot = (slot + 1) % self.slots;
        }
    }
}

fn fnv_1a(start: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(start, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

fn read_u32(at: usize) -> u32 {
    let bytes = [FILE[at], FILE[at + 1], FILE[at + 2], FILE[at + 3]];
    u32::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: SE-01
    #[test]
    fn table_has_its_stated_size() {
        let table = TokenTable::open();
        let size = table.texts() + table.end(table.pieces - 1) + table.pieces * table.dimensions;
        assert_eq!((size, table.dimensions), (FILE.len(), 256));
        assert!((0..table.pieces).all(|piece| !table.text(piece).is_empty()));
    }

    // req: SE-01
    #[test]
    fn every_piece_is_found_by_its_text() {
        let table = TokenTable::open();
        for piece in 0..table.pieces {
            let text = std::str::from_utf8(table.text(piece)).unwrap();
            let found = match text.strip_prefix(CONTINUATION) {
                Some(rest) => table.longest(rest, true),
                None => table.longest(text, false),
            };
            assert_eq!(found.map(|(_, id)| id), Some(piece as u32), "{text}");
        }
    }
}
