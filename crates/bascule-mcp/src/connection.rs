//! A connection to one server: requests go out under ids of ours, answers come back to whoever waits.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bascule_model::Delivery;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::http::{HttpLink, Remote};
use crate::http_or_sse::HttpOrSseLink;
use crate::legacy::LegacyLink;
use crate::router::{Listener, OnProgress, Progress, RequestHandler, RequestResult, Router};
use crate::tail::Tail;
use crate::transport::Link;
use crate::{Failure, ProtocolVersion, Transport, TransportError, notification, request, with_extras};

/// A handle; clones share the connection. When the last one is dropped its tasks and its process end by
/// themselves; only [`Connection::close`] also takes leave of an HTTP session.
#[derive(Clone)]
pub struct Connection(Arc<Inner>);

struct Inner {
    link: Link,
    router: Arc<Router>,
    stderr: Arc<Tail>,
    pid: Option<u32>,
    numbers: Arc<AtomicU64>,
    version: OnceLock<ProtocolVersion>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Connection {
    /// Takes a transport into use. Messages longer than `limit` bytes are not read.
    ///
    /// Must be called within a tokio runtime: what reads and what keeps the server are tasks of it.
    pub fn open(
        transport: Transport,
        limit: usize,
        listener: Listener,
        asked: Option<RequestHandler>,
    ) -> Self {
        Self::open_with_ids(transport, limit, listener, asked, Arc::new(AtomicU64::new(1)))
    }

    /// The same with numbers for its requests that come from here. Connections that share them never use one twice.
    pub fn open_with_ids(
        transport: Transport,
        limit: usize,
        listener: Listener,
        asked: Option<RequestHandler>,
        numbers: Arc<AtomicU64>,
    ) -> Self {
        let router = Arc::new(Router::new(limit, listener, asked));
        let stderr = Arc::new(Tail::default());
        let tasks = TaskTracker::new();
        let stop = CancellationToken::new();
        let mut pid = None;
        let remote =
            |endpoint| Arc::new(Remote::new(endpoint, limit, router.clone(), tasks.clone(), stop.clone()));
        let link = match transport {
            Transport::Stdio(child) => {
                pid = child.pid();
                let (outbox, keeper) = child.split(limit, router.clone(), stderr.clone(), stop.clone());
                tasks.spawn(keeper);
                Link::Stdio(outbox)
            }
            Transport::Http(endpoint) => Link::Http(Arc::new(HttpLink::new(remote(endpoint)))),
            Transport::Sse(endpoint) => Link::Sse(LegacyLink::open(remote(endpoint), None)),
            Transport::HttpOrSse(endpoint) => Link::HttpOrSse(Arc::new(HttpOrSseLink::new(remote(endpoint)))),
            Transport::Memory(end) => {
                let (sender, listen) = end.split(router.clone(), stop.clone());
                tasks.spawn(listen);
                Link::Memory(sender)
            }
        };
        let version = OnceLock::new();
        Self(Arc::new(Inner { link, router, stderr, pid, numbers, version, tasks, stop }))
    }

    /// Sends a request. `params` is told the id, which also serves as progress token.
    ///
    /// Dropping the [`PendingRequest`] cancels the request at the server.
    pub fn request(&self, method: &str, params: impl FnOnce(u64) -> Option<String>) -> PendingRequest {
        self.request_with_progress(method, params, None, None)
    }

    /// The same, and hears what the server reports of its progress. `more` are members that stand in it besides.
    pub fn request_with_progress(
        &self,
        method: &str,
        params: impl FnOnce(u64) -> Option<String>,
        hear: Option<OnProgress>,
        more: Option<&str>,
    ) -> PendingRequest {
        let id = self.0.numbers.fetch_add(1, Ordering::Relaxed);
        let progress = Arc::new(Progress { hear, ..Progress::default() });
        let answer = self.0.router.expect(id, progress.clone());
        let exchange = self.0.router.awaits(id).then(|| {
            let frame = with_extras(request(id, method, params(id).as_deref()), more);
            self.0.link.send(Some(id), frame).unwrap_or_else(|failure| {
                self.0.router.fail(id, failure);
                None
            })
        });
        let exchange = exchange.flatten();
        // The protocol forbids to cancel `initialize`.
        let cancellable = method != "initialize";
        PendingRequest { connection: self.clone(), id, answer: Some(answer), progress, exchange, cancellable }
    }

    /// Answers a request of the server's that was taken (see [`RequestHandler`]): the whole frame, as it is to be sent.
    pub fn answer(&self, frame: Vec<u8>) {
        // Whether it arrives is the server's concern: it asked.
        let _ = self.0.link.send(None, frame);
    }

    /// Sends a notification and, over HTTP, waits until the server has taken it: what follows may rely on it.
    pub async fn notify(&self, method: &str, params: Option<&str>) -> Result<(), Failure> {
        if let Some(why) = self.0.router.ended() {
            return Err(Failure::not_sent(why));
        }
        self.0.link.tell(notification(method, params)).await
    }

    /// The handshake agreed on a version.
    pub fn set_version(&self, version: ProtocolVersion) {
        let _ = self.0.version.set(version);
        if let Some(http) = self.0.link.http() {
            http.set_version(version);
        }
    }

    /// The handshake is done: from now on hears what the server says unasked, where that needs asking for.
    pub fn listen(&self) {
        if let Some(http) = self.0.link.http() {
            http.listen();
        }
    }

    /// The version agreed on.
    pub fn version(&self) -> Option<ProtocolVersion> {
        self.0.version.get().copied()
    }

    /// The end of what the server's process wrote to stderr; empty where there is no process.
    pub fn stderr(&self) -> String {
        self.0.stderr.text()
    }

    /// The server's process, where it is one.
    pub fn pid(&self) -> Option<u32> {
        self.0.pid
    }

    /// Why the connection is over, if it is.
    pub fn ended(&self) -> Option<Arc<TransportError>> {
        self.0.router.ended()
    }

    /// Returns when the connection is over, for whatever reason.
    pub async fn over(&self) {
        self.0.router.over().await;
    }

    /// Ends the connection and waits until nothing of it is left: session, tasks, process. Any number of
    /// times.
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

/// A request on its way. Dropped before its answer came, it is cancelled at the server.
pub struct PendingRequest {
    connection: Connection,
    id: u64,
    /// None once it was given.
    answer: Option<oneshot::Receiver<RequestResult>>,
    progress: Arc<Progress>,
    exchange: Option<AbortHandle>,
    cancellable: bool,
}

/// What happens next to a request.
#[derive(Debug)]
pub enum PendingEvent {
    /// The server is still at it.
    Progress,
    /// It is over.
    Finished(RequestResult),
}

impl PendingRequest {
    /// The answer. May be dropped and asked again.
    pub async fn answer(&mut self) -> RequestResult {
        loop {
            if let PendingEvent::Finished(answer) = self.next().await {
                return answer;
            }
        }
    }

    /// The answer, or the next sign of life. May be dropped and asked again, until the answer was given.
    pub async fn next(&mut self) -> PendingEvent {
        let Some(waiting) = &mut self.answer else { return PendingEvent::Finished(Err(never_answered())) };
        let answer = tokio::select! {
            biased;
            answer = waiting => answer,
            () = self.progress.seen.notified() => return PendingEvent::Progress,
        };
        self.answer = None;
        PendingEvent::Finished(answer.unwrap_or_else(|_| Err(never_answered())))
    }

    /// What stood in the answer besides, as it was spelled.
    pub fn more(&self) -> Option<&str> {
        self.progress.more.get().map(String::as_str)
    }

    /// Gives up on it, telling the server why, and says what is known about the request.
    pub fn abandon(mut self, reason: &str) -> Delivery {
        self.cancel(reason)
    }

    fn cancel(&mut self, reason: &str) -> Delivery {
        let inner = &self.connection.0;
        if !inner.router.forget(self.id) {
            return if inner.router.ended().is_some() { Delivery::Unknown } else { Delivery::Answered };
        }
        if inner.link.recall(self.id) {
            return Delivery::NotSent;
        }
        if let Some(exchange) = &self.exchange {
            exchange.abort();
        }
        if self.cancellable {
            let reason = serde_json::Value::from(reason);
            let params = format!(r#"{{"requestId":{},"reason":{reason}}}"#, self.id);
            let _ = inner.link.send(None, notification("notifications/cancelled", Some(&params)));
        }
        Delivery::Unknown
    }
}

fn never_answered() -> Failure {
    Failure::not_sent(TransportError::Closed)
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        self.cancel("the caller left");
    }
}
