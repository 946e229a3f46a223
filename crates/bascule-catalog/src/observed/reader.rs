//! Reads the shape of one JSON text, without building its values.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::data_names::is_data;
use super::shape::{MAX_DEPTH, ObjectShape, Scalars, Shape};

/// The number of values of one text that are looked at.
const MAX_VALUES: usize = 2_000;
/// The number of items of one array that are looked at.
const MAX_ITEMS: usize = 64;
/// An object of which all values have one shape is a map from this number of properties on.
const MIN_ALIKE_SCALARS: usize = 24;
/// An object of which all values are objects of one shape is a map from this number of properties on.
const MIN_ALIKE_OBJECTS: usize = 8;

/// Returns the shape of a JSON text; `None` if it is none, or nested too deeply for the parser.
pub(super) fn read_shape(json: &str) -> Option<Shape> {
    let values = Cell::new(MAX_VALUES);
    let mut parser = serde_json::Deserializer::from_str(json);
    let shape = ShapeReader { depth: MAX_DEPTH, values: &values }.deserialize(&mut parser).ok()?;
    parser.end().ok().map(|()| shape)
}

#[derive(Clone, Copy)]
struct ShapeReader<'b> {
    /// The levels that are left.
    depth: usize,
    /// The values that are left.
    values: &'b Cell<usize>,
}

impl ShapeReader<'_> {
    /// The reader of the parts of a value; `None` if parts are not looked at.
    fn inner(self) -> Option<Self> {
        let values = self.values.get().checked_sub(1)?;
        self.values.set(values);
        Some(Self { depth: self.depth.checked_sub(1)?, ..self })
    }
}

impl<'de> DeserializeSeed<'de> for ShapeReader<'_> {
    type Value = Shape;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Shape, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ShapeReader<'_> {
    type Value = Shape;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Shape, E> {
        Ok(Shape::scalar(Scalars::NULL))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Shape, E> {
        Ok(Shape::scalar(Scalars::BOOLEAN))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Shape, E> {
        Ok(Shape::scalar(Scalars::NUMBER))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Shape, E> {
        Ok(Shape::scalar(Scalars::NUMBER))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Shape, E> {
        Ok(Shape::scalar(Scalars::NUMBER))
    }

    fn visit_str<E>(self, _: &str) -> Result<Shape, E> {
        Ok(Shape::scalar(Scalars::STRING))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Shape, A::Error> {
        let mut shape = Shape::default();
        let reader = self.inner();
        for _ in 0..MAX_ITEMS {
            let Some(reader) = reader.filter(|reader| reader.values.get() > 0) else { break };
            match items.next_element_seed(reader)? {
                Some(item) => shape = shape.join(item),
                None => return Ok(Shape::array(shape)),
            }
        }
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(if self.depth == 0 { Shape::any() } else { Shape::array(shape) })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Shape, A::Error> {
        let mut object = ObjectShape::default();
        let reader = self.inner();
        while let Some(PropertyName(name)) = entries.next_key()? {
            let shape = match reader {
                Some(reader) if reader.values.get() > 0 => entries.next_value_seed(reader)?,
                // The name counts, so that the property does not seem to be missing.
                _ => entries.next_value::<IgnoredAny>().map(|_| Shape::default())?,
            };
            match is_data(&name) {
                true => object.add_rest(shape),
                false => object.add_own(&name, shape),
            }
        }
        if is_map_of_alike(&object) {
            object.forget_names();
        }
        object.note_alike();
        object.note_names();
        Ok(if self.depth == 0 { Shape::any() } else { Shape::object(object) })
    }
}

/// Returns true if the object has many properties, and all values have one shape: then its names are probably data.
fn is_map_of_alike(object: &ObjectShape) -> bool {
    let mut shapes = object.properties.values().map(|property| &property.shape);
    let Some(first) = shapes.next() else { return false };
    let least = if first.object.is_some() { MIN_ALIKE_OBJECTS } else { MIN_ALIKE_SCALARS };
    object.properties.len() >= least && shapes.all(|shape| shape == first)
}

/// The name of a property, without a copy if it has no escapes.
struct PropertyName<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for PropertyName<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameVisitor;

        impl<'de> Visitor<'de> for NameVisitor {
            type Value = PropertyName<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a property name")
            }

            fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Self::Value, E> {
                Ok(PropertyName(Cow::Borrowed(name)))
            }

            fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
                Ok(PropertyName(Cow::Owned(name.to_owned())))
            }
        }

        deserializer.deserialize_str(NameVisitor)
    }
}
