//! The log levels of MCP.

/// The severity of a log message, least severe first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LoggingLevel {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

impl LoggingLevel {
    /// The level of a server that no client has asked for another one.
    pub(crate) const DEFAULT: Self = Self::Info;

    const NAMES: [(&'static str, LoggingLevel); 8] = [
        ("debug", LoggingLevel::Debug),
        ("info", LoggingLevel::Info),
        ("notice", LoggingLevel::Notice),
        ("warning", LoggingLevel::Warning),
        ("error", LoggingLevel::Error),
        ("critical", LoggingLevel::Critical),
        ("alert", LoggingLevel::Alert),
        ("emergency", LoggingLevel::Emergency),
    ];

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(name, _)| *name == text).map(|(_, level)| *level)
    }

    /// Returns the parameters of `logging/setLevel`.
    pub(crate) fn to_params(self) -> String {
        let name = Self::NAMES.iter().find(|(_, level)| *level == self).map_or("debug", |(name, _)| name);
        format!(r#"{{"level":"{name}"}}"#)
    }
}
