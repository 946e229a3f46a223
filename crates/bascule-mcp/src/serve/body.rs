//! What a response consists of: nothing, one answer, a stream of events, or a refusal that hears the client out.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame as Piece, Incoming, SizeHint};
use tokio::time::{Instant, Sleep, sleep};
use tracing::warn;

use super::exchange::Listening;
use super::response_stream::{Frame, Reader};
use super::wire::Busy;
use crate::envelope::one_line;
use crate::{Id, RpcError, error_response};

/// Small events that are there at the same time travel together, up to about this size.
const TOGETHER: usize = 64 << 10;
/// How long, and how much, a client that is refused may go on sending.
const HEARD_OUT_FOR: Duration = Duration::from_secs(5);

pub(super) struct Outgoing {
    content: Content,
    /// Dropped with the response, when the connection is free for the next request.
    _busy: Option<Busy>,
}

pub(super) enum Content {
    Whole(Bytes),
    Events(Box<Events>),
    Parting(Box<Parting>),
}

impl Content {
    pub(super) fn whole(bytes: Vec<u8>) -> Self {
        Self::Whole(bytes.into())
    }

    pub(super) fn during(self, busy: Busy) -> Outgoing {
        Outgoing { content: self, _busy: Some(busy) }
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Piece<Bytes>, io::Error>>> {
        let next = match &mut self.get_mut().content {
            Content::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Content::Whole(bytes) => Poll::Ready(Some(Ok(std::mem::take(bytes)))),
            Content::Events(events) => events.poll(cx),
            Content::Parting(parting) => parting.poll(cx).map(|piece| piece.map(Ok)),
        };
        next.map(|piece| piece.map(|piece| piece.map(Piece::data)))
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Whole(bytes) => bytes.is_empty(),
            Content::Events(events) => events.is_over,
            Content::Parting(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Content::Events(_) | Content::Parting(_) => SizeHint::default(),
        }
    }
}

/// The frames of a lane as a `text/event-stream`.
pub(super) struct Events {
    reader: Reader,
    /// What was read before it was known that there would be a stream.
    first: Option<Frame>,
    /// The request that the stream must not end without answering.
    owed: Option<Box<str>>,
    pulse: Pin<Box<Sleep>>,
    every: Duration,
    is_over: bool,
    _listening: Option<Listening>,
}

impl Events {
    /// For a request.
    pub(super) fn answering(id: Box<str>, first: Option<Frame>, reader: Reader, every: Duration) -> Self {
        Self { first, owed: Some(id), ..Self::new(reader, every, None) }
    }

    /// For what is said unasked.
    pub(super) fn unasked(reader: Reader, every: Duration, listening: Listening) -> Self {
        Self::new(reader, every, Some(listening))
    }

    fn new(reader: Reader, every: Duration, listening: Option<Listening>) -> Self {
        let pulse = Box::pin(sleep(every));
        Self { reader, first: None, owed: None, pulse, every, is_over: false, _listening: listening }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let mut text = Vec::new();
        while text.len() < TOGETHER && !self.is_over {
            match self.poll_next(cx) {
                Poll::Ready(Some(frame)) => self.write(&mut text, frame),
                Poll::Ready(None) if self.reader.has_overflown() => {
                    self.is_over = true;
                    warn!("a client was cut off: it does not keep up");
                    return Poll::Ready(Some(Err(io::Error::other("the client does not keep up"))));
                }
                Poll::Ready(None) => self.end(&mut text),
                Poll::Pending => break,
            }
        }
        if text.is_empty() && !self.is_over {
            std::task::ready!(self.pulse.as_mut().poll(cx));
            text.extend_from_slice(b": still here\n\n");
        }
        if text.is_empty() {
            return Poll::Ready(None);
        }
        self.pulse.as_mut().reset(Instant::now() + self.every);
        Poll::Ready(Some(Ok(text.into())))
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Frame>> {
        match self.first.take() {
            Some(first) => Poll::Ready(Some(first)),
            None => self.reader.poll_next(cx),
        }
    }

    fn write(&mut self, text: &mut Vec<u8>, mut frame: Frame) {
        // A line break would end the event's data in the middle.
        one_line(&mut frame.bytes);
        text.reserve(frame.bytes.len() + 24);
        text.extend_from_slice(b"event: message\ndata: ");
        text.extend_from_slice(&frame.bytes);
        text.extend_from_slice(b"\n\n");
        self.is_over |= frame.last;
    }

    /// The host let go of the lane.
    fn end(&mut self, text: &mut Vec<u8>) {
        if let Some(id) = self.owed.take() {
            self.write(text, Frame { bytes: unanswered(&id), last: true });
        }
        self.is_over = true;
    }
}

/// What is said when a request ended and nobody answered it.
pub(super) fn unanswered(id: &str) -> Vec<u8> {
    let id = Id::from_json(id).unwrap_or(Id::NULL);
    error_response(id, RpcError::CONNECTION_CLOSED, "the request ended without an answer")
}

/// Says no at once and then lets the client finish its sentence, within bounds. A client that writes its whole
/// request before it reads would otherwise find the connection reset and never see the reason.
pub(super) struct Parting {
    said: Option<Bytes>,
    rest: Incoming,
    patience: usize,
    until: Pin<Box<Sleep>>,
}

impl Parting {
    pub(super) fn new(said: Vec<u8>, rest: Incoming, patience: usize) -> Self {
        Self { said: Some(said.into()), rest, patience, until: Box::pin(sleep(HEARD_OUT_FOR)) }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(said) = self.said.take() {
            return Poll::Ready(Some(said));
        }
        loop {
            match Pin::new(&mut self.rest).poll_frame(cx) {
                Poll::Ready(Some(Ok(piece))) => {
                    let length = piece.data_ref().map_or(0, Bytes::len);
                    let Some(left) = self.patience.checked_sub(length) else { return Poll::Ready(None) };
                    self.patience = left;
                }
                Poll::Ready(_) => return Poll::Ready(None),
                Poll::Pending => return self.until.as_mut().poll(cx).map(|()| None),
            }
        }
    }
}
