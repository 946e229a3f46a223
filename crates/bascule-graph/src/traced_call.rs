//! A finished call, as the graph observes it.

use std::sync::Arc;

use crate::Fingerprint;

/// The session of a call. Calls of different sessions have no relation.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CallSession {
    /// An MCP client, by a number that is unique in the process.
    Client(u64),
    /// An agent on the bus.
    Agent(Arc<str>),
    /// A script that no session has started, by its span.
    Script(u64),
    /// The call alone.
    Single,
}

/// One finished call. It holds no argument and no result, only fingerprints of some of their values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracedCall {
    /// The span of the call. A span that is observed twice in a short time counts once.
    pub span: u64,
    /// The span of the script that made the call. The span of a client is no script.
    pub script: Option<u64>,
    pub session: CallSession,
    /// The tool as `server:tool`.
    pub tool: Arc<str>,
    /// Microseconds since 1970.
    pub started_at: i64,
    /// Microseconds since 1970.
    pub ended_at: i64,
    /// The tool returned a result that reports no failure.
    pub success: bool,
    /// Fingerprints of the arguments.
    pub given: Vec<Fingerprint>,
    /// Fingerprints of the result.
    pub returned: Vec<Fingerprint>,
}
