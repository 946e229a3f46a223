//! Compares text as people sort it: letters first by their base, then by accents, then by case. Covers Latin script; other
//! scripts are ordered by code point after it.

use std::cmp::Ordering;

/// The differences that count.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Collation {
    pub(crate) compares_accents: bool,
    pub(crate) compares_case: bool,
    /// `a2` comes before `a10`.
    pub(crate) is_numeric: bool,
    pub(crate) is_upper_first: bool,
    pub(crate) ignores_punctuation: bool,
}

impl Collation {
    /// Reads the differences as the prelude writes them.
    pub(crate) fn from_flags(flags: u32) -> Self {
        let has = |flag: u32| flags & flag != 0;
        Self {
            compares_accents: has(1),
            compares_case: has(2),
            is_numeric: has(4),
            is_upper_first: has(8),
            ignores_punctuation: has(16),
        }
    }
}

/// Punctuation and symbols of ASCII in the order of the Unicode root collation.
const PUNCTUATION: &str = " _-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$";

/// One letter, digit or sign, or a number of several digits.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Element {
    base: Base,
    accents: Vec<char>,
    is_upper: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Base {
    Punctuation(usize),
    Sign(char),
    /// The number of digits, and the digits.
    Number(usize, String),
    Letter(char),
}

/// Compares two texts whose letters and accents are separate characters (NFD).
pub(crate) fn collate(a: &str, b: &str, collation: Collation) -> Ordering {
    let (a, b) = (elements(a, collation), elements(b, collation));
    let order = a.iter().map(|e| &e.base).cmp(b.iter().map(|e| &e.base));
    let accents = || match collation.compares_accents {
        true => a.iter().map(|e| &e.accents).cmp(b.iter().map(|e| &e.accents)),
        false => Ordering::Equal,
    };
    let case = || match collation.compares_case {
        true => a.iter().map(|e| e.is_upper).cmp(b.iter().map(|e| e.is_upper)),
        false => Ordering::Equal,
    };
    order.then_with(accents).then_with(|| if collation.is_upper_first { case().reverse() } else { case() })
}

/// The place of each ASCII character among the others. Letters have that of their lower case.
const ASCII_RANKS: [u8; 128] = ascii_ranks();
/// The rank of digits, which are between other signs and letters.
const DIGIT_RANK: u8 = 100;
/// Characters below this rank are punctuation that a collation may ignore.
const IGNORED_BELOW: u8 = punctuation_rank(b'`');

const fn ascii_ranks() -> [u8; 128] {
    let mut ranks = [0; 128];
    let mut c = 0u8;
    while c < 128 {
        ranks[c as usize] = match c {
            b'\t'..=b'\r' | b' ' => 0,
            b'0'..=b'9' => DIGIT_RANK,
            b'a'..=b'z' | b'A'..=b'Z' => DIGIT_RANK + c.to_ascii_lowercase(),
            // Control characters follow punctuation.
            0..=31 => PUNCTUATION.len() as u8 + c,
            127 => DIGIT_RANK - 1,
            _ => punctuation_rank(c),
        };
        c += 1;
    }
    ranks
}

const fn punctuation_rank(c: u8) -> u8 {
    let mut at = 0;
    while PUNCTUATION.as_bytes()[at] != c {
        at += 1;
    }
    at as u8
}

/// Compares two texts of ASCII characters as [`collate`] does, without copies of them.
pub(crate) fn collate_ascii(a: &str, b: &str, collation: Collation) -> Ordering {
    let bases = |text| AsciiElements { rest: text, collation }.map(|(rank, digits, _)| (rank, digits));
    let cases = |text| AsciiElements { rest: text, collation }.map(|(_, _, is_upper)| is_upper);
    let by_length = |(rank, digits): (u8, &'_ str), (other, others): (u8, &'_ str)| {
        rank.cmp(&other).then_with(|| digits.len().cmp(&others.len())).then_with(|| digits.cmp(others))
    };
    let order = compare_all(bases(a), bases(b), by_length);
    let case = || match (collation.compares_case, collation.is_upper_first) {
        (false, _) => Ordering::Equal,
        (true, false) => cases(a).cmp(cases(b)),
        (true, true) => cases(b).cmp(cases(a)),
    };
    order.then_with(case)
}

fn compare_all<T>(
    mut a: impl Iterator<Item = T>,
    mut b: impl Iterator<Item = T>,
    compare: impl Fn(T, T) -> Ordering,
) -> Ordering {
    loop {
        match (a.next(), b.next()) {
            (Some(x), Some(y)) => match compare(x, y) {
                Ordering::Equal => {}
                order => return order,
            },
            (x, y) => return x.is_some().cmp(&y.is_some()),
        }
    }
}

/// The elements of a text of ASCII characters: each with its rank, its digits, and whether it is an upper-case letter.
struct AsciiElements<'t> {
    rest: &'t str,
    collation: Collation,
}

impl<'t> Iterator for AsciiElements<'t> {
    type Item = (u8, &'t str, bool);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let c = *self.rest.as_bytes().first()?;
            let rank = ASCII_RANKS[usize::from(c)];
            let length = match c.is_ascii_digit() && self.collation.is_numeric {
                true => self.rest.bytes().take_while(u8::is_ascii_digit).count(),
                false => 1,
            };
            let (element, rest) = self.rest.split_at(length);
            self.rest = rest;
            if c.is_ascii_digit() {
                let digits = element.trim_start_matches('0');
                // Zero keeps one digit.
                return Some((rank, if digits.is_empty() { "0" } else { digits }, false));
            }
            if !(self.collation.ignores_punctuation && rank < IGNORED_BELOW) {
                return Some((rank, "", c.is_ascii_uppercase()));
            }
        }
    }
}

fn elements(text: &str, collation: Collation) -> Vec<Element> {
    let mut elements: Vec<Element> = Vec::with_capacity(text.len());
    // Punctuation ends a number, also if it is ignored.
    let mut follows_digit = false;
    for c in text.chars() {
        match (c, elements.last_mut()) {
            ('\u{300}'..='\u{36f}', Some(last)) => last.accents.push(c),
            ('0'..='9', Some(Element { base: Base::Number(length, digits), .. }))
                if collation.is_numeric && follows_digit =>
            {
                if digits == "0" {
                    digits.clear();
                }
                digits.push(c);
                *length = digits.len();
            }
            _ => elements.extend(single(c, collation)),
        }
        follows_digit = c.is_ascii_digit();
    }
    elements
}

fn single(c: char, collation: Collation) -> Vec<Element> {
    let element = |base| Element { base, accents: Vec::new(), is_upper: c.is_uppercase() };
    let letter = |c: char| element(Base::Letter(c));
    if let Some(at) = PUNCTUATION.find(if c.is_whitespace() { ' ' } else { c }) {
        return if collation.ignores_punctuation && at < PUNCTUATION.find('`').unwrap_or(0) {
            Vec::new()
        } else {
            vec![element(Base::Punctuation(at))]
        };
    }
    let lower = c.to_lowercase().next().unwrap_or(c);
    let accented = |c: char| vec![Element { accents: vec!['\u{338}'], ..letter(c) }];
    match lower {
        _ if c.is_ascii_digit() => vec![element(Base::Number(1, c.to_string()))],
        'ß' => [accented('s'), vec![letter('s')]].concat(),
        'æ' => vec![letter('a'), letter('e')],
        'œ' => vec![letter('o'), letter('e')],
        'ø' => accented('o'),
        'đ' => accented('d'),
        'ł' => accented('l'),
        _ if c.is_alphanumeric() => vec![letter(lower)],
        _ => vec![element(Base::Sign(c))],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Collation = Collation {
        compares_accents: true,
        compares_case: true,
        is_numeric: false,
        is_upper_first: false,
        ignores_punctuation: false,
    };

    proptest::proptest! {
        // req: CM-06
        #[test]
        fn ascii_texts_are_compared_as_others(a in "[ -~\\t\\n\\x00-\\x1f\\x7f]{0,12}|[a-b0-2A-B -]{0,6}", b in "[ -~\\t\\n\\x00-\\x1f\\x7f]{0,12}|[a-b0-2A-B -]{0,6}", flags in 0u32..32) {
            let collation = Collation::from_flags(flags);
            proptest::prop_assert_eq!(collate_ascii(&a, &b, collation), collate(&a, &b, collation));
        }
    }

    #[test]
    fn sorts_as_people_do() {
        let mut words = ["Zoe", "apple", "e\u{301}clair", "Apple", "eclair", "zebra", "_x", "10", "9", "b a"];
        words.sort_by(|a, b| collate(a, b, ALL));
        assert_eq!(
            words,
            ["_x", "10", "9", "apple", "Apple", "b a", "eclair", "e\u{301}clair", "zebra", "Zoe"]
        );
        assert_eq!(collate("a2", "a10", Collation { is_numeric: true, ..ALL }), Ordering::Less);
        let base = Collation { compares_accents: false, compares_case: false, ..ALL };
        assert_eq!(collate("A\u{308}", "a", base), Ordering::Equal);
    }
}
