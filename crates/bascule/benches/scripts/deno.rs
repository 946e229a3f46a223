//! Measures the same scripts in Deno, if `make bench-peers` has installed it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;

use super::machine::target;
use super::{median, micros};

/// Times in microseconds.
#[derive(serde::Deserialize)]
pub(super) struct Deno {
    warm: f64,
    call: f64,
    hundred: f64,
    #[serde(skip)]
    cold: f64,
}

/// Returns `None` if Deno is not installed.
pub(super) fn measure(rounds: usize) -> Option<Deno> {
    let program =
        PathBuf::from(std::env::var_os("BASCULE_TESTENV")?).join("bench-peers/node/node_modules/.bin/deno");
    if !program.exists() {
        return None;
    }
    let output = run(&program, "deno.ts", &rounds.to_string());
    let measured: Deno = serde_json::from_slice(&output.stdout).expect("the driver prints JSON");
    let cold = (0..rounds.div_ceil(5)).map(|_| {
        let begin = Instant::now();
        run(&program, "one.ts", "");
        micros(begin.elapsed())
    });
    Some(Deno { cold: median(cold.collect()), ..measured })
}

fn run(program: &Path, script: &str, argument: &str) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/scripts").join(script);
    let options = ["run", "--no-check", "--no-config", "--no-lock", "--quiet", "--unstable-worker-options"];
    let output = Command::new(program).args(options).arg(script).arg(argument).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

impl Deno {
    pub(super) fn print(&self) {
        target("Deno: text to value, in a worker that was ready", self.warm, f64::NAN, "µs");
        target("Deno: a process for the script, from start to end", self.cold, f64::NAN, "µs");
        target("Deno: a call by a worker's script, answered at once", self.call, f64::NAN, "µs");
        target("Deno: Promise.all of 100 of them", self.hundred, f64::NAN, "µs");
    }
}
