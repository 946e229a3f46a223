//! The one road to a tool. Every face sends its calls along it; there is no other.

use bascule_catalog::{CatalogTool, Verdict};
use bascule_client::CallToolResult;
use bascule_model::{
    BridgeError, BridgeResult, CallOutcome, CallRequest, CorrelationId, Delivery, ErrorCode, ToolResult,
    Violation,
};
use serde_json::value::RawValue;
use tokio::time::Instant;
use tracing::warn;

use crate::McpBridgeAdapter;
use crate::deadline::Deadline;
use crate::normalise::addressed;
use crate::report::Report;
use crate::upstream::Upstream;

impl McpBridgeAdapter {
    /// Makes one call and tells how it ended.
    pub(crate) async fn call(
        &self,
        request: CallRequest,
        correlation_id: Option<CorrelationId>,
    ) -> BridgeResult<CallOutcome> {
        let begin = Instant::now();
        let id = correlation_id.unwrap_or_else(fresh_id);
        let report = Report::open(self.events.clone(), request.tool.clone(), id.clone());
        let ended = match self.travel(&request, &id, begin).await {
            Ok(result) => {
                Ok(CallOutcome { tool: request.tool, result, duration: begin.elapsed(), correlation_id: id })
            }
            Err(mut error) => {
                error.correlation_id = Some(id);
                Err(addressed(error, &request.tool))
            }
        };
        report.close(&ended);
        ended
    }

    /// The whole policy of a call.
    async fn travel(
        &self,
        request: &CallRequest,
        id: &CorrelationId,
        begin: Instant,
    ) -> BridgeResult<ToolResult> {
        let catalog = self.catalog.load();
        let (upstream, tool) = self.resolve(&catalog, &request.tool)?;
        check_arguments(tool, &request.arguments, id)?;
        let deadline = deadline_of(request, upstream, begin);
        let answer = upstream.call(request.tool.tool(), &request.arguments, deadline).await;
        answer.and_then(|raw| check_result(tool, raw, id)).map_err(attempted)
    }
}

/// From here on the request was tried, once, unless it is known that it never left.
fn attempted(mut error: Box<BridgeError>) -> Box<BridgeError> {
    error.attempts = Some(u32::from(error.delivery != Delivery::NotSent));
    error
}

fn check_arguments(
    tool: &CatalogTool,
    arguments: &RawValue,
    correlation_id: &CorrelationId,
) -> BridgeResult<()> {
    match tool.check_arguments(arguments) {
        Verdict::Valid => Ok(()),
        Verdict::Unchecked { why } => {
            warn!(%correlation_id, tool = %tool.id(), %why, "the arguments pass unvalidated");
            Ok(())
        }
        Verdict::Violations(violations) => {
            let said = format!("the arguments of `{}` are wrong: {}", tool.id(), listed(&violations));
            let mut error = BridgeError::new(ErrorCode::InvalidInput, Delivery::NotSent, said);
            error.violations = violations;
            Err(error)
        }
    }
}

/// A tool that reports failure owes nobody a structured result.
fn check_result(
    tool: &CatalogTool,
    raw: Box<RawValue>,
    correlation_id: &CorrelationId,
) -> BridgeResult<ToolResult> {
    let result = CallToolResult::parse(raw.clone()).map_err(|error| {
        let said = format!("`{}` answered with something that is no tool result: {error}", tool.id());
        let mut error = BridgeError::new(ErrorCode::InvalidOutput, Delivery::Answered, said);
        error.result = Some(raw);
        error
    })?;
    if tool.definition().output_schema.is_some() && !result.is_error() {
        check_structure(tool, &result, correlation_id)?;
    }
    Ok(ToolResult { is_error: result.is_error(), raw: result.into_raw() })
}

fn check_structure(
    tool: &CatalogTool,
    result: &CallToolResult,
    correlation_id: &CorrelationId,
) -> BridgeResult<()> {
    let Some(structured) = result.structured_content() else { return Ok(()) };
    match tool.check_result(structured) {
        Verdict::Valid => Ok(()),
        Verdict::Unchecked { why } => {
            warn!(%correlation_id, tool = %tool.id(), %why, "the result passes unvalidated");
            Ok(())
        }
        Verdict::Violations(violations) => {
            let said =
                format!("the result of `{}` breaks its own schema: {}", tool.id(), listed(&violations));
            let mut error = BridgeError::new(ErrorCode::InvalidOutput, Delivery::Answered, said);
            error.violations = violations;
            error.result = Some(result.raw().to_owned());
            Err(error)
        }
    }
}

fn listed(violations: &[Violation]) -> String {
    const SHOWN: usize = 3;
    let mut lines: Vec<String> =
        violations
            .iter()
            .take(SHOWN)
            .map(|v| {
                if v.pointer.is_empty() { v.message.clone() } else { format!("{}: {}", v.pointer, v.message) }
            })
            .collect();
    if violations.len() > SHOWN {
        lines.push(format!("and {} more", violations.len() - SHOWN));
    }
    lines.join("; ")
}

fn deadline_of(request: &CallRequest, upstream: &Upstream, begin: Instant) -> Deadline {
    let (settings, tool) = (upstream.settings(), request.tool.tool());
    let execution = settings.limits_for(tool).max_execution;
    Deadline::new(begin, request.patience, settings.call_timeout_for(tool), execution)
}

/// An id for a call whose caller has none.
pub(crate) fn fresh_id() -> CorrelationId {
    let mut bits = [0; 16];
    // Without the system's chance nothing secret is at stake here: the clock will do.
    if getrandom::fill(&mut bits).is_err() {
        let nanos = std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos());
        return CorrelationId::from_random(nanos);
    }
    CorrelationId::from_random(u128::from_ne_bytes(bits))
}
