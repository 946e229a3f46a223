//! Names the places at which a joined shape says more than the earlier one, as JSON pointers.
//!
//! `*` stands for any item of an array, and for any property whose name is not kept. Values are never named.

use super::data_names::is_data;
use super::shape::{ObjectShape, Shape};
use crate::schema::member_pointer;

/// The number of places that are named.
pub(super) const MAX_POINTERS: usize = 10;

/// Returns the places at which `new`, which was joined from `old`, is wider. A place of which nothing was known is none.
pub(super) fn differences(old: &Shape, new: &Shape) -> Vec<String> {
    let mut pointers = Vec::new();
    compare(old, new, "", &mut pointers);
    pointers.truncate(MAX_POINTERS);
    pointers
}

fn compare(old: &Shape, new: &Shape, pointer: &str, pointers: &mut Vec<String>) {
    if old == new || old.is_any || *old == Shape::default() || pointers.len() >= MAX_POINTERS {
        return;
    }
    let is_new_kind = !old.scalars.contains(new.scalars)
        || new.is_any
        || (old.array.is_none() && new.array.is_some())
        || (old.object.is_none() && new.object.is_some());
    if is_new_kind {
        pointers.push(pointer.to_owned());
    }
    if let (Some(old), Some(new)) = (&old.array, &new.array) {
        compare(old, new, &format!("{pointer}/*"), pointers);
    }
    if let (Some(old), Some(new)) = (&old.object, &new.object) {
        compare_objects(old, new, pointer, pointers);
    }
}

fn compare_objects(old: &ObjectShape, new: &ObjectShape, pointer: &str, pointers: &mut Vec<String>) {
    // The names of a map are data, also if they are kept now.
    if new.is_map != old.is_map {
        return pointers.push(format!("{pointer}/*"));
    }
    for (name, property) in &new.properties {
        let place = member_pointer(pointer, name);
        match old.properties.get(name) {
            Some(known) if known.is_required == property.is_required => {
                compare(&known.shape, &property.shape, &place, pointers);
            }
            _ => pointers.push(place),
        }
    }
    match (&old.rest, &new.rest) {
        (None, Some(_)) => pointers.push(format!("{pointer}/*")),
        (Some(old), Some(new)) => compare(old, new, &format!("{pointer}/*"), pointers),
        _ => {}
    }
}

/// Replaces the parts of a pointer into a value that are indices or data.
pub(super) fn general_pointer(pointer: &str) -> String {
    let general = |part: &str| match part {
        "" => String::new(),
        part if is_data(&part.replace("~1", "/").replace("~0", "~")) => "*".into(),
        part => part.to_owned(),
    };
    pointer.split('/').map(general).collect::<Vec<_>>().join("/")
}
