//! The parts that both soak tests share: their settings, random numbers, and the side effects that the demo server counted.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tokio::time::sleep;

/// Reads `SOAK_SECONDS` and `SOAK_SEED`, and prints them.
pub fn settings(default_seconds: u64) -> (Duration, Random) {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seconds = number("SOAK_SECONDS").unwrap_or(default_seconds);
    let seed = number("SOAK_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    println!("{seconds} seconds, SOAK_SEED={seed}");
    (Duration::from_secs(seconds), Random::new(seed))
}

/// Pseudo-random numbers from a seed. A copy repeats them.
#[derive(Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16
    }

    pub fn below(&mut self, most: u64) -> u64 {
        self.next() % most
    }

    /// Returns another sequence that follows from this one.
    pub fn split(&mut self) -> Self {
        Self::new(self.next())
    }

    pub async fn pause(&mut self, most_millis: u64) {
        sleep(Duration::from_millis(self.below(most_millis))).await;
    }
}

/// Adds the side effects in a file of the demo counter, by token.
pub fn count_side_effects(file: &Path, effects: &mut HashMap<usize, u32>) {
    for line in std::fs::read_to_string(file).unwrap().lines() {
        // A server killed during a write may leave half a line, to which the next line is appended.
        let whole = line.rfind(r#"{"by""#).map_or("", |at| &line[at..]);
        let Ok(line) = serde_json::from_str::<Value>(whole) else { continue };
        *effects.entry(line["token"].as_str().unwrap().parse().unwrap()).or_default() += 1;
    }
}
