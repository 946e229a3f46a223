//! Hostile input: the graph stays within its limits.

use bascule_graph::{
    CallSession, EdgeKind, EdgeRow, Fingerprint, GraphLimits, GraphRows, NodeRow, ToolGraph, TracedCall,
};

use crate::support::{START, call, observed};

const SMALL: GraphLimits = GraphLimits {
    nodes: 100,
    edges_per_node: 12,
    sessions: 4,
    window_calls: 8,
    window: 1_000_000,
    values_per_session: 50,
    values: 120,
    half_life: 7 * 86_400_000_000,
};

fn degrees(graph: &ToolGraph) -> usize {
    let rows = graph.rows();
    let degree =
        |tool: &str| rows.edges.iter().filter(|edge| &*edge.from == tool || &*edge.to == tool).count();
    rows.nodes.iter().map(|node| degree(&node.tool)).max().unwrap_or(0)
}

// req: TR-02
#[test]
fn ten_thousand_tools_fit_and_more_drop_the_oldest() {
    let mut graph = ToolGraph::new(GraphLimits::default());
    for at in 0..10_000 {
        graph.observe(&call("s", &format!("s:{at}"), at * 10, at * 10 + 5));
    }
    assert_eq!(graph.node_count(), 10_000);
    assert!(graph.edge_count() <= 10_000 * 96 / 2, "{}", graph.edge_count());
    // Long after, so that it weighs visibly more.
    let later = 90 * 86_400_000_000;
    graph.observe(&call("s", "s:new", later, later + 5));
    assert!(graph.node_count() <= 10_000);
    assert!(graph.rows().nodes.iter().any(|node| &*node.tool == "s:new"));
}

// req: TR-02
#[test]
fn every_limit_holds_for_many_tools_sessions_and_values() {
    let mut graph = ToolGraph::new(SMALL);
    for at in 0..20_000_i64 {
        let value = |n: i64| Fingerprint((at * 100 + n).cast_unsigned().into());
        graph.observe(&TracedCall {
            given: (0..40).map(value).collect(),
            returned: (40..80).map(value).collect(),
            ..call(&format!("s{}", at % 7), &format!("t:{}", at * at % 331), at, at)
        });
        assert!(graph.node_count() <= SMALL.nodes && graph.session_count() <= SMALL.sessions);
        assert!(graph.value_count() <= SMALL.values, "{}", graph.value_count());
    }
    assert!(degrees(&graph) <= SMALL.edges_per_node, "{}", degrees(&graph));
}

// req: TR-02
#[test]
fn hub_keeps_its_strongest_edges() {
    let mut graph = ToolGraph::new(SMALL);
    for at in 0..2_000 {
        let other = if at % 2 == 0 { "t:often".to_owned() } else { format!("t:{}", at % 90) };
        let session = format!("s{at}");
        graph.observe(&call(&session, "t:hub", at * 10, at * 10 + 1));
        graph.observe(&call(&session, &other, at * 10 + 2, at * 10 + 3));
    }
    assert_eq!(graph.related("t:hub", 1)[0].tool, "t:often");
    assert_eq!(
        graph.rows().edges.iter().filter(|edge| &*edge.to == "t:often").map(|edge| edge.count).max(),
        Some(1_000)
    );
}

// req: TR-02
#[test]
fn impossible_names_and_times_are_harmless() {
    let mut graph = ToolGraph::default();
    assert!(!graph.observe(&call("s", "", 0, 1)));
    assert!(!graph.observe(&call("s", &"x".repeat(1_000_000), 0, 1)));
    let extremes = [(i64::MIN, i64::MAX), (i64::MAX, i64::MIN), (0, 0), (i64::MAX, i64::MAX)];
    for (at, (started_at, ended_at)) in extremes.into_iter().enumerate() {
        graph.observe(&TracedCall { started_at, ended_at, ..call("s", &format!("t:{at}"), 0, 0) });
    }
    assert!(graph.export(10).nodes.iter().all(|node| node.rank.is_finite()));
    assert!(graph.next_tools(["t:0", "t:2"], 5).iter().all(|tool| tool.score.is_finite()));
}

// req: TR-02
#[test]
fn ended_session_is_forgotten() {
    let mut graph = observed(&[call("s", "a:x", 0, 10)]);
    graph.forget_session(&CallSession::Agent("s".into()));
    graph.observe(&call("s", "b:y", 20, 30));
    assert_eq!((graph.edge_count(), graph.node_count(), graph.session_count()), (0, 2, 1));
}

// req: TR-03
#[test]
fn damaged_rows_make_a_sound_graph() {
    let node =
        |tool: &str, weight| NodeRow { tool: tool.into(), calls: 1, successes: 9, last_seen: START, weight };
    let edge = |from: &str, to: &str, weight| EdgeRow {
        from: from.into(),
        to: to.into(),
        kind: EdgeKind::CoOccurrence,
        count: 1,
        successes: 1,
        last_seen: START,
        weight,
    };
    let rows = GraphRows {
        nodes: vec![node("a:x", f64::NAN), node("b:y", f64::INFINITY), node("c:z", -1.0)],
        edges: vec![
            edge("b:y", "a:x", f64::NAN),
            edge("a:x", "gone:x", 1.0),
            edge("c:z", "b:y", f64::INFINITY),
        ],
    };
    let graph = ToolGraph::from_rows(GraphLimits::default(), &rows);
    assert_eq!((graph.node_count(), graph.edge_count()), (3, 2));
    assert!(graph.rows().nodes.iter().all(|row| row.successes == 1 && row.weight.is_finite()));
    assert!(graph.export(10).nodes.iter().all(|node| node.rank.is_finite()));
    assert_eq!(&*graph.rows().edges[0].from, "a:x", "co-occurrence is sorted");
}

// req: TR-03
#[test]
fn loading_drops_the_weakest_and_reports_it() {
    let mut large = ToolGraph::default();
    for at in 0..400 {
        large.observe(&call("s", &format!("t:{}", at % 200), at * 10, at * 10 + 5));
    }
    let mut graph = ToolGraph::from_rows(SMALL, &large.rows());
    assert_eq!(graph.node_count(), SMALL.nodes);
    assert!(degrees(&graph) <= SMALL.edges_per_node);
    assert!(!graph.take_changes().removed_edges.is_empty());
}

// req: TR-03
#[test]
fn dropped_rows_that_were_saved_are_reported() {
    let mut graph = ToolGraph::new(SMALL);
    (0..100).for_each(|at| {
        graph.observe(&call(&format!("s{at}"), &format!("t:{at}"), at, at));
    });
    assert_eq!(graph.take_changes().added.nodes.len(), 100);
    (100..110).for_each(|at| {
        graph.observe(&call(&format!("s{at}"), &format!("t:{at}"), at, at));
    });
    let changes = graph.take_changes();
    assert_eq!((changes.added.nodes.len(), changes.removed_nodes.len()), (10, 14));
}

// req: TR-03
#[test]
fn saves_that_keep_failing_take_no_more_memory() {
    let mut graph = ToolGraph::new(SMALL);
    for at in 0..30_000 {
        graph.observe(&call(&format!("s{at}"), &format!("t:{at}"), at, at));
        if at % 50 == 0 {
            let unsaved = graph.take_changes();
            graph.put_back(unsaved);
        }
        // Every node counts as saved now and then, so its end is a removal.
        if at % 50 == 25 {
            let mut changes = graph.take_changes();
            changes.added = GraphRows::default();
            graph.put_back(changes);
        }
    }
    let changes = graph.take_changes();
    assert_eq!(changes.removed_nodes.len(), 10_000);
    assert!(changes.added.nodes.len() <= SMALL.nodes);
}
