//! Writes the messages that a request leads to: the answer, progress, or a dead letter.

use bascule_bus::{
    BusError, DeadLetter, Envelope, ErrorDetails, MessageId, ReceivedMessage, SharedTopics, ToolError,
    ToolInvokeResponse, ToolProgress, Topic, WellKnownHeaders,
};
use bascule_mcp::patch;
use bascule_model::{BridgeError, CallOutcome, ErrorCode, clip};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ring::digest::{SHA256, digest};
use serde_json::value::{RawValue, to_raw_value};

use super::BusFace;
use super::incoming::IncomingRequest;
use crate::hexadecimal::hexadecimal;

/// The longest message of an error.
const MAX_ERROR_TEXT: usize = 16 << 10;
/// The longest details of an error. Those of a wrong result quote the whole result.
const MAX_DETAILS: usize = 256 << 10;
/// Longer trace headers of a request are not repeated in its answer.
const MAX_TRACE_HEADER: usize = 512;
/// The space for the fields of a message beside its content.
const OTHER_FIELDS: usize = 4 << 10;

impl BusFace {
    /// Builds the answer to a request.
    pub(super) fn answer_to(
        &self,
        request: &IncomingRequest,
        result: Result<CallOutcome, Box<BridgeError>>,
    ) -> Envelope {
        let answer = match result {
            Ok(outcome) => self.envelope(&ToolInvokeResponse {
                tool_call_id: request.tool_call_id.clone(),
                tool_name: request.tool_name.clone(),
                is_error: outcome.result.is_error,
                result: Some(outcome.result.raw),
                result_object: None,
                result_parts: None,
            }),
            Err(error) => self.envelope(&tool_error(request, &error, self.bus.max_message_bytes())),
        };
        Envelope { message_id: answer_id(&request.envelope.message_id), ..self.addressed(request, answer) }
    }

    /// Builds a progress message from the parameters of a server's notification.
    pub(super) fn progress_of(&self, request: &IncomingRequest, params: &RawValue) -> Option<Envelope> {
        let progress = patch::remove(params.get(), &["progressToken"]);
        let progress = RawValue::from_string(progress).ok()?;
        let body = ToolProgress { tool_call_id: request.tool_call_id.clone(), progress };
        Some(self.addressed(request, self.envelope(&body)))
    }

    /// Adds the ids of a request, so that its sender recognises the answer.
    fn addressed(&self, request: &IncomingRequest, mut answer: Envelope) -> Envelope {
        answer.correlation_id = Some(request.correlation_id.clone());
        let names = [WellKnownHeaders::TRACE_PARENT, WellKnownHeaders::TRACE_STATE];
        let found = names.iter().filter_map(|name| request.envelope.headers.get_key_value(*name));
        for (name, value) in found.filter(|(_, value)| value.len() <= MAX_TRACE_HEADER) {
            answer.headers.insert(name.clone(), value.clone());
        }
        answer
    }

    /// Builds the dead letter of a message that cannot be handled.
    pub(super) fn dead_letter_of(&self, message: &ReceivedMessage, reason: &str) -> Envelope {
        let room = self.bus.max_message_bytes().saturating_sub(OTHER_FIELDS);
        self.envelope(&dead_letter(message, reason, room))
    }

    /// Publishes a dead letter.
    pub(super) async fn bury(&self, letter: &Envelope) -> Result<(), BusError> {
        self.bus.publish(&Topic::from_static(SharedTopics::DEAD_LETTERS), letter).await
    }
}

/// A request has one answer, whichever replica writes it: receivers recognise a repetition by its id.
fn answer_id(request: &MessageId) -> MessageId {
    let digest = digest(&SHA256, request.as_str().as_bytes());
    let hex = hexadecimal(&digest.as_ref()[..16]);
    MessageId::parse(&format!("answer-{hex}")).expect("it is short and has no spaces")
}

fn tool_error(request: &IncomingRequest, error: &BridgeError, max_message: usize) -> ToolError {
    let max_details = MAX_DETAILS.min(max_message / 4);
    let details = to_raw_value(error).ok().filter(|details| details.get().len() <= max_details);
    ToolError {
        tool_call_id: request.tool_call_id.clone(),
        tool_name: request.tool_name.clone(),
        code: code_of(error.code),
        message: clip(&error.message, MAX_ERROR_TEXT).to_owned(),
        is_retryable: error.retryable,
        correlation_id: Some(request.correlation_id.clone()),
        retry_after_ms: error.retry_after_ms,
        details: details.map(ErrorDetails),
    }
}

/// The code on the bus.
fn code_of(code: ErrorCode) -> String {
    match code {
        ErrorCode::ProviderTimeout => "timeout".into(),
        code => code.to_string().to_ascii_lowercase(),
    }
}

/// Keeps a message as it came, as far as there is room for it.
fn dead_letter(message: &ReceivedMessage, reason: &str, room: usize) -> DeadLetter {
    let bytes = match &message.content {
        Ok(envelope) => envelope.to_bytes(),
        Err(unreadable) => unreadable.payload.to_vec(),
    };
    let (reason, topic) = (reason.to_owned(), message.topic.to_string());
    let text = std::str::from_utf8(&bytes).ok().filter(|text| escaped_length(text) <= room);
    if let Some(text) = text {
        return DeadLetter { reason, topic, message: text.to_owned(), base64: false, original_bytes: None };
    }
    // In base64 no byte needs an escape, so that the length is known.
    let kept = &bytes[..bytes.len().min(room / 4 * 3)];
    let original_bytes = (kept.len() < bytes.len()).then_some(bytes.len() as u64);
    DeadLetter { reason, topic, message: BASE64_STANDARD.encode(kept), base64: true, original_bytes }
}

fn escaped_length(text: &str) -> usize {
    let escaped = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        0..0x20 => 6,
        _ => 1,
    };
    text.bytes().map(escaped).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letter(bytes: &[u8], room: usize) -> DeadLetter {
        let topic = Topic::parse("tool.invoke.mcp.a").unwrap();
        dead_letter(&ReceivedMessage::read(topic, bytes.to_vec().into()), "why", room)
    }

    // req: BU-09
    #[test]
    fn dead_letter_keeps_the_message_as_it_came() {
        let text = letter(b"not \"JSON\"", 100);
        assert_eq!((text.message.as_str(), text.base64, text.original_bytes), ("not \"JSON\"", false, None));
        assert_eq!((text.reason.as_str(), text.topic.as_str()), ("why", "tool.invoke.mcp.a"));
        let binary = letter(b"\xff\x00", 100);
        assert_eq!((binary.message.as_str(), binary.base64, binary.original_bytes), ("/wA=", true, None));
    }

    // req: BU-09
    #[test]
    fn dead_letter_fits_and_says_what_is_missing() {
        let long = letter(&[b'"'; 1000], 100);
        assert!(long.base64 && long.message.len() <= 100 && long.original_bytes == Some(1000));
        // Escaped text needs more room than its base64.
        let escaped = letter(&[b'"'; 60], 100);
        assert!(escaped.base64 && escaped.original_bytes.is_none());
    }

    // req: BU-03
    #[test]
    fn codes_are_lower_case_and_timeout_has_its_own() {
        assert_eq!(code_of(ErrorCode::ProviderTimeout), "timeout");
        assert_eq!(code_of(ErrorCode::ProviderCrashed), "provider_crashed");
        assert_eq!(code_of(ErrorCode::OutcomeUnknown), "outcome_unknown");
    }

    // req: BU-09
    #[test]
    fn answer_id_follows_from_the_request() {
        let id = |text: &str| answer_id(&MessageId::parse(text).unwrap());
        assert_eq!(id("m-1"), id("m-1"));
        assert_ne!(id("m-1"), id("m-2"));
        assert!(id(&"x".repeat(128)).as_str().starts_with("answer-"));
    }
}
