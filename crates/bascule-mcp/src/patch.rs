//! Reads and changes single fields of JSON text and leaves every other byte as it is.
//!
//! A path is a list of object keys, compared unescaped (`"n\u0061me"` is `name`); the empty path is the whole document.
//! Of duplicate keys the last one counts, as in most parsers, but a change applies to all of them, so that no reader
//! sees the old value. Nothing here recurses, and memory use does not grow with the depth of the document or with the
//! number of its members. The text is assumed to be JSON: for any other text the functions return without a panic, and
//! the result has no meaning.
//!
//! `walk` follows a path through the text, `token` finds the ends of values, `range_replacer` writes the changed text.

mod range_replacer;
mod token;
mod walk;

use std::ops::ControlFlow::{Break, Continue};

use range_replacer::RangeReplacer;
use token::{is_key, next_member, string_end, unescape, value_end};
use walk::{Member, Site, walk};

use crate::envelope::push_quoted;
use crate::json_check::skip_space;

/// Returns the raw text of the value at a path, or `None` if there is no such value.
pub fn find<'a>(json: &'a str, path: &[&str]) -> Option<&'a str> {
    let at = skip_space(json.as_bytes(), 0);
    match path {
        [] => json.get(at..value_end(json.as_bytes(), at)),
        _ => path.iter().try_fold(json.get(at..)?, |object, key| find_member(object, key)),
    }
}

/// Finds a member of the object at the beginning of the text.
fn find_member<'a>(object: &'a str, key: &str) -> Option<&'a str> {
    let bytes = object.as_bytes();
    let (mut at, mut found) = (bytes.starts_with(b"{").then_some(1)?, None);
    loop {
        at = skip_space(bytes, at);
        match bytes.get(at) {
            Some(b'"') => {
                let (end, is_escaped) = string_end(bytes, at);
                let colon = skip_space(bytes, end);
                let start = skip_space(bytes, colon + 1);
                let value = start..value_end(bytes, start);
                if is_key(object, at, end, is_escaped, key) {
                    found = object.get(value.clone());
                }
                at = value.end;
            }
            Some(b',') => at += 1,
            _ => return found,
        }
    }
}

/// Returns the unescaped string at a path. `None` if there is no string, or if it is not text (a lone surrogate).
pub fn find_string(json: &str, path: &[&str]) -> Option<String> {
    find(json, path).and_then(unescape)
}

/// Returns the raw text of each element of the array at a path.
pub fn find_elements<'a>(json: &'a str, path: &[&str]) -> Option<Vec<&'a str>> {
    let array = find(json, path)?;
    let bytes = array.as_bytes();
    let mut at = skip_space(bytes, bytes.starts_with(b"[").then_some(1)?);
    let mut elements = Vec::new();
    while at < bytes.len() && bytes[at] != b']' {
        let end = value_end(bytes, at);
        elements.push(array.get(at..end)?);
        at = skip_space(bytes, end);
        match bytes.get(at) {
            Some(b',') => at = skip_space(bytes, at + 1),
            _ => break,
        }
    }
    Some(elements)
}

/// Replaces those elements of the array at a path for which `change` returns raw JSON. Returns `None` if all stay.
pub fn map_elements(
    json: &str,
    path: &[&str],
    mut change: impl FnMut(&str) -> Option<String>,
) -> Option<String> {
    let mut replacer = RangeReplacer::new(json, 0);
    for element in find_elements(json, path)? {
        let start = element.as_ptr() as usize - json.as_ptr() as usize;
        if let Some(changed) = change(element) {
            replacer.replace(start..start + element.len(), &[&changed]);
        }
    }
    replacer.finish()
}

/// Replaces the value at a path by raw JSON, or adds the missing keys of the path behind the other members.
///
/// Any other value on the way (`"_meta":null`) gives way to an object. A document that is no object stays as it is.
/// Where keys are duplicated, each value is replaced. Only if they are so many that the text would grow by more than its
/// own size (and by more than 64 KiB), all but the last become `null` instead.
pub fn insert(json: &str, path: &[&str], value: &str) -> String {
    let (mut site, mut has_duplicates) = (None, false);
    walk(json, path, |next| {
        has_duplicates = site.replace(next).is_some();
        if has_duplicates { Break(()) } else { Continue(()) }
    });
    if has_duplicates {
        return insert_into_duplicates(json, path, value);
    }
    let mut replacer = RangeReplacer::new(json, extra_capacity(path, value));
    site.into_iter().for_each(|site| write_edit(&mut replacer, site, path, value));
    replacer.finish().unwrap_or_else(|| json.to_owned())
}

/// Adds a member behind the others of an object that has no such member. Other text stays as it is.
pub fn append(object: &str, key: &str, value: &str) -> String {
    let Some(members) = object.trim_ascii_end().strip_suffix('}') else { return object.to_owned() };
    let mut out = String::with_capacity(members.len() + key.len() + value.len() + 5);
    out.push_str(members);
    if !members.trim_ascii_end().ends_with('{') {
        out.push(',');
    }
    push_quoted(&mut out, key);
    out.extend([":", value, "}"]);
    out
}

/// Removes the member at a path with its comma; every one if it is duplicated.
pub fn remove(json: &str, path: &[&str]) -> String {
    let mut replacer = RangeReplacer::new(json, 0);
    walk(json, path, |site| {
        match site {
            Site::Value { range, member: Some(Member { comma: Some(comma), .. }) } => {
                replacer.replace(comma..range.end, &[]);
            }
            Site::Value { range, member: Some(Member { key, comma: None }) } => {
                replacer.replace(key..next_member(json.as_bytes(), range.end), &[]);
            }
            _ => {}
        }
        Continue(())
    });
    replacer.finish().unwrap_or_else(|| json.to_owned())
}

/// Growth that needs no limit.
const SMALL: usize = 64 << 10;

/// Inserts in two passes: only the end of the text tells which of the duplicates is the last, and to keep them all would
/// take memory.
fn insert_into_duplicates(json: &str, path: &[&str], value: &str) -> String {
    let found = survey(json, path);
    let mut replacer = RangeReplacer::new(json, extra_capacity(path, value));
    walk(json, path, |site| {
        match &site {
            Site::Value { range, .. } if found.is_surplus(&site, json, value) => {
                replacer.replace(range.clone(), &["null"]);
            }
            Site::Value { .. } => write_edit(&mut replacer, site, path, value),
            _ if found.is_last(&site) => write_edit(&mut replacer, site, path, value),
            _ => {}
        }
        Continue(())
    });
    replacer.finish().unwrap_or_else(|| json.to_owned())
}

/// Returns an upper bound of the growth by an edit, unless keys are duplicated.
fn extra_capacity(path: &[&str], value: &str) -> usize {
    value.len() + path.iter().map(|key| key.len() + 8).sum::<usize>()
}

fn write_edit(replacer: &mut RangeReplacer<'_>, site: Site, path: &[&str], value: &str) {
    match site {
        Site::Value { range, .. } => replacer.replace(range, &[value]),
        Site::NotObject { level: 0, .. } => {}
        Site::NotObject { range, level } => replacer.replace_nested(range, ["{", "}"], &path[level..], value),
        Site::Missing { at, level, is_empty } => {
            let comma = if is_empty { "" } else { "," };
            replacer.replace_nested(at..at, [comma, ""], &path[level..], value);
        }
    }
}

/// The ends of a path.
#[derive(Default)]
struct Found {
    /// Number of values, duplicates included.
    values: usize,
    /// The end that a parser reaches that takes the last of duplicates.
    last: Option<Site>,
}

impl Found {
    /// Returns true for one of too many duplicates to repeat the value in each.
    fn is_surplus(&self, site: &Site, json: &str, value: &str) -> bool {
        (self.values - 1).saturating_mul(value.len()) > json.len().max(SMALL) && !self.is_last(site)
    }

    fn is_last(&self, site: &Site) -> bool {
        self.last.as_ref() == Some(site)
    }
}

fn survey(json: &str, path: &[&str]) -> Found {
    let mut found = Found::default();
    walk(json, path, |site| {
        found.values += usize::from(matches!(site, Site::Value { .. }));
        found.last = Some(site);
        Continue(())
    });
    found
}

#[cfg(test)]
mod tests;
