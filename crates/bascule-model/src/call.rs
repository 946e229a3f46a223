//! A call and what comes of it.

use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::value::RawValue;

use crate::{CorrelationId, ToolId};

/// What a face asks of the pipeline.
#[derive(Debug, Clone)]
pub struct CallRequest {
    /// Which tool.
    pub tool: ToolId,
    /// Its arguments, as the caller spelled them.
    pub arguments: Box<RawValue>,
    /// How long the caller is willing to wait, and since when; the server's own limits may be shorter.
    pub patience: Option<Patience>,
}

/// A caller's time-out, counted from when it began to wait: that may be before the call could be made.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// When the waiting began.
    pub since: Instant,
    /// How long it may last.
    pub length: Duration,
}

/// A `CallToolResult` as the server sent it. A tool that reports failure has *worked*: see `is_error`.
#[derive(Debug, Clone)]
pub struct ToolResult {
    /// The whole result, byte for byte.
    pub raw: Box<RawValue>,
    /// Whether the tool says that it failed.
    pub is_error: bool,
}

/// A call that was answered.
#[derive(Debug, Clone)]
pub struct CallOutcome {
    /// Which tool.
    pub tool: ToolId,
    /// What it answered.
    pub result: ToolResult,
    /// From the face's request to the checked answer.
    pub duration: Duration,
    /// The id that every event and log line of this call carries.
    pub correlation_id: CorrelationId,
}

impl Serialize for CallOutcome {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut out = serializer.serialize_struct("CallOutcome", 4)?;
        out.serialize_field("tool", &self.tool)?;
        out.serialize_field("correlationId", &self.correlation_id)?;
        out.serialize_field("durationMs", &millis(self.duration))?;
        out.serialize_field("result", &self.result.raw)?;
        out.end()
    }
}

/// Milliseconds to the microsecond: calls are often shorter than one.
pub(crate) fn millis(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: BR-16
    #[test]
    fn an_outcome_prints_the_result_verbatim() {
        let outcome = CallOutcome {
            tool: ToolId::parse("a:b").unwrap(),
            result: ToolResult {
                raw: RawValue::from_string(r#"{"content":[ ],"n":1.0}"#.into()).unwrap(),
                is_error: false,
            },
            duration: Duration::from_micros(1500),
            correlation_id: CorrelationId::parse("c").unwrap(),
        };
        assert_eq!(
            serde_json::to_string(&outcome).unwrap(),
            r#"{"tool":"a:b","correlationId":"c","durationMs":1.5,"result":{"content":[ ],"n":1.0}}"#
        );
    }
}
