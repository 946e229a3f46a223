//! The spinner on stderr: activity, progress and elapsed time, only on a terminal that understands escapes.

use std::io::{self, Write};
use std::time::Duration;

use tokio::time::Instant;

use super::progress::LatestProgress;
use super::terminal::{TerminalStyle, fit};
use crate::fleet::request::ProgressSink;

/// Shows that a command works.
pub(crate) struct Spinner {
    /// `None`: nothing is shown.
    width: Option<usize>,
    activity: String,
    progress: LatestProgress,
}

impl Spinner {
    pub(crate) fn new(is_quiet: bool, activity: String) -> Self {
        let style = TerminalStyle::new(&io::stderr());
        let is_shown = !is_quiet && style.is_enabled();
        let width = is_shown.then(|| style.width().unwrap_or(80));
        Self { width, activity, progress: LatestProgress::default() }
    }

    /// Returns the sink for progress notifications, if they are shown.
    pub(crate) fn progress(&self) -> Option<ProgressSink> {
        self.width.map(|_| self.progress.sink())
    }

    /// Shows the spinner until the work is done.
    pub(crate) async fn show_during<T>(&self, work: impl Future<Output = T>) -> T {
        let Some(width) = self.width else { return work.await };
        tokio::pin!(work);
        let (mut tick, started) = (tokio::time::interval(Duration::from_millis(80)), Instant::now());
        let mut frames = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏".chars().cycle();
        loop {
            tokio::select! {
                done = &mut work => {
                    let _ = write!(io::stderr(), "\r\u{1b}[K");
                    return done;
                }
                _ = tick.tick() => {
                    let line = self.line(frames.next().unwrap_or('·'), started.elapsed(), width);
                    let _ = write!(io::stderr(), "\r\u{1b}[K{line}");
                    let _ = io::stderr().flush();
                }
            }
        }
    }

    /// The time stays visible if the line is too long.
    fn line(&self, frame: char, elapsed: Duration, width: usize) -> String {
        let time = format_elapsed(elapsed);
        let progress = self.progress.text();
        let separator = if progress.is_empty() { "" } else { "  " };
        let text = format!("{frame} {}{separator}{progress}", self.activity);
        // The last column stays free: some terminals break the line there.
        let room = width.saturating_sub(time.chars().count() + 1);
        format!("{}{time}", fit(&text, room))
    }
}

/// Formats a time; empty within the first second.
fn format_elapsed(elapsed: Duration) -> String {
    match elapsed.as_secs() {
        0 => String::new(),
        seconds @ 1..60 => format!("  {seconds} s"),
        seconds => format!("  {} min {} s", seconds / 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_fits_the_terminal_and_shows_the_time() {
        let spinner = Spinner {
            width: Some(30),
            activity: "starting notes".into(),
            progress: LatestProgress::default(),
        };
        let line = |millis, width| spinner.line('x', Duration::from_millis(millis), width);
        assert_eq!(line(900, 30), "x starting notes");
        assert_eq!(line(65_000, 40), "x starting notes  1 min 5 s");
        assert_eq!(line(3_000, 20), "x starting no…  3 s");
        let params = serde_json::value::RawValue::from_string(r#"{"progress":1,"total":2}"#.into()).unwrap();
        spinner.progress().unwrap()(&params, None);
        assert_eq!(line(1_000, 30), "x starting notes  1/2  1 s");
    }
}
