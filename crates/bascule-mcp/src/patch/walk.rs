//! Follows a path through JSON text and reports where it ends.

use std::ops::ControlFlow::{self, Break, Continue};
use std::ops::Range;

use super::token::{is_key, string_end, value_end};
use crate::json_check::skip_space;

/// A place where following a path ends.
#[derive(Clone, PartialEq)]
pub(super) enum Site {
    Value {
        range: Range<usize>,
        member: Option<Member>,
    },
    /// A value that would have to be an object, for the path to go on with its key number `level`.
    NotObject {
        range: Range<usize>,
        level: usize,
    },
    /// An object without the path's key number `level`, which can be added at `at`.
    Missing {
        at: usize,
        level: usize,
        is_empty: bool,
    },
}

/// Where the member of a value begins.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Member {
    pub(super) key: usize,
    /// The comma before it, if one of the members before it is not at the path.
    pub(super) comma: Option<usize>,
}

/// Follows a path from the beginning of the text to its end, or until `on_site` breaks. Reports in order where the path ends: in
/// every object on the path, once for each time its key stands there, or once if it is missing. Opens only objects on the
/// path, so there are never more of them open than the path has keys.
pub(super) fn walk(json: &str, path: &[&str], mut on_site: impl FnMut(Site) -> ControlFlow<()>) {
    let walk = Walk {
        json,
        bytes: json.as_bytes(),
        path,
        object: OpenObject::default(),
        parents: Vec::new(),
        level: 0,
    };
    let _ = walk.run(&mut on_site);
}

struct Walk<'a> {
    json: &'a str,
    bytes: &'a [u8],
    path: &'a [&'a str],
    /// The innermost open object, if `level` is not 0.
    object: OpenObject,
    parents: Vec<OpenObject>,
    /// Number of open objects, and of keys that lead to the current place.
    level: usize,
}

/// An object that the path leads into.
#[derive(Default)]
struct OpenObject {
    /// True if it has the next key of the path.
    has_key: bool,
    /// The end of its last value so far, or its beginning.
    end: usize,
    is_empty: bool,
    comma: Option<usize>,
    /// True if it has a member that is not at the path.
    has_others: bool,
}

impl Walk<'_> {
    fn run(mut self, on_site: &mut impl FnMut(Site) -> ControlFlow<()>) -> ControlFlow<()> {
        let mut at = self.value(skip_space(self.bytes, 0), None, on_site)?;
        while self.level > 0 {
            at = skip_space(self.bytes, at);
            match self.bytes.get(at) {
                Some(b'"') => at = self.member(at, on_site)?,
                Some(b',') => {
                    self.object.comma = Some(at);
                    at += 1;
                }
                Some(b'}') => {
                    at += 1;
                    self.close(at, on_site)?;
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
        on_site: &mut impl FnMut(Site) -> ControlFlow<()>,
    ) -> ControlFlow<(), usize> {
        let (end, is_escaped) = string_end(self.bytes, key);
        let colon = skip_space(self.bytes, end);
        if self.bytes.get(colon) != Some(&b':') {
            return Break(());
        }
        let at = skip_space(self.bytes, colon + 1);
        if !is_key(self.json, key, end, is_escaped, self.path[self.level - 1]) {
            let end = value_end(self.bytes, at);
            self.end_value(end, false);
            return Continue(end);
        }
        self.object.has_key = true;
        let comma = self.object.comma.filter(|_| self.object.has_others);
        self.value(at, Some(Member { key, comma }), on_site)
    }

    /// Takes a value on the path: goes into it if the path leads on, else to its end.
    fn value(
        &mut self,
        at: usize,
        member: Option<Member>,
        on_site: &mut impl FnMut(Site) -> ControlFlow<()>,
    ) -> ControlFlow<(), usize> {
        let (level, is_last) = (self.level, self.level == self.path.len());
        if !is_last && self.bytes.get(at) == Some(&b'{') {
            self.open(at + 1);
            return Continue(at + 1);
        }
        let range = at..value_end(self.bytes, at);
        let end = range.end;
        on_site(if is_last { Site::Value { range, member } } else { Site::NotObject { range, level } })?;
        self.end_value(end, is_last);
        Continue(end)
    }

    fn open(&mut self, begin: usize) {
        let object = OpenObject { end: begin, is_empty: true, ..OpenObject::default() };
        let parent = std::mem::replace(&mut self.object, object);
        if self.level > 0 {
            self.parents.push(parent);
        }
        self.level += 1;
    }

    /// Leaves the innermost object, which ends before `end`.
    fn close(&mut self, end: usize, on_site: &mut impl FnMut(Site) -> ControlFlow<()>) -> ControlFlow<()> {
        self.level -= 1;
        let parent = self.parents.pop().unwrap_or_default();
        let OpenObject { has_key, end: at, is_empty, .. } = std::mem::replace(&mut self.object, parent);
        if !has_key {
            on_site(Site::Missing { at, level: self.level, is_empty })?;
        }
        self.end_value(end, false);
        Continue(())
    }

    /// Notes the end of a value of the innermost object.
    fn end_value(&mut self, end: usize, is_at_path: bool) {
        self.object.end = end;
        self.object.is_empty = false;
        self.object.has_others |= !is_at_path;
    }
}
