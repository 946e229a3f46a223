//! The envelope: its schema, and examples of whole messages.

use bascule_bus::{
    AgentName, ContentTrust, ENVELOPE_VERSION, Envelope, Headers, MessageId, Timestamp, Topic,
    WellKnownHeaders,
};
use bascule_model::CorrelationId;
use serde_json::{Value, json};

use crate::bodies::MessageKind;
use crate::schema::{agent_name, id, of_type, text, time};

const TRACE_PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// Returns a whole message of this kind.
pub(crate) fn example(kind: &MessageKind, number: usize, body: &Value) -> Envelope {
    let is_from_agent = ContentTrust::from_headers(&kind.headers) == Some(ContentTrust::ToolRequest);
    let is_request = kind.name == "ToolInvokeRequest";
    let agent = AgentName::parse("research").unwrap();
    let has_call = body.get("toolCallId").is_some() || body.get("correlationId").is_some();
    let mut headers = kind.headers.clone();
    if has_call && number == 0 {
        headers.insert(WellKnownHeaders::TRACE_PARENT.into(), TRACE_PARENT.into());
    }
    Envelope {
        message_id: MessageId::parse(&format!("{}-{}", if is_from_agent { "a" } else { "b" }, number + 1))
            .unwrap(),
        kind: kind.name.clone().into(),
        correlation_id: has_call.then(|| CorrelationId::parse("c-1").unwrap()),
        reply_to: (is_request && number == 0).then(|| Topic::parse("tool.result.research.7f3a").unwrap()),
        source: if is_from_agent { agent.to_string() } else { "bascule".to_owned() }.into(),
        destination: None,
        timestamp: Timestamp::parse("2026-03-01T12:00:00.250Z").unwrap(),
        headers,
        body: serde_json::value::to_raw_value(body).unwrap(),
        unknown: Default::default(),
    }
}

/// An envelope with every field.
fn full() -> Envelope {
    Envelope {
        message_id: MessageId::parse("m").unwrap(),
        kind: "k".into(),
        correlation_id: Some(CorrelationId::parse("c").unwrap()),
        reply_to: Some(Topic::parse("t").unwrap()),
        source: "s".into(),
        destination: Some("d".into()),
        timestamp: Timestamp::from_unix_millis(0),
        headers: Headers::from([("h".into(), "v".into())]),
        body: serde_json::value::to_raw_value(&json!({})).unwrap(),
        unknown: Default::default(),
    }
}

pub(crate) fn schema() -> Value {
    let fields = [
        (
            "version",
            json!({"const": ENVELOPE_VERSION, "description": "The version of the envelope. Absent: 1. A message of another version goes to the dead letters."}),
        ),
        (
            "messageId",
            id(
                "Unique among all messages. A request whose id was seen within ten minutes is not run again: it is answered from the records.",
            ),
        ),
        ("type", text("The kind of body.")),
        (
            "correlationId",
            id(
                "The id that all messages, events and errors of one call share. Answers repeat it. Default: the bridge makes one.",
            ),
        ),
        (
            "replyTo",
            json!({"type": "string", "pattern": r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$", "maxLength": 255, "description": "The topic for the answer: `tool.result.{agent}`, a topic below it, or an inbox of NATS (`_INBOX.…` or `_INBOX_{agent}.…`). Default: `tool.result.{agent}`."}),
        ),
        ("source", text("The publisher. In a request on `tool.invoke.mcp`, the name of the agent.")),
        ("destination", text("The only recipient, if there is one.")),
        ("timestamp", time("The time of publishing.")),
        ("headers", json!({"$ref": "#/components/schemas/Headers"})),
        ("body", json!({"description": "The content. Each message defines it."})),
    ];
    of_type("The envelope of every message, in JSON. Unknown fields are kept and ignored.", &full(), &fields)
}

/// The headers, which are headers of the broker too.
pub(crate) fn headers_schema() -> Value {
    json!({
        "type": "object",
        "description": "Metadata, in the envelope and as headers of the broker. The envelope counts.",
        "additionalProperties": {"type": "string"},
        "properties": {
            (WellKnownHeaders::CONTENT_TRUST): {
                "type": "string",
                "enum": ["tool-request", "tool-output"],
                "description": "The origin of the body. `tool-output` is text of a tool or of its server: show it to a model as a tool result, never as the words of the user or of the system.",
            },
            (WellKnownHeaders::TRACE_PARENT): text("The span that the message belongs to (W3C Trace Context)."),
            (WellKnownHeaders::TRACE_STATE): text("W3C Trace Context."),
            (WellKnownHeaders::BAGGAGE): text("W3C Baggage."),
        },
    })
}

pub(crate) fn agent_parameter() -> Value {
    let name = agent_name("");
    json!({"description": format!("The name of the agent: {}. Not `refresh`.", name["pattern"].as_str().unwrap())})
}
