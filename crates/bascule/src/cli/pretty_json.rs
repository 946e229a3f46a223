//! Indents JSON without parsing it: order of keys and spelling of numbers are unchanged.

use std::iter::Peekable;
use std::str::Chars;

/// Indents valid JSON by two spaces per level.
pub(crate) fn pretty_json(json: &str) -> String {
    let (mut out, mut depth) = (String::with_capacity(json.len() * 2), 0);
    let mut characters = json.chars().peekable();
    while let Some(c) = characters.next() {
        match c {
            _ if c.is_whitespace() => {}
            '{' | '[' => {
                out.push(c);
                if let Some(end) = end_of_empty(&mut characters) {
                    out.push(end);
                } else {
                    depth += 1;
                    new_line(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth -= 1;
                new_line(&mut out, depth);
                out.push(c);
            }
            ',' => {
                out.push(c);
                new_line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            '"' => {
                out.push(c);
                copy_string(&mut characters, &mut out);
            }
            _ => out.push(c),
        }
    }
    out
}

/// Takes the end of a list or an object that holds nothing but space.
fn end_of_empty(characters: &mut Peekable<Chars<'_>>) -> Option<char> {
    while characters.next_if(|next| next.is_whitespace()).is_some() {}
    characters.next_if(|next| matches!(next, '}' | ']'))
}

/// Copies the rest of a string with its closing quotation mark.
fn copy_string(characters: &mut Peekable<Chars<'_>>, out: &mut String) {
    let mut is_escaped = false;
    for c in characters {
        out.push(c);
        if c == '"' && !is_escaped {
            return;
        }
        is_escaped = c == '\\' && !is_escaped;
    }
}

fn new_line(out: &mut String, depth: usize) {
    out.push('\n');
    out.extend(std::iter::repeat_n("  ", depth));
}

#[cfg(test)]
mod tests {
    use super::pretty_json;

    #[test]
    fn indents_json_and_changes_nothing_else() {
        let text = r#"{"b":[1.0, {"x":"a\\\"{,:"}],"a":{ },"c":[],"b":-0}"#;
        assert_eq!(
            pretty_json(text),
            "{\n  \"b\": [\n    1.0,\n    {\n      \"x\": \"a\\\\\\\"{,:\"\n    }\n  ],\n  \"a\": {},\n  \"c\": [],\n  \"b\": -0\n}"
        );
    }
}
