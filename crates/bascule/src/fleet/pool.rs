//! A fresh process for each call (SB-01): some are kept ready, each makes one call and is ended.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bascule_client::ServerInfo;
use bascule_model::{BridgeError, BridgeResult, Delivery, ErrorCode};
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::warn;

use super::request::UpstreamRequest;
use super::upstream::{StartContext, ToolListing, Upstream};
use crate::config::ServerSettings;
use crate::deadline::Deadline;
use crate::in_flight::InFlight;
use crate::normalise;

/// How far a call is ahead of the start of the process for the next one.
const HEAD_START: Duration = Duration::from_millis(5);

/// A handle; clones share the pool.
#[derive(Clone)]
pub(crate) struct Pool(Arc<Inner>);

struct Inner {
    settings: Arc<ServerSettings>,
    frame: StartContext,
    info: ServerInfo,
    shelf: Mutex<Shelf>,
    /// Refills, and farewells to what was used.
    tasks: TaskTracker,
    stop: CancellationToken,
}

#[derive(Default)]
struct Shelf {
    ready: VecDeque<Upstream>,
    /// Being started, for the shelf.
    coming: usize,
    /// Those that have their call.
    busy: Vec<Arc<Upstream>>,
}

impl Pool {
    /// Starts one process, learns from it what the tools are, and keeps it for the first call.
    pub(crate) async fn start(
        settings: Arc<ServerSettings>,
        frame: &StartContext,
    ) -> BridgeResult<(Self, ToolListing)> {
        let (first, listed) = Upstream::start(settings.clone(), frame).await?;
        let stop = frame.stop.child_token();
        // Those to come are nobody's first start, on which a caller may be waiting.
        let frame = StartContext { timeout: None, stop: stop.clone(), ..frame.clone() };
        let pool = Self(Arc::new(Inner {
            settings,
            frame,
            info: first.info().clone(),
            shelf: Mutex::default(),
            tasks: TaskTracker::new(),
            stop,
        }));
        if pool.0.settings.pool_size > 0 {
            pool.shelf().ready.push_back(first);
        } else {
            pool.see_off(first);
        }
        pool.refill();
        Ok((pool, listed))
    }

    /// Makes one call in a process of its own.
    pub(crate) async fn run(
        &self,
        request: &UpstreamRequest<'_>,
        in_flight: &InFlight,
        deadline: Deadline,
    ) -> BridgeResult<Box<RawValue>> {
        let used = self.take(&deadline).await?;
        self.refill();
        used.upstream.apply_limits(request.tool);
        used.upstream.run(request, in_flight, deadline).await
    }

    /// Lists the tools again, in a process of its own.
    pub(crate) async fn list_tools(&self) -> BridgeResult<ToolListing> {
        let (upstream, listed) = Upstream::start(self.0.settings.clone(), &self.0.frame).await?;
        self.see_off(upstream);
        Ok(listed)
    }

    pub(crate) fn info(&self) -> &ServerInfo {
        &self.0.info
    }

    /// One of the processes that are ready.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.shelf().ready.iter().find(|one| one.ended().is_none()).and_then(Upstream::pid)
    }

    /// Ends all processes, those that have a call too. Any number of times.
    pub(crate) async fn stop(&self) {
        // Whatever is being started is called off, and sees to its own end.
        self.0.stop.cancel();
        let (ready, busy) = {
            let mut shelf = self.shelf();
            (std::mem::take(&mut shelf.ready), shelf.busy.clone())
        };
        let all = ready.iter().chain(busy.iter().map(Arc::as_ref));
        futures_util::future::join_all(all.map(Upstream::stop)).await;
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }

    /// A process that is ready, else a new one.
    async fn take(&self, deadline: &Deadline) -> BridgeResult<Used> {
        while let Some(used) = self.pop() {
            if used.upstream.ended().is_none() {
                return Ok(used);
            }
        }
        timeout_at(deadline.next(), self.start_one()).await.unwrap_or_else(|_| {
            let said = format!("no process was ready for the call {}", deadline.passed());
            Err(BridgeError::new(ErrorCode::ProviderTimeout, Delivery::NotSent, said))
        })
    }

    fn pop(&self) -> Option<Used> {
        let mut shelf = self.shelf();
        let upstream = shelf.ready.pop_front()?;
        Some(self.used(&mut shelf, upstream))
    }

    /// Starts a process for one call. It is a task of the pool's, so that somebody waits for its end; a caller who
    /// leaves meanwhile calls it off.
    async fn start_one(&self) -> BridgeResult<Used> {
        let (pool, wanted) = (self.clone(), self.0.stop.child_token());
        let frame = StartContext { stop: wanted.clone(), ..self.0.frame.clone() };
        let _leaving = wanted.drop_guard();
        let (give, given) = oneshot::channel();
        self.0.tasks.spawn(async move {
            let connected = Upstream::connect(pool.0.settings.clone(), &frame).await;
            // Whatever becomes of it from here on, it is on the list of those that have to be ended.
            let used = connected.map(|upstream| pool.used(&mut pool.shelf(), upstream));
            match used {
                // The list may have been read before.
                Ok(used) if pool.0.stop.is_cancelled() => used.upstream.stop().await,
                used => drop(give.send(used)),
            }
        });
        match given.await {
            Ok(used) if !self.0.stop.is_cancelled() => used,
            _ => Err(normalise::down(&self.0.settings.name, "it was stopped")),
        }
    }

    fn used(&self, shelf: &mut Shelf, upstream: Upstream) -> Used {
        let upstream = Arc::new(upstream);
        shelf.busy.push(upstream.clone());
        Used { upstream, pool: self.clone() }
    }

    /// Brings the shelf back to its size, in the background. What fails is tried again by the next call.
    fn refill(&self) {
        while self.claim_a_place() {
            let pool = self.clone();
            self.0.tasks.spawn(async move {
                // Starting a process keeps this thread for a moment, in which the call's answer may come.
                pool.0.stop.run_until_cancelled(sleep(HEAD_START)).await;
                let connected = Upstream::connect(pool.0.settings.clone(), &pool.0.frame).await;
                pool.arrived(connected);
            });
        }
    }

    fn claim_a_place(&self) -> bool {
        let mut shelf = self.shelf();
        let room =
            shelf.ready.len() + shelf.coming < self.0.settings.pool_size && !self.0.stop.is_cancelled();
        shelf.coming += usize::from(room);
        room
    }

    fn arrived(&self, connected: BridgeResult<Upstream>) {
        let mut shelf = self.shelf();
        shelf.coming -= 1;
        match connected {
            // Under the lock: who ends the pool has not looked yet, or will be seen to have.
            Ok(upstream) if !self.0.stop.is_cancelled() => shelf.ready.push_back(upstream),
            Ok(upstream) => self.see_off(upstream),
            Err(_) if self.0.stop.is_cancelled() => {}
            Err(error) => {
                warn!(server = %self.0.settings.name, %error, "could not start a process for a call to come");
            }
        }
    }

    fn see_off(&self, upstream: Upstream) {
        self.0.tasks.spawn(async move { upstream.stop().await });
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.0.shelf.lock().expect("nothing panics while holding it")
    }
}

/// A process that has its call. However that ends, the process does too.
struct Used {
    upstream: Arc<Upstream>,
    pool: Pool,
}

impl Drop for Used {
    fn drop(&mut self) {
        let upstream = self.upstream.clone();
        self.pool.shelf().busy.retain(|busy| !Arc::ptr_eq(busy, &upstream));
        self.pool.0.tasks.spawn(async move { upstream.stop().await });
    }
}
