//! The side that is spoken to: Streamable HTTP and stdio, for clients of the revisions that have sessions.
//!
//! Knows the wire and its rules, not what the messages mean: a message's envelope is read here, once, and goes to a
//! [`Host`] with the line it stands in ([`Said`]); what the host has to say comes back on a [`Lane`].
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
mod lane;
mod refusal;
mod stdio;
mod wire;

#[cfg(test)]
mod tests;

pub use admission::{Admitted, Peers};
pub use host::{Host, Place, Said};
pub use http::HttpFace;
pub use lane::{Frame, Lane};
pub use stdio::StdioFace;
