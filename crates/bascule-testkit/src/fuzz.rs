//! Feeds a parser with what nobody would send: seeds of what is right, mutated without end until the time is over.
//!
//! There is no feedback from the code under test, for that needs a compiler that is not everybody's. Instead the seeds
//! should reach into every corner, and what came of them is mutated further.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant, UNIX_EPOCH};

/// No input grows beyond this.
const LONGEST: usize = 32 << 10;
/// How many mutants are kept to be mutated further; the next takes the place of another.
const KEPT: usize = 256;

/// What parsers of ours treat specially, or should not.
const MORSELS: [&[u8]; 44] = [
    b"{",
    b"}",
    b"[",
    b"]",
    b"\"",
    b"\\",
    b"\\\"",
    b"\\u0000",
    b"\\ud800",
    b":",
    b",",
    b"null",
    b"true",
    b"-0",
    b"1e400",
    b"9223372036854775808",
    b"\"id\":",
    b"\"method\":",
    b"\"params\":",
    b"\"_meta\":{\"progressToken\":1}",
    b"\"result\":{}",
    b"\"error\":{}",
    b"\"jsonrpc\":\"2.0\"",
    b"\n",
    b"\r",
    b"\r\n",
    b"\r\n\r\n",
    b"data: ",
    b"data",
    b"id: 1\n",
    b"event: endpoint\n",
    b"retry: 99999999999999999999\n",
    b"\xef\xbb\xbf",
    b"\xff",
    b"\0",
    b"content-length: ",
    b"transfer-encoding: chunked\r\n",
    b"host: ",
    b"%",
    b"%00",
    b"../",
    b"bascule://",
    b"\xed\xa0\x80",
    b"\xf0\x9d\x84\x9e",
];

/// Runs `check` on mutants of the seeds for `FUZZ_SECONDS` (by default one) and panics where it does, having shown the
/// input and the chance it came of (`FUZZ_SEED`). Tells how many were tried.
pub fn fuzz(seeds: &[&[u8]], check: impl Fn(&[u8])) -> u64 {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let time = Duration::from_secs(number("FUZZ_SECONDS").unwrap_or(1));
    let now = UNIX_EPOCH.elapsed().map_or(1, |since| since.as_nanos() as u64);
    let seed = number("FUZZ_SEED").unwrap_or(now);
    let mut chance = Chance(seed | 1);
    let mut kept: Vec<Vec<u8>> = seeds.iter().map(|seed| seed.to_vec()).collect();
    let (begin, mut tried) = (Instant::now(), 0);
    seeds.iter().for_each(|seed| attempt(seed, &check, 0));
    while begin.elapsed() < time {
        let mutant = mutate(&kept, &mut chance);
        attempt(&mutant, &check, seed);
        tried += 1;
        match chance.below(16) {
            0 if kept.len() < KEPT => kept.push(mutant),
            // The seeds stay.
            0 => {
                let place = seeds.len() + chance.below(kept.len() - seeds.len());
                kept[place] = mutant;
            }
            _ => {}
        }
    }
    tried
}

fn attempt(input: &[u8], check: &impl Fn(&[u8]), seed: u64) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| check(input))) {
        #[allow(clippy::print_stderr, reason = "a test says what it failed on")]
        {
            eprintln!("FUZZ_SEED={seed}, {} bytes: {}", input.len(), input.escape_ascii());
        }
        resume_unwind(panic);
    }
}

fn mutate(kept: &[Vec<u8>], chance: &mut Chance) -> Vec<u8> {
    let mut bytes = kept[chance.below(kept.len())].clone();
    for _ in 0..=chance.below(8) {
        mutate_once(&mut bytes, kept, chance);
    }
    bytes.truncate(LONGEST);
    bytes
}

fn mutate_once(bytes: &mut Vec<u8>, kept: &[Vec<u8>], chance: &mut Chance) {
    let at = chance.below(bytes.len() + 1);
    let to = (at + chance.below(64)).min(bytes.len());
    match chance.below(8) {
        0 if at < bytes.len() => bytes[at] ^= 1 << chance.below(8),
        1 if at < bytes.len() => bytes[at] = chance.below(256) as u8,
        2 => drop(bytes.drain(at..to)),
        3 => drop(bytes.splice(at..at, bytes[at..to].to_vec())),
        4 => bytes.truncate(at),
        5 => {
            let other = &kept[chance.below(kept.len())];
            let tail = &other[chance.below(other.len() + 1)..];
            bytes.truncate(at);
            bytes.extend_from_slice(tail);
        }
        6 => {
            let morsel = MORSELS[chance.below(MORSELS.len())];
            let times = if chance.below(32) == 0 { 2000 } else { 1 };
            drop(bytes.splice(at..at, morsel.repeat(times)));
        }
        _ => drop(bytes.splice(at..to, MORSELS[chance.below(MORSELS.len())].iter().copied())),
    }
}

/// Marsaglia's xorshift: good enough to be unexpected.
struct Chance(u64);

impl Chance {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % most.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_panics_is_found() {
        let found = catch_unwind(|| {
            fuzz(&[b"abc{def"], |bytes| assert!(bytes.iter().filter(|b| **b == b'{').count() < 3))
        });
        assert!(found.is_err());
    }
}
