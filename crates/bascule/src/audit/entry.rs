//! The lines of a call: everything but the values of its arguments and of its result.

use bascule_model::clip;
use ring::hmac;
use serde::Serialize;
use serde_json::value::RawValue;

use super::file::{keyed_digest, members_of};
use crate::call_record::{CallEnd, CallRecord, RecordedResult};

/// The longest text that a caller has chosen.
const MAX_TEXT: usize = 512;

/// One line, without its number and its hash.
pub(super) struct AuditEntry {
    /// A JSON object.
    object: String,
    /// The arguments whose digest the line has.
    arguments: Option<Box<RawValue>>,
}

/// The place of a line in the course of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum LineKind {
    /// The call is about to be sent.
    Begin,
    /// A call with a `Begin` has ended.
    End,
    /// The call was refused before it could be sent.
    Refused,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CallLine<'a> {
    kind: LineKind,
    time: String,
    trace_id: String,
    span_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_span_id: Option<String>,
    correlation_id: &'a str,
    face: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<AuditedClient<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<&'a str>,
    server: &'a str,
    tool: &'a str,
    argument_bytes: usize,
    #[serde(flatten)]
    end: Option<End>,
}

#[derive(Serialize)]
struct AuditedClient<'a> {
    name: &'a str,
    version: &'a str,
    session: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct End {
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    delivery: bascule_model::Delivery,
    attempts: u32,
    duration_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    result_bytes: Option<usize>,
}

impl AuditEntry {
    pub(super) fn new(kind: LineKind, record: &CallRecord, arguments: &RawValue) -> Self {
        let CallRecord { caller, context, tool, .. } = record;
        let client = caller.client.as_ref().map(|client| AuditedClient {
            name: clip(&client.label.name, MAX_TEXT),
            version: clip(&client.label.version, MAX_TEXT),
            session: clip(&client.label.session, MAX_TEXT),
        });
        let line = CallLine {
            kind,
            time: jiff::Timestamp::now().to_string(),
            trace_id: context.trace_id.to_string(),
            span_id: context.span_id.to_string(),
            parent_span_id: context.parent.map(|parent| parent.to_string()),
            correlation_id: clip(record.correlation_id.as_str(), MAX_TEXT),
            face: caller.recorded_face().to_string(),
            client,
            agent: caller.agent.as_deref().map(|agent| clip(agent, MAX_TEXT)),
            server: clip(tool.server(), MAX_TEXT),
            tool: clip(tool.tool(), MAX_TEXT),
            argument_bytes: record.argument_bytes,
            end: record.end.as_ref().map(|end| End::new(end, record.meter.attempts())),
        };
        let object = serde_json::to_string(&line).expect("text and numbers are always JSON");
        // The line at the beginning has it already.
        let arguments = (kind != LineKind::End).then(|| arguments.to_owned());
        Self { object, arguments }
    }

    /// Returns the members of the line.
    pub(super) fn members(&self, key: &hmac::Key) -> String {
        let members = members_of(&self.object);
        match &self.arguments {
            Some(arguments) => {
                format!(r#"{members},"argumentsHmac":"{}""#, keyed_digest(key, arguments.get()))
            }
            None => members.to_owned(),
        }
    }
}

impl End {
    fn new(end: &CallEnd, attempts: u32) -> Self {
        let (outcome, code, delivery, result_bytes) = match &end.result {
            RecordedResult::Completed { is_error, result_bytes, .. } => {
                let outcome = if *is_error { "tool_error" } else { "ok" };
                (outcome, None, bascule_model::Delivery::Answered, Some(*result_bytes))
            }
            RecordedResult::Failed { code, delivery, .. } => {
                ("error", Some(code.to_string()), *delivery, None)
            }
        };
        let duration_ms = end.duration.as_micros() as f64 / 1000.0;
        Self { outcome, code, delivery, attempts, duration_ms, result_bytes }
    }
}
