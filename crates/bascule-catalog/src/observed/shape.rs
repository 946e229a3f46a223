//! The shape of values: the kinds and property names of all values that were joined into it, never the values.
//!
//! Joining is commutative, associative and idempotent, so the order of answers does not matter. Three bounds hold: an object
//! with more than [`MAX_PROPERTIES`] names is a map, which keeps no names; a shape that weighs more than [`MAX_WEIGHT`] loses
//! its deepest levels; nothing below [`MAX_DEPTH`] is kept.

use std::collections::BTreeMap;

/// The deepest level that is kept.
pub(super) const MAX_DEPTH: usize = 8;
/// An object with more property names is a map.
pub(super) const MAX_PROPERTIES: usize = 100;
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
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ObservedProperty {
    pub(super) shape: Shape,
    /// Every object had the property.
    pub(super) is_required: bool,
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
            property.is_required &= other.properties.get(name).is_some_and(|other| other.is_required);
        }
        for (name, property) in other.properties {
            let is_required = property.is_required && self.properties.contains_key(&name);
            self.add(name, property.shape, is_required);
        }
        if let Some(rest) = other.rest {
            self.add_rest(rest);
        }
        if self.is_map || other.is_map || self.properties.len() > MAX_PROPERTIES {
            self.forget_names();
        }
        self
    }

    /// Adds a property, or joins its shape with that of the one of the same name.
    fn add(&mut self, name: Box<str>, shape: Shape, is_required: bool) {
        match self.properties.get_mut(&name) {
            Some(known) => known.shape = std::mem::take(&mut known.shape).join(shape),
            None => drop(self.properties.insert(name, ObservedProperty { shape, is_required })),
        }
    }

    /// Adds a property of one object.
    pub(super) fn add_own(&mut self, name: &str, shape: Shape) {
        match self.is_map {
            true => self.add_rest(shape),
            false => self.add(name.into(), shape, true),
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
