//! A call whose request was sent.

use std::fmt;
use std::sync::Arc;

use bascule_bus::parse_result;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout_at};

use crate::error::CallIdentity;
use crate::pending::{CallAnswer, CallReceivers, ClosedCause};
use crate::proxy::ProxyConnection;
use crate::{ToolCallError, ToolOutput};

/// A call in progress. Dropping it cancels the call at the bridge.
pub struct PendingToolCall {
    pub(crate) identity: CallIdentity,
    pub(crate) receivers: CallReceivers,
    pub(crate) deadline: Instant,
    pub(crate) connection: Arc<ProxyConnection>,
}

impl PendingToolCall {
    /// Waits for the next progress message. Returns `None` once the answer has come or the time is over: then call
    /// [`finish`](Self::finish). Cancel safe.
    pub async fn next_progress(&mut self) -> Option<ToolProgressUpdate> {
        timeout_at(self.deadline, self.receivers.progress.recv()).await.ok()?
    }

    /// Waits for the answer.
    pub async fn finish(mut self) -> Result<ToolOutput, ToolCallError> {
        match timeout_at(self.deadline, &mut self.receivers.answer).await {
            Ok(Ok(answer)) => self.read_answer(answer).await,
            Ok(Err(_)) => Err(self.closed_error(ClosedCause::Proxy)),
            Err(_) => Err(self.timeout_error()),
        }
    }

    async fn read_answer(&self, answer: CallAnswer) -> Result<ToolOutput, ToolCallError> {
        let output = |is_error, result| ToolOutput::new(self.identity.tool_name.clone(), is_error, result);
        match answer {
            CallAnswer::Result(answer) => Ok(output(answer.is_error, answer.result)),
            CallAnswer::Object { object, is_error } => {
                let limit = self.connection.options.max_result_bytes;
                let fetch = timeout_at(self.deadline, self.connection.bus.get_result(&object, limit)).await;
                let content = match fetch {
                    Ok(content) => content.map_err(|error| self.lost_result(&error.to_string()))?,
                    Err(_) => return Err(self.lost_result("the time was over before it was read")),
                };
                let result = parse_result(content).map_err(|error| self.unreadable(&error.to_string()))?;
                Ok(output(is_error, result))
            }
            CallAnswer::Error(error) => Err(ToolCallError::from_bridge(error)),
            CallAnswer::Unreadable(error) => Err(self.unreadable(&error.to_string())),
            CallAnswer::Closed(cause) => Err(self.closed_error(cause)),
        }
    }

    fn timeout_error(&self) -> ToolCallError {
        if let Some(missing) = self.connection.pending.missing(&self.identity.tool_call_id) {
            return self.lost_result(&missing.to_string());
        }
        let ms = self.connection.options.timeout.as_millis();
        self.identity.error("timeout", true, format!("no answer came within {ms} ms"))
    }

    /// The tool has run: the caller decides whether it may run again.
    fn lost_result(&self, reason: &str) -> ToolCallError {
        self.identity.error(
            "outcome_unknown",
            false,
            format!("the tool has run; its result was lost: {reason}"),
        )
    }

    fn unreadable(&self, reason: &str) -> ToolCallError {
        self.identity.error("invalid_output", false, format!("the answer could not be read: {reason}"))
    }

    fn closed_error(&self, cause: ClosedCause) -> ToolCallError {
        match cause {
            ClosedCause::Proxy => self.identity.error("cancelled", false, "the proxy was closed".into()),
            ClosedCause::Bus => {
                let message = "the bus was closed before the answer came";
                self.identity.error("outcome_unknown", false, message.into())
            }
        }
    }
}

impl Drop for PendingToolCall {
    fn drop(&mut self) {
        if self.connection.pending.give_up(&self.identity.tool_call_id) {
            self.connection.cancel(&self.identity);
        }
    }
}

impl fmt::Debug for PendingToolCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingToolCall").field("identity", &self.identity).finish_non_exhaustive()
    }
}

/// The progress of a call.
#[derive(Debug, Clone)]
pub struct ToolProgressUpdate {
    /// Increases with every message.
    pub progress: f64,
    /// The value of `progress` at the end, if the server knows it.
    pub total: Option<f64>,
    params: Box<RawValue>,
}

impl ToolProgressUpdate {
    pub(crate) fn parse(params: Box<RawValue>) -> Option<Self> {
        #[derive(Deserialize)]
        struct Numbers {
            progress: f64,
            #[serde(default)]
            total: Option<f64>,
        }
        let Numbers { progress, total } = serde_json::from_str(params.get()).ok()?;
        Some(Self { progress, total, params })
    }

    /// The parameters of the server's `notifications/progress`, for a relay that passes them on. Untrusted.
    pub fn as_relayed_params(&self) -> &RawValue {
        &self.params
    }
}
