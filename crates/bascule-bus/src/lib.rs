//! The message bus: what a message is, where it goes, and a bus inside the process that brings it there.
//!
//! `topic`, `envelope`, `headers` and `timestamp` say the same on every bus. `embedded` is one bus; a broker
//! becomes a module beside it and speaks these words too. Nothing here does I/O, reads a clock or uses chance:
//! whoever publishes brings them along. Nothing here needs a runtime either: `Subscription::next` is a plain
//! future.

mod embedded;
mod envelope;
mod events;
mod headers;
mod timestamp;
mod topic;

pub use embedded::{Delivery, EmbeddedBus, Message, Recall, SubscribeOptions, Subscription};
pub use envelope::{Envelope, MessageId, MessageIdError, MessageIds};
pub use events::{BusEvents, event_envelope, event_topic};
pub use headers::{ContentTrust, Headers, WellKnownHeaders};
pub use timestamp::{Timestamp, TimestampError};
pub use topic::{Topic, TopicError, TopicPattern};
