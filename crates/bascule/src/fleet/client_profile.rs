//! Whom a server works for: what they can do for it, and who hears what it says of itself.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use bascule_mcp::{Id, ServerMessage};
use tokio::time::Instant;

/// Hears a server. All must return at once: the read loop waits for them.
pub(crate) trait UpstreamObserver: Send + Sync {
    /// A notification that is no report of progress.
    fn on_notification(&self, remark: ServerMessage<'_>);

    /// A request of the server's. Taken, it will be answered; else it is refused at once.
    fn on_request(&self, id: Id<'_>, remark: ServerMessage<'_>) -> bool;

    /// It has answered a request that nobody waits for any more.
    fn on_late_response(&self, id: &str);

    /// Its tools were listed: for the first time, or because they are others than before.
    fn on_tools_listed(&self, is_first: bool);

    /// The server was lost, and whatever it had asked with it.
    fn on_lost(&self);

    /// The server was lost and is there again; it knows nothing of what it was told before.
    fn on_reconnected(&self);
}

/// A server's profile. Clones share the observer.
#[derive(Clone)]
pub(crate) struct ClientProfile {
    /// What it is told that its clients can do: the JSON text of an object.
    pub(crate) capabilities: Arc<str>,
    /// Numbers the requests to it, from one connection to the next: what it says of one is never taken for another's.
    pub(crate) numbers: Arc<AtomicU64>,
    observer: Arc<Mutex<Option<Weak<dyn UpstreamObserver>>>>,
    strangers: Arc<Mutex<Strangers>>,
}

/// Those who call it and cannot hear it: the command backend, a program that embeds the bridge.
#[derive(Default)]
struct Strangers {
    calls: usize,
    /// Till when it may still be at work on a call that was given up.
    until: Option<Instant>,
}

/// A call of a stranger's.
pub(crate) struct Stranger {
    among: Arc<Mutex<Strangers>>,
    /// Whether it has ended; if it was given up instead, the server may go on with it for `abandoned_for`.
    pub(crate) has_ended: bool,
    abandoned_for: Duration,
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let mut among = self.among.lock().expect("nothing panics while holding it");
        among.calls -= 1;
        if !self.has_ended {
            among.until = among.until.max(Some(Instant::now() + self.abandoned_for));
        }
    }
}

impl ClientProfile {
    pub(crate) fn new(capabilities: &str) -> Self {
        let (capabilities, numbers) = (capabilities.into(), Arc::new(AtomicU64::new(1)));
        Self { capabilities, numbers, observer: Arc::default(), strangers: Arc::default() }
    }

    /// A stranger calls.
    pub(crate) fn stranger(&self, abandoned_for: Duration) -> Stranger {
        self.strangers().calls += 1;
        Stranger { among: self.strangers.clone(), has_ended: false, abandoned_for }
    }

    /// Whether what it says may concern a stranger.
    pub(crate) fn has_strangers(&self) -> bool {
        let strangers = self.strangers();
        strangers.calls > 0 || strangers.until.is_some_and(|until| Instant::now() < until)
    }

    fn strangers(&self) -> MutexGuard<'_, Strangers> {
        self.strangers.lock().expect("nothing panics while holding it")
    }

    /// From now on this one hears it, for as long as it exists.
    pub(crate) fn attach(&self, observer: Weak<dyn UpstreamObserver>) {
        *self.observer.lock().expect("nothing panics while holding it") = Some(observer);
    }

    pub(crate) fn on_notification(&self, remark: ServerMessage<'_>) {
        self.observer().into_iter().for_each(|observer| observer.on_notification(remark));
    }

    pub(crate) fn on_request(&self, id: Id<'_>, remark: ServerMessage<'_>) -> bool {
        self.observer().is_some_and(|observer| observer.on_request(id, remark))
    }

    pub(crate) fn on_late_response(&self, id: &str) {
        self.observer().into_iter().for_each(|observer| observer.on_late_response(id));
    }

    pub(crate) fn on_tools_listed(&self, is_first: bool) {
        self.observer().into_iter().for_each(|observer| observer.on_tools_listed(is_first));
    }

    pub(crate) fn on_lost(&self) {
        self.strangers().until = None;
        self.observer().into_iter().for_each(|observer| observer.on_lost());
    }

    pub(crate) fn on_reconnected(&self) {
        self.observer().into_iter().for_each(|observer| observer.on_reconnected());
    }

    fn observer(&self) -> Option<Arc<dyn UpstreamObserver>> {
        self.observer.lock().expect("nothing panics while holding it").as_ref()?.upgrade()
    }
}
