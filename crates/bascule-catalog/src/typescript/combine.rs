//! The intersection of two types.
//!
//! TypeScript has no intersection of two names that says more than `A & B`, so a definition is opened: its value takes the place
//! of its name. A definition that cannot be opened (its translation is not complete, or it is nested too deeply) makes the
//! intersection wider.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use super::types::{Alternative, Definition, Object, Property, Rest, Tuple, Type};
use super::work::Work;

/// The largest number of alternatives in an intersection. Beyond it the type is wider.
const MAX_ALTERNATIVES: usize = 256;
/// The largest number of definitions that are opened inside each other.
const MAX_OPENED: usize = 8;
/// The deepest definition that is opened. With the bound above, no intersection is nested too deeply for the stack.
const MAX_OPENED_DEPTH: usize = 30;

/// Intersects the types of one document. An intersection that needs too much work is unknown.
pub(super) struct TypeIntersector<'d> {
    definitions: &'d [Definition],
    work: &'d Work,
    /// The definitions whose values are being intersected in the place of their names. A recursive one is not opened inside
    /// itself.
    opened: RefCell<Vec<usize>>,
}

impl<'d> TypeIntersector<'d> {
    pub(super) fn new(definitions: &'d [Definition], work: &'d Work) -> Self {
        Self { definitions, work, opened: RefCell::default() }
    }

    /// Returns the type of the values that are valid for both types.
    pub(super) fn intersect(&self, mut left: Type, mut right: Type) -> Type {
        if self.work.is_exceeded() {
            return Work::exceeded_type();
        }
        let notes = (left.note.take(), right.note.take());
        let mut both = match (left.alternatives.as_slice(), right.alternatives.as_slice()) {
            ([Alternative::Unknown], _) => right,
            (_, [Alternative::Unknown]) => left,
            _ => self.intersect_alternatives(left, &right),
        };
        let note = both.note.take();
        [notes.0, notes.1, note].into_iter().for_each(|note| both.add_note(note));
        if self.work.is_exceeded() { Work::exceeded_type() } else { both }
    }

    /// Intersects each alternative of one type with each of the other.
    fn intersect_alternatives(&self, mut left: Type, right: &Type) -> Type {
        if left.alternatives.len().saturating_mul(right.alternatives.len()) > MAX_ALTERNATIVES {
            left.add_note(Some("too many combinations".into()));
            return left;
        }
        let right: Vec<(&Alternative, usize)> =
            right.alternatives.iter().map(|right| (right, right.weight())).collect();
        let mut both = Type::default();
        for left in &left.alternatives {
            let weight = left.weight();
            for (right, right_weight) in &right {
                if !self.work.spend(weight + right_weight) {
                    return Work::exceeded_type();
                }
                let part = self.intersect_pair(left, right);
                both.add_note(part.note);
                part.alternatives.into_iter().for_each(|part| both.add(part, self.work));
            }
        }
        both
    }

    /// Intersects two alternatives. Those of different kinds have no common values.
    fn intersect_pair(&self, left: &Alternative, right: &Alternative) -> Type {
        if left.covers(right) {
            return right.clone().into();
        }
        if right.covers(left) {
            return left.clone().into();
        }
        match (left, right) {
            (Alternative::Named(index), other) => {
                self.intersect_definition(*index, other, |value, other| self.intersect(value, other))
            }
            (other, Alternative::Named(index)) => {
                self.intersect_definition(*index, other, |value, other| self.intersect(other, value))
            }
            (Alternative::Array(left), Alternative::Array(right)) => {
                Alternative::Array(Box::new(self.intersect((**left).clone(), (**right).clone()))).into()
            }
            (Alternative::Tuple(tuple), Alternative::Array(items))
            | (Alternative::Array(items), Alternative::Tuple(tuple)) => {
                Alternative::Tuple(self.with_items(tuple, items)).into()
            }
            (Alternative::Object(left), Alternative::Object(right)) => self
                .intersect_objects(left, right)
                .map_or_else(Type::default, |object| Alternative::Object(object).into()),
            _ => Type::default(),
        }
    }

    /// Opens a definition and returns its values that are valid for the other alternative too.
    fn intersect_definition(
        &self,
        index: usize,
        other: &Alternative,
        intersect: impl FnOnce(Type, Type) -> Type,
    ) -> Type {
        let definition = &self.definitions[index];
        let is_unchanged = match definition.is_complete {
            true => definition.value.alternatives.iter().all(|value| is_kind_of(other, value)),
            // Nothing is known of it. The name alone is wider.
            false => is_kind(other),
        };
        if is_unchanged {
            return Alternative::Named(index).into();
        }
        if !self.work.spend(definition.value.weight()) {
            return Work::exceeded_type();
        }
        let is_open = definition.is_complete
            && self.opened.borrow().len() < MAX_OPENED
            && !(definition.is_recursive && self.opened.borrow().contains(&index))
            && definition.value.depth() <= MAX_OPENED_DEPTH;
        if !is_open {
            return Type::unknown_because(format!("`{}`, combined with another type", definition.name));
        }
        self.opened.borrow_mut().push(index);
        let both = intersect(definition.value.clone(), other.clone().into());
        self.opened.borrow_mut().pop();
        both
    }

    /// Returns a tuple whose items are valid for the items of an array too.
    fn with_items(&self, tuple: &Tuple, items: &Type) -> Tuple {
        let weight = items.weight();
        let narrow = |item: &Type| match self.work.spend(weight) {
            true => self.intersect(item.clone(), items.clone()),
            false => Work::exceeded_type(),
        };
        Tuple {
            items: tuple.items.iter().map(narrow).collect(),
            required: tuple.required,
            rest: tuple.rest.as_ref().map(|rest| Box::new(narrow(rest))),
        }
    }

    /// Intersects the properties by name. Returns `None` if a required property has no valid value.
    fn intersect_objects(&self, left: &Object, right: &Object) -> Option<Object> {
        let mut both = Object { properties: Vec::new(), rest: self.intersect_rests(&left.rest, &right.rest) };
        let of_right: HashMap<&str, &Property> =
            right.properties.iter().map(|property| (property.name.as_str(), property)).collect();
        let of_left: HashSet<&str> = left.properties.iter().map(|property| property.name.as_str()).collect();
        for property in &left.properties {
            let twin = of_right.get(property.name.as_str()).copied();
            self.add_property(&mut both, property, twin, right)?;
        }
        for property in right.properties.iter().filter(|property| !of_left.contains(property.name.as_str())) {
            self.add_property(&mut both, property, None, left)?;
        }
        Some(both)
    }

    /// Adds a property of one object. `twin` is the property of the other object with that name.
    fn add_property(
        &self,
        both: &mut Object,
        property: &Property,
        twin: Option<&Property>,
        other: &Object,
    ) -> Option<()> {
        let constraint = twin.map_or_else(|| rest_type(other), |twin| twin.value.clone());
        if !self.work.spend(constraint.weight()) {
            // The object is not used: the whole intersection is unknown.
            return Some(());
        }
        let value = self.intersect(property.value.clone(), constraint);
        let is_required = property.is_required || twin.is_some_and(|twin| twin.is_required);
        if value.is_never() && is_required {
            return None;
        }
        if !value.is_never() || twin.is_some() {
            let doc = property.doc.clone().or_else(|| twin.and_then(|twin| twin.doc.clone()));
            both.properties.push(Property { name: property.name.clone(), value, is_required, doc });
        }
        Some(())
    }

    /// Intersects the types of the properties that the objects do not list.
    fn intersect_rests(&self, left: &Rest, right: &Rest) -> Rest {
        match (left, right) {
            (Rest::Closed, _) | (_, Rest::Closed) => Rest::Closed,
            (Rest::Unstated, rest) | (rest, Rest::Unstated) => rest.clone(),
            (Rest::Typed(left), Rest::Typed(right)) => {
                Rest::Typed(Box::new(self.intersect((**left).clone(), (**right).clone())))
            }
        }
    }
}

/// Returns the type that an object gives to a property which it does not list.
fn rest_type(object: &Object) -> Type {
    match &object.rest {
        Rest::Unstated => Type::unknown(),
        Rest::Closed => Type::default(),
        Rest::Typed(value) => (**value).clone(),
    }
}

/// Returns true for a type that names a kind of values, and restricts their parts in no way.
fn is_kind(alternative: &Alternative) -> bool {
    match alternative {
        Alternative::Array(items) => **items == Type::unknown(),
        Alternative::Object(object) => object.properties.is_empty() && object.rest == Rest::Unstated,
        Alternative::Tuple(_) | Alternative::Named(_) => false,
        _ => true,
    }
}

/// Returns true if `kind` is the kind of all values of the alternative.
fn is_kind_of(kind: &Alternative, alternative: &Alternative) -> bool {
    let has_kind = matches!(
        (kind, alternative),
        (Alternative::Object(_), Alternative::Object(_))
            | (Alternative::Array(_), Alternative::Array(_) | Alternative::Tuple(_))
    );
    is_kind(kind) && (has_kind || kind.covers(alternative))
}
