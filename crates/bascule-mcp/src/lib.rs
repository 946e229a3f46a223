//! The MCP wire protocol, lossless.
//!
//! A message is parsed only as far as needed: its id, its method, and whether it is a response. Everything else stays raw
//! bytes (`RawValue`), so nothing unknown is lost and nothing unneeded is decoded. The crates above deal with the meaning
//! of messages (tools, calls, retries).
//!
//! Reading order: [`Message`] is a JSON-RPC message, [`ProtocolVersion`] a version of MCP; `line` and `sse` split bytes
//! into messages, a `Transport` carries them, and a `Connection` matches responses to requests. The bridge (the
//! program `bascule`) changes single fields of a message with [`patch`], for example names and URIs to those of a
//! [`QualifiedIndex`].
//!
//! The feature `client` connects to servers. The feature `server` accepts clients over HTTP and stdio and passes their
//! messages to a `Host`.

mod call_params;
mod envelope;
mod json_check;
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
mod http_sse;
#[cfg(any(feature = "client", feature = "server"))]
mod large;
#[cfg(any(feature = "client", feature = "server"))]
mod line;
#[cfg(feature = "client")]
mod pacer;
#[cfg(feature = "client")]
mod router;
#[cfg(any(feature = "client", feature = "server"))]
mod scan;
#[cfg(feature = "server")]
mod serve;
#[cfg(feature = "client")]
mod sse;
#[cfg(feature = "client")]
mod stdin_queue;
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

pub use call_params::CallParams;
pub use envelope::{
    Id, Message, MessageError, RpcError, error_response, error_response_from, notification, request,
    request_with_id, success_response, success_response_owned, with_extra_members,
};
pub use names::{QualifiedIndex, QualifiedNames};
pub use uris::{parse_qualified_uri, qualify_uri};
pub use version::{ProtocolVersion, UnknownVersion};

#[cfg(feature = "client")]
pub use connection::{Connection, PendingEvent, PendingRequest};
#[cfg(feature = "client")]
pub use failure::{Failure, ProcessExit, TransportError};
#[cfg(feature = "grpc")]
pub use http::{GrpcClient, GrpcError};
#[cfg(feature = "client")]
pub use http::{HttpEndpoint, InvalidEndpoint, PostClient, redact_url};
#[cfg(any(feature = "client", feature = "server"))]
pub use large::{is_large, may_walk, run_large, spawn_large};
#[cfg(feature = "client")]
pub use router::{Listener, OnProgress, RequestHandler, RequestResult, ServerMessage, Unsolicited};
#[cfg(feature = "server")]
pub use serve::{
    AccessPolicy, ClientMessage, Endpoint, Host, HttpError, HttpServer, PeerId, PeerPredicate,
    ResponseContent, ResponseStream, RouteAccess, RouteFuture, RouteRequest, Router, StdioServer, TextPage,
    TraceHeaders,
};
#[cfg(feature = "client")]
pub use stdio::{ProcessGuard, ShutdownTimeouts, StderrSink, StdioChild};
#[cfg(feature = "client")]
pub use transport::{MemoryServer, Transport};

/// The default size limit of a message, in bytes.
pub const DEFAULT_MESSAGE_LIMIT: usize = 64 << 20;
