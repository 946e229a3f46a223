//! The shape of values: the kinds and property names of all values that were joined into it, never the values.
//!
//! Joining is commutative, associative and idempotent, so the order of answers does not matter. Four bounds hold:
//!
//! - An object with more than [`MAX_PROPERTIES`] names becomes a map, which keeps no names.
//! - An object also becomes a map if at least [`MIN_DATA_NAMES`] of its names are probably data. Either they have objects or arrays
//!   as values, and no name was in every answer; or they were in objects whose values all had one kind, and no name was in all
//!   of these objects.
//! - A shape that weighs more than [`MAX_WEIGHT`] loses its deepest levels.
//! - Nothing below [`MAX_DEPTH`] is kept.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The deepest level that is kept.
pub(super) const MAX_DEPTH: usize = 8;
/// An object with more property names is a map.
pub(super) const MAX_PROPERTIES: usize = 100;
/// An object without a required property is a map from this number of properties on, if they are alike: the names of its
/// properties are probably data, such as those of users.
pub(super) const MIN_DATA_NAMES: usize = 8;
/// An object without a required property is a map from this number of properties on, if their values have no parts and the
/// objects had at least [`MIN_NAME_SETS`] different sets of names: they are probably rows of queries with columns of their own.
const MIN_COLUMNS: usize = 4;
const MIN_NAME_SETS: usize = 3;
/// The largest shape, in nodes. A map counts as an object with the most properties: then joining never makes a shape lighter,
/// which the bound needs to be associative.
const MAX_WEIGHT: usize = 10_000;
const MAP_WEIGHT: usize = MAX_PROPERTIES + 2;

/// The kinds of values without parts, as bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Scalars(u8);

impl Scalars {
    pub(super) const NULL: Self = Self(1);
    pub(super) const BOOLEAN: Self = Self(2);
    pub(super) const NUMBER: Self = Self(4);
    pub(super) const STRING: Self = Self(8);
    /// The kinds with their names in JSON Schema.
    pub(super) const NAMED: [(Self, &'static str); 4] = [
        (Self::BOOLEAN, "boolean"),
        (Self::NUMBER, "number"),
        (Self::STRING, "string"),
        (Self::NULL, "null"),
    ];

    pub(super) fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub(super) fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

/// The shape of some values. The default is the shape of none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Shape {
    /// Any value: nothing is known.
    pub(super) is_any: bool,
    pub(super) scalars: Scalars,
    /// The shape of the items of arrays.
    pub(super) array: Option<Box<Shape>>,
    pub(super) object: Option<Box<ObjectShape>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ObjectShape {
    pub(super) properties: BTreeMap<Box<str>, ObservedProperty>,
    /// The shape of the properties whose names are not kept.
    pub(super) rest: Option<Shape>,
    /// No names are kept.
    pub(super) is_map: bool,
    /// The kinds of alike objects among those that were joined: all values of an alike object are of one kind, or null.
    pub(super) alike: Scalars,
    /// The sets of names that single objects had, as hashes: the smallest [`MIN_NAME_SETS`] in order, because the smallest of a
    /// union do not depend on the order of joining.
    pub(super) name_sets: Vec<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ObservedProperty {
    pub(super) shape: Shape,
    /// Every object had the property.
    pub(super) is_required: bool,
    /// The kinds of the alike objects that had the property.
    alike: Scalars,
    /// The kinds whose alike objects all had the property.
    always_alike: Scalars,
}

impl ObservedProperty {
    pub(super) fn new(shape: Shape, is_required: bool) -> Self {
        Self { shape, is_required, alike: Scalars::default(), always_alike: Scalars::default() }
    }
}

/// A shape within its bounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BoundedShape {
    pub(super) shape: Shape,
    /// The deepest level that is kept.
    pub(super) depth: usize,
}

impl Default for BoundedShape {
    fn default() -> Self {
        Self { shape: Shape::default(), depth: MAX_DEPTH }
    }
}

impl BoundedShape {
    pub(super) fn new(shape: Shape, depth: usize) -> Self {
        let mut bounded = Self { shape, depth: depth.min(MAX_DEPTH) };
        bounded.shape.truncate(bounded.depth);
        while bounded.depth > 0 && bounded.shape.weight() > MAX_WEIGHT {
            bounded.depth -= 1;
            bounded.shape.truncate(bounded.depth);
        }
        bounded
    }

    /// Returns true if both describe the same values.
    pub(super) fn describes_same(&self, other: &Self) -> bool {
        self.depth == other.depth && self.shape.describes_same(&other.shape)
    }

    /// Returns true if both describe the same values, also without the names that are probably data.
    pub(super) fn is_shown_like(&self, other: &Self) -> bool {
        let shown = |bounded: &Self| bounded.shape.without_data_names();
        self == other || (self.describes_same(other) && shown(self).describes_same(&shown(other)))
    }

    pub(super) fn join(self, other: Self) -> Self {
        let depth = self.depth.min(other.depth);
        Self::new(self.shape.join(other.shape), depth)
    }
}

impl Shape {
    pub(super) fn any() -> Self {
        Self { is_any: true, ..Self::default() }
    }

    pub(super) fn scalar(scalars: Scalars) -> Self {
        Self { scalars, ..Self::default() }
    }

    pub(super) fn array(items: Self) -> Self {
        Self { array: Some(Box::new(items)), ..Self::default() }
    }

    pub(super) fn object(object: ObjectShape) -> Self {
        Self { object: Some(Box::new(object)), ..Self::default() }
    }

    /// The shape of the values of both shapes.
    pub(super) fn join(self, other: Self) -> Self {
        if self.is_any || other.is_any {
            return Self::any();
        }
        // Most answers are alike, and comparing is quicker than joining.
        if self == other {
            return self;
        }
        Self {
            is_any: false,
            scalars: self.scalars.union(other.scalars),
            array: join_parts(self.array, other.array, Self::join),
            object: join_parts(self.object, other.object, ObjectShape::join),
        }
    }

    /// Makes objects whose names are probably data maps: [`ObjectShape::has_alike_names`] and [`ObjectShape::has_columns`] at every
    /// level.
    ///
    /// Joining does not do this: two objects may be alike until a third one is joined.
    pub(super) fn without_data_names(&self) -> Self {
        let mut shape = self.clone();
        shape.forget_data_names();
        shape
    }

    fn forget_data_names(&mut self) {
        if let Some(items) = &mut self.array {
            items.forget_data_names();
        }
        let Some(object) = &mut self.object else { return };
        if object.has_alike_names() || object.has_columns() {
            object.forget_names();
        }
        object.properties.values_mut().for_each(|property| property.shape.forget_data_names());
        object.rest.iter_mut().for_each(Self::forget_data_names);
    }

    /// Opens objects without a required property for more names, at every level: the next object may have others again.
    ///
    /// Only types for people and for the check of scripts are open: an open stored shape would take up all names that come later.
    pub(super) fn open(&mut self) {
        self.array.iter_mut().for_each(|items| items.open());
        let Some(object) = &mut self.object else { return };
        if !object.properties.is_empty() && !object.has_required() {
            object.rest = Some(Self::any());
        }
        object.properties.values_mut().for_each(|property| property.shape.open());
        object.rest.iter_mut().for_each(Self::open);
    }

    /// Returns true if the shapes describe the same values. What is known about alike objects and sets of names may differ.
    pub(super) fn describes_same(&self, other: &Self) -> bool {
        self == other || self.without_alike() == other.without_alike()
    }

    pub(super) fn without_alike(&self) -> Self {
        let mut shape = self.clone();
        shape.forget_alike();
        shape
    }

    fn forget_alike(&mut self) {
        self.array.iter_mut().for_each(|items| items.forget_alike());
        let Some(object) = &mut self.object else { return };
        object.alike = Scalars::default();
        object.name_sets.clear();
        object.rest.iter_mut().for_each(Self::forget_alike);
        for property in object.properties.values_mut() {
            (property.alike, property.always_alike) = (Scalars::default(), Scalars::default());
            property.shape.forget_alike();
        }
    }

    /// Returns the kinds of values without parts; `None` if other values are among them, or nothing is known.
    fn scalars_only(&self) -> Option<Scalars> {
        let has_others = self.is_any || self.array.is_some() || self.object.is_some();
        (!has_others && self.scalars != Scalars::default()).then_some(self.scalars)
    }

    /// Returns true if the kinds of values are the same. Parts may differ.
    fn is_alike(&self, other: &Self) -> bool {
        self.is_any == other.is_any
            && self.scalars == other.scalars
            && self.array.is_some() == other.array.is_some()
            && self.object.is_some() == other.object.is_some()
    }

    /// Removes what is deeper than `depth` levels.
    pub(super) fn truncate(&mut self, depth: usize) {
        let Some(depth) = depth.checked_sub(1) else {
            if self.array.is_some() || self.object.is_some() {
                *self = Self::any();
            }
            return;
        };
        self.array.iter_mut().for_each(|items| items.truncate(depth));
        if let Some(object) = &mut self.object {
            object.properties.values_mut().for_each(|property| property.shape.truncate(depth));
            object.rest.iter_mut().for_each(|rest| rest.truncate(depth));
        }
    }

    fn weight(&self) -> usize {
        let array = self.array.as_ref().map_or(0, |items| items.weight());
        let object = self.object.as_ref().map_or(0, |object| object.weight());
        1_usize.saturating_add(array).saturating_add(object)
    }
}

fn join_parts<T>(left: Option<Box<T>>, right: Option<Box<T>>, join: fn(T, T) -> T) -> Option<Box<T>> {
    match (left, right) {
        (Some(left), Some(right)) => Some(Box::new(join(*left, *right))),
        (left, right) => left.or(right),
    }
}

impl ObjectShape {
    fn join(mut self, other: Self) -> Self {
        for (name, property) in &mut self.properties {
            let twin = other.properties.get(name);
            property.is_required &= twin.is_some_and(|twin| twin.is_required);
            // A kind of which only one side has alike objects says nothing about the other side.
            let always = twin.map_or(Scalars::default(), |twin| twin.always_alike);
            property.always_alike = property
                .always_alike
                .intersection(always)
                .union(property.always_alike.without(other.alike))
                .union(always.without(self.alike));
            property.alike = property.alike.union(twin.map_or(Scalars::default(), |twin| twin.alike));
        }
        for (name, mut property) in other.properties {
            match self.properties.get_mut(&name) {
                Some(known) => known.shape = std::mem::take(&mut known.shape).join(property.shape),
                None => {
                    property.is_required = false;
                    property.always_alike = property.always_alike.without(self.alike);
                    self.properties.insert(name, property);
                }
            }
        }
        self.alike = self.alike.union(other.alike);
        self.add_name_sets(&other.name_sets);
        if let Some(rest) = other.rest {
            self.add_rest(rest);
        }
        let is_map = self.is_map || other.is_map || self.properties.len() > MAX_PROPERTIES;
        if is_map || self.has_names_of_parts() || self.has_names_of_alike() {
            self.forget_names();
        }
        self
    }

    /// Notes that the object is alike, if it is. An object of several answers counts as one.
    pub(super) fn note_alike(&mut self) {
        let Some(kind) = self.only_kind().filter(|_| !self.is_map) else { return };
        self.alike = kind;
        for property in self.properties.values_mut() {
            property.alike = kind;
            property.always_alike = if property.is_required { kind } else { Scalars::default() };
        }
    }

    /// Notes the names of one object.
    pub(super) fn note_names(&mut self) {
        if self.properties.is_empty() || self.is_map {
            return;
        }
        // The same in every process.
        let mut hasher = DefaultHasher::new();
        self.properties.keys().for_each(|name| name.hash(&mut hasher));
        self.name_sets = vec![hasher.finish()];
    }

    fn add_name_sets(&mut self, others: &[u64]) {
        self.name_sets.extend(others);
        self.name_sets.sort_unstable();
        self.name_sets.dedup();
        self.name_sets.truncate(MIN_NAME_SETS);
    }

    /// Returns the kind of all values, beside null.
    fn only_kind(&self) -> Option<Scalars> {
        let mut shapes = self.properties.values().map(|property| &property.shape).chain(&self.rest);
        let kinds =
            shapes.try_fold(Scalars::default(), |kinds, shape| Some(kinds.union(shape.scalars_only()?)))?;
        let kind = if kinds == Scalars::NULL { kinds } else { kinds.without(Scalars::NULL) };
        Scalars::NAMED.into_iter().map(|(one, _)| one).find(|one| *one == kind)
    }

    /// Returns true if alike objects of one kind had many properties, and none of these was in all of them. Joining more never
    /// makes this false, and other objects do not matter: so names do not come back after an answer of another form.
    fn has_names_of_alike(&self) -> bool {
        Scalars::NAMED.into_iter().any(|(kind, _)| {
            let properties = || self.properties.values();
            properties().filter(|property| property.alike.contains(kind)).count() >= MIN_DATA_NAMES
                && !properties().any(|property| property.always_alike.contains(kind))
        })
    }

    fn has_required(&self) -> bool {
        self.properties.values().any(|property| property.is_required)
    }

    /// Returns true if many properties have values with parts, and none is required. Joining more never makes this false,
    /// and the loss of a level, after which nothing is known of a value with parts, does not change it: so joining stays associative.
    fn has_names_of_parts(&self) -> bool {
        let has_parts = |property: &&ObservedProperty| {
            let shape = &property.shape;
            shape.object.is_some() || shape.array.is_some() || shape.is_any
        };
        self.properties.values().filter(has_parts).count() >= MIN_DATA_NAMES && !self.has_required()
    }

    /// Returns true if many properties, and all of them, have values of the same kinds, and none is required.
    fn has_alike_names(&self) -> bool {
        let mut shapes = self.properties.values().map(|property| &property.shape);
        let Some(first) = shapes.next() else { return false };
        self.properties.len() >= MIN_DATA_NAMES
            && !self.has_required()
            && shapes.all(|shape| shape.is_alike(first))
    }

    /// Returns true if objects had several sets of names, with no name in all of them, and all values have no parts. The two kinds
    /// of answers that many tools have, such as a record or an error, keep their names.
    fn has_columns(&self) -> bool {
        let mut shapes = self.properties.values().map(|property| &property.shape).chain(&self.rest);
        self.properties.len() >= MIN_COLUMNS
            && self.name_sets.len() == MIN_NAME_SETS
            && !self.has_required()
            && shapes.all(|shape| shape.scalars_only().is_some())
    }

    /// Adds a property of one object.
    pub(super) fn add_own(&mut self, name: &str, shape: Shape) {
        match self.is_map {
            true => self.add_rest(shape),
            false => match self.properties.get_mut(name) {
                Some(known) => known.shape = std::mem::take(&mut known.shape).join(shape),
                None => drop(self.properties.insert(name.into(), ObservedProperty::new(shape, true))),
            },
        }
        if self.properties.len() > MAX_PROPERTIES {
            self.forget_names();
        }
    }

    /// Adds the shape of a property without its name.
    pub(super) fn add_rest(&mut self, shape: Shape) {
        self.rest = Some(match self.rest.take() {
            Some(rest) => rest.join(shape),
            None => shape,
        });
    }

    /// Makes the object a map.
    pub(super) fn forget_names(&mut self) {
        self.is_map = true;
        self.alike = Scalars::default();
        self.name_sets.clear();
        for property in std::mem::take(&mut self.properties).into_values() {
            self.add_rest(property.shape);
        }
    }

    fn weight(&self) -> usize {
        let rest = self.rest.as_ref().map_or(1, Shape::weight);
        let rest = if self.is_map { rest.saturating_mul(MAP_WEIGHT) } else { rest };
        self.properties.values().fold(rest, |sum, property| sum.saturating_add(property.shape.weight()))
    }
}
