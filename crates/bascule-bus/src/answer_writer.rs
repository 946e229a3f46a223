//! Publishes answers and lists of tools that may be too long for one message of the bus.
//!
//! A long text becomes an object, or it follows in parts; the bus decides ([`Bus::large_results`]).

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use serde_json::value::{RawValue, to_raw_value};

use crate::request_identity::BodyDigest;
use crate::{
    Bus, BusError, CLAIM_WINDOW, Envelope, LargeResults, McpToolsAvailable, MessageBody, MessageId,
    ResultObject, ResultParts, ToolInvokeResponse, ToolResultPart, Topic,
};

/// The space for the fields of an envelope beside its body.
const ENVELOPE_FIELDS: usize = 2048;
/// The shortest part. A smaller limit of the bus is its own problem.
const MIN_PART: usize = 256;

/// Stores the result of an answer as an object, if it is too long for one message and the bus has objects. The answer can be
/// recorded then. Other answers stay as they are.
pub async fn store_long_result(bus: &Bus, answer: Envelope) -> Result<Envelope, BusError> {
    if fits(bus, &answer) || bus.large_results() != LargeResults::Objects {
        return Ok(answer);
    }
    let Some(mut response) = long_response(&answer) else { return Ok(answer) };
    if let Some(result) = response.result.take() {
        response.result_object = Some(put_object(bus, &answer, result.get()).await?);
    }
    Ok(Envelope { body: to_body(&response), ..answer })
}

/// Publishes an answer, and the parts of a result that is too long for one message. Returns once the broker has it.
pub async fn publish_answer(bus: &Bus, topic: &Topic, answer: &Envelope) -> Result<(), BusError> {
    if fits(bus, answer) {
        return bus.publish_surely(topic, answer).await;
    }
    let answer = store_long_result(bus, answer.clone()).await?;
    let long = match bus.large_results() {
        LargeResults::Parts => long_response(&answer).and_then(|mut response| {
            let result = response.result.take()?;
            Some((response, result))
        }),
        LargeResults::Inline | LargeResults::Objects => None,
    };
    let Some((mut response, result)) = long else { return bus.publish_surely(topic, &answer).await };
    let parts = split(result.get(), part_length(bus));
    response.result_parts = Some(describe_parts(&parts, result.get()));
    bus.publish(topic, &Envelope { body: to_body(&response), ..answer.clone() }).await?;
    publish_parts(bus, topic, &answer, &response.tool_call_id, &parts).await
}

/// A stored list of tools is named again for this time. The bus keeps it for twice as long.
const REUSED_FOR: Duration = CLAIM_WINDOW;

/// The lists of tools that one publisher has stored as objects: the same list is not stored again for a while, so that publishing it
/// often does not fill the bucket.
#[derive(Debug, Default)]
pub struct StoredLists(HashMap<BodyDigest, (ResultObject, Instant)>);

impl StoredLists {
    async fn put(&mut self, bus: &Bus, message: &Envelope, list: &str) -> Result<ResultObject, BusError> {
        self.0.retain(|_, (_, stored)| stored.elapsed() < REUSED_FOR);
        let digest = BodyDigest::of(list);
        if let Some((object, _)) = self.0.get(&digest) {
            return Ok(object.clone());
        }
        let object = put_object(bus, message, list).await?;
        self.0.insert(digest, (object.clone(), Instant::now()));
        Ok(object)
    }
}

/// Publishes the tools of an agent. `envelope` has any body.
pub async fn publish_availability(
    bus: &Bus,
    topic: &Topic,
    envelope: Envelope,
    mut tools: McpToolsAvailable,
    lists: &mut StoredLists,
) -> Result<(), BusError> {
    let whole = Envelope { body: to_body(&tools), ..envelope };
    if fits(bus, &whole) {
        return bus.publish(topic, &whole).await;
    }
    let list = to_body(&std::mem::take(&mut tools.tools));
    let parts = split(list.get(), part_length(bus));
    match bus.large_results() {
        LargeResults::Objects => tools.tools_object = Some(lists.put(bus, &whole, list.get()).await?),
        LargeResults::Inline | LargeResults::Parts => {
            tools.tools_parts = Some(describe_parts(&parts, list.get()));
        }
    }
    let id = whole.message_id.to_string();
    let short = Envelope { body: to_body(&tools), ..whole };
    bus.publish(topic, &short).await?;
    match tools.tools_parts {
        Some(_) => publish_parts(bus, topic, &short, &id, &parts).await,
        None => Ok(()),
    }
}

/// Most messages are short: their exact length need not be known.
fn fits(bus: &Bus, envelope: &Envelope) -> bool {
    let limit = bus.max_message_bytes();
    envelope.memory_size().saturating_add(ENVELOPE_FIELDS) <= limit || envelope.to_bytes().len() <= limit
}

fn long_response(answer: &Envelope) -> Option<ToolInvokeResponse> {
    let is_response = answer.kind == ToolInvokeResponse::KIND;
    is_response.then(|| serde_json::from_str(answer.body.get()).ok()).flatten()
}

/// Stores a long text under a name of its own: agents may use the same message ids, and two replicas may answer one request
/// differently.
async fn put_object(bus: &Bus, message: &Envelope, text: &str) -> Result<ResultObject, BusError> {
    let Envelope { source, message_id, .. } = message;
    let name = BodyDigest::of(&format!("{source} {message_id} {text}"));
    bus.put_result(name.as_str(), text.as_bytes()).await
}

async fn publish_parts(
    bus: &Bus,
    topic: &Topic,
    whole: &Envelope,
    id: &str,
    parts: &[&str],
) -> Result<(), BusError> {
    for (index, text) in (0..).zip(parts) {
        let part = ToolResultPart { tool_call_id: id.to_owned(), index, text: (*text).to_owned() };
        let message_id = MessageId::parse(&format!("{}-{index}", whole.message_id));
        let envelope = Envelope {
            message_id: message_id.unwrap_or_else(|_| whole.message_id.clone()),
            kind: ToolResultPart::KIND.into(),
            body: to_body(&part),
            unknown: BTreeMap::new(),
            ..whole.clone()
        };
        bus.publish(topic, &envelope).await?;
    }
    Ok(())
}

/// JSON in a JSON string is at most twice as long: only quotes, backslashes and line breaks are escaped.
fn part_length(bus: &Bus) -> usize {
    (bus.max_message_bytes().saturating_sub(2 * ENVELOPE_FIELDS) / 2).max(MIN_PART)
}

fn describe_parts(parts: &[&str], text: &str) -> ResultParts {
    ResultParts { count: u32::try_from(parts.len()).unwrap_or(u32::MAX), bytes: text.len() as u64 }
}

/// Cuts a text between characters into parts of at most `length` bytes.
fn split(mut text: &str, length: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    while !text.is_empty() {
        let (part, rest) = text.split_at(text.floor_char_boundary(length));
        parts.push(part);
        text = rest;
    }
    parts
}

fn to_body(value: &impl serde::Serialize) -> Box<RawValue> {
    to_raw_value(value).expect("all keys of a message are strings")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{AgentName, ReceivedItem, Timestamp, TopicPattern};

    fn answer(result: &str) -> Envelope {
        let response = ToolInvokeResponse {
            tool_call_id: "t-1".into(),
            tool_name: "a:b".into(),
            is_error: false,
            result: Some(RawValue::from_string(result.into()).unwrap()),
            result_object: None,
            result_parts: None,
        };
        Envelope {
            message_id: MessageId::parse("m-1").unwrap(),
            kind: ToolInvokeResponse::KIND.into(),
            correlation_id: None,
            reply_to: None,
            source: "bascule".into(),
            destination: None,
            timestamp: Timestamp::from_unix_millis(0),
            headers: crate::ContentTrust::ToolOutput.to_headers(),
            body: to_body(&response),
            unknown: BTreeMap::new(),
        }
    }

    // req: BU-03
    #[test]
    fn parts_join_to_the_text_and_cut_no_character() {
        for text in ["", "a", "äöü", "\"{\\\"x\\\": 1}\"", &"xä".repeat(1000)] {
            for length in [4, 7, 256] {
                let parts = split(text, length);
                assert_eq!(parts.concat(), text);
                assert!(parts.iter().all(|part| !part.is_empty() && part.len() <= length));
            }
        }
    }

    // req: BU-03
    #[tokio::test]
    async fn short_answer_and_tools_are_published_as_they_are() {
        let bus = Bus::embedded(Arc::default());
        let agent = AgentName::parse("a").unwrap();
        let mut received = bus.subscribe(&TopicPattern::parse("tool.#").unwrap()).await.unwrap();
        let answer = answer(r#"{"content":[ ]}"#);
        publish_answer(&bus, &agent.result_topic(), &answer).await.unwrap();
        let tools = McpToolsAvailable {
            agent: agent.clone(),
            tools: vec![RawValue::from_string("{ }".into()).unwrap()],
            servers: vec![],
            tools_object: None,
            tools_parts: None,
        };
        let (topic, lists) = (agent.availability_topic(), &mut StoredLists::default());
        publish_availability(&bus, &topic, answer.clone(), tools, lists).await.unwrap();
        let mut bodies = Vec::new();
        for _ in 0..2 {
            let Some(ReceivedItem::Message(message)) = received.next().await else { panic!("no message") };
            bodies.push(message.content.unwrap().body.get().to_owned());
        }
        assert_eq!(bodies[0], answer.body.get());
        assert_eq!(bodies[1], r#"{"agent":"a","tools":[{ }],"servers":[]}"#);
    }
}
