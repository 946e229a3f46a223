//! Whom a server works for: what they can do for it, and who hears what it says of itself.

use std::sync::{Arc, Mutex, Weak};

use bascule_client::Id;
use serde_json::value::RawValue;

/// Hears a server. All must return at once: the read loop waits for them.
pub(crate) trait Ear: Send + Sync {
    /// A notification that is no report of progress.
    fn heard(&self, method: &str, params: Option<&RawValue>);

    /// A request of the server's. Taken, it will be answered; else it is refused at once.
    fn asked(&self, id: Id<'_>, method: &str, params: Option<&RawValue>) -> bool;

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
    ear: Arc<Mutex<Option<Weak<dyn Ear>>>>,
}

impl Audience {
    pub(crate) fn new(capabilities: &str) -> Self {
        Self { capabilities: capabilities.into(), ear: Arc::default() }
    }

    /// From now on this one hears it, for as long as it exists.
    pub(crate) fn attach(&self, ear: Weak<dyn Ear>) {
        *self.ear.lock().expect("nothing panics while holding it") = Some(ear);
    }

    pub(crate) fn heard(&self, method: &str, params: Option<&RawValue>) {
        self.ear().into_iter().for_each(|ear| ear.heard(method, params));
    }

    pub(crate) fn asked(&self, id: Id<'_>, method: &str, params: Option<&RawValue>) -> bool {
        self.ear().is_some_and(|ear| ear.asked(id, method, params))
    }

    pub(crate) fn listed(&self, is_first: bool) {
        self.ear().into_iter().for_each(|ear| ear.listed(is_first));
    }

    pub(crate) fn lost(&self) {
        self.ear().into_iter().for_each(|ear| ear.lost());
    }

    pub(crate) fn returned(&self) {
        self.ear().into_iter().for_each(|ear| ear.returned());
    }

    fn ear(&self) -> Option<Arc<dyn Ear>> {
        self.ear.lock().expect("nothing panics while holding it").as_ref()?.upgrade()
    }
}
