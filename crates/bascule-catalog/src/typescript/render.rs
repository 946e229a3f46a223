//! Writes types as TypeScript: on one line, or with a line and a comment for each property.

use std::cell::Cell;

use super::names::{comment_text, doc_comment, property_key};
use super::types::{Alternative, Object, Property, Rest, Tuple, Type, TypeDocument};

/// The deepest named definition that is written in the place of its name.
const MAX_INLINE_DEPTH: usize = 8;
/// The number of definitions that are written in the place of their names in one type.
const MAX_INLINED_DEFINITIONS: usize = 100;
/// The longest one-line type.
const MAX_ONE_LINE_BYTES: usize = 4_000;
/// The longest declaration of a type and its definitions. Types beyond it are `unknown`.
const MAX_DECLARATION: usize = 1 << 20;

/// Writes the types of one document, up to a number of bytes.
pub(super) struct Renderer<'a> {
    document: &'a TypeDocument,
    /// Stands before the names of definitions, so that those of several tools differ.
    prefix: &'a str,
    is_compact: bool,
    /// The number of definitions that were written in place.
    inlined: Cell<usize>,
    /// The bytes that may still be written, about. Without any, types have no parts.
    remaining_bytes: Cell<usize>,
}

impl<'a> Renderer<'a> {
    /// Writes each type on one line, without comments.
    pub(super) fn compact(document: &'a TypeDocument, prefix: &'a str) -> Self {
        let (inlined, remaining_bytes) = (Cell::new(0), Cell::new(MAX_ONE_LINE_BYTES));
        Self { document, prefix, is_compact: true, inlined, remaining_bytes }
    }

    /// Writes each property on a line of its own.
    pub(super) fn full(document: &'a TypeDocument, prefix: &'a str) -> Self {
        let (inlined, remaining_bytes) = (Cell::new(0), Cell::new(MAX_DECLARATION));
        Self { document, prefix, is_compact: false, inlined, remaining_bytes }
    }

    /// Returns the type of the document on one line; `None` if it is too long. Definitions are written in place; recursive ones are
    /// `unknown`.
    pub(super) fn one_line(&self) -> Option<String> {
        let text = self.write_type(&self.document.root, "", 0);
        (!self.is_truncated() && text.len() <= MAX_ONE_LINE_BYTES).then_some(text)
    }

    /// Returns true if the written text is not whole, because it would be too long.
    pub(super) fn is_truncated(&self) -> bool {
        self.remaining_bytes.get() == 0
    }

    /// Counts some bytes as written. Returns false if no further ones may be written.
    fn spend_bytes(&self, bytes: usize) -> bool {
        self.remaining_bytes.set(self.remaining_bytes.get().saturating_sub(bytes));
        !self.is_truncated()
    }

    /// Returns the members of an interface, if the type is one object.
    pub(super) fn interface_body(&self, value: &Type, indent: &str) -> Option<String> {
        match (value.alternatives.as_slice(), &value.note) {
            ([Alternative::Object(object)], None) => Some(self.write_object(object, indent, 0)),
            _ => None,
        }
    }

    /// Writes a type as the union of its alternatives. `indent` stands before each line after the first; `depth` is the number of
    /// definitions that the type is written inside.
    pub(super) fn write_type(&self, value: &Type, indent: &str, depth: usize) -> String {
        let parts: Vec<String> = value
            .alternatives
            .iter()
            .take_while(|_| self.spend_bytes(1))
            .map(|alternative| self.write_alternative(alternative, indent, depth))
            .collect();
        let text = if parts.is_empty() { "never".to_owned() } else { parts.join(" | ") };
        match &value.note {
            Some(note) if !self.is_compact => format!("{text} /* {} */", comment_text(note)),
            _ => text,
        }
    }

    fn write_alternative(&self, alternative: &Alternative, indent: &str, depth: usize) -> String {
        match alternative {
            Alternative::Unknown => "unknown".into(),
            Alternative::Null => "null".into(),
            Alternative::Boolean => "boolean".into(),
            Alternative::Number => "number".into(),
            Alternative::String => "string".into(),
            Alternative::Literal(_, text) if self.spend_bytes(text.len()) => text.clone(),
            Alternative::Literal(..) => String::new(),
            Alternative::Array(items) => format!("{}[]", self.write_element(items, indent, depth)),
            Alternative::Tuple(tuple) => self.write_tuple(tuple, indent, depth),
            Alternative::Object(object) => self.write_object(object, indent, depth),
            Alternative::Named(index) => self.write_name(*index, indent, depth),
        }
    }

    /// Writes the type of an array's elements: in parentheses if it is a union or has a comment.
    fn write_element(&self, items: &Type, indent: &str, depth: usize) -> String {
        let text = self.write_type(items, indent, depth);
        let is_simple = items.alternatives.len() <= 1 && (items.note.is_none() || self.is_compact);
        let is_expanded_union = self.is_compact && text.contains(" | ") && !text.starts_with(['{', '[']);
        if is_simple && !is_expanded_union { text } else { format!("({text})") }
    }

    fn write_tuple(&self, tuple: &Tuple, indent: &str, depth: usize) -> String {
        let item = |(index, item): (usize, &Type)| match index < tuple.required {
            true => self.write_type(item, indent, depth),
            false => format!("{}?", self.write_element(item, indent, depth)),
        };
        let items = tuple.items.iter().enumerate().take_while(|_| self.spend_bytes(1));
        let mut parts: Vec<String> = items.map(item).collect();
        parts.extend(
            tuple.rest.as_ref().map(|rest| format!("...{}[]", self.write_element(rest, indent, depth))),
        );
        format!("[{}]", parts.join(", "))
    }

    fn write_object(&self, object: &Object, indent: &str, depth: usize) -> String {
        let inner = format!("{indent}  ");
        let written = |property: &&Property| {
            let indented = |lines: usize| if self.is_compact { 0 } else { lines * inner.len() };
            let doc = property.doc.as_deref().filter(|_| !self.is_compact).unwrap_or_default();
            self.spend_bytes(property.name.len() + doc.len() + indented(1 + doc.lines().count()))
        };
        let properties = object.properties.iter().take_while(written);
        let properties = properties.map(|property| self.write_property(property, &inner, depth));
        let members: Vec<String> =
            properties.chain(self.write_index_signature(object, &inner, depth)).collect();
        match self.is_compact {
            true => format!("{{ {} }}", members.join("; ")),
            false => format!("{{\n{}\n{indent}}}", members.join("\n")),
        }
    }

    fn write_property(&self, property: &Property, indent: &str, depth: usize) -> String {
        let optional = if property.is_required { "" } else { "?" };
        let member = format!(
            "{}{optional}: {}",
            property_key(&property.name),
            self.write_type(&property.value, indent, depth)
        );
        match self.is_compact {
            true => member,
            false => {
                let doc = property.doc.as_deref().map_or_else(String::new, |doc| doc_comment(doc, indent));
                format!("{doc}{indent}{member};")
            }
        }
    }

    /// Writes the index signature. Beside properties of other types it must be wider than the schema.
    fn write_index_signature(&self, object: &Object, indent: &str, depth: usize) -> Option<String> {
        let has_properties = !object.properties.is_empty();
        let value = match &object.rest {
            Rest::Unstated | Rest::Closed if has_properties => return None,
            Rest::Unstated => "unknown".to_owned(),
            Rest::Closed => "never".to_owned(),
            Rest::Typed(_) if has_properties => "unknown".to_owned(),
            Rest::Typed(value) => self.write_type(value, indent, depth),
        };
        Some(match self.is_compact {
            true => format!("[key: string]: {value}"),
            false => format!("{indent}[key: string]: {value};"),
        })
    }

    /// Writes the name of a definition. A one-line type has no place for definitions, so they are written out.
    fn write_name(&self, index: usize, indent: &str, depth: usize) -> String {
        let definition = &self.document.definitions[index];
        if !self.is_compact {
            return format!("{}{}", self.prefix, definition.name);
        }
        self.inlined.set(self.inlined.get() + 1);
        if definition.is_recursive
            || depth >= MAX_INLINE_DEPTH
            || self.inlined.get() > MAX_INLINED_DEFINITIONS
        {
            return "unknown".into();
        }
        let text = self.write_type(&definition.value, indent, depth + 1);
        if definition.value.alternatives.len() > 1 { format!("({text})") } else { text }
    }
}
