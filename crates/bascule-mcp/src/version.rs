//! Protocol revisions of MCP.

use std::fmt;

/// The protocol revisions that begin with `initialize`. Later revisions compare greater.
///
/// Revision 2026-07-28 has no `initialize`, and every request carries its version. It needs a type of its own, not
/// another variant here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names are the dates")]
pub enum ProtocolVersion {
    V2024_11_05,
    V2025_03_26,
    V2025_06_18,
    V2025_11_25,
}

/// The server chose a revision that is not supported.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the server speaks MCP `{theirs}`, and we offered `{ours}` (understood are {})", understood())]
pub struct UnknownVersion {
    /// The revision chosen by the server.
    pub theirs: String,
    /// The revision offered to the server.
    pub ours: ProtocolVersion,
}

impl ProtocolVersion {
    /// All supported revisions, oldest first.
    pub const ALL: [Self; 4] = [Self::V2024_11_05, Self::V2025_03_26, Self::V2025_06_18, Self::V2025_11_25];
    /// The revision offered in `initialize`.
    pub const LATEST: Self = Self::V2025_11_25;

    /// Returns the date that identifies the revision on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
        }
    }

    /// Parses the server's response to an offer of `LATEST`.
    pub fn agree(theirs: &str) -> Result<Self, UnknownVersion> {
        let unknown = || UnknownVersion { theirs: theirs.chars().take(40).collect(), ours: Self::LATEST };
        Self::ALL.into_iter().find(|v| v.as_str() == theirs).ok_or_else(unknown)
    }
}

impl fmt::Display for ProtocolVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

fn understood() -> String {
    ProtocolVersion::ALL.map(|v| format!("`{v}`")).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: BR-02
    #[test]
    fn every_revision_with_initialize_is_understood() {
        for version in ProtocolVersion::ALL {
            assert_eq!(ProtocolVersion::agree(version.as_str()), Ok(version));
        }
    }

    // req: BR-02
    #[test]
    fn a_refusal_names_both_versions() {
        let said = ProtocolVersion::agree("1999-01-01").unwrap_err().to_string();
        assert!(said.contains("1999-01-01") && said.contains("2025-11-25"), "{said}");
    }
}
