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

/// What the processors have done since the machine started, in ticks.
struct Ticks {
    all: u64,
    /// What this machine wanted and others on the same hardware were given.
    taken: u64,
}

impl Ticks {
    fn now() -> Option<Self> {
        let stat = std::fs::read_to_string("/proc/stat").ok()?;
        let counts: Vec<u64> =
            stat.lines().next()?.split(' ').filter_map(|count| count.parse().ok()).collect();
        // The two behind the eighth are part of the first two.
        Some(Self { all: counts.iter().take(8).sum(), taken: *counts.get(7)? })
    }
}

/// Where others share the hardware, a figure says as much about them as about us: tells how much they took.
pub(super) struct Neighbours(Option<Ticks>);

impl Neighbours {
    pub(super) fn watch() -> Self {
        Self(Ticks::now())
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        println!("\nload average at the end: {}", load.split(' ').next().unwrap_or("?"));
        if let (Some(before), Some(now)) = (&self.0, Ticks::now()) {
            let share = (now.taken - before.taken) as f64 / (now.all - before.all).max(1) as f64;
            println!(
                "taken meanwhile by other machines on the same hardware (steal): {:.1} %",
                share * 100.0
            );
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
