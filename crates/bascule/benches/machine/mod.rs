//! Background load, CPU steal time and the report of targets, shared by the benches.

use std::process::{Child, Command};

/// Keeps every core busy with processes of the lowest priority. Killed when dropped.
pub(super) struct BackgroundLoad(Vec<Child>);

impl BackgroundLoad {
    pub(super) fn start() -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let spin =
            || Command::new("nice").args(["-n", "19", "sh", "-c", "while :; do :; done"]).spawn().unwrap();
        Self((0..cores).map(|_| spin()).collect())
    }
}

impl Drop for BackgroundLoad {
    fn drop(&mut self) {
        for process in &mut self.0 {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }
}

/// CPU ticks of the machine since boot.
struct CpuTicks {
    all: u64,
    /// Ticks that other virtual machines on the same hardware have taken.
    stolen: u64,
}

impl CpuTicks {
    fn now() -> Option<Self> {
        let stat = std::fs::read_to_string("/proc/stat").ok()?;
        let counts: Vec<u64> =
            stat.lines().next()?.split(' ').filter_map(|count| count.parse().ok()).collect();
        // Guest time (fields 9 and 10) is part of the first two fields.
        Some(Self { all: counts.iter().take(8).sum(), stolen: *counts.get(7)? })
    }
}

/// Prints the load and the CPU time taken by other virtual machines when dropped: both distort the figures.
pub(super) struct MachineReport(Option<CpuTicks>);

impl MachineReport {
    pub(super) fn start() -> Self {
        Self(CpuTicks::now())
    }
}

impl Drop for MachineReport {
    fn drop(&mut self) {
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        println!("\nload average at the end: {}", load.split(' ').next().unwrap_or("?"));
        if let (Some(before), Some(now)) = (&self.0, CpuTicks::now()) {
            let share = (now.stolen - before.stolen) as f64 / (now.all - before.all).max(1) as f64;
            println!("CPU time taken by other virtual machines (steal): {:.1} %", share * 100.0);
        }
    }
}

/// Prints a figure and, unless the target is NaN, whether the target is met.
pub(super) fn target(what: &str, measured: f64, at_most: f64, unit: &str) {
    let verdict = match measured <= at_most {
        _ if at_most.is_nan() => String::new(),
        true => format!("target {at_most} {unit}: met"),
        false => format!("target {at_most} {unit}: MISSED"),
    };
    println!("{what:62}{measured:8.2} {unit:3} {verdict}");
}
