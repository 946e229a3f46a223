//! Reads a request from the bus. Anybody may publish there, so nothing about a message is certain.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bascule_bus::{
    AgentName, Envelope, MessageBody, ReceivedMessage, SharedTopics, Timestamp, ToolInvokeRequest, Topic,
    UnreadableMessage, WellKnownHeaders,
};
use bascule_mcp::TraceHeaders;
use bascule_model::{CorrelationId, clip};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::client_trace::{ClientTrace, TraceMeta};
use crate::unique_number::next_correlation_id;

/// The longest id of a call. An answer repeats it.
pub(super) const MAX_CALL_ID: usize = 1024;
/// The longest tool name that an answer repeats.
const MAX_TOOL_NAME: usize = 1024;

/// A message that can be answered.
pub(super) struct IncomingRequest {
    pub(super) envelope: Arc<Envelope>,
    pub(super) tool_call_id: String,
    pub(super) tool_name: String,
    pub(super) arguments: Box<RawValue>,
    /// The call must be answered by then.
    pub(super) expires: Timestamp,
    pub(super) wants_progress: bool,
    pub(super) correlation_id: CorrelationId,
    pub(super) trace: Option<Arc<ClientTrace>>,
    /// The topic of the answer.
    pub(super) answer_topic: Topic,
    /// The reason why the request cannot be run as it is.
    pub(super) problem: Option<RequestProblem>,
}

/// The reason why a request is answered and not run.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RequestProblem {
    /// The body is not that of a request.
    Body(String),
    /// The arguments are no object.
    Arguments,
    /// The answer would go to a topic that is not the agent's.
    ReplyTo(Topic),
}

/// The part of a request that an answer needs.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CallIdentity {
    tool_call_id: String,
    #[serde(default)]
    tool_name: Option<Box<RawValue>>,
}

impl IncomingRequest {
    /// Reads a message. Fails with the reason if nobody could be answered. `stored` is the time at which the broker took it.
    pub(super) fn read(
        message: &ReceivedMessage,
        agent: &AgentName,
        max_bytes: usize,
        agent_timeout: Duration,
        stored: Option<Timestamp>,
    ) -> Result<Self, String> {
        let (envelope, mistake) = match &message.content {
            Ok(envelope) => (envelope.clone(), None),
            Err(unreadable) => read_leniently(message, unreadable, agent)?,
        };
        let (kind, expected) = (&envelope.kind, ToolInvokeRequest::KIND);
        if kind != expected {
            return Err(format!(
                "the message has type `{}`; requests have type `{expected}`",
                clip(kind, 64)
            ));
        }
        let bytes = envelope.memory_size();
        if bytes > max_bytes {
            return Err(format!("the message has about {bytes} bytes; requests have at most {max_bytes}"));
        }
        let identity: CallIdentity = serde_json::from_str(envelope.body.get())
            .map_err(|error| format!("the request has no usable `toolCallId`: {error}"))?;
        if !(1..=MAX_CALL_ID).contains(&identity.tool_call_id.len()) {
            return Err(format!("the request's `toolCallId` must have 1 to {MAX_CALL_ID} bytes"));
        }
        let sent = stored.unwrap_or(envelope.timestamp);
        let mut request = Self::of(envelope, identity, agent, later(sent, agent_timeout));
        request.problem = mistake.map(RequestProblem::Body).or(request.problem);
        Ok(request)
    }

    /// `latest` is the end of a request that names none.
    fn of(envelope: Arc<Envelope>, identity: CallIdentity, agent: &AgentName, latest: Timestamp) -> Self {
        let (body, mut problem) = match serde_json::from_str::<ToolInvokeRequest>(envelope.body.get()) {
            Ok(body) => (Some(body), None),
            Err(error) => (None, Some(RequestProblem::Body(error.to_string()))),
        };
        let deadline = body.as_ref().and_then(|body| body.deadline);
        let wants_progress = body.as_ref().is_some_and(|body| body.progress);
        let arguments = body.and_then(|body| body.arguments).unwrap_or_else(no_arguments);
        if !arguments.get().starts_with('{') {
            problem = problem.or(Some(RequestProblem::Arguments));
        }
        let mut answer_topic = agent.result_topic();
        match &envelope.reply_to {
            Some(topic) if agent.may_receive_at(topic) => answer_topic = topic.clone(),
            Some(topic) => problem = Some(RequestProblem::ReplyTo(topic.clone())),
            None => {}
        }
        Self {
            tool_name: identity.tool_name.as_deref().map(tool_name).unwrap_or_default(),
            tool_call_id: identity.tool_call_id,
            arguments,
            expires: deadline.unwrap_or(latest),
            wants_progress,
            correlation_id: envelope.correlation_id.clone().unwrap_or_else(next_correlation_id),
            trace: trace_of(&envelope).map(Arc::new),
            answer_topic,
            problem,
            envelope,
        }
    }

    /// The time that is left for an answer; `None` if there is none.
    pub(super) fn time_left(&self) -> Option<Duration> {
        let now = Timestamp::from(SystemTime::now()).unix_millis();
        let left = self.expires.unix_millis().checked_sub(now).filter(|left| *left > 0)?;
        Some(Duration::from_millis(left))
    }
}

/// Reads a message with a mistake in a field that an answer does not need. The agent learns of the mistake; a message on the
/// shared topic must name it.
fn read_leniently(
    message: &ReceivedMessage,
    unreadable: &UnreadableMessage,
    agent: &AgentName,
) -> Result<(Arc<Envelope>, Option<String>), String> {
    let is_own = |envelope: &Envelope| {
        message.topic.as_str() != SharedTopics::REQUESTS || envelope.source == agent.as_str()
    };
    match Envelope::parse_leniently(&unreadable.payload) {
        // Without a mistake the message was refused for another reason.
        Ok((envelope, Some(mistake))) if is_own(&envelope) => Ok((Arc::new(envelope), Some(mistake))),
        Ok(_) | Err(_) => Err(unreadable.reason.clone()),
    }
}

/// The name as a text, also if the agent has sent something else.
fn tool_name(raw: &RawValue) -> String {
    let name = serde_json::from_str::<String>(raw.get()).unwrap_or_else(|_| raw.get().to_owned());
    clip(&name, MAX_TOOL_NAME).to_owned()
}

fn trace_of(envelope: &Envelope) -> Option<ClientTrace> {
    let header = |name: &str| envelope.headers.get(name).map(|value| value.clone().into_owned());
    let headers = TraceHeaders {
        parent: header(WellKnownHeaders::TRACE_PARENT),
        state: header(WellKnownHeaders::TRACE_STATE),
        baggage: header(WellKnownHeaders::BAGGAGE),
    };
    ClientTrace::find(TraceMeta::default(), Some(&headers))
}

fn no_arguments() -> Box<RawValue> {
    RawValue::from_string("{}".into()).expect("it is JSON")
}

fn later(time: Timestamp, by: Duration) -> Timestamp {
    let by = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
    Timestamp::from_unix_millis(time.unix_millis().saturating_add(by))
}

#[cfg(test)]
mod tests {
    use bascule_bus::UnreadableMessage;

    use super::*;

    fn message(envelope: serde_json::Value) -> ReceivedMessage {
        let topic = Topic::parse("tool.invoke.mcp.a").unwrap();
        ReceivedMessage::read(topic, envelope.to_string().into_bytes().into())
    }

    fn envelope(body: serde_json::Value) -> serde_json::Value {
        serde_json::json!({ "messageId": "m", "type": "ToolInvokeRequest", "source": "a",
            "timestamp": "2026-03-01T12:00:00Z", "body": body })
    }

    fn read(envelope: serde_json::Value) -> Result<IncomingRequest, String> {
        read_message(&message(envelope), None)
    }

    fn read_message(message: &ReceivedMessage, stored: Option<Timestamp>) -> Result<IncomingRequest, String> {
        let agent = AgentName::parse("a").unwrap();
        IncomingRequest::read(message, &agent, 100_000, Duration::from_secs(60), stored)
    }

    #[track_caller]
    fn check_dead(envelope: serde_json::Value, reason: &str) {
        let found = read(envelope).err().unwrap();
        assert!(found.starts_with(reason), "{found}");
    }

    // req: BU-09
    #[test]
    fn messages_that_nobody_can_be_answered_for_are_dead_letters() {
        let usable = serde_json::json!({ "toolCallId": "t", "toolName": "s:x" });
        let with = |key: &str, value: serde_json::Value| {
            let mut envelope = envelope(usable.clone());
            envelope[key] = value;
            envelope
        };
        check_dead(with("type", "Hello".into()), "the message has type `Hello`; requests have type");
        check_dead(with("version", 2.into()), "the message has envelope version 2; this program reads");
        check_dead(with("timestamp", "soon".into()), "the message is not an envelope: field `timestamp`");
        check_dead(
            envelope(serde_json::json!({ "toolName": "s:x" })),
            "the request has no usable `toolCallId`",
        );
        check_dead(envelope(serde_json::json!([1])), "the request has no usable `toolCallId`");
        check_dead(
            envelope(serde_json::json!({ "toolCallId": 7 })),
            "the request has no usable `toolCallId`",
        );
        check_dead(envelope(serde_json::json!({ "toolCallId": "" })), "the request's `toolCallId` must have");
        check_dead(with("source", "x".repeat(100_000).into()), "the message has about");
        let unreadable = UnreadableMessage { reason: "no JSON".into(), payload: (&b"\xff"[..]).into() };
        let message = ReceivedMessage { content: Err(unreadable), ..self::message(envelope(usable)) };
        assert_eq!(read_message(&message, None).err().unwrap(), "no JSON");
    }

    // req: BU-03
    #[test]
    fn mistake_beside_the_body_is_answered_with_the_name_of_the_field() {
        let with = |key: &str, value: serde_json::Value| {
            let mut envelope = envelope(serde_json::json!({ "toolCallId": "t", "toolName": "s:x" }));
            envelope[key] = value;
            envelope
        };
        for (key, value) in [("replyTo", "no topic"), ("correlationId", "two\nlines")] {
            let request = read(with(key, value.into())).unwrap();
            let Some(RequestProblem::Body(problem)) = &request.problem else { panic!("{key} is wrong") };
            assert!(problem.contains(key), "{problem}");
            assert_eq!((&*request.tool_call_id, request.answer_topic.as_str()), ("t", "tool.result.a"));
        }
        // A message that does not say whose it is cannot be answered.
        let mut shared = message(with("replyTo", "no topic".into()));
        shared.topic = Topic::from_static(SharedTopics::REQUESTS);
        assert!(read_message(&shared, None).is_ok());
        let mut foreign = with("replyTo", "no topic".into());
        foreign["source"] = "b".into();
        let foreign = ReceivedMessage { topic: shared.topic, ..message(foreign) };
        assert!(read_message(&foreign, None).is_err());
    }

    // req: BU-03
    #[test]
    fn requests_with_other_mistakes_can_be_answered() {
        let problem = |body: serde_json::Value| read(envelope(body)).unwrap().problem;
        let request = |extra: &str| {
            serde_json::from_str(&format!(r#"{{"toolCallId":"t","toolName":"s:x"{extra}}}"#)).unwrap()
        };
        assert_eq!(problem(request("")), None);
        assert_eq!(problem(request(r#","arguments":{"a":1},"future":1"#)), None);
        assert_eq!(problem(request(r#","arguments":null"#)), None);
        for arguments in ["[1]", "7", "\"x\""] {
            let extra = format!(r#","arguments":{arguments}"#);
            assert_eq!(problem(request(&extra)), Some(RequestProblem::Arguments));
        }
        assert!(matches!(problem(request(r#","deadline":"soon""#)), Some(RequestProblem::Body(_))));
        let without_name = read(envelope(serde_json::json!({ "toolCallId": "t" }))).unwrap();
        assert!(matches!(without_name.problem, Some(RequestProblem::Body(_))));
        let numbered = read(envelope(serde_json::json!({ "toolCallId": "t", "toolName": 7 }))).unwrap();
        assert_eq!(numbered.tool_name, "7");
    }

    // req: BU-06
    #[test]
    fn answers_go_to_topics_of_the_agent_only() {
        let topic_of = |reply: &str| {
            let mut envelope = envelope(serde_json::json!({ "toolCallId": "t", "toolName": "s:x" }));
            envelope["replyTo"] = reply.into();
            let request = read(envelope).unwrap();
            (request.answer_topic.to_string(), request.problem.is_some())
        };
        assert_eq!(topic_of("tool.result.a.7"), ("tool.result.a.7".into(), false));
        assert_eq!(topic_of("_INBOX.x"), ("_INBOX.x".into(), false));
        assert_eq!(topic_of("_INBOX_a.x"), ("_INBOX_a.x".into(), false));
        assert_eq!(topic_of("_INBOX_b.x"), ("tool.result.a".into(), true));
        assert_eq!(topic_of("tool.result.b"), ("tool.result.a".into(), true));
        assert_eq!(topic_of("tool.invoke.mcp.a"), ("tool.result.a".into(), true));
    }

    // req: BU-08
    #[test]
    fn request_without_deadline_expires_with_the_patience_of_its_agent() {
        let of = |body: serde_json::Value| read(envelope(body)).unwrap().expires.to_string();
        let request = serde_json::json!({ "toolCallId": "t", "toolName": "s:x" });
        assert_eq!(of(request), "2026-03-01T12:01:00.000Z");
        let request =
            serde_json::json!({ "toolCallId": "t", "toolName": "s:x", "deadline": "2027-01-01T00:00:00Z" });
        assert_eq!(of(request), "2027-01-01T00:00:00.000Z");
    }

    // req: BU-08
    #[test]
    fn age_of_a_request_counts_from_its_storage_where_the_broker_tells_it() {
        let stored = Timestamp::parse("2026-03-01T15:00:00Z").unwrap();
        let request = message(envelope(serde_json::json!({ "toolCallId": "t", "toolName": "s:x" })));
        let expires = read_message(&request, Some(stored)).unwrap().expires;
        assert_eq!(expires.to_string(), "2026-03-01T15:01:00.000Z");
    }
}
