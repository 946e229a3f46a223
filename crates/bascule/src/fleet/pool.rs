//! Runs each call in a process of its own. Some processes are kept ready; each makes one call and is ended.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bascule_client::ServerInfo;
use bascule_model::{BridgeError, BridgeResult, Delivery, ErrorCode};
use bascule_sandbox::Policy;
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio::time::timeout_at;
use tokio_util::task::TaskTracker;
use tracing::warn;

use super::request::UpstreamRequest;
use super::upstream::{StartContext, ToolListing, Upstream};
use crate::config::ServerSettings;
use crate::deadline::Deadline;
use crate::in_flight::InFlight;
use crate::normalise;
use crate::warm_pool::{WarmPool, spawn_on_drop};

/// Starting a process blocks the thread for a moment, in which the result of a short call may arrive.
const REFILL_DELAY: Duration = Duration::from_millis(5);

/// A handle; clones share the pool.
#[derive(Clone)]
pub(crate) struct Pool(Arc<Inner>);

struct Inner {
    settings: Arc<ServerSettings>,
    context: StartContext,
    info: ServerInfo,
    /// The policy of the first process, and so of all.
    policy: Option<Arc<Policy>>,
    warm: Arc<WarmPool<(), PooledUpstream>>,
    /// Every process, ready or with a call.
    all: Arc<Processes>,
}

type Processes = Mutex<Vec<Arc<Upstream>>>;

impl Pool {
    /// Starts one process, lists its tools, and keeps it for the first call.
    pub(crate) async fn start(
        settings: Arc<ServerSettings>,
        context: &StartContext,
    ) -> BridgeResult<(Self, ToolListing)> {
        let (first, listing) = Upstream::start(settings.clone(), context).await?;
        let stop = context.stop.child_token();
        let warm = WarmPool::new(settings.pool_size, REFILL_DELAY, (), stop.clone());
        // No caller waits for the start of a later process.
        let context = StartContext { timeout: None, stop, ..context.clone() };
        let (info, policy) = (first.info().clone(), first.policy());
        let pool = Self(Arc::new(Inner { settings, context, info, policy, warm, all: Arc::default() }));
        pool.0.warm.add(pool.register(first));
        pool.refill();
        Ok((pool, listing))
    }

    /// Makes one call in a process of its own.
    pub(crate) async fn run(
        &self,
        request: &UpstreamRequest<'_>,
        in_flight: &InFlight,
        deadline: Deadline,
    ) -> BridgeResult<Box<RawValue>> {
        let process = self.take(&deadline).await?;
        self.refill();
        process.upstream.apply_limits(request.tool);
        process.upstream.run(request, in_flight, deadline).await
    }

    /// Lists the tools again, in a process of its own.
    pub(crate) async fn list_tools(&self) -> BridgeResult<ToolListing> {
        let (upstream, listing) = Upstream::start(self.0.settings.clone(), &self.0.context).await?;
        drop(self.register(upstream));
        Ok(listing)
    }

    pub(crate) fn info(&self) -> &ServerInfo {
        &self.0.info
    }

    pub(crate) fn policy(&self) -> Option<Arc<Policy>> {
        self.0.policy.clone()
    }

    /// Returns the pid of a ready process.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.0.warm.find_ready(|process| {
            process.upstream.pid().filter(|_| process.upstream.close_reason().is_none())
        })
    }

    /// Ends all processes, including those with a call. May be called more than once.
    pub(crate) async fn stop(&self) {
        // Cancels the starts, which end their own processes.
        self.0.warm.stop.cancel();
        let all = lock(&self.0.all).clone();
        futures_util::future::join_all(all.iter().map(|upstream| upstream.stop())).await;
        self.0.warm.close().await;
    }

    /// Returns a ready process, or starts one.
    async fn take(&self, deadline: &Deadline) -> BridgeResult<PooledUpstream> {
        if let Some(process) =
            self.0.warm.take(|()| true, |process| process.upstream.close_reason().is_none())
        {
            return Ok(process);
        }
        timeout_at(deadline.next(), self.start_for_call()).await.unwrap_or_else(|_| {
            let message = format!("no process was ready for the call {}", deadline.passed());
            Err(BridgeError::new(ErrorCode::ProviderTimeout, Delivery::NotSent, message))
        })
    }

    /// Starts a process for one call. A task of the pool starts it, so that `stop` waits for its end. Dropping the future
    /// cancels the start.
    async fn start_for_call(&self) -> BridgeResult<PooledUpstream> {
        let (pool, cancel) = (self.clone(), self.0.warm.stop.child_token());
        let context = StartContext { stop: cancel.clone(), ..self.0.context.clone() };
        let _guard = cancel.drop_guard();
        let (sender, receiver) = oneshot::channel();
        self.0.warm.tasks.spawn(async move { drop(sender.send(pool.connect(&context).await)) });
        match receiver.await {
            Ok(process) if !self.0.warm.stop.is_cancelled() => process,
            _ => Err(self.stopped()),
        }
    }

    /// Starts a process. Must run in a task of the pool, so that `stop` waits for its end.
    async fn connect(&self, context: &StartContext) -> BridgeResult<PooledUpstream> {
        let process = self.register(Upstream::connect(self.0.settings.clone(), context).await?);
        // `stop` may have read the list before this process was on it.
        if self.0.warm.stop.is_cancelled() { Err(self.stopped()) } else { Ok(process) }
    }

    fn register(&self, upstream: Upstream) -> PooledUpstream {
        let (upstream, tasks) = (Arc::new(upstream), self.0.warm.tasks.clone());
        lock(&self.0.all).push(upstream.clone());
        PooledUpstream { upstream, all: self.0.all.clone(), tasks }
    }

    fn refill(&self) {
        self.0.warm.refill(|()| {
            let pool = self.clone();
            async move {
                let connected = pool.connect(&pool.0.context).await;
                if let (Err(error), false) = (&connected, pool.0.warm.stop.is_cancelled()) {
                    warn!(server = %pool.0.settings.name, %error, "could not start a process for a later call");
                }
                connected.ok()
            }
        });
    }

    fn stopped(&self) -> Box<BridgeError> {
        normalise::unavailable_error(&self.0.settings.name, "it was stopped")
    }
}

/// A process for one call. Dropping it ends the process.
struct PooledUpstream {
    upstream: Arc<Upstream>,
    all: Arc<Processes>,
    tasks: TaskTracker,
}

impl Drop for PooledUpstream {
    fn drop(&mut self) {
        let upstream = self.upstream.clone();
        lock(&self.all).retain(|other| !Arc::ptr_eq(other, &upstream));
        spawn_on_drop(&self.tasks, async move { upstream.stop().await });
    }
}

fn lock(all: &Processes) -> MutexGuard<'_, Vec<Arc<Upstream>>> {
    all.lock().expect("no code panics while it holds the lock")
}
