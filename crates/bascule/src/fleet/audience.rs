//! Whom a server works for: what they can do for it, and who hears what it says of itself.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use bascule_client::{Id, Remark};
use tokio::time::Instant;

/// Hears a server. All must return at once: the read loop waits for them.
pub(crate) trait Ear: Send + Sync {
    /// A notification that is no report of progress.
    fn heard(&self, remark: Remark<'_>);

    /// A request of the server's. Taken, it will be answered; else it is refused at once.
    fn asked(&self, id: Id<'_>, remark: Remark<'_>) -> bool;

    /// It has answered a request that nobody waits for any more.
    fn answered_late(&self, id: &str);

    /// Its tools were listed: for the first time, or because they are others than before.
    fn listed(&self, is_first: bool);

    /// The server was lost, and whatever it had asked with it.
    fn lost(&self);

    /// The server was lost and is there again; it knows nothing of what it was told before.
    fn returned(&self);
}

/// A server's audience. Clones share the ear.
#[derive(Clone)]
pub(crate) struct Audience {
    /// What it is told that its clients can do: the JSON text of an object.
    pub(crate) capabilities: Arc<str>,
    /// Numbers the requests to it, from one connection to the next: what it says of one is never taken for another's.
    pub(crate) numbers: Arc<AtomicU64>,
    ear: Arc<Mutex<Option<Weak<dyn Ear>>>>,
    strangers: Arc<Mutex<Strangers>>,
}

/// Those who call it and cannot hear it: the command line, a program that embeds the bridge.
#[derive(Default)]
struct Strangers {
    calls: usize,
    /// Till when it may still be at work on a call that was given up.
    until: Option<Instant>,
}

/// A call of a stranger's.
pub(crate) struct Stranger {
    among: Arc<Mutex<Strangers>>,
    /// Whether it has ended; if it was given up instead, the server may go on with it for `linger`.
    pub(crate) has_ended: bool,
    linger: Duration,
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let mut among = self.among.lock().expect("nothing panics while holding it");
        among.calls -= 1;
        if !self.has_ended {
            among.until = among.until.max(Some(Instant::now() + self.linger));
        }
    }
}

impl Audience {
    pub(crate) fn new(capabilities: &str) -> Self {
        let (capabilities, numbers) = (capabilities.into(), Arc::new(AtomicU64::new(1)));
        Self { capabilities, numbers, ear: Arc::default(), strangers: Arc::default() }
    }

    /// A stranger calls.
    pub(crate) fn stranger(&self, linger: Duration) -> Stranger {
        self.strangers().calls += 1;
        Stranger { among: self.strangers.clone(), has_ended: false, linger }
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
    pub(crate) fn attach(&self, ear: Weak<dyn Ear>) {
        *self.ear.lock().expect("nothing panics while holding it") = Some(ear);
    }

    pub(crate) fn heard(&self, remark: Remark<'_>) {
        self.ear().into_iter().for_each(|ear| ear.heard(remark));
    }

    pub(crate) fn asked(&self, id: Id<'_>, remark: Remark<'_>) -> bool {
        self.ear().is_some_and(|ear| ear.asked(id, remark))
    }

    pub(crate) fn answered_late(&self, id: &str) {
        self.ear().into_iter().for_each(|ear| ear.answered_late(id));
    }

    pub(crate) fn listed(&self, is_first: bool) {
        self.ear().into_iter().for_each(|ear| ear.listed(is_first));
    }

    pub(crate) fn lost(&self) {
        self.strangers().until = None;
        self.ear().into_iter().for_each(|ear| ear.lost());
    }

    pub(crate) fn returned(&self) {
        self.ear().into_iter().for_each(|ear| ear.returned());
    }

    fn ear(&self) -> Option<Arc<dyn Ear>> {
        self.ear.lock().expect("nothing panics while holding it").as_ref()?.upgrade()
    }
}
