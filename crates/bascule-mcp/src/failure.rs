//! How a request can fail, and what is known about it then.

use std::fmt;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;

use bascule_model::Delivery;

use crate::RpcError;

/// A request that got no result.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Failure {
    /// The server answered, with an error.
    #[error(transparent)]
    Answered(RpcError),
    /// The answer was longer than a message may be. Uncertain: one such came, and nobody knows whose it was.
    #[error("{} longer than {limit} bytes", if *.certain { "the answer is" } else { "an answer, perhaps to this call, was" })]
    TooLong { limit: usize, certain: bool },
    /// The answer's id could be found, but the answer is no JSON-RPC.
    #[error("the answer is not valid JSON-RPC")]
    Garbled,
    /// Something between us and the server broke.
    #[error("{why}")]
    Broken { delivery: Delivery, why: Arc<TransportError> },
}

impl Failure {
    /// How far the request got.
    pub fn delivery(&self) -> Delivery {
        match self {
            Failure::Answered(_) | Failure::Garbled | Failure::TooLong { certain: true, .. } => {
                Delivery::Answered
            }
            Failure::TooLong { certain: false, .. } => Delivery::Unknown,
            Failure::Broken { delivery, .. } => *delivery,
        }
    }

    /// What broke, where something did.
    pub fn transport(&self) -> Option<&TransportError> {
        match self {
            Failure::Broken { why, .. } => Some(why),
            _ => None,
        }
    }

    pub(crate) fn not_sent(why: impl Into<Arc<TransportError>>) -> Self {
        Failure::Broken { delivery: Delivery::NotSent, why: why.into() }
    }
}

/// What happened to a connection, or to one request on its way.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The server's program could not be started.
    #[error("could not start `{program}`: {reason}")]
    Spawn { program: String, reason: io::Error },
    /// The server's process is gone.
    #[error("the server's process ended ({0})")]
    Exited(Exit),
    /// The process lives but will not say anything any more.
    #[error("the server closed its output")]
    OutputClosed,
    /// A pipe failed.
    #[error("could not exchange data with the server's process: {0}")]
    Pipe(io::Error),
    /// The server has not read what was written to it for too long.
    #[error("the server does not read its input ({waiting} bytes are waiting)")]
    Stalled { waiting: usize },
    /// We closed it.
    #[error("the connection is closed")]
    Closed,
    /// Nobody answered at the address.
    #[error("could not connect to {url}: {reason}")]
    Connect { url: String, reason: String },
    /// The HTTP exchange broke off.
    #[error("the HTTP exchange with {url} broke off: {reason}")]
    Cut { url: String, reason: String },
    /// The server wants us elsewhere. Credentials are not carried there unasked.
    #[error(
        "{url} redirects (HTTP {status}) to {location}: redirects are not followed, configure that address"
    )]
    Redirect { url: String, status: u16, location: String },
    /// The server wants to know who we are.
    #[error("{url} needs authorisation (HTTP 401{challenge}): set an `Authorization` header for this server")]
    Unauthorised { url: String, challenge: String },
    /// The server has forgotten our session.
    #[error("{url} no longer knows this session (HTTP 404)")]
    SessionLost { url: String },
    /// Any other HTTP failure.
    #[error("{url} answered HTTP {status}{body}")]
    Status { url: String, status: u16, body: String },
    /// Something is there, but it does not speak MCP.
    #[error("{url} does not answer as an MCP server: {what}")]
    NotMcp { url: String, what: String },
    /// The server wants messages posted to somebody else, who would get our headers with them.
    #[error("{url} wants messages sent to {endpoint}, which is another server: they are not carried there")]
    ForeignEndpoint { url: String, endpoint: String },
    /// The server speaks neither Streamable HTTP nor the older HTTP+SSE.
    #[error("{http}; nor does the older HTTP+SSE work: {sse}")]
    Neither { http: Box<Failure>, sse: Box<TransportError> },
}

impl TransportError {
    /// Whether this was the network's doing: another attempt may meet a better one.
    pub fn is_network(&self) -> bool {
        use TransportError::*;
        match self {
            Exited(_) | OutputClosed | Pipe(_) | Stalled { .. } | Connect { .. } | Cut { .. } => true,
            Status { status, .. } => matches!(status, 502..=504),
            Neither { sse, .. } => sse.is_network(),
            _ => false,
        }
    }

    /// How far a request got that met this.
    pub(crate) fn delivery(&self) -> Delivery {
        use TransportError::*;
        match self {
            Spawn { .. } | Stalled { .. } | Connect { .. } | SessionLost { .. } => Delivery::NotSent,
            ForeignEndpoint { .. } | Neither { .. } => Delivery::NotSent,
            Redirect { .. } | Unauthorised { .. } => Delivery::Answered,
            Status { status, .. } if *status < 500 => Delivery::Answered,
            _ => Delivery::Unknown,
        }
    }
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exit {
    /// The code it returned, if it returned.
    pub code: Option<i32>,
    /// The signal that ended it, if one did.
    pub signal: Option<i32>,
}

impl From<ExitStatus> for Exit {
    fn from(status: ExitStatus) -> Self {
        Self { code: status.code(), signal: status.signal() }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.code, self.signal) {
            (Some(code), _) => write!(f, "exit code {code}"),
            (None, Some(signal)) => match signal_name(signal) {
                Some(name) => write!(f, "signal {signal}, {name}"),
                None => write!(f, "signal {signal}"),
            },
            (None, None) => f.write_str("unknown status"),
        }
    }
}

fn signal_name(signal: i32) -> Option<&'static str> {
    const NAMES: [(i32, &str); 11] = [
        (1, "SIGHUP"),
        (2, "SIGINT"),
        (3, "SIGQUIT"),
        (4, "SIGILL"),
        (6, "SIGABRT"),
        (8, "SIGFPE"),
        (9, "SIGKILL"),
        (11, "SIGSEGV"),
        (13, "SIGPIPE"),
        (15, "SIGTERM"),
        (31, "SIGSYS"),
    ];
    NAMES.iter().find(|(number, _)| *number == signal).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_told_in_words() {
        assert_eq!(Exit { code: Some(3), signal: None }.to_string(), "exit code 3");
        assert_eq!(Exit { code: None, signal: Some(9) }.to_string(), "signal 9, SIGKILL");
        assert_eq!(Exit { code: None, signal: Some(64) }.to_string(), "signal 64");
    }

    // req: BR-05
    #[test]
    fn delivery_is_what_can_be_known() {
        let url = || "http://h/".to_owned();
        let status = |status| TransportError::Status { url: url(), status, body: String::new() };
        assert_eq!(TransportError::Connect { url: url(), reason: "".into() }.delivery(), Delivery::NotSent);
        assert_eq!(status(400).delivery(), Delivery::Answered);
        assert_eq!(status(500).delivery(), Delivery::Unknown);
        assert_eq!(TransportError::OutputClosed.delivery(), Delivery::Unknown);
        assert_eq!(Failure::TooLong { limit: 1, certain: false }.delivery(), Delivery::Unknown);
        assert_eq!(Failure::Garbled.delivery(), Delivery::Answered);
    }
}
