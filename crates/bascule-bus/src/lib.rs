//! The message bus: topics, message envelopes, the messages between agents and bridges, a bus inside the process, and
//! connections to brokers.
//!
//! `topic`, `envelope`, `headers`, `timestamp`, `agent` and `messages` are common to every bus and do no I/O. `embedded` is a
//! bus inside the process. [`Bus`] is one type over it and the brokers (features `nats` and `rabbitmq`). Publishers supply
//! times and ids: this crate reads no clock for them and uses no random source.

mod agent;
mod answer_reader;
mod answer_writer;
mod bus;
mod dead_letters;
mod embedded;
mod envelope;
mod error;
mod events;
mod headers;
mod messages;
#[cfg(feature = "nats")]
mod nats;
mod options;
#[cfg(feature = "rabbitmq")]
mod rabbitmq;
mod received;
mod request_identity;
mod requests;
mod subscriber_queue;
mod timestamp;
mod topic;

pub use agent::{AgentName, AgentNameError, SharedTopics};
pub use answer_reader::{AnswerError, AnswerReader, AnswerStep, AnsweredResult, PartsReader, parse_result};
pub use answer_writer::{StoredLists, publish_answer, publish_availability, store_long_result};
pub use bus::{Bus, BusReconnections, BusSubscription, LargeResults, ReceivedItem};
pub use dead_letters::{DeadLetterId, StoredDeadLetter};
pub use embedded::{
    BuildEnvelope, BusMessage, EmbeddedBus, LazyEnvelope, ReplayLimits, SubscribeOptions, Subscription,
    SubscriptionItem,
};
pub use envelope::{
    ENVELOPE_VERSION, Envelope, EnvelopeError, MessageId, MessageIdError, MessageIdGenerator,
};
pub use error::BusError;
pub use events::{BusEventSink, event_envelope, event_topic};
pub use headers::{ContentTrust, Headers, WellKnownHeaders};
pub use messages::{
    DeadLetter, ErrorDetails, McpMetadataRefreshRequest, McpToolsAvailable, MessageBody, ResultObject,
    ResultParts, ServerState, ToolCancelRequest, ToolError, ToolInvokeRequest, ToolInvokeResponse,
    ToolProgress, ToolResultPart,
};
pub use options::{
    BusCredentials, BusKind, BusOptions, BusUrl, BusUrlError, ClientCertificate, InboxPrefix,
    InboxPrefixError,
};
pub use received::{ReceivedMessage, UnreadableMessage};
pub use requests::{CLAIM_WINDOW, Claim, ClaimTicket, KEEP_INTERVAL, RequestDelivery, RequestQueue};
pub use timestamp::{Timestamp, TimestampError};
pub use topic::{Topic, TopicError, TopicPattern};
