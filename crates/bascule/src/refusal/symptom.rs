//! Finds signs of a refusal in the texts of a server: its errors, its stderr and its exit.
//!
//! Only reads texts. `hint` decides whether the sandbox is the likely cause.

use std::path::PathBuf;

use bascule_sandbox::FileNeed;
use serde_json::Value;

/// Longer texts are not read as a whole.
const MAX_BYTES: usize = 64 << 10;

/// A sign that the operating system refused something to a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Symptom {
    /// EACCES, EPERM, EROFS or the like.
    Permission {
        /// The file that the text names, absolute or relative to the server's folder.
        path: Option<PathBuf>,
        /// The access that the text names.
        need: Option<FileNeed>,
        /// True if the text is about sockets.
        is_socket: bool,
    },
    /// A name could not be resolved.
    Network,
    /// An allocation failed.
    Memory,
    /// A process or thread could not be started.
    Processes,
    OpenFiles,
    /// A failure without a reason. Python's `MemoryError` has no text.
    NoReason,
    /// The filter of system calls killed the process.
    Killed,
    /// No sign at all. The failed call, or its error, names these absolute paths.
    NamedPaths(Vec<PathBuf>),
}

/// Returns the last symptom of a text.
pub(crate) fn find_symptom(text: &str) -> Option<Symptom> {
    end_of(text).lines().rev().find_map(symptom_of_line)
}

/// The end of a long text tells the cause; more is not worth the time.
fn end_of(text: &str) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(MAX_BYTES))..]
}

/// Returns true for a tool's error that gives no reason.
pub(crate) fn gives_no_reason(text: &str) -> bool {
    text.trim_end().is_empty() || text.trim_end().ends_with(':')
}

/// Returns the absolute paths in a tool's error, the last line first, and then those in the arguments of its call.
pub(crate) fn find_named_paths(text: &str, arguments: &str) -> Option<Symptom> {
    // Each one is looked up in the file system.
    const MAX_PATHS: usize = 16;
    let mut paths: Vec<PathBuf> = end_of(text).lines().rev().flat_map(paths_in).map(PathBuf::from).collect();
    paths.retain(|path| path.is_absolute());
    paths.truncate(MAX_PATHS);
    if arguments.len() <= MAX_BYTES
        && let Ok(arguments) = serde_json::from_str(arguments)
    {
        add_paths(&arguments, &mut paths);
    }
    paths.truncate(2 * MAX_PATHS);
    (!paths.is_empty()).then_some(Symptom::NamedPaths(paths))
}

/// Adds the texts in a value that are an absolute path as a whole.
fn add_paths(value: &Value, paths: &mut Vec<PathBuf>) {
    match value {
        Value::String(text) if text.starts_with('/') && !text.contains('\0') => paths.push(text.into()),
        Value::Array(items) => items.iter().for_each(|item| add_paths(item, paths)),
        Value::Object(members) => members.values().for_each(|member| add_paths(member, paths)),
        _ => {}
    }
}

/// Returns true if an exit tells that the filter of system calls killed the process. A shell reports it as an exit code.
pub(crate) fn is_killed_by_filter(exit: &str) -> bool {
    exit.contains("SIGSYS") || exit == "exit code 159"
}

fn symptom_of_line(line: &str) -> Option<Symptom> {
    let lower = line.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    if has(MEMORY) || line.contains("ENOMEM") {
        return Some(Symptom::Memory);
    }
    if has(&["too many open files"]) || line.contains("EMFILE") {
        return Some(Symptom::OpenFiles);
    }
    let is_temporary = has(&["eagain", "temporarily unavailable"]);
    if has(PROCESSES) || (is_temporary && has(&["spawn", "fork", "thread"])) {
        return Some(Symptom::Processes);
    }
    if let Some(marker) = PERMISSION.iter().filter_map(|word| lower.find(word)).min() {
        let path = find_path(line, marker);
        let is_socket = has(SOCKET);
        return Some(Symptom::Permission { path, need: find_need(&lower), is_socket });
    }
    (has(RESOLUTION) || line.contains("EAI_AGAIN")).then_some(Symptom::Network)
}

/// Each runtime reports a failed allocation in its own words.
const MEMORY: &[&str] = &[
    "out of memory",
    "memoryerror",
    "cannot allocate memory",
    "allocation failed",
    "memory allocation of",
    "bad_alloc",
    "outofmemory",
    "unable to allocate",
];

const PROCESSES: &[&str] = &["can't start new thread", "cannot fork", "unable to create native thread"];

const PERMISSION: &[&str] = &[
    "eacces",
    "eperm",
    "erofs",
    "permission denied",
    "operation not permitted",
    "read-only file system",
    "permissionerror",
    // .NET
    "access to the path",
];

const SOCKET: &[&str] = &["socket", "connect ", "connect(", ".sock", "af_unix", "bind "];

const RESOLUTION: &[&str] =
    &["temporary failure in name resolution", "name or service not known", "enotfound"];

/// Words of the failed operation. Node names the system call, other programs their own function.
const CHANGES: &[&str] = &[
    "mkdir",
    "rmdir",
    "unlink",
    "rename",
    "symlink",
    "mkdtemp",
    "copyfile",
    "cannot create",
    "cannot remove",
    "create directory",
    "creating",
    "makedirs",
];
const WRITES: &[&str] = &["erofs", "read-only", "truncate", "chmod", "chown", "utime", "write"];
const READS: &[&str] = &["scandir", "opendir", "readdir", "spawn", "exec", "read "];

fn find_need(lower: &str) -> Option<FileNeed> {
    let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    match () {
        () if has(CHANGES) => Some(FileNeed::ChangeFolder),
        () if has(WRITES) => Some(FileNeed::Write),
        () if has(READS) => Some(FileNeed::Read),
        () => None,
    }
}

/// Returns the path nearest to a marker in a line: the first one behind it, else the last one before it.
fn find_path(line: &str, marker: usize) -> Option<PathBuf> {
    let (before, after) = line.split_at(marker);
    let found = paths_in(after).next().or_else(|| paths_in(before).last());
    found.map(PathBuf::from)
}

/// Returns quoted paths and words that start with a slash.
fn paths_in(text: &str) -> impl Iterator<Item = &str> {
    let mut position = 0;
    std::iter::from_fn(move || {
        loop {
            let start = position + text[position..].find(['\'', '"', '`', '/', '['])?;
            let found = path_at(&text[start..], text[..start].chars().next_back());
            position = start + found.map_or(1, |(_, length)| length);
            if let Some((path, _)) = found {
                return Some(path);
            }
        }
    })
}

/// Reads a path at the start of a text: between quotes or brackets, or up to the next space.
fn path_at(text: &str, before: Option<char>) -> Option<(&str, usize)> {
    let first = text.chars().next()?;
    if first == '/' {
        let is_start = before.is_none_or(|before| before.is_whitespace() || "(=:,<".contains(before));
        let word = text.split(|c: char| c.is_whitespace() || "'\"`,;)]}>".contains(c)).next()?;
        let path = word.trim_end_matches([':', '.']);
        return (is_start && path.len() > 1 && !path.starts_with("//")).then_some((path, word.len()));
    }
    let close = if first == '[' { ']' } else { first };
    let inner = &text[1..];
    let path = &inner[..inner.find(close)?];
    let is_path = match first {
        '[' => path.starts_with('/'),
        _ => path.contains('/') || path.contains('.'),
    };
    let is_clean = !path.contains("://") && !path.contains('\n') && path.len() < 4096;
    (is_path && is_clean).then_some((path, path.len() + 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let found = match find_symptom(text) {
            Some(Symptom::Permission { path, need, is_socket }) => {
                let path = path.map_or_else(|| "-".into(), |path| path.display().to_string());
                let need = need.map_or_else(|| "-".into(), |need| format!("{need:?}"));
                format!("{path} {need}{}", if is_socket { " socket" } else { "" })
            }
            Some(other) => format!("{other:?}"),
            None => "none".into(),
        };
        assert_eq!(found, expected, "{text}");
    }

    // req: SB-09
    #[test]
    fn reads_errors_of_every_runtime() {
        check(
            "Error: EACCES: permission denied, mkdir '/home/me/.mongodb'",
            "/home/me/.mongodb ChangeFolder",
        );
        check("EACCES: permission denied, open '/data/a b.txt'", "/data/a b.txt -");
        check("PermissionError: [Errno 13] Permission denied: '/tmp/x'", "/tmp/x -");
        check("PermissionError: [Errno 13] Permission denied: 'notes.txt'", "notes.txt -");
        check("open /etc/app/state: permission denied", "/etc/app/state -");
        check("sh: 1: cannot create /data/x: Permission denied", "/data/x ChangeFolder");
        check("[Errno 30] Read-only file system: '/x/y'", "/x/y Write");
        check(
            "Failed to create directory [/home/me/.net/a/] for extracting: Permission denied",
            "/home/me/.net/a/ ChangeFolder",
        );
        check("Access to the path '/home/me/.azure' is denied.", "/home/me/.azure -");
        check("spawn /opt/tool EACCES", "/opt/tool Read");
        check("Error: connect EACCES /var/run/docker.sock", "/var/run/docker.sock - socket");
        check("Permission denied (os error 13)", "- -");
        check("OSError: [Errno 1] Operation not permitted", "- -");
    }

    // req: SB-03, SB-09
    #[test]
    fn reads_limits() {
        check("MemoryError: ", "Memory");
        check("RangeError: Array buffer allocation failed", "Memory");
        check("RuntimeError: can't start new thread", "Processes");
        check("spawn /bin/sh EAGAIN", "Processes");
        check("OSError: [Errno 24] Too many open files: '/dev/null'", "OpenFiles");
        check("getaddrinfo EAI_AGAIN example.org", "Network");
    }

    // req: SB-09
    #[test]
    fn prefers_the_last_line_and_ignores_other_texts() {
        check(
            "EACCES: permission denied, open '/a'\nat Object.open (/app/x.js:1:2)\nEPERM: operation not permitted, unlink '/b/c'",
            "/b/c ChangeFolder",
        );
        check("file not found: /a/b", "none");
        check("permission denied for https://api.example.org/v1/x", "- -");
        check("Traceback\n  File \"/app/main.py\", line 3\nValueError: no", "none");
    }

    // req: SB-03
    #[test]
    fn notices_errors_without_reason() {
        assert!(gives_no_reason(" \n") && gives_no_reason("Error executing tool load: "));
        assert!(!gives_no_reason("Error: no such table"));
    }

    // req: SB-09
    #[test]
    fn finds_paths_in_errors_and_arguments() {
        let check = |text: &str, arguments: &str, expected: &[&str]| {
            let paths = match find_named_paths(text, arguments) {
                Some(Symptom::NamedPaths(paths)) => paths,
                _ => Vec::new(),
            };
            assert_eq!(paths, expected.iter().map(PathBuf::from).collect::<Vec<_>>(), "{text}");
        };
        check("Error executing tool git_log: /data/repo", "{}", &["/data/repo"]);
        check(
            "failed",
            r#"{"a": ["/x y", {"b": "/z"}], "text": "see /w", "url": "http://e/x"}"#,
            &["/x y", "/z"],
        );
        check("no 'notes.txt' at https://example.org/x", "{}", &[]);
    }

    // req: SB-09
    #[test]
    fn recognises_exit_of_filter() {
        assert!(is_killed_by_filter("signal 31 (SIGSYS)") && is_killed_by_filter("exit code 159"));
        assert!(!is_killed_by_filter("exit code 1") && !is_killed_by_filter("signal 9 (SIGKILL)"));
    }
}
