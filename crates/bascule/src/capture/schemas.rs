//! The schemas that apply to a value, and the budget of the search for them.

use std::collections::HashSet;

use serde_json::Value;

/// The values and schemas that are looked at for one text. A server chooses both.
const MAX_STEPS: usize = 500_000;

static NONE: Value = Value::Null;

/// A text needs more steps than the budget has.
#[derive(Debug)]
pub(super) struct TooComplex;

/// The steps that are left for one text.
pub(super) struct Budget(usize);

impl Budget {
    pub(super) fn new() -> Self {
        Self(MAX_STEPS)
    }

    pub(super) fn take(&mut self, steps: usize) -> Result<(), TooComplex> {
        self.0 = self.0.checked_sub(steps).ok_or(TooComplex)?;
        Ok(())
    }
}

/// All schemas that apply to one value.
pub(super) struct SchemaSet<'a> {
    /// References begin here.
    root: &'a Value,
    schemas: Vec<&'a Value>,
    is_secret: bool,
}

impl SchemaSet<'static> {
    /// A value without a schema.
    pub(super) fn none() -> Self {
        Self { root: &NONE, schemas: Vec::new(), is_secret: false }
    }
}

impl<'a> SchemaSet<'a> {
    pub(super) fn of_root(root: &'a Value, budget: &mut Budget) -> Result<Self, TooComplex> {
        Self::expand(vec![root], root, budget)
    }

    /// Returns true if the value is a secret.
    pub(super) fn is_secret(&self) -> bool {
        self.is_secret
    }

    /// Returns the schemas of the items of an array: those of the first items, one set for each, and that of all others.
    pub(super) fn of_items(&self, budget: &mut Budget) -> Result<(Vec<Self>, Self), TooComplex> {
        let prefixes: Vec<&'a [Value]> = self.schemas.iter().map(|schema| prefix_of(schema)).collect();
        let longest = prefixes.iter().map(|prefix| prefix.len()).max().unwrap_or(0);
        let mut of_item = |at: usize| {
            budget.take(self.schemas.len())?;
            let pairs = self.schemas.iter().zip(&prefixes);
            let open = pairs.flat_map(|(schema, prefix)| schemas_of_item(schema, prefix.get(at))).collect();
            Self::expand(open, self.root, budget)
        };
        let first = (0..longest).map(&mut of_item).collect::<Result<_, _>>()?;
        Ok((first, of_item(longest)?))
    }

    /// Returns the schemas of the member of an object. A pattern of names is taken to match every name: a value that is hidden
    /// without need does less harm than one that is shown.
    pub(super) fn of_member(&self, name: &str, budget: &mut Budget) -> Result<Self, TooComplex> {
        budget.take(self.schemas.len())?;
        let mut open = Vec::new();
        for schema in &self.schemas {
            let own = schema.get("properties").and_then(|properties| properties.get(name));
            let others = ["additionalProperties", "unevaluatedProperties"].map(|key| schema.get(key));
            open.extend(own.map_or_else(|| others.into_iter().flatten().collect(), |own| vec![own]));
            let patterns = schema.get("patternProperties").and_then(Value::as_object);
            open.extend(patterns.into_iter().flat_map(|patterns| patterns.values()));
        }
        Self::expand(open, self.root, budget)
    }

    /// Adds the schemas that apply to the same value: alternatives, and those that are referred to.
    fn expand(mut open: Vec<&'a Value>, root: &'a Value, budget: &mut Budget) -> Result<Self, TooComplex> {
        let (mut schemas, mut known) = (Vec::new(), HashSet::new());
        while let Some(schema) = open.pop() {
            budget.take(1)?;
            if !known.insert(std::ptr::from_ref(schema)) {
                continue;
            }
            schemas.push(schema);
            let reference = schema.get("$ref").and_then(Value::as_str);
            let pointer = reference.and_then(|reference| reference.strip_prefix('#'));
            open.extend(pointer.and_then(|pointer| root.pointer(pointer)));
            for key in ["allOf", "anyOf", "oneOf"] {
                open.extend(schema.get(key).and_then(Value::as_array).into_iter().flatten());
            }
            open.extend(["if", "then", "else"].iter().filter_map(|key| schema.get(key)));
        }
        let is_secret = schemas.iter().any(|schema| is_secret_schema(schema));
        Ok(Self { root, schemas, is_secret })
    }
}

/// Returns the schemas of the first items. Draft 7 has them in `items`.
fn prefix_of(schema: &Value) -> &[Value] {
    let prefix = ["prefixItems", "items"].iter().find_map(|key| schema.get(key)?.as_array());
    prefix.map_or(&[], Vec::as_slice)
}

/// Returns the schemas of one item. `own` is the one for its position.
fn schemas_of_item<'a>(schema: &'a Value, own: Option<&'a Value>) -> impl Iterator<Item = &'a Value> {
    let others = ["items", "additionalItems", "unevaluatedItems"].map(|key| schema.get(key));
    let others = others.into_iter().flatten().filter(move |_| own.is_none());
    own.into_iter().chain(others).chain(schema.get("contains"))
}

fn is_secret_schema(schema: &Value) -> bool {
    schema.get("format").is_some_and(|format| format == "password")
        || schema.get("writeOnly").is_some_and(|flag| flag == true)
}
