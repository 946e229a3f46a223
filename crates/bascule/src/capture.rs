//! Captures the arguments and results of calls, without their secrets.
//!
//! Values are hidden by the name of their property (`token`), by their schema (`format: password`), by their form (a bearer
//! token in a text), and if the configuration of the server has them. The store's thread does the work, not the call.

mod redact;
mod schemas;

use std::sync::Arc;

use bascule_catalog::CatalogTool;
use bascule_store::{Captured, Content};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::call_record::{CallContent, CallMeter};
use crate::config::{Capture, ServerSettings, TraceSettings};
use crate::post_mortem::secrets_of;
use redact::Redactor;

/// A longer text is not captured: redaction needs all of it.
const MAX_READ: usize = 256 << 10;
/// The part of an error message that is read. The store keeps far less, so a secret at its end is never stored in part.
const MAX_MESSAGE: usize = 16 << 10;
/// Replaces a text that is not captured.
const TOO_LONG: &str = "\"(not captured: too long)\"";

/// The settings of a capture.
pub(crate) struct CaptureRules {
    capture: Capture,
    max_bytes: usize,
    redactor: Redactor,
}

impl CaptureRules {
    pub(crate) fn new(settings: &TraceSettings) -> Self {
        let (capture, max_bytes) = (settings.capture, settings.max_captured_bytes);
        Self { capture, max_bytes, redactor: Redactor::new(&settings.redact) }
    }
}

/// Returns a message of a call for the log, without secrets. `rules` are those of the traces, if calls are recorded.
pub(crate) fn redact_for_log(message: &str, meter: &CallMeter, rules: Option<&CaptureRules>) -> String {
    let mut text = match rules {
        Some(rules) => rules.redact_message(message),
        None => CaptureRules::new(&TraceSettings::default()).redact_message(message),
    };
    if let Some(settings) = meter.settings() {
        secrets_of(settings).hide(&mut text);
    }
    text
}

/// The content of a span of which the message alone is kept.
impl Content for CaptureRules {
    fn capture(&self) -> Captured {
        Captured::default()
    }

    fn redact_message(&self, message: &str) -> String {
        self.redactor.redact_message(&message[..message.floor_char_boundary(MAX_MESSAGE)])
    }

    fn bytes(&self) -> usize {
        0
    }
}

/// The content of one call before redaction.
pub(crate) struct CapturedCall {
    rules: Arc<CaptureRules>,
    arguments: Option<Box<RawValue>>,
    result: Option<Box<RawValue>>,
    tool: Option<Arc<CatalogTool>>,
    settings: Option<Arc<ServerSettings>>,
}

impl CapturedCall {
    /// Copies the content that the settings ask for. An error message is kept, and redacted, with any settings.
    pub(crate) fn new(
        rules: &Arc<CaptureRules>,
        meter: &CallMeter,
        content: CallContent<'_>,
        has_message: bool,
    ) -> Option<Self> {
        if rules.capture == Capture::None && !has_message {
            return None;
        }
        let copy = |raw: &RawValue| match raw.get().len() {
            ..=MAX_READ => raw.to_owned(),
            _ => RawValue::from_string(TOO_LONG.into()).expect("a string is JSON"),
        };
        Some(Self {
            rules: rules.clone(),
            arguments: content.arguments.filter(|_| rules.capture.has_arguments()).map(copy),
            result: content.result.filter(|_| rules.capture.has_results()).map(copy),
            tool: meter.tool().cloned(),
            settings: meter.settings().cloned(),
        })
    }

    fn redacted(&self, raw: &RawValue, schema: Option<&RawValue>) -> String {
        let schema: Option<Value> = schema.and_then(|schema| serde_json::from_str(schema.get()).ok());
        let mut text = self.rules.redactor.redact_json(raw.get(), schema.as_ref());
        self.hide_configured(&mut text);
        if text.len() > self.rules.max_bytes {
            text.truncate(text.floor_char_boundary(self.rules.max_bytes));
            text.push('…');
        }
        text
    }

    fn hide_configured(&self, text: &mut String) {
        if let Some(settings) = &self.settings {
            secrets_of(settings).hide(text);
        }
    }
}

impl Content for CapturedCall {
    fn capture(&self) -> Captured {
        let definition = self.tool.as_ref().map(|tool| tool.definition());
        let input = definition.map(|definition| &*definition.input_schema);
        let output = definition.and_then(|definition| definition.output_schema.as_deref());
        Captured {
            arguments: self.arguments.as_deref().map(|raw| self.redacted(raw, input)),
            result: self.result.as_deref().map(|raw| self.redacted(raw, output)),
        }
    }

    fn redact_message(&self, message: &str) -> String {
        let mut text = self.rules.redact_message(message);
        self.hide_configured(&mut text);
        text
    }

    fn bytes(&self) -> usize {
        [&self.arguments, &self.result].into_iter().flatten().map(|raw| raw.get().len()).sum()
    }
}
