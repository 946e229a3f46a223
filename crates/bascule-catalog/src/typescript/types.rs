//! A type as a union of alternatives, and the intersection of two types.

/// The largest number of alternatives in a union. Beyond it an intersection becomes a wider type.
const MAX_ALTERNATIVES: usize = 256;

/// A union. Without alternatives no value is valid.
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
}

impl Type {
    pub(super) fn unknown() -> Self {
        Alternative::Unknown.into()
    }

    /// The type of any value, because of the reason.
    pub(super) fn unknown_because(reason: impl Into<String>) -> Self {
        Self { alternatives: vec![Alternative::Unknown], note: Some(reason.into()) }
    }

    pub(super) fn is_unknown(&self) -> bool {
        self.alternatives.contains(&Alternative::Unknown)
    }

    pub(super) fn is_never(&self) -> bool {
        self.alternatives.is_empty()
    }

    pub(super) fn union(types: impl IntoIterator<Item = Self>) -> Self {
        let mut union = Self::default();
        for member in types {
            union.add_note(member.note);
            for alternative in member.alternatives {
                union.add(alternative);
            }
        }
        union
    }

    /// Adds an alternative unless another one covers it.
    pub(super) fn add(&mut self, new: Alternative) {
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
        let Some(note) = note else { return };
        match &mut self.note {
            None => self.note = Some(note),
            Some(old) if old.contains(&note) => {}
            Some(old) => {
                old.push_str("; ");
                old.push_str(&note);
            }
        }
    }

    /// The values that are valid for both types.
    pub(super) fn intersect(mut self, other: Self) -> Self {
        if self.alternatives.len().saturating_mul(other.alternatives.len()) > MAX_ALTERNATIVES {
            self.add_note(Some("too many combinations".into()));
            return self;
        }
        let mut both = Self { alternatives: Vec::new(), note: self.note.take() };
        both.add_note(other.note);
        for left in &self.alternatives {
            for right in &other.alternatives {
                if let Some(alternative) = left.intersect(right) {
                    both.add(alternative);
                }
            }
        }
        both
    }
}

impl From<Alternative> for Type {
    fn from(alternative: Alternative) -> Self {
        Self { alternatives: vec![alternative], note: None }
    }
}

impl Alternative {
    /// Returns true if every value of the other alternative is one of this.
    fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Unknown, _) => true,
            (Self::Boolean, Self::Literal(LiteralKind::Boolean, _))
            | (Self::Number, Self::Literal(LiteralKind::Number, _))
            | (Self::String, Self::Literal(LiteralKind::String, _)) => true,
            _ => self == other,
        }
    }

    fn intersect(&self, other: &Self) -> Option<Self> {
        if self.covers(other) {
            return Some(other.clone());
        }
        if other.covers(self) {
            return Some(self.clone());
        }
        match (self, other) {
            (Self::Array(left), Self::Array(right)) => {
                Some(Self::Array(Box::new((**left).clone().intersect((**right).clone()))))
            }
            (Self::Tuple(tuple), Self::Array(items)) | (Self::Array(items), Self::Tuple(tuple)) => {
                Some(Self::Tuple(tuple.with_items(items)))
            }
            (Self::Object(left), Self::Object(right)) => left.intersect(right).map(Self::Object),
            // A definition may be recursive, so it is not opened: the type of the definition is kept.
            (Self::Named(_), Self::Object(_) | Self::Named(_)) => Some(self.clone()),
            (Self::Object(_), Self::Named(_)) => Some(other.clone()),
            _ => None,
        }
    }
}

impl Tuple {
    fn with_items(&self, items: &Type) -> Self {
        let narrow = |item: &Type| item.clone().intersect(items.clone());
        Self {
            items: self.items.iter().map(narrow).collect(),
            required: self.required,
            rest: self.rest.as_ref().map(|rest| Box::new(narrow(rest))),
        }
    }
}

impl Object {
    fn property(&self, name: &str) -> Option<&Property> {
        self.properties.iter().find(|property| property.name == name)
    }

    /// The type that this object gives to a property which it does not list.
    fn rest_type(&self) -> Type {
        match &self.rest {
            Rest::Unstated => Type::unknown(),
            Rest::Closed => Type::default(),
            Rest::Typed(value) => (**value).clone(),
        }
    }

    /// Returns `None` if a required property has no valid value.
    fn intersect(&self, other: &Self) -> Option<Self> {
        let mut both = Self { properties: Vec::new(), rest: self.rest.intersect(&other.rest) };
        for property in &self.properties {
            both.add(property, other.property(&property.name), other)?;
        }
        for property in other.properties.iter().filter(|property| self.property(&property.name).is_none()) {
            both.add(property, None, self)?;
        }
        Some(both)
    }

    fn add(&mut self, property: &Property, twin: Option<&Property>, other: &Self) -> Option<()> {
        let constraint = twin.map_or_else(|| other.rest_type(), |twin| twin.value.clone());
        let value = property.value.clone().intersect(constraint);
        let is_required = property.is_required || twin.is_some_and(|twin| twin.is_required);
        if value.is_never() && is_required {
            return None;
        }
        if !value.is_never() || twin.is_some() {
            let doc = property.doc.clone().or_else(|| twin.and_then(|twin| twin.doc.clone()));
            self.properties.push(Property { name: property.name.clone(), value, is_required, doc });
        }
        Some(())
    }
}

impl Rest {
    fn intersect(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Closed, _) | (_, Self::Closed) => Self::Closed,
            (Self::Unstated, rest) | (rest, Self::Unstated) => rest.clone(),
            (Self::Typed(left), Self::Typed(right)) => {
                Self::Typed(Box::new((**left).clone().intersect((**right).clone())))
            }
        }
    }
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
    pub(super) fn named_properties(&self, max_length: usize) -> String {
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
    pub(super) fn is_optional_argument(&self) -> bool {
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
