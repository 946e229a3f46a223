//! What the benches share: the machine they run on, and how they report a target.

use std::process::{Child, Command};

/// Processes that keep every core from sleeping, and give way to everybody else.
pub(super) struct Others(Vec<Child>);

impl Others {
    pub(super) fn start() -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let spin =
            || Command::new("nice").args(["-n", "19", "sh", "-c", "while :; do :; done"]).spawn().unwrap();
        Self((0..cores).map(|_| spin()).collect())
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        for other in &mut self.0 {
            other.kill().unwrap();
            other.wait().unwrap();
        }
    }
}

/// Without a target (NaN) the figure stands alone.
pub(super) fn target(what: &str, measured: f64, at_most: f64, unit: &str) {
    let verdict = match measured <= at_most {
        _ if at_most.is_nan() => String::new(),
        true => format!("target {at_most} {unit}: met"),
        false => format!("target {at_most} {unit}: MISSED"),
    };
    println!("{what:62}{measured:8.2} {unit:3} {verdict}");
}
