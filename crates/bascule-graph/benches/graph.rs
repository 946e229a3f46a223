//! Measures the graph: updates, fingerprints, and questions to a graph of 10,000 tools.
//!
//! `cargo bench -p bascule-graph` prints the median and the worst wall time of one operation. Run it on a quiet machine.

#![allow(clippy::print_stdout, reason = "the program prints its measurements")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bascule_graph::{
    CallSession, Fingerprint, FingerprintKey, GraphLimits, ToolGraph, TracedCall, fingerprints,
};

const SECOND: i64 = 1_000_000;
const START: i64 = 1_760_000_000 * SECOND;

fn main() {
    let everyday: Vec<TracedCall> = (0..100_000).map(|at| call(at, 200, 4, 8)).collect();
    measure_updates("observe, 200 tools, 12 values a call", &everyday);
    let many: Vec<TracedCall> = (0..100_000).map(|at| call(at, 10_000, 4, 8)).collect();
    measure_updates("observe, 10,000 tools, 12 values a call", &many);
    let hostile: Vec<TracedCall> = (0..50_000).map(|at| call(at, 40_000, 256, 256)).collect();
    measure_updates("observe, 40,000 tools, 512 values a call", &hostile);
    measure_questions(&grown(&many));
    measure_fingerprints();
}

/// Returns call number `at`: 16 sessions take turns, and each call is given values of the call before it.
fn call(at: u64, tools: u64, given: u64, returned: u64) -> TracedCall {
    let (session, step) = (at % 16, at / 16);
    let value = |step: u64, n: u64| Fingerprint(u128::from(scattered((session << 48) | (step << 16) | n)));
    let started_at = START + at.cast_signed() * SECOND;
    TracedCall {
        span: at + 1,
        script: Some((session << 32) | (step / 12)),
        session: CallSession::Client(session),
        tool: format!("server{}:tool", scattered(at) % tools).into(),
        started_at,
        ended_at: started_at + SECOND / 2,
        success: !at.is_multiple_of(20),
        given: (0..given).map(|n| value(step.saturating_sub(1), n)).collect(),
        returned: (0..returned).map(|n| value(step, n)).collect(),
    }
}

/// Returns a number whose bits look random.
fn scattered(number: u64) -> u64 {
    let mixed = number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 16
}

fn grown(calls: &[TracedCall]) -> ToolGraph {
    let mut graph = ToolGraph::new(GraphLimits::default());
    calls.iter().for_each(|call| {
        graph.observe(call);
    });
    graph
}

fn measure_updates(name: &str, calls: &[TracedCall]) {
    let mut graph = ToolGraph::new(GraphLimits::default());
    let started = Instant::now();
    let mut times: Vec<Duration> = calls.iter().map(|call| time(|| graph.observe(black_box(call)))).collect();
    let mean = started.elapsed().as_secs_f64() * 1e6 / calls.len() as f64;
    print(name, &mut times);
    println!("{:50} {mean:10.2} µs mean; {} nodes, {} edges", "", graph.node_count(), graph.edge_count());
}

fn measure_questions(graph: &ToolGraph) {
    let tools: Vec<Arc<str>> = graph.rows().nodes.into_iter().map(|node| node.tool).collect();
    let nodes = tools.len();
    let mut times: Vec<_> = tools.iter().map(|tool| time(|| graph.related(tool, 10))).collect();
    print(&format!("related, {nodes} nodes"), &mut times);
    let recent = tools.windows(4).take(2_000);
    let mut times: Vec<_> =
        recent.map(|recent| time(|| graph.next_tools(recent.iter().map(|tool| &**tool), 10))).collect();
    print(&format!("next_tools of 4 recent ones, {nodes} nodes"), &mut times);
    let mut times: Vec<_> = (0..5).map(|_| time(|| graph.export(usize::MAX))).collect();
    print(&format!("export with ranks, {nodes} nodes"), &mut times);
    let rows = graph.rows();
    let mut times: Vec<_> =
        (0..5).map(|_| time(|| ToolGraph::from_rows(GraphLimits::default(), &rows))).collect();
    print(&format!("from_rows, {} edges", rows.edges.len()), &mut times);
}

fn measure_fingerprints() {
    let key = FingerprintKey::new([7; 16]);
    let small = r#"{"path":"/home/ann/report-7.csv","limit":100,"owner":"ann@x.org"}"#;
    let items: Vec<String> =
        (0..2_000).map(|n| format!(r#"{{"id":4711{n},"name":"item {n}","state":"open"}}"#)).collect();
    let list = format!("[{}]", items.join(","));
    let text = format!(r#"{{"text":"{}"}}"#, "a plain word or two ".repeat(50_000));
    for (name, json) in [("arguments of 66 bytes", small), ("list of 92 KB", &list), ("text of 1 MB", &text)]
    {
        let mut times: Vec<_> = (0..1_000).map(|_| time(|| fingerprints(black_box(json), &key))).collect();
        print(&format!("fingerprints, {name}"), &mut times);
    }
}

fn time<T>(work: impl FnOnce() -> T) -> Duration {
    let started = Instant::now();
    black_box(work());
    started.elapsed()
}

fn print(name: &str, times: &mut [Duration]) {
    times.sort_unstable();
    let micros = |at: usize| times[at].as_secs_f64() * 1e6;
    let last = times.len() - 1;
    println!("{name:50} {:10.2} µs median {:10.2} µs p99", micros(last / 2), micros(last * 99 / 100));
}
