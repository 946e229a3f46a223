//! Which names may be shown to scripts, and how they are spelled there.

/// A name that no script may be given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} may not be called `{name}` in a script: {why}")]
pub struct InvalidToolName {
    what: &'static str,
    name: String,
    why: &'static str,
}

/// Names that mean something to every JavaScript object. A tool of that name would stand in its way.
const RESERVED: [&str; 10] = [
    "__proto__",
    "constructor",
    "prototype",
    "__defineGetter__",
    "__defineSetter__",
    "__lookupGetter__",
    "__lookupSetter__",
    "hasOwnProperty",
    "isPrototypeOf",
    "propertyIsEnumerable",
];

/// Whether a server and one of its tools may be shown to scripts.
pub fn check(server: &str, tool: &str) -> Result<(), InvalidToolName> {
    check_one("a server", server, "_-")?;
    check_one("a tool", tool, "_./-")
}

fn check_one(what: &'static str, name: &str, marks: &str) -> Result<(), InvalidToolName> {
    let refuse = |why| Err(InvalidToolName { what, name: name.to_owned(), why });
    if name.is_empty() {
        return refuse("it is empty");
    }
    if !name.chars().all(|c| c.is_ascii_alphanumeric() || marks.contains(c)) {
        return refuse("only letters, digits and a few marks may be in it");
    }
    if is_reserved(name) || is_reserved(&camel(name)) {
        return refuse("the word means something to JavaScript");
    }
    Ok(())
}

/// Whether a property of that name is never a tool.
pub fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name)
}

/// `list_commits`, `list-commits` and `list.commits` as JavaScript spells them: `listCommits`.
pub fn camel(name: &str) -> String {
    let mut words = name.split(['_', '-', '.', '/']).filter(|word| !word.is_empty());
    let mut spelled = words.next().map(lower_first).unwrap_or_default();
    for word in words {
        let mut letters = word.chars();
        spelled.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        spelled.push_str(letters.as_str());
    }
    spelled
}

/// `API` stays as it is, and so does `listCommits`; `List` becomes `list`.
fn lower_first(word: &str) -> String {
    let mut letters = word.chars();
    let first = letters.next();
    match first.filter(|_| letters.as_str().starts_with(|next: char| next.is_ascii_lowercase())) {
        Some(first) => format!("{}{}", first.to_ascii_lowercase(), letters.as_str()),
        None => word.to_owned(),
    }
}

/// `listCommits` and `list-commits` as `list_commits`.
pub fn snake(name: &str) -> String {
    let mut spelled = String::with_capacity(name.len() + 4);
    let mut previous_was_lower = false;
    for c in name.chars() {
        if c.is_ascii_uppercase() && previous_was_lower {
            spelled.push('_');
        }
        previous_was_lower = c.is_ascii_lowercase() || c.is_ascii_digit();
        spelled.push(if c == '-' || c == '.' { '_' } else { c.to_ascii_lowercase() });
    }
    spelled
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: CM-02
    #[test]
    fn names_are_spelled_in_camel_case() {
        for (name, spelled) in [
            ("list_commits", "listCommits"),
            ("get-sum", "getSum"),
            ("API-get-user", "APIGetUser"),
            ("listCommits", "listCommits"),
            ("Read_File", "readFile"),
            ("_private", "private"),
            ("a.b/c", "aBC"),
            ("echo", "echo"),
            ("x", "x"),
        ] {
            assert_eq!(camel(name), spelled);
        }
    }

    // req: CM-02
    #[test]
    fn names_are_spelled_in_snake_case() {
        for (name, spelled) in
            [("perPage", "per_page"), ("per-page", "per_page"), ("userID", "user_id"), ("a1B", "a1_b")]
        {
            assert_eq!(snake(name), spelled);
        }
    }

    proptest::proptest! {
        #[test]
        fn any_name_can_be_spelled(name in ".*") {
            camel(&name);
            snake(&name);
        }
    }

    // req: CM-09
    #[test]
    fn names_that_mean_something_to_javascript_are_refused() {
        for tool in ["__proto__", "constructor", "prototype", "has_own_property", "", "a b", "é", "a\"]"] {
            assert!(check("server", tool).is_err(), "{tool}");
        }
        assert!(check("__proto__", "x").is_err());
        assert!(check("a.b", "x").is_err());
        assert!(check("my-server_1", "list.commits/all-1").is_ok());
    }
}
