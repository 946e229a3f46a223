//! A connection to one server: sends requests with ids of its own and matches the responses to them.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bascule_model::Delivery;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::http::{DRAIN_TIMEOUT, HttpClient, HttpLink, MessageKind};
use crate::http_or_sse::HttpOrSseLink;
use crate::http_sse::SseLink;
use crate::router::{Listener, MessageRouter, OnProgress, RequestHandler, RequestResult, SharedRequestState};
use crate::tail::Tail;
use crate::transport::TransportSender;
use crate::{Failure, ProtocolVersion, Transport, TransportError, notification, request, with_extra_members};

/// A handle; clones share the connection. Dropping the last one ends the tasks and the process of the connection. Only
/// [`Connection::close`] also ends the HTTP session at the server.
#[derive(Clone)]
pub struct Connection(Arc<Inner>);

struct Inner {
    link: TransportSender,
    router: Arc<MessageRouter>,
    stderr: Arc<Tail>,
    pid: Option<u32>,
    next_id: Arc<AtomicU64>,
    version: OnceLock<ProtocolVersion>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Connection {
    /// Opens a connection over a transport. Messages longer than `limit` bytes are not parsed.
    ///
    /// Must be called within a tokio runtime: it starts tasks.
    pub fn open(
        transport: Transport,
        limit: usize,
        listener: Listener,
        on_request: Option<RequestHandler>,
    ) -> Self {
        Self::open_with_ids(transport, limit, listener, on_request, Arc::new(AtomicU64::new(1)))
    }

    /// Opens a connection that takes its request ids from a counter. Connections that share one never use an id twice.
    pub fn open_with_ids(
        transport: Transport,
        limit: usize,
        listener: Listener,
        on_request: Option<RequestHandler>,
        next_id: Arc<AtomicU64>,
    ) -> Self {
        let router = Arc::new(MessageRouter::new(limit, listener, on_request));
        let stderr = Arc::new(Tail::default());
        let tasks = TaskTracker::new();
        let stop = CancellationToken::new();
        let mut pid = None;
        let http_client = |endpoint| {
            Arc::new(HttpClient::new(endpoint, limit, router.clone(), tasks.clone(), stop.clone()))
        };
        let link = match transport {
            Transport::Stdio(child) => {
                pid = child.pid();
                let (stdin_queue, supervisor) =
                    child.split(limit, router.clone(), stderr.clone(), stop.clone());
                tasks.spawn(supervisor);
                TransportSender::Stdio(stdin_queue)
            }
            Transport::Http(endpoint) => {
                TransportSender::Http(Arc::new(HttpLink::new(http_client(endpoint))))
            }
            Transport::Sse(endpoint) => TransportSender::Sse(SseLink::open(http_client(endpoint), None)),
            Transport::HttpOrSse(endpoint) => {
                TransportSender::HttpOrSse(Arc::new(HttpOrSseLink::new(http_client(endpoint))))
            }
            Transport::Memory(client) => {
                let (sender, read_loop) = client.split(router.clone(), stop.clone());
                tasks.spawn(read_loop);
                TransportSender::Memory(sender)
            }
        };
        let version = OnceLock::new();
        Self(Arc::new(Inner { link, router, stderr, pid, next_id, version, tasks, stop }))
    }

    /// Sends a request. `params` gets the id, which also serves as progress token.
    ///
    /// Over HTTP the request makes progress only while the [`PendingRequest`] is polled. Dropping it cancels the
    /// request at the server.
    pub fn request(&self, method: &str, params: impl FnOnce(u64) -> Option<String>) -> PendingRequest {
        self.request_with_progress(method, params, None, None)
    }

    /// Sends a request with extra members (raw text without braces) and reports its progress.
    pub fn request_with_progress(
        &self,
        method: &str,
        params: impl FnOnce(u64) -> Option<String>,
        on_progress: Option<OnProgress>,
        extra_members: Option<&str>,
    ) -> PendingRequest {
        let Inner { router, link, next_id, .. } = &*self.0;
        let id = next_id.fetch_add(1, Ordering::Relaxed);
        let shared = Arc::new(SharedRequestState { on_progress, ..SharedRequestState::default() });
        let response = router.register(id, shared.clone());
        let exchange = router.is_pending(id).then(|| {
            let frame = with_extra_members(request(id, method, params(id).as_deref()), extra_members);
            link.send_request(id, frame, &shared).unwrap_or_else(|failure| {
                router.fail(id, failure);
                None
            })
        });
        let exchange = exchange.flatten();
        // The protocol forbids clients to cancel `initialize`.
        let is_cancellable = method != "initialize";
        PendingRequest {
            connection: self.clone(),
            id,
            response: Some(response),
            shared,
            exchange,
            is_cancellable,
        }
    }

    /// Sends a whole message that has no response: the response to a request that the [`RequestHandler`] accepted, or a
    /// notification.
    pub fn send_frame(&self, frame: Vec<u8>) {
        // A failure needs no handling: the server that sent the request waits for the response, not this caller.
        let _ = self.0.link.send(MessageKind::Reply, frame);
    }

    /// Sends a notification. Over HTTP, returns after the server has accepted it, so that later messages may rely on it.
    pub async fn notify(&self, method: &str, params: Option<&str>) -> Result<(), Failure> {
        if let Some(cause) = self.0.router.close_reason() {
            return Err(Failure::not_sent(cause));
        }
        self.0.link.send_and_wait(notification(method, params)).await
    }

    /// Sets the protocol version that the handshake negotiated.
    pub fn set_version(&self, version: ProtocolVersion) {
        let _ = self.0.version.set(version);
        if let Some(http) = self.0.link.http() {
            http.set_version(version);
        }
    }

    /// Opens the GET stream of Streamable HTTP, on which the server sends requests and notifications that belong to no
    /// request of ours. Called after the handshake; does nothing over other transports.
    pub fn open_server_stream(&self) {
        if let Some(http) = self.0.link.http() {
            http.open_server_stream();
        }
    }

    /// Returns the protocol version, or `None` before the handshake.
    pub fn version(&self) -> Option<ProtocolVersion> {
        self.0.version.get().copied()
    }

    /// Returns the end of the process's stderr; empty if there is no process.
    pub fn stderr(&self) -> String {
        self.0.stderr.text()
    }

    /// Returns the number of bytes that the process has written to stderr.
    pub fn stderr_position(&self) -> u64 {
        self.0.stderr.position()
    }

    /// Returns what the process has written to stderr after a position, as far as it is kept.
    pub fn stderr_after(&self, position: u64) -> String {
        self.0.stderr.text_after(position)
    }

    /// Returns the id of the server's process, if it has one.
    pub fn pid(&self) -> Option<u32> {
        self.0.pid
    }

    /// Returns the size of all messages that the server sent without a request, as the time to read them at the permitted rate.
    pub fn unsolicited_load(&self) -> Duration {
        self.0.router.pacer.total()
    }

    /// Returns the error that closed the connection, or `None` if it is open.
    pub fn close_reason(&self) -> Option<Arc<TransportError>> {
        self.0.router.close_reason()
    }

    /// Returns when the connection is closed, for any reason.
    pub async fn closed(&self) {
        self.0.router.closed().await;
    }

    /// Closes the connection and waits until its session, tasks and process have ended. May be called repeatedly.
    pub async fn close(&self) {
        self.0.stop.cancel();
        self.0.tasks.close();
        match self.0.link.http() {
            Some(http) => http.close().await,
            None => self.0.tasks.wait().await,
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// The HTTP exchange of one request. It reports its result to the router.
pub(crate) type Exchange = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A request whose response has not arrived. Dropping it cancels the request at the server.
pub struct PendingRequest {
    connection: Connection,
    id: u64,
    /// `None` once the result was returned.
    response: Option<oneshot::Receiver<RequestResult>>,
    shared: Arc<SharedRequestState>,
    /// Polled with the response: a task of its own would cost more than the exchange.
    exchange: Option<Exchange>,
    is_cancellable: bool,
}

/// An event of a pending request.
#[derive(Debug)]
pub enum PendingEvent {
    /// The server reported progress.
    Progress,
    Finished(RequestResult),
}

impl PendingRequest {
    /// Waits for the result. Cancel-safe.
    pub async fn response(&mut self) -> RequestResult {
        loop {
            if let PendingEvent::Finished(result) = self.next().await {
                return result;
            }
        }
    }

    /// Waits for the result or the next progress report. Cancel-safe.
    pub async fn next(&mut self) -> PendingEvent {
        let Some(response) = &mut self.response else {
            return PendingEvent::Finished(Err(connection_closed()));
        };
        let result = tokio::select! {
            // In this order a response that the exchange delivers is returned by the same poll.
            biased;
            () = drive(&mut self.exchange) => unreachable!("driving never ends"),
            result = response => result,
            () = self.shared.progress_received.notified() => return PendingEvent::Progress,
        };
        self.response = None;
        self.finish_exchange();
        PendingEvent::Finished(result.unwrap_or_else(|_| Err(connection_closed())))
    }

    /// Reads the rest of a response stream in the background, so that its HTTP connection can be used again. The server
    /// has `DRAIN_TIMEOUT` from the delivery of the response, whatever it sends.
    fn finish_exchange(&mut self) {
        if let Some(exchange) = self.exchange.take() {
            let stop = self.connection.0.stop.clone();
            let rest = timeout(DRAIN_TIMEOUT, exchange);
            self.connection.0.tasks.spawn(async move { _ = stop.run_until_cancelled(rest).await });
        }
    }

    /// Returns the extra members of the response, as raw text.
    pub fn extra_members(&self) -> Option<&str> {
        self.shared.extra_members.get().map(String::as_str)
    }

    /// Cancels the request, gives the server a reason, and returns what is known about its delivery. Does nothing once the
    /// result was returned.
    pub fn cancel(&mut self, reason: &str) -> Delivery {
        if self.response.take().is_none() {
            return Delivery::Answered;
        }
        let inner = &self.connection.0;
        if !inner.router.remove(self.id) {
            return if inner.router.close_reason().is_some() {
                Delivery::Unknown
            } else {
                Delivery::Answered
            };
        }
        let is_unsent = match self.exchange.take() {
            Some(_) => !self.shared.is_sent.load(Ordering::Relaxed),
            None => inner.link.remove_unsent(self.id),
        };
        if is_unsent {
            return Delivery::NotSent;
        }
        if self.is_cancellable {
            let reason = serde_json::Value::from(reason);
            let params = format!(r#"{{"requestId":{},"reason":{reason}}}"#, self.id);
            let cancellation = notification("notifications/cancelled", Some(&params));
            let _ = inner.link.send(MessageKind::Cancellation, cancellation);
        }
        Delivery::Unknown
    }
}

/// Polls an exchange to its end. Never returns.
async fn drive(exchange: &mut Option<Exchange>) {
    if let Some(running) = exchange {
        running.await;
        *exchange = None;
    }
    std::future::pending().await
}

fn connection_closed() -> Failure {
    Failure::not_sent(TransportError::Closed)
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        self.cancel("the caller left");
    }
}
