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
    Answered(RpcError),
    /// The response exceeds the size limit. Not `certain` if its id could not be found: it may belong to another request.
    #[error("{} longer than {limit} bytes", if *.certain { "the response is" } else { "a response, perhaps to this call, was" })]
    TooLong { limit: usize, certain: bool },
    /// The response has an id but is not valid JSON-RPC.
    #[error("the response is not valid JSON-RPC")]
    Garbled,
    /// The connection failed.
    #[error("{cause}")]
    Broken { delivery: Delivery, cause: Arc<TransportError> },
}

impl Failure {
    /// Tells whether the server got the request.
    pub fn delivery(&self) -> Delivery {
        match self {
            Failure::Answered(_) | Failure::Garbled | Failure::TooLong { certain: true, .. } => {
                Delivery::Answered
            }
            Failure::TooLong { certain: false, .. } => Delivery::Unknown,
            Failure::Broken { delivery, .. } => *delivery,
        }
    }

    pub fn transport_error(&self) -> Option<&TransportError> {
        match self {
            Failure::Broken { cause, .. } => Some(cause),
            _ => None,
        }
    }

    pub(crate) fn not_sent(cause: impl Into<Arc<TransportError>>) -> Self {
        Failure::Broken { delivery: Delivery::NotSent, cause: cause.into() }
    }
}

/// The failure of a connection, or of a single HTTP request.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    #[error("could not start `{program}`: {reason}")]
    Spawn { program: String, reason: io::Error },
    #[error("the server's process ended ({0})")]
    Exited(Exit),
    /// The process runs but closed its stdout.
    #[error("the server closed its output")]
    OutputClosed,
    #[error("could not exchange data with the server's process: {0}")]
    Pipe(io::Error),
    #[error("the server does not read its input ({waiting} bytes are waiting)")]
    Stalled { waiting: usize },
    /// This side closed the connection.
    #[error("the connection is closed")]
    Closed,
    #[error("could not connect to {url}: {reason}")]
    Connect { url: String, reason: String },
    #[error("the HTTP exchange with {url} broke off: {reason}")]
    Cut { url: String, reason: String },
    /// Redirects are not followed, because the headers may hold credentials.
    #[error(
        "{url} redirects (HTTP {status}) to {location}: redirects are not followed, configure that address"
    )]
    Redirect { url: String, status: u16, location: String },
    #[error("{url} needs authorisation (HTTP 401{challenge}): set an `Authorization` header for this server")]
    Unauthorised { url: String, challenge: String },
    #[error("{url} no longer knows this session (HTTP 404)")]
    SessionLost { url: String },
    /// Any other HTTP error.
    #[error("{url} answered HTTP {status}{body}")]
    Status { url: String, status: u16, body: String },
    #[error("{url} does not answer as an MCP server: {reason}")]
    NotMcp { url: String, reason: String },
    /// HTTP+SSE: the endpoint is on another server, which would get our headers.
    #[error("{url} names the endpoint {endpoint}, which is on another server: messages are not sent there")]
    ForeignEndpoint { url: String, endpoint: String },
    /// The server supports neither Streamable HTTP nor HTTP+SSE.
    #[error("{http}; HTTP+SSE failed, too: {sse}")]
    Neither { http: Box<Failure>, sse: Box<TransportError> },
}

impl TransportError {
    /// Returns true for a failure of the network or the process, after which another attempt may succeed.
    pub fn is_network(&self) -> bool {
        use TransportError::*;
        match self {
            Exited(_) | OutputClosed | Pipe(_) | Stalled { .. } | Connect { .. } | Cut { .. } => true,
            Status { status, .. } => matches!(status, 502..=504),
            Neither { sse, .. } => sse.is_network(),
            _ => false,
        }
    }

    /// Tells whether the server got a request that failed with this.
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

/// The exit status of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exit {
    pub code: Option<i32>,
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
    fn displays_exit_status() {
        assert_eq!(Exit { code: Some(3), signal: None }.to_string(), "exit code 3");
        assert_eq!(Exit { code: None, signal: Some(9) }.to_string(), "signal 9, SIGKILL");
        assert_eq!(Exit { code: None, signal: Some(64) }.to_string(), "signal 64");
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
        assert_eq!(Failure::TooLong { limit: 1, certain: false }.delivery(), Delivery::Unknown);
        assert_eq!(Failure::Garbled.delivery(), Delivery::Answered);
    }
}
