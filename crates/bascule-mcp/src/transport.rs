//! The ways to a server. What they have in common is all a [`crate::Connection`] knows of them.

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

/// A way to a server that has not been used yet.
#[derive(Debug)]
pub enum Transport {
    /// A child process.
    Stdio(StdioChild),
    /// Streamable HTTP.
    Http(HttpEndpoint),
    /// HTTP+SSE, as it was before 2025.
    Sse(HttpEndpoint),
    /// Streamable HTTP, and where the server does not know it, HTTP+SSE.
    HttpOrSse(HttpEndpoint),
    /// Two queues in memory; somebody at the [`MemoryServer`] plays the server.
    Memory(MemoryClient),
}

/// Our end of an in-memory transport.
#[derive(Debug)]
pub struct MemoryClient {
    outgoing: mpsc::Sender<Vec<u8>>,
    incoming: mpsc::Receiver<Vec<u8>>,
}

/// The server's end of an in-memory transport: messages without framing. Dropping it ends the connection.
#[derive(Debug)]
pub struct MemoryServer {
    /// What the client sent.
    pub incoming: mpsc::Receiver<Vec<u8>>,
    /// What the client will read.
    pub outgoing: mpsc::Sender<Vec<u8>>,
}

impl Transport {
    /// Two ends of a connection in memory: for tests, and for carrying MCP over anything else.
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

/// The sending side of a transport in use.
pub(crate) enum Link {
    Stdio(Arc<Outbox>),
    Http(Arc<HttpLink>),
    Sse(Arc<LegacyLink>),
    HttpOrSse(Arc<HttpOrSseLink>),
    Memory(mpsc::Sender<Vec<u8>>),
}

impl Link {
    /// Sends a message without waiting. A failure that is known at once is given back; later ones reach the
    /// router. The handle, where there is one, stops the exchange.
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

    /// Sends a message that wants no answer, and waits until the server has it, where that can be known.
    pub(crate) async fn tell(&self, frame: Vec<u8>) -> Result<(), Failure> {
        match self {
            Link::Http(link) => link.exchange(None, frame).await,
            Link::Sse(link) => link.exchange(frame).await,
            Link::HttpOrSse(link) => link.exchange(None, frame).await,
            Link::Stdio(_) | Link::Memory(_) => self.send(None, frame).map(|_| ()),
        }
    }

    /// Takes a request back that has not left. Says whether it could.
    pub(crate) fn recall(&self, id: u64) -> bool {
        matches!(self, Link::Stdio(outbox) if outbox.recall(id))
    }

    /// The newer of the HTTP transports, where that is in use.
    pub(crate) fn http(&self) -> Option<&Arc<HttpLink>> {
        match self {
            Link::Http(link) => Some(link),
            Link::HttpOrSse(link) => link.http(),
            _ => None,
        }
    }
}
