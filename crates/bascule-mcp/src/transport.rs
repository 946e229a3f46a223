//! The transports to a server, and the sending side that they share.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::connection::Exchange;
use crate::http::{HttpClient, HttpEndpoint, HttpLink, MessageKind};
use crate::http_or_sse::HttpOrSseLink;
use crate::http_sse::SseLink;
use crate::router::{MessageRouter, SharedRequestState};
use crate::stdin_queue::StdinQueue;
use crate::{Failure, StdioChild, TransportError};

/// A transport that has no connection yet.
#[derive(Debug)]
pub enum Transport {
    Stdio(StdioChild),
    /// Streamable HTTP.
    Http(HttpEndpoint),
    /// HTTP+SSE, the transport before Streamable HTTP.
    Sse(HttpEndpoint),
    /// Streamable HTTP, or HTTP+SSE if the server does not support it.
    HttpOrSse(HttpEndpoint),
    /// Two queues in memory; the other end is a [`MemoryServer`].
    Memory(MemoryClient),
}

/// The client's end of an in-memory transport.
#[derive(Debug)]
pub struct MemoryClient {
    outgoing: mpsc::Sender<Vec<u8>>,
    incoming: mpsc::Receiver<Vec<u8>>,
}

/// The server's end of an in-memory transport: whole messages. Dropping it ends the connection.
#[derive(Debug)]
pub struct MemoryServer {
    pub incoming: mpsc::Receiver<Vec<u8>>,
    pub outgoing: mpsc::Sender<Vec<u8>>,
}

impl Transport {
    /// Returns two ends of a connection in memory: for tests, and for transports of other kinds. Each direction holds
    /// 1,024 messages; sending more fails.
    pub fn pair() -> (Transport, MemoryServer) {
        let (to_server, incoming) = mpsc::channel(1024);
        let (outgoing, from_server) = mpsc::channel(1024);
        let client = MemoryClient { outgoing: to_server, incoming: from_server };
        (Transport::Memory(client), MemoryServer { incoming, outgoing })
    }
}

impl MemoryClient {
    pub(crate) fn split(
        mut self,
        router: Arc<MessageRouter>,
        stop: CancellationToken,
    ) -> (mpsc::Sender<Vec<u8>>, impl Future<Output = ()> + Send) {
        let outgoing = self.outgoing.clone();
        let read_loop = async move {
            let cause = loop {
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
            router.close(Arc::new(cause), |_| false);
        };
        (outgoing, read_loop)
    }
}

/// The sending side of an open transport.
#[derive(Clone)]
pub(crate) enum TransportSender {
    Stdio(Arc<StdinQueue>),
    Http(Arc<HttpLink>),
    Sse(Arc<SseLink>),
    HttpOrSse(Arc<HttpOrSseLink>),
    Memory(mpsc::Sender<Vec<u8>>),
}

impl TransportSender {
    /// Sends a request without waiting. Over HTTP, returns the exchange: nothing is sent until the caller polls it. Its
    /// result and its failure reach the router.
    pub(crate) fn send_request(
        &self,
        id: u64,
        frame: Vec<u8>,
        shared: &Arc<SharedRequestState>,
    ) -> Result<Option<Exchange>, Failure> {
        match self {
            TransportSender::Stdio(stdin_queue) => {
                stdin_queue.send(Some(id), frame).map(|()| None).map_err(Failure::not_sent)
            }
            TransportSender::Http(link) => Ok(Some(link.request_exchange(id, frame, shared.clone()))),
            TransportSender::Sse(link) => Ok(Some(link.request_exchange(id, frame, shared.clone()))),
            TransportSender::HttpOrSse(link) => Ok(Some(link.request_exchange(id, frame, shared.clone()))),
            TransportSender::Memory(sender) => send_in_memory(sender, frame).map(|()| None),
        }
    }

    /// Sends a notification or a response, without waiting. Over HTTP, a message beyond those that the server accepts in
    /// time is dropped.
    pub(crate) fn send(&self, kind: MessageKind, frame: Vec<u8>) -> Result<(), Failure> {
        match self {
            TransportSender::Stdio(stdin_queue) => {
                stdin_queue.send(None, frame).map_err(Failure::not_sent)?
            }
            TransportSender::Http(link) => self.send_in_task(&link.client, kind, frame),
            TransportSender::Sse(link) => self.send_in_task(&link.client, kind, frame),
            TransportSender::HttpOrSse(link) => self.send_in_task(&link.client, kind, frame),
            TransportSender::Memory(sender) => send_in_memory(sender, frame)?,
        }
        Ok(())
    }

    fn send_in_task(&self, client: &Arc<HttpClient>, kind: MessageKind, frame: Vec<u8>) {
        let sender = self.clone();
        client.spawn_exchange(kind, async move { sender.send_and_wait(frame).await });
    }

    /// Sends a notification or a response. Over HTTP, waits until the server has accepted it.
    pub(crate) async fn send_and_wait(&self, frame: Vec<u8>) -> Result<(), Failure> {
        match self {
            TransportSender::Http(link) => link.send_and_wait(frame).await,
            TransportSender::Sse(link) => link.send_and_wait(frame).await,
            TransportSender::HttpOrSse(link) => link.send_and_wait(frame).await,
            TransportSender::Stdio(_) | TransportSender::Memory(_) => self.send(MessageKind::Reply, frame),
        }
    }

    /// Removes a queued request. Returns false if any byte of it was written, or if the transport has no queue.
    pub(crate) fn remove_unsent(&self, id: u64) -> bool {
        matches!(self, TransportSender::Stdio(stdin_queue) if stdin_queue.remove_unsent(id))
    }

    /// Returns the Streamable HTTP transport, if that is in use.
    pub(crate) fn http(&self) -> Option<&Arc<HttpLink>> {
        match self {
            TransportSender::Http(link) => Some(link),
            TransportSender::HttpOrSse(link) => link.http(),
            _ => None,
        }
    }
}

fn send_in_memory(sender: &mpsc::Sender<Vec<u8>>, frame: Vec<u8>) -> Result<(), Failure> {
    sender.try_send(frame).map_err(|error| {
        Failure::not_sent(match error {
            mpsc::error::TrySendError::Closed(_) => TransportError::OutputClosed,
            mpsc::error::TrySendError::Full(frame) => TransportError::Stalled { queued_bytes: frame.len() },
        })
    })
}
