//! A TypeScript type, between JSON Schema and text: a union of alternatives. [`combine`](super::combine) has the intersection of two types.

use super::work::Work;

/// The longest note of a type, in bytes. Further reasons are left out.
const MAX_NOTE: usize = 500;

#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Type {
    pub(super) alternatives: Vec<Alternative>,
    /// The part of the schema that the type does not express.
    pub(super) note: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Alternative {
    Unknown,
    Null,
    Boolean,
    Number,
    String,
    /// `true`, a number or a string, as TypeScript spells it.
    Literal(LiteralKind, String),
    Array(Box<Type>),
    Tuple(Tuple),
    Object(Object),
    /// The index of a definition.
    Named(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LiteralKind {
    Boolean,
    Number,
    String,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tuple {
    pub(super) items: Vec<Type>,
    /// The number of items that must be there.
    pub(super) required: usize,
    pub(super) rest: Option<Box<Type>>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Object {
    pub(super) properties: Vec<Property>,
    pub(super) rest: Rest,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Property {
    pub(super) name: String,
    pub(super) value: Type,
    pub(super) is_required: bool,
    pub(super) doc: Option<String>,
}

/// The type of further properties.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) enum Rest {
    /// The schema does not mention them.
    #[default]
    Unstated,
    Closed,
    Typed(Box<Type>),
}

/// A type and the definitions that it names.
#[derive(Debug)]
pub(super) struct TypeDocument {
    pub(super) root: Type,
    pub(super) definitions: Vec<Definition>,
}

#[derive(Debug)]
pub(super) struct Definition {
    pub(super) name: String,
    pub(super) value: Type,
    pub(super) is_recursive: bool,
    /// The value is translated.
    pub(super) is_complete: bool,
}

impl Type {
    pub(super) fn unknown() -> Self {
        Alternative::Unknown.into()
    }

    /// The type of any value, because of the reason.
    pub(super) fn unknown_because(reason: impl Into<String>) -> Self {
        let mut unknown = Self::unknown();
        unknown.add_note(Some(reason.into()));
        unknown
    }

    pub(super) fn is_unknown(&self) -> bool {
        self.alternatives.contains(&Alternative::Unknown)
    }

    pub(super) fn is_never(&self) -> bool {
        self.alternatives.is_empty()
    }

    pub(super) fn union(types: impl IntoIterator<Item = Self>, work: &Work) -> Self {
        let mut union = Self::default();
        for member in types {
            union.add_note(member.note);
            for alternative in member.alternatives {
                union.add(alternative, work);
            }
        }
        union
    }

    /// Adds an alternative unless another one covers it.
    pub(super) fn add(&mut self, new: Alternative, work: &Work) {
        let alike = self.alternatives.iter().filter(|old| old.has_parts_like(&new)).count();
        let compared = if alike == 0 { 0 } else { alike.saturating_mul(new.weight()) };
        if !self.is_never() && !work.spend(1 + self.alternatives.len() / 8 + compared) {
            *self = Work::exceeded_type();
            return;
        }
        if self.alternatives.iter().any(|old| old.covers(&new)) {
            return;
        }
        self.alternatives.retain(|old| !new.covers(old));
        let both = |value: &str| {
            let literal = Alternative::Literal(LiteralKind::Boolean, value.into());
            new == literal || self.alternatives.contains(&literal)
        };
        if both("true") && both("false") {
            self.alternatives.retain(|old| !Alternative::Boolean.covers(old));
            return self.alternatives.push(Alternative::Boolean);
        }
        self.alternatives.push(new);
    }

    pub(super) fn add_note(&mut self, note: Option<String>) {
        let Some(mut note) = note else { return };
        if note.len() > MAX_NOTE {
            note.truncate(note.floor_char_boundary(MAX_NOTE));
            note.push('…');
        }
        match &mut self.note {
            None => self.note = Some(note),
            Some(old) if old.contains(&note) || old.len() > MAX_NOTE => {}
            Some(old) => {
                old.push_str("; ");
                old.push_str(&note);
            }
        }
    }

    /// The work of copying the type.
    pub(super) fn weight(&self) -> usize {
        let note = self.note.as_ref().map_or(0, |note| text_weight(note));
        1 + note + self.alternatives.iter().map(Alternative::weight).sum::<usize>()
    }

    /// The number of objects, arrays and tuples inside each other.
    pub(super) fn depth(&self) -> usize {
        self.alternatives.iter().map(Alternative::depth).max().unwrap_or(0)
    }
}

impl From<Alternative> for Type {
    fn from(alternative: Alternative) -> Self {
        Self { alternatives: vec![alternative], note: None }
    }
}

impl Alternative {
    /// Returns true if every value of the other alternative is one of this.
    pub(super) fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Unknown, _) => true,
            (Self::Boolean, Self::Literal(LiteralKind::Boolean, _))
            | (Self::Number, Self::Literal(LiteralKind::Number, _))
            | (Self::String, Self::Literal(LiteralKind::String, _)) => true,
            _ => self == other,
        }
    }

    /// Returns true if the parts of both must be compared to see if they are equal.
    fn has_parts_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Object(left), Self::Object(right)) => left.properties.len() == right.properties.len(),
            (Self::Tuple(left), Self::Tuple(right)) => left.items.len() == right.items.len(),
            (Self::Array(_), Self::Array(_)) => true,
            _ => false,
        }
    }

    pub(super) fn weight(&self) -> usize {
        match self {
            Self::Literal(_, text) => 1 + text_weight(text),
            Self::Array(items) => 1 + items.weight(),
            Self::Tuple(tuple) => {
                let rest = tuple.rest.as_ref().map_or(0, |rest| rest.weight());
                1 + rest + tuple.items.iter().map(Type::weight).sum::<usize>()
            }
            Self::Object(object) => object.weight(),
            _ => 1,
        }
    }

    fn depth(&self) -> usize {
        let inner = match self {
            Self::Array(items) => items.depth(),
            Self::Tuple(tuple) => {
                tuple.items.iter().chain(tuple.rest.as_deref()).map(Type::depth).max().unwrap_or(0)
            }
            Self::Object(object) => object.depth(),
            _ => return 0,
        };
        1 + inner
    }
}

impl Object {
    fn weight(&self) -> usize {
        let rest = if let Rest::Typed(value) = &self.rest { value.weight() } else { 0 };
        self.properties.iter().fold(1 + rest, |sum, property| {
            let doc = property.doc.as_ref().map_or(0, |doc| text_weight(doc));
            sum + 1 + text_weight(&property.name) + doc + property.value.weight()
        })
    }

    fn depth(&self) -> usize {
        let rest = if let Rest::Typed(value) = &self.rest { value.depth() } else { 0 };
        self.properties.iter().map(|property| property.value.depth()).fold(rest, usize::max)
    }
}

/// The work of copying a text, in that of copying a small part of a type.
fn text_weight(text: &str) -> usize {
    text.len() / 64
}

impl TypeDocument {
    /// The type as that of a tool's arguments, which are always an object.
    pub(super) fn into_arguments(mut self) -> Self {
        if self.root.is_unknown() {
            let rest = Rest::Typed(Box::new(Type::unknown()));
            self.root.alternatives = vec![Alternative::Object(Object { properties: Vec::new(), rest })];
        }
        self
    }

    /// Names the properties of an object without their types, up to a length. Required ones come first.
    pub(super) fn property_list(&self, max_length: usize) -> String {
        let [Alternative::Object(object)] = self.root.alternatives.as_slice() else { return "object".into() };
        let mut properties: Vec<&Property> = object.properties.iter().collect();
        properties.sort_by_key(|property| !property.is_required);
        let mut text = String::from("{ ");
        for property in properties {
            let optional = if property.is_required { "" } else { "?" };
            let member = format!("{}{optional}: …; ", super::names::property_key(&property.name));
            if text.len() + member.len() > max_length {
                text.push_str("… ");
                break;
            }
            text.push_str(&member);
        }
        text + "}"
    }

    /// Returns true if `{}` is valid.
    pub(super) fn accepts_empty_object(&self) -> bool {
        let mut seen = vec![false; self.definitions.len()];
        let mut pending: Vec<&Alternative> = self.root.alternatives.iter().collect();
        while let Some(alternative) = pending.pop() {
            match alternative {
                Alternative::Unknown => return true,
                Alternative::Object(object) if object.properties.iter().all(|one| !one.is_required) => {
                    return true;
                }
                // Each definition once: they may refer to each other.
                Alternative::Named(index) if !std::mem::replace(&mut seen[*index], true) => {
                    pending.extend(&self.definitions[*index].value.alternatives);
                }
                _ => {}
            }
        }
        false
    }
}
