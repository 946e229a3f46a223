//! Makes text of servers harmless for a terminal, a log line or a message.

/// Replaces control and bidirectional characters, so that a server cannot move the cursor, colour the screen or reverse
/// text. Keeps line breaks and tabs.
pub(crate) fn sanitize(text: &str) -> String {
    text.chars().map(|c| if c != '\n' && c != '\t' && is_unsafe(c) { '\u{fffd}' } else { c }).collect()
}

/// Replaces line breaks and tabs too.
pub(crate) fn sanitize_line(text: &str) -> String {
    text.chars().map(|c| if is_unsafe(c) { '\u{fffd}' } else { c }).collect()
}

/// Returns the beginning of a text as one sanitized line.
pub(crate) fn excerpt(text: &str, max_chars: usize) -> String {
    let mut chars = text.trim().chars();
    let mut line = sanitize_line(&chars.by_ref().take(max_chars).collect::<String>());
    if chars.next().is_some() {
        line.push('…');
    }
    line
}

fn is_unsafe(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_control_characters() {
        assert_eq!(sanitize("a\u{1b}[2Jb\tc\n\u{202e}"), "a\u{fffd}[2Jb\tc\n\u{fffd}");
        assert_eq!(sanitize_line("a\nb\u{9b}"), "a\u{fffd}b\u{fffd}");
    }

    #[test]
    fn excerpt_is_one_short_line() {
        assert_eq!(excerpt(" a\u{1b}b\n", 3), "a\u{fffd}b");
        assert_eq!(excerpt("abcd", 3), "abc…");
    }
}
