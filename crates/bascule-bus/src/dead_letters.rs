//! Messages that could not be handled, as the broker keeps them.

use crate::{DeadLetter, Timestamp};

/// The id of a dead letter at its broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetterId(pub String);

/// A dead letter that the broker keeps.
#[derive(Debug, Clone)]
pub struct StoredDeadLetter {
    pub id: DeadLetterId,
    pub time: Timestamp,
    pub letter: DeadLetter,
}
