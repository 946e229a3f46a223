//! The one road to a tool. Every face sends its calls along it; there is no other.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use bascule_catalog::{CatalogTool, Validation};
use bascule_client::CallToolResult;
use bascule_model::{
    BridgeError, BridgeResult, CallOutcome, CallRequest, CorrelationId, Delivery, ErrorCode, ToolResult,
    Violation,
};
use serde_json::value::RawValue;
use tokio::time::Instant;
use tracing::warn;

use crate::McpBridgeAdapter;
use crate::config::ServerSettings;
use crate::deadline::Deadline;
use crate::fleet::request::{ExtraMembers, ProgressSink, UpstreamRequest};
use crate::fleet::server::{CallResponse, Server, was_given_up};
use crate::normalise::addressed;
use crate::report::Report;

/// What a face that hands messages on adds to a call.
#[derive(Default)]
pub(crate) struct CallContext {
    /// The client's own parameters: they go out as they are, but for the name and the progress token.
    pub(crate) params: Option<Box<RawValue>>,
    /// Hears reports of progress.
    pub(crate) progress: Option<ProgressSink>,
    /// The server to call, where that is not the one that everybody shares.
    pub(crate) server: Option<Arc<Server>>,
    /// Learns the id under which the call was last sent.
    pub(crate) sent: Arc<AtomicU64>,
    pub(crate) extra: Arc<ExtraMembers>,
}

impl McpBridgeAdapter {
    /// Makes one call and tells how it ended.
    pub(crate) async fn call(
        &self,
        request: CallRequest,
        correlation_id: Option<CorrelationId>,
    ) -> BridgeResult<CallOutcome> {
        self.call_with(request, CallContext::default(), correlation_id).await
    }

    /// The same for a face that hands messages on.
    pub(crate) async fn call_with(
        &self,
        request: CallRequest,
        context: CallContext,
        correlation_id: Option<CorrelationId>,
    ) -> BridgeResult<CallOutcome> {
        let begin = Instant::now();
        let id = correlation_id.unwrap_or_else(next_correlation_id);
        let report = Report::open(self.fleet.events.clone(), request.tool.clone(), id.clone());
        let ended = match self.execute(&request, &context, &id, begin).await {
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
    async fn execute(
        &self,
        request: &CallRequest,
        context: &CallContext,
        id: &CorrelationId,
        begin: Instant,
    ) -> BridgeResult<ToolResult> {
        loop {
            let (server, tool) = self.resolve(request, context, begin).await?;
            check_arguments(&tool, &request.arguments, id)?;
            let deadline = deadline_of(request, &server.settings, begin);
            let hints = &tool.definition().hints;
            let params = |token| Some(spelled(request, context, token));
            let upstream_request = UpstreamRequest {
                method: "tools/call",
                tool: Some(request.tool.tool()),
                params: &params,
                progress: context.progress.clone(),
                extra: Some(&context.extra),
            };
            let abandoned_for = server.settings.limits_for(request.tool.tool()).max_execution;
            let mut stranger = context.server.is_none().then(|| server.profile.stranger(abandoned_for));
            let ended =
                server.run(&upstream_request, hints.read_only_hint || hints.idempotent_hint, &deadline).await;
            let was_given_up = matches!(&ended, Err(error) if was_given_up(error));
            stranger.iter_mut().for_each(|stranger| stranger.has_ended = !was_given_up);
            match ended {
                Ok(CallResponse { raw, attempts }) => {
                    return check_result(&tool, raw, id).map_err(|mut error| {
                        error.attempts = Some(attempts);
                        error
                    });
                }
                Err(error) if error.delivery == Delivery::NotSent && self.was_replaced(&server) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Who serves the call, and what it calls: as things are now, or as soon as the server has once been started.
    async fn resolve(
        &self,
        request: &CallRequest,
        context: &CallContext,
        begin: Instant,
    ) -> BridgeResult<(Arc<Server>, Arc<CatalogTool>)> {
        let server = match &context.server {
            Some(server) => server.clone(),
            None => self.fleet.snapshot.load().server(&request.tool)?.clone(),
        };
        if server.is_starting() {
            let deadline = deadline_of(request, &server.settings, begin);
            if !server.first_start(deadline.next()).await {
                let said = format!("server `{}` did not start {}", request.tool.server(), deadline.passed());
                return Err(BridgeError::new(ErrorCode::ProviderTimeout, Delivery::NotSent, said));
            }
        }
        if context.server.is_some() {
            let tool = server.tool(&request.tool)?;
            return Ok((server, tool));
        }
        let snapshot = self.fleet.snapshot.load();
        snapshot.tool(&request.tool).map(|(server, tool)| (server.clone(), tool.clone()))
    }

    /// Whether a server was ended because another of its name is there now.
    fn was_replaced(&self, server: &Server) -> bool {
        let snapshot = self.fleet.snapshot.load();
        let present = snapshot.servers.get(&server.settings.name);
        server.is_stopped() && present.is_some_and(|present| present.serial != server.serial)
    }
}

/// The parameters as they go out: the client's own where there are some, in which as little as possible is changed.
fn spelled(request: &CallRequest, context: &CallContext, token: u64) -> String {
    context.sent.store(token, Ordering::Release);
    let name = serde_json::to_string(request.tool.tool()).expect("text is always JSON");
    let Some(params) = &context.params else {
        let arguments = &request.arguments;
        return format!(r#"{{"name":{name},"arguments":{arguments},"_meta":{{"progressToken":{token}}}}}"#);
    };
    let edits: [(&[&str], &str); 2] = [(&["name"], &name), (&["_meta", "progressToken"], &token.to_string())];
    bascule_mcp::patch::insert_many(params.get(), &edits)
}

fn check_arguments(
    tool: &CatalogTool,
    arguments: &RawValue,
    correlation_id: &CorrelationId,
) -> BridgeResult<()> {
    match tool.check_arguments(arguments) {
        Validation::Valid => Ok(()),
        Validation::Unchecked { reason } => {
            warn!(%correlation_id, tool = %tool.id(), %reason, "the arguments pass unvalidated");
            Ok(())
        }
        Validation::Violations(violations) => {
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
    let result = CallToolResult::read(raw).map_err(|(raw, error)| {
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
        Validation::Valid => Ok(()),
        Validation::Unchecked { reason } => {
            warn!(%correlation_id, tool = %tool.id(), %reason, "the result passes unvalidated");
            Ok(())
        }
        Validation::Violations(violations) => {
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

fn deadline_of(request: &CallRequest, settings: &ServerSettings, begin: Instant) -> Deadline {
    let tool = request.tool.tool();
    let execution = settings.limits_for(tool).max_execution;
    Deadline::new(begin, request.timeout, settings.call_timeout_for(tool), execution)
}

/// Any number.
pub(crate) fn random_u64() -> u64 {
    let mut bits = [0; 8];
    // Without the system's random_u64 nothing secret is at stake here.
    let _ = getrandom::fill(&mut bits);
    u64::from_ne_bytes(bits)
}

/// An id for a call whose caller has none: nobody has to be unable to guess it, so random_u64 is asked once.
fn next_correlation_id() -> CorrelationId {
    static FIRST: LazyLock<u128> =
        LazyLock::new(|| u128::from(random_u64()) << 64 | u128::from(random_u64()));
    static COUNT: AtomicU64 = AtomicU64::new(0);
    // Any odd number gives each its own; this one makes neighbours look different.
    const STEP: u128 = 0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835;
    let count = u128::from(COUNT.fetch_add(1, Ordering::Relaxed));
    CorrelationId::from_random(FIRST.wrapping_add(count.wrapping_mul(STEP)))
}

/// An id that nobody can guess.
pub(crate) fn random_id() -> CorrelationId {
    let mut bits = [0; 16];
    // Without the system's random_u64 nothing secret is at stake here: the clock will do.
    if getrandom::fill(&mut bits).is_err() {
        let nanos = std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos());
        return CorrelationId::from_random(nanos);
    }
    CorrelationId::from_random(u128::from_ne_bytes(bits))
}
