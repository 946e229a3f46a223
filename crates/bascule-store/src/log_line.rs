//! A line that a server has written: to its stderr, or as a log message of MCP.

use std::sync::Arc;

use crate::span::stored_enum;

/// Longer texts are cut.
pub(crate) const MAX_TEXT: usize = 2 << 10;

stored_enum! {
    /// The way of a line to the bridge.
    LogSource {
        /// The stderr of the server's process.
        Stderr = "stderr",
        /// `notifications/message`.
        Mcp = "mcp",
        /// A note of the bridge, such as the number of lines that it has left out.
        Bridge = "bridge",
    }
}

/// One line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    pub server: Arc<str>,
    /// Microseconds since 1970.
    pub at: i64,
    pub source: LogSource,
    /// The level of a log message, such as `warning`.
    pub level: Option<String>,
    pub text: String,
}
