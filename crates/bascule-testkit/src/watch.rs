//! Waits until something has been received. Tests wait for events, never for a duration.

use std::thread;
use std::time::{Duration, Instant};

/// Looks again and again until `find` finds, and panics with what was there instead if it never does.
pub(crate) fn wait<T>(
    what: &str,
    look: impl Fn() -> Vec<String>,
    find: impl Fn(&[String]) -> Option<T>,
) -> T {
    const PATIENCE: Duration = Duration::from_secs(60);
    const BETWEEN_LOOKS: Duration = Duration::from_millis(5);
    let start = Instant::now();
    loop {
        let seen = look();
        if let Some(found) = find(&seen) {
            return found;
        }
        if start.elapsed() > PATIENCE {
            panic!("the scripted server never received {what}; it received:\n{}", shortened(&seen));
        }
        thread::sleep(BETWEEN_LOOKS);
    }
}

/// The first line that contains this.
pub(crate) fn containing(lines: &[String], part: &str) -> Option<String> {
    lines.iter().find(|line| line.contains(part)).cloned()
}

/// The methods of the requests and notifications among these lines.
pub(crate) fn methods(lines: &[String]) -> Vec<String> {
    let method = |line: &String| crate::message::Message::parse(line)?.method();
    lines.iter().filter_map(method).collect()
}

fn shortened(lines: &[String]) -> String {
    let short = |line: &String| line.chars().take(300).collect::<String>();
    lines.iter().map(short).collect::<Vec<_>>().join("\n")
}
