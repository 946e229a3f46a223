//! A pattern for tool and server names: `*` matches any number of characters, including none.

use std::fmt;

/// Matching takes time linear in the name for every pattern.
#[derive(Clone, PartialEq, Eq)]
pub struct NamePattern(String);

impl NamePattern {
    /// Every text is a pattern. A text without `*` matches only itself.
    pub fn parse(text: &str) -> Self {
        Self(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns true if it has no `*`.
    pub fn is_literal(&self) -> bool {
        !self.0.contains('*')
    }

    pub fn matches(&self, name: &str) -> bool {
        let Some((head, rest)) = self.0.split_once('*') else {
            return self.0 == name;
        };
        let (middle, tail) = rest.rsplit_once('*').unwrap_or(("", rest));
        let between = name.strip_prefix(head).and_then(|name| name.strip_suffix(tail));
        between.is_some_and(|text| contains_in_order(text, middle))
    }
}

/// Matches each piece at its first occurrence: if any choice matches, the leftmost does.
fn contains_in_order(mut text: &str, pieces: &str) -> bool {
    for piece in pieces.split('*') {
        match text.find(piece) {
            Some(index) => text = &text[index + piece.len()..],
            None => return false,
        }
    }
    true
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{self}`")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(pattern: &str, matching: &[&str], other: &[&str]) {
        let pattern = NamePattern::parse(pattern);
        for name in matching {
            assert!(pattern.matches(name), "{pattern:?} {name}");
        }
        for name in other {
            assert!(!pattern.matches(name), "{pattern:?} {name}");
        }
    }

    // req: BR-01
    #[test]
    fn star_matches_any_characters() {
        check("read_*", &["read_", "read_file"], &["read", "a_read_file"]);
        check("*delete*", &["delete", "undelete_all"], &["delet", "Delete"]);
        check("a*b*c", &["abc", "axbxc", "abbcc"], &["ab", "acb", "abcd"]);
        check("*", &["", "anything"], &[]);
        check("**", &["", "x"], &[]);
    }

    #[test]
    fn literal_matches_only_itself() {
        check("read", &["read"], &["reads", "", "READ"]);
        check("", &[""], &["x"]);
        assert!(NamePattern::parse("read").is_literal() && !NamePattern::parse("r*").is_literal());
        assert_eq!(
            format!("{0} {0:?} {1}", NamePattern::parse("r*"), NamePattern::parse("x").as_str()),
            "r* `r*` x"
        );
    }

    #[test]
    fn prefix_and_suffix_must_not_overlap() {
        check("ab*ba", &["abba", "abxba"], &["aba"]);
        check("ä*ö", &["äö", "äüö"], &["ä", "ö"]);
    }

    #[test]
    fn matches_hostile_pattern() {
        let pattern = NamePattern::parse(&"a*".repeat(20_000));
        assert!(!pattern.matches(&format!("{}b", "a".repeat(19_999))));
        assert!(pattern.matches(&"a".repeat(20_000)));
    }

    /// A direct, exponential implementation of the definition.
    fn matches_by_definition(pattern: &[char], name: &[char]) -> bool {
        match pattern.split_first() {
            None => name.is_empty(),
            Some((&'*', rest)) => (0..=name.len()).any(|skip| matches_by_definition(rest, &name[skip..])),
            Some((c, rest)) => name.first() == Some(c) && matches_by_definition(rest, &name[1..]),
        }
    }

    proptest! {
        // req: BR-01
        #[test]
        fn matches_as_defined(pattern in "[abé*]{0,8}", name in "[abé]{0,10}") {
            let letters = |text: &str| text.chars().collect::<Vec<_>>();
            prop_assert_eq!(
                NamePattern::parse(&pattern).matches(&name),
                matches_by_definition(&letters(&pattern), &letters(&name))
            );
        }
    }
}
