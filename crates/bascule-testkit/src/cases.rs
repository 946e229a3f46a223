//! How often a property is tried where one case takes long.

/// The usual number of cases, and as many times more as `PROPTEST_CASES` asks for beyond its own usual 256.
pub fn cases(usual: u32) -> u32 {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|asked| asked.parse::<u32>().ok());
    asked.map_or(usual, |asked| usual.saturating_mul(asked.div_ceil(256).max(1)))
}
