//! Waits until a scripted server has received something.

use std::thread;
use std::time::{Duration, Instant};

/// Polls until `find` returns a value.
///
/// # Panics
/// After a minute, with the received lines.
pub(crate) fn wait<T>(
    description: &str,
    poll: impl Fn() -> Vec<String>,
    find: impl Fn(&[String]) -> Option<T>,
) -> T {
    const TIMEOUT: Duration = Duration::from_secs(60);
    const INTERVAL: Duration = Duration::from_millis(5);
    let start = Instant::now();
    loop {
        let lines = poll();
        if let Some(found) = find(&lines) {
            return found;
        }
        if start.elapsed() > TIMEOUT {
            panic!("the scripted server never received {description}; it received:\n{}", shorten(&lines));
        }
        thread::sleep(INTERVAL);
    }
}

/// Returns the first line that contains `part`.
pub(crate) fn find_containing(lines: &[String], part: &str) -> Option<String> {
    lines.iter().find(|line| line.contains(part)).cloned()
}

/// Returns the methods of the requests and notifications among these lines.
pub(crate) fn methods(lines: &[String]) -> Vec<String> {
    let method = |line: &String| crate::message::ParsedMessage::parse(line)?.method();
    lines.iter().filter_map(method).collect()
}

fn shorten(lines: &[String]) -> String {
    let short = |line: &String| line.chars().take(300).collect::<String>();
    lines.iter().map(short).collect::<Vec<_>>().join("\n")
}
