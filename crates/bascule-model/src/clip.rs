//! Cuts a text that may be too long.

/// Returns the longest beginning of a text that has at most `max_bytes` bytes and ends with a whole character.
pub fn clip(text: &str, max_bytes: usize) -> &str {
    &text[..text.floor_char_boundary(max_bytes)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_whole_characters() {
        assert_eq!([clip("aé", 2), clip("aé", 3), clip("aé", 9), clip("", 0)], ["a", "aé", "aé", ""]);
    }
}
