//! Who answers what clients say.

use std::sync::Arc;

use super::ResponseStream;
use crate::{Message, MessageError};

/// What a client has come to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// All servers as one: `/mcp`.
    All,
    /// One server by its name: `/servers/{name}/mcp`.
    Server(String),
}

/// A message that has been read, and the line that it stands in.
#[derive(Debug)]
pub struct ClientMessage<'a> {
    /// The whole of it.
    pub frame: &'a [u8],
    /// What it is.
    pub message: Message<'a>,
    /// What stands in it that JSON-RPC does not know (see [`Message::parse_with_more`]).
    pub more: Option<String>,
}

impl<'a> ClientMessage<'a> {
    /// Reads it. Line breaks in it must have been taken out.
    pub fn read(frame: &'a [u8]) -> Result<Self, MessageError> {
        Message::parse_with_more(frame).map(|(message, more)| Self { frame, message, more })
    }
}

/// Answers. There is one per program; it is called from many tasks at once, and only [`begin`](Host::begin) may wait.
pub trait Host: Send + Sync + 'static {
    /// A client wants to begin with this `initialize` request, which is one line and has been read once. The answer, or the
    /// error, is finished on the lane. Returns the id of the session that was begun, in visible ASCII; none if there is
    /// none.
    fn begin(
        self: &Arc<Self>,
        endpoint: Endpoint,
        frame: Vec<u8>,
        lane: ResponseStream,
    ) -> impl Future<Output = Option<String>> + Send;

    /// One message of a session. A request's answer is finished on the lane, after what is to be said before it.
    /// For notifications and answers the lane means nothing. False if there is no such session at this endpoint.
    fn deliver(
        self: &Arc<Self>,
        endpoint: &Endpoint,
        session: &str,
        said: ClientMessage<'_>,
        lane: ResponseStream,
    ) -> bool;

    /// A new lane for what is said unasked. It is closed when the client leaves, or asks for another one.
    /// None if there is no such session.
    fn listen(self: &Arc<Self>, endpoint: &Endpoint, session: &str) -> Option<ResponseStream>;

    /// The client is done. False if there is no such session.
    fn end(self: &Arc<Self>, endpoint: &Endpoint, session: &str) -> bool;
}
