//! Keeps started processes ready, each to be used once.
//!
//! A process that is not used is dropped: its `Drop` must end it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Ready processes `P`, started with the specification `S`.
pub(crate) struct WarmPool<S, P> {
    size: usize,
    /// Delay before a replacement is started, which would take processor time from the process just taken.
    refill_delay: Duration,
    state: Mutex<State<S, P>>,
    /// Processes that are being started or ended.
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
}

struct State<S, P> {
    spec: S,
    ready: VecDeque<P>,
    starting: usize,
}

impl<S: Clone + PartialEq + Send + 'static, P: Send + 'static> WarmPool<S, P> {
    pub(crate) fn new(size: usize, refill_delay: Duration, spec: S, stop: CancellationToken) -> Arc<Self> {
        let state = Mutex::new(State { spec, ready: VecDeque::new(), starting: 0 });
        Arc::new(Self { size, refill_delay, state, tasks: TaskTracker::new(), stop })
    }

    /// Sets the specification of new processes and drops ready ones with another.
    pub(crate) fn set_spec(&self, spec: &S) {
        let mut state = self.state();
        if state.spec != *spec {
            state.spec = spec.clone();
            state.ready.clear();
        }
    }

    /// Returns a ready process that is alive, if the specification fits.
    pub(crate) fn take(&self, fits: impl Fn(&S) -> bool, is_alive: impl Fn(&mut P) -> bool) -> Option<P> {
        let pop = || {
            let mut state = self.state();
            fits(&state.spec).then(|| state.ready.pop_front()).flatten()
        };
        std::iter::from_fn(pop).find_map(|mut process| is_alive(&mut process).then_some(process))
    }

    /// Returns the first value that `find` returns for a ready process.
    pub(crate) fn find_ready<T>(&self, find: impl Fn(&P) -> Option<T>) -> Option<T> {
        self.state().ready.iter().find_map(find)
    }

    pub(crate) fn count_ready(&self) -> usize {
        self.state().ready.len()
    }

    /// Keeps a started process, or drops it if the pool has size zero.
    pub(crate) fn add(&self, process: P) {
        if self.size > 0 {
            self.state().ready.push_back(process);
        }
    }

    /// Starts the missing processes in the background. A failed start is retried by the next refill.
    pub(crate) fn refill<F>(self: &Arc<Self>, start: impl Fn(S) -> F)
    where
        F: Future<Output = Option<P>> + Send + 'static,
    {
        while let Some(spec) = self.reserve_start() {
            let (pool, start) = (self.clone(), start(spec.clone()));
            self.tasks.spawn(async move {
                pool.stop.run_until_cancelled(sleep(pool.refill_delay)).await;
                let process = start.await;
                let mut state = pool.state();
                state.starting -= 1;
                // Checked under the lock: `close` empties the queue after it has cancelled `stop`.
                if !pool.stop.is_cancelled() && state.spec == spec {
                    state.ready.extend(process);
                }
            });
        }
    }

    /// Counts one more starting process and returns its specification, if a process is missing.
    fn reserve_start(&self) -> Option<S> {
        let mut state = self.state();
        let is_missing = state.ready.len() + state.starting < self.size && !self.stop.is_cancelled();
        state.starting += usize::from(is_missing);
        is_missing.then(|| state.spec.clone())
    }

    /// Drops the ready processes and waits for those that are being started or ended.
    pub(crate) async fn close(&self) {
        self.stop.cancel();
        drop(std::mem::take(&mut self.state().ready));
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn state(&self) -> MutexGuard<'_, State<S, P>> {
        self.state.lock().expect("no code panics while it holds the lock")
    }
}

/// Runs the end of a dropped process as a task. Outside of a runtime nothing runs any more that could wait for it.
pub(crate) fn spawn_on_drop(tasks: &TaskTracker, end: impl Future<Output = ()> + Send + 'static) {
    if let Ok(runtime) = Handle::try_current() {
        tasks.spawn_on(end, &runtime);
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;

    type TestPool = Arc<WarmPool<&'static str, String>>;

    fn pool(size: usize) -> TestPool {
        WarmPool::new(size, Duration::ZERO, "old", CancellationToken::new())
    }

    async fn refill(pool: &TestPool) {
        pool.refill(|spec| ready(Some(spec.to_owned())));
        pool.tasks.close();
        pool.tasks.wait().await;
    }

    fn take(pool: &TestPool) -> Option<String> {
        pool.take(|_| true, |_| true)
    }

    #[tokio::test]
    async fn refills_to_its_size() {
        let pool = pool(2);
        refill(&pool).await;
        refill(&pool).await;
        assert_eq!([take(&pool), take(&pool), take(&pool)], [Some("old".into()), Some("old".into()), None]);
    }

    #[tokio::test]
    async fn failed_start_is_retried_by_next_refill() {
        let pool = pool(1);
        pool.refill(|_| ready(None));
        refill(&pool).await;
        assert_eq!(take(&pool), None);
        refill(&pool).await;
        assert!(take(&pool).is_some());
    }

    #[tokio::test]
    async fn takes_only_live_processes_that_fit() {
        let pool = pool(1);
        pool.add("dead".into());
        pool.add("alive".into());
        assert_eq!(pool.take(|spec| *spec == "new", |_| true), None);
        assert_eq!(pool.take(|_| true, |process| process != "dead"), Some("alive".into()));
    }

    #[tokio::test]
    async fn changed_spec_drops_ready_and_starting_processes() {
        let pool = pool(1);
        pool.add("ready".into());
        pool.set_spec(&"new");
        assert_eq!(take(&pool), None);
        pool.refill(|spec| ready(Some(spec.to_owned())));
        pool.set_spec(&"newer");
        refill(&pool).await;
        assert_eq!(take(&pool), None);
        refill(&pool).await;
        assert_eq!(take(&pool), Some("newer".into()));
    }

    #[tokio::test]
    async fn closed_pool_keeps_nothing() {
        let pool = pool(1);
        pool.refill(|spec| ready(Some(spec.to_owned())));
        pool.close().await;
        refill(&pool).await;
        assert_eq!(take(&pool), None);
    }

    #[tokio::test]
    async fn pool_of_size_zero_keeps_nothing() {
        let pool = pool(0);
        pool.add("first".into());
        refill(&pool).await;
        assert_eq!(take(&pool), None);
    }
}
