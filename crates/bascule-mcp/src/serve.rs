//! The side that is spoken to: Streamable HTTP and stdio, for clients of the revisions that have sessions.
//!
//! Knows the wire and its rules, not what the messages mean: a message's envelope is read here, once, and goes to a
//! [`Host`] with the line it stands in ([`ClientMessage`]); what the host has to say comes back on a [`ResponseStream`].
//!
//! Reading order: `host` is who answers, `lane` what answers travel on; `http` takes connections, `wire` is the
//! socket with its deadlines, `exchange` turns one request into one response with the help of `admission` (who
//! may, by what it says), `caller` (who may, by who it is), `inbound` (the request's body) and `body` (the response's);
//! `stdio` is the other way in.

mod admission;
mod body;
mod caller;
mod exchange;
mod host;
mod http;
mod inbound;
mod refusal;
mod response_stream;
mod stdio;
mod wire;

#[cfg(test)]
mod tests;

pub use admission::{Admitted, Peers};
pub use host::{ClientMessage, Endpoint, Host};
pub use http::HttpFace;
pub use response_stream::{Frame, ResponseStream};
pub use stdio::StdioFace;
