//! Transports to a server, and the interface through which a [`crate::Connection`] uses them.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use crate::http::{HttpEndpoint, HttpLink};
use crate::http_or_sse::HttpOrSseLink;
use crate::legacy::LegacyLink;
use crate::outbox::Outbox;
use crate::router::Router;
use crate::{Failure, StdioChild, TransportError};

/// A transport to a server, not connected yet.
#[derive(Debug)]
pub enum Transport {
    /// A child process.
    Stdio(StdioChild),
    /// Streamable HTTP.
    Http(HttpEndpoint),
    /// HTTP+SSE, the HTTP transport before 2025.
    Sse(HttpEndpoint),
    /// Streamable HTTP, or HTTP+SSE if the server does not support it.
    HttpOrSse(HttpEndpoint),
    /// Two in-memory queues. The holder of the [`MemoryServer`] acts as the server.
    Memory(MemoryClient),
}

/// The client's end of an in-memory transport.
#[derive(Debug)]
pub struct MemoryClient {
    outgoing: mpsc::Sender<Vec<u8>>,
    incoming: mpsc::Receiver<Vec<u8>>,
}

/// The server's end of an in-memory transport. Messages have no framing. Dropping it ends the connection.
#[derive(Debug)]
pub struct MemoryServer {
    /// Messages from the client.
    pub incoming: mpsc::Receiver<Vec<u8>>,
    /// Messages to the client.
    pub outgoing: mpsc::Sender<Vec<u8>>,
}

impl Transport {
    /// Creates an in-memory connection, for tests and for MCP over other media.
    /// Each direction holds 1,024 messages; beyond that sending fails.
    pub fn pair() -> (Transport, MemoryServer) {
        let (to_server, incoming) = mpsc::channel(1024);
        let (outgoing, from_server) = mpsc::channel(1024);
        let near = MemoryClient { outgoing: to_server, incoming: from_server };
        (Transport::Memory(near), MemoryServer { incoming, outgoing })
    }
}

impl MemoryClient {
    pub(crate) fn split(
        mut self,
        router: Arc<Router>,
        stop: CancellationToken,
    ) -> (mpsc::Sender<Vec<u8>>, impl Future<Output = ()> + Send) {
        let outgoing = self.outgoing.clone();
        let listen = async move {
            let why = loop {
                tokio::select! {
                    frame = self.incoming.recv() => match frame {
                        Some(frame) => {
                            if let Some(reply) = router.deliver(&frame, None) {
                                let _ = self.outgoing.try_send(reply);
                            }
                        }
                        None => break TransportError::OutputClosed,
                    },
                    () = stop.cancelled() => break TransportError::Closed,
                }
            };
            router.end(Arc::new(why), |_| false);
        };
        (outgoing, listen)
    }
}

/// The sending side of a connected transport.
pub(crate) enum Link {
    Stdio(Arc<Outbox>),
    Http(Arc<HttpLink>),
    Sse(Arc<LegacyLink>),
    HttpOrSse(Arc<HttpOrSseLink>),
    Memory(mpsc::Sender<Vec<u8>>),
}

impl Link {
    /// Sends a message without waiting. Immediate failures are returned; later ones are reported to the router. The
    /// handle, if any, aborts the exchange.
    pub(crate) fn send(&self, id: Option<u64>, frame: Vec<u8>) -> Result<Option<AbortHandle>, Failure> {
        match self {
            Link::Stdio(outbox) => outbox.send(id, frame).map(|()| None).map_err(Failure::not_sent),
            Link::Http(link) => Ok(Some(link.send(id, frame))),
            Link::Sse(link) => Ok(Some(link.send(id, frame))),
            Link::HttpOrSse(link) => Ok(Some(link.send(id, frame))),
            Link::Memory(sender) => match sender.try_send(frame) {
                Ok(()) => Ok(None),
                Err(mpsc::error::TrySendError::Closed(_)) => {
                    Err(Failure::not_sent(TransportError::OutputClosed))
                }
                Err(mpsc::error::TrySendError::Full(frame)) => {
                    Err(Failure::not_sent(TransportError::Stalled { waiting: frame.len() }))
                }
            },
        }
    }

    /// Sends a message that expects no response. Waits until the server has accepted it, if the transport can tell.
    pub(crate) async fn tell(&self, frame: Vec<u8>) -> Result<(), Failure> {
        match self {
            Link::Http(link) => link.exchange(None, frame).await,
            Link::Sse(link) => link.exchange(frame).await,
            Link::HttpOrSse(link) => link.exchange(None, frame).await,
            Link::Stdio(_) | Link::Memory(_) => self.send(None, frame).map(|_| ()),
        }
    }

    /// Withdraws a request. Returns true if none of it had been sent.
    pub(crate) fn recall(&self, id: u64) -> bool {
        matches!(self, Link::Stdio(outbox) if outbox.recall(id))
    }

    /// Returns the Streamable HTTP link, if that transport is in use.
    pub(crate) fn http(&self) -> Option<&Arc<HttpLink>> {
        match self {
            Link::Http(link) => Some(link),
            Link::HttpOrSse(link) => link.http(),
            _ => None,
        }
    }
}
