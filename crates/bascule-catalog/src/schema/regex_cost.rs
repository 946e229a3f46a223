//! Estimates the cost of regular expressions from their text.
//!
//! Compiling takes time proportional to the number of states, and so does, in the worst case, each byte of the text
//! that is matched. An engine that backtracks may take quadratic time.

/// The fixed cost of any expression, in states.
const BASE_STATES: u64 = 100;
/// The number of states of a character class, without and with Unicode properties.
const CLASS_STATES: u64 = 4;
const UNICODE_CLASS_STATES: u64 = 500;

/// The cost of all regular expressions of one schema.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct RegexCost {
    /// The states of all expressions.
    pub states: u64,
    /// The states of the largest expression.
    pub largest: u64,
    /// True if any expression has look-around or back-references.
    pub backtracks: bool,
}

impl RegexCost {
    pub(super) fn add(&mut self, pattern: &str) {
        let states = BASE_STATES.saturating_add(count_states(pattern));
        self.states = self.states.saturating_add(states);
        self.largest = self.largest.max(states);
        self.backtracks |= needs_backtracking(pattern);
    }
}

/// A state machine cannot implement look-around and back-references.
fn needs_backtracking(pattern: &str) -> bool {
    let has_look_around = ["(?=", "(?!", "(?<"].iter().any(|mark| pattern.contains(mark));
    let is_reference = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit() || c == 'k');
    has_look_around || pattern.split('\\').skip(1).any(is_reference)
}

/// Estimates the number of states. Every repetition counts as if written out.
fn count_states(pattern: &str) -> u64 {
    let mut counter = StateCounter { groups: vec![0], last: 0 };
    let mut rest = pattern;
    while let Some(next) = rest.chars().next() {
        let length = counter.take(next, rest);
        rest = &rest[length..];
    }
    counter.groups.iter().fold(0, |sum, group| sum.saturating_add(*group))
}

struct StateCounter {
    /// The states of each open group so far, the outermost first.
    groups: Vec<u64>,
    /// The states of the last piece, to which a repetition applies.
    last: u64,
}

impl StateCounter {
    /// Consumes one piece at the start of `rest` and returns its length.
    fn take(&mut self, next: char, rest: &str) -> usize {
        match next {
            '\\' => self.take_escape(rest),
            '[' => self.take_class(rest),
            '{' => self.take_repetition(rest),
            '(' => {
                self.groups.push(0);
                1
            }
            ')' => {
                let group = if self.groups.len() > 1 { self.groups.pop() } else { None };
                self.add_piece(group.unwrap_or(1));
                1
            }
            '*' | '+' | '?' | '|' | '^' | '$' => 1,
            other => {
                self.add_piece(1);
                other.len_utf8()
            }
        }
    }

    fn add_piece(&mut self, states: u64) {
        self.last = states;
        self.add_states(states);
    }

    fn add_states(&mut self, states: u64) {
        if let Some(group) = self.groups.last_mut() {
            *group = group.saturating_add(states);
        }
    }

    fn take_escape(&mut self, rest: &str) -> usize {
        let escaped = rest.chars().nth(1);
        let unicode = matches!(escaped, Some('p' | 'P'));
        self.add_piece(if unicode { UNICODE_CLASS_STATES } else { CLASS_STATES });
        let name = if unicode { rest.find('}').map(|end| end + 1) } else { None };
        name.unwrap_or(1 + escaped.map_or(0, char::len_utf8))
    }

    fn take_class(&mut self, rest: &str) -> usize {
        let mut escaped = false;
        let closes = |c: char| {
            let closes = c == ']' && !escaped;
            escaped = c == '\\' && !escaped;
            closes
        };
        let length = rest.find(closes).map_or(rest.len(), |end| end + 1);
        let class = &rest[..length];
        let unicode = class.contains(r"\p") || class.contains(r"\P");
        self.add_piece(if unicode { UNICODE_CLASS_STATES } else { CLASS_STATES });
        length
    }

    fn take_repetition(&mut self, rest: &str) -> usize {
        let Some(length) = rest.find('}').map(|end| end + 1) else {
            self.add_piece(1);
            return 1;
        };
        let bounds = rest[1..length - 1].split(',').filter_map(|bound| bound.parse::<u64>().ok());
        let times = bounds.max().unwrap_or(1).max(1);
        self.add_states(self.last.saturating_mul(times - 1));
        self.last = self.last.saturating_mul(times);
        length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, expected: u64) {
        assert_eq!(count_states(pattern), expected, "{pattern}");
    }

    #[test]
    fn expands_repetitions() {
        check("abc", 3);
        check("a{10}b", 11);
        check("a{2,5}", 5);
        check("a{3,}", 3);
        check("(ab){3}", 6);
        check("((a{10}){10}){10}", 1000);
        check("^(a|b)*$", 2);
        check("é{3}", 3);
    }

    #[test]
    fn counts_classes_and_unicode_classes() {
        check("[a-z]{8}-[0-9]{4}", 8 * CLASS_STATES + 1 + 4 * CLASS_STATES);
        check(r"[^\]{9}]{2}", 2 * CLASS_STATES);
        check(r"\d{4}", 4 * CLASS_STATES);
        check(r"\p{L}{1000}", 1000 * UNICODE_CLASS_STATES);
        check(r"[\p{Lu}x]{10}", 10 * UNICODE_CLASS_STATES);
    }

    #[test]
    fn accepts_any_text() {
        for pattern in ["", ")", "(", "[", "{", "\\", "a{", "a{}", "a{x}", "\\p", "\\p{", "((", "))", "{5}"] {
            assert!(count_states(pattern) <= 2 * UNICODE_CLASS_STATES, "{pattern}");
        }
        check(&"(a{1000}".repeat(10), 10_000);
        check(&format!("{}a{}", "(".repeat(10_000), "){9}".repeat(10_000)), u64::MAX);
    }

    #[test]
    fn detects_look_around_and_back_references() {
        for pattern in ["(?=a)", "a(?!b)", "(?<=a)b", "(?<n>a)", r"(a)\1", r"\k<n>"] {
            assert!(needs_backtracking(pattern), "{pattern}");
        }
        for pattern in ["(?:a)", r"\d", r"^[\w.-]+$", r"\\d"] {
            assert!(!needs_backtracking(pattern), "{pattern}");
        }
    }

    #[test]
    fn adds_up_all_expressions() {
        let mut regexes = RegexCost::default();
        ["a{900}", "b", r"(b)\1"].iter().for_each(|pattern| regexes.add(pattern));
        assert_eq!(
            regexes,
            RegexCost { states: 3 * BASE_STATES + 900 + 1 + 5, largest: BASE_STATES + 900, backtracks: true }
        );
    }
}
