//! The side file of a log: its chain, its key, and the place of its end.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use serde::{Deserialize, Serialize};

use super::chain::ChainPosition;
use crate::hexadecimal::hexadecimal;

/// The side file always has this size: it is replaced by one write, which a killed process does or does not make.
const SIZE: usize = 512;

/// The content of a side file.
pub(super) struct Head {
    /// The random id of the chain.
    pub(super) chain: String,
    /// The key of the digests of arguments.
    pub(super) key: String,
    pub(super) position: ChainPosition,
}

#[derive(Serialize, Deserialize)]
struct Text {
    version: u32,
    chain: String,
    key: String,
    lines: u64,
    bytes: u64,
    hash: String,
}

impl Head {
    /// The head of a new chain.
    pub(super) fn new() -> io::Result<Self> {
        let (mut chain, mut key) = ([0; 16], [0; 32]);
        getrandom::fill(&mut chain).and_then(|()| getrandom::fill(&mut key)).map_err(io::Error::other)?;
        Ok(Self { chain: hexadecimal(&chain), key: hexadecimal(&key), position: ChainPosition::START })
    }

    /// Returns `None` if the file is empty.
    pub(super) fn read(file: &File) -> io::Result<Option<Self>> {
        let mut text = [0; SIZE];
        let length = file.read_at(&mut text, 0)?;
        if length == 0 {
            return Ok(None);
        }
        let damaged = |_| io::Error::new(io::ErrorKind::InvalidData, "the side file is damaged");
        let Text { version, chain, key, lines, bytes, hash } =
            serde_json::from_slice(&text[..length]).map_err(damaged)?;
        let hash = hash.as_bytes().try_into().ok().filter(|_| version == 1);
        let hash =
            hash.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the side file is damaged"))?;
        Ok(Some(Self { chain, key, position: ChainPosition { lines, bytes, hash } }))
    }

    pub(super) fn write(&self, file: &File) -> io::Result<()> {
        let ChainPosition { lines, bytes, hash } = self.position;
        let hash = String::from_utf8_lossy(&hash).into_owned();
        let (chain, key) = (self.chain.clone(), self.key.clone());
        let mut text = serde_json::to_vec(&Text { version: 1, chain, key, lines, bytes, hash })?;
        text.resize(SIZE - 1, b' ');
        text.push(b'\n');
        file.write_all_at(&text, 0)
    }
}
