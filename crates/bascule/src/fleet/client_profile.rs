//! The clients behind one server connection: the capabilities that the server is told of, and the observer of its messages.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, Weak};

use bascule_mcp::{Id, ServerMessage};

/// Receives the messages and state changes of a server. Every method must return at once: the read loop waits for it.
pub(crate) trait UpstreamObserver: Send + Sync {
    /// Receives a notification other than progress.
    fn on_notification(&self, message: ServerMessage<'_>);

    /// Receives a request of the server. Returning true accepts the duty to respond; false refuses the request.
    fn on_request(&self, id: Id<'_>, message: ServerMessage<'_>) -> bool;

    /// The tools of the server's last run are known.
    fn on_last_listing_read(&self);

    /// The server has listed its tools: for the first time, or with changes. The first listing may be the same as that of the
    /// last run.
    fn on_tools_listed(&self, is_first: bool, has_changed: bool);

    /// The connection was lost, and the server's open requests with it.
    fn on_lost(&self);

    /// The server is connected, perhaps again. It knows no log level and no subscriptions.
    fn on_connected(&self);

    /// Returns true if clients wait for messages of the server without a request in flight.
    fn has_subscribers(&self) -> bool;
}

/// The profile of one server's clients. Clones share the observer.
#[derive(Clone)]
pub(crate) struct ClientProfile {
    /// The capabilities that the server is told of: the JSON text of an object.
    pub(crate) capabilities: Arc<str>,
    /// The counter of request ids. All connections to the server share it, so that no id is used twice.
    pub(crate) request_ids: Arc<AtomicU64>,
    observer: Arc<Mutex<Option<Weak<dyn UpstreamObserver>>>>,
}

impl ClientProfile {
    pub(crate) fn new(capabilities: Arc<str>) -> Self {
        Self { capabilities, request_ids: Arc::new(AtomicU64::new(1)), observer: Arc::default() }
    }

    /// Replaces the observer. It observes for as long as it exists.
    pub(crate) fn observe(&self, observer: Weak<dyn UpstreamObserver>) {
        *self.observer.lock().expect("no code panics while it holds the lock") = Some(observer);
    }

    pub(crate) fn observer(&self) -> Option<Arc<dyn UpstreamObserver>> {
        self.observer.lock().expect("no code panics while it holds the lock").as_ref()?.upgrade()
    }
}

impl Default for ClientProfile {
    /// Clients without capabilities.
    fn default() -> Self {
        Self::new("{}".into())
    }
}
