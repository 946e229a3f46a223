//! `bascule check --server NAME --trace`: runs one server, records the system calls that are refused to it, and proposes a
//! `sandbox` entry that allows them.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bascule_client::CallToolResult;
use bascule_model::{BridgeError, BridgeResult, CallOutcome, CallRequest, ServerName, ToolId};
use bascule_sandbox::TraceLog;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::context::{CommandContext, find_server};
use super::error::{CommandError, CommandResult};
use super::printer::Printer;
use super::spinner::Spinner;
use super::terminal::sanitize_line;
use crate::blocking::run_blocking;
use crate::call_record::Face;
use crate::config::{Sandbox, ServerSettings, TransportSettings};
use crate::refusal::{Proposal, RefusedBy, TraceJudge, TracePhase, TracedRefusal};
use crate::{McpBridgeAdapter, api, launch};

/// Timeouts are longer by this factor, because tracing slows a server down.
const TIMEOUT_FACTOR: u32 = 4;
/// Most rows of refusals that did not matter. Further ones are only counted.
const MAX_OTHER_ROWS: usize = 20;

/// The tool call that a traced server runs.
pub(super) struct CallToTrace {
    tool: ToolId,
    arguments: Box<RawValue>,
}

impl CallToTrace {
    /// Parses `TOOL [JSON]`, where the tool may be named with its server.
    pub(super) fn parse(server: &str, words: &[String]) -> CommandResult<Self> {
        let usage = |message: String| CommandError::Usage(message);
        let (name, arguments) = match words {
            [name] => (name, "{}"),
            [name, arguments, ..] => (name, arguments.as_str()),
            [] => return Err(usage("`--call` needs the name of a tool".into())),
        };
        let name = name.strip_prefix(&format!("{server}:")).unwrap_or(name);
        let tool = ToolId::parse(&format!("{server}:{name}")).map_err(|error| usage(error.to_string()))?;
        let arguments = serde_json::from_str::<Box<RawValue>>(arguments)
            .map_err(|error| usage(format!("the arguments of `--call` are not JSON: {error}")))?;
        Ok(Self { tool, arguments })
    }
}

/// The result of a traced run.
struct TracedRun {
    settings: ServerSettings,
    /// The number of tools, or the failure to start.
    started: Result<usize, Option<Arc<BridgeError>>>,
    call: Option<(ToolId, BridgeResult<CallOutcome>)>,
    refusals: Vec<TracedRefusal>,
    proposal: Proposal,
}

/// Traces the start of one server, and a call if one is given.
pub(super) async fn run(
    mut context: CommandContext,
    server: &str,
    call: Option<CallToTrace>,
    printer: &Printer,
) -> CommandResult {
    let mut config = context.load(printer)?;
    let original = check_traceable(find_server(&config.settings, server)?)?.clone();
    let log = TraceLog::create().map(Arc::new);
    let log = log.map_err(|error| CommandError::Usage(format!("could not record refusals: {error}")))?;
    let name = original.name.clone();
    extend_timeouts(&mut config.settings.servers, &name);
    context.trace = Some(log.clone());
    let path = context.path().display().to_string();
    context
        .with_in_process_bridge(config, Some(vec![name]), printer, async |bridge| {
            let traced = trace(bridge, original, call, &log, printer).await?;
            match printer.json {
                true => printer.print_json(&to_json(&path, &traced)),
                false => print_text(&path, &traced, printer),
            }
            Ok(ExitCode::from(traced.exit_code()))
        })
        .await
}

/// Fails for a server that has no sandbox.
fn check_traceable(settings: &ServerSettings) -> CommandResult<&ServerSettings> {
    let is_process = matches!(settings.transport, TransportSettings::Stdio { .. });
    match is_process && settings.sandbox != Sandbox::Off {
        true => Ok(settings),
        false => Err(CommandError::Usage(format!(
            "there is nothing to trace: server `{}` is not in a sandbox",
            settings.name
        ))),
    }
}

/// Extends all timeouts of the server.
fn extend_timeouts(servers: &mut [ServerSettings], name: &ServerName) {
    let longer = |time: &mut Duration| *time = time.saturating_mul(TIMEOUT_FACTOR);
    for server in servers.iter_mut().filter(|server| server.name == *name) {
        longer(&mut server.start_timeout);
        longer(&mut server.call_timeout);
        longer(&mut server.limits.max_execution);
        for tool in server.tools.values_mut() {
            longer(&mut tool.call_timeout);
            longer(&mut tool.limits.max_execution);
        }
    }
}

async fn trace(
    bridge: &McpBridgeAdapter,
    settings: ServerSettings,
    call: Option<CallToTrace>,
    log: &TraceLog,
    printer: &Printer,
) -> CommandResult<TracedRun> {
    let unreadable = |error| CommandError::Usage(format!("could not read the recorded refusals: {error}"));
    let name = settings.name.as_str();
    let started = match bridge.server_info(name) {
        Some(_) => Ok(bridge.catalog().tools_of(name).len()),
        None => Err(bridge.start_failure(name)),
    };
    let at_start = log.read().map_err(unreadable)?.len();
    let call = match call.filter(|_| started.is_ok()) {
        Some(CallToTrace { tool, arguments }) => {
            let request = CallRequest { tool: tool.clone(), arguments, timeout: None };
            let spinner = Spinner::new(printer.json, format!("tracing {tool}"));
            let called = api::call_tool(bridge, Face::Cli, request, None, spinner.progress());
            Some((tool.clone(), spinner.show_during(called).await))
        }
        None => None,
    };
    let calls = log.read().map_err(unreadable)?;
    let failed = failed_phase(&started, call.as_ref());
    let judged = settings.clone();
    let (refusals, proposal) = run_blocking(move || {
        let policy = launch::policy(&judged);
        let judge = TraceJudge::new(&policy, &judged);
        let refusals = judge.judge(&calls, at_start);
        let proposal = failed.map(|phase| judge.propose(&refusals, phase)).unwrap_or_default();
        (refusals, proposal)
    })
    .await;
    Ok(TracedRun { settings, started, call, refusals, proposal })
}

fn failed_phase(
    started: &Result<usize, Option<Arc<BridgeError>>>,
    call: Option<&(ToolId, BridgeResult<CallOutcome>)>,
) -> Option<TracePhase> {
    let is_failed =
        |result: &BridgeResult<CallOutcome>| result.as_ref().map_or(true, |done| done.result.is_error);
    match (started, call) {
        (Err(_), _) => Some(TracePhase::Start),
        (Ok(_), Some((_, result))) if is_failed(result) => Some(TracePhase::Call),
        _ => None,
    }
}

impl TracedRun {
    fn is_failed(&self) -> bool {
        failed_phase(&self.started, self.call.as_ref()).is_some()
    }

    fn exit_code(&self) -> u8 {
        match (&self.started, &self.call) {
            (Err(_), _) | (_, Some((_, Err(_)))) => 3,
            (_, Some((_, Ok(outcome)))) => u8::from(outcome.result.is_error),
            _ => 0,
        }
    }

    fn lines(&self) -> Vec<String> {
        self.proposal.additions.lines(&self.settings)
    }
}

fn to_json(path: &str, traced: &TracedRun) -> Value {
    let lines = traced.lines();
    let mut json = json!({
        "config": path,
        "server": traced.settings.name,
        "started": traced.started.is_ok(),
        "refusals": traced.refusals,
        "proposal": (!lines.is_empty()).then(|| traced.proposal.additions.entries(&traced.settings)),
        "proposalText": lines,
        "warnings": traced.proposal.warnings,
    });
    if let Err(Some(error)) = &traced.started {
        json["error"] = json!(**error);
    }
    match &traced.call {
        Some((tool, Ok(outcome))) => {
            json["call"] = json!({ "tool": tool, "isError": outcome.result.is_error, "hint": outcome.hint });
        }
        Some((tool, Err(error))) => json["call"] = json!({ "tool": tool, "error": error }),
        None => {}
    }
    json
}

fn print_text(path: &str, traced: &TracedRun, printer: &Printer) {
    print_run(traced, printer);
    let (decisive, others): (Vec<_>, Vec<_>) = traced
        .refusals
        .iter()
        .partition(|refusal| !refusal.tolerated && refusal.refused_by != RefusedBy::System);
    if traced.refusals.is_empty() {
        printer.print_line("nothing was refused");
    }
    print_table("refused by the sandbox or a limit:", &decisive, printer);
    let shown = &others[..others.len().min(MAX_OTHER_ROWS)];
    print_table("refused, and usually tolerated or not the sandbox's doing:", shown, printer);
    if others.len() > shown.len() {
        printer.print_line(&printer.style.dim(&format!("  and {} more", others.len() - shown.len())));
    }
    print_proposal(path, traced, printer);
}

fn print_run(traced: &TracedRun, printer: &Printer) {
    let (good, bad) = (printer.style.green("✓"), printer.style.red("✗"));
    let name = &traced.settings.name;
    match &traced.started {
        Ok(tools) => printer.print_line(&format!("{good} {name} started and listed {tools} tools")),
        Err(error) => {
            let message = error.as_ref().map_or("it did not start", |error| &error.message);
            printer.print_line(&format!("{bad} {}", sanitize_line(message)));
        }
    }
    match &traced.call {
        Some((tool, Ok(outcome))) if outcome.result.is_error => {
            let result = CallToolResult::parse(outcome.result.raw.clone());
            let text = result.map(|result| result.text()).unwrap_or_default();
            let text: String = sanitize_line(&text).chars().take(300).collect();
            printer.print_line(&format!("{bad} {tool} reported failure: {text}"));
        }
        Some((tool, Ok(_))) => printer.print_line(&format!("{good} {tool} succeeded")),
        Some((tool, Err(error))) => {
            printer.print_line(&format!("{bad} {tool} failed: {}", sanitize_line(&error.message)));
        }
        None => {}
    }
}

fn print_table(title: &str, refusals: &[&TracedRefusal], printer: &Printer) {
    if refusals.is_empty() {
        return;
    }
    printer.print_line(title);
    let width = |text: fn(&TracedRefusal) -> &str| {
        refusals.iter().map(|refusal| text(refusal).chars().count()).max().unwrap_or(0).min(60)
    };
    let (operations, objects) = (width(|refusal| refusal.operation), width(|refusal| &refusal.object));
    for refusal in refusals {
        let phase = if refusal.phase == TracePhase::Start { "start" } else { "call" };
        let remedy = refusal.allowed_by.iter().chain(&refusal.note);
        let remedy = remedy.map(String::as_str).collect::<Vec<_>>().join("; ");
        let (operation, object) = (refusal.operation, sanitize_line(&refusal.object));
        let row = format!(
            "  {:>4}×  {phase:5}  {operation:operations$}  {object:objects$}  {:7}  {}",
            refusal.count,
            refusal.error,
            sanitize_line(&remedy)
        );
        printer.print_line(row.trim_end());
    }
}

fn print_proposal(path: &str, traced: &TracedRun, printer: &Printer) {
    let lines = traced.lines();
    if !traced.is_failed() {
        let advice =
            if traced.call.is_none() { "; trace a failing call with `--call TOOL JSON`" } else { "" };
        printer.print_line(&format!("nothing needs to change{advice}"));
    } else if lines.is_empty() {
        printer.print_line("no setting of `sandbox` or `limits` explains the failure");
    } else {
        printer
            .print_line(&format!("to allow this, set in the entry of `{}` in {path}:", traced.settings.name));
        lines.iter().for_each(|line| printer.print_line(&format!("  {}", printer.style.bold(line))));
        printer.print_line("then trace again: one refusal may hide the next");
    }
    for warning in &traced.proposal.warnings {
        printer.print_line(&format!("{} {}", printer.style.red("warning:"), sanitize_line(warning)));
    }
}
