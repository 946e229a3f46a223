//! Spells names, keys and comments so that TypeScript accepts them, whatever a server sends.

use std::collections::HashSet;

/// Words that cannot name a variable.
const KEYWORDS: &[&str] = &[
    "any",
    "as",
    "async",
    "await",
    "boolean",
    "break",
    "case",
    "catch",
    "class",
    "const",
    "constructor",
    "continue",
    "debugger",
    "declare",
    "default",
    "delete",
    "do",
    "else",
    "enum",
    "export",
    "extends",
    "false",
    "finally",
    "for",
    "from",
    "function",
    "get",
    "if",
    "implements",
    "import",
    "in",
    "instanceof",
    "interface",
    "is",
    "let",
    "module",
    "namespace",
    "new",
    "null",
    "number",
    "object",
    "of",
    "package",
    "private",
    "protected",
    "public",
    "require",
    "return",
    "set",
    "static",
    "string",
    "super",
    "switch",
    "symbol",
    "this",
    "throw",
    "true",
    "try",
    "type",
    "typeof",
    "undefined",
    "unknown",
    "var",
    "void",
    "while",
    "with",
    "yield",
    "arguments",
    "eval",
    "never",
];

/// Variables that the libraries of TypeScript declare. A second declaration would be an error.
const GLOBALS: &[&str] = &[
    "alert",
    "atob",
    "blur",
    "btoa",
    "caches",
    "close",
    "closed",
    "confirm",
    "console",
    "context",
    "crypto",
    "document",
    "escape",
    "event",
    "external",
    "fetch",
    "find",
    "focus",
    "frames",
    "global",
    "globalThis",
    "history",
    "indexedDB",
    "isFinite",
    "isNaN",
    "isSecureContext",
    "length",
    "location",
    "locationbar",
    "mcp",
    "menubar",
    "moveBy",
    "moveTo",
    "name",
    "navigation",
    "navigator",
    "open",
    "opener",
    "orientation",
    "origin",
    "parent",
    "parseFloat",
    "parseInt",
    "performance",
    "personalbar",
    "postMessage",
    "print",
    "process",
    "prompt",
    "queueMicrotask",
    "reportError",
    "resizeBy",
    "resizeTo",
    "screen",
    "screenX",
    "screenY",
    "scroll",
    "scrollBy",
    "scrollTo",
    "scrollbars",
    "scheduler",
    "self",
    "setInterval",
    "setTimeout",
    "status",
    "statusbar",
    "stop",
    "structuredClone",
    "toString",
    "toolbar",
    "top",
    "unescape",
    "window",
    "bascule",
    "cookieStore",
    "customElements",
    "clearInterval",
    "clearTimeout",
    "captureEvents",
    "releaseEvents",
    "matchMedia",
    "speechSynthesis",
    "visualViewport",
    "trustedTypes",
    "localStorage",
    "sessionStorage",
    "module",
    "exports",
    "Buffer",
];

/// Returns true if the text can be a property name without quotes.
pub(super) fn is_identifier(text: &str) -> bool {
    let mut letters = text.chars();
    letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_' || first == '$')
        && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_' || letter == '$')
}

/// Returns true if a variable of this name can be declared beside the libraries of TypeScript.
pub(super) fn is_free_variable(text: &str) -> bool {
    is_identifier(text) && !KEYWORDS.contains(&text) && !GLOBALS.contains(&text)
}

/// Writes a string literal.
pub(super) fn quote(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted.replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

/// Writes the name of a property.
pub(super) fn property_key(name: &str) -> String {
    if is_identifier(name) { name.to_owned() } else { quote(name) }
}

/// Converts to PascalCase: `list_commits` becomes `ListCommits`. Characters that no name can have separate words.
pub(super) fn pascal_case(name: &str) -> String {
    let words = name.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let pascal: String = words.map(upper_first).collect();
    match pascal.chars().next() {
        None => "Tool".into(),
        Some(first) if first.is_ascii_digit() => format!("Tool{pascal}"),
        Some(_) => pascal,
    }
}

fn upper_first(word: &str) -> String {
    let (first, rest) = word.split_at(1);
    format!("{}{rest}", first.to_ascii_uppercase())
}

/// Returns the name, with a number if it is taken, and takes it.
pub(super) fn take_name(taken: &mut HashSet<String>, name: &str) -> String {
    // After twenty names, larger numbers are surely free, and few are tried.
    let numbers = (2..=20).chain(taken.len() + 20..);
    let numbered = numbers.map(|number| format!("{name}{number}"));
    let free = std::iter::once(name.to_owned()).chain(numbered).find(|name| !taken.contains(name));
    let free = free.expect("the numbers do not end");
    taken.insert(free.clone());
    free
}

/// Writes a documentation comment. Texts cannot end it, and no line break of another kind ends a line.
pub(super) fn doc_comment(text: &str, indent: &str) -> String {
    let lines: Vec<String> = text.trim().lines().map(comment_text).collect();
    match lines.as_slice() {
        [] => String::new(),
        [line] => format!("{indent}/** {line} */\n"),
        lines => {
            let body: String =
                lines.iter().map(|line| format!("{indent} * {line}").trim_end().to_owned() + "\n").collect();
            format!("{indent}/**\n{body}{indent} */\n")
        }
    }
}

/// Makes a text harmless inside a comment.
pub(super) fn comment_text(text: &str) -> String {
    let visible = |letter: char| {
        if letter.is_control() || matches!(letter, '\u{2028}' | '\u{2029}') { ' ' } else { letter }
    };
    text.trim_end().chars().map(visible).collect::<String>().replace("*/", "*\\/")
}
