//! A JSON value as the validator sees it, which counts every look and ends the work when it gets too much.
//!
//! Schemas come from servers, and the validator has neither a budget nor a bound on its stack: a schema of
//! 600 bytes can keep it busy for years. It does look at the value on every step that could repeat, so the
//! value is where work and stack are measured. The validator cannot be told to stop, only unwound: that is
//! quiet (no panic message) and loses nothing, for a check has no state of its own.

use std::any::Any;
use std::borrow::Cow;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use jsonschema::JsonType;
use jsonschema::json::{Array, Json, Node, NodeIdentity, Object, cmp, unique};
use serde_json::{Map, Number, Value};

use super::screen::Cost;

/// What every check may cost, however short the value; about a hundredth of a second.
const BASE_BUDGET: u64 = 1_000_000;
/// What each byte of the value adds. An ordinary check needs about a tenth of it.
const BUDGET_PER_BYTE: u64 = 32;
/// What no check may cost, however long the value: it runs where other calls wait for their turn.
const LARGEST_BUDGET: u64 = 30_000_000;
/// How much stack a check may take. Threads have 2 MiB or more.
const STACK_BUDGET: usize = 512 * 1024;
/// What each value within a wrong value costs: the errors of alternatives keep a copy of all of it.
const COPY_COST: u64 = 32;

/// Why a check was ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stopped {
    /// It would take too long.
    TooMuchWork,
    /// It would take too much stack.
    TooDeep,
    /// The validator panicked: a bug in it, and no reason to fall with it.
    Panicked,
}

/// Runs `work` on a metered view of `value`, whose text is `length` bytes long.
pub(super) fn metered<T>(
    value: &Value,
    length: usize,
    cost: Cost,
    work: impl FnOnce(View<'_>) -> T,
) -> Result<T, Stopped> {
    let budget = (BASE_BUDGET + BUDGET_PER_BYTE * length as u64).min(LARGEST_BUDGET);
    let meter = Meter::new(budget, cost);
    catch_unwind(AssertUnwindSafe(|| work(View { value, meter: &meter }))).map_err(reason)
}

fn reason(payload: Box<dyn Any + Send>) -> Stopped {
    payload.downcast_ref().copied().unwrap_or(Stopped::Panicked)
}

struct Meter {
    left: Cell<u64>,
    stack_start: usize,
    cost: Cost,
}

impl Meter {
    fn new(budget: u64, cost: Cost) -> Self {
        Self { left: Cell::new(budget), stack_start: stack_address(), cost }
    }

    fn spend(&self, amount: u64) {
        match self.left.get().checked_sub(amount) {
            Some(left) => self.left.set(left),
            None => stop(Stopped::TooMuchWork),
        }
    }

    /// One step into the value, or one more schema applied to it.
    fn step(&self) {
        self.spend(self.cost.per_look);
        if stack_address().abs_diff(self.stack_start) > STACK_BUDGET {
            stop(Stopped::TooDeep);
        }
    }

    fn copy(&self, value: &Value) {
        self.spend(COPY_COST);
        match value {
            Value::String(text) => self.spend(text.len() as u64),
            Value::Array(items) => items.iter().for_each(|item| self.copy(item)),
            Value::Object(members) => members.values().for_each(|member| self.copy(member)),
            _ => {}
        }
    }

    fn read_text(&self, text: &str) {
        self.spend(1 + self.cost.of_text(text.len()));
    }
}

#[cold]
fn stop(why: Stopped) -> ! {
    resume_unwind(Box::new(why))
}

#[inline(always)]
fn stack_address() -> usize {
    let here = 0u8;
    std::ptr::from_ref(&here).addr()
}

/// One place in the value, with the meter of the whole check.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    value: &'a Value,
    meter: &'a Meter,
}

/// The representation: tells the validator to read values through [`View`].
pub(super) struct Metered;

impl Json for Metered {
    type Node<'a> = View<'a>;
    type PreparedKey = String;
    type StringBuffer = NameBuffer;

    // As the validator does for a plain `Value`: its map is a tree, where looking up is not free.
    const KEYS_PER_LOOKUP: usize = 2;

    fn prepare_key(key: &str) -> String {
        key.into()
    }

    fn with_string_node<T>(buffer: &mut NameBuffer, name: &str, work: impl FnOnce(View<'_>) -> T) -> T {
        buffer.name = Value::String(name.into());
        work(View { value: &buffer.name, meter: &buffer.meter })
    }
}

/// A property's name, looked at as a value of its own and on its own budget.
pub(super) struct NameBuffer {
    name: Value,
    meter: Meter,
}

impl Default for NameBuffer {
    fn default() -> Self {
        Self { name: Value::Null, meter: Meter::new(BASE_BUDGET, Cost::CAUTIOUS) }
    }
}

impl<'a> Node<'a, Metered> for View<'a> {
    type Object = Members<'a>;
    type Array = Elements<'a>;
    type Number = &'a Number;

    fn as_object(&self) -> Option<Members<'a>> {
        self.meter.step();
        self.value.as_object().map(|members| Members { members, meter: self.meter })
    }

    fn as_array(&self) -> Option<Elements<'a>> {
        self.meter.step();
        self.value.as_array().map(|elements| Elements { elements, meter: self.meter })
    }

    fn as_string(&self) -> Option<Cow<'a, str>> {
        let text = self.value.as_str()?;
        self.meter.read_text(text);
        Some(Cow::Borrowed(text))
    }

    fn as_number(&self) -> Option<&'a Number> {
        self.meter.spend(1);
        self.value.as_number()
    }

    fn as_boolean(&self) -> Option<bool> {
        self.value.as_bool()
    }

    fn is_null(&self) -> bool {
        self.value.is_null()
    }

    fn json_type(&self) -> JsonType {
        self.meter.spend(1);
        match self.value {
            Value::Null => JsonType::Null,
            Value::Bool(_) => JsonType::Boolean,
            Value::Number(_) => JsonType::Number,
            Value::String(_) => JsonType::String,
            Value::Array(_) => JsonType::Array,
            Value::Object(_) => JsonType::Object,
        }
    }

    fn string_length(&self) -> Option<u64> {
        self.value.as_str().map(|text| text.chars().count() as u64)
    }

    fn equals_value(&self, expected: &Value) -> bool {
        self.meter.spend(1);
        cmp::equal(self.value, expected)
    }

    /// Asked for when an error is made.
    fn to_value(&self) -> Cow<'a, Value> {
        self.meter.copy(self.value);
        Cow::Borrowed(self.value)
    }

    /// Asked for on every round of a reference that leads back to itself.
    fn identity(&self) -> Option<NodeIdentity> {
        self.meter.step();
        Some(NodeIdentity::new(std::ptr::from_ref(self.value).addr()))
    }
}

/// An object's members.
pub(super) struct Members<'a> {
    members: &'a Map<String, Value>,
    meter: &'a Meter,
}

impl<'a> Object<'a, Metered> for Members<'a> {
    type Node = View<'a>;
    type MemberName = &'a str;
    type MembersIter = EachMember<'a>;

    fn len(&self) -> usize {
        self.members.len()
    }

    fn get(&self, key: &String) -> Option<View<'a>> {
        self.meter.spend(self.meter.cost.per_look);
        self.members.get(key).map(|value| View { value, meter: self.meter })
    }

    fn members(&self) -> EachMember<'a> {
        EachMember { members: self.members.iter(), meter: self.meter }
    }
}

/// Goes through an object's members.
pub(super) struct EachMember<'a> {
    members: serde_json::map::Iter<'a>,
    meter: &'a Meter,
}

impl<'a> Iterator for EachMember<'a> {
    type Item = (&'a str, View<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let (name, value) = self.members.next()?;
        self.meter.spend(self.meter.cost.per_look + self.meter.cost.of_text(name.len()));
        Some((name, View { value, meter: self.meter }))
    }
}

/// An array's elements.
pub(super) struct Elements<'a> {
    elements: &'a [Value],
    meter: &'a Meter,
}

impl<'a> Array<'a, Metered> for Elements<'a> {
    type Node = View<'a>;
    type ElementsIter = EachElement<'a>;

    fn len(&self) -> usize {
        self.elements.len()
    }

    fn elements(&self) -> EachElement<'a> {
        EachElement { elements: self.elements.iter(), meter: self.meter }
    }

    /// Compares by hash, but values can be chosen so that all their hashes are the same.
    fn is_unique(&self) -> bool {
        let count = self.elements.len() as u64;
        self.meter.spend(count + count * count / 64);
        unique::is_unique(self.elements)
    }
}

/// Goes through an array's elements.
pub(super) struct EachElement<'a> {
    elements: std::slice::Iter<'a, Value>,
    meter: &'a Meter,
}

impl<'a> Iterator for EachElement<'a> {
    type Item = View<'a>;

    fn next(&mut self) -> Option<View<'a>> {
        let value = self.elements.next()?;
        self.meter.spend(self.meter.cost.per_look);
        Some(View { value, meter: self.meter })
    }
}
