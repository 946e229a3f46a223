//! Decides which tools of a server may be listed and called.

use crate::NamePattern;

/// The patterns of a server's `allowedTools` and `deniedTools`. Denied patterns win. Without an allow-list every tool is allowed; an empty list allows none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolFilter {
    pub allowed: Option<Vec<NamePattern>>,
    pub denied: Vec<NamePattern>,
}

impl ToolFilter {
    /// Returns true if the tool may be listed and called.
    pub fn is_allowed(&self, tool_name: &str) -> bool {
        let allowed = self.allowed.as_ref().is_none_or(|allowed| any_matches(allowed, tool_name));
        allowed && !self.is_denied(tool_name)
    }

    /// Returns true if a denied pattern matches. A call of such a tool is denied even if the server does not list it; a tool
    /// that is only missing from the allow-list is denied if the server lists it, and unknown otherwise.
    pub fn is_denied(&self, tool_name: &str) -> bool {
        any_matches(&self.denied, tool_name)
    }
}

fn any_matches(patterns: &[NamePattern], tool_name: &str) -> bool {
    patterns.iter().any(|pattern| pattern.matches(tool_name))
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
