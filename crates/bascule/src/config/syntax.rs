//! Turns text into a syntax tree: JSON with comments and trailing commas, and no other liberties.
//!
//! The parser gives up at 512 levels, so no file is deep enough to exhaust the stack.

use jsonc_parser::ast::Value;
use jsonc_parser::errors::{ParseError, ParseErrorKind};
use jsonc_parser::tokens::Token;
use jsonc_parser::{
    CollectOptions, ParseOptions, ParseStringErrorKind, Scanner, ScannerOptions, parse_to_ast,
};

use super::problem::Notes;

/// The tree, or `None` when it was noted why there is none.
pub(super) fn parse<'a>(text: &'a str, notes: &Notes) -> Option<Value<'a>> {
    if let Some(at) = broken_string(text) {
        notes.error(at, "", "not JSON: this string does not end on its line");
        return None;
    }
    match parse_to_ast(text, &CollectOptions::default(), &options()) {
        Ok(result) if result.value.is_none() => notes.error(0, "", "holds no JSON value"),
        Ok(result) => return result.value,
        Err(error) => {
            notes.error(error.range().start, "", format_args!("not JSON: {}", in_our_words(&error)))
        }
    }
    None
}

fn options() -> ParseOptions {
    ParseOptions {
        allow_comments: true,
        allow_trailing_commas: true,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    }
}

/// The first string that runs over the end of its line. The parser would accept it, and where a quote was
/// forgotten would complain only about what follows.
fn broken_string(text: &str) -> Option<usize> {
    let options = ScannerOptions { allow_single_quoted_strings: false, ..ScannerOptions::default() };
    let mut scanner = Scanner::new(text, &options);
    while let Ok(Some(token)) = scanner.scan() {
        let range = scanner.token_start()..scanner.token_end();
        if matches!(token, Token::String(_)) && text[range.clone()].contains('\n') {
            return Some(range.start);
        }
    }
    None
}

fn in_our_words(error: &ParseError) -> String {
    use ParseErrorKind::*;
    match error.kind() {
        UnterminatedObject => "this object is not closed".into(),
        UnterminatedArray => "this list is not closed".into(),
        NestingDepthExceeded => "nested too deeply".into(),
        MultipleRootJsonValues => "something follows the end of the value".into(),
        String(ParseStringErrorKind::InvalidEscape) => {
            "unknown escape (a backslash is written `\\\\`)".into()
        }
        other => uncapitalised(&other.to_string()),
    }
}

fn uncapitalised(text: &str) -> std::string::String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_lowercase().chain(chars).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::problem::Problems;
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let notes = Notes::default();
        let parsed = parse(text, &notes).map(|_| "fine".to_owned());
        assert_eq!(parsed.unwrap_or_else(|| Problems(notes.place("f", text)).to_string()), expected);
    }

    // req: BR-01
    #[test]
    fn comments_and_trailing_commas_are_allowed() {
        check("// a\n{ /* b */ \"a\": [1, 2,], // c\n }\n/* d */", "fine");
        check("{\"url\": \"http://not.a/comment\"}", "fine");
    }

    #[test]
    fn what_is_not_json_is_pointed_at() {
        check("{\n  \"a\": nope\n}", "f:2:8: not JSON: unexpected word");
        check("{\n  \"a\": 1\n  \"b\": 2\n}", "f:2:9: not JSON: expected comma");
        check("{\"a\": {\"b\": 1}", "f:1:1: not JSON: this object is not closed");
        check("{\"a\": [1, 2", "f:1:7: not JSON: this list is not closed");
        check("{} {}", "f:1:4: not JSON: something follows the end of the value");
        check("{\"a\": 0x10}", "f:1:7: not JSON: hexadecimal numbers are not allowed");
        check(
            "{'a
': 1}",
            "f:1:2: not JSON: single-quoted strings are not allowed",
        );
        check("{a: 1}", "f:1:2: not JSON: expected string for object property");
        check("{} /* never closed", "f:1:4: not JSON: unterminated comment block");
        check(r#"{"é": "C:\Users"}"#, r"f:1:10: not JSON: unknown escape (a backslash is written `\\`)");
    }

    #[test]
    fn a_forgotten_quote_is_found_where_it_was_forgotten() {
        check(
            "{\n  \"command\": \"npx,\n  \"args\": []\n}",
            "f:2:14: not JSON: this string does not end on its line",
        );
        check("{\"a\": \"b", "f:1:7: not JSON: unterminated string literal");
    }

    #[test]
    fn an_empty_file_holds_no_value() {
        for text in ["", "  \n", "// nothing\n"] {
            check(text, "f:1:1: holds no JSON value");
        }
    }

    #[test]
    fn a_hundred_thousand_levels_do_not_exhaust_the_stack() {
        for open in ["[", "{\"a\":", "[{\"a\":"] {
            let notes = Notes::default();
            assert!(parse(&open.repeat(100_000), &notes).is_none());
            let problems = notes.place("f", &open.repeat(100_000));
            assert_eq!(problems[0].message, "not JSON: nested too deeply");
        }
    }
}
