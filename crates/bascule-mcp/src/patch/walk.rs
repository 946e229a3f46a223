//! Follows paths through JSON text and reports where each of them ends.

use std::ops::ControlFlow::{self, Break, Continue};
use std::ops::Range;

use super::token::{is_key, skip_space, string_end, value_end};

/// A place where following a path ends.
#[derive(Clone, PartialEq)]
pub(super) enum Site {
    /// The value.
    Value { range: Range<usize>, member: Option<Member> },
    /// A value that would have to be an object, for the path to go on with its key number `level`.
    NotObject { range: Range<usize>, level: usize },
    /// An object without the path's key number `level`, which can be added at `at`.
    Missing { at: usize, level: usize, is_empty: bool },
}

/// Where the member of a value begins.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Member {
    pub(super) key: usize,
    /// The comma before it, if one of the members before it is not at a path.
    pub(super) comma: Option<usize>,
}

/// Follows all paths from the beginning of the text to its end, or until `on_site` breaks. Reports in order where each
/// path ends: in every object on a path, once for each time its key stands there, or once if it is missing. Opens only
/// objects on a path, so there are never more of them open than the longest path has keys.
pub(super) fn walk<const N: usize>(
    json: &str,
    paths: &[&[&str]; N],
    mut on_site: impl FnMut(usize, Site) -> ControlFlow<()>,
) {
    const { assert!(N < PathSet::BITS as usize) };
    let walk = Walk {
        json,
        bytes: json.as_bytes(),
        paths,
        object: OpenObject::default(),
        parents: Vec::new(),
        level: 0,
    };
    let _ = walk.run(&mut on_site);
}

/// A bit for each path.
type PathSet = u32;

struct Walk<'a> {
    json: &'a str,
    bytes: &'a [u8],
    paths: &'a [&'a [&'a str]],
    /// The innermost open object, if `level` is not 0.
    object: OpenObject,
    parents: Vec<OpenObject>,
    /// Number of open objects, and of keys that lead to the current place.
    level: usize,
}

/// An object that a path leads into.
#[derive(Default)]
struct OpenObject {
    /// Paths that lead through it.
    paths: PathSet,
    /// Those of them whose next key it has.
    found: PathSet,
    /// The end of its last value so far, or its beginning.
    end: usize,
    is_empty: bool,
    comma: Option<usize>,
    /// True if it has a member that is not at a path.
    has_others: bool,
}

impl Walk<'_> {
    fn run(mut self, on_site: &mut impl FnMut(usize, Site) -> ControlFlow<()>) -> ControlFlow<()> {
        let all = (1 << self.paths.len()) - 1;
        let mut at = self.value(skip_space(self.bytes, 0), all, None, on_site)?;
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
        on_site: &mut impl FnMut(usize, Site) -> ControlFlow<()>,
    ) -> ControlFlow<(), usize> {
        let (end, is_escaped) = string_end(self.bytes, key);
        let colon = skip_space(self.bytes, end);
        if self.bytes.get(colon) != Some(&b':') {
            return Break(());
        }
        let is_next = |path: usize| is_key(self.json, key, end, is_escaped, self.paths[path][self.level - 1]);
        let leading = subset(self.object.paths, is_next);
        self.object.found |= leading;
        let comma = self.object.comma.filter(|_| self.object.has_others);
        self.value(skip_space(self.bytes, colon + 1), leading, Some(Member { key, comma }), on_site)
    }

    /// Takes the value that the paths `leading` lead to: goes into it if one leads on, else to its end.
    fn value(
        &mut self,
        at: usize,
        leading: PathSet,
        member: Option<Member>,
        on_site: &mut impl FnMut(usize, Site) -> ControlFlow<()>,
    ) -> ControlFlow<(), usize> {
        let level = self.level;
        let ending = subset(leading, |path| self.paths[path].len() == level);
        if ending == 0 && leading != 0 && self.bytes.get(at) == Some(&b'{') {
            self.open(at + 1, leading);
            return Continue(at + 1);
        }
        let end = value_end(self.bytes, at);
        for path in bits(if ending != 0 { ending } else { leading }) {
            let range = at..end;
            on_site(
                path,
                if ending != 0 { Site::Value { range, member } } else { Site::NotObject { range, level } },
            )?;
        }
        self.end_value(end, ending != 0);
        Continue(end)
    }

    fn open(&mut self, begin: usize, paths: PathSet) {
        let object = OpenObject { paths, end: begin, is_empty: true, ..OpenObject::default() };
        let parent = std::mem::replace(&mut self.object, object);
        if self.level > 0 {
            self.parents.push(parent);
        }
        self.level += 1;
    }

    /// Leaves the innermost object, which ends before `end`.
    fn close(
        &mut self,
        end: usize,
        on_site: &mut impl FnMut(usize, Site) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        self.level -= 1;
        let parent = self.parents.pop().unwrap_or_default();
        let OpenObject { paths, found, end: at, is_empty, .. } = std::mem::replace(&mut self.object, parent);
        for path in bits(paths & !found) {
            on_site(path, Site::Missing { at, level: self.level, is_empty })?;
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

fn subset(set: PathSet, mut is_in: impl FnMut(usize) -> bool) -> PathSet {
    bits(set).fold(0, |chosen, path| if is_in(path) { chosen | 1 << path } else { chosen })
}

fn bits(mut set: PathSet) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let first = (set != 0).then(|| set.trailing_zeros() as usize)?;
        set &= set - 1;
        Some(first)
    })
}
