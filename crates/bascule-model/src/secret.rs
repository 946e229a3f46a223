//! A wrapper that keeps secrets out of logs and debug output.

use std::fmt;

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
}
