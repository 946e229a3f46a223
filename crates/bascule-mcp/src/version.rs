//! The MCP protocol versions that this crate supports.

use std::fmt;

/// The versions that begin with `initialize`. Ordered: later is greater.
///
/// Version 2026-07-28 has no `initialize`, and every request carries its version. It will have a type of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names are the dates")]
pub enum ProtocolVersion {
    V2024_11_05,
    V2025_03_26,
    V2025_06_18,
    V2025_11_25,
}

/// The server chose a version that this crate does not support.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the server uses MCP `{theirs}`, the client offered `{ours}` (supported: {})", supported())]
pub struct UnknownVersion {
    pub theirs: String,
    pub ours: ProtocolVersion,
}

impl ProtocolVersion {
    /// Oldest first.
    pub const ALL: [Self; 4] = [Self::V2024_11_05, Self::V2025_03_26, Self::V2025_06_18, Self::V2025_11_25];
    /// The version that the client offers.
    pub const LATEST: Self = Self::V2025_11_25;

    /// Returns the date that stands for the version in messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
        }
    }

    /// Checks the server's response to an offer of `LATEST`.
    pub fn negotiate(theirs: &str) -> Result<Self, UnknownVersion> {
        let unknown = || UnknownVersion { theirs: theirs.chars().take(40).collect(), ours: Self::LATEST };
        Self::ALL.into_iter().find(|v| v.as_str() == theirs).ok_or_else(unknown)
    }
}

impl fmt::Display for ProtocolVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

fn supported() -> String {
    ProtocolVersion::ALL.map(|v| format!("`{v}`")).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: BR-02
    #[test]
    fn accepts_every_version_with_initialize() {
        for version in ProtocolVersion::ALL {
            assert_eq!(ProtocolVersion::negotiate(version.as_str()), Ok(version));
        }
    }

    // req: BR-02
    #[test]
    fn names_both_versions_in_the_error() {
        let error = ProtocolVersion::negotiate("1999-01-01").unwrap_err().to_string();
        assert!(error.contains("1999-01-01") && error.contains("2025-11-25"), "{error}");
    }
}
