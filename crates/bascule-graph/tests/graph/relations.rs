//! Relations of calls: co-occurrence, order and data flow.

use bascule_graph::{EdgeKind, TracedCall};

use crate::support::{MINUTE, call, check, edges, observed, step};

// req: TR-02
#[test]
fn feeding_tool_has_one_edge_of_each_kind() {
    check(
        &[
            step(1, "notes:add", (0, 10), r#"{"title":"tea"}"#, r#"{"id":"note-4711"}"#),
            step(1, "notes:get", (20, 30), r#"{"id":"note-4711"}"#, r#"{"title":"tea","id":"note-4711"}"#),
        ],
        &[
            "notes:add co_occurrence notes:get 1/1",
            "notes:add order notes:get 1/1",
            "notes:add data_flow notes:get 1/1",
        ],
    );
}

// req: TR-02
#[test]
fn value_inside_a_text_result_flows() {
    let result = r#"{"content":[{"type":"text","text":"{\"items\":[{\"id\":\"note-4711\"}]}"}]}"#;
    let graph = observed(&[
        step(1, "a:list", (0, 10), "{}", result),
        step(1, "b:open", (20, 30), r#"{"path":"/notes/note-4711"}"#, "{}"),
    ]);
    assert!(edges(&graph).contains(&"a:list data_flow b:open 1/1".to_owned()));
}

// req: TR-02
#[test]
fn value_that_the_caller_knew_does_not_flow() {
    let path = r#"{"path":"/data/report-7.csv"}"#;
    check(
        &[step(1, "f:read", (0, 10), path, path), step(1, "f:stat", (20, 30), path, "{}")],
        &["f:read co_occurrence f:stat 1/1", "f:read order f:stat 1/1"],
    );
    let graph = observed(&[
        step(1, "f:touch", (0, 10), path, "{}"),
        step(1, "f:list", (20, 30), "{}", path),
        step(1, "f:read", (40, 50), path, "{}"),
    ]);
    assert!(!edges(&graph).iter().any(|edge| edge.contains("data_flow")));
}

// req: TR-02
#[test]
fn value_flows_from_its_first_source_only() {
    let id = r#"{"id":"note-4711"}"#;
    let graph = observed(&[
        step(1, "n:add", (0, 10), "{}", id),
        step(1, "n:list", (20, 30), "{}", id),
        step(1, "n:get", (40, 50), id, id),
    ]);
    let flows: Vec<_> = edges(&graph).into_iter().filter(|edge| edge.contains("data_flow")).collect();
    assert_eq!(flows, ["n:add data_flow n:get 1/1"]);
}

// req: TR-02
#[test]
fn concurrent_calls_have_no_order_and_no_flow() {
    let id = r#"{"id":"note-4711"}"#;
    check(
        &[step(1, "a:x", (0, 10), "{}", id), step(1, "b:y", (5, 15), id, "{}")],
        &["a:x co_occurrence b:y 1/1"],
    );
}

// req: TR-02
#[test]
fn fork_and_join_order_only_neighbours() {
    let script = |tool, times| step(1, tool, times, "{}", "{}");
    let graph = observed(&[
        script("s:first", (0, 10)),
        script("s:left", (20, 40)),
        script("s:right", (25, 50)),
        script("s:last", (60, 70)),
    ]);
    let orders: Vec<_> = edges(&graph).into_iter().filter(|edge| edge.contains(" order ")).collect();
    assert_eq!(
        orders,
        [
            "s:first order s:left 1/1",
            "s:first order s:right 1/1",
            "s:left order s:last 1/1",
            "s:right order s:last 1/1",
        ]
    );
}

// req: TR-02
#[test]
fn loop_has_edges_to_itself_and_co_occurs_once() {
    let pages = ["cursor-00001", "cursor-00002", "cursor-00003"];
    let mut calls: Vec<TracedCall> = Vec::new();
    for (at, page) in (0..).zip(pages.windows(2)) {
        let (given, returned) = (format!(r#"["{}"]"#, page[0]), format!(r#"["{}"]"#, page[1]));
        calls.push(step(1, "api:page", (at * 20, at * 20 + 10), &given, &returned));
        calls.push(step(1, "db:save", (at * 20 + 11, at * 20 + 19), "{}", "{}"));
    }
    check(
        &calls,
        &[
            "api:page data_flow api:page 1/1",
            "api:page co_occurrence db:save 1/1",
            "api:page order db:save 2/2",
            "db:save order api:page 1/1",
        ],
    );
}

// req: TR-02
#[test]
fn long_loop_does_not_displace_other_tools() {
    let mut calls = vec![step(1, "f:list", (0, 1), "{}", "{}")];
    calls.extend((1..200).map(|at| step(1, "f:read", (at * 10, at * 10 + 5), "{}", "{}")));
    calls.push(step(1, "f:write", (2_000, 2_001), "{}", "{}"));
    let lines = edges(&observed(&calls));
    assert!(lines.contains(&"f:list co_occurrence f:write 1/1".to_owned()), "{lines:?}");
    assert!(!lines.iter().any(|line| line.starts_with("f:list order f:write")), "{lines:?}");
}

// req: TR-02
#[test]
fn mere_time_makes_no_relation() {
    check(&[call("s", "a:x", 0, 10), call("t", "b:y", 20, 30)], &[]);
    check(&[call("s", "a:x", 0, 10), call("s", "b:y", 11 * MINUTE, 11 * MINUTE + 1)], &[]);
}

// req: TR-02
#[test]
fn calls_of_two_scripts_co_occur_but_have_no_order() {
    check(
        &[step(1, "a:x", (0, 10), "{}", "{}"), step(2, "b:y", (20, 30), "{}", "{}")],
        &["a:x co_occurrence b:y 1/1"],
    );
}

// req: TR-02
#[test]
fn value_flows_from_a_script_to_a_later_call_of_the_session() {
    let id = r#"{"id":"note-4711"}"#;
    let direct = TracedCall { script: None, ..step(1, "b:y", (MINUTE, MINUTE + 1), id, "{}") };
    let graph = observed(&[step(1, "a:x", (0, 10), "{}", id), direct]);
    assert_eq!(edges(&graph), ["a:x co_occurrence b:y 1/1", "a:x data_flow b:y 1/1"]);
}

// req: TR-02
#[test]
fn slow_script_keeps_its_order() {
    let hour = 60 * MINUTE;
    let graph =
        observed(&[step(1, "a:x", (0, 10), "{}", "{}"), step(1, "b:y", (hour, hour + 1), "{}", "{}")]);
    assert_eq!(edges(&graph), ["a:x co_occurrence b:y 1/1", "a:x order b:y 1/1"]);
}

// req: TR-02
#[test]
fn failures_count_without_success_and_return_no_values() {
    let id = r#"{"id":"note-4711"}"#;
    let failed = TracedCall { success: false, ..step(1, "a:x", (0, 10), "{}", id) };
    let graph = observed(&[failed, step(1, "b:y", (20, 30), id, "{}")]);
    assert_eq!(edges(&graph), ["a:x co_occurrence b:y 1/0", "a:x order b:y 1/0"]);
    let nodes = graph.rows().nodes;
    assert_eq!((nodes[0].calls, nodes[0].successes, nodes[1].successes), (1, 0, 1));
}

// req: TR-02
#[test]
fn repeated_span_counts_once() {
    let (first, second) = (call("s", "a:x", 0, 10), call("s", "b:y", 20, 30));
    let mut graph = observed(&[first.clone(), second.clone()]);
    let rows = graph.rows();
    assert!(!graph.observe(&first) && !graph.observe(&second));
    assert_eq!(graph.rows(), rows);
}

// req: TR-02
#[test]
fn suggests_related_and_next_tools() {
    let mut calls = Vec::new();
    for round in 0..5 {
        let at = round * 60 * MINUTE;
        calls.push(call("s", "git:add", at, at + 1));
        calls.push(call("s", "git:commit", at + 10, at + 11));
        let last = if round == 0 { "git:status" } else { "git:push" };
        calls.push(call("s", last, at + 20, at + 21));
    }
    let graph = observed(&calls);
    let names = |tools: Vec<bascule_graph::SuggestedTool>| -> Vec<String> {
        tools.iter().map(|tool| tool.tool.to_string()).collect()
    };
    assert_eq!(names(graph.next_tools(["git:add"], 1)), ["git:commit"]);
    assert_eq!(names(graph.next_tools(["git:add", "git:commit"], 1)), ["git:push"]);
    assert_eq!(names(graph.related("git:commit", 2)), ["git:add", "git:push"]);
    assert_eq!(graph.related("git:commit", 1)[0].kinds, [EdgeKind::CoOccurrence, EdgeKind::Order]);
    assert_eq!(graph.related("no:tool", 2), []);
    assert_eq!(graph.next_tools(["no:tool"], 2), []);
}

// req: TR-02
#[test]
fn export_follows_the_contract() {
    let graph = observed(&[call("s", "a:x", 0, 10), call("s", "b:y", 20, 30)]);
    let json = serde_json::to_value(graph.export(10)).unwrap();
    let nodes = json["nodes"].as_array().unwrap();
    assert_eq!(nodes[0]["id"], "a:x");
    assert_eq!((&nodes[0]["calls"], &nodes[0]["successes"]), (&1.into(), &1.into()));
    let sum: f64 = nodes.iter().map(|node| node["rank"].as_f64().unwrap()).sum();
    assert!((sum - 1.0).abs() < 1e-6, "{sum}");
    assert_eq!(
        json["edges"][1],
        serde_json::json!({ "from": "a:x", "to": "b:y", "kind": "order", "count": 1, "successes": 1,
            "lastSeen": "2026-09-21T14:13:20.000Z" })
    );
    let one = graph.export(1);
    assert_eq!((one.nodes.len(), one.edges.len()), (1, 0));
}

// req: TR-02
#[test]
fn tool_that_many_lead_to_has_the_highest_rank() {
    let mut calls = Vec::new();
    for (at, tool) in (0..).zip(["a:x", "b:x", "c:x", "d:x"]) {
        let session = format!("s{at}");
        calls.extend([
            call(&session, tool, at * 100, at * 100 + 1),
            call(&session, "e:all", at * 100 + 2, at * 100 + 3),
        ]);
    }
    let nodes = observed(&calls).ranked_nodes(2);
    assert_eq!(nodes[0].id, "e:all");
    assert!(nodes[0].rank > 2.0 * nodes[1].rank, "{nodes:?}");
}

// req: TR-02
#[test]
fn writes_dot_and_mermaid() {
    let export = observed(&[call("s", "a:x", 0, 10), call("s", "b:y\"", 20, 30)]).export(10);
    let dot = export.to_dot();
    assert!(dot.contains(r#"  "a:x" -> "b:y\"" [label="1", style=solid];"#), "{dot}");
    let mermaid = export.to_mermaid();
    assert_eq!(mermaid, "flowchart LR\n  t0[\"a:x\"]\n  t1[\"b:y#34;\"]\n  t0 -.-|1| t1\n  t0 -->|1| t1\n");
}
