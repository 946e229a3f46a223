//! Spans and metrics on their way to an OpenTelemetry collector (OTLP), over gRPC or HTTP.
//!
//! Reading order: `settings` reads the environment variables of the standard. `message` is a message of the protocol, written as
//! protobuf or JSON; `spans` and `metrics` build those that are sent, by the semantic conventions for MCP. `sender` delivers one
//! of them. `span_exporter` and `metric_exporter` decide when, each in an
//! `export_task`.

mod export_task;
mod message;
mod metric_exporter;
mod metrics;
mod sender;
mod settings;
mod span_exporter;
mod spans;

pub(crate) use metric_exporter::MetricExporter;
pub use settings::{InvalidOtlpSettings, OtlpSettings};
#[cfg(test)]
pub(crate) use span_exporter::exported;
pub(crate) use span_exporter::{ExportCounts, SpanExporter};
pub(crate) use spans::spans_json;
