//! Captures the arguments and results of calls, without their secrets.
//!
//! Values are hidden by the name of their property (`token`), by their schema (`format: password`), by their form (a bearer
//! token in a text), and if the configuration of the server has them. The store's thread does the work, not the call.

mod redact;
mod schemas;

use std::sync::Arc;

use bascule_catalog::CatalogTool;
use bascule_store::{CapturableContent, Captured};
use serde_json::value::RawValue;

use crate::call_record::{CallContent, CallMeter};
use crate::config::{Capture, ServerSettings, Settings, TraceSettings};
use crate::post_mortem::secrets_of;
use crate::redaction::SecretForms;
use redact::Redactor;
pub(crate) use redact::is_secret_name;

/// A longer text is not captured: redaction needs all of it.
const MAX_READ: usize = 256 << 10;
/// The part of a message or of a line that is read.
pub(crate) const MAX_READ_TEXT: usize = 32 << 10;
/// The part of a longer one that is kept.
pub(crate) const MAX_KEPT_TEXT: usize = 2 << 10;
/// Replaces a text that is not captured.
const TOO_LONG: &str = "\"(not captured: too long)\"";

/// The settings of a capture.
pub(crate) struct CaptureRules {
    capture: Capture,
    max_bytes: usize,
    /// Further names of secrets, in small letters.
    names: Vec<String>,
}

impl CaptureRules {
    pub(crate) fn new(settings: &TraceSettings) -> Self {
        let (capture, max_bytes) = (settings.capture, settings.max_captured_bytes);
        let names = settings.redact.iter().map(|name| name.to_lowercase()).collect();
        Self { capture, max_bytes, names }
    }

    /// Returns the beginning of a text for people, without these secrets and those that are known by name or form.
    pub(crate) fn redact_text(&self, text: &str, secrets: &SecretForms) -> String {
        let read = &text[..text.floor_char_boundary(MAX_READ_TEXT)];
        let mut redacted = self.redactor(secrets).redact_message(read);
        if text.len() >= MAX_READ_TEXT {
            // A secret may be cut at the end. The part that is kept must be far from there.
            match redacted.len() < MAX_READ_TEXT / 2 {
                true => return "(not kept: too long)".to_owned(),
                false => redacted.truncate(redacted.floor_char_boundary(MAX_KEPT_TEXT)),
            }
        }
        redacted
    }

    fn redactor<'a>(&'a self, secrets: &'a SecretForms) -> Redactor<'a> {
        Redactor { names: &self.names, secrets }
    }
}

/// Returns a message of a call for the log, without secrets. `rules` are those of the traces, if calls are recorded.
pub(crate) fn redact_for_log(message: &str, meter: &CallMeter, rules: Option<&CaptureRules>) -> String {
    let secrets = secrets_of_server(meter.settings());
    match rules {
        Some(rules) => rules.redact_text(message, &secrets),
        None => CaptureRules::new(&TraceSettings::default()).redact_text(message, &secrets),
    }
}

fn secrets_of_server(settings: Option<&Arc<ServerSettings>>) -> SecretForms {
    settings.map(|settings| secrets_of(settings)).unwrap_or_default()
}

/// The content of a span of which the message alone is kept.
impl CapturableContent for CaptureRules {
    fn capture(&self) -> Captured {
        Captured::default()
    }

    fn redact_message(&self, message: &str) -> String {
        self.redact_text(message, &SecretForms::default())
    }

    fn bytes(&self) -> usize {
        0
    }
}

/// The content of the span of a script: its message, which may quote any server.
pub(crate) struct ScriptMessage {
    pub(crate) rules: Arc<CaptureRules>,
    pub(crate) settings: Option<Arc<Settings>>,
}

impl CapturableContent for ScriptMessage {
    fn capture(&self) -> Captured {
        Captured::default()
    }

    fn redact_message(&self, message: &str) -> String {
        let servers = self.settings.iter().flat_map(|settings| &settings.servers);
        let secrets = servers.map(secrets_of).collect();
        self.rules.redact_text(message, &secrets)
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
    /// Copies the content that the settings ask for. An error message is kept, and redacted, with any settings. The arguments of a
    /// call whose tool was not found are not: no schema says what is secret, and no server has configured secrets.
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
        let has_tool = meter.tool().is_some();
        Some(Self {
            rules: rules.clone(),
            arguments: content.arguments.filter(|_| has_tool && rules.capture.has_arguments()).map(copy),
            result: content.result.filter(|_| rules.capture.has_results()).map(copy),
            tool: meter.tool().cloned(),
            settings: meter.settings().cloned(),
        })
    }

    fn redacted(&self, raw: &RawValue, schema: Option<&RawValue>) -> String {
        let secrets = secrets_of_server(self.settings.as_ref());
        let mut text = self.rules.redactor(&secrets).redact_json(raw.get(), schema.map(RawValue::get));
        if text.len() > self.rules.max_bytes {
            text.truncate(text.floor_char_boundary(self.rules.max_bytes));
            text.push('…');
        }
        text
    }
}

impl CapturableContent for CapturedCall {
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
        self.rules.redact_text(message, &secrets_of_server(self.settings.as_ref()))
    }

    fn bytes(&self) -> usize {
        [&self.arguments, &self.result].into_iter().flatten().map(|raw| raw.get().len()).sum()
    }
}
