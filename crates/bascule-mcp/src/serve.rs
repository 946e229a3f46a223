//! The serving side of MCP over Streamable HTTP and stdio, for clients of the revisions that have sessions.
//!
//! This module applies the rules of the transport. It parses the envelope of each message once and passes the message to a
//! [`Host`] with the client that sent it. The host responds on a [`ResponseStream`].
//!
//! Reading order: `host` is the interface, `response_stream` carries responses. `http_server` accepts connections
//! (`timed_socket` has their deadlines, `connections` those that make room), `service` handles one request: it finds the route (`router`), checks access
//! (`access`, `peer_check`) and runs the handler. `streamable_http` has the handlers of MCP, with `body_reader` for requests,
//! `response_body` and `event_streams` for responses, `http_error` for refusals. `stdio` serves one client on a pair of pipes.

mod access;
mod body_reader;
mod connections;
mod event_streams;
mod host;
mod http_error;
mod http_server;
mod peer_check;
mod peer_id;
mod response_body;
mod response_stream;
mod router;
mod service;
mod slow_response_timer;
mod stdio;
mod streamable_http;
mod timed_socket;

#[cfg(test)]
mod tests;

pub use access::{AccessPolicy, PeerPredicate};
pub use host::{ClientMessage, Endpoint, Host, TraceHeaders};
pub use http_error::HttpError;
pub use http_server::HttpServer;
pub use peer_id::PeerId;
pub use response_body::ResponseContent;
pub use response_stream::ResponseStream;
pub use router::{RouteAccess, RouteFuture, RouteRequest, Router, TextPage};
pub use stdio::StdioServer;
