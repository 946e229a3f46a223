//! Laws of the graph, for random calls.

use bascule_graph::{CallSession, Fingerprint, GraphLimits, GraphRows, ToolGraph, TracedCall};
use proptest::prelude::*;

use crate::support::{call, observed};

prop_compose! {
    fn random_call()(
        session in 0..3_u8, tool in 0..6_u8, script in prop::option::of(0..2_u64), started in 0..2_000_i64,
        duration in 0..200_i64, success: bool, given in prop::collection::vec(0..12_u128, 0..3),
        returned in prop::collection::vec(0..12_u128, 0..3),
    ) -> TracedCall {
        let prints = |values: Vec<u128>| values.into_iter().map(Fingerprint).collect();
        TracedCall {
            script, success, given: prints(given), returned: prints(returned),
            ..call(&format!("s{session}"), &format!("t:{tool}"), started, started + duration)
        }
    }
}

/// Returns calls in the order in which they end.
fn random_calls() -> impl Strategy<Value = Vec<TracedCall>> {
    prop::collection::vec(random_call(), 0..60).prop_map(|mut calls| {
        calls.sort_by_key(|call| (call.ended_at, call.started_at, call.span));
        calls
    })
}

/// Sums of weights depend on their order in the last digits.
fn assert_close(a: &GraphRows, b: &GraphRows) {
    let rounded = |rows: &GraphRows| {
        let mut rows = rows.clone();
        let weights = rows.nodes.iter_mut().map(|row| &mut row.weight);
        let weights = weights.chain(rows.edges.iter_mut().map(|row| &mut row.weight));
        weights.for_each(|weight| *weight = (*weight * 1e-6).round());
        rows
    };
    assert_eq!(rounded(a), rounded(b));
}

fn add_changes(file: &mut GraphRows, graph: &mut ToolGraph) {
    let changes = graph.take_changes();
    for row in changes.added.nodes {
        match file.nodes.iter_mut().find(|known| known.tool == row.tool) {
            Some(known) => {
                known.calls += row.calls;
                known.successes += row.successes;
                known.last_seen = known.last_seen.max(row.last_seen);
                known.weight += row.weight;
            }
            None => file.nodes.push(row),
        }
    }
    for row in changes.added.edges {
        let is_same = |known: &&mut bascule_graph::EdgeRow| {
            (&known.from, &known.to, known.kind) == (&row.from, &row.to, row.kind)
        };
        match file.edges.iter_mut().find(is_same) {
            Some(known) => {
                known.count += row.count;
                known.successes += row.successes;
                known.last_seen = known.last_seen.max(row.last_seen);
                known.weight += row.weight;
            }
            None => file.edges.push(row),
        }
    }
    file.nodes.sort_by(|a, b| a.tool.cmp(&b.tool));
    file.edges.sort_by(|a, b| (&a.from, &a.to, a.kind).cmp(&(&b.from, &b.to, b.kind)));
}

proptest! {
    // req: TR-02
    #[test]
    fn batches_equal_single_calls(calls in random_calls(), cut in 0..60_usize) {
        let mut batches = ToolGraph::new(GraphLimits::default());
        let cut = cut.min(calls.len());
        batches.update_from_execution(calls[..cut].to_vec());
        batches.update_from_execution(calls[cut..].to_vec());
        prop_assert_eq!(batches.rows(), observed(&calls).rows());
    }

    // req: TR-02
    #[test]
    fn order_within_a_batch_does_not_matter(calls in random_calls().prop_shuffle()) {
        let mut shuffled = ToolGraph::new(GraphLimits::default());
        shuffled.update_from_execution(calls.clone());
        let mut calls = calls;
        calls.sort_by_key(|call| (call.ended_at, call.started_at, call.span));
        prop_assert_eq!(shuffled.rows(), observed(&calls).rows());
    }

    // req: TR-02
    #[test]
    fn sessions_commute(calls in random_calls()) {
        let mut by_session = calls.clone();
        by_session.sort_by_key(|call| call.session.clone());
        assert_close(&observed(&by_session).rows(), &observed(&calls).rows());
    }

    // req: TR-03
    #[test]
    fn rows_make_the_same_graph(calls in random_calls()) {
        let graph = observed(&calls);
        let mut copy = ToolGraph::from_rows(GraphLimits::default(), &graph.rows());
        prop_assert_eq!(copy.rows(), graph.rows());
        prop_assert_eq!(copy.export(100).edges, graph.export(100).edges);
        prop_assert!(copy.take_changes().is_empty());
    }

    // req: TR-03
    #[test]
    fn changes_add_up_to_all_rows(calls in random_calls(), cut in 0..60_usize) {
        let (mut graph, mut file) = (ToolGraph::new(GraphLimits::default()), GraphRows::default());
        for (at, call) in calls.iter().enumerate() {
            graph.observe(call);
            if at == cut {
                add_changes(&mut file, &mut graph);
            }
        }
        let lost = graph.take_changes();
        graph.put_back(lost);
        add_changes(&mut file, &mut graph);
        assert_close(&file, &graph.rows());
        prop_assert!(graph.take_changes().is_empty());
    }

    // req: TR-03
    #[test]
    fn two_bridges_share_one_file(calls in random_calls()) {
        let (mut one, mut other) = (ToolGraph::default(), ToolGraph::default());
        let mut file = GraphRows::default();
        for call in &calls {
            if call.session == CallSession::Agent("s0".into()) { one.observe(call) } else { other.observe(call) };
        }
        add_changes(&mut file, &mut one);
        add_changes(&mut file, &mut other);
        assert_close(&file, &observed(&calls).rows());
    }

    // req: TR-02
    #[test]
    fn counts_have_their_bounds(calls in random_calls()) {
        let rows = observed(&calls).rows();
        prop_assert!(rows.nodes.iter().all(|row| row.successes <= row.calls && row.weight > 0.0));
        for row in &rows.edges {
            let calls = |tool| rows.nodes.iter().find(|node| node.tool == tool).unwrap().calls;
            prop_assert!(row.successes <= row.count, "{row:?}");
            let most = calls(row.to.clone()) + calls(row.from.clone());
            prop_assert!(row.count <= most, "{row:?}");
        }
    }
}
