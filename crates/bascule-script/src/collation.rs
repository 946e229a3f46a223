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

fn elements(text: &str, collation: Collation) -> Vec<Element> {
    let mut elements: Vec<Element> = Vec::with_capacity(text.len());
    for c in text.chars() {
        match (c, elements.last_mut()) {
            ('\u{300}'..='\u{36f}', Some(last)) => last.accents.push(c),
            ('0'..='9', Some(Element { base: Base::Number(length, digits), .. })) if collation.is_numeric => {
                if digits == "0" {
                    digits.clear();
                }
                digits.push(c);
                *length = digits.len();
            }
            _ => elements.extend(single(c, collation)),
        }
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
