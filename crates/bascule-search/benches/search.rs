//! Measures search with the real tools of 25 servers, copied until there are 1,000 and 50,000.
//!
//! `cargo bench -p bascule-search` prints the best and the median wall time of each kernel. Run it on a quiet
//! machine: others only add time. `EVAL_MODEL` names the folder of a model to measure too. It fails if a search costs too much relative to a plain scan in the same run.

#![allow(clippy::print_stdout, reason = "the program prints its measurements")]

use std::hint::black_box;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bascule_model::ToolDefinition;
use bascule_search::{Intent, ModelFiles, SearchIndex, SentenceModel, ServerIndex, use_baseline_kernel};
use serde::Deserialize;
use serde_json::value::RawValue;

const SHORT: &str = "open an issue about the failing build";
const LONG: &str = "Read the release notes from the repository, find the commits since the last tag, summarise them, then write \
                    a Markdown file to disk and post a message with the link to the team channel.";

/// The width of the vectors that a plain scan compares.
const DIMENSIONS: usize = 256;

fn main() -> ExitCode {
    let servers = listed();
    let tools: usize = servers.iter().map(|(_, tools)| tools.len()).sum();
    let thousand = repeat(&servers, 1_000_usize.div_ceil(tools));
    measure("index of 1,000 tools", 20, || index(&thousand));
    let small = index(&thousand);
    measure_searches(1_000, &small);
    let large = index(&repeat(&servers, 50_000_usize.div_ceil(tools)));
    measure_searches(50_000, &large);
    measure_model();
    check_ratios(&small, &large)
}

/// Measures the model in the folder `EVAL_MODEL`, if there is one.
fn measure_model() {
    let Some(folder) = std::env::var_os("EVAL_MODEL").map(PathBuf::from) else { return };
    let text = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
    let files = ModelFiles {
        config: text("config.json").expect("the folder has `config.json`"),
        tokenizer: text("tokenizer.json"),
        vocabulary: text("vocab.txt"),
        weights: std::fs::read(folder.join("model.safetensors")).expect("the folder has `model.safetensors`"),
        pooling: text("1_Pooling/config.json"),
        sentences: text("sentence_bert_config.json"),
    };
    measure("reading a model", 5, || SentenceModel::new(&files).is_ok());
    let model = SentenceModel::new(&files).expect("the model is known");
    for baseline in [false, true] {
        use_baseline_kernel(baseline);
        let kernel = if baseline { "baseline" } else { "fastest" };
        for (name, text) in [("short text", SHORT), ("long text", LONG)] {
            measure(&format!("model, {name}, {kernel} kernel"), 50, || model.embed(black_box(text)));
        }
    }
    use_baseline_kernel(false);
}

fn measure_searches(count: usize, index: &SearchIndex) {
    for baseline in [false, true] {
        use_baseline_kernel(baseline);
        let kernel = if baseline { "baseline" } else { "fastest" };
        for (name, text) in [("one step", SHORT), ("five steps", LONG)] {
            let search = || index.search(&Intent::new(black_box(text)), 5, |_, _| true);
            measure(&format!("{count} tools, {name}, {kernel} kernel"), 200, search);
        }
    }
    use_baseline_kernel(false);
}

/// Compares searches with each other and with a plain scan of as many vectors. Times depend on the machine, so all sides are measured
/// in turn in one run, and the best of each counts: others only add time. The limits are generous.
// req: SE-03
fn check_ratios(small: &SearchIndex, large: &SearchIndex) -> ExitCode {
    let vectors = vec![1_i8; large.len() * DIMENSIONS];
    let query = vec![2_i16; DIMENSIONS];
    let mut best = [f64::INFINITY; 4];
    for _ in 0..rounds(50) {
        let search = |index: &SearchIndex, baseline: bool| {
            use_baseline_kernel(baseline);
            time(|| index.search(&Intent::new(black_box(LONG)), 5, |_, _| true))
        };
        let times = [
            time(|| plain_scan(&vectors, &query)),
            search(large, false),
            search(large, true),
            search(small, false),
        ];
        best.iter_mut().zip(times).for_each(|(best, time)| *best = best.min(time.as_secs_f64()));
    }
    let [scan, fastest, baseline, of_thousand] = best;
    let growth = large.len() as f64 / small.len() as f64;
    let checks = [
        check("search / plain scan, 50,000 tools, fastest kernel", fastest / scan, 8.0),
        check("search / plain scan, 50,000 tools, baseline kernel", baseline / scan, 8.0),
        check("50,000 tools / 1,000 tools, for each tool", fastest / of_thousand / growth, 4.0),
    ];
    if checks.contains(&false) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Compares one vector with all others.
fn plain_scan(vectors: &[i8], query: &[i16]) -> i32 {
    let dot = |row: &[i8]| row.iter().zip(query).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum();
    vectors.chunks_exact(DIMENSIONS).map(|row| dot(black_box(row))).fold(0, i32::max)
}

fn check(what: &str, measured: f64, limit: f64) -> bool {
    let is_met = measured <= limit;
    println!("{what:50} {measured:8.2}  limit {limit}: {}", if is_met { "met" } else { "MISSED" });
    is_met
}

/// Returns fewer rounds if the environment asks for a quick run.
fn rounds(usual: usize) -> usize {
    if std::env::var_os("BASCULE_BENCH_QUICK").is_some() { usual / 5 } else { usual }
}

type Listed = Vec<(String, Vec<ToolDefinition>)>;

fn index(servers: &Listed) -> SearchIndex {
    servers.iter().map(|(name, tools)| Arc::new(ServerIndex::new(name, tools))).collect()
}

fn repeat(servers: &Listed, times: usize) -> Listed {
    let numbered =
        |number: usize| servers.iter().map(move |(name, tools)| (format!("{name}{number}"), tools.clone()));
    (0..times).flat_map(numbered).collect()
}

fn measure<T>(name: &str, usual_rounds: usize, mut work: impl FnMut() -> T) {
    let mut times: Vec<Duration> = (0..rounds(usual_rounds)).map(|_| time(&mut work)).collect();
    times.sort_unstable();
    let [best, median] = [times[0], times[times.len() / 2]].map(|time| time.as_secs_f64() * 1e3);
    println!("{name:50} best {best:8.3} ms, median {median:8.3} ms");
}

fn time<T>(work: impl FnOnce() -> T) -> Duration {
    let started = Instant::now();
    black_box(work());
    started.elapsed()
}

#[derive(Deserialize)]
struct Listing {
    server: String,
    tools: Vec<Box<RawValue>>,
}

fn listed() -> Listed {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../bascule-catalog/tests/catalogs");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).expect("the folder is there").flatten().map(|entry| entry.path()).collect();
    files.sort();
    let read = |file: &PathBuf| {
        let text = std::fs::read(file).expect("the file is readable");
        let Listing { server, tools } = serde_json::from_slice(&text).expect("a list of tools");
        (server, tools.into_iter().map(|tool| ToolDefinition::parse(tool).expect("a tool")).collect())
    };
    files.iter().map(read).collect()
}
