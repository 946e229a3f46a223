//! A message that a bus delivered.

use std::sync::Arc;

use bytes::Bytes;

use crate::{Envelope, Topic};

/// A message with its topic. Anybody may publish on a broker, so its content need not be readable.
#[derive(Debug, Clone)]
pub struct ReceivedMessage {
    pub topic: Topic,
    pub content: Result<Arc<Envelope>, UnreadableMessage>,
}

/// The bytes of a message that is no envelope of a known version.
#[derive(Debug, Clone)]
pub struct UnreadableMessage {
    pub reason: String,
    pub payload: Bytes,
}

impl ReceivedMessage {
    /// Reads the bytes that a broker delivered.
    pub fn read(topic: Topic, payload: Bytes) -> Self {
        let content = Envelope::parse(&payload);
        let content =
            content.map(Arc::new).map_err(|error| UnreadableMessage { reason: error.to_string(), payload });
        Self { topic, content }
    }
}
