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

pub(super) struct Renderer<'a> {
    document: &'a TypeDocument,
    /// Stands before the names of definitions.
    prefix: &'a str,
    is_compact: bool,
    /// The number of definitions that were written in place.
    inlined: Cell<usize>,
    /// The bytes that may still be written, about. Without any, types have no parts.
    room: Cell<usize>,
}

impl<'a> Renderer<'a> {
    /// Writes each type on one line, without comments.
    pub(super) fn compact(document: &'a TypeDocument, prefix: &'a str) -> Self {
        let (inlined, room) = (Cell::new(0), Cell::new(MAX_ONE_LINE_BYTES));
        Self { document, prefix, is_compact: true, inlined, room }
    }

    /// Writes each property on a line of its own.
    pub(super) fn full(document: &'a TypeDocument, prefix: &'a str) -> Self {
        let (inlined, room) = (Cell::new(0), Cell::new(MAX_DECLARATION));
        Self { document, prefix, is_compact: false, inlined, room }
    }

    /// The type of the document on one line; `None` if it is too long. Definitions are written in place; recursive ones are
    /// `unknown`.
    pub(super) fn one_line(&self) -> Option<String> {
        let text = self.write_type(&self.document.root, "", 0);
        (!self.is_full() && text.len() <= MAX_ONE_LINE_BYTES).then_some(text)
    }

    /// Returns true if what was written is not whole, because there is no room for all of it.
    pub(super) fn is_full(&self) -> bool {
        self.room.get() == 0
    }

    /// Takes room for some bytes. Returns false if there is none left.
    fn take_room(&self, bytes: usize) -> bool {
        self.room.set(self.room.get().saturating_sub(bytes));
        !self.is_full()
    }

    /// The members of an interface, if the type is one object.
    pub(super) fn interface_body(&self, value: &Type, indent: &str) -> Option<String> {
        match (value.alternatives.as_slice(), &value.note) {
            ([Alternative::Object(object)], None) => Some(self.object(object, indent, 0)),
            _ => None,
        }
    }

    pub(super) fn write_type(&self, value: &Type, indent: &str, depth: usize) -> String {
        let parts: Vec<String> = value
            .alternatives
            .iter()
            .take_while(|_| self.take_room(1))
            .map(|alternative| self.alternative(alternative, indent, depth))
            .collect();
        let text = if parts.is_empty() { "never".to_owned() } else { parts.join(" | ") };
        match &value.note {
            Some(note) if !self.is_compact => format!("{text} /* {} */", comment_text(note)),
            _ => text,
        }
    }

    fn alternative(&self, alternative: &Alternative, indent: &str, depth: usize) -> String {
        match alternative {
            Alternative::Unknown => "unknown".into(),
            Alternative::Null => "null".into(),
            Alternative::Boolean => "boolean".into(),
            Alternative::Number => "number".into(),
            Alternative::String => "string".into(),
            Alternative::Literal(_, text) if self.take_room(text.len()) => text.clone(),
            Alternative::Literal(..) => String::new(),
            Alternative::Array(items) => format!("{}[]", self.element(items, indent, depth)),
            Alternative::Tuple(tuple) => self.tuple(tuple, indent, depth),
            Alternative::Object(object) => self.object(object, indent, depth),
            Alternative::Named(index) => self.named(*index, indent, depth),
        }
    }

    /// The type of an array's elements: in parentheses if it is a union or has a comment.
    fn element(&self, items: &Type, indent: &str, depth: usize) -> String {
        let text = self.write_type(items, indent, depth);
        let is_simple = items.alternatives.len() <= 1 && (items.note.is_none() || self.is_compact);
        let is_expanded_union = self.is_compact && text.contains(" | ") && !text.starts_with(['{', '[']);
        if is_simple && !is_expanded_union { text } else { format!("({text})") }
    }

    fn tuple(&self, tuple: &Tuple, indent: &str, depth: usize) -> String {
        let item = |(index, item): (usize, &Type)| match index < tuple.required {
            true => self.write_type(item, indent, depth),
            false => format!("{}?", self.element(item, indent, depth)),
        };
        let items = tuple.items.iter().enumerate().take_while(|_| self.take_room(1));
        let mut parts: Vec<String> = items.map(item).collect();
        parts.extend(tuple.rest.as_ref().map(|rest| format!("...{}[]", self.element(rest, indent, depth))));
        format!("[{}]", parts.join(", "))
    }

    fn object(&self, object: &Object, indent: &str, depth: usize) -> String {
        let inner = format!("{indent}  ");
        let written = |property: &&Property| {
            let indented = |lines: usize| if self.is_compact { 0 } else { lines * inner.len() };
            let doc = property.doc.as_deref().filter(|_| !self.is_compact).unwrap_or_default();
            self.take_room(property.name.len() + doc.len() + indented(1 + doc.lines().count()))
        };
        let properties = object.properties.iter().take_while(written);
        let properties = properties.map(|property| self.property(property, &inner, depth));
        let members: Vec<String> = properties.chain(self.index(object, &inner, depth)).collect();
        match self.is_compact {
            true => format!("{{ {} }}", members.join("; ")),
            false => format!("{{\n{}\n{indent}}}", members.join("\n")),
        }
    }

    fn property(&self, property: &Property, indent: &str, depth: usize) -> String {
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

    /// The index signature. Beside properties of other types it must be wider than the schema.
    fn index(&self, object: &Object, indent: &str, depth: usize) -> Option<String> {
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

    /// The name of a definition. A one-line type has no place for definitions, so they are written out.
    fn named(&self, index: usize, indent: &str, depth: usize) -> String {
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
