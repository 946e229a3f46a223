//! Finds integers in a result that lose digits as JavaScript numbers.

/// Integers with fewer digits are exact.
const SHORTEST: usize = 16;

/// The first integer that loses digits.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LostDigits {
    /// Its place, such as `result.rows[0].id`.
    pub(crate) path: String,
    pub(crate) integer: String,
    /// The number that the script gets instead.
    pub(crate) rounded: String,
    /// How many more lose digits.
    pub(crate) others: usize,
}

/// Returns the first integer of a JSON text that a number cannot hold.
pub(crate) fn find_lost_digits(json: &str) -> Option<LostDigits> {
    if !has_long_number(json.as_bytes()) {
        return None;
    }
    let (mut reader, mut found) = (JsonReader { rest: json, parts: Vec::new() }, None::<LostDigits>);
    while let Some(token) = reader.next_token() {
        let Some(rounded) = rounded(token) else { continue };
        match &mut found {
            Some(first) => first.others += 1,
            None => {
                found = Some(LostDigits { path: reader.path(), integer: token.into(), rounded, others: 0 })
            }
        }
    }
    found
}

/// Returns true if the text has a row of digits that is long enough, perhaps within a string. Such a row has a digit at a
/// multiple of its length, so that most bytes need not be read.
fn has_long_number(json: &[u8]) -> bool {
    let is_digit = |at: &usize| json[*at].is_ascii_digit();
    (SHORTEST - 1..json.len()).step_by(SHORTEST).filter(is_digit).any(|at| {
        let before = json[..at].iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
        let after = json[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        before + after >= SHORTEST
    })
}

/// Returns what a number makes of an integer, if that differs.
fn rounded(token: &str) -> Option<String> {
    // Above that length no number is finite.
    const LONGEST: usize = 309;
    let digits = token.strip_prefix('-').unwrap_or(token);
    let is_long_integer =
        (SHORTEST..=LONGEST).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number: f64 = token.parse().ok().filter(|_| is_long_integer)?;
    // With all its digits the number shows whether it is the integer.
    (format!("{number:.0}") != token).then(|| number.to_string())
}

/// Reads the tokens of a valid JSON text, and knows the path of the last one.
struct JsonReader<'a> {
    rest: &'a str,
    parts: Vec<PathPart<'a>>,
}

enum PathPart<'a> {
    Index(usize),
    /// A key as JSON; `None` until it is read.
    Key(Option<&'a str>),
}

impl<'a> JsonReader<'a> {
    /// Returns the next token that is no sign.
    fn next_token(&mut self) -> Option<&'a str> {
        loop {
            self.rest = self.rest.trim_start_matches([' ', '\n', '\r', '\t', ':']);
            match self.rest.bytes().next()? {
                b'[' => self.parts.push(PathPart::Index(0)),
                b'{' => self.parts.push(PathPart::Key(None)),
                b']' | b'}' => drop(self.parts.pop()),
                b',' => match self.parts.last_mut() {
                    Some(PathPart::Index(index)) => *index += 1,
                    Some(PathPart::Key(key)) => *key = None,
                    None => {}
                },
                b'"' => {
                    let token = self.take(string_length(self.rest));
                    match self.parts.last_mut() {
                        Some(PathPart::Key(key @ None)) => *key = Some(token),
                        _ => return Some(token),
                    }
                    continue;
                }
                _ => {
                    let end = self.rest.find([',', ']', '}', ' ', '\n', '\r', '\t']);
                    return Some(self.take(end.unwrap_or(self.rest.len())));
                }
            }
            self.take(1);
        }
    }

    fn take(&mut self, length: usize) -> &'a str {
        let (token, rest) = self.rest.split_at(length);
        self.rest = rest;
        token
    }

    fn path(&self) -> String {
        const MAX_PATH: usize = 200;
        let part = |part: &PathPart<'_>| match part {
            PathPart::Index(index) => format!("[{index}]"),
            PathPart::Key(key) => {
                let quoted = key.unwrap_or_default();
                match quoted.trim_matches('"') {
                    name if is_identifier(name) => format!(".{name}"),
                    _ => format!("[{quoted}]"),
                }
            }
        };
        let mut path = format!("result{}", self.parts.iter().map(part).collect::<String>());
        path.truncate(path.floor_char_boundary(MAX_PATH));
        path
    }
}

fn is_identifier(name: &str) -> bool {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '$');
    name.chars().all(is_letter) && name.starts_with(|letter: char| !letter.is_ascii_digit())
}

/// Returns the length of the string at the beginning of the text, with its quotes.
fn string_length(text: &str) -> usize {
    let mut is_escaped = false;
    let end = text.bytes().skip(1).position(|byte| {
        let is_end = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        is_end
    });
    end.map_or(text.len(), |end| end + 2)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(json: &str, expected: Option<(&str, &str, usize)>) {
        let found = find_lost_digits(json);
        let found = found.as_ref().map(|found| (found.path.as_str(), found.integer.as_str(), found.others));
        assert_eq!(found, expected, "{json}");
    }

    // req: CM-02
    #[test]
    fn finds_integers_with_their_path() {
        check("9007199254740993", Some(("result", "9007199254740993", 0)));
        check(
            r#"{"a":[{},[1, -9007199254740993 ],"9007199254740993"],"b c":{"d":123456789012345678901234567890}}"#,
            Some(("result.a[1][1]", "-9007199254740993", 1)),
        );
        check(
            r#"{"x\"y":{"é":[18446744073709551617]}}"#,
            Some((r#"result["x\"y"]["é"][0]"#, "18446744073709551617", 0)),
        );
    }

    // req: CM-02
    #[test]
    fn exact_numbers_are_not_reported() {
        for json in [
            "",
            "[]",
            "9007199254740992",
            "10000000000000000000000",
            "[9007199254740993.5, 9007199254740993e2]",
            r#"{"9007199254740993":"9007199254740993\\","a":"\"9007199254740993"}"#,
        ] {
            check(json, None);
        }
    }

    proptest! {
        // req: CM-02
        #[test]
        fn any_text_ends(text in r#"[\[\]{}",:\\ 0-9-]{0,80}|.{0,80}"#) {
            find_lost_digits(&text);
        }

        // req: CM-02
        #[test]
        fn every_odd_integer_above_the_limit_is_found(half in 4_503_599_627_370_496u64..9_007_199_254_740_992, before in ".{0,40}") {
            let json = serde_json::json!({ "a": before, "b": [0, 2 * half + 1] }).to_string();
            prop_assert_eq!(find_lost_digits(&json).unwrap().path, "result.b[1]");
        }
    }
}
