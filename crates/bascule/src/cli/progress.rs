//! The progress of a call as the spinner shows it.

use std::sync::{Arc, Mutex, MutexGuard};

use serde::Deserialize;
use serde_json::value::RawValue;

use super::terminal::sanitize_line;
use crate::fleet::request::ProgressSink;

/// The last progress notification of a call as text.
#[derive(Debug, Clone, Default)]
pub(crate) struct LatestProgress(Arc<Mutex<String>>);

impl LatestProgress {
    /// Returns the sink that receives the notifications.
    pub(crate) fn sink(&self) -> ProgressSink {
        let latest = self.clone();
        Arc::new(move |params: &RawValue, _: Option<&str>| *latest.lock() = format_progress(params))
    }

    pub(crate) fn text(&self) -> String {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, String> {
        self.0.lock().expect("no code panics while it holds the lock")
    }
}

/// Formats a notification, such as `3/10 reading files`.
fn format_progress(params: &RawValue) -> String {
    #[derive(Deserialize)]
    struct Progress {
        progress: Option<serde_json::Number>,
        total: Option<serde_json::Number>,
        message: Option<String>,
    }
    let Ok(Progress { progress, total, message }) = serde_json::from_str(params.get()) else {
        return String::new();
    };
    let count = match (progress, total) {
        (Some(progress), Some(total)) => format!("{progress}/{total}"),
        (Some(progress), None) => progress.to_string(),
        (None, _) => String::new(),
    };
    let message = message.map(|message| sanitize_line(message.trim())).unwrap_or_default();
    [count, message].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(params: &str, expected: &str) {
        let latest = LatestProgress::default();
        latest.sink()(&RawValue::from_string(params.into()).unwrap(), None);
        assert_eq!(latest.text(), expected);
    }

    #[test]
    fn formats_count_and_message() {
        check(
            r#"{"progressToken":1,"progress":3,"total":10,"message":"reading\u001b[2J"}"#,
            "3/10 reading\u{fffd}[2J",
        );
        check(r#"{"progress":0.5}"#, "0.5");
        check(r#"{"progress":"x"}"#, "");
    }
}
