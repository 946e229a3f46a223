//! Finds names that are similar to an unknown one.

use bascule_model::ToolId;

/// The maximum number of suggested tools.
const MAX_SUGGESTIONS: usize = 5;
/// The least similarity of similar names: one or two typing errors, or half of the words in common.
const SIMILAR: f64 = 0.45;
/// The least similarity of names that differ only in spelling.
const NEARLY_EQUAL: f64 = 0.7;
/// Only this many characters are compared, because the time is quadratic in the length.
const COMPARED_CHARS: usize = 100;

/// Returns the candidate that `wanted` is probably a misspelling of.
pub fn nearest_name<'a>(candidates: impl IntoIterator<Item = &'a str>, wanted: &str) -> Option<&'a str> {
    let wanted = ComparableName::new(wanted);
    let ranked = candidates.into_iter().map(|text| (wanted.similarity(&ComparableName::new(text)), text));
    let best = ranked.reduce(|best, next| if next.0 > best.0 { next } else { best });
    best.filter(|(similarity, _)| *similarity >= NEARLY_EQUAL).map(|(_, text)| text)
}

/// Returns the tools that `wanted` may refer to, best first: similar names on the requested server, or on one with
/// a nearly equal name; only nearly equal names on other servers.
pub(crate) fn nearest_tools<'a>(
    servers: impl Iterator<Item = (&'a str, Vec<&'a ToolId>)>,
    wanted: &ToolId,
) -> Vec<ToolId> {
    let (server, tool) = (ComparableName::new(wanted.server()), ComparableName::new(wanted.tool()));
    let mut ranked = Vec::new();
    for (name, tools) in servers {
        let server_similarity = server.similarity(&ComparableName::new(name));
        let threshold = match server_similarity >= NEARLY_EQUAL {
            true if tools.len() <= MAX_SUGGESTIONS => 0.0,
            true => SIMILAR,
            false => NEARLY_EQUAL,
        };
        let similarity = |id: &'a ToolId| (tool.similarity(&ComparableName::new(id.tool())), id);
        let similar =
            tools.into_iter().map(similarity).filter(|(tool_similarity, _)| *tool_similarity >= threshold);
        ranked.extend(similar.map(|(tool_similarity, id)| (tool_similarity + server_similarity / 4.0, id)));
    }
    ranked.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    ranked.into_iter().take(MAX_SUGGESTIONS).map(|(_, id)| id.clone()).collect()
}

/// A name split into lower-case words, independent of how they are joined.
struct ComparableName {
    words: Vec<String>,
    joined: String,
}

impl ComparableName {
    fn new(text: &str) -> Self {
        let words = split_words(text);
        Self { joined: words.concat(), words }
    }

    /// Returns 1 for equal words, regardless of case and separators, and 0 for nothing in common.
    fn similarity(&self, other: &Self) -> f64 {
        if self.joined == other.joined {
            return 1.0;
        }
        letter_similarity(&self.joined, &other.joined)
            .max(self.word_similarity(other))
            .max(self.abbreviation_similarity(other))
            .min(0.99)
    }

    /// Based on the share of words in common, allowing for typing errors.
    fn word_similarity(&self, other: &Self) -> f64 {
        let has = |word: &str| other.words.iter().any(|other| is_nearly_equal(word, other));
        let shared = self.words.iter().filter(|word| has(word)).count();
        let longer = self.words.len().max(other.words.len());
        if shared == 0 { 0.0 } else { 0.9 * shared as f64 / longer as f64 }
    }

    /// `cmd` for `command`, `list_commits` for `github_list_commits`: one name contains enough letters of the other in
    /// the same order.
    fn abbreviation_similarity(&self, other: &Self) -> f64 {
        let (a, b) = (self.joined.as_str(), other.joined.as_str());
        let (short, long) = if a.len() < b.len() { (a, b) } else { (b, a) };
        let contained = short.len() * 2 >= long.len() && long.contains(short);
        let shortened = short.len() * 5 >= long.len() * 2 && contains_letters_in_order(long, short);
        if short.len() >= 3 && (contained || shortened) { NEARLY_EQUAL } else { 0.0 }
    }
}

fn is_nearly_equal(word: &str, other: &str) -> bool {
    let (short, long) = (word.len().min(other.len()), word.len().max(other.len()));
    // Skips the comparison if the lengths rule out a match.
    let is_possible = short >= 4 && (long - short) * 4 < long;
    word == other || (is_possible && letter_similarity(word, other) > 0.75)
}

/// Returns the share of the longer text that needs no edit to get the other; a swap of two letters is one edit.
fn letter_similarity(a: &str, b: &str) -> f64 {
    let longer = a.chars().count().max(b.chars().count()).max(1);
    1.0 - strsim::osa_distance(a, b) as f64 / longer as f64
}

fn contains_letters_in_order(text: &str, letters: &str) -> bool {
    let mut rest = text.chars();
    let starts_alike = text.chars().next() == letters.chars().next();
    starts_alike && letters.chars().all(|wanted| rest.any(|letter| letter == wanted))
}

/// Splits `readFile`, `read_file`, `read-file` and `READ FILE` into `read`, `file`.
fn split_words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut after_lowercase = false;
    for letter in text.chars().take(COMPARED_CHARS) {
        if !letter.is_alphanumeric() || (after_lowercase && letter.is_uppercase()) {
            words.push(String::new());
        }
        if let (true, Some(word)) = (letter.is_alphanumeric(), words.last_mut()) {
            word.extend(letter.to_lowercase());
        }
        after_lowercase = letter.is_lowercase();
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [&str; 6] = ["allowedTools", "deniedTools", "command", "args", "timeoutMs", "env"];

    #[test]
    fn finds_misspelt_key() {
        for (wanted, nearest) in [
            ("alowedTools", "allowedTools"),
            ("allowed_tools", "allowedTools"),
            ("DENIED-TOOLS", "deniedTools"),
            ("cmd", "command"),
            ("arguments", "args"),
            ("timeout", "timeoutMs"),
        ] {
            assert_eq!(nearest_name(KEYS, wanted), Some(nearest), "{wanted}");
        }
    }

    #[test]
    fn suggests_nothing_for_unrelated_name() {
        for wanted in ["disabled", "autoApprove", "", "x", "🦀", "type"] {
            assert_eq!(nearest_name(KEYS, wanted), None, "{wanted}");
        }
        assert_eq!(nearest_name([], "command"), None);
    }

    #[test]
    fn splits_names_into_words() {
        for text in ["readTextFile", "read_text-file", "Read.Text/File", "READ TEXT FILE"] {
            assert_eq!(split_words(text), ["read", "text", "file"], "{text}");
        }
    }

    fn check(tools: &[&str], wanted: &str, expected: &[&str]) {
        let tools: Vec<_> = tools.iter().map(|id| ToolId::parse(id).unwrap()).collect();
        let servers = tools.chunk_by(|a, b| a.server() == b.server());
        let servers = servers.map(|tools| (tools[0].server(), tools.iter().collect()));
        let found = nearest_tools(servers, &ToolId::parse(wanted).unwrap());
        assert_eq!(found.iter().map(ToolId::as_str).collect::<Vec<_>>(), expected, "{wanted}");
    }

    const TOOLS: [&str; 10] = [
        "files:read_file",
        "files:write_file",
        "files:list_directory",
        "files:move_file",
        "files:create_directory",
        "files:get_file_info",
        "github:listCommits",
        "github:create_issue",
        "time:convert_time",
        "time:get_current_time",
    ];

    // req: BR-04
    #[test]
    fn ranks_other_spelling_first() {
        check(&TOOLS, "files:readFile", &["files:read_file", "files:write_file", "files:move_file"]);
        check(&TOOLS, "github:list-commits", &["github:listCommits", "github:create_issue"]);
    }

    // req: BR-04
    #[test]
    fn finds_tool_despite_typing_error() {
        check(&TOOLS, "files:list_directroy", &["files:list_directory", "files:create_directory"]);
    }

    // req: BR-04
    #[test]
    fn finds_tool_on_another_server() {
        check(&TOOLS, "gitlab:list_commits", &["github:listCommits"]);
        check(&TOOLS, "github:github_list_commits", &["github:listCommits", "github:create_issue"]);
    }

    // req: BR-04
    #[test]
    fn finds_tools_of_misspelt_server() {
        check(&TOOLS, "gihub:open_ticket", &["github:create_issue", "github:listCommits"]);
    }

    // req: BR-04
    #[test]
    fn suggests_all_tools_of_small_server_only() {
        check(&TOOLS, "time:zzz", &["time:convert_time", "time:get_current_time"]);
        check(&TOOLS, "files:zzz", &[]);
        check(&TOOLS, "nowhere:zzz", &[]);
    }

    #[test]
    fn compares_only_the_beginning_of_long_names() {
        let long = format!("a:{}", "x".repeat(1_000_000));
        check(&[&long], &format!("a:{}", "x".repeat(999_999)), &[&long]);
    }
}
