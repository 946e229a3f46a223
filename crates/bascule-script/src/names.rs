//! Checks and respells server and tool names for scripts.

/// A server or tool name that cannot be used in scripts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} name `{name}` cannot be used in scripts: {reason}")]
pub struct InvalidToolName {
    kind: &'static str,
    name: String,
    reason: String,
}

/// Properties of every JavaScript object. A tool with such a name would shadow one.
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

/// Properties that JavaScript and its libraries read from any object: a script that reads one means no tool.
pub(crate) const PROBES: [&str; 16] = [
    "then",
    "catch",
    "finally",
    "toJSON",
    "toString",
    "valueOf",
    "constructor",
    "prototype",
    "__proto__",
    "inspect",
    "length",
    "nodeType",
    "asymmetricMatch",
    "$$typeof",
    "@@iterator",
    "hasOwnProperty",
];

/// Returns true for properties that are read from any object.
pub(crate) fn is_probe(name: &str) -> bool {
    PROBES.contains(&name)
}

/// Checks that scripts can use a server and one of its tools.
pub fn check(server: &str, tool: &str) -> Result<(), InvalidToolName> {
    check_name("server", server, "_-")?;
    check_name("tool", tool, "_./-")
}

fn check_name(kind: &'static str, name: &str, punctuation: &str) -> Result<(), InvalidToolName> {
    let refuse = |reason: &str| Err(InvalidToolName { kind, name: name.into(), reason: reason.into() });
    if name.is_empty() {
        return refuse("it is empty");
    }
    if !name.chars().all(|c| c.is_ascii_alphanumeric() || punctuation.contains(c)) {
        return refuse(&format!("only ASCII letters, digits and the characters `{punctuation}` are allowed"));
    }
    if is_reserved(name) || is_reserved(&to_camel_case(name)) {
        return refuse("it is a property of every JavaScript object");
    }
    Ok(())
}

fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name)
}

/// Returns advice for a global of Node, browsers and libraries that scripts do not have.
pub(crate) fn advice_for_global(name: &str) -> Option<&'static str> {
    Some(match name {
        "fs" | "fsp" | "path" | "os" | "child_process" | "Deno" | "Bun" | "__dirname" | "__filename" => {
            "scripts have no files and no modules; call a tool, such as one of a server for files"
        }
        "process" => "scripts have no process; pass input as `context`, and end with `return`",
        "module" | "exports" => "scripts have no modules; end with `return` and the value",
        "axios" | "got" | "http" | "https" | "jQuery" => "scripts have no network; call a tool instead",
        "window" | "document" | "navigator" | "location" | "self" => {
            "scripts do not run in a browser; call a tool, such as one of a server for web pages"
        }
        "localStorage" | "sessionStorage" | "indexedDB" => {
            "scripts keep nothing; return the data, or call a tool that stores it"
        }
        "Temporal" | "moment" | "dayjs" | "luxon" => "use `Date`, and `Intl.DateTimeFormat` with `timeZone`",
        "_" | "lodash" => "use the methods of arrays and objects",
        "ReadableStream" | "EventTarget" | "EventEmitter" | "Event" => "use promises and async functions",
        "tools" | "callTool" | "call_tool" | "client" | "server" | "servers" => {
            "call a tool as `mcp.server.toolName({ … })`; `bascule.tools` lists their ids"
        }
        _ => return None,
    })
}

/// Returns the class and message of the error that a call of a function throws which Node or browsers have, but scripts do not.
/// `argument` is the first argument if it is text.
pub(crate) fn absence(path: &str, argument: Option<&str>) -> Option<(&'static str, String)> {
    let no_network = "scripts have no network; call a tool instead";
    let advice = match path {
        "fetch" => "scripts have no network; call a tool instead, such as mcp.SERVER.TOOL({ … })",
        "require" => {
            "scripts cannot import modules; call tools through mcp; `Buffer`, `URL`, `TextEncoder` and \
             `crypto.subtle.digest` are global; join paths as text"
        }
        "XMLHttpRequest" | "WebSocket" | "EventSource" | "Request" | "Response" => no_network,
        "FormData" => "scripts have no network; pass an object to a tool",
        "Worker" => "a script has one thread; run calls at once with Promise.all",
        "importScripts" => "scripts cannot import modules",
        "alert" => "use console.log",
        "prompt" | "confirm" => "pass input as `context`",
        "crypto.subtle.encrypt"
        | "crypto.subtle.decrypt"
        | "crypto.subtle.sign"
        | "crypto.subtle.verify"
        | "crypto.subtle.importKey"
        | "crypto.subtle.generateKey" => "scripts have only digests",
        "crypto.createHash" => return Some(("TypeError", absence_of_hash(argument))),
        "crypto.createHmac" => "scripts have only digests without a key (crypto.subtle.digest)",
        "crypto.randomBytes" => "use crypto.getRandomValues(new Uint8Array(n))",
        "Intl.DisplayNames" => "use a table of names",
        "Intl.Segmenter" => "use [...text] for characters and text.split(/\\s+/) for words",
        "Intl.DurationFormat" => "put the text together from numbers",
        "Intl.Locale" => "use the tag as text",
        _ => return None,
    };
    let class = if path.contains('.') { "TypeError" } else { "Error" };
    Some((class, format!("{path} is not available: {advice}")))
}

/// A digest of another algorithm has another value, so none is proposed for an algorithm that scripts do not have.
fn absence_of_hash(algorithm: Option<&str>) -> String {
    const SIZES: [&str; 4] = ["1", "256", "384", "512"];
    let Some(algorithm) = algorithm else {
        return "crypto.createHash is not available: use await crypto.subtle.digest(algorithm, new TextEncoder().encode(text)) \
                with SHA-1, SHA-256, SHA-384 or SHA-512"
            .into();
    };
    let upper = algorithm.to_ascii_uppercase();
    let size = upper.strip_prefix("SHA").map(|size| size.trim_start_matches('-'));
    match size.filter(|size| SIZES.contains(size)) {
        Some(size) => format!(
            "crypto.createHash is not available: use await crypto.subtle.digest('SHA-{size}', new TextEncoder().encode(text))"
        ),
        None => format!(
            "crypto.createHash is not available, nor is `{algorithm}`: crypto.subtle.digest has SHA-1, SHA-256, SHA-384 and \
             SHA-512, whose digests differ from those of `{algorithm}`"
        ),
    }
}

/// Returns advice for a member of `mcp` that is a method of client libraries, not a server.
pub(crate) fn advice_for_member(name: &str) -> Option<String> {
    let advice = match name {
        "callTool" | "call" | "call_tool" | "invoke" | "request" | "execute" => {
            "call a tool as `mcp.server.toolName({ … })`, or by its id: `bascule.call('server:tool', { … })`"
        }
        "tools" | "listTools" | "list_tools" | "getTools" | "servers" => {
            "`bascule.tools` lists the ids of all tools, and `await mcp.search('…')` finds them"
        }
        _ => return None,
    };
    Some(format!("`mcp.{name}` does not exist: {advice}"))
}

/// Converts to camelCase: `list_commits`, `list-commits` and `list.commits` become `listCommits`.
pub fn to_camel_case(name: &str) -> String {
    let mut words = name.split(['_', '-', '.', '/']).filter(|word| !word.is_empty());
    let mut camel = words.next().map(lower_first).unwrap_or_default();
    for word in words {
        let mut letters = word.chars();
        camel.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        camel.push_str(letters.as_str());
    }
    camel
}

/// Converts `List` to `list`; keeps `API` and `listCommits`.
fn lower_first(word: &str) -> String {
    let mut letters = word.chars();
    let first = letters.next();
    match first.filter(|_| letters.as_str().starts_with(|next: char| next.is_ascii_lowercase())) {
        Some(first) => format!("{}{}", first.to_ascii_lowercase(), letters.as_str()),
        None => word.to_owned(),
    }
}

/// Converts to snake_case: `listCommits` and `list-commits` become `list_commits`.
pub fn to_snake_case(name: &str) -> String {
    let mut snake = String::with_capacity(name.len() + 4);
    let mut previous_was_lower = false;
    for c in name.chars() {
        if c.is_ascii_uppercase() && previous_was_lower {
            snake.push('_');
        }
        previous_was_lower = c.is_ascii_lowercase() || c.is_ascii_digit();
        snake.push(if c == '-' || c == '.' { '_' } else { c.to_ascii_lowercase() });
    }
    snake
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: CM-02
    #[test]
    fn converts_to_camel_case() {
        for (name, expected) in [
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
            assert_eq!(to_camel_case(name), expected);
        }
    }

    // req: CM-02
    #[test]
    fn converts_to_snake_case() {
        for (name, expected) in
            [("perPage", "per_page"), ("per-page", "per_page"), ("userID", "user_id"), ("a1B", "a1_b")]
        {
            assert_eq!(to_snake_case(name), expected);
        }
    }

    proptest::proptest! {
        #[test]
        fn converts_any_name(name in ".*") {
            to_camel_case(&name);
            to_snake_case(&name);
        }
    }

    // req: CM-09
    #[test]
    fn refuses_reserved_and_malformed_names() {
        for tool in ["__proto__", "constructor", "prototype", "has_own_property", "", "a b", "é", "a\"]"] {
            assert!(check("server", tool).is_err(), "{tool}");
        }
        assert!(check("__proto__", "x").is_err());
        assert!(check("a.b", "x").is_err());
        assert!(check("my-server_1", "list.commits/all-1").is_ok());
    }
}
