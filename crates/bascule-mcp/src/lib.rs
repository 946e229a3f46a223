//! The MCP wire, lossless.
//!
//! A message is read only as far as it must be: its id, its method, and whether it is an answer. Everything
//! else stays the bytes it was (`RawValue`), so nothing is lost that we do not know, and nothing is paid for
//! that nobody asks. What the messages *mean* (tools, calls, retries) is left to those above.
//!
//! Reading order: [`Message`] is an envelope, [`ProtocolVersion`] which dialect, `line` and `sse` cut bytes
//! into messages, a `Transport` carries them, and a `Connection` matches answers to requests. Who passes a
//! message on changes single fields of it with [`patch`]: with what [`QualifiedNames`] and [`QualifiedUris`] return.
//!
//! The feature `client` is the side that speaks to servers. `server` is the side that is spoken to: a `Host`
//! answers what comes in over `HttpServer` or `StdioServer`.
//!
//! Not here yet, and where it will go: the era of 2026-07-28 beside `version`.

mod envelope;
mod names;
pub mod patch;
mod uris;
mod version;

#[cfg(feature = "client")]
mod connection;
#[cfg(feature = "client")]
mod failure;
#[cfg(feature = "client")]
mod http;
#[cfg(feature = "client")]
mod http_or_sse;
#[cfg(feature = "client")]
mod legacy;
#[cfg(any(feature = "client", feature = "server"))]
mod line;
#[cfg(feature = "client")]
mod outbox;
#[cfg(feature = "client")]
mod router;
#[cfg(any(feature = "client", feature = "server"))]
mod scan;
#[cfg(feature = "server")]
mod serve;
#[cfg(feature = "client")]
mod sse;
#[cfg(feature = "client")]
mod stdio;
#[cfg(feature = "client")]
mod tail;
#[cfg(feature = "client")]
mod transport;

#[cfg(feature = "client")]
#[cfg(test)]
mod fuzz;
#[cfg(feature = "client")]
#[cfg(test)]
mod testing;

pub use envelope::{
    Id, Message, MessageError, RpcError, error_response, notification, request, request_with_id,
    success_response, success_response_from, with_extras,
};
pub use names::{LONGEST_NAME, QualifiedNames};
pub use uris::{QualifiedUris, parse_qualified_uri, qualify_uri};
pub use version::{ProtocolVersion, UnknownVersion};

#[cfg(feature = "client")]
pub use connection::{Connection, PendingEvent, PendingRequest};
#[cfg(feature = "client")]
pub use failure::{Exit, Failure, TransportError};
#[cfg(feature = "client")]
pub use http::{HttpEndpoint, InvalidEndpoint, redact_url};
#[cfg(feature = "client")]
pub use router::{Listener, OnProgress, RequestHandler, RequestResult, ServerMessage, Unsolicited};
#[cfg(feature = "server")]
pub use serve::{
    AccessPolicy, ClientMessage, Endpoint, Host, HttpError, HttpServer, PeerPredicate, ResponseContent,
    ResponseStream, RouteAccess, RouteFuture, RouteRequest, Router, StdioServer,
};
#[cfg(feature = "client")]
pub use stdio::{Grace, Lifeline, StdioChild};
#[cfg(feature = "client")]
pub use transport::{MemoryServer, Transport};

/// The longest message taken from the other side, unless configured otherwise.
pub const DEFAULT_MESSAGE_LIMIT: usize = 64 << 20;
