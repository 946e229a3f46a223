//! A fresh process for each call (SB-01): some are kept ready, each makes one call and is ended.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use bascule_client::ServerInfo;
use bascule_model::{BridgeError, BridgeResult, Delivery, ErrorCode};
use serde_json::value::RawValue;
use tokio::time::timeout_at;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::warn;

use super::errand::Errand;
use super::upstream::{Frame, Listed, Upstream};
use crate::config::ServerSettings;
use crate::deadline::Deadline;

/// A handle; clones share the pool.
#[derive(Clone)]
pub(crate) struct Pool(Arc<Inner>);

struct Inner {
    settings: Arc<ServerSettings>,
    frame: Frame,
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
}

impl Pool {
    /// Starts one process, learns from it what the tools are, and keeps it for the first call.
    pub(crate) async fn start(settings: Arc<ServerSettings>, frame: &Frame) -> BridgeResult<(Self, Listed)> {
        let (first, listed) = Upstream::start(settings.clone(), frame).await?;
        // Those to come are nobody's first start, on which a caller may be waiting.
        let frame = Frame { patience: None, ..frame.clone() };
        let pool = Self(Arc::new(Inner {
            settings,
            frame,
            info: first.info().clone(),
            shelf: Mutex::default(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
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
    pub(crate) async fn run(&self, errand: &Errand<'_>, deadline: Deadline) -> BridgeResult<Box<RawValue>> {
        let used = Used { upstream: Some(self.take(&deadline).await?), pool: self };
        self.refill();
        let upstream = used.upstream.as_ref().expect("taken only when dropped");
        upstream.bind(errand.tool);
        upstream.run(errand, deadline).await
    }

    /// Lists the tools again, in a process of its own.
    pub(crate) async fn list(&self) -> BridgeResult<Listed> {
        let (upstream, listed) = Upstream::start(self.0.settings.clone(), &self.0.frame).await?;
        self.see_off(upstream);
        Ok(listed)
    }

    pub(crate) fn info(&self) -> &ServerInfo {
        &self.0.info
    }

    /// One of the processes that are ready.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.shelf().ready.front().and_then(Upstream::pid)
    }

    /// Ends all processes. Any number of times.
    pub(crate) async fn stop(&self) {
        self.0.stop.cancel();
        let ready = std::mem::take(&mut self.shelf().ready);
        futures_util::future::join_all(ready.iter().map(Upstream::stop)).await;
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }

    /// A process that is ready, else a new one.
    async fn take(&self, deadline: &Deadline) -> BridgeResult<Upstream> {
        while let Some(upstream) = self.pop() {
            match upstream.ended() {
                None => return Ok(upstream),
                Some(_) => self.see_off(upstream),
            }
        }
        let starting = Upstream::connect(self.0.settings.clone(), &self.0.frame);
        let late = |_| {
            let said = format!("no process was ready for the call {}", deadline.passed());
            BridgeError::new(ErrorCode::ProviderTimeout, Delivery::NotSent, said)
        };
        timeout_at(deadline.next(), starting).await.map_err(late)?
    }

    fn pop(&self) -> Option<Upstream> {
        self.shelf().ready.pop_front()
    }

    /// Brings the shelf back to its size, in the background. What fails is tried again by the next call.
    fn refill(&self) {
        while self.claim_a_place() {
            let pool = self.clone();
            self.0.tasks.spawn(async move {
                let connecting = Upstream::connect(pool.0.settings.clone(), &pool.0.frame);
                let connected = pool.0.stop.run_until_cancelled(connecting).await;
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

    fn arrived(&self, connected: Option<BridgeResult<Upstream>>) {
        let mut shelf = self.shelf();
        shelf.coming -= 1;
        match connected {
            Some(Ok(upstream)) if !self.0.stop.is_cancelled() => shelf.ready.push_back(upstream),
            Some(Ok(upstream)) => self.see_off(upstream),
            Some(Err(error)) => {
                warn!(server = %self.0.settings.name, %error, "could not start a process for a call to come");
            }
            None => {}
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
struct Used<'a> {
    upstream: Option<Upstream>,
    pool: &'a Pool,
}

impl Drop for Used<'_> {
    fn drop(&mut self) {
        self.upstream.take().into_iter().for_each(|upstream| self.pool.see_off(upstream));
    }
}
