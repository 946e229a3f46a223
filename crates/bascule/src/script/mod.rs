//! Code mode: runs scripts in worker processes and makes their tool calls.
//!
//! `bascule-script` is the worker and `bascule-sandbox` confines it; this module is the bridge's side. `selection` selects the
//! tools of a script, `slots` decides when it runs, `pool` keeps workers ready, `worker_socket` reads and writes their messages, `run` handles the messages
//! of one script (`host_calls` those to the bridge itself), and `outcome` collects its result. Calls of scripts take the same pipeline as all others.

mod host_calls;
mod outcome;
mod pool;
mod run;
mod selection;
mod slots;
mod span;
mod traces;
pub(crate) mod worker;
mod worker_socket;

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bascule_model::{
    BridgeError, BridgeResult, CallOutcome, CallRequest, CorrelationId, Delivery, ErrorCode,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tracing::info;

use crate::McpBridgeAdapter;
use crate::call::CallContext;
use crate::call_record::{CallObserver, Caller, Face};
use crate::config::ScriptSettings;
use crate::fleet::request::ProgressSink;
use crate::search::ToolIntent;

pub use outcome::ScriptOutcome;
pub use selection::{ToolSelection, ToolSelectionError};
pub(crate) use slots::ScriptOwner;
pub use traces::ScriptTrace;
pub(crate) use traces::TraceKind;

use outcome::ScriptRecorder;
use pool::{WorkerPool, WorkerSpec};
use selection::InjectedTools;
use slots::ScriptSlots;
use span::ScriptSpan;

/// A script to run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ScriptRequest {
    /// TypeScript source.
    pub code: String,
    /// File name shown in stack traces.
    pub name: String,
    /// Tools that the script may call.
    pub tools: ToolSelection,
    /// Purpose of the script: it gets only the best of these tools for it. Default: all of them.
    #[serde(default)]
    pub intent: Option<ToolIntent>,
    /// JSON object for the global `context`.
    pub context: Option<Box<RawValue>>,
    /// Kind of worker to run in.
    pub mode: ScriptMode,
    /// Time limit. Default: the configured one.
    pub timeout: Option<Duration>,
    /// Memory limit. Default: the configured one.
    pub memory_mb: Option<u32>,
    /// Prefix of the correlation ids of its calls. Default: a new id.
    pub correlation_id: Option<CorrelationId>,
}

impl ScriptRequest {
    /// Creates a request for a script that may call every tool.
    pub fn new(code: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            name: "script.ts".into(),
            tools: ToolSelection::all(),
            intent: None,
            context: None,
            mode: ScriptMode::default(),
            timeout: None,
            memory_mb: None,
            correlation_id: None,
        }
    }
}

/// The kind of worker a script runs in. Both are used once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, clap::ValueEnum)]
pub enum ScriptMode {
    /// A worker from the pool
    #[default]
    Worker,
    /// A worker started for this script
    Subprocess,
}

/// A tool call of a script.
pub(crate) struct ScriptCall {
    pub(crate) request: CallRequest,
    pub(crate) correlation_id: Option<CorrelationId>,
    pub(crate) caller: Caller,
    pub(crate) observer: Arc<dyn CallObserver>,
}

/// Makes the tool calls of a script.
pub(crate) type ToolCaller<'a> = dyn Fn(ScriptCall) -> CallFuture<'a> + Sync + 'a;
pub(crate) type CallFuture<'a> = Pin<Box<dyn Future<Output = BridgeResult<CallOutcome>> + Send + 'a>>;

/// The side of the bridge that a script is run for.
pub(crate) struct ScriptHost<'a> {
    /// Makes the script's calls.
    pub(crate) caller: &'a ToolCaller<'a>,
    /// Returns the JSON text of a result that was kept for this client.
    pub(crate) kept_result: &'a (dyn Fn(&str) -> Option<Arc<str>> + Sync),
    /// Receives progress notifications while the script runs, if the client has asked for them.
    pub(crate) progress: Option<ProgressSink>,
}

/// Limits the number of scripts that run at once and owns the worker pool.
pub(crate) struct Scripts {
    /// `None` in a program that cannot start workers.
    pool: Option<Arc<WorkerPool>>,
    slots: Arc<ScriptSlots>,
}

/// The scripts and workers at one moment.
pub(crate) struct ScriptLoad {
    pub(crate) running: usize,
    pub(crate) waiting: usize,
    pub(crate) ready_workers: usize,
}

impl Scripts {
    /// `program` is the executable with the command `__worker`. With `keeps_ready`, the pool keeps workers ready after the
    /// first script.
    pub(crate) fn new(program: Option<PathBuf>, settings: &ScriptSettings, keeps_ready: bool) -> Self {
        let size = if keeps_ready { settings.pool_size as usize } else { 0 };
        let pool = program.map(|program| Arc::new(WorkerPool::new(program, WorkerSpec::new(settings), size)));
        Self { pool, slots: ScriptSlots::new(settings.max_scripts as usize) }
    }

    /// Returns the scripts and workers of the moment.
    pub(crate) fn load(&self) -> ScriptLoad {
        let (running, waiting) = self.slots.counts();
        let ready_workers = self.pool.as_ref().map_or(0, |pool| pool.warm.count_ready());
        ScriptLoad { running, waiting, ready_workers }
    }

    /// Ends the idle workers and waits for those that are being started or ended.
    pub(crate) async fn close(&self) {
        self.slots.close();
        if let Some(pool) = &self.pool {
            pool.warm.close().await;
        }
    }
}

impl McpBridgeAdapter {
    /// Runs a script. A failed script is an outcome; an error means that the script was not started.
    pub async fn run_script(&self, request: ScriptRequest) -> BridgeResult<ScriptOutcome> {
        self.run_script_of(Face::Library, request).await
    }

    pub(crate) async fn run_script_of(
        &self,
        face: Face,
        request: ScriptRequest,
    ) -> BridgeResult<ScriptOutcome> {
        let owner = ScriptOwner::Face(face);
        let caller = |call| -> CallFuture<'_> { Box::pin(self.call_for_script(call)) };
        let host = ScriptHost { caller: &caller, kept_result: &|_| None, progress: None };
        self.run_script_with(owner, Caller::of_face(face), request, host).await
    }

    async fn call_for_script(&self, call: ScriptCall) -> BridgeResult<CallOutcome> {
        let ScriptCall { caller, .. } = call;
        let context = CallContext { caller, observer: Some(&*call.observer), ..CallContext::default() };
        self.call_with(call.request, context, call.correlation_id).await
    }

    /// Runs a script for a host, and records it.
    pub(crate) async fn run_script_with<'a>(
        &'a self,
        owner: ScriptOwner,
        caller: Caller,
        request: ScriptRequest,
        host: ScriptHost<'a>,
    ) -> BridgeResult<ScriptOutcome> {
        let mut span = self.start_span(caller, &request);
        let result = self.run_in_span(owner, request, host, &mut span).await;
        span.finish(&result);
        result
    }

    /// Records a script that is refused before it can start.
    pub(crate) fn record_refused_script(&self, caller: Caller, request: &ScriptRequest, reason: &str) {
        let error = BridgeError::new(ErrorCode::InvalidInput, Delivery::NotSent, reason);
        self.start_span(caller, request).finish(&Err(error));
    }

    fn start_span(&self, caller: Caller, request: &ScriptRequest) -> ScriptSpan {
        let settings = self.fleet.snapshot.load().settings.clone();
        ScriptSpan::start(self.fleet.traces.clone(), settings, caller, request)
    }

    async fn run_in_span<'a>(
        &'a self,
        owner: ScriptOwner,
        request: ScriptRequest,
        host: ScriptHost<'a>,
        span: &mut ScriptSpan,
    ) -> BridgeResult<ScriptOutcome> {
        let Some(pool) = &self.scripts.pool else {
            return Err(denied("scripts are not available: this program has no worker executable"));
        };
        let settings = self.fleet.snapshot.load().settings.bridge.scripts.clone();
        pool.warm.set_spec(&WorkerSpec::new(&settings));
        let settings = with_overrides(settings, &request);
        let selection = ToolSelection::of_request(self, &request).await?;
        let tools = InjectedTools::select(self, &selection).await?;
        let _slot = self.scripts.slots.acquire(owner).await?;
        span.mark_started();
        let recorder = ScriptRecorder::new(span.caller(), span.id(), &tools);
        info!(script = %recorder.id, count = tools.ids().len(), tools = tools.summary(), "script may call these tools");
        if let Some(error) = tools.invalid_name() {
            return Ok(recorder.finish(Err(Box::new(error))));
        }
        let worker = pool.take(&WorkerSpec::new(&settings), request.mode).await.map_err(|error| {
            let message = format!("could not start a worker for the script: {error}");
            BridgeError::new(ErrorCode::ProviderUnavailable, Delivery::NotSent, message)
        })?;
        Ok(run::run((self, host), worker, request, tools, settings, recorder).await)
    }
}

/// Applies the limits of the request to the configured ones.
fn with_overrides(settings: ScriptSettings, request: &ScriptRequest) -> ScriptSettings {
    ScriptSettings {
        timeout: request.timeout.unwrap_or(settings.timeout),
        memory_mb: request.memory_mb.unwrap_or(settings.memory_mb),
        ..settings
    }
}

fn denied(message: &str) -> Box<BridgeError> {
    BridgeError::new(ErrorCode::PolicyDenied, Delivery::NotSent, message)
}
