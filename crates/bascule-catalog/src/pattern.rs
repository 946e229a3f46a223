//! A tool name in which `*` stands for any run of characters, none included.

use std::fmt;

/// Matches names in time linear in the name: no pattern is expensive.
#[derive(Clone, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    /// Every text is a pattern; one without `*` matches only itself.
    pub fn parse(text: &str) -> Self {
        Self(text.into())
    }

    /// The pattern as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it can match one name only.
    pub fn is_literal(&self) -> bool {
        !self.0.contains('*')
    }

    /// Whether the whole name fits.
    pub fn matches(&self, name: &str) -> bool {
        let Some((head, rest)) = self.0.split_once('*') else {
            return self.0 == name;
        };
        let (middle, tail) = rest.rsplit_once('*').unwrap_or(("", rest));
        let between = name.strip_prefix(head).and_then(|name| name.strip_suffix(tail));
        between.is_some_and(|text| holds_in_order(text, middle))
    }
}

/// Takes each piece at its first place: if any choice fits, the leftmost one does.
fn holds_in_order(mut text: &str, pieces: &str) -> bool {
    for piece in pieces.split('*') {
        match text.find(piece) {
            Some(at) => text = &text[at + piece.len()..],
            None => return false,
        }
    }
    true
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{self}`")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(pattern: &str, fits: &[&str], misses: &[&str]) {
        let pattern = Pattern::parse(pattern);
        for name in fits {
            assert!(pattern.matches(name), "{pattern:?} {name}");
        }
        for name in misses {
            assert!(!pattern.matches(name), "{pattern:?} {name}");
        }
    }

    // req: BR-01
    #[test]
    fn a_star_stands_for_any_run_of_characters() {
        check("read_*", &["read_", "read_file"], &["read", "a_read_file"]);
        check("*delete*", &["delete", "undelete_all"], &["delet", "Delete"]);
        check("a*b*c", &["abc", "axbxc", "abbcc"], &["ab", "acb", "abcd"]);
        check("*", &["", "anything"], &[]);
        check("**", &["", "x"], &[]);
    }

    #[test]
    fn without_a_star_only_the_name_itself_fits() {
        check("read", &["read"], &["reads", "", "READ"]);
        check("", &[""], &["x"]);
        assert!(Pattern::parse("read").is_literal() && !Pattern::parse("r*").is_literal());
        assert_eq!(format!("{0} {0:?} {1}", Pattern::parse("r*"), Pattern::parse("x").as_str()), "r* `r*` x");
    }

    #[test]
    fn head_and_tail_may_not_share_characters() {
        check("ab*ba", &["abba", "abxba"], &["aba"]);
        check("ä*ö", &["äö", "äüö"], &["ä", "ö"]);
    }

    #[test]
    fn a_nasty_pattern_is_as_quick_as_any() {
        let pattern = Pattern::parse(&"a*".repeat(20_000));
        assert!(!pattern.matches(&format!("{}b", "a".repeat(19_999))));
        assert!(pattern.matches(&"a".repeat(20_000)));
    }

    /// The definition, as directly as it can be written.
    fn by_definition(pattern: &[char], name: &[char]) -> bool {
        match pattern.split_first() {
            None => name.is_empty(),
            Some((&'*', rest)) => (0..=name.len()).any(|skip| by_definition(rest, &name[skip..])),
            Some((c, rest)) => name.first() == Some(c) && by_definition(rest, &name[1..]),
        }
    }

    proptest! {
        // req: BR-01
        #[test]
        fn matching_agrees_with_the_definition(pattern in "[abé*]{0,8}", name in "[abé]{0,10}") {
            let letters = |text: &str| text.chars().collect::<Vec<_>>();
            prop_assert_eq!(
                Pattern::parse(&pattern).matches(&name),
                by_definition(&letters(&pattern), &letters(&name))
            );
        }
    }
}
