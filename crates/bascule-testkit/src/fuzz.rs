//! A mutation fuzzer: feeds a parser with mutants of valid seeds until the time is over.
//!
//! It has no coverage feedback, because that needs a nightly compiler. Good seeds replace it, and mutants are mutated
//! further.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant, UNIX_EPOCH};

/// The maximum length of an input.
const MAX_LENGTH: usize = 32 << 10;
/// The maximum number of inputs in the corpus; a new mutant replaces an old one.
const MAX_CORPUS: usize = 256;

/// Strings that parsers treat specially, or must not.
const TOKENS: [&[u8]; 44] = [
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

/// Runs `check` on mutants of the seeds for `FUZZ_SECONDS` (default: 1) and returns their number.
///
/// # Panics
/// If `check` panics. Prints the input and its `FUZZ_SEED` first.
pub fn fuzz(seeds: &[&[u8]], check: impl Fn(&[u8])) -> u64 {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let time = Duration::from_secs(number("FUZZ_SECONDS").unwrap_or(1));
    let now = UNIX_EPOCH.elapsed().map_or(1, |since| since.as_nanos() as u64);
    let seed = number("FUZZ_SEED").unwrap_or(now);
    let mut random = Random(seed | 1);
    let mut corpus: Vec<Vec<u8>> = seeds.iter().map(|seed| seed.to_vec()).collect();
    let (start, mut tried) = (Instant::now(), 0);
    seeds.iter().for_each(|seed| run(seed, &check, 0));
    while start.elapsed() < time {
        let mutant = mutate(&corpus, &mut random);
        run(&mutant, &check, seed);
        tried += 1;
        match random.below(16) {
            0 if corpus.len() < MAX_CORPUS => corpus.push(mutant),
            // Seeds are never replaced.
            0 => {
                let index = seeds.len() + random.below(corpus.len() - seeds.len());
                corpus[index] = mutant;
            }
            _ => {}
        }
    }
    tried
}

fn run(input: &[u8], check: &impl Fn(&[u8]), seed: u64) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| check(input))) {
        #[allow(clippy::print_stderr, reason = "a failing test prints its input")]
        {
            eprintln!("FUZZ_SEED={seed}, {} bytes: {}", input.len(), input.escape_ascii());
        }
        resume_unwind(panic);
    }
}

fn mutate(corpus: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut bytes = corpus[random.below(corpus.len())].clone();
    for _ in 0..=random.below(8) {
        mutate_once(&mut bytes, corpus, random);
    }
    bytes.truncate(MAX_LENGTH);
    bytes
}

fn mutate_once(bytes: &mut Vec<u8>, corpus: &[Vec<u8>], random: &mut Random) {
    let at = random.below(bytes.len() + 1);
    let to = (at + random.below(64)).min(bytes.len());
    match random.below(8) {
        0 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
        1 if at < bytes.len() => bytes[at] = random.below(256) as u8,
        2 => drop(bytes.drain(at..to)),
        3 => drop(bytes.splice(at..at, bytes[at..to].to_vec())),
        4 => bytes.truncate(at),
        5 => {
            let other = &corpus[random.below(corpus.len())];
            let tail = &other[random.below(other.len() + 1)..];
            bytes.truncate(at);
            bytes.extend_from_slice(tail);
        }
        6 => {
            let token = TOKENS[random.below(TOKENS.len())];
            let times = if random.below(32) == 0 { 2000 } else { 1 };
            drop(bytes.splice(at..at, token.repeat(times)));
        }
        _ => drop(bytes.splice(at..to, TOKENS[random.below(TOKENS.len())].iter().copied())),
    }
}

/// Marsaglia's xorshift generator.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % limit.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_a_panicking_input() {
        let found = catch_unwind(|| {
            fuzz(&[b"abc{def"], |bytes| assert!(bytes.iter().filter(|b| **b == b'{').count() < 3))
        });
        assert!(found.is_err());
    }
}
