//! Formats hostile text of a configuration for a person who decides if it is trusted: short, visible and unambiguous.

use serde_json::Value;

use crate::config::problem::escape_and_truncate;

/// Longer words of a command are cut.
const MAX_WORD_CHARS: usize = 200;
/// Words of a command, and entries of a list, that are shown.
const MAX_SHOWN: usize = 20;
/// Lines that are shown: a hostile file must not fill the screen.
pub(super) const MAX_LINES: usize = 40;
pub(super) const READ_THE_FILE: &str = "not everything is shown: read the file before you trust it";

/// Cuts a long description, and says so.
pub(super) fn mention_omissions(mut lines: Vec<String>) -> Vec<String> {
    let is_cut = lines.iter().any(|line| line.contains('…')) || lines.len() > MAX_LINES;
    if let Some(omitted @ 1..) = lines.len().checked_sub(MAX_LINES) {
        lines.truncate(MAX_LINES);
        lines.push(format!("… and {omitted} more lines"));
    }
    if is_cut {
        lines.push(READ_THE_FILE.into());
    }
    lines
}

/// Formats a command with its arguments.
pub(super) fn show_command(words: &[String]) -> String {
    let mut shown: Vec<String> = words.iter().take(MAX_SHOWN).map(|word| show(&quote_word(word))).collect();
    if words.len() > MAX_SHOWN {
        shown.push(format!("… ({} more arguments)", words.len() - MAX_SHOWN));
    }
    shown.join(" ")
}

/// Quotes a word as in a shell, so that its borders are visible.
fn quote_word(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "_@%+=:,./-${}".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// Formats the confinement of a server.
pub(super) fn show_sandbox(sandbox: &Value) -> String {
    match sandbox {
        Value::String(name) if name == "off" => "WITHOUT A SANDBOX".into(),
        Value::String(name) => format!("in the sandbox `{}`", show(name)),
        rules => format!("in a sandbox with the rules `{}`", show(&rules.to_string())),
    }
}

/// Joins the entries of a list, and counts those that are not shown.
pub(super) fn join(entries: &[String]) -> String {
    let shown = entries[..entries.len().min(MAX_SHOWN)].join(", ");
    match entries.len().saturating_sub(MAX_SHOWN) {
        0 => shown,
        more => format!("{shown}, … ({more} more)"),
    }
}

/// Returns text of the file as it may be printed.
pub(super) fn show(text: &str) -> String {
    escape_and_truncate(text, MAX_WORD_CHARS)
}

/// Replaces everything by `***` except the names of variables.
pub(super) fn hide_literals(text: &str) -> String {
    let (mut shown, mut rest) = (String::new(), text);
    while let Some((before, (inside, after))) =
        rest.split_once("${").and_then(|(before, after)| Some((before, after.split_once('}')?)))
    {
        let (name, default) = inside.split_once(":-").unwrap_or((inside, ""));
        shown += if before.is_empty() { "" } else { "***" };
        shown += &format!("${{{name}{}}}", if default.is_empty() { "" } else { ":-***" });
        rest = after;
    }
    shown + if rest.is_empty() { "" } else { "***" }
}
