//! Runs the validator on a view of the JSON value that counts every access and aborts an expensive check.
//!
//! Schemas come from servers, and the validator limits neither its work nor its stack: a schema of 600 bytes can
//! keep it busy for years. It accesses the value on every step that can repeat, so the view measures work and stack
//! there. The validator has no way to stop it other than unwinding. That prints no panic message and is safe,
//! because a check has no state of its own.

use std::any::Any;
use std::borrow::Cow;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use jsonschema::JsonType;
use jsonschema::json::{Array, Json, Node, NodeIdentity, Object, cmp, unique};
use serde_json::{Map, Number, Value};

use super::complexity::CheckCost;

/// The budget of every check, about a hundredth of a second.
const BASE_BUDGET: u64 = 1_000_000;
/// The additional budget for each byte of the value. An ordinary check needs about a tenth of it.
const BUDGET_PER_BYTE: u64 = 32;
/// The maximum budget, about a third of a second.
const MAX_BUDGET: u64 = 30_000_000;
/// The budget of a quick check, about a millisecond.
const QUICK_BUDGET: u64 = 100_000;
/// The maximum stack of a check in bytes. Threads have 2 MiB or more.
const STACK_BUDGET: usize = 512 * 1024;
/// The cost of each value inside an invalid value: the errors of alternatives copy all of it.
const COPY_COST: u64 = 32;

/// The reason why a check was aborted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CheckAborted {
    TooMuchWork,
    TooDeep,
    /// The validator panicked, which is a bug in it.
    Panicked,
}

/// Runs `check` on a metered view of `value`, whose text is `length` bytes long.
pub(super) fn run_with_budget<T>(
    value: &Value,
    length: usize,
    cost: CheckCost,
    check: impl FnOnce(MeteredNode<'_>) -> T,
) -> Result<T, CheckAborted> {
    run_metered(value, (BASE_BUDGET + BUDGET_PER_BYTE * length as u64).min(MAX_BUDGET), cost, check)
}

/// Runs `check` with the small budget that the thread which serves all other calls can spare.
pub(super) fn run_quickly<T>(
    value: &Value,
    cost: CheckCost,
    check: impl FnOnce(MeteredNode<'_>) -> T,
) -> Result<T, CheckAborted> {
    run_metered(value, QUICK_BUDGET, cost, check)
}

fn run_metered<T>(
    value: &Value,
    budget: u64,
    cost: CheckCost,
    check: impl FnOnce(MeteredNode<'_>) -> T,
) -> Result<T, CheckAborted> {
    let meter = Meter::new(budget, cost);
    catch_unwind(AssertUnwindSafe(|| check(MeteredNode { value, meter: &meter }))).map_err(abort_reason)
}

fn abort_reason(payload: Box<dyn Any + Send>) -> CheckAborted {
    payload.downcast_ref().copied().unwrap_or(CheckAborted::Panicked)
}

struct Meter {
    remaining: Cell<u64>,
    stack_start: usize,
    cost: CheckCost,
}

impl Meter {
    fn new(budget: u64, cost: CheckCost) -> Self {
        Self { remaining: Cell::new(budget), stack_start: stack_address(), cost }
    }

    fn charge(&self, amount: u64) {
        match self.remaining.get().checked_sub(amount) {
            Some(remaining) => self.remaining.set(remaining),
            None => abort(CheckAborted::TooMuchWork),
        }
    }

    /// Charges a step into the value, or one more schema applied to it, and checks the stack.
    fn charge_step(&self) {
        self.charge(self.cost.per_visit);
        if stack_address().abs_diff(self.stack_start) > STACK_BUDGET {
            abort(CheckAborted::TooDeep);
        }
    }

    fn charge_copy(&self, value: &Value) {
        self.charge(COPY_COST);
        match value {
            Value::String(text) => self.charge(text.len() as u64),
            Value::Array(items) => items.iter().for_each(|item| self.charge_copy(item)),
            Value::Object(members) => members.values().for_each(|member| self.charge_copy(member)),
            _ => {}
        }
    }

    fn charge_text(&self, text: &str) {
        self.charge(1 + self.cost.text_cost(text.len()));
    }
}

#[cold]
fn abort(reason: CheckAborted) -> ! {
    resume_unwind(Box::new(reason))
}

#[inline(always)]
fn stack_address() -> usize {
    let local = 0u8;
    std::ptr::from_ref(&local).addr()
}

/// A node of the value, with the meter of the whole check.
#[derive(Clone, Copy)]
pub(super) struct MeteredNode<'a> {
    value: &'a Value,
    meter: &'a Meter,
}

/// The JSON representation that makes the validator read values through [`MeteredNode`].
pub(super) struct MeteredJson;

impl Json for MeteredJson {
    type Node<'a> = MeteredNode<'a>;
    type PreparedKey = String;
    type StringBuffer = NameBuffer;

    // The same as the validator's value for `serde_json::Value`, whose map is a tree.
    const KEYS_PER_LOOKUP: usize = 2;

    fn prepare_key(key: &str) -> String {
        key.into()
    }

    fn with_string_node<T>(
        buffer: &mut NameBuffer,
        name: &str,
        check: impl FnOnce(MeteredNode<'_>) -> T,
    ) -> T {
        buffer.name = Value::String(name.into());
        check(MeteredNode { value: &buffer.name, meter: &buffer.meter })
    }
}

/// A property name that is checked as a value, with its own budget.
pub(super) struct NameBuffer {
    name: Value,
    meter: Meter,
}

impl Default for NameBuffer {
    fn default() -> Self {
        Self { name: Value::Null, meter: Meter::new(BASE_BUDGET, CheckCost::WORST_CASE) }
    }
}

impl<'a> Node<'a, MeteredJson> for MeteredNode<'a> {
    type Object = MeteredObject<'a>;
    type Array = MeteredArray<'a>;
    type Number = &'a Number;

    fn as_object(&self) -> Option<MeteredObject<'a>> {
        self.meter.charge_step();
        self.value.as_object().map(|members| MeteredObject { members, meter: self.meter })
    }

    fn as_array(&self) -> Option<MeteredArray<'a>> {
        self.meter.charge_step();
        self.value.as_array().map(|elements| MeteredArray { elements, meter: self.meter })
    }

    fn as_string(&self) -> Option<Cow<'a, str>> {
        let text = self.value.as_str()?;
        self.meter.charge_text(text);
        Some(Cow::Borrowed(text))
    }

    fn as_number(&self) -> Option<&'a Number> {
        self.meter.charge(1);
        self.value.as_number()
    }

    fn as_boolean(&self) -> Option<bool> {
        self.value.as_bool()
    }

    fn is_null(&self) -> bool {
        self.value.is_null()
    }

    fn json_type(&self) -> JsonType {
        self.meter.charge(1);
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
        self.meter.charge(1);
        cmp::equal(self.value, expected)
    }

    /// Called when an error is created.
    fn to_value(&self) -> Cow<'a, Value> {
        self.meter.charge_copy(self.value);
        Cow::Borrowed(self.value)
    }

    /// Called on every round of a cyclic reference.
    fn identity(&self) -> Option<NodeIdentity> {
        self.meter.charge_step();
        Some(NodeIdentity::new(std::ptr::from_ref(self.value).addr()))
    }
}

pub(super) struct MeteredObject<'a> {
    members: &'a Map<String, Value>,
    meter: &'a Meter,
}

impl<'a> Object<'a, MeteredJson> for MeteredObject<'a> {
    type Node = MeteredNode<'a>;
    type MemberName = &'a str;
    type MembersIter = MemberIter<'a>;

    fn len(&self) -> usize {
        self.members.len()
    }

    fn get(&self, key: &String) -> Option<MeteredNode<'a>> {
        self.meter.charge(self.meter.cost.per_visit);
        self.members.get(key).map(|value| MeteredNode { value, meter: self.meter })
    }

    fn members(&self) -> MemberIter<'a> {
        MemberIter { members: self.members.iter(), meter: self.meter }
    }
}

pub(super) struct MemberIter<'a> {
    members: serde_json::map::Iter<'a>,
    meter: &'a Meter,
}

impl<'a> Iterator for MemberIter<'a> {
    type Item = (&'a str, MeteredNode<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let (name, value) = self.members.next()?;
        self.meter.charge(self.meter.cost.per_visit + self.meter.cost.text_cost(name.len()));
        Some((name, MeteredNode { value, meter: self.meter }))
    }
}

pub(super) struct MeteredArray<'a> {
    elements: &'a [Value],
    meter: &'a Meter,
}

impl<'a> Array<'a, MeteredJson> for MeteredArray<'a> {
    type Node = MeteredNode<'a>;
    type ElementsIter = ElementIter<'a>;

    fn len(&self) -> usize {
        self.elements.len()
    }

    fn elements(&self) -> ElementIter<'a> {
        ElementIter { elements: self.elements.iter(), meter: self.meter }
    }

    /// The comparison uses hashes. An attacker can choose values with equal hashes, so the charge is quadratic.
    fn is_unique(&self) -> bool {
        let count = self.elements.len() as u64;
        self.meter.charge(count + count * count / 64);
        unique::is_unique(self.elements)
    }
}

pub(super) struct ElementIter<'a> {
    elements: std::slice::Iter<'a, Value>,
    meter: &'a Meter,
}

impl<'a> Iterator for ElementIter<'a> {
    type Item = MeteredNode<'a>;

    fn next(&mut self) -> Option<MeteredNode<'a>> {
        let value = self.elements.next()?;
        self.meter.charge(self.meter.cost.per_visit);
        Some(MeteredNode { value, meter: self.meter })
    }
}
