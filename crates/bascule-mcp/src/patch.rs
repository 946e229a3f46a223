//! Reads and changes single fields of JSON text and leaves every other byte as it is.
//!
//! A path is a list of object keys, compared unescaped (`"n\u0061me"` is `name`); the empty path is the whole document.
//! Of duplicate keys the last one counts, as in most parsers, but a change applies to all of them, so that no reader
//! sees the old value. Nothing here recurses, and memory use does not grow with the depth of the document or with the
//! number of its members. The text is assumed to be JSON: for any other text the functions return without a panic, and
//! the result has no meaning.
//!
//! `walk` follows paths through the text, `token` finds the ends of values, `splice` writes the changed text.

mod splice;
mod token;
mod walk;

use std::ops::ControlFlow::{Break, Continue};

use splice::Splice;
use token::{next_member, skip_space, unescape, value_end};
use walk::{Member, Site, walk};

/// Returns the raw text of the value at a path, or `None` if there is no such value.
pub fn find<'a>(json: &'a str, path: &[&str]) -> Option<&'a str> {
    let [found] = find_many(json, [path]);
    found
}

/// Finds the values at several paths in one pass. A path that leads into the value of another path finds nothing.
pub fn find_many<'a, const N: usize>(json: &'a str, paths: [&[&str]; N]) -> [Option<&'a str>; N] {
    let mut found = [None; N];
    walk(json, &paths, |path, site| {
        found[path] = match site {
            Site::Value { range, .. } => json.get(range),
            Site::NotObject { .. } | Site::Missing { .. } => None,
        };
        Continue(())
    });
    found
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
    let mut splice = Splice::new(json, 0);
    for element in find_elements(json, path)? {
        let start = element.as_ptr() as usize - json.as_ptr() as usize;
        if let Some(changed) = change(element) {
            splice.replace(start..start + element.len(), &[&changed]);
        }
    }
    splice.finish()
}

/// Replaces the value at a path by raw JSON, or adds the missing keys of the path behind the other members.
///
/// Any other value on the way (`"_meta":null`) gives way to an object. A document that is no object stays as it is.
/// Where keys are duplicated, each value is replaced. Only if they are so many that the text would grow by more than its
/// own size (and by more than 64 KiB), all but the last become `null` instead.
pub fn insert(json: &str, path: &[&str], value: &str) -> String {
    insert_many(json, [(path, value)])
}

/// Inserts several values in one pass. No two of them may add to the same missing object. Where two paths are equal, or
/// one leads into the other's value, the outer and then the earlier one counts.
pub fn insert_many<const N: usize>(json: &str, edits: [(&[&str], &str); N]) -> String {
    let paths = edits.map(|(path, _)| path);
    let mut sites = [const { None }; N];
    let (mut count, mut is_reported, mut has_duplicates) = (0, [false; N], false);
    walk(json, &paths, |path, site| {
        if std::mem::replace(&mut is_reported[path], true) {
            has_duplicates = true;
            return Break(());
        }
        sites[count] = Some((path, site));
        count += 1;
        Continue(())
    });
    if has_duplicates {
        return insert_into_duplicates(json, edits);
    }
    let mut splice = Splice::new(json, extra_capacity(&edits));
    for (path, site) in sites.into_iter().flatten() {
        write_edit(&mut splice, site, edits[path]);
    }
    splice.finish().unwrap_or_else(|| json.to_owned())
}

/// Removes the member at a path with its comma; every one if it is duplicated.
pub fn remove(json: &str, path: &[&str]) -> String {
    let mut splice = Splice::new(json, 0);
    walk(json, &[path], |_, site| {
        match site {
            Site::Value { range, member: Some(Member { comma: Some(comma), .. }) } => {
                splice.replace(comma..range.end, &[]);
            }
            Site::Value { range, member: Some(Member { key, comma: None }) } => {
                splice.replace(key..next_member(json.as_bytes(), range.end), &[]);
            }
            _ => {}
        }
        Continue(())
    });
    splice.finish().unwrap_or_else(|| json.to_owned())
}

/// Growth that needs no limit.
const SMALL: usize = 64 << 10;

/// Inserts in two passes: only the end of the text tells which of the duplicates is the last, and to keep them all would
/// take memory.
fn insert_into_duplicates<const N: usize>(json: &str, edits: [(&[&str], &str); N]) -> String {
    let paths = edits.map(|(path, _)| path);
    let found = survey(json, &paths);
    let mut splice = Splice::new(json, extra_capacity(&edits));
    walk(json, &paths, |path, site| {
        let (_, value) = edits[path];
        match &site {
            Site::Value { range, .. } if found[path].is_surplus(&site, json, value) => {
                splice.replace(range.clone(), &["null"]);
            }
            Site::Value { .. } => write_edit(&mut splice, site, edits[path]),
            _ if found[path].is_last(&site) => write_edit(&mut splice, site, edits[path]),
            _ => {}
        }
        Continue(())
    });
    splice.finish().unwrap_or_else(|| json.to_owned())
}

/// Returns an upper bound of the growth by the edits, unless keys are duplicated.
fn extra_capacity(edits: &[(&[&str], &str)]) -> usize {
    edits.iter().map(|(path, value)| value.len() + path.iter().map(|key| key.len() + 8).sum::<usize>()).sum()
}

fn write_edit(splice: &mut Splice<'_>, site: Site, (keys, value): (&[&str], &str)) {
    match site {
        Site::Value { range, .. } => splice.replace(range, &[value]),
        Site::NotObject { level: 0, .. } => {}
        Site::NotObject { range, level } => splice.replace_nested(range, ["{", "}"], &keys[level..], value),
        Site::Missing { at, level, is_empty } => {
            // Another edit may have added to the same empty object.
            let comma = if is_empty && splice.position() != at { "" } else { "," };
            splice.replace_nested(at..at, [comma, ""], &keys[level..], value);
        }
    }
}

/// The ends of one path.
#[derive(Default, Clone)]
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

fn survey<const N: usize>(json: &str, paths: &[&[&str]; N]) -> [Found; N] {
    let mut found = [const { Found { values: 0, last: None } }; N];
    walk(json, paths, |path, site| {
        found[path].values += usize::from(matches!(site, Site::Value { .. }));
        found[path].last = Some(site);
        Continue(())
    });
    found
}

#[cfg(test)]
mod tests;
