//! Code mode: runs scripts in worker processes and makes their tool calls.
//!
//! `bascule-script` is the worker and `bascule-sandbox` confines it; this module is the bridge's side. `selection` selects the
//! tools of a script, `pool` keeps workers ready, `worker_socket` reads and writes their messages, `run` handles the messages
//! of one script, and `outcome` collects its result. Calls of scripts take the same pipeline as all others.

mod outcome;
mod pool;
mod run;
mod selection;
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
use tokio::sync::{Semaphore, SemaphorePermit};
use tracing::info;

use crate::McpBridgeAdapter;
use crate::call::{CallContext, random_id};
use crate::call_record::{CallObserver, Caller, Face};
use crate::config::ScriptSettings;

pub use outcome::ScriptOutcome;
pub use selection::{ToolSelection, ToolSelectionError};
pub use traces::ScriptTrace;

use outcome::ScriptRecorder;
use pool::{WorkerPool, WorkerSpec};
use selection::InjectedTools;

/// A script to run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ScriptRequest {
    /// TypeScript source.
    pub code: String,
    /// File name shown in stack traces.
    pub name: String,
    /// Tools that the script may call.
    pub tools: ToolSelection,
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
            context: None,
            mode: ScriptMode::default(),
            timeout: None,
            memory_mb: None,
            correlation_id: None,
        }
    }
}

/// The kind of worker a script runs in (CM-10). Both are used once.
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
    /// The correlation id of the script.
    pub(crate) script: CorrelationId,
    pub(crate) observer: Arc<dyn CallObserver>,
}

/// Makes the tool calls of a script.
pub(crate) type ToolCaller<'a> = dyn Fn(ScriptCall) -> CallFuture<'a> + Sync + 'a;
pub(crate) type CallFuture<'a> = Pin<Box<dyn Future<Output = BridgeResult<CallOutcome>> + Send + 'a>>;

/// Limits the number of scripts that run at once and owns the worker pool.
pub(crate) struct Scripts {
    /// `None` in a program that cannot start workers.
    pool: Option<Arc<WorkerPool>>,
    slots: Semaphore,
    queue: Semaphore,
}

/// Number of scripts that may wait for a slot. More are refused.
const MAX_QUEUED: usize = 256;

impl Scripts {
    /// `program` is the executable with the command `__worker`. With `keeps_ready`, the pool keeps workers ready after the
    /// first script.
    pub(crate) fn new(program: Option<PathBuf>, settings: &ScriptSettings, keeps_ready: bool) -> Self {
        let size = if keeps_ready { settings.pool_size as usize } else { 0 };
        let pool = program.map(|program| Arc::new(WorkerPool::new(program, WorkerSpec::new(settings), size)));
        let slots = Semaphore::new(settings.max_scripts as usize);
        Self { pool, slots, queue: Semaphore::new(MAX_QUEUED) }
    }

    async fn acquire_slot(&self) -> BridgeResult<SemaphorePermit<'_>> {
        let Ok(_queued) = self.queue.try_acquire() else {
            let message = format!("too many scripts: {MAX_QUEUED} are waiting already");
            return Err(BridgeError::new(ErrorCode::RateLimited, Delivery::NotSent, message));
        };
        self.slots.acquire().await.map_err(|_| denied("the bridge is shutting down"))
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
        self.run_script_with(request, &|call| Box::pin(self.call_for_script(face, call))).await
    }

    async fn call_for_script(&self, face: Face, call: ScriptCall) -> BridgeResult<CallOutcome> {
        let caller = Caller { face, script: Some(call.script), ..Caller::default() };
        let context = CallContext { caller, observer: Some(&*call.observer), ..CallContext::default() };
        self.call_with(call.request, context, call.correlation_id).await
    }

    /// Runs a script whose tool calls are made by `caller`.
    pub(crate) async fn run_script_with<'a>(
        &'a self,
        request: ScriptRequest,
        caller: &'a ToolCaller<'a>,
    ) -> BridgeResult<ScriptOutcome> {
        let Some(pool) = &self.scripts.pool else {
            return Err(denied("scripts are not available: this program has no worker executable"));
        };
        let settings = self.fleet.snapshot.load().settings.bridge.scripts.clone();
        pool.warm.set_spec(&WorkerSpec::new(&settings));
        let settings = with_overrides(settings, &request);
        let tools = InjectedTools::select(self, &request.tools).await?;
        let _slot = self.scripts.acquire_slot().await?;
        let recorder = ScriptRecorder::new(request.correlation_id.clone().unwrap_or_else(random_id), &tools);
        info!(script = %recorder.id, count = tools.ids().len(), tools = tools.summary(), "script may call these tools");
        if let Some(error) = tools.invalid_name() {
            return Ok(recorder.finish(Err(Box::new(error))));
        }
        let worker = pool.take(&WorkerSpec::new(&settings), request.mode).await.map_err(|error| {
            let message = format!("could not start a worker for the script: {error}");
            BridgeError::new(ErrorCode::ProviderUnavailable, Delivery::NotSent, message)
        })?;
        Ok(run::run((self, caller), worker, request, tools, settings, recorder).await)
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
