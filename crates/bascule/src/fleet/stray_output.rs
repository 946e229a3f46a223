//! Lines on a server's stdout that are no messages: the first ones are logged, and kept for the error of a failed start.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use bascule_model::ServerName;
use tracing::{debug, warn};

use crate::config::ServerSettings;
use crate::post_mortem::secrets_of;
use crate::sanitize::excerpt;

/// Maximum number of lines that are logged and kept.
const MAX_LINES: usize = 5;
/// Maximum length of a line that is shown.
const MAX_CHARS: usize = 200;

/// Maximum number of different lines of one server that are logged while the bridge runs.
const MAX_LOGGED: usize = 50;

/// The lines that were logged, by server. A server that is started again and again prints the same lines each time.
#[derive(Debug, Default)]
pub(crate) struct LoggedLines(Mutex<HashMap<ServerName, HashSet<String>>>);

impl LoggedLines {
    /// Returns true if the line is new and may be logged.
    fn insert(&self, server: &ServerName, line: &str) -> bool {
        let mut servers = self.0.lock().expect("no code panics while it holds the lock");
        let lines = servers.entry(server.clone()).or_default();
        lines.len() < MAX_LOGGED && lines.insert(line.to_owned())
    }
}

/// The output of one connection that is no MCP. The read loop writes it.
pub(crate) struct StrayOutput {
    settings: Arc<ServerSettings>,
    logged: Arc<LoggedLines>,
    /// At most one more than are kept, so that the excess is logged once.
    lines: Mutex<Vec<String>>,
    /// The server has sent our own `initialize` back.
    is_echo: AtomicBool,
}

impl StrayOutput {
    pub(crate) fn new(settings: Arc<ServerSettings>, logged: Arc<LoggedLines>) -> Arc<Self> {
        Arc::new(Self { settings, logged, lines: Mutex::default(), is_echo: AtomicBool::new(false) })
    }

    /// Records a line that is no valid message. A server may print any number of such lines; the log must not stall the
    /// read loop.
    pub(crate) fn add(&self, line: &[u8], reason: &str) {
        let (mut lines, server) = (self.lines(), &self.settings.name);
        match lines.len() {
            ..MAX_LINES => {
                let (text, bytes) = (self.show(line), line.len());
                match self.logged.insert(server, &text) {
                    true => {
                        warn!(%server, bytes, reason, text, "ignored a line on stdout that is not a valid message")
                    }
                    false => debug!(%server, bytes, reason, text, "ignored a line on stdout once more"),
                }
                lines.push(text);
            }
            MAX_LINES => {
                // No line is empty here: an empty one is the mark of this message.
                if self.logged.insert(server, "") {
                    warn!(%server, "ignoring further invalid lines without logging them");
                }
                lines.push(String::new());
            }
            _ => {}
        }
    }

    /// Records that a request arrived. No server sends `initialize`: one that does returns its input.
    pub(crate) fn on_request(&self, method: &str) {
        if method == "initialize" {
            self.is_echo.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn is_echo(&self) -> bool {
        self.is_echo.load(Ordering::Relaxed)
    }

    /// Returns the first line that is not empty.
    pub(crate) fn first_line(&self) -> Option<String> {
        self.lines().iter().find(|line| !line.is_empty()).cloned()
    }

    /// Returns the line without secrets and control characters.
    fn show(&self, line: &[u8]) -> String {
        // Only the beginning is needed, and a secret at its end must not be cut before it is found.
        let mut text = String::from_utf8_lossy(&line[..line.len().min(16 * MAX_CHARS)]).into_owned();
        secrets_of(&self.settings).hide(&mut text);
        excerpt(&text, MAX_CHARS)
    }

    fn lines(&self) -> MutexGuard<'_, Vec<String>> {
        self.lines.lock().expect("no code panics while it holds the lock")
    }
}
