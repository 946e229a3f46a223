//! The name of an agent, and the topics that follow from it.

use std::sync::Arc;

use crate::{Envelope, Topic};

/// The longest name. A topic has at most 255 characters.
const MAX_LENGTH: usize = 64;

/// The text cannot be the name of an agent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AgentNameError {
    #[error("agent name `{0}` must have 1 to {MAX_LENGTH} letters, digits, `_` or `-`")]
    Characters(String),
    /// Its availability would be published to the topic of refresh requests.
    #[error("no agent may be called `refresh`: `tool.meta.mcp.refresh` is the topic of refresh requests")]
    Reserved,
}

/// The name of an agent: one segment of a topic.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AgentName(Arc<str>);

impl AgentName {
    pub fn parse(text: &str) -> Result<Self, AgentNameError> {
        let is_legal = |c: u8| c.is_ascii_alphanumeric() || c == b'_' || c == b'-';
        match (1..=MAX_LENGTH).contains(&text.len()) && text.bytes().all(is_legal) {
            true if text == "refresh" => Err(AgentNameError::Reserved),
            true => Ok(Self(text.into())),
            false => Err(AgentNameError::Characters(text.into())),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The requests of this agent.
    pub fn request_topic(&self) -> Topic {
        self.topic("tool.invoke.mcp")
    }

    /// The answers to this agent, unless a request names another topic.
    pub fn result_topic(&self) -> Topic {
        self.topic("tool.result")
    }

    /// The tools of this agent.
    pub fn availability_topic(&self) -> Topic {
        self.topic("tool.meta.mcp")
    }

    /// The cancellations of this agent.
    pub fn cancel_topic(&self) -> Topic {
        self.topic("tool.cancel.mcp")
    }

    /// Returns true if an answer to this agent may go to `topic`: to one of its own result topics, or to an inbox of NATS, with
    /// the usual prefix or `_INBOX_{agent}`. A request must not make a bridge publish elsewhere.
    pub fn may_receive_at(&self, topic: &Topic) -> bool {
        let below = |prefix: &str| topic.as_str().strip_prefix(prefix)?.strip_prefix(&*self.0);
        below("tool.result.").is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            || below("_INBOX_").is_some_and(|rest| rest.starts_with('.'))
            || topic.as_str().starts_with("_INBOX.")
    }

    /// The topic of the answer to a request: the one that it names, if the agent may receive there.
    pub fn answer_topic(&self, request: &Envelope) -> Topic {
        let named = request.reply_to.as_ref().filter(|topic| self.may_receive_at(topic));
        named.cloned().unwrap_or_else(|| self.result_topic())
    }

    fn topic(&self, prefix: &str) -> Topic {
        Topic::parse(&format!("{prefix}.{self}")).expect("a name is one segment, and short")
    }
}

/// Topics that all agents share. A namespace for constants; it has no values.
pub enum SharedTopics {}

impl SharedTopics {
    /// Requests that name their agent only in `source`.
    pub const REQUESTS: &'static str = "tool.invoke.mcp";
    pub const REFRESH: &'static str = "tool.meta.mcp.refresh";
    pub const DEAD_LETTERS: &'static str = "tool.dead.mcp";
}

bascule_model::impl_string_traits!(AgentName);

#[cfg(test)]
mod tests {
    use super::*;

    // req: BU-02
    #[test]
    fn names_the_topics_of_an_agent() {
        let agent = AgentName::parse("research-1").unwrap();
        assert_eq!(agent.request_topic().as_str(), "tool.invoke.mcp.research-1");
        assert_eq!(agent.result_topic().as_str(), "tool.result.research-1");
        assert_eq!(agent.availability_topic().as_str(), "tool.meta.mcp.research-1");
        assert_eq!(agent.cancel_topic().as_str(), "tool.cancel.mcp.research-1");
    }

    // req: BU-02
    #[test]
    fn refuses_names_that_are_no_segment_or_reserved() {
        for text in ["", "a.b", "a b", "*", "ä", &"x".repeat(65)] {
            assert!(matches!(AgentName::parse(text), Err(AgentNameError::Characters(_))), "{text:?}");
        }
        assert_eq!(AgentName::parse("refresh"), Err(AgentNameError::Reserved));
    }

    // req: BU-06
    #[test]
    fn answers_go_only_to_topics_of_the_agent() {
        let agent = AgentName::parse("a").unwrap();
        let may = |topic: &str| agent.may_receive_at(&Topic::parse(topic).unwrap());
        assert!(may("tool.result.a") && may("tool.result.a.7") && may("_INBOX.x.y"));
        assert!(may("_INBOX_a.x"));
        for topic in [
            "_INBOX_b.x",
            "_INBOX_ab.x",
            "_INBOX_a",
            "tool.result.b",
            "tool.result.ab",
            "tool.invoke.mcp.a",
            "tool.result",
            "provider.mcp.x",
        ] {
            assert!(!may(topic), "{topic}");
        }
    }
}
