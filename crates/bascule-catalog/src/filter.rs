//! The tool filter of a server, from `allowedTools` and `deniedTools`.

use crate::NamePattern;

/// Denied patterns win. Without an allow-list every tool is allowed; an empty list allows none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolFilter {
    pub allowed: Option<Vec<NamePattern>>,
    pub denied: Vec<NamePattern>,
}

impl ToolFilter {
    /// Returns true if the tool may be listed and called.
    pub fn is_allowed(&self, tool: &str) -> bool {
        let allowed = self.allowed.as_ref().is_none_or(|allowed| any_matches(allowed, tool));
        allowed && !self.is_denied(tool)
    }

    /// Returns true if a denied pattern matches.
    pub fn is_denied(&self, tool: &str) -> bool {
        any_matches(&self.denied, tool)
    }
}

fn any_matches(patterns: &[NamePattern], tool: &str) -> bool {
    patterns.iter().any(|pattern| pattern.matches(tool))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn filter(allowed: Option<&[&str]>, denied: &[&str]) -> ToolFilter {
        let parse = |texts: &[&str]| texts.iter().map(|text| NamePattern::parse(text)).collect();
        ToolFilter { allowed: allowed.map(parse), denied: parse(denied) }
    }

    // req: BR-01
    #[test]
    fn allows_everything_without_lists() {
        assert!(ToolFilter::default().is_allowed("anything"));
    }

    // req: BR-01
    #[test]
    fn allow_list_allows_only_matching_tools() {
        let filter = filter(Some(&["read_*", "list"]), &[]);
        assert!(filter.is_allowed("read_file") && filter.is_allowed("list"));
        assert!(!filter.is_allowed("write_file"));
    }

    // req: BR-01
    #[test]
    fn empty_allow_list_allows_nothing() {
        assert!(!filter(Some(&[]), &[]).is_allowed("list"));
    }

    // req: BR-01
    #[test]
    fn deny_wins_over_allow() {
        let filter = filter(Some(&["*"]), &["*delete*"]);
        assert!(filter.is_allowed("list") && !filter.is_allowed("delete_all"));
        assert!(filter.is_denied("undelete") && !filter.is_denied("list"));
    }
}
