//! Parses text into a syntax tree: JSON with comments and trailing commas, and no other extension.
//!
//! The parser fails at 512 levels of nesting, so no file can exhaust the stack.

use jsonc_parser::ast::Value;
use jsonc_parser::errors::{ParseError, ParseErrorKind};
use jsonc_parser::tokens::Token;
use jsonc_parser::{
    CollectOptions, ParseOptions, ParseStringErrorKind, Scanner, ScannerOptions, parse_to_ast,
};

use super::problem::ProblemCollector;

/// Returns the tree, or `None` after reporting the error.
pub(super) fn parse<'a>(text: &'a str, problems: &ProblemCollector) -> Option<Value<'a>> {
    match parse_syntax(text) {
        Ok(None) => {
            problems.error(0, "", "the file contains no JSON value: start with `{ \"mcpServers\": {} }`")
        }
        Ok(value) => return value,
        Err((at, message)) => problems.error(at, "", format_args!("not JSON: {message}")),
    }
    None
}

/// Returns the tree (`None` for a text without a value), or the byte offset of the error and its description.
pub(crate) fn parse_syntax(text: &str) -> Result<Option<Value<'_>>, (usize, String)> {
    if let Some(at) = find_unclosed_string(text) {
        return Err((at, "this string has no closing quote on its line".into()));
    }
    let result = parse_to_ast(text, &CollectOptions::default(), &options());
    result.map(|result| result.value).map_err(|error| (error.range().start, describe(&error)))
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

/// Finds the first string that contains a line break. The parser accepts such a string, and would report a missing quote
/// only at the text after it.
fn find_unclosed_string(text: &str) -> Option<usize> {
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

fn describe(error: &ParseError) -> String {
    use ParseErrorKind::*;
    match error.kind() {
        UnterminatedObject => "this object is not closed".into(),
        UnterminatedArray => "this list is not closed".into(),
        NestingDepthExceeded => "nested too deeply".into(),
        MultipleRootJsonValues => "unexpected text after the end of the value".into(),
        String(ParseStringErrorKind::InvalidEscape) => "unknown escape: write a backslash as `\\\\`".into(),
        other => lowercase_first(&other.to_string()),
    }
}

fn lowercase_first(text: &str) -> std::string::String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_lowercase().chain(chars).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::problem::Problems;
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let problems = ProblemCollector::default();
        let parsed = parse(text, &problems).map(|_| "fine".to_owned());
        assert_eq!(
            parsed.unwrap_or_else(|| Problems(problems.into_problems("f", text)).to_string()),
            expected
        );
    }

    // req: BR-01
    #[test]
    fn accepts_comments_and_trailing_commas() {
        check("// a\n{ /* b */ \"a\": [1, 2,], // c\n }\n/* d */", "fine");
        check("{\"url\": \"http://not.a/comment\"}", "fine");
    }

    #[test]
    fn reports_the_position_of_syntax_errors() {
        check("{\n  \"a\": nope\n}", "f:2:8: not JSON: unexpected word");
        check("{\n  \"a\": 1\n  \"b\": 2\n}", "f:2:9: not JSON: expected comma");
        check("{\"a\": {\"b\": 1}", "f:1:1: not JSON: this object is not closed");
        check("{\"a\": [1, 2", "f:1:7: not JSON: this list is not closed");
        check("{} {}", "f:1:4: not JSON: unexpected text after the end of the value");
        check("{\"a\": 0x10}", "f:1:7: not JSON: hexadecimal numbers are not allowed");
        check(
            "{'a
': 1}",
            "f:1:2: not JSON: single-quoted strings are not allowed",
        );
        check("{a: 1}", "f:1:2: not JSON: expected string for object property");
        check("{} /* never closed", "f:1:4: not JSON: unterminated comment block");
        check(r#"{"é": "C:\Users"}"#, r"f:1:10: not JSON: unknown escape: write a backslash as `\\`");
    }

    #[test]
    fn reports_a_missing_quote_where_the_string_begins() {
        check(
            "{\n  \"command\": \"npx,\n  \"args\": []\n}",
            "f:2:14: not JSON: this string has no closing quote on its line",
        );
        check("{\"a\": \"b", "f:1:7: not JSON: unterminated string literal");
    }

    #[test]
    fn refuses_an_empty_file() {
        for text in ["", "  \n", "// nothing\n"] {
            check(text, "f:1:1: the file contains no JSON value: start with `{ \"mcpServers\": {} }`");
        }
    }

    #[test]
    fn deep_nesting_does_not_exhaust_the_stack() {
        for open in ["[", "{\"a\":", "[{\"a\":"] {
            let problems = ProblemCollector::default();
            assert!(parse(&open.repeat(100_000), &problems).is_none());
            let problems = problems.into_problems("f", &open.repeat(100_000));
            assert_eq!(problems[0].message, "not JSON: nested too deeply");
        }
    }
}
