//! Writes types as TypeScript: on one line, or with a line and a comment for each property.

use std::cell::Cell;

use super::names::{comment_text, doc_comment, property_key};
use super::types::{Alternative, Object, Property, Rest, Tuple, Type, TypeDocument};

/// The deepest named definition that is written in the place of its name.
const MAX_INLINE: usize = 8;
/// The number of definitions that are written in the place of their names in one type.
const MAX_INLINED: usize = 100;
/// The longest one-line type. Parts beyond it are left out.
const MAX_COMPACT: usize = 4_000;

pub(super) struct Renderer<'a> {
    document: &'a TypeDocument,
    /// Stands before the names of definitions.
    prefix: &'a str,
    is_compact: bool,
    /// The number of definitions that were written in place.
    inlined: Cell<usize>,
}

impl<'a> Renderer<'a> {
    /// Writes each type on one line, without comments.
    pub(super) fn compact(document: &'a TypeDocument, prefix: &'a str) -> Self {
        Self { document, prefix, is_compact: true, inlined: Cell::new(0) }
    }

    /// Writes each property on a line of its own.
    pub(super) fn full(document: &'a TypeDocument, prefix: &'a str) -> Self {
        Self { document, prefix, is_compact: false, inlined: Cell::new(0) }
    }

    /// The type of the document on one line. Definitions are written in place; recursive ones are `unknown`.
    pub(super) fn root(&self) -> String {
        let text = self.union(&self.document.root, "", 0);
        if text.len() > MAX_COMPACT { "object /* too long: see the declaration */".into() } else { text }
    }

    /// The members of an interface, if the type is one object.
    pub(super) fn interface(&self, value: &Type, indent: &str) -> Option<String> {
        match (value.alternatives.as_slice(), &value.note) {
            ([Alternative::Object(object)], None) => Some(self.object(object, indent, 0)),
            _ => None,
        }
    }

    pub(super) fn union(&self, value: &Type, indent: &str, depth: usize) -> String {
        let parts: Vec<String> = value
            .alternatives
            .iter()
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
            Alternative::Literal(_, text) => text.clone(),
            Alternative::Array(items) => format!("{}[]", self.element(items, indent, depth)),
            Alternative::Tuple(tuple) => self.tuple(tuple, indent, depth),
            Alternative::Object(object) => self.object(object, indent, depth),
            Alternative::Named(index) => self.named(*index, indent, depth),
        }
    }

    /// The type of an array's elements: in parentheses if it is a union or has a comment.
    fn element(&self, items: &Type, indent: &str, depth: usize) -> String {
        let text = self.union(items, indent, depth);
        let is_simple = items.alternatives.len() <= 1 && (items.note.is_none() || self.is_compact);
        let is_expanded_union = self.is_compact && text.contains(" | ") && !text.starts_with(['{', '[']);
        if is_simple && !is_expanded_union { text } else { format!("({text})") }
    }

    fn tuple(&self, tuple: &Tuple, indent: &str, depth: usize) -> String {
        let item = |(index, item): (usize, &Type)| match index < tuple.required {
            true => self.union(item, indent, depth),
            false => format!("{}?", self.element(item, indent, depth)),
        };
        let mut parts: Vec<String> = tuple.items.iter().enumerate().map(item).collect();
        parts.extend(tuple.rest.as_ref().map(|rest| format!("...{}[]", self.element(rest, indent, depth))));
        format!("[{}]", parts.join(", "))
    }

    fn object(&self, object: &Object, indent: &str, depth: usize) -> String {
        let inner = format!("{indent}  ");
        let properties = object.properties.iter().map(|property| self.property(property, &inner, depth));
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
            self.union(&property.value, indent, depth)
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
            Rest::Typed(value) => self.union(value, indent, depth),
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
        if definition.is_recursive || depth >= MAX_INLINE || self.inlined.get() > MAX_INLINED {
            return "unknown".into();
        }
        let text = self.union(&definition.value, indent, depth + 1);
        if definition.value.alternatives.len() > 1 { format!("({text})") } else { text }
    }
}
