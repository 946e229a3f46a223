//! The graph of tools: it learns from real calls, survives a restart, and keeps no value.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::fleet::serve_process::ServeProcess;
use crate::gateway::client::Client;
use crate::support::{Bascule, demo_server, eventually, with_settings};

/// The second tool is given a value that the first returned.
const FEEDING: &str = "const { time } = await clock.now({ timezone: 'UTC' });
    return await notes.addNote({ title: 'basilisk-48213', text: time })";

fn servers() -> Value {
    json!({
        "clock": with_settings(demo_server("clock"), json!({ "deniedTools": ["convert"] })),
        "notes": demo_server("notes"),
        "trouble": demo_server("trouble"),
    })
}

fn graph(bascule: &Bascule) -> Value {
    let (code, graph) = bascule.run_json(&["graph"]);
    assert_eq!(code, 0, "{graph:#}");
    graph
}

/// `from kind to count successes` of all edges.
fn edges(graph: &Value) -> Vec<String> {
    let fields = ["from", "kind", "to", "count", "successes"];
    let line = |edge: &Value| fields.map(|field| edge[field].to_string().replace('"', "")).join(" ");
    graph["edges"].as_array().unwrap().iter().map(line).collect()
}

fn calls_of(graph: &Value, tool: &str) -> u64 {
    let node = graph["nodes"].as_array().unwrap().iter().find(|node| node["id"] == tool);
    node.map_or(0, |node| node["calls"].as_u64().unwrap())
}

/// The graph of a running bridge, once a tool has this many calls.
fn wait_for_calls(bascule: &Bascule, tool: &str, calls: u64) -> Value {
    let mut found = Value::Null;
    eventually(&format!("{tool} has {calls} calls"), || {
        found = graph(bascule);
        calls_of(&found, tool) >= calls
    });
    found
}

fn run_script(bascule: &Bascule, code: &str) {
    let ran = bascule.run_with_input(&["run", "-", "--json", "--no-daemon"], code).document();
    assert_eq!(ran["success"], true, "{ran:#}");
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

/// Fails if a file of the store, or the log beside it, contains a value. The name of a tool must be there.
fn assert_not_stored(bascule: &Bascule, value: &str) {
    let files = files_below(&bascule.data_folder().join("bascule/traces"));
    let holders = |text: &str| -> Vec<&PathBuf> {
        let has = |bytes: Vec<u8>| bytes.windows(text.len()).any(|part| part == text.as_bytes());
        files.iter().filter(|file| has(fs::read(file).unwrap())).collect()
    };
    assert!(!holders("notes:add_note").is_empty(), "{files:?}");
    assert_eq!(holders(value), Vec::<&PathBuf>::new(), "`{value}` is stored");
}

// req: TR-02, TR-03
#[test]
fn script_that_feeds_a_tool_with_anothers_result_gives_one_edge_of_each_kind() {
    let bascule = Bascule::with_servers(servers());
    run_script(&bascule, FEEDING);
    let first = graph(&bascule);
    let of_count = |count: u32| {
        ["co_occurrence", "order", "data_flow"]
            .map(|kind| format!("clock:now {kind} notes:add_note {count} {count}"))
    };
    assert_eq!(edges(&first), of_count(1));
    let nodes = first["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), 2, "{first:#}");
    assert!(nodes.iter().all(|node| node["calls"] == 1 && node["successes"] == 1), "{first:#}");
    let ranks: f64 = nodes.iter().map(|node| node["rank"].as_f64().unwrap()).sum();
    assert!((ranks - 1.0).abs() < 1e-6, "{first:#}");
    assert_eq!(graph(&bascule), first);
    run_script(&bascule, FEEDING);
    assert_eq!(edges(&graph(&bascule)), of_count(2), "another process adds to the edges");
    assert_not_stored(&bascule, "basilisk-48213");
}

// req: TR-02
#[test]
fn scripts_of_a_bridge_have_edges_of_their_own() {
    let bridge = ServeProcess::start(servers());
    let ran = bridge.bascule.run_with_input(&["run", "-", "--json"], FEEDING).document();
    assert_eq!(ran["success"], true, "{ran:#}");
    let client = Client::connect(bridge.address(), "/mcp");
    client.call("execute_code", &json!({ "code": FEEDING }));
    let graph = wait_for_calls(&bridge.bascule, "notes:add_note", 2);
    let expected =
        ["co_occurrence", "order", "data_flow"].map(|kind| format!("clock:now {kind} notes:add_note 2 2"));
    assert_eq!(edges(&graph), expected, "the calls of one script follow none of another");
}

// req: TR-02
#[test]
fn calls_at_the_same_time_have_no_order() {
    let bascule = Bascule::with_servers(servers());
    run_script(&bascule, "await Promise.all([trouble.sleep({ ms: 1000 }), clock.now({ timezone: 'UTC' })])");
    assert_eq!(edges(&graph(&bascule)), ["clock:now co_occurrence trouble:sleep 1 1"]);
}

// req: TR-02, TR-03
#[test]
fn calls_of_one_session_are_related_and_their_values_not_stored() {
    let mut bridge = ServeProcess::start(servers());
    let client = Client::connect(bridge.address(), "/mcp");
    // The span of a client is no script: the calls are related by their session.
    let meta = |last: u32| json!({ "traceparent": format!("00-{:032x}-{last:016x}-01", 77) });
    let call = |tool: &str, arguments: Value, span: u32| {
        client.request("tools/call", &json!({ "name": tool, "arguments": arguments, "_meta": meta(span) }))
    };
    let found = call("notes__search_notes", json!({ "query": "London" }), 1).to_string();
    assert!(found.contains("Tower Bridge"), "{found}");
    call("notes__add_note", json!({ "title": "Tower Bridge", "text": "basilisk-48213" }), 2);
    let other = Client::connect(bridge.address(), "/mcp");
    other.call("clock__now", &json!({ "timezone": "UTC" }));
    wait_for_calls(&bridge.bascule, "notes:add_note", 1);
    let before = wait_for_calls(&bridge.bascule, "clock:now", 1);
    let kinds = ["co_occurrence notes:search_notes", "order notes:add_note", "data_flow notes:add_note"];
    let from = ["notes:add_note", "notes:search_notes", "notes:search_notes"];
    let expected: Vec<String> =
        from.iter().zip(kinds).map(|(from, rest)| format!("{from} {rest} 1 1")).collect();
    assert_eq!(edges(&before), expected);
    // The log of the file is still there.
    ["basilisk-48213", "Tower Bridge"].iter().for_each(|value| assert_not_stored(&bridge.bascule, value));
    bridge.signal("TERM");
    bridge.wait_for_exit();
    ["basilisk-48213", "Tower Bridge"].iter().for_each(|value| assert_not_stored(&bridge.bascule, value));
    assert_eq!(graph(&bridge.bascule), before, "no bridge runs");
    bridge.start_again();
    let client = Client::connect(bridge.address(), "/mcp");
    client.call("clock__now", &json!({ "timezone": "UTC" }));
    let after = wait_for_calls(&bridge.bascule, "clock:now", 2);
    assert_eq!(edges(&after), expected, "a new session has no relation to those before the restart");
}

// req: TR-02
#[test]
fn refused_calls_and_scripts_are_no_nodes() {
    let bascule = Bascule::with_servers(servers());
    bascule.call("clock:now", r#"{"timezone":"UTC"}"#);
    bascule.call_error("clock:convert", "{}");
    bascule.call_error("clock:nothing", "{}");
    bascule.call_error("clock:now", r#"{"timezone":7}"#);
    run_script(&bascule, "return 1");
    let graph = graph(&bascule);
    assert_eq!(
        (graph["nodes"].as_array().unwrap().len(), calls_of(&graph, "clock:now")),
        (1, 1),
        "{graph:#}"
    );
    assert_eq!(edges(&graph), Vec::<String>::new());
}

// req: TR-03
#[test]
fn two_bridges_add_to_one_graph() {
    let bridge = ServeProcess::start(servers());
    let client = Client::connect(bridge.address(), "/mcp");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..40 {
                client.call("clock__now", &json!({ "timezone": "UTC" }));
            }
        });
        scope.spawn(|| (0..3).for_each(|_| run_script(&bridge.bascule, FEEDING)));
    });
    let graph = wait_for_calls(&bridge.bascule, "clock:now", 43);
    assert_eq!((calls_of(&graph, "clock:now"), calls_of(&graph, "notes:add_note")), (43, 3));
    assert!(edges(&graph).contains(&"clock:now data_flow notes:add_note 3 3".into()), "{graph:#}");
}

// req: TR-04
#[test]
fn search_is_the_same_with_and_without_a_graph() {
    let bridge = ServeProcess::start(servers());
    let client = Client::connect(bridge.address(), "/mcp");
    let search = || {
        let found = bridge.bascule.run_json(&["search", "the current time", "-k", "10"]);
        assert_eq!(found.0, 0, "{}", found.1);
        found.1
    };
    let before = search();
    // The evaluation in `docs/graph.md` found no gain: tools that follow the best match in every session rank as before.
    for _ in 0..20 {
        client.call("clock__now", &json!({ "timezone": "UTC" }));
        client.call("notes__list_notes", &json!({}));
    }
    let graph = wait_for_calls(&bridge.bascule, "notes:list_notes", 20);
    assert!(
        edges(&graph).iter().any(|edge| edge.starts_with("clock:now order notes:list_notes")),
        "{graph:#}"
    );
    assert_eq!(search(), before);
}

// req: TR-02
#[test]
fn graph_has_forms_for_people_and_programs() {
    let bascule = Bascule::with_servers(servers());
    run_script(&bascule, FEEDING);
    let text = bascule.run(&["graph"]).stdout;
    assert!(text.contains("data_flow") && text.contains("clock:now → notes:add_note"), "{text}");
    let dot = bascule.run(&["graph", "--dot"]).stdout;
    assert!(
        dot.starts_with("digraph tools {") && dot.contains(r#""clock:now" -> "notes:add_note""#),
        "{dot}"
    );
    let mermaid = bascule.run(&["graph", "--mermaid"]).stdout;
    // The order of the tools follows their ranks, which are almost equal.
    let is_first = mermaid.contains(r#"t0["clock:now"]"#);
    let flow = if is_first { "t0 ==>|1| t1" } else { "t1 ==>|1| t0" };
    assert!(mermaid.starts_with("flowchart LR\n") && mermaid.contains(flow), "{mermaid}");
    assert_eq!(bascule.run_json(&["graph", "--limit", "1"]).1["nodes"].as_array().unwrap().len(), 1);
    assert_eq!(bascule.run(&["graph", "--dot", "--mermaid"]).code, Some(2));
    let (code, related) = bascule.run_json(&["related", "clock:now", "-k", "1"]);
    assert_eq!((code, &related[0]["id"]), (0, &json!("notes:add_note")));
    assert_eq!(related[0]["kinds"], json!(["co_occurrence", "order", "data_flow"]));
    assert!(related[0]["score"].as_f64().unwrap() > 0.0, "{related}");
    let unknown = bascule.run(&["related", "clock:nwo"]);
    assert_eq!(unknown.code, Some(2));
    assert!(unknown.stderr.contains("no call of it is recorded; did you mean `clock:now`?"), "{unknown:?}");
}

// req: TR-02
#[test]
fn empty_graph_says_why_it_is_empty() {
    let bascule = Bascule::with_servers(servers());
    assert_eq!(graph(&bascule), json!({ "nodes": [], "edges": [] }));
    assert!(bascule.run(&["graph"]).stderr.contains("no call is recorded yet"));
    assert_eq!(bascule.run(&["related", "clock:now"]).code, Some(2));
    let off = json!({ "mcpServers": servers(), "bascule": { "traces": { "off": true } } });
    let bascule = Bascule::with_text(&off.to_string());
    bascule.call("clock:now", r#"{"timezone":"UTC"}"#);
    assert_eq!(graph(&bascule), json!({ "nodes": [], "edges": [] }));
    let related = bascule.run(&["related", "clock:now"]);
    assert_eq!(related.code, Some(2));
    assert!(related.stderr.contains("`bascule.traces.off`"), "{related:?}");
    assert!(!bascule.data_folder().join("bascule/traces").exists());
}
