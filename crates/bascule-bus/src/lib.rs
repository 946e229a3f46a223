//! The message bus: topics, message envelopes, and a bus inside the process.
//!
//! `topic`, `envelope`, `headers` and `timestamp` are common to every bus. `embedded` is one bus; brokers become
//! modules beside it. This crate does no I/O, reads no clock and uses no random source: publishers supply times
//! and ids. It needs no async runtime either: `Subscription::next` is a plain future.

mod embedded;
mod envelope;
mod events;
mod headers;
mod timestamp;
mod topic;

pub use embedded::{
    BuildEnvelope, BusMessage, EmbeddedBus, LazyEnvelope, ReplayLimits, SubscribeOptions, Subscription,
    SubscriptionItem,
};
pub use envelope::{Envelope, MessageId, MessageIdError, MessageIdGenerator};
pub use events::{BusEventSink, event_envelope, event_topic};
pub use headers::{ContentTrust, Headers, WellKnownHeaders};
pub use timestamp::{Timestamp, TimestampError};
pub use topic::{Topic, TopicError, TopicPattern};
