//! Code mode: runs a script in a worker process, and makes its calls for it.
//!
//! The worker is `bascule-script`, locked in by `bascule-sandbox`; here is the bridge's side of it: `selection` says which
//! tools a script is given, `pool` keeps workers ready, `link` is the way to one, `run` the conversation with it, `outcome`
//! what comes of it. A script's call takes the one road, like any other.

mod link;
mod outcome;
mod pool;
mod run;
mod selection;
pub(crate) mod worker;

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bascule_model::{
    BridgeError, BridgeResult, CallOutcome, CallRequest, CorrelationId, Delivery, ErrorCode,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::{Semaphore, SemaphorePermit};
use tracing::info;

use crate::McpBridgeAdapter;
use crate::call::random_id;
use crate::config::ScriptSettings;

pub use outcome::{ScriptOutcome, Trace};
pub use selection::{Selection, SelectionError};

use outcome::Record;
use pool::{Pool, Shape};
use selection::Injected;

/// A script to run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ScriptRequest {
    /// TypeScript.
    pub code: String,
    /// What its author calls it; places in it are told by this name.
    pub name: String,
    /// The tools that it may call.
    pub tools: Selection,
    /// A JSON object that it finds as `context`.
    pub context: Option<Box<RawValue>>,
    /// Where it runs.
    pub mode: Mode,
    /// How long it may run, if not as long as the configuration says.
    pub timeout: Option<Duration>,
    /// What its objects may occupy, if not as much as the configuration says.
    pub memory_mb: Option<u32>,
    /// The id that stands before those of its calls.
    pub correlation_id: Option<CorrelationId>,
}

impl ScriptRequest {
    /// A script that may call everything.
    pub fn new(code: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            name: "script.ts".into(),
            tools: Selection::all(),
            context: None,
            mode: Mode::default(),
            timeout: None,
            memory_mb: None,
            correlation_id: None,
        }
    }
}

/// Where a script runs (CM-10). Either way the worker is used once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Mode {
    /// In a worker that was ready.
    #[default]
    Worker,
    /// In a worker that is started for it.
    Subprocess,
}

/// Makes a script's calls, along the one road.
pub(crate) type Caller<'a> = dyn Fn(CallRequest, Option<CorrelationId>) -> Calling<'a> + Sync + 'a;
pub(crate) type Calling<'a> = Pin<Box<dyn Future<Output = BridgeResult<CallOutcome>> + Send + 'a>>;

/// The scripts of a bridge.
pub(crate) struct Scripts {
    /// None in a program that has no worker to start.
    pool: Option<Arc<Pool>>,
    at_once: Semaphore,
    waiting: AtomicUsize,
}

/// So many scripts may wait for their turn; the next is refused.
const MOST_WAITING: usize = 256;

impl Scripts {
    /// `program` understands `__worker`. With `keeps_ready`, workers wait for scripts once there has been one.
    pub(crate) fn new(program: Option<PathBuf>, settings: &ScriptSettings, keeps_ready: bool) -> Self {
        let size = if keeps_ready { settings.pool_size as usize } else { 0 };
        let pool = program.map(|program| Arc::new(Pool::new(program, Shape::of(settings), size)));
        Self { pool, at_once: Semaphore::new(settings.max_scripts as usize), waiting: AtomicUsize::new(0) }
    }

    /// Waits until there are few enough.
    async fn turn(&self) -> BridgeResult<SemaphorePermit<'_>> {
        let waits = Waits::one_more(&self.waiting);
        if waits.before >= MOST_WAITING {
            let said = format!("{MOST_WAITING} scripts wait already");
            return Err(BridgeError::new(ErrorCode::RateLimited, Delivery::NotSent, said));
        }
        self.at_once.acquire().await.map_err(|_| refused("the bridge is closing"))
    }

    /// Ends every worker that waits, and waits for those that are ending.
    pub(crate) async fn close(&self) {
        self.at_once.close();
        if let Some(pool) = &self.pool {
            pool.close().await;
        }
    }
}

/// One of those that wait, for as long as it is there.
struct Waits<'a> {
    all: &'a AtomicUsize,
    before: usize,
}

impl<'a> Waits<'a> {
    fn one_more(all: &'a AtomicUsize) -> Self {
        Self { all, before: all.fetch_add(1, Ordering::Relaxed) }
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.all.fetch_sub(1, Ordering::Relaxed);
    }
}

impl McpBridgeAdapter {
    /// Runs a script. What it comes to, failure included, is its outcome; an error means that it did not run at all.
    pub async fn run_script(&self, request: ScriptRequest) -> BridgeResult<ScriptOutcome> {
        self.run_script_by(request, &|call, id| Box::pin(self.call(call, id))).await
    }

    /// The same for a face that makes its clients' calls in its own way.
    pub(crate) async fn run_script_by<'a>(
        &'a self,
        request: ScriptRequest,
        caller: &'a Caller<'a>,
    ) -> BridgeResult<ScriptOutcome> {
        let Some(pool) = &self.scripts.pool else {
            return Err(refused("this program has no worker that could run scripts"));
        };
        let settings = self.fleet.snapshot.load().settings.bridge.scripts.clone();
        pool.reshape(&Shape::of(&settings));
        let settings = with_wishes(settings, &request);
        let injected = Injected::select(self, &request.tools).await?;
        let _turn = self.scripts.turn().await?;
        let record = Record::open(request.correlation_id.clone().unwrap_or_else(random_id), &injected);
        info!(script = %record.id, count = injected.ids().len(), tools = injected.named(), "a script is given its tools");
        if let Some(error) = injected.invalid() {
            return Ok(record.refuse(error));
        }
        let cell = pool.take(&Shape::of(&settings), request.mode).await.map_err(|error| {
            let said = format!("no worker could be started for the script: {error}");
            BridgeError::new(ErrorCode::ProviderUnavailable, Delivery::NotSent, said)
        })?;
        Ok(run::run((self, caller), cell, request, injected, settings, record).await)
    }
}

/// The configuration's limits, or what the request says instead.
fn with_wishes(settings: ScriptSettings, request: &ScriptRequest) -> ScriptSettings {
    ScriptSettings {
        timeout: request.timeout.unwrap_or(settings.timeout),
        memory_mb: request.memory_mb.unwrap_or(settings.memory_mb),
        ..settings
    }
}

fn refused(said: &str) -> Box<BridgeError> {
    BridgeError::new(ErrorCode::PolicyDenied, Delivery::NotSent, said)
}
