//! Builds calls, and shows a graph as lines of text.

use bascule_graph::{CallSession, FingerprintKey, GraphLimits, ToolGraph, TracedCall, fingerprints};

/// The start of all tests: a day in 2026.
pub(crate) const START: i64 = 1_790_000_000_000_000;
pub(crate) const MINUTE: i64 = 60_000_000;

/// Returns a successful call of a session, between two times in microseconds after the start.
pub(crate) fn call(session: &str, tool: &str, started: i64, ended: i64) -> TracedCall {
    let mut span = 0xcbf2_9ce4_8422_2325_u64;
    for byte in format!("{session} {tool} {started} {ended}").bytes() {
        span = (span ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    TracedCall {
        span,
        script: None,
        session: CallSession::Agent(session.into()),
        tool: tool.into(),
        started_at: START + started,
        ended_at: START + ended,
        success: true,
        given: Vec::new(),
        returned: Vec::new(),
    }
}

/// Returns a successful call of a script of session `s`, with its arguments and its result.
pub(crate) fn step(script: u64, tool: &str, times: (i64, i64), arguments: &str, result: &str) -> TracedCall {
    let key = FingerprintKey::new([7; 16]);
    TracedCall {
        script: Some(script),
        given: fingerprints(arguments, &key),
        returned: fingerprints(result, &key),
        ..call("s", tool, times.0, times.1)
    }
}

pub(crate) fn observed(calls: &[TracedCall]) -> ToolGraph {
    let mut graph = ToolGraph::new(GraphLimits::default());
    calls.iter().for_each(|call| {
        graph.observe(call);
    });
    graph
}

/// Returns the edges of a graph as `from kind to count/successes`.
pub(crate) fn edges(graph: &ToolGraph) -> Vec<String> {
    let edges = graph.rows().edges.into_iter();
    let line = |edge: bascule_graph::EdgeRow| {
        format!("{} {} {} {}/{}", edge.from, edge.kind.as_str(), edge.to, edge.count, edge.successes)
    };
    edges.map(line).collect()
}

pub(crate) fn check(calls: &[TracedCall], expected: &[&str]) {
    assert_eq!(edges(&observed(calls)), expected);
}
