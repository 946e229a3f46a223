//! Which of a server's tools may be seen, as `allowedTools` and `deniedTools` say.

use crate::Pattern;

/// Deny wins. Without an allow-list everything is allowed; an empty one allows nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolFilter {
    /// If given, only these.
    pub allowed: Option<Vec<Pattern>>,
    /// Never these.
    pub denied: Vec<Pattern>,
}

impl ToolFilter {
    /// Whether a tool of this name may be seen and called.
    pub fn permits(&self, tool: &str) -> bool {
        let allowed = self.allowed.as_ref().is_none_or(|allowed| any_matches(allowed, tool));
        allowed && !self.denies(tool)
    }

    /// Whether the deny-list names it, whether or not it exists.
    pub fn denies(&self, tool: &str) -> bool {
        any_matches(&self.denied, tool)
    }
}

fn any_matches(patterns: &[Pattern], tool: &str) -> bool {
    patterns.iter().any(|pattern| pattern.matches(tool))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn filter(allowed: Option<&[&str]>, denied: &[&str]) -> ToolFilter {
        let parse = |texts: &[&str]| texts.iter().map(|text| Pattern::parse(text)).collect();
        ToolFilter { allowed: allowed.map(parse), denied: parse(denied) }
    }

    // req: BR-01
    #[test]
    fn without_lists_everything_is_permitted() {
        assert!(ToolFilter::default().permits("anything"));
    }

    // req: BR-01
    #[test]
    fn an_allow_list_permits_only_what_it_names() {
        let filter = filter(Some(&["read_*", "list"]), &[]);
        assert!(filter.permits("read_file") && filter.permits("list"));
        assert!(!filter.permits("write_file"));
    }

    // req: BR-01
    #[test]
    fn an_empty_allow_list_permits_nothing() {
        assert!(!filter(Some(&[]), &[]).permits("list"));
    }

    // req: BR-01
    #[test]
    fn deny_wins_over_allow() {
        let filter = filter(Some(&["*"]), &["*delete*"]);
        assert!(filter.permits("list") && !filter.permits("delete_all"));
        assert!(filter.denies("undelete") && !filter.denies("list"));
    }
}
