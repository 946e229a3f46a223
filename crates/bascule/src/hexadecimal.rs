//! Bytes as text.

use ring::digest::{SHA256, digest};

/// Returns the bytes as lower-case hexadecimal digits.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

/// Returns the SHA-256 of the bytes as hexadecimal digits.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    hexadecimal(digest(&SHA256, bytes).as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_two_digits_for_each_byte() {
        assert_eq!(hexadecimal(&[0, 9, 0xa0, 0xff]), "0009a0ff");
    }
}
