//! Writes shapes as JSON Schema, and reads them again.

use serde_json::{Map, Value, json};

use super::shape::{MAX_DEPTH, MAX_PROPERTIES, ObjectShape, ObservedProperty, Scalars, Shape};

/// Returns the schema of the values of a shape, without names that are probably data. That of any value is `true`, that of no
/// value so far `{}`.
pub(super) fn to_schema(shape: &Shape) -> Value {
    write(&shape.without_data_names())
}

/// Returns the schema to show: objects may have more names than are known if none of these is in all of them.
pub(super) fn to_open_schema(shape: &Shape) -> Value {
    let mut shape = shape.without_data_names();
    shape.open();
    write(&shape)
}

fn write(shape: &Shape) -> Value {
    if shape.is_any {
        return Value::Bool(true);
    }
    let mut schema = Map::new();
    let mut kinds: Vec<Value> = Vec::new();
    if let Some(object) = &shape.object {
        kinds.push("object".into());
        schema.extend(object_keywords(object));
    }
    if let Some(items) = &shape.array {
        kinds.push("array".into());
        schema.insert("items".into(), write(items));
    }
    let scalars = Scalars::NAMED.into_iter().filter(|(kind, _)| shape.scalars.contains(*kind));
    kinds.extend(scalars.map(|(_, name)| Value::from(name)));
    match kinds.len() {
        0 => {}
        1 => drop(schema.insert("type".into(), kinds.remove(0))),
        _ => drop(schema.insert("type".into(), kinds.into())),
    }
    schema.into()
}

fn object_keywords(object: &ObjectShape) -> Map<String, Value> {
    let mut keywords = Map::new();
    // A map has no `properties`.
    if !object.is_map && (object.rest.is_some() || !object.properties.is_empty()) {
        let required = object.properties.iter().filter(|(_, property)| property.is_required);
        let required: Vec<&str> = required.map(|(name, _)| &**name).collect();
        let properties = object.properties.iter();
        let properties: Map<String, Value> =
            properties.map(|(name, property)| (name.to_string(), write(&property.shape))).collect();
        keywords.insert("properties".into(), properties.into());
        if !required.is_empty() {
            keywords.insert("required".into(), json!(required));
        }
    }
    if object.is_map || object.rest.is_some() {
        let rest = object.rest.as_ref().map_or_else(|| json!({}), write);
        keywords.insert("additionalProperties".into(), rest);
    }
    keywords
}

/// Reads a schema that [`to_schema`] has written. Anything else in it is ignored, so a strange schema has a wide shape.
pub(super) fn from_schema(schema: &Value) -> Shape {
    read(schema, MAX_DEPTH + 1)
}

fn read(schema: &Value, depth: usize) -> Shape {
    let Some(depth) = depth.checked_sub(1) else { return Shape::any() };
    let kinds: Vec<&str> = match &schema["type"] {
        Value::String(kind) => vec![kind],
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        _ if schema.as_object().is_some_and(Map::is_empty) => return Shape::default(),
        _ => return Shape::any(),
    };
    let mut shape = Shape::default();
    for kind in kinds {
        match kind {
            "object" => shape.object = Some(Box::new(read_object(schema, depth))),
            "array" => shape.array = Some(Box::new(read(&schema["items"], depth))),
            _ => {
                let named = Scalars::NAMED.into_iter().find(|(_, name)| *name == kind);
                shape.scalars = shape.scalars.union(named.map_or(Scalars::default(), |(kind, _)| kind));
            }
        }
    }
    shape
}

fn read_object(schema: &Value, depth: usize) -> ObjectShape {
    let is_required = |name: &str| {
        schema["required"].as_array().is_some_and(|names| names.iter().any(|required| required == name))
    };
    let property = |(name, value): (&String, &Value)| {
        (name.as_str().into(), ObservedProperty::new(read(value, depth), is_required(name)))
    };
    let named = schema["properties"].as_object();
    let properties = named.into_iter().flatten().take(MAX_PROPERTIES).map(property).collect();
    let rest = schema.get("additionalProperties").map(|rest| read(rest, depth));
    let is_map = rest.is_some() && named.is_none();
    let mut object = ObjectShape { properties, is_map, rest, ..ObjectShape::default() };
    object.note_alike();
    object
}
