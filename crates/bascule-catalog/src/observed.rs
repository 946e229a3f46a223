//! Learns what a tool returns where its server does not declare it, from the answers to calls.
//!
//! Kept are kinds of values and property names, in bounds; values are never kept. A tool whose answers stay the same is
//! looked at more and more rarely.

mod data_names;
mod difference;
mod json_schema;
mod reader;
mod shape;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bascule_model::Violation;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::typescript::ResultTypes;
use difference::{MAX_POINTERS, differences, general_pointer};
use json_schema::{from_schema, to_open_schema, to_schema};
use reader::read_shape;
use shape::{BoundedShape, MAX_DEPTH, Scalars, Shape};

/// A type that this many answers in a row have not changed is stable: another answer drifts from it.
const STABLE: u32 = 16;
/// The number of calls for each answer that is looked at, once the type is stable.
const RARE: u32 = 16;
/// The number of calls for each answer that is looked at, once the type has been stable for long.
const RAREST: u32 = 64;
/// The number of unchanged looks after which the type has been stable for long.
const LONG_STABLE: u32 = 64;

/// The longest type of a result on one line that is kept whole.
const MAX_KEPT_BYTES: usize = 1_500;

/// The answers of one tool, as far as they are known.
#[derive(Debug)]
pub struct ObservedResult {
    calls: AtomicU32,
    /// One of this many calls is looked at.
    interval: AtomicU32,
    state: Mutex<ObservedState>,
}

#[derive(Debug, Default)]
struct ObservedState {
    shape: BoundedShape,
    /// The number of looks that have not changed the shape.
    unchanged: u32,
    /// Made on first use.
    types: Option<Arc<ResultTypes>>,
    /// The last drift from the declared schema that was reported.
    declared_drift: Vec<String>,
}

/// The data of a result, as a script receives it.
#[derive(Debug, Clone, Copy)]
pub enum ResultData<'a> {
    Json(&'a str),
    Text,
}

/// The consequences of one look.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// The type must be stored.
    pub has_news: bool,
    /// The places at which the answer differs from a stable type.
    pub drift: Vec<String>,
}

/// The stored form of an observed type.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredObservation {
    /// The deepest level that is kept.
    depth: usize,
    is_stable: bool,
    /// A JSON Schema.
    schema: Value,
}

impl Default for ObservedResult {
    fn default() -> Self {
        Self { calls: AtomicU32::new(0), interval: AtomicU32::new(1), state: Mutex::default() }
    }
}

impl ObservedResult {
    /// Counts a call. Returns true if its answer is to be looked at.
    pub fn is_look_due(&self) -> bool {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        call.is_multiple_of(self.interval.load(Ordering::Relaxed))
    }

    /// Learns from an answer.
    pub fn look(&self, data: ResultData<'_>) -> Look {
        let shape = match data {
            ResultData::Text => Some(Shape::scalar(Scalars::STRING)),
            ResultData::Json(json) => read_shape(json),
        };
        shape.map_or_else(Look::default, |shape| self.learn(BoundedShape::new(shape, usize::MAX)))
    }

    fn learn(&self, answer: BoundedShape) -> Look {
        let mut state = self.state();
        let joined = state.shape.clone().join(answer);
        let has_changed = !joined.is_shown_like(&state.shape);
        let was_stable = state.unchanged >= STABLE;
        state.unchanged = if has_changed { 0 } else { state.unchanged.saturating_add(1) };
        let has_become_stable = state.unchanged == STABLE;
        self.interval.store(interval(state.unchanged), Ordering::Relaxed);
        let mut drift = Vec::new();
        if has_changed {
            if was_stable {
                let (old, new) = (&state.shape.shape, &joined.shape);
                drift = differences(&old.without_data_names(), &new.without_data_names());
            }
            state.types = None;
        }
        state.shape = joined;
        Look { has_news: has_changed || has_become_stable, drift }
    }

    /// Returns the places of violations of the declared schema, unless the same were returned last time.
    pub fn drift_from_declared(&self, violations: &[Violation]) -> Vec<String> {
        let mut pointers: Vec<String> =
            violations.iter().map(|violation| general_pointer(&violation.pointer)).collect();
        pointers.sort_unstable();
        pointers.dedup();
        pointers.truncate(MAX_POINTERS);
        let mut state = self.state();
        if state.declared_drift == pointers {
            return Vec::new();
        }
        state.declared_drift.clone_from(&pointers);
        pointers
    }

    /// Returns the JSON Schema of the answers so far, to show and to check scripts against; `None` without answers.
    pub fn schema(&self) -> Option<Value> {
        let state = self.state();
        (state.shape.shape != Shape::default()).then(|| to_open_schema(&state.shape.shape))
    }

    /// Returns the JSON Schema of the answers so far, without a word about answers to come; `None` without answers.
    fn closed_schema(&self) -> Option<Value> {
        let state = self.state();
        (state.shape.shape != Shape::default()).then(|| to_schema(&state.shape.shape))
    }

    /// Returns the form to store; `None` without answers.
    pub fn to_stored(&self) -> Option<StoredObservation> {
        let schema = self.closed_schema()?;
        let state = self.state();
        Some(StoredObservation { depth: state.shape.depth, is_stable: state.unchanged >= STABLE, schema })
    }

    /// Adds a stored type to the answers.
    pub fn add_stored(&self, stored: &StoredObservation) {
        let mut state = self.state();
        let earlier = stored.bounded();
        let is_first = state.shape.shape == Shape::default();
        let joined = state.shape.clone().join(earlier);
        if joined != state.shape {
            (state.shape, state.types) = (joined, None);
            state.unchanged = if is_first && stored.is_stable { STABLE } else { 0 };
            self.interval.store(interval(state.unchanged), Ordering::Relaxed);
        }
    }

    /// Returns the types of the answers so far; `None` without answers.
    pub(crate) fn types(&self) -> Option<Arc<ResultTypes>> {
        let mut state = self.state();
        let ObservedState { shape: BoundedShape { shape, .. }, types, .. } = &mut *state;
        if *shape == Shape::default() {
            return None;
        }
        Some(types.get_or_insert_with(|| Arc::new(types_of(shape))).clone())
    }

    fn state(&self) -> MutexGuard<'_, ObservedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the types of a shape. The one-line form leaves out the deepest levels if it would be long.
fn types_of(shape: &Shape) -> ResultTypes {
    let types = |shape: &Shape| ResultTypes::new(&to_open_schema(shape).to_string(), true);
    let whole = types(shape);
    let reduced = |depth: usize| {
        let mut reduced = shape.clone();
        reduced.truncate(depth);
        types(&reduced)
    };
    let is_short = |types: &ResultTypes| types.compact().len() <= MAX_KEPT_BYTES;
    match is_short(&whole) {
        true => whole,
        false => {
            let shortest = (1..MAX_DEPTH).rev().map(reduced).find(is_short);
            whole.with_compact(shortest.map_or_else(|| "unknown".into(), |types| types.compact().to_owned()))
        }
    }
}

fn interval(unchanged: u32) -> u32 {
    match unchanged {
        0..STABLE => 1,
        STABLE..LONG_STABLE => RARE,
        _ => RAREST,
    }
}

impl StoredObservation {
    fn bounded(&self) -> BoundedShape {
        BoundedShape::new(from_schema(&self.schema), self.depth)
    }

    /// Joins the observations of two bridges.
    pub fn join(self, other: &Self) -> Self {
        let (own, others) = (self.bounded(), other.bounded());
        let joined = own.clone().join(others.clone());
        let is_stable = (self.is_stable && joined.describes_same(&own))
            || (other.is_stable && joined.describes_same(&others));
        Self { depth: joined.depth, is_stable, schema: to_schema(&joined.shape) }
    }
}

#[cfg(test)]
mod tests;
