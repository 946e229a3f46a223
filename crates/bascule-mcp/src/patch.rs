//! Reads and changes single fields of JSON text, and leaves every other byte as it is.
//!
//! A path is a list of object keys, compared unescaped (`"n\u0061me"` is `name`); the empty path is the whole
//! document. Of duplicate keys the last one counts, as parsers have it, but what is changed is changed in all of
//! them, so that no reader sees the old value. Nothing here recurses, and nothing grows with the depth of the
//! document or with the number of its members. The text is taken for JSON; of anything else only an end is
//! promised, not a sense.

use std::ops::ControlFlow::{self, Break, Continue};
use std::ops::Range;

use memchr::memchr2;

/// The raw text of the value at a path. None if it is absent, or if on the way there stands no object.
pub fn find<'a>(json: &'a str, path: &[&str]) -> Option<&'a str> {
    let [found] = find_many(json, [path]);
    found
}

/// The raw texts of the values at several paths, in one pass.
pub fn find_many<'a, const N: usize>(json: &'a str, paths: [&[&str]; N]) -> [Option<&'a str>; N] {
    let mut found = [None; N];
    walk(json, &paths, |path, site| {
        found[path] = match site {
            Site::Value { at, .. } => json.get(at),
            Site::Blocked { .. } | Site::Lacking { .. } => None,
        };
        Continue(())
    });
    found
}

/// The string at a path, unescaped. None if there is none, or if it is no text (a lone surrogate).
pub fn find_string(json: &str, path: &[&str]) -> Option<String> {
    find(json, path).and_then(unquoted)
}

/// The elements of the array at a path, each as its raw text.
pub fn find_elements<'a>(json: &'a str, path: &[&str]) -> Option<Vec<&'a str>> {
    let array = find(json, path)?;
    let bytes = array.as_bytes();
    let mut at = after_space(bytes, bytes.starts_with(b"[").then_some(1)?);
    let mut elements = Vec::new();
    while at < bytes.len() && bytes[at] != b']' {
        let end = value_end(bytes, at);
        elements.push(array.get(at..end)?);
        at = after_space(bytes, end);
        match bytes.get(at) {
            Some(b',') => at = after_space(bytes, at + 1),
            _ => break,
        }
    }
    Some(elements)
}

/// The text with some elements of the array at a path replaced by others, themselves raw JSON; none if all stay.
pub fn map_elements(
    json: &str,
    path: &[&str],
    mut change: impl FnMut(&str) -> Option<String>,
) -> Option<String> {
    let mut splice = Splice::new(json, 0);
    for element in find_elements(json, path)? {
        let start = element.as_ptr() as usize - json.as_ptr() as usize;
        if let Some(changed) = change(element) {
            splice.put(start..start + element.len(), &[&changed]);
        }
    }
    splice.finish()
}

/// The text with the value at a path replaced by another, itself raw JSON. None if no reader would find one there.
///
/// Where keys are doubled, each of the values is replaced. Only if they are so many that the text would grow by
/// more than its own size (and by more than 64 KiB), all but the last become `null` instead.
pub fn replace(json: &str, path: &[&str], value: &str) -> Option<String> {
    rewrite(json, &[(path, value)], Absent::Leave)
}

/// Several replacements at once; absent ones are left out. Where two want the same place, or one a place inside
/// another's, the outer and then the earlier one counts.
pub fn edit(json: &str, edits: &[(&[&str], &str)]) -> String {
    rewrite(json, edits, Absent::Leave).unwrap_or_else(|| json.to_owned())
}

/// Replaces the value at a path, or adds the last keys of the path where they are absent, behind what is there.
///
/// Something else than an object on the way (`"_meta":null`) gives way to one; only where the document itself is
/// none it stays what it is.
pub fn insert(json: &str, path: &[&str], value: &str) -> String {
    insert_many(json, &[(path, value)])
}

/// Several of these at once, no two of them in the same object that is not there yet.
pub fn insert_many(json: &str, edits: &[(&[&str], &str)]) -> String {
    rewrite(json, edits, Absent::Add).unwrap_or_else(|| json.to_owned())
}

/// Takes the member at a path out, with its comma; all of them if it is doubled.
pub fn remove(json: &str, path: &[&str]) -> String {
    let mut splice = Splice::new(json, 0);
    walk(json, &[path], |_, site| {
        match site {
            Site::Value { at, member: Some(Member { comma: Some(comma), .. }) } => {
                splice.put(comma..at.end, &[]);
            }
            Site::Value { at, member: Some(Member { key, comma: None }) } => {
                splice.put(key..next_member(json.as_bytes(), at.end), &[]);
            }
            _ => {}
        }
        Continue(())
    });
    splice.finish().unwrap_or_else(|| json.to_owned())
}

/// What becomes of a path that leads nowhere.
#[derive(Clone, Copy, PartialEq)]
enum Absent {
    Leave,
    Add,
}

/// Growth that is not worth thinking about.
const SMALL: usize = 64 << 10;

/// Looks once for what there is, then writes, up to the last place that changes. Two passes, because only the end
/// of the text tells which of the duplicates is the last, and to remember them all would take memory.
fn rewrite(json: &str, edits: &[(&[&str], &str)], absent: Absent) -> Option<String> {
    let paths: Vec<&[&str]> = edits.iter().map(|(path, _)| *path).collect();
    let found = survey(json, &paths);
    let mut left: usize = found.iter().map(|found| found.changes(absent)).sum();
    if left == 0 {
        return None;
    }
    let growth =
        edits.iter().map(|(path, value)| value.len() + path.iter().map(|k| k.len() + 8).sum::<usize>());
    let mut splice = Splice::new(json, growth.sum());
    walk(json, &paths, |path, site| {
        if !found[path].is_changed(&site, absent) {
            return Continue(());
        }
        let (keys, value) = edits[path];
        match site {
            Site::Value { ref at, .. } if found[path].is_surplus(&site, json, value) => {
                splice.put(at.clone(), &["null"]);
            }
            Site::Value { at, .. } => splice.put(at, &[value]),
            Site::Blocked { at, level } => {
                let (open, close) = nest(&keys[level..]);
                splice.put(at, &["{", &open, value, &close, "}"]);
            }
            Site::Lacking { at, level, empty } => {
                let (open, close) = nest(&keys[level..]);
                // Another one may have been added to the same empty object.
                let first = empty && splice.copied != at;
                splice.put(at..at, &[if first { "" } else { "," }, &open, value, &close]);
            }
        }
        left -= 1;
        if left == 0 { Break(()) } else { Continue(()) }
    });
    splice.finish()
}

/// What comes before and after a value that is to stand under these keys: `"a":{"b":` and `}`.
fn nest(keys: &[&str]) -> (String, String) {
    let mut open = String::with_capacity(keys.iter().map(|key| key.len() + 4).sum());
    for (level, key) in keys.iter().enumerate() {
        open.push_str(if level == 0 { "" } else { "{" });
        open.push_str(&serde_json::to_string(key).expect("text is always JSON"));
        open.push(':');
    }
    (open, "}".repeat(keys.len().saturating_sub(1)))
}

/// What a walk found of one path.
#[derive(Default, Clone)]
struct Found {
    /// How many values there are, duplicates included.
    values: usize,
    /// How the last of the ways there ended: what a parser finds that takes the last of duplicates.
    last: Option<Site>,
}

impl Found {
    /// In how many places the text changes.
    fn changes(&self, absent: Absent) -> usize {
        let added = self.last.iter().filter(|last| !last.is_value() && self.is_changed(last, absent));
        self.values + added.count()
    }

    fn is_changed(&self, site: &Site, absent: Absent) -> bool {
        match site {
            Site::Value { .. } => true,
            Site::Blocked { level: 0, .. } => false,
            Site::Blocked { .. } | Site::Lacking { .. } => absent == Absent::Add && self.ends_at(site),
        }
    }

    /// Whether this is one of too many duplicates to be given the value.
    fn is_surplus(&self, site: &Site, json: &str, value: &str) -> bool {
        (self.values - 1).saturating_mul(value.len()) > json.len().max(SMALL) && !self.ends_at(site)
    }

    fn ends_at(&self, site: &Site) -> bool {
        self.last.as_ref() == Some(site)
    }
}

fn survey(json: &str, paths: &[&[&str]]) -> Vec<Found> {
    let mut found = vec![Found::default(); paths.len()];
    walk(json, paths, |path, site| {
        found[path].values += usize::from(site.is_value());
        found[path].last = Some(site);
        Continue(())
    });
    found
}

/// A place where following a path ends.
#[derive(Clone, PartialEq)]
enum Site {
    /// The value is here.
    Value { at: Range<usize>, member: Option<Member> },
    /// This should be an object, in which the path would go on with its key number `level`.
    Blocked { at: Range<usize>, level: usize },
    /// An object without the path's key number `level`, which could be added here.
    Lacking { at: usize, level: usize, empty: bool },
}

impl Site {
    fn is_value(&self) -> bool {
        matches!(self, Self::Value { .. })
    }
}

/// Where a value's member begins.
#[derive(Clone, Copy, PartialEq)]
struct Member {
    key: usize,
    /// The comma before it, if one of the members before it is not at a path.
    comma: Option<usize>,
}

/// An object that a path leads into.
struct Open {
    /// The first of the paths that go through it; the others follow.
    ways: usize,
    /// Where its last value so far ends, or where it begins.
    end: usize,
    empty: bool,
    comma: Option<usize>,
    /// Whether it has a member that is not at a path.
    others: bool,
}

/// A path on its way through an object.
struct Way {
    path: usize,
    found: bool,
}

/// Follows all paths through the text, from its beginning to its end or until `on` has enough, and tells in order
/// where each of them ends: in every object on a path, once for each time its key stands there, or once if not.
/// Only objects on a path are opened, so there are never more of them than the longest path has keys.
fn walk(json: &str, paths: &[&[&str]], mut on: impl FnMut(usize, Site) -> ControlFlow<()>) {
    let bytes = json.as_bytes();
    let ways = (0..paths.len()).map(|path| Way { path, found: false }).collect();
    let _ = Walk { json, bytes, paths, open: Vec::new(), ways }.run(&mut on);
}

struct Walk<'a> {
    json: &'a str,
    bytes: &'a [u8],
    paths: &'a [&'a [&'a str]],
    open: Vec<Open>,
    ways: Vec<Way>,
}

impl Walk<'_> {
    fn run(&mut self, on: &mut impl FnMut(usize, Site) -> ControlFlow<()>) -> ControlFlow<()> {
        let mut at = self.value(after_space(self.bytes, 0), 0, None, on)?;
        while let Some(object) = self.open.last_mut() {
            at = after_space(self.bytes, at);
            match self.bytes.get(at) {
                Some(b'"') => at = self.member(at, on)?,
                Some(b',') => {
                    object.comma = Some(at);
                    at += 1;
                }
                Some(b'}') => {
                    self.close(on)?;
                    at += 1;
                    self.ended(at);
                }
                _ => return Break(()),
            }
        }
        Continue(())
    }

    /// Takes a member, up to the end of its value or into it.
    fn member(
        &mut self,
        key: usize,
        on: &mut impl FnMut(usize, Site) -> ControlFlow<()>,
    ) -> ControlFlow<(), usize> {
        let end = string_end(self.bytes, key);
        let colon = after_space(self.bytes, end);
        if self.bytes.get(colon) != Some(&b':') {
            return Break(());
        }
        let object = self.open.last().expect("a member is in an object");
        let comma = object.comma.filter(|_| object.others);
        let (from, to, level) = (object.ways, self.ways.len(), self.open.len() - 1);
        let name = Name::of(&self.json[key..end]);
        for way in from..to {
            let path = self.ways[way].path;
            if name.is(self.paths[path][level]) {
                self.ways[way].found = true;
                self.ways.push(Way { path, found: false });
            }
        }
        self.value(after_space(self.bytes, colon + 1), to, Some(Member { key, comma }), on)
    }

    /// Takes the value that the ways from `from` on lead to: goes into it if one leads on, else to its end.
    fn value(
        &mut self,
        at: usize,
        from: usize,
        member: Option<Member>,
        on: &mut impl FnMut(usize, Site) -> ControlFlow<()>,
    ) -> ControlFlow<(), usize> {
        // The open objects are as many as the keys that led here.
        let level = self.open.len();
        let ends = |way: &Way| self.paths[way.path].len() == level;
        let here = self.ways[from..].iter().any(ends);
        if !here && from < self.ways.len() && self.bytes.get(at) == Some(&b'{') {
            self.open.push(Open { ways: from, end: at + 1, empty: true, comma: None, others: false });
            return Continue(at + 1);
        }
        let end = value_end(self.bytes, at);
        for way in self.ways[from..].iter().filter(|way| !here || ends(way)) {
            let at = at..end;
            on(way.path, if here { Site::Value { at, member } } else { Site::Blocked { at, level } })?;
        }
        self.ways.truncate(from);
        if let Some(object) = self.open.last_mut() {
            object.others |= !here;
        }
        self.ended(end);
        Continue(end)
    }

    /// Leaves the innermost object.
    fn close(&mut self, on: &mut impl FnMut(usize, Site) -> ControlFlow<()>) -> ControlFlow<()> {
        let object = self.open.pop().expect("only an open object is closed");
        let level = self.open.len();
        for way in self.ways[object.ways..].iter().filter(|way| !way.found) {
            on(way.path, Site::Lacking { at: object.end, level, empty: object.empty })?;
        }
        self.ways.truncate(object.ways);
        if let Some(parent) = self.open.last_mut() {
            parent.others = true;
        }
        Continue(())
    }

    /// A value of the innermost object has ended.
    fn ended(&mut self, end: usize) {
        if let Some(object) = self.open.last_mut() {
            object.end = end;
            object.empty = false;
        }
    }
}

/// A member's key as it is spelled.
struct Name<'a> {
    raw: &'a str,
    escaped: bool,
}

impl<'a> Name<'a> {
    fn of(raw: &'a str) -> Self {
        Self { raw, escaped: raw.contains('\\') }
    }

    fn is(&self, key: &str) -> bool {
        // No escape is longer than six times what it stands for, so nothing long is unescaped in vain.
        let possible = (key.len() + 2..=key.len().saturating_mul(6) + 2).contains(&self.raw.len());
        match self.escaped {
            false => self.raw.get(1..self.raw.len().max(2) - 1) == Some(key),
            true => possible && unquoted(self.raw).is_some_and(|name| name == key),
        }
    }
}

fn unquoted(raw: &str) -> Option<String> {
    serde_json::from_str(raw).ok()
}

fn after_space(bytes: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\t' | b'\n' | b'\r') = bytes.get(at) {
        at += 1;
    }
    at
}

/// Where the member after this one begins, or where this one ends if it is the last.
fn next_member(bytes: &[u8], end: usize) -> usize {
    let comma = after_space(bytes, end);
    if bytes.get(comma) == Some(&b',') { after_space(bytes, comma + 1) } else { end }
}

fn value_end(bytes: &[u8], at: usize) -> usize {
    match bytes.get(at) {
        Some(b'"') => string_end(bytes, at),
        Some(b'{' | b'[') => nest_end(bytes, at),
        Some(_) => at + bytes[at..].iter().take_while(|b| !b",]} \t\n\r".contains(b)).count(),
        None => bytes.len(),
    }
}

fn nest_end(bytes: &[u8], mut at: usize) -> usize {
    let mut depth = 0usize;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => {
                at = string_end(bytes, at);
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            _ => {}
        }
        at += 1;
        if depth == 0 {
            break;
        }
    }
    at
}

/// Behind the closing quote.
fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(next) = bytes.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
        match bytes[at + next] {
            b'"' => return at + next + 1,
            _ => at += next + 2,
        }
    }
    bytes.len()
}

/// The text, with some of it exchanged, front to back. Copies nothing until something is.
struct Splice<'a> {
    json: &'a str,
    growth: usize,
    out: Option<String>,
    copied: usize,
}

impl<'a> Splice<'a> {
    fn new(json: &'a str, growth: usize) -> Self {
        Self { json, growth, out: None, copied: 0 }
    }

    /// Places inside, or before, what was already exchanged stay as they are.
    fn put(&mut self, at: Range<usize>, pieces: &[&str]) {
        if at.start < self.copied {
            return;
        }
        let out = self.out.get_or_insert_with(|| String::with_capacity(self.json.len() + self.growth));
        out.push_str(&self.json[self.copied..at.start]);
        out.extend(pieces.iter().copied());
        self.copied = at.end;
    }

    fn finish(self) -> Option<String> {
        let mut out = self.out?;
        out.push_str(&self.json[self.copied..]);
        Some(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    #[test]
    fn single_elements_of_a_list_are_changed_and_no_other_byte() {
        let twos = |element: &str| (element == "2").then(|| "[two]".to_owned());
        assert_eq!(
            map_elements(r#"{"a":[ 1,2 , {"b":2},2],"c":2}"#, &["a"], twos).as_deref(),
            Some(r#"{"a":[ 1,[two] , {"b":2},[two]],"c":2}"#)
        );
        assert_eq!(map_elements(r#"{"a":[1]}"#, &["a"], twos), None);
        assert_eq!(map_elements(r#"{"a":2}"#, &["a"], twos), None);
    }

    /// Applies `find`, `replace` with `9`, `insert` of `9` and `remove`.
    fn check(json: &str, path: &[&str], found: &str, replaced: &str, inserted: &str, removed: &str) {
        assert_eq!(find(json, path).unwrap_or("-"), found, "find {path:?} in {json}");
        assert_eq!(
            replace(json, path, "9").as_deref().unwrap_or("-"),
            replaced,
            "replace {path:?} in {json}"
        );
        assert_eq!(insert(json, path, "9"), inserted, "insert {path:?} into {json}");
        assert_eq!(remove(json, path), removed, "remove {path:?} from {json}");
    }

    #[test]
    fn several_fields_are_found_and_changed_in_one_pass() {
        let json = r#"{"a":{"b":1},"c":"x","c":2}"#;
        assert_eq!(
            find_many(json, [&["c"], &["a", "b"], &["d"], &["c", "e"]]),
            [Some("2"), Some("1"), None, None]
        );
        let edits: [(&[&str], &str); 3] = [(&["a", "z"], "9"), (&["d"], "8"), (&["a", "b"], "7")];
        assert_eq!(insert_many(json, &edits), r#"{"a":{"b":7,"z":9},"c":"x","c":2,"d":8}"#);
        assert_eq!(insert_many("{ }", &[(&["a"], "1"), (&["b", "c"], "2")]), r#"{"a":1,"b":{"c":2} }"#);
        assert_eq!(insert_many(r#"{"x":0}"#, &[(&["a"], "1"), (&["b"], "2")]), r#"{"x":0,"a":1,"b":2}"#);
    }

    // req: GW-03
    #[test]
    fn one_field_changes_and_no_other_byte() {
        let odd = r#""n":[1.0,1e400,-0,9223372036854775808],"s":"\ud800\/","d":1, "d":1.0,"#;
        check(
            &format!("\n{{ {odd}\t\"a\" : {{\"b\":\"x\" }} , \"é\":[ ] }} "),
            &["a", "b"],
            "\"x\"",
            &format!("\n{{ {odd}\t\"a\" : {{\"b\":9 }} , \"é\":[ ] }} "),
            &format!("\n{{ {odd}\t\"a\" : {{\"b\":9 }} , \"é\":[ ] }} "),
            &format!("\n{{ {odd}\t\"a\" : {{ }} , \"é\":[ ] }} "),
        );
    }

    #[test]
    fn what_is_absent_is_added_behind_the_rest() {
        let same = |json, path: &[&str], inserted| check(json, path, "-", "-", inserted, json);
        same("{}", &["a"], r#"{"a":9}"#);
        same("{ }", &["a", "b\"", "c"], r#"{"a":{"b\"":{"c":9}} }"#);
        same(r#"{"x":[1 ] }"#, &["a"], r#"{"x":[1 ],"a":9 }"#);
        same(r#"{"a":{"x":1},"y":2}"#, &["a", "b"], r#"{"a":{"x":1,"b":9},"y":2}"#);
        same(r#"{"x":{"a":{"b":1}}}"#, &["a", "b"], r#"{"x":{"a":{"b":1}},"a":{"b":9}}"#);
    }

    #[test]
    fn what_should_be_an_object_becomes_one() {
        check(r#"{"a":null}"#, &["a", "b"], "-", "-", r#"{"a":{"b":9}}"#, r#"{"a":null}"#);
        check(r#"{"a":[{"b":1}]}"#, &["a", "b"], "-", "-", r#"{"a":{"b":9}}"#, r#"{"a":[{"b":1}]}"#);
        check("[{}]", &["a"], "-", "-", "[{}]", "[{}]");
    }

    #[test]
    fn a_member_leaves_with_one_comma() {
        for (json, removed) in [
            (r#"{"a":1}"#, "{}"),
            (r#"{ "a" : 1 , "b":2}"#, r#"{ "b":2}"#),
            (r#"{"b":2 , "a":1 }"#, r#"{"b":2  }"#),
            (r#"{"b":2,"a":1,"c":3}"#, r#"{"b":2,"c":3}"#),
            (r#"{"a":1,"a":2,"b":3,"a":4,"a":5}"#, r#"{"b":3}"#),
            (r#"{"a":1,"a":2}"#, "{}"),
        ] {
            assert_eq!(remove(json, &["a"]), removed, "{json}");
        }
        assert_eq!(remove(r#"{"o":{"x":1},"a":{"b":1,"c":2}}"#, &["a", "b"]), r#"{"o":{"x":1},"a":{"c":2}}"#);
    }

    #[test]
    fn keys_are_what_they_spell() {
        let json = r#"{"n\u0061me":1,"\ud83d\ude00":2,"\ud800":3,"":4}"#;
        assert_eq!(find(json, &["name"]), Some("1"));
        assert_eq!(find(json, &["😀"]), Some("2"));
        assert_eq!(find(json, &[""]), Some("4"));
        assert_eq!(find(json, &["\\ud800"]), None);
    }

    // req: GW-03
    #[test]
    fn of_duplicates_the_last_counts_and_none_keeps_the_old_value() {
        check(
            r#"{"a":1,"x":0,"\u0061":2}"#,
            &["a"],
            "2",
            r#"{"a":9,"x":0,"\u0061":9}"#,
            r#"{"a":9,"x":0,"\u0061":9}"#,
            r#"{"x":0}"#,
        );
        check(
            r#"{"a":{"b":1},"a":{}}"#,
            &["a", "b"],
            "-",
            r#"{"a":{"b":9},"a":{}}"#,
            r#"{"a":{"b":9},"a":{"b":9}}"#,
            r#"{"a":{},"a":{}}"#,
        );
        check(
            r#"{"a":{"b":1},"a":2}"#,
            &["a", "b"],
            "-",
            r#"{"a":{"b":9},"a":2}"#,
            r#"{"a":{"b":9},"a":{"b":9}}"#,
            r#"{"a":{},"a":2}"#,
        );
    }

    #[test]
    fn a_flood_of_duplicates_does_not_multiply_a_long_value() {
        let json = format!("{{{}\"a\":2}}", "\"a\":1,".repeat(100_000));
        let long = format!("\"{}\"", "x".repeat(100_000));
        let replaced = replace(&json, &["a"], &long).unwrap();
        assert!(replaced.len() < 2 * json.len() + long.len());
        assert!(!replaced.contains("\"a\":1") && !replaced.contains("\"a\":2"));
        assert_eq!(find(&replaced, &["a"]), Some(&*long));
    }

    #[test]
    fn text_is_unescaped_or_none() {
        let json = r#"{"a":"\u0061\n\ud83d\ude00","b":"\ud800","c":1}"#;
        assert_eq!(find_string(json, &["a"]).as_deref(), Some("a\n😀"));
        assert_eq!(find_string(json, &["b"]), None);
        assert_eq!(find_string(json, &["c"]), None);
        assert_eq!(find_string(json, &["d"]), None);
    }

    #[test]
    fn elements_are_raw() {
        let json = r#"{"t":[ 1.0 ,{"a":[2,"]"]},"x,y" , [] ],"e":[ ],"o":{}}"#;
        assert_eq!(find_elements(json, &["t"]).unwrap(), ["1.0", r#"{"a":[2,"]"]}"#, r#""x,y""#, "[]"]);
        assert_eq!(find_elements(json, &["e"]), Some(vec![]));
        assert_eq!(find_elements(json, &["o"]), None);
        assert_eq!(find_elements(" [1]", &[]), Some(vec!["1"]));
    }

    #[test]
    fn edits_are_made_together() {
        let json = r#"{"id":1,"params":{"_meta":{"progressToken":2},"name":"n"}}"#;
        let edits: [(&[&str], &str); 5] = [
            (&["params", "name"], "\"m\""),
            (&["id"], "7"),
            (&["nowhere"], "0"),
            (&["params", "_meta", "progressToken"], "8"),
            (&["id"], "6"),
        ];
        assert_eq!(edit(json, &edits), r#"{"id":7,"params":{"_meta":{"progressToken":8},"name":"m"}}"#);
        let nested: [(&[&str], &str); 2] = [(&["params", "name"], "1"), (&["params"], "2")];
        assert_eq!(edit(json, &nested), r#"{"id":1,"params":2}"#);
        assert_eq!(edit(json, &[]), json);
    }

    #[test]
    fn a_hundred_thousand_levels_do_not_overflow_the_stack() {
        let deep = format!("{}1{}", r#"{"a":["#.repeat(50_000), "]}".repeat(50_000));
        let json = format!(r#"{{"deep":{deep},"a":{{"b":1}}}}"#);
        assert_eq!(find(&json, &["a", "b"]), Some("1"));
        assert_eq!(find(&json, &["deep"]), Some(&*deep));
        assert_eq!(remove(&json, &["deep"]), r#"{"a":{"b":1}}"#);
        let path = vec!["a"; 100_000];
        let objects = format!("{}1{}", r#"{"a":"#.repeat(100_000), "}".repeat(100_000));
        assert_eq!(find(&objects, &path), Some("1"));
        assert_eq!(find(&insert("{}", &path, "1"), &path), Some("1"));
        assert_eq!(replace(&objects, &path, "1").as_deref(), Some(&*objects));
    }

    #[test]
    fn a_large_document_is_copied_once() {
        let json = format!(
            r#"{{"id":1,"result":{{"blob":"{}","list":[{}0]}}}}"#,
            "x".repeat(24 << 20),
            "{},".repeat(1 << 20)
        );
        let out = replace(&json, &["id"], "12345").unwrap();
        assert!(out.capacity() < json.len() + 1000);
        assert_eq!(&out[12..], &json[8..]);
    }

    /// JSON text with doubled and oddly spelled keys and white space, from these leaves.
    fn document(leaf: impl Strategy<Value = String> + 'static) -> impl Strategy<Value = String> {
        let space = || prop::sample::select(vec!["", "", "", " ", "\n\t", "\r "]);
        let key = prop::sample::select(vec!["a", "b", "c", "\\u0061", "", "\\\"a", "é", "a\\u0000"]);
        leaf.boxed().prop_recursive(5, 48, 6, move |inner| {
            let value = (space(), inner, space())
                .prop_map(|(before, value, after)| format!("{before}{value}{after}"));
            let member = (space(), key.clone(), space(), value.clone())
                .prop_map(|(before, key, after, value)| format!("{before}\"{key}\"{after}:{value}"));
            prop_oneof![
                1 => prop::collection::vec(value, 0..5).prop_map(|all| format!("[{}]", all.join(","))),
                4 => prop::collection::vec(member, 0..6).prop_map(|all| format!("{{{}}}", all.join(","))),
            ]
        })
    }

    fn plain() -> impl Strategy<Value = String> {
        prop_oneof![
            Just("null".to_owned()),
            any::<i64>().prop_map(|n| n.to_string()),
            any::<String>().prop_map(|text| Value::from(text).to_string()),
        ]
    }

    /// Leaves that `serde_json::Value` cannot hold.
    fn odd() -> impl Strategy<Value = String> {
        let spellings =
            ["1.0", "1e400", "-0", "9223372036854775808", r#""\ud800""#, r#""\"}],{[""#, r#""\\""#, "true"];
        prop::sample::select(spellings.map(str::to_owned).to_vec())
    }

    fn path() -> impl Strategy<Value = Vec<&'static str>> {
        prop::collection::vec(prop::sample::select(vec!["a", "b", "c", "", "\"a", "é"]), 0..4)
    }

    fn read(json: &str) -> Value {
        serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {json}"))
    }

    fn at<'a>(value: &'a Value, path: &[&str]) -> Option<&'a Value> {
        path.iter().try_fold(value, |value, key| value.as_object()?.get(*key))
    }

    fn put(value: &mut Value, path: &[&str], new: Value) {
        let Some((first, rest)) = path.split_first() else {
            *value = new;
            return;
        };
        if !value.is_object() {
            *value = Value::Object(Default::default());
        }
        put(value.as_object_mut().unwrap().entry(*first).or_insert(Value::Null), rest, new);
    }

    fn take(value: &mut Value, path: &[&str]) {
        let Some((last, parents)) = path.split_last() else { return };
        let parent = parents.iter().try_fold(value, |value, key| value.as_object_mut()?.get_mut(*key));
        if let Some(Value::Object(parent)) = parent {
            parent.remove(*last);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, max_global_rejects: 100_000, ..ProptestConfig::default() })]

        // req: GW-03
        #[test]
        fn it_means_what_a_parser_means(json in document(plain()), path in path(), new in document(plain())) {
            let value = read(&json);
            prop_assert_eq!(find(&json, &path).map(read), at(&value, &path).cloned());
            prop_assert_eq!(find_string(&json, &path), at(&value, &path).and_then(Value::as_str).map(str::to_owned));
            let elements = at(&value, &path).and_then(Value::as_array).cloned();
            prop_assert_eq!(find_elements(&json, &path).map(|all| all.into_iter().map(read).collect()), elements);

            let mut changed = value.clone();
            put(&mut changed, &path, read(&new));
            match at(&value, &path) {
                Some(_) => prop_assert_eq!(replace(&json, &path, &new).map(|json| read(&json)), Some(changed.clone())),
                None => prop_assert_eq!(read(&edit(&json, &[(&path, &new)])), value.clone()),
            }
            if value.is_object() || path.is_empty() {
                prop_assert_eq!(read(&insert(&json, &path, &new)), changed);
            } else {
                prop_assert_eq!(insert(&json, &path, &new), &*json);
            }

            let mut less = value;
            take(&mut less, &path);
            prop_assert_eq!(read(&remove(&json, &path)), less);
        }

        // req: GW-03
        #[test]
        fn only_the_value_changes_and_it_can_be_put_back(json in document(odd()), path in path(), new in document(odd())) {
            let Some(old) = find(&json, &path) else { return Ok(()) };
            prop_assume!(survey(&json, &[&path])[0].values == 1);
            let start = old.as_ptr() as usize - json.as_ptr() as usize;
            let replaced = replace(&json, &path, &new).unwrap();
            prop_assert_eq!(&replaced, &format!("{}{new}{}", &json[..start], &json[start + old.len()..]));
            prop_assert_eq!(insert(&json, &path, &new), &*replaced);
            prop_assert_eq!(replace(&replaced, &path, old), Some(json));
        }

        // req: GW-03
        #[test]
        fn what_is_added_can_be_taken_away(json in document(odd()), path in path(), new in document(odd())) {
            prop_assume!(json.starts_with('{') && path.split_last().is_some_and(|(_, parents)| {
                find(&json, parents).is_some_and(|parent| parent.starts_with('{'))
            }));
            prop_assume!(survey(&json, &[&path])[0].values == 0);
            let added = insert(&json, &path, &new);
            prop_assert_eq!(find(&added, &path), Some(&*new));
            prop_assert_eq!(remove(&added, &path), json);
        }

        #[test]
        fn edits_together_are_edits_one_by_one(json in document(odd()), one in path(), two in path()) {
            prop_assume!(!one.starts_with(&two) && !two.starts_with(&one));
            let step = edit(&edit(&json, &[(&one, "[1]")]), &[(&two, "[2]")]);
            prop_assert_eq!(edit(&json, &[(&one, "[1]"), (&two, "[2]")]), step);
        }

        #[test]
        fn no_text_makes_it_panic(json in "[\\[\\]{}\":, \\\\abé1]{0,24}|.*", path in path()) {
            let _ = (find(&json, &path), find_string(&json, &path), find_elements(&json, &path), remove(&json, &path));
            let _ = (insert(&json, &path, "1"), edit(&json, &[(&path, "1"), (&["a"], "2")]));
        }
    }
}
