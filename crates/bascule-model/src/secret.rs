//! A wrapper that keeps secrets out of logs and debug output.

use std::fmt;

use subtle::ConstantTimeEq;

/// A secret value. `Debug` and `Display` print `***`.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Secret<T>(T);

impl<T> Secret<T> {
    pub fn new(value: T) -> Self {
        Self(value)
    }

    /// Returns the secret. Review every use.
    pub fn reveal(&self) -> &T {
        &self.0
    }
}

impl Secret<String> {
    /// Returns true if `presented` is the secret. Takes as long for a nearly right value as for a wrong one. An empty secret
    /// matches nothing.
    pub fn matches(&self, presented: &[u8]) -> bool {
        !self.0.is_empty() && bool::from(self.0.as_bytes().ct_eq(presented))
    }
}

impl<T> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl<T> fmt::Display for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_secret_as_stars() {
        let token = Secret::new("hunter2");
        assert_eq!(format!("{token} {token:?}"), "*** ***");
        assert_eq!(*token.reveal(), "hunter2");
    }

    // req: GW-07
    #[test]
    fn matches_only_the_whole_secret() {
        let token = Secret::new("abc".to_owned());
        assert!(token.matches(b"abc"));
        for wrong in ["", "ab", "abcd", "abd", "xbc", "ABC"] {
            assert!(!token.matches(wrong.as_bytes()), "{wrong}");
        }
        assert!(!Secret::new(String::new()).matches(b""));
    }
}
