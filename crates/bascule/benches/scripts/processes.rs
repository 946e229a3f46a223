//! Reads processor time and memory of this process and its children from `/proc`.

use std::fs;
use std::time::Duration;

/// Processor time since the start of this process.
pub(super) struct ProcessorTime {
    pub(super) own: Duration,
    /// Of children that have exited and been waited for.
    pub(super) children: Duration,
}

pub(super) fn processor_time() -> ProcessorTime {
    let fields = stat("self");
    // The 14th and 15th field are ours, the 16th and 17th the children's: in hundredths of a second.
    let of = |from: usize| Duration::from_millis(fields[from..from + 2].iter().map(|ticks| ticks * 10).sum());
    ProcessorTime { own: of(11), children: of(13) }
}

/// A child process.
pub(super) struct Child(String);

/// Returns the children with this word on their command line.
pub(super) fn children_called(word: &str) -> impl Iterator<Item = Child> {
    let own = u64::from(std::process::id());
    let processes =
        fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let numbers = processes.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
    numbers.filter(move |pid| stat(pid).get(1) == Some(&own) && command_line(pid).contains(word)).map(Child)
}

impl Child {
    /// Returns resident memory, and the part that no file backs, in MB.
    pub(super) fn memory(&self) -> (f64, f64) {
        let text = fs::read_to_string(format!("/proc/{}/statm", self.0)).unwrap_or_default();
        let pages: Vec<f64> = text.split_whitespace().filter_map(|field| field.parse().ok()).collect();
        let [_, resident, shared, ..] = pages[..] else { return (f64::NAN, f64::NAN) };
        (resident * 4096.0 / 1e6, (resident - shared) * 4096.0 / 1e6)
    }
}

fn command_line(pid: &str) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the fields of `/proc/PID/stat` after the process name, which is in brackets and may contain anything. Fields that
/// are not numbers are 0.
fn stat(pid: &str) -> Vec<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let rest = text.rsplit_once(") ").map_or("", |(_, rest)| rest);
    rest.split_whitespace().map(|field| field.parse().unwrap_or(0)).collect()
}
