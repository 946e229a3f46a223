//! The parts of a request that its claim remembers, so that a repetition is recognised.

use std::fmt;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};

use crate::{AgentName, Envelope, MessageId, ReceivedMessage, Topic};

/// A request with the topic of its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestIdentity {
    pub(crate) id: MessageId,
    pub(crate) digest: BodyDigest,
    pub(crate) answer_topic: Topic,
}

impl RequestIdentity {
    pub(crate) fn of(request: &Envelope, agent: &AgentName) -> Self {
        Self {
            id: request.message_id.clone(),
            digest: BodyDigest::of(request.body.get()),
            answer_topic: agent.answer_topic(request),
        }
    }

    /// Returns the identity of a request that can be answered: mistakes in its optional fields do not matter.
    pub(crate) fn of_message(message: &ReceivedMessage, agent: &AgentName) -> Option<Self> {
        match &message.content {
            Ok(envelope) => Some(Self::of(envelope, agent)),
            Err(unread) => {
                let (envelope, _mistake) = Envelope::parse_leniently(&unread.payload).ok()?;
                Some(Self::of(&envelope, agent))
            }
        }
    }
}

/// A digest of a body: 128 bits as 22 characters that a subject of NATS may have.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct BodyDigest(String);

impl BodyDigest {
    pub(crate) fn of(body: &str) -> Self {
        Self(BASE64_URL_SAFE_NO_PAD.encode(&digest(&SHA256, body.as_bytes()).as_ref()[..16]))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BodyDigest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: BU-09
    #[test]
    fn digest_depends_on_the_body_and_is_one_segment() {
        assert_eq!(BodyDigest::of("{}"), BodyDigest::of("{}"));
        assert_ne!(BodyDigest::of("{}"), BodyDigest::of("{ }"));
        let digest = BodyDigest::of("{}").to_string();
        assert_eq!(digest.len(), 22);
        assert!(digest.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-' || c == b'_'), "{digest}");
    }
}
