//! The failures of requests and connections.

use std::fmt;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;

use bascule_model::Delivery;

use crate::RpcError;

/// The failure of a request.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Failure {
    /// The server responded with an error.
    #[error(transparent)]
    ErrorResponse(RpcError),
    /// A response exceeds the size limit.
    #[error("{} is longer than {limit} bytes", if *.is_matched { "the response" } else { "a response that may belong to this request" })]
    TooLong {
        limit: usize,
        /// True if the response has the id of this request. False if its id was not found: it may belong to another request.
        is_matched: bool,
    },
    /// The response has an id but is not valid JSON-RPC.
    #[error("the response is not valid JSON-RPC")]
    InvalidResponse,
    /// The transport failed.
    #[error("{cause}")]
    Transport { delivery: Delivery, cause: Arc<TransportError> },
}

impl Failure {
    /// Returns how far the request got.
    pub fn delivery(&self) -> Delivery {
        match self {
            Failure::ErrorResponse(_)
            | Failure::InvalidResponse
            | Failure::TooLong { is_matched: true, .. } => Delivery::Answered,
            Failure::TooLong { is_matched: false, .. } => Delivery::Unknown,
            Failure::Transport { delivery, .. } => *delivery,
        }
    }

    /// Returns the error of the transport, if that is the failure.
    pub fn transport_error(&self) -> Option<&TransportError> {
        match self {
            Failure::Transport { cause, .. } => Some(cause),
            _ => None,
        }
    }

    pub(crate) fn not_sent(cause: impl Into<Arc<TransportError>>) -> Self {
        Failure::Transport { delivery: Delivery::NotSent, cause: cause.into() }
    }
}

/// The failure of a connection or of one HTTP request.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    #[error("could not start `{program}`: {reason}")]
    Spawn { program: String, reason: io::Error },
    #[error("the server's process ended ({0})")]
    Exited(ProcessExit),
    /// The process runs but closed its stdout.
    #[error("the server closed its output")]
    OutputClosed,
    #[error("could not exchange data with the server's process: {0}")]
    Pipe(io::Error),
    #[error("the server does not read its input ({queued_bytes} bytes are queued)")]
    Stalled { queued_bytes: usize },
    /// This side closed the connection.
    #[error("the connection is closed")]
    Closed,
    #[error("could not connect to {url}: {reason}")]
    Connect { url: String, reason: String },
    #[error("the HTTP exchange with {url} was interrupted: {reason}")]
    Interrupted { url: String, reason: String },
    /// Redirects are not followed, because the headers may hold credentials.
    #[error(
        "{url} redirects (HTTP {status}) to {location}: redirects are not followed, configure that address"
    )]
    Redirect { url: String, status: u16, location: String },
    #[error("{url} needs authorisation (HTTP 401{challenge}): set an `Authorization` header for this server")]
    Unauthorised { url: String, challenge: String },
    #[error("the session at {url} has expired (HTTP 404)")]
    SessionExpired { url: String },
    /// Any other HTTP error.
    #[error("{url} responded with HTTP {status}{body}")]
    Status { url: String, status: u16, body: String },
    #[error("{url} does not respond as an MCP server: {reason}")]
    NotMcp { url: String, reason: String },
    /// HTTP+SSE: the endpoint has another origin, which would get our headers.
    #[error("{url} announces the endpoint {endpoint}, which has another origin: messages are not sent there")]
    CrossOriginEndpoint { url: String, endpoint: String },
    /// Streamable HTTP failed, and then HTTP+SSE, too.
    #[error("{http}; HTTP+SSE failed, too: {sse}")]
    BothHttpTransports { http: Box<Failure>, sse: Box<TransportError> },
}

impl TransportError {
    /// Returns true if another attempt may succeed: the network or the process failed, or a proxy reported that.
    pub fn is_transient(&self) -> bool {
        use TransportError::*;
        match self {
            Exited(_) | OutputClosed | Pipe(_) | Stalled { .. } | Connect { .. } | Interrupted { .. } => true,
            Status { status, .. } => matches!(status, 502..=504),
            BothHttpTransports { sse, .. } => sse.is_transient(),
            _ => false,
        }
    }

    /// Returns how far a request got that failed with this error.
    pub(crate) fn delivery(&self) -> Delivery {
        use TransportError::*;
        match self {
            Spawn { .. } | Stalled { .. } | Connect { .. } | SessionExpired { .. } => Delivery::NotSent,
            CrossOriginEndpoint { .. } | BothHttpTransports { .. } => Delivery::NotSent,
            Redirect { .. } | Unauthorised { .. } => Delivery::Answered,
            Status { status, .. } if *status < 500 => Delivery::Answered,
            _ => Delivery::Unknown,
        }
    }
}

/// The exit status of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessExit {
    pub code: Option<i32>,
    pub signal: Option<i32>,
}

impl From<ExitStatus> for ProcessExit {
    fn from(status: ExitStatus) -> Self {
        Self { code: status.code(), signal: status.signal() }
    }
}

impl fmt::Display for ProcessExit {
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
    fn displays_exit_status() {
        assert_eq!(ProcessExit { code: Some(3), signal: None }.to_string(), "exit code 3");
        assert_eq!(ProcessExit { code: None, signal: Some(9) }.to_string(), "signal 9, SIGKILL");
        assert_eq!(ProcessExit { code: None, signal: Some(64) }.to_string(), "signal 64");
    }

    // req: BR-05
    #[test]
    fn derives_delivery_from_the_error() {
        let url = || "http://h/".to_owned();
        let status = |status| TransportError::Status { url: url(), status, body: String::new() };
        assert_eq!(TransportError::Connect { url: url(), reason: "".into() }.delivery(), Delivery::NotSent);
        assert_eq!(status(400).delivery(), Delivery::Answered);
        assert_eq!(status(500).delivery(), Delivery::Unknown);
        assert_eq!(TransportError::OutputClosed.delivery(), Delivery::Unknown);
        assert_eq!(Failure::TooLong { limit: 1, is_matched: false }.delivery(), Delivery::Unknown);
        assert_eq!(Failure::InvalidResponse.delivery(), Delivery::Answered);
    }
}
