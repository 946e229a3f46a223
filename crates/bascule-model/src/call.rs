//! A tool call: the request, its timeout and its outcome.

use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::value::RawValue;

use crate::{CorrelationId, ToolId};

/// A request to call one tool.
#[derive(Debug, Clone)]
pub struct CallRequest {
    pub tool: ToolId,
    /// JSON text, passed to the server unchanged.
    pub arguments: Box<RawValue>,
    /// The caller's limit. The server's configured limits also apply and may be shorter.
    pub timeout: Option<CallTimeout>,
}

/// A caller's timeout. It may have started before the call was sent, for example while the server started.
#[derive(Debug, Clone, Copy)]
pub struct CallTimeout {
    pub since: Instant,
    pub duration: Duration,
}

/// A `CallToolResult` as the server sent it. A tool that reports a failure is a result, not an error.
#[derive(Debug, Clone)]
pub struct ToolResult {
    /// The whole result, byte for byte.
    pub raw: Box<RawValue>,
    /// The result's `isError`.
    pub is_error: bool,
}

/// The outcome of a call that got a response.
#[derive(Debug, Clone)]
pub struct CallOutcome {
    pub tool: ToolId,
    pub result: ToolResult,
    /// Time from receiving the request to the checked result.
    pub duration: Duration,
    /// Every event and log line of the call carries this id.
    pub correlation_id: CorrelationId,
    /// The likely refusal by the sandbox behind a reported failure, and the setting that would allow it.
    pub hint: Option<String>,
}

impl Serialize for CallOutcome {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut out = serializer.serialize_struct("CallOutcome", 5)?;
        out.serialize_field("tool", &self.tool)?;
        out.serialize_field("correlationId", &self.correlation_id)?;
        out.serialize_field("durationMs", &millis(self.duration))?;
        out.serialize_field("result", &self.result.raw)?;
        if let Some(hint) = &self.hint {
            out.serialize_field("hint", hint)?;
        }
        out.end()
    }
}

/// Converts to milliseconds with microsecond precision: many calls take less than a millisecond.
pub(crate) fn millis(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: BR-16
    #[test]
    fn serializes_result_verbatim() {
        let outcome = CallOutcome {
            tool: ToolId::parse("a:b").unwrap(),
            result: ToolResult {
                raw: RawValue::from_string(r#"{"content":[ ],"n":1.0}"#.into()).unwrap(),
                is_error: false,
            },
            duration: Duration::from_micros(1500),
            correlation_id: CorrelationId::parse("c").unwrap(),
            hint: None,
        };
        assert_eq!(
            serde_json::to_string(&outcome).unwrap(),
            r#"{"tool":"a:b","correlationId":"c","durationMs":1.5,"result":{"content":[ ],"n":1.0}}"#
        );
    }
}
