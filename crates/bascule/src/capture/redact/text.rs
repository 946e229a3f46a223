//! Hides secrets in a text for people: values behind the name of a secret, and tokens of a known form.
//!
//! The text is read once, in pieces that end at spaces, at punctuation and at `= : # | /`. A value that is hidden without need
//! does less harm than one that is shown.

use std::ops::Range;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;

use super::{Redactor, SECRET_WORDS};

const QUOTES: &str = "\"'`";
/// The letters that languages put before a quote.
const QUOTE_PREFIXES: &str = "bBrRfFuU$@";
const MIN_TOKEN: usize = 16;
/// A piece that begins like this and is long enough is a token.
const TOKEN_PREFIXES: [&str; 15] = [
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "sk_live_",
    "rk_live_",
    "xoxb-",
    "xoxp-",
    "xoxa-",
    "AKIA",
    "ASIA",
    "AIza",
];
/// These begin the names of folders too. Within a path they need a digit or a capital letter.
const COMMON_PREFIXES: [&str; 3] = ["sk-", "npm_", "hf_"];
/// The searches for the ends of elements that may fail. Each reads the rest of the text.
const MAX_ELEMENT_SEARCHES: usize = 64;
/// The longest `Basic` credentials that are recognised, in bytes.
const MAX_BASIC: usize = 1024;

impl Redactor<'_> {
    /// Returns the places of secrets in a text that is no JSON.
    pub(super) fn find_in_plain(&self, text: &str) -> Vec<Range<usize>> {
        let reader = TextReader {
            redactor: self,
            text,
            at: 0,
            hidden: Vec::new(),
            name: None,
            is_naming: false,
            names_secret: false,
            unclosed: Vec::new(),
            failed_searches: 0,
        };
        reader.run()
    }
}

struct TextReader<'a> {
    redactor: &'a Redactor<'a>,
    text: &'a str,
    at: usize,
    hidden: Vec<Range<usize>>,
    /// The last piece, while nothing but quotes, spaces and the end of an index follows it.
    name: Option<Range<usize>>,
    /// The next piece is the value of a `name` or a `key`.
    is_naming: bool,
    /// The last `name` or `key` names a secret: the next `value` is hidden.
    names_secret: bool,
    /// Quotes that have no end in the rest, with the number of backslashes before them.
    unclosed: Vec<(char, usize)>,
    failed_searches: usize,
}

impl<'a> TextReader<'a> {
    fn run(mut self) -> Vec<Range<usize>> {
        while let Some(next) = self.rest().chars().next() {
            match next {
                '=' | ':' => self.read_operator(),
                '<' => self.read_tag(),
                _ if is_end_of_piece(next) => {
                    if !(next.is_whitespace() || QUOTES.contains(next) || "\\]".contains(next)) {
                        self.name = None;
                    }
                    self.keep(next.len_utf8());
                }
                _ => self.read_piece(),
            }
        }
        self.hidden
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn keep(&mut self, bytes: usize) {
        self.at += bytes;
    }

    fn keep_while(&mut self, is_kept: impl Fn(char) -> bool) {
        let rest = self.rest();
        self.keep(rest.find(|c| !is_kept(c)).unwrap_or(rest.len()));
    }

    fn hide(&mut self, bytes: usize) {
        self.hidden.push(self.at..self.at + bytes);
        self.at += bytes;
        self.name = None;
    }

    fn read_piece(&mut self) {
        let rest = self.rest();
        let piece = &rest[..rest.find(is_end_of_piece).unwrap_or(rest.len())];
        if let Some(token) = token_in(piece, self.text[..self.at].ends_with('/')) {
            self.keep(token.start);
            self.hide(token.len());
            return self.keep(piece.len() - token.end);
        }
        self.name = Some(self.at..self.at + piece.len());
        if std::mem::take(&mut self.is_naming) {
            self.names_secret = self.redactor.is_secret_name(piece);
        }
        self.keep(piece.len());
        let is_option = piece.starts_with('-') && self.redactor.is_secret_name(piece);
        if piece.eq_ignore_ascii_case("bearer") {
            self.hide_value();
        } else if piece.eq_ignore_ascii_case("basic") {
            self.hide_basic_credentials();
        } else if is_option && !is_name_of_file(piece) {
            self.hide_value_of_option();
        }
    }

    /// Reads `=`, `:`, `:=`, `=>` and the like. The name before it says if a secret follows.
    fn read_operator(&mut self) {
        let (begin, rest, name) = (self.at, self.rest(), self.name.take());
        if rest.starts_with("://") {
            return self.read_authority();
        }
        let operator = &rest[..rest.find(|c| !"=:>".contains(c)).unwrap_or(rest.len())];
        self.keep(operator.len());
        // `token::Kind` is a path in code.
        let Some(name) = name.filter(|_| !operator.starts_with("::")) else { return };
        let text = &self.text[name.clone()];
        let is = |word: &str| text.eq_ignore_ascii_case(word);
        self.is_naming = is("name") || is("key");
        if is("value") && std::mem::take(&mut self.names_secret) {
            return self.hide_value();
        }
        if !self.redactor.is_secret_name(text) || is_harmless(text, operator, self.rest()) {
            return;
        }
        let is_closed = self.text[name.end..begin].contains(|c| QUOTES.contains(c));
        match operator == ":" && is_header(text) && !is_closed {
            true => self.hide_line(self.text[..name.start].chars().last().filter(|c| QUOTES.contains(*c))),
            false => self.hide_value(),
        }
    }

    /// Hides the user of a URL.
    fn read_authority(&mut self) {
        self.keep("://".len());
        let rest = self.rest();
        let is_end = |c: char| c.is_whitespace() || QUOTES.contains(c) || "/?#<>\\".contains(c);
        let authority = &rest[..rest.find(is_end).unwrap_or(rest.len())];
        match authority.rfind('@') {
            Some(user) => self.hide(user),
            None if token_in(authority, false).is_some() => self.hide(authority.len()),
            None => self.keep(authority.len()),
        }
    }

    /// Hides the text and the attributes of an element with the name of a secret.
    fn read_tag(&mut self) {
        self.name = None;
        self.keep(1);
        let rest = self.rest();
        let name =
            &rest[..rest.find(|c: char| !(c.is_alphanumeric() || "_-.:".contains(c))).unwrap_or(rest.len())];
        let end = rest.find(['<', '>']).filter(|end| rest[*end..].starts_with('>'));
        let Some(end) = end.filter(|_| !name.is_empty() && self.redactor.is_secret_name(name)) else {
            return;
        };
        let attributes = rest[name.len()..end].trim_end_matches('/');
        self.keep(name.len());
        if attributes.contains('=') {
            let separator = attributes.chars().next().map_or(0, char::len_utf8);
            self.keep(separator);
            self.hide(attributes.len() - separator);
        }
        self.keep(end - (self.at - (self.text.len() - rest.len())) + 1);
        if rest[..end].ends_with('/') {
            return;
        }
        match self.end_of_element(name) {
            Some(length) => self.hide(length),
            // The rest is cut off, or this is a placeholder.
            None if self.rest().starts_with(char::is_alphanumeric) => self.hide(value_length(self.rest())),
            None => {}
        }
    }

    fn end_of_element(&mut self, name: &str) -> Option<usize> {
        let end = match self.failed_searches {
            ..MAX_ELEMENT_SEARCHES => format!("</{name}"),
            MAX_ELEMENT_SEARCHES => "</".to_owned(),
            _ => return None,
        };
        let found = self.rest().find(&end);
        self.failed_searches += usize::from(found.is_none());
        found
    }

    /// Hides the value of a header: to the end of the line, or to the quote in which the header is.
    fn hide_line(&mut self, quote: Option<char>) {
        self.keep_while(char::is_whitespace);
        if opening_quote(self.rest()).is_some() {
            return self.hide_value();
        }
        let rest = self.rest();
        let is_end = |c: char| c == '\n' || Some(c) == quote;
        let line = rest[..rest.find(is_end).unwrap_or(rest.len())].trim_end_matches(['\r', '\\']);
        match line.split_once(' ') {
            // One word follows these.
            Some((scheme, _)) if ["bearer", "basic"].iter().any(|one| scheme.eq_ignore_ascii_case(one)) => {
                self.keep(scheme.len());
                self.hide_value();
            }
            _ => self.hide(line.trim_end().len()),
        }
    }

    /// Hides the next word, or the next text in quotes.
    fn hide_value(&mut self) {
        loop {
            self.keep_while(|c| c.is_whitespace() || "([{<".contains(c));
            if let Some(quote) = opening_quote(self.rest()) {
                return self.hide_quoted(&quote);
            }
            let length = value_length(self.rest());
            // `Authorization: Bearer TOKEN`, and `password = x` in words of their own.
            let word = &self.rest()[..length];
            // A sign of YAML, or a line that goes on: the value is on the next line.
            let sign = [">-", ">", "|-", "|", "\\"].into_iter().find(|sign| {
                let after = self.rest().strip_prefix(sign);
                after.is_some_and(|after| after.starts_with(['\n', '\r']))
            });
            match sign {
                Some(sign) => self.keep(sign.len()),
                None if is_scheme(word) || matches!(word, "=" | ":=" | "=>") => self.keep(length),
                None => return self.hide(length),
            }
        }
    }

    fn hide_quoted(&mut self, quote: &OpeningQuote) {
        self.keep(quote.length);
        match self.end_of_quoted(quote) {
            Some(length) => self.hide(length),
            None => self.hide(self.rest().lines().next().unwrap_or_default().len()),
        }
    }

    fn end_of_quoted(&mut self, quote: &OpeningQuote) -> Option<usize> {
        let (rest, key) = (self.rest(), (quote.mark, quote.backslashes));
        if self.unclosed.contains(&key) {
            return None;
        }
        let mut from = 0;
        while let Some(at) = rest[from..].find(quote.mark).map(|at| from + at) {
            let backslashes = at - rest[..at].trim_end_matches('\\').len();
            // SQL doubles a quote within quotes.
            let marks = rest[at..].len() - rest[at..].trim_start_matches(quote.mark).len();
            let is_doubled = backslashes == 0 && at > 0 && marks == 2;
            if backslashes <= quote.backslashes && !is_doubled {
                return Some(at - backslashes);
            }
            from = at + marks;
        }
        self.unclosed.push(key);
        None
    }

    fn hide_value_of_option(&mut self) {
        if self.rest().starts_with([' ', '\t']) {
            self.keep_while(|c| c == ' ' || c == '\t');
            if !self.rest().starts_with(['\n', '\r']) && !self.rest().starts_with("--") {
                self.hide_value();
            }
        }
    }

    /// Hides `Basic` credentials, which are a user and a password in Base64. The word has other uses.
    fn hide_basic_credentials(&mut self) {
        if !self.rest().starts_with([' ', '\t']) {
            return;
        }
        let word = self.rest().trim_start_matches([' ', '\t']);
        let word = &word[..word.floor_char_boundary(MAX_BASIC)];
        let word = &word[..value_length(word)];
        let is_printable = |bytes: &[u8]| bytes.iter().all(|byte| *byte >= b' ') && bytes.contains(&b':');
        if STANDARD_NO_PAD.decode(word.trim_end_matches('=')).is_ok_and(|bytes| is_printable(&bytes)) {
            self.hide_value();
        }
    }
}

/// The beginning of a text in quotes.
struct OpeningQuote {
    mark: char,
    /// The quote is escaped so many times, and so is the one at the end.
    backslashes: usize,
    length: usize,
}

fn opening_quote(text: &str) -> Option<OpeningQuote> {
    let unprefixed = text.trim_start_matches(|c| QUOTE_PREFIXES.contains(c));
    let quoted = unprefixed.trim_start_matches('\\');
    let mark = quoted.chars().next().filter(|c| QUOTES.contains(*c))?;
    let run = quoted.len() - quoted.trim_start_matches(mark).len();
    // Three quotes are one; two are an empty text.
    let (prefix, marks) = (text.len() - unprefixed.len(), if run >= 3 { run } else { 1 });
    let length = text.len() - quoted.len() + marks;
    (prefix <= 2).then_some(OpeningQuote { mark, backslashes: unprefixed.len() - quoted.len(), length })
}

/// Returns the length of a value that is not in quotes, without the punctuation behind it.
fn value_length(text: &str) -> usize {
    let is_end = |(at, c): &(usize, char)| {
        let after = &text[at + c.len_utf8()..];
        let is_quote = |c: char| QUOTES.contains(c);
        c.is_whitespace()
            || "&;<".contains(*c)
            || (is_quote(*c) && !after.starts_with(char::is_alphanumeric))
            || (*c == ','
                && (after.is_empty() || after.starts_with(|c: char| c.is_whitespace() || is_quote(c))))
    };
    let end = text.char_indices().find(is_end).map_or(text.len(), |(at, _)| at);
    text[..end].trim_end_matches([',', ')', ']', '}', '>', '\\', '.']).len()
}

fn is_end_of_piece(c: char) -> bool {
    c.is_whitespace() || "\"'`,;&?<>(){}[]\\=:#|/".contains(c)
}

fn is_scheme(word: &str) -> bool {
    ["bearer", "basic", "token", "digest", "apikey"].iter().any(|scheme| word.eq_ignore_ascii_case(scheme))
}

fn is_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.contains("authorization") || name.contains("cookie")
}

fn is_name_of_file(option: &str) -> bool {
    let option = option.to_ascii_lowercase();
    ["file", "path", "dir", "stdin"].iter().any(|end| option.ends_with(end))
}

/// Returns true for a position in a source file (`token.rs:12:5`), and for the working folder in an environment.
fn is_harmless(name: &str, operator: &str, rest: &str) -> bool {
    let is_folder = matches!(name, "PWD" | "OLDPWD") && operator == "=" && rest.starts_with('/');
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    let is_source = (1..=4).contains(&extension.len()) && !SECRET_WORDS.contains(&extension);
    let after_number = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    let is_number = after_number.len() < rest.len() && !after_number.starts_with(char::is_alphanumeric);
    is_folder || (operator == ":" && is_source && is_number)
}

/// Finds a token in a piece, which may have punctuation around it.
fn token_in(piece: &str, is_in_path: bool) -> Option<Range<usize>> {
    let begin = piece.find(char::is_alphanumeric)?;
    let token = piece[begin..].trim_end_matches(|c: char| !c.is_alphanumeric());
    let is_jwt = token.starts_with("eyJ") && token.matches('.').count() >= 2;
    let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| token.starts_with(prefix));
    let is_random = || token.contains(|c: char| c.is_ascii_digit() || c.is_ascii_uppercase());
    let is_prefixed = begins(&TOKEN_PREFIXES) || (begins(&COMMON_PREFIXES) && (!is_in_path || is_random()));
    (is_jwt || (token.len() >= MIN_TOKEN && is_prefixed)).then(|| begin..begin + token.len())
}
