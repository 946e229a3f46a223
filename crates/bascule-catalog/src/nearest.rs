//! Finds the names that were probably meant.

use bascule_model::ToolId;

/// How many tools are suggested.
const SUGGESTED: usize = 5;
/// From here on two names are alike: a slip or two, or half of their words.
const ALIKE: f64 = 0.45;
/// From here on they are almost the same.
const ALMOST_THE_SAME: f64 = 0.7;
/// Longer names are compared by their beginning: comparing takes time quadratic in their length.
const COMPARED: usize = 100;

/// The candidate that `wanted` is probably a misspelling of.
pub fn nearest_text<'a>(candidates: impl IntoIterator<Item = &'a str>, wanted: &str) -> Option<&'a str> {
    let wanted = Name::new(wanted);
    let rated = candidates.into_iter().map(|text| (wanted.likeness(&Name::new(text)), text));
    let best = rated.reduce(|best, next| if next.0 > best.0 { next } else { best });
    best.filter(|(likeness, _)| *likeness >= ALMOST_THE_SAME).map(|(_, text)| text)
}

/// The tools that `wanted` may have meant, best first. On the server that was asked for (or on the one that
/// is spelled almost like it) what is vaguely alike counts; elsewhere, only what is almost the same.
pub(crate) fn nearest_tools<'a>(
    servers: impl Iterator<Item = (&'a str, Vec<&'a ToolId>)>,
    wanted: &ToolId,
) -> Vec<ToolId> {
    let (server, tool) = (Name::new(wanted.server()), Name::new(wanted.tool()));
    let mut rated = Vec::new();
    for (name, tools) in servers {
        let same_server = server.likeness(&Name::new(name));
        let enough = match same_server >= ALMOST_THE_SAME {
            true if tools.len() <= SUGGESTED => 0.0,
            true => ALIKE,
            false => ALMOST_THE_SAME,
        };
        let likeness = |id: &'a ToolId| (tool.likeness(&Name::new(id.tool())), id);
        let alike = tools.into_iter().map(likeness).filter(|(same_tool, _)| *same_tool >= enough);
        rated.extend(alike.map(|(same_tool, id)| (same_tool + same_server / 4.0, id)));
    }
    rated.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    rated.into_iter().take(SUGGESTED).map(|(_, id)| id.clone()).collect()
}

/// A name made comparable: its words, however they were joined.
struct Name {
    words: Vec<String>,
    joined: String,
}

impl Name {
    fn new(text: &str) -> Self {
        let words = words_of(text);
        Self { joined: words.concat(), words }
    }

    /// 1 for the same words, whatever their case and whatever stands between; 0 for nothing in common.
    fn likeness(&self, other: &Self) -> f64 {
        if self.joined == other.joined {
            return 1.0;
        }
        by_letters(&self.joined, &other.joined)
            .max(self.shared_words(other))
            .max(self.abbreviates(other))
            .min(0.99)
    }

    /// The part of all their words that both have, give or take a slip.
    fn shared_words(&self, other: &Self) -> f64 {
        let has = |word: &str| other.words.iter().any(|other| almost_equal(word, other));
        let shared = self.words.iter().filter(|word| has(word)).count();
        let longer = self.words.len().max(other.words.len());
        if shared == 0 { 0.0 } else { 0.9 * shared as f64 / longer as f64 }
    }

    /// `cmd` for `command`, `list_commits` for `github_list_commits`: enough letters of the longer, in order.
    fn abbreviates(&self, other: &Self) -> f64 {
        let (a, b) = (self.joined.as_str(), other.joined.as_str());
        let (short, long) = if a.len() < b.len() { (a, b) } else { (b, a) };
        let contained = short.len() * 2 >= long.len() && long.contains(short);
        let shortened = short.len() * 5 >= long.len() * 2 && has_letters_in_order(long, short);
        if short.len() >= 3 && (contained || shortened) { ALMOST_THE_SAME } else { 0.0 }
    }
}

fn almost_equal(word: &str, other: &str) -> bool {
    let (short, long) = (word.len().min(other.len()), word.len().max(other.len()));
    // Comparing is worth its time only where the lengths allow for success.
    let may_be = short >= 4 && (long - short) * 4 < long;
    word == other || (may_be && by_letters(word, other) > 0.75)
}

/// The part of the longer that need not be changed to get the other; two letters swapped are one change.
fn by_letters(a: &str, b: &str) -> f64 {
    let longer = a.chars().count().max(b.chars().count()).max(1);
    1.0 - strsim::osa_distance(a, b) as f64 / longer as f64
}

fn has_letters_in_order(text: &str, letters: &str) -> bool {
    let mut rest = text.chars();
    let starts_alike = text.chars().next() == letters.chars().next();
    starts_alike && letters.chars().all(|wanted| rest.any(|letter| letter == wanted))
}

/// `readFile`, `read_file`, `read-file` and `READ FILE` are all `read`, `file`.
fn words_of(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut after_small = false;
    for letter in text.chars().take(COMPARED) {
        if !letter.is_alphanumeric() || (after_small && letter.is_uppercase()) {
            words.push(String::new());
        }
        if let (true, Some(word)) = (letter.is_alphanumeric(), words.last_mut()) {
            word.extend(letter.to_lowercase());
        }
        after_small = letter.is_lowercase();
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [&str; 6] = ["allowedTools", "deniedTools", "command", "args", "timeoutMs", "env"];

    #[test]
    fn a_misspelt_key_finds_the_right_one() {
        for (wanted, nearest) in [
            ("alowedTools", "allowedTools"),
            ("allowed_tools", "allowedTools"),
            ("DENIED-TOOLS", "deniedTools"),
            ("cmd", "command"),
            ("arguments", "args"),
            ("timeout", "timeoutMs"),
        ] {
            assert_eq!(nearest_text(KEYS, wanted), Some(nearest), "{wanted}");
        }
    }

    #[test]
    fn nothing_is_suggested_for_something_else_altogether() {
        for wanted in ["disabled", "autoApprove", "", "x", "🦀", "type"] {
            assert_eq!(nearest_text(KEYS, wanted), None, "{wanted}");
        }
        assert_eq!(nearest_text([], "command"), None);
    }

    #[test]
    fn a_name_falls_into_its_words_however_they_are_joined() {
        for text in ["readTextFile", "read_text-file", "Read.Text/File", "READ TEXT FILE"] {
            assert_eq!(words_of(text), ["read", "text", "file"], "{text}");
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
    fn the_same_words_in_another_spelling_come_first() {
        check(&TOOLS, "files:readFile", &["files:read_file", "files:write_file", "files:move_file"]);
        check(&TOOLS, "github:list-commits", &["github:listCommits", "github:create_issue"]);
    }

    // req: BR-04
    #[test]
    fn a_slip_of_the_pen_is_forgiven() {
        check(&TOOLS, "files:list_directroy", &["files:list_directory", "files:create_directory"]);
    }

    // req: BR-04
    #[test]
    fn the_right_tool_is_found_on_another_server() {
        check(&TOOLS, "gitlab:list_commits", &["github:listCommits"]);
        check(&TOOLS, "github:github_list_commits", &["github:listCommits", "github:create_issue"]);
    }

    // req: BR-04
    #[test]
    fn a_misspelt_server_is_taken_for_the_right_one() {
        check(&TOOLS, "gihub:open_ticket", &["github:create_issue", "github:listCommits"]);
    }

    // req: BR-04
    #[test]
    fn a_small_server_shows_all_it_has_and_a_large_one_only_what_is_alike() {
        check(&TOOLS, "time:zzz", &["time:convert_time", "time:get_current_time"]);
        check(&TOOLS, "files:zzz", &[]);
        check(&TOOLS, "nowhere:zzz", &[]);
    }

    #[test]
    fn endless_names_are_compared_by_their_beginning() {
        let long = format!("a:{}", "x".repeat(1_000_000));
        check(&[&long], &format!("a:{}", "x".repeat(999_999)), &[&long]);
    }
}
