//! The recent calls of one session, and the relations of a new call with them.
//!
//! Calls arrive in the order in which they end. A call relates to the calls of its session only:
//!
//! - *co-occurrence*: both tools were called in one script, or in one session within a short time. A pair counts once while both
//!   are remembered.
//! - *order*: the call began after the other had ended, both have the same parent (the script, or the session), and no third call
//!   of that parent lies between them. Calls that overlap have no order.
//! - *data flow*: the call was given a value that the other returned, and that nobody in the session had known before.

use std::collections::VecDeque;
use std::sync::Arc;

use foldhash::HashMap;

use crate::{EdgeKind, Fingerprint, GraphLimits, TracedCall};

/// The largest number of tools with which one call co-occurs, the latest ones.
const MAX_PARTNERS: usize = 16;

/// A relation of a new call with the tool of an earlier one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Relation {
    pub(crate) earlier: Arc<str>,
    pub(crate) kind: EdgeKind,
    /// Both calls succeeded.
    pub(crate) success: bool,
}

/// The memory of one session.
#[derive(Debug, Default)]
pub(crate) struct SessionMemory {
    /// In the order in which the calls ended.
    recent: VecDeque<RecentCall>,
    origins: HashMap<Fingerprint, Origin>,
    /// The keys of `origins`, oldest first.
    ages: VecDeque<Fingerprint>,
}

#[derive(Debug)]
struct RecentCall {
    span: u64,
    script: Option<u64>,
    tool: Arc<str>,
    started_at: i64,
    ended_at: i64,
    success: bool,
}

/// The first appearance of a value in a session.
#[derive(Debug)]
enum Origin {
    /// In the arguments of a call: the caller knew it.
    Given,
    /// In the result of a call.
    Returned { tool: Arc<str>, ended_at: i64 },
}

impl SessionMemory {
    pub(crate) fn has_seen(&self, span: u64) -> bool {
        self.recent.iter().any(|call| call.span == span)
    }

    /// The number of remembered values.
    pub(crate) fn values(&self) -> usize {
        self.ages.len()
    }

    /// Returns the relations of a call with the remembered ones, each tool once for each kind.
    pub(crate) fn relations(&self, call: &TracedCall, limits: &GraphLimits) -> Vec<Relation> {
        let mut relations = Vec::new();
        self.add_co_occurrences(call, limits, &mut relations);
        self.add_order(call, limits, &mut relations);
        self.add_data_flow(call, &mut relations);
        relations
    }

    fn add_co_occurrences(&self, call: &TracedCall, limits: &GraphLimits, relations: &mut Vec<Relation>) {
        let is_near = |other: &&RecentCall| other.is_sibling(call) || other.is_within(call, limits.window);
        let near = || self.recent.iter().rev().filter(is_near);
        let is_repeated = near().any(|other| other.tool == call.tool);
        let has_siblings = call.script.is_some();
        let is_repeated_by_sibling = is_repeated
            && has_siblings
            && near().any(|other| other.is_sibling(call) && other.tool == call.tool);
        // Most calls end here: they repeat a tool.
        if is_repeated && (is_repeated_by_sibling || !has_siblings) {
            return;
        }
        for other in near() {
            let is_counted = if other.is_sibling(call) { is_repeated_by_sibling } else { is_repeated };
            if !is_counted && other.tool != call.tool && relations.len() < MAX_PARTNERS {
                push_once(relations, other, EdgeKind::CoOccurrence, call.success);
            }
        }
    }

    fn add_order(&self, call: &TracedCall, limits: &GraphLimits, relations: &mut Vec<Relation>) {
        let mut last_start = i64::MIN;
        for other in self.recent.iter().rev().filter(|other| other.precedes(call, limits.window)) {
            // A call that began after `other` had ended lies between them, and between all earlier ones.
            if last_start >= other.ended_at {
                break;
            }
            push_once(relations, other, EdgeKind::Order, call.success);
            last_start = last_start.max(other.started_at);
        }
    }

    fn add_data_flow(&self, call: &TracedCall, relations: &mut Vec<Relation>) {
        for value in &call.given {
            if let Some(Origin::Returned { tool, ended_at }) = self.origins.get(value)
                && *ended_at <= call.started_at
                && !relations.iter().any(|known| known.kind == EdgeKind::DataFlow && known.earlier == *tool)
            {
                let earlier = tool.clone();
                relations.push(Relation { earlier, kind: EdgeKind::DataFlow, success: call.success });
            }
        }
    }

    /// Remembers a call and its values, and forgets what exceeds the limits.
    pub(crate) fn remember(&mut self, call: &TracedCall, limits: &GraphLimits) {
        call.given.iter().for_each(|value| self.remember_given(*value, call.started_at));
        // The text of a failure repeats what it was given, and names what does not exist.
        if call.success {
            call.returned.iter().for_each(|value| self.remember_returned(*value, call));
        }
        while self.ages.len() > limits.values_per_session {
            self.ages.pop_front().map(|oldest| self.origins.remove(&oldest));
        }
        self.recent.push_back(RecentCall::new(call));
        while self.recent.len() > limits.window_calls {
            self.forget_call();
        }
    }

    /// Forgets one call: the oldest repetition of the newest call, so that a loop does not displace other tools, or the oldest.
    fn forget_call(&mut self) {
        let newest = self.recent.back();
        let is_repetition =
            |call: &RecentCall| newest.is_some_and(|new| new.script == call.script && new.tool == call.tool);
        let oldest = self.recent.iter().position(is_repetition);
        let is_newest = oldest == Some(self.recent.len() - 1);
        self.recent.remove(oldest.filter(|_| !is_newest).unwrap_or(0));
    }

    fn remember_given(&mut self, value: Fingerprint, started_at: i64) {
        match self.origins.get_mut(&value) {
            // A call that was given the value before it was returned shows that the caller knew it.
            Some(Origin::Returned { ended_at, .. }) if *ended_at <= started_at => {}
            Some(origin) => *origin = Origin::Given,
            None => self.insert(value, Origin::Given),
        }
    }

    fn remember_returned(&mut self, value: Fingerprint, call: &TracedCall) {
        if !self.origins.contains_key(&value) {
            let origin = Origin::Returned { tool: call.tool.clone(), ended_at: call.ended_at };
            self.insert(value, origin);
        }
    }

    fn insert(&mut self, value: Fingerprint, origin: Origin) {
        self.origins.insert(value, origin);
        self.ages.push_back(value);
    }
}

impl RecentCall {
    fn new(call: &TracedCall) -> Self {
        let TracedCall { span, script, started_at, ended_at, success, .. } = *call;
        Self { span, script, tool: call.tool.clone(), started_at, ended_at, success }
    }

    /// Tells if one script made both calls.
    fn is_sibling(&self, call: &TracedCall) -> bool {
        self.script.is_some() && self.script == call.script
    }

    fn is_within(&self, call: &TracedCall, window: i64) -> bool {
        call.started_at.saturating_sub(self.ended_at) <= window
    }

    /// Tells if this call had ended when the other began, and both have the same parent.
    fn precedes(&self, call: &TracedCall, window: i64) -> bool {
        let has_same_parent =
            self.script == call.script && (self.script.is_some() || self.is_within(call, window));
        has_same_parent && self.ended_at <= call.started_at
    }
}

fn push_once(relations: &mut Vec<Relation>, other: &RecentCall, kind: EdgeKind, success: bool) {
    if !relations.iter().any(|known| known.kind == kind && known.earlier == other.tool) {
        let success = success && other.success;
        relations.push(Relation { earlier: other.tool.clone(), kind, success });
    }
}
