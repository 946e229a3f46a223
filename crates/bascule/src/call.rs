//! The pipeline of a call. Every face sends its calls through it; there is no other way to a tool.

use std::sync::Arc;
use std::time::SystemTime;

use bascule_catalog::{CatalogTool, Validation};
use bascule_client::CallToolResult;
use bascule_mcp::{is_large, may_walk, patch, run_large};
use bascule_model::{
    BridgeError, BridgeResult, CallOutcome, CallRequest, CorrelationId, Delivery, ErrorCode, ServerName,
    ToolId, ToolResult, Violation, clip,
};
use serde_json::value::RawValue;
use tokio::time::Instant;
use tracing::warn;

use crate::McpBridgeAdapter;
use crate::blocking::run_blocking;
use crate::call_record::{CallMeter, CallObserver, CallRecord, CallRecorder, Caller, RecordSinks};
use crate::client_trace;
use crate::config::{ServerSettings, StartMode};
use crate::deadline::Deadline;
use crate::fleet::request::{ExtraMembers, ProgressSink, UpstreamRequest};
use crate::fleet::server::Server;
use crate::in_flight::{InFlight, Origin};
use crate::normalise::addressed;
use crate::post_mortem::{explain_call_error, explain_result};
use crate::unique_number::next_correlation_id;

/// The additions of a face to a call.
#[derive(Default)]
pub(crate) struct CallContext<'a> {
    pub(crate) caller: Caller,
    pub(crate) params: Option<ClientParams<'a>>,
    pub(crate) progress: Option<ProgressSink>,
    /// The server to call, or the error of finding it, if it is not the bridge's own.
    pub(crate) server: Option<BridgeResult<Arc<Server>>>,
    pub(crate) origin: Origin,
    pub(crate) extra_members: Option<&'a ExtraMembers>,
    pub(crate) observer: Option<&'a dyn CallObserver>,
    /// Returns true for an error after which the face makes the call again later. The call is recorded then, not now.
    pub(crate) retries_later: Option<&'a (dyn Fn(&BridgeError) -> bool + Sync)>,
}

/// The parameters of a client's call. They are sent unchanged but for the progress token, and the name if that is another one.
#[derive(Clone, Copy)]
pub(crate) struct ClientParams<'a> {
    pub(crate) json: &'a str,
    pub(crate) has_meta: bool,
    /// The client has another name for the tool.
    pub(crate) is_renamed: bool,
}

impl McpBridgeAdapter {
    /// Makes one call and records it.
    pub(crate) async fn call_with(
        &self,
        request: CallRequest,
        context: CallContext<'_>,
        correlation_id: Option<CorrelationId>,
    ) -> BridgeResult<CallOutcome> {
        let started = Instant::now();
        let id = correlation_id.unwrap_or_else(next_correlation_id);
        let recorder = self.record_start(&request, context.caller.clone(), &id, started, context.observer);
        let result = match self.execute_call(&request, &context, &id, started, &recorder).await {
            Ok((result, hint)) => Ok(CallOutcome {
                tool: request.tool.clone(),
                result,
                duration: started.elapsed(),
                correlation_id: id,
                hint,
            }),
            Err(mut error) => {
                error.correlation_id = Some(id);
                Err(addressed(error, &request.tool))
            }
        };
        let is_retried = |error: &BridgeError| context.retries_later.is_some_and(|retries| retries(error));
        let line = match &result {
            Err(error) if is_retried(error) => recorder.postpone(error),
            _ => recorder.finish(&result),
        };
        if let Some(line) = line {
            // The call has happened: its result is returned even if this line could not be written.
            let _ = Box::pin(line.wait()).await;
        }
        result
    }

    /// Records a call that is refused before it reaches the pipeline: its tool does not exist, or is not the caller's.
    pub(crate) fn record_refusal(
        &self,
        request: &CallRequest,
        caller: Caller,
        correlation_id: &CorrelationId,
        observer: Option<&dyn CallObserver>,
        mut error: Box<BridgeError>,
    ) -> Box<BridgeError> {
        let recorder = self.record_start(request, caller, correlation_id, Instant::now(), observer);
        error.correlation_id = Some(correlation_id.clone());
        let error = addressed(error, &request.tool);
        recorder.refuse(&error);
        error
    }

    fn record_start<'a>(
        &'a self,
        request: &'a CallRequest,
        caller: Caller,
        correlation_id: &CorrelationId,
        started: Instant,
        observer: Option<&'a dyn CallObserver>,
    ) -> CallRecorder<'a> {
        let record = CallRecord {
            context: caller.new_span(correlation_id),
            caller,
            tool: recorded_tool(&request.tool),
            correlation_id: correlation_id.clone(),
            argument_bytes: request.arguments.get().len(),
            started: started.into_std(),
            started_at: SystemTime::now(),
            meter: CallMeter::default(),
            end: None,
        };
        let fleet = &self.fleet;
        let (events, metrics, traces) = (&*fleet.events, &fleet.metrics, fleet.traces.as_deref());
        let sinks = RecordSinks { events, metrics, traces, audit: fleet.audit.as_ref(), observer };
        CallRecorder::start(record, &request.arguments, sinks)
    }

    /// The whole policy of a call. Returns the result, and the likely refusal behind a failure that it reports.
    async fn execute_call(
        &self,
        request: &CallRequest,
        context: &CallContext<'_>,
        id: &CorrelationId,
        started: Instant,
        recorder: &CallRecorder<'_>,
    ) -> BridgeResult<(ToolResult, Option<String>)> {
        let (span, meter) = (recorder.span(), recorder.meter());
        loop {
            let (server, tool, in_flight) = self.resolve(request, context, started).await?;
            meter.set_resolved(&tool, &server.settings);
            check_arguments(&tool, &request.arguments, id).await?;
            recorder.audit().await?;
            let deadline = deadline_of(request, &server.settings, started);
            let is_exported = self.fleet.traces.as_ref().is_some_and(|traces| traces.exports().is_some());
            let params = |token| {
                let params = build_params(request, context, token);
                Some(client_trace::add_trace(params, context.caller.trace.as_deref(), &span, is_exported))
            };
            let upstream_request = UpstreamRequest {
                method: "tools/call",
                tool: Some(request.tool.tool()),
                params: &params,
                progress: context.progress.clone(),
                extra_members: context.extra_members,
                meter: Some(meter),
            };
            let stderr_start = server.backend().ok().and_then(|backend| backend.stderr_position());
            match server.run(in_flight, &upstream_request, is_idempotent(&tool), &deadline).await {
                Ok(response) => {
                    let result = check_result(&tool, response.raw, id).await.map_err(|mut error| {
                        self.observe_violations(&tool, &error, id);
                        error.attempts = Some(response.sends);
                        error
                    })?;
                    self.observe_result(&tool, &result, id);
                    let hint = explain_result(&result, &server, request, stderr_start).await;
                    return Ok((result, hint));
                }
                Err(error) if error.delivery == Delivery::NotSent && self.was_replaced(&server) => {}
                // Boxed: most calls do not fail.
                Err(error) => return Err(Box::pin(explain_call_error(error, &server, request)).await),
            }
        }
    }

    /// Finds the server and the tool, and registers the call, so that a reload does not stop the server before the call has
    /// ended. A server that starts for the first time is waited for, and one that is not running is started.
    async fn resolve(
        &self,
        request: &CallRequest,
        context: &CallContext<'_>,
        started: Instant,
    ) -> BridgeResult<(Arc<Server>, Arc<CatalogTool>, InFlight)> {
        let server = match &context.server {
            Some(server) => server.clone()?,
            None => self.fleet.snapshot.load().server(&request.tool)?.clone(),
        };
        let begin = |server: &Server| server.begin_request(request.tool.tool(), context.origin.clone());
        // A given server must stay until it has started, and one that is stopped when it is idle must not be. For another one
        // of the bridge's own the replacement is as good.
        let must_stay = context.server.is_some() || server.settings.start == StartMode::Lazy;
        let in_flight = must_stay.then(|| begin(&server));
        if server.is_starting() || server.is_on_demand() {
            // Boxed: most calls find their server up.
            Box::pin(wait_for_start(&server, deadline_of(request, &server.settings, started))).await?;
        }
        if let Some(in_flight) = in_flight {
            return match server.tool(&request.tool) {
                Ok(tool) => Ok((server, tool, in_flight)),
                // A reload has replaced the server while the call waited for its start.
                Err(_) if context.server.is_none() && self.was_replaced(&server) => {
                    Box::pin(self.resolve(request, context, started)).await
                }
                Err(error) => Err(error),
            };
        }
        let snapshot = self.fleet.snapshot.load();
        let (server, tool) = snapshot.tool(&request.tool)?;
        Ok((server.clone(), tool.clone(), begin(server)))
    }

    /// Returns true if a call that may have run can run again. A tool that is not known cannot.
    pub(crate) fn may_repeat(&self, tool: &ToolId) -> bool {
        let snapshot = self.fleet.snapshot.load();
        match (snapshot.server(tool), snapshot.catalog.get(tool)) {
            (Ok(server), Some(known)) => server.may_repeat(tool.tool(), is_idempotent(known)),
            _ => false,
        }
    }

    /// Returns true if a reload has stopped this server and put another one in its place.
    fn was_replaced(&self, server: &Server) -> bool {
        let snapshot = self.fleet.snapshot.load();
        let current = snapshot.servers.get(&server.settings.name);
        server.is_stopped() && current.is_some_and(|current| current.serial != server.serial)
    }
}

/// Waits for the start of a server, which may install a package first.
async fn wait_for_start(server: &Server, deadline: Deadline) -> BridgeResult<()> {
    if server.start_and_wait(deadline.next()).await {
        return Ok(());
    }
    let installing = server.installing().map(|progress| format!(": {progress}")).unwrap_or_default();
    let name = &server.settings.name;
    let message = format!("server `{name}` did not start {}{installing}", deadline.passed());
    Err(BridgeError::new(ErrorCode::ProviderTimeout, Delivery::NotSent, message))
}

/// Returns true if the tool says that repeating a call has no further effect.
fn is_idempotent(tool: &CatalogTool) -> bool {
    let hints = &tool.definition().hints;
    hints.read_only_hint || hints.idempotent_hint
}

/// Builds the parameters of `tools/call`: the client's own where there are some, with as few changes as possible.
fn build_params(request: &CallRequest, context: &CallContext<'_>, token: u64) -> String {
    let name = || serde_json::to_string(request.tool.tool()).expect("text is always JSON");
    let Some(ClientParams { json, has_meta, is_renamed }) = context.params else {
        let (name, arguments) = (name(), &request.arguments);
        return format!(r#"{{"name":{name},"arguments":{arguments},"_meta":{{"progressToken":{token}}}}}"#);
    };
    let renamed = is_renamed.then(|| patch::insert(json, &["name"], &name()));
    let json = renamed.as_deref().unwrap_or(json);
    let token = token.to_string();
    match has_meta {
        true => patch::insert(json, &["_meta", "progressToken"], &token),
        // Every call comes here, and `format!` takes three times as many instructions.
        false => patch::append(json, "_meta", &[r#"{"progressToken":"#, &token, "}"].concat()),
    }
}

async fn check_arguments(
    tool: &Arc<CatalogTool>,
    arguments: &RawValue,
    correlation_id: &CorrelationId,
) -> BridgeResult<()> {
    if tool.has_quickly_valid_arguments(arguments) {
        return Ok(());
    }
    let validation = validate(tool, arguments, CatalogTool::check_arguments).await;
    let violations = violations(validation, correlation_id, tool, "the arguments pass unvalidated");
    if violations.is_empty() {
        return Ok(());
    }
    let message = format!("the arguments of `{}` are wrong: {}", tool.id(), listed(&violations));
    let mut error = BridgeError::new(ErrorCode::InvalidInput, Delivery::NotSent, message);
    error.violations = violations;
    error.signature = Some(tool.call_signature(tool.id().tool()));
    Err(error)
}

/// Reads a result, and checks its structured content. A tool that reports failure owes no structured content.
async fn check_result(
    tool: &Arc<CatalogTool>,
    raw: Box<RawValue>,
    correlation_id: &CorrelationId,
) -> BridgeResult<ToolResult> {
    if !may_walk(raw.get().len()) {
        let (tool, id) = (tool.clone(), correlation_id.clone());
        let check = move || {
            let result = read_result(&tool, raw)?;
            let validation =
                structured_content(&tool, &result).map(|structured| tool.check_result(structured));
            judge_result(&tool, result, validation, &id)
        };
        return Box::pin(run_large(check)).await;
    }
    let result = read_result(tool, raw)?;
    let validation = match structured_content(tool, &result) {
        Some(structured) => Some(validate(tool, structured, CatalogTool::check_result).await),
        None => None,
    };
    judge_result(tool, result, validation, correlation_id)
}

fn read_result(tool: &CatalogTool, raw: Box<RawValue>) -> BridgeResult<CallToolResult> {
    CallToolResult::from_raw(raw).map_err(|(raw, error)| {
        let message = format!("`{}` returned something that is not a tool result: {error}", tool.id());
        let mut error = BridgeError::new(ErrorCode::InvalidOutput, Delivery::Answered, message);
        error.result = Some(raw);
        error
    })
}

/// Returns the structured content that has to be checked, unless it is quickly seen to be valid.
fn structured_content<'a>(tool: &CatalogTool, result: &'a CallToolResult) -> Option<&'a RawValue> {
    let is_checked = tool.definition().output_schema.is_some() && !result.is_error();
    let structured = if is_checked { result.structured_content() } else { None };
    structured.filter(|structured| !tool.has_quickly_valid_result(structured))
}

fn judge_result(
    tool: &CatalogTool,
    result: CallToolResult,
    validation: Option<Validation>,
    correlation_id: &CorrelationId,
) -> BridgeResult<ToolResult> {
    let violations = validation.map_or_else(Vec::new, |validation| {
        violations(validation, correlation_id, tool, "the result passes unvalidated")
    });
    if !violations.is_empty() {
        let message = format!("the result of `{}` breaks its own schema: {}", tool.id(), listed(&violations));
        let mut error = BridgeError::new(ErrorCode::InvalidOutput, Delivery::Answered, message);
        error.violations = violations;
        error.result = Some(result.into_raw());
        return Err(error);
    }
    Ok(ToolResult { is_error: result.is_error(), raw: result.into_raw() })
}

/// Validates a value on another thread: it may take long, and so may compiling the schema.
async fn validate(
    tool: &Arc<CatalogTool>,
    value: &RawValue,
    check: fn(&CatalogTool, &RawValue) -> Validation,
) -> Validation {
    let length = value.get().len();
    // On the thread for large messages it needs no copy.
    if is_large(length) && may_walk(length) {
        return check(tool, value);
    }
    let (tool, value) = (tool.clone(), value.to_owned());
    let check = move || check(&tool, &value);
    match is_large(length) {
        true => Box::pin(run_large(check)).await,
        false => Box::pin(run_blocking(check)).await,
    }
}

/// Returns the violations of a validation. Logs that a value could not be validated.
fn violations(
    validation: Validation,
    correlation_id: &CorrelationId,
    tool: &CatalogTool,
    unchecked: &str,
) -> Vec<Violation> {
    match validation {
        Validation::Valid => Vec::new(),
        Validation::Violations(violations) => violations,
        Validation::Unchecked { reason } => {
            warn!(%correlation_id, tool = %tool.id(), %reason, "{unchecked}");
            Vec::new()
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

/// Returns the id under which a refused call is recorded. The caller has chosen the names, which may be none of a tool: then
/// the bridge itself counts as the server.
pub(crate) fn refused_tool(server: &str, tool: &str) -> ToolId {
    const MAX_NAME: usize = 256;
    ToolId::parse(&format!("{}:{}", clip(server, MAX_NAME), clip(tool, MAX_NAME))).unwrap_or_else(|_| {
        let own = ServerName::parse("bascule").expect("it is a valid name");
        ToolId::new(&own, clip(&[server, tool].concat(), MAX_NAME))
    })
}

/// Returns the tool as records name it. A caller may name a tool that does not exist by a text of any length.
fn recorded_tool(tool: &ToolId) -> ToolId {
    const MAX_NAME: usize = 512;
    if tool.as_str().len() <= MAX_NAME {
        return tool.clone();
    }
    ServerName::parse(tool.server())
        .map_or_else(|_| tool.clone(), |server| ToolId::new(&server, clip(tool.tool(), MAX_NAME)))
}

fn deadline_of(request: &CallRequest, settings: &ServerSettings, begin: Instant) -> Deadline {
    let tool = request.tool.tool();
    let execution = settings.limits_for(tool).max_execution;
    Deadline::new(begin, request.timeout, settings.call_timeout_for(tool), execution)
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: TR-01
    #[test]
    fn records_a_part_of_a_long_name() {
        let tool = ToolId::parse(&format!("s:{}", "é".repeat(1 << 19))).unwrap();
        assert_eq!(recorded_tool(&tool).as_str(), format!("s:{}", "é".repeat(256)));
        let tool = ToolId::parse("s:x").unwrap();
        assert_eq!(recorded_tool(&tool), tool);
    }
}
