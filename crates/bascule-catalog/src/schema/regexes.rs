//! How much work a regular expression can be, judged by its text.
//!
//! Compiling takes time in proportion to the states its machine gets, and so does, at worst, every byte it
//! is matched against. Where the engine has to backtrack, it may search within its search.

/// What compiling any expression takes, in states.
const FIXED: u64 = 100;
/// How many states a class of characters may need: some letters, or those of all scripts.
const CLASS: u64 = 4;
const UNICODE_CLASS: u64 = 500;

/// The regular expressions of one schema together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Regexes {
    /// The states of all of them, and of the largest.
    pub states: u64,
    pub largest: u64,
    /// Whether any looks around or refers back.
    pub backtracks: bool,
}

impl Regexes {
    pub(super) fn add(&mut self, pattern: &str) {
        let states = FIXED.saturating_add(states(pattern));
        self.states = self.states.saturating_add(states);
        self.largest = self.largest.max(states);
        self.backtracks |= backtracks(pattern);
    }
}

/// Looking around and referring back are beyond a state machine.
fn backtracks(pattern: &str) -> bool {
    let looks_around = ["(?=", "(?!", "(?<"].iter().any(|mark| pattern.contains(mark));
    let is_reference = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit() || c == 'k');
    looks_around || pattern.split('\\').skip(1).any(is_reference)
}

/// About how many states an expression comes to: every repetition is written out.
fn states(pattern: &str) -> u64 {
    let mut reader = Reader { groups: vec![0], last: 0 };
    let mut rest = pattern;
    while let Some(next) = rest.chars().next() {
        let length = reader.take(next, rest);
        rest = &rest[length..];
    }
    reader.groups.iter().fold(0, |sum, group| sum.saturating_add(*group))
}

struct Reader {
    /// The states of each open group so far; the outermost first.
    groups: Vec<u64>,
    /// Those of the last piece, which a repetition would repeat.
    last: u64,
}

impl Reader {
    /// Reads one piece at the beginning of `rest` and says how long it is.
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
                self.put(group.unwrap_or(1));
                1
            }
            '*' | '+' | '?' | '|' | '^' | '$' => 1,
            other => {
                self.put(1);
                other.len_utf8()
            }
        }
    }

    fn put(&mut self, states: u64) {
        self.last = states;
        self.grow(states);
    }

    fn grow(&mut self, states: u64) {
        if let Some(group) = self.groups.last_mut() {
            *group = group.saturating_add(states);
        }
    }

    fn take_escape(&mut self, rest: &str) -> usize {
        let escaped = rest.chars().nth(1);
        let unicode = matches!(escaped, Some('p' | 'P'));
        self.put(if unicode { UNICODE_CLASS } else { CLASS });
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
        self.put(if unicode { UNICODE_CLASS } else { CLASS });
        length
    }

    fn take_repetition(&mut self, rest: &str) -> usize {
        let Some(length) = rest.find('}').map(|end| end + 1) else {
            self.put(1);
            return 1;
        };
        let bounds = rest[1..length - 1].split(',').filter_map(|bound| bound.parse::<u64>().ok());
        let times = bounds.max().unwrap_or(1).max(1);
        self.grow(self.last.saturating_mul(times - 1));
        self.last = self.last.saturating_mul(times);
        length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, expected: u64) {
        assert_eq!(states(pattern), expected, "{pattern}");
    }

    #[test]
    fn repetitions_are_written_out() {
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
    fn classes_count_as_wholes_and_those_of_all_scripts_count_more() {
        check("[a-z]{8}-[0-9]{4}", 8 * CLASS + 1 + 4 * CLASS);
        check(r"[^\]{9}]{2}", 2 * CLASS);
        check(r"\d{4}", 4 * CLASS);
        check(r"\p{L}{1000}", 1000 * UNICODE_CLASS);
        check(r"[\p{Lu}x]{10}", 10 * UNICODE_CLASS);
    }

    #[test]
    fn any_text_is_read_to_its_end() {
        for pattern in ["", ")", "(", "[", "{", "\\", "a{", "a{}", "a{x}", "\\p", "\\p{", "((", "))", "{5}"] {
            assert!(states(pattern) <= 2 * UNICODE_CLASS, "{pattern}");
        }
        check(&"(a{1000}".repeat(10), 10_000);
        check(&format!("{}a{}", "(".repeat(10_000), "){9}".repeat(10_000)), u64::MAX);
    }

    #[test]
    fn what_looks_around_or_refers_back_backtracks() {
        for pattern in ["(?=a)", "a(?!b)", "(?<=a)b", "(?<n>a)", r"(a)\1", r"\k<n>"] {
            assert!(backtracks(pattern), "{pattern}");
        }
        for pattern in ["(?:a)", r"\d", r"^[\w.-]+$", r"\\d"] {
            assert!(!backtracks(pattern), "{pattern}");
        }
    }

    #[test]
    fn many_expressions_add_up() {
        let mut regexes = Regexes::default();
        ["a{900}", "b", r"(b)\1"].iter().for_each(|pattern| regexes.add(pattern));
        assert_eq!(
            regexes,
            Regexes { states: 3 * FIXED + 900 + 1 + 5, largest: FIXED + 900, backtracks: true }
        );
    }
}
