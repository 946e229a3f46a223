//! The bodies of HTTP responses: one buffer, a stream of server-sent events, or a refusal.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep, sleep};
use tracing::warn;

use super::event_streams::EventStreamGuard;
use super::response_stream::{FrameReceiver, ResponseFrame};
use super::timed_socket::RequestGuard;
use crate::envelope::replace_line_breaks;
use crate::{Id, RpcError, error_response};

/// Events that are ready at the same time are sent in one chunk of about this size.
const CHUNK_BYTES: usize = 64 << 10;
/// The time that a refused client has to finish sending its request.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// The content of a response, and a guard that marks the connection as busy until the response is written.
pub(super) struct ResponseBody {
    content: ResponseContent,
    _guard: RequestGuard,
}

pub enum ResponseContent {
    Buffer(Bytes),
    /// Server-sent events.
    Events(Box<EventStream>),
    /// An error to a client that is still sending its request.
    Refusal(Box<RefusalBody>),
}

impl ResponseContent {
    pub(super) fn with_guard(self, guard: RequestGuard) -> ResponseBody {
        ResponseBody { content: self, _guard: guard }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let next = match &mut self.get_mut().content {
            ResponseContent::Buffer(bytes) if bytes.is_empty() => Poll::Ready(None),
            ResponseContent::Buffer(bytes) => Poll::Ready(Some(Ok(std::mem::take(bytes)))),
            ResponseContent::Events(events) => events.poll_chunk(cx),
            ResponseContent::Refusal(refusal) => refusal.poll_chunk(cx).map(|chunk| chunk.map(Ok)),
        };
        next.map(|chunk| chunk.map(|chunk| chunk.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            ResponseContent::Buffer(bytes) => bytes.is_empty(),
            ResponseContent::Events(events) => events.has_ended,
            ResponseContent::Refusal(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            ResponseContent::Buffer(bytes) => SizeHint::with_exact(bytes.len() as u64),
            ResponseContent::Events(_) | ResponseContent::Refusal(_) => SizeHint::default(),
        }
    }
}

/// The frames of a response stream as `text/event-stream`.
pub struct EventStream {
    receiver: FrameReceiver,
    /// The frame that was received before the response became a stream.
    first: Option<ResponseFrame>,
    /// The id of the request that must get a response before the stream ends.
    pending_request: Option<Box<str>>,
    keep_alive: Pin<Box<Sleep>>,
    interval: Duration,
    has_ended: bool,
    _guard: Option<EventStreamGuard>,
}

impl EventStream {
    /// Creates the response to a request. The stream ends with the response.
    pub(super) fn for_request(
        id: Box<str>,
        first: Option<ResponseFrame>,
        receiver: FrameReceiver,
        interval: Duration,
    ) -> Self {
        Self { first, pending_request: Some(id), ..Self::new(receiver, interval, None) }
    }

    /// Creates a stream that ends with its sender. `guard` is for a stream of messages that belong to no request.
    pub(super) fn new(receiver: FrameReceiver, interval: Duration, guard: Option<EventStreamGuard>) -> Self {
        let keep_alive = Box::pin(sleep(interval));
        Self {
            receiver,
            first: None,
            pending_request: None,
            keep_alive,
            interval,
            has_ended: false,
            _guard: guard,
        }
    }

    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        let mut text = Vec::new();
        while text.len() < CHUNK_BYTES && !self.has_ended {
            match self.poll_frame(cx) {
                Poll::Ready(Some(frame)) => self.write(&mut text, frame),
                Poll::Ready(None) if self.receiver.has_overflowed() => {
                    self.has_ended = true;
                    warn!("client disconnected: it reads too slowly");
                    return Poll::Ready(Some(Err(io::Error::other("the client reads too slowly"))));
                }
                Poll::Ready(None) => self.end(&mut text),
                Poll::Pending => break,
            }
        }
        if text.is_empty() && !self.has_ended {
            std::task::ready!(self.keep_alive.as_mut().poll(cx));
            text.extend_from_slice(b": keep-alive\n\n");
        }
        if text.is_empty() {
            return Poll::Ready(None);
        }
        self.keep_alive.as_mut().reset(Instant::now() + self.interval);
        Poll::Ready(Some(Ok(text.into())))
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<ResponseFrame>> {
        match self.first.take() {
            Some(first) => Poll::Ready(Some(first)),
            None => self.receiver.poll_next(cx),
        }
    }

    fn write(&mut self, text: &mut Vec<u8>, mut frame: ResponseFrame) {
        // A line break would end the data of the event.
        replace_line_breaks(&mut frame.bytes);
        text.reserve(frame.bytes.len() + 24);
        text.extend_from_slice(b"event: message\ndata: ");
        text.extend_from_slice(&frame.bytes);
        text.extend_from_slice(b"\n\n");
        self.has_ended |= frame.is_response;
    }

    /// Ends the stream after the host has dropped its side.
    fn end(&mut self, text: &mut Vec<u8>) {
        if let Some(id) = self.pending_request.take() {
            self.write(text, ResponseFrame { bytes: missing_response_error(&id), is_response: true });
        }
        self.has_ended = true;
    }
}

/// Returns the error response to a request whose stream the host dropped without a response.
pub(super) fn missing_response_error(id: &str) -> Vec<u8> {
    let id = Id::from_json(id).unwrap_or(Id::NULL);
    error_response(id, RpcError::CONNECTION_CLOSED, "the request ended without a response")
}

/// Sends the error at once, then reads and discards the rest of the request, within bounds. A client that writes its whole
/// request before it reads would otherwise find the connection reset and never see the error.
pub struct RefusalBody {
    error: Option<Bytes>,
    request: Incoming,
    remaining_bytes: usize,
    deadline: Pin<Box<Sleep>>,
}

impl RefusalBody {
    pub(super) fn new(error: Vec<u8>, request: Incoming, max_bytes: usize) -> Self {
        let deadline = Box::pin(sleep(DRAIN_TIMEOUT));
        Self { error: Some(error.into()), request, remaining_bytes: max_bytes, deadline }
    }

    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(error) = self.error.take() {
            return Poll::Ready(Some(error));
        }
        loop {
            match Pin::new(&mut self.request).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    let length = frame.data_ref().map_or(0, Bytes::len);
                    let Some(left) = self.remaining_bytes.checked_sub(length) else {
                        return Poll::Ready(None);
                    };
                    self.remaining_bytes = left;
                }
                Poll::Ready(_) => return Poll::Ready(None),
                Poll::Pending => return self.deadline.as_mut().poll(cx).map(|()| None),
            }
        }
    }
}
