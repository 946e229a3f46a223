//! The pipeline of a call. Every face sends its calls through it; there is no other way to a tool.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use bascule_catalog::{CatalogTool, Validation};
use bascule_client::CallToolResult;
use bascule_mcp::patch;
use bascule_model::{
    BridgeError, BridgeResult, CallOutcome, CallRequest, CorrelationId, Delivery, ErrorCode, ToolResult,
    Violation,
};
use serde_json::value::RawValue;
use tokio::time::Instant;
use tracing::warn;

use crate::McpBridgeAdapter;
use crate::blocking::run_blocking;
use crate::call_record::{CallObserver, CallRecord, CallRecorder, Caller};
use crate::config::ServerSettings;
use crate::deadline::Deadline;
use crate::fleet::request::{ExtraMembers, ProgressSink, UpstreamRequest};
use crate::fleet::server::Server;
use crate::in_flight::{InFlight, Origin};
use crate::normalise::addressed;

/// The additions of a face to a call.
#[derive(Default)]
pub(crate) struct CallContext<'a> {
    pub(crate) caller: Caller,
    /// The client's own parameters. They are sent unchanged but for the name and the progress token.
    pub(crate) params: Option<&'a RawValue>,
    pub(crate) progress: Option<ProgressSink>,
    /// The server to call, or the error of finding it, if it is not the bridge's own.
    pub(crate) server: Option<BridgeResult<Arc<Server>>>,
    pub(crate) origin: Origin,
    pub(crate) extra_members: Option<&'a ExtraMembers>,
    pub(crate) observer: Option<&'a dyn CallObserver>,
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
        let record = CallRecord {
            caller: context.caller.clone(),
            tool: request.tool.clone(),
            correlation_id: id.clone(),
            argument_bytes: request.arguments.get().len(),
            started: started.into_std(),
            end: None,
        };
        let recorder = CallRecorder::start(record, &*self.fleet.events, context.observer);
        let result = match self.execute_call(&request, &context, &id, started).await {
            Ok(result) => Ok(CallOutcome {
                tool: request.tool,
                result,
                duration: started.elapsed(),
                correlation_id: id,
            }),
            Err(mut error) => {
                error.correlation_id = Some(id);
                Err(addressed(error, &request.tool))
            }
        };
        recorder.finish(&result);
        result
    }

    /// The whole policy of a call.
    async fn execute_call(
        &self,
        request: &CallRequest,
        context: &CallContext<'_>,
        id: &CorrelationId,
        started: Instant,
    ) -> BridgeResult<ToolResult> {
        loop {
            let (server, tool, in_flight) = self.resolve(request, context, started).await?;
            check_arguments(&tool, &request.arguments, id).await?;
            let deadline = deadline_of(request, &server.settings, started);
            let params = |token| Some(build_params(request, context, token));
            let upstream_request = UpstreamRequest {
                method: "tools/call",
                tool: Some(request.tool.tool()),
                params: &params,
                progress: context.progress.clone(),
                extra_members: context.extra_members,
            };
            let hints = &tool.definition().hints;
            let is_idempotent = hints.read_only_hint || hints.idempotent_hint;
            match server.run(in_flight, &upstream_request, is_idempotent, &deadline).await {
                Ok(response) => {
                    return check_result(&tool, response.raw, id).await.map_err(|mut error| {
                        error.attempts = Some(response.sends);
                        error
                    });
                }
                Err(error) if error.delivery == Delivery::NotSent && self.was_replaced(&server) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Finds the server and the tool, and registers the call, so that a reload does not stop the server before the call has
    /// ended. A server that starts for the first time is waited for.
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
        // A given server must stay until it has started. For one of the bridge's own the replacement is as good.
        let in_flight = context.server.as_ref().map(|_| begin(&server));
        if server.is_starting() {
            let deadline = deadline_of(request, &server.settings, started);
            if !server.first_start(deadline.next()).await {
                let message =
                    format!("server `{}` did not start {}", request.tool.server(), deadline.passed());
                return Err(BridgeError::new(ErrorCode::ProviderTimeout, Delivery::NotSent, message));
            }
        }
        if let Some(in_flight) = in_flight {
            let tool = server.tool(&request.tool)?;
            return Ok((server, tool, in_flight));
        }
        let snapshot = self.fleet.snapshot.load();
        let (server, tool) = snapshot.tool(&request.tool)?;
        Ok((server.clone(), tool.clone(), begin(server)))
    }

    /// Returns true if a reload has stopped this server and put another one in its place.
    fn was_replaced(&self, server: &Server) -> bool {
        let snapshot = self.fleet.snapshot.load();
        let current = snapshot.servers.get(&server.settings.name);
        server.is_stopped() && current.is_some_and(|current| current.serial != server.serial)
    }
}

/// Builds the parameters of `tools/call`: the client's own where there are some, with as few changes as possible.
fn build_params(request: &CallRequest, context: &CallContext<'_>, token: u64) -> String {
    let name = serde_json::to_string(request.tool.tool()).expect("text is always JSON");
    let Some(params) = context.params else {
        let arguments = &request.arguments;
        return format!(r#"{{"name":{name},"arguments":{arguments},"_meta":{{"progressToken":{token}}}}}"#);
    };
    let edits: [(&[&str], &str); 2] = [(&["name"], &name), (&["_meta", "progressToken"], &token.to_string())];
    patch::insert_many(params.get(), edits)
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
    Err(error)
}

/// Reads a result, and checks its structured content. A tool that reports failure owes no structured content.
async fn check_result(
    tool: &Arc<CatalogTool>,
    raw: Box<RawValue>,
    correlation_id: &CorrelationId,
) -> BridgeResult<ToolResult> {
    let result = CallToolResult::from_raw(raw).map_err(|(raw, error)| {
        let message = format!("`{}` returned something that is not a tool result: {error}", tool.id());
        let mut error = BridgeError::new(ErrorCode::InvalidOutput, Delivery::Answered, message);
        error.result = Some(raw);
        error
    })?;
    let is_checked = tool.definition().output_schema.is_some() && !result.is_error();
    let structured = if is_checked { result.structured_content() } else { None };
    if let Some(structured) = structured.filter(|structured| !tool.has_quickly_valid_result(structured)) {
        let validation = validate(tool, structured, CatalogTool::check_result).await;
        let violations = violations(validation, correlation_id, tool, "the result passes unvalidated");
        if !violations.is_empty() {
            let message =
                format!("the result of `{}` breaks its own schema: {}", tool.id(), listed(&violations));
            let mut error = BridgeError::new(ErrorCode::InvalidOutput, Delivery::Answered, message);
            error.violations = violations;
            error.result = Some(result.into_raw());
            return Err(error);
        }
    }
    Ok(ToolResult { is_error: result.is_error(), raw: result.into_raw() })
}

/// Validates a value on another thread: it may take long, and so may compiling the schema.
async fn validate(
    tool: &Arc<CatalogTool>,
    value: &RawValue,
    check: fn(&CatalogTool, &RawValue) -> Validation,
) -> Validation {
    let (tool, value) = (tool.clone(), value.to_owned());
    Box::pin(run_blocking(move || check(&tool, &value))).await
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

fn deadline_of(request: &CallRequest, settings: &ServerSettings, begin: Instant) -> Deadline {
    let tool = request.tool.tool();
    let execution = settings.limits_for(tool).max_execution;
    Deadline::new(begin, request.timeout, settings.call_timeout_for(tool), execution)
}

pub(crate) fn random_u64() -> u64 {
    let mut bits = [0; 8];
    // Nothing secret depends on these numbers: without a random source they are zero.
    let _ = getrandom::fill(&mut bits);
    u64::from_ne_bytes(bits)
}

/// Returns an id for a call whose caller has given none. It is unique, not secret, so one random number serves all.
fn next_correlation_id() -> CorrelationId {
    static FIRST: LazyLock<u128> =
        LazyLock::new(|| u128::from(random_u64()) << 64 | u128::from(random_u64()));
    static COUNT: AtomicU64 = AtomicU64::new(0);
    // Any odd step gives each call an id of its own; this one makes neighbours look different.
    const STEP: u128 = 0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835;
    let count = u128::from(COUNT.fetch_add(1, Ordering::Relaxed));
    CorrelationId::from_random(FIRST.wrapping_add(count.wrapping_mul(STEP)))
}

/// Returns an id that nobody can guess.
pub(crate) fn random_id() -> CorrelationId {
    let mut bits = [0; 16];
    // Without a random source the clock must do.
    if getrandom::fill(&mut bits).is_err() {
        let nanos = std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos());
        return CorrelationId::from_random(nanos);
    }
    CorrelationId::from_random(u128::from_ne_bytes(bits))
}
