//! The interface between the serving side and the program that handles the messages of clients.

use std::sync::Arc;

use bascule_model::are_confusable;

use super::{PeerId, ResponseStream};
use crate::call_params::refuse_lookalikes;
use crate::{Message, MessageError, envelope};

/// The address that a client talks to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// All servers merged: `/mcp`.
    All,
    /// One server by its name: `/servers/{name}/mcp`.
    Server(String),
}

/// A parsed message of a client, and its bytes.
#[derive(Debug)]
pub struct ClientMessage<'a> {
    /// The whole message.
    pub frame: &'a [u8],
    /// The parsed envelope.
    pub message: Message<'a>,
    /// The members that JSON-RPC does not define (see [`Message::parse_with_extra_members`]).
    pub extra_members: Option<String>,
    /// The trace that the headers of an HTTP request name.
    pub trace: Option<Box<TraceHeaders>>,
}

/// The W3C trace context and baggage in the headers of an HTTP request, unchecked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TraceHeaders {
    /// `traceparent`.
    pub parent: Option<String>,
    /// `tracestate`, its lines joined.
    pub state: Option<String>,
    /// `baggage`, its lines joined.
    pub baggage: Option<String>,
}

impl<'a> ClientMessage<'a> {
    /// Parses a message that contains no line breaks. Refuses members that a decoder may take for those of JSON-RPC: extra
    /// members reach the server. Refuses unusual methods for the same reason.
    pub fn parse(frame: &'a [u8]) -> Result<Self, MessageError> {
        let (message, extra_members) = Message::parse_with_extra_members(frame)?;
        if let Some(members) = &extra_members {
            refuse_lookalikes(members, &envelope::JSONRPC_MEMBERS).map_err(MessageError::Ambiguous)?;
        }
        if let Message::Request { method, .. } | Message::Notification { method, .. } = &message
            && (!method.chars().all(|letter| letter.is_ascii_graphic())
                || are_confusable(method, "tools/call"))
        {
            let method = method.escape_debug();
            return Err(MessageError::Ambiguous(format!("the method `{method}` may be read as another one")));
        }
        Ok(Self { frame, message, extra_members, trace: None })
    }
}

/// Handles the messages of clients. Many tasks call it at once, and only [`initialize`](Host::initialize) may wait.
///
/// The serving side resolves the sender of each message into a `Client` and passes it along. A session is one way to find a
/// client; the messages themselves do not assume one.
pub trait Host: Send + Sync + 'static {
    /// The context of a client: its identity, its capabilities, and the streams to it.
    type Client: Send + Sync;

    /// Starts a session with this `initialize` request, which has been parsed once and is one line. The host finishes the
    /// stream with the response. Returns the id of the new session, in visible ASCII, or `None` if it was refused.
    fn initialize(
        self: &Arc<Self>,
        endpoint: Endpoint,
        sender: PeerId,
        request: Vec<u8>,
        stream: ResponseStream,
    ) -> impl Future<Output = Option<String>> + Send;

    /// Returns the client of a session at this endpoint.
    fn find_session(&self, endpoint: &Endpoint, session: &str) -> Option<Arc<Self::Client>>;

    /// Takes one message of a client. For a request, the host pushes related messages onto the stream and finishes it with
    /// the response. For notifications and responses the stream is unused.
    fn deliver(
        self: &Arc<Self>,
        client: Arc<Self::Client>,
        message: ClientMessage<'_>,
        stream: ResponseStream,
    );

    /// Opens a stream for messages that belong to no request of the client. It is closed when the client goes, or opens
    /// another one.
    fn open_stream(self: &Arc<Self>, client: &Arc<Self::Client>) -> ResponseStream;

    /// Ends a session at the client's request. Returns false if it does not exist.
    fn end_session(self: &Arc<Self>, endpoint: &Endpoint, session: &str) -> bool;
}
