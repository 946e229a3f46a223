//! Handles large messages on a thread of their own, so that they do not delay the others.
//!
//! The thread handles one at a time, which also bounds the memory that they take together. Their timers, sockets and further
//! tasks stay with the runtime of the caller.

use std::cell::Cell;
use std::sync::LazyLock;

use tokio::runtime::{Builder, Handle};
use tokio_util::context::TokioContext;
use tokio_util::task::TaskTracker;

/// A longer message, or value, is large.
const MAX_SMALL_BYTES: usize = 256 << 10;

pub(crate) const THREAD_NAME: &str = "large-messages";

thread_local! {
    static IS_LARGE_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// The executor of the thread. It has no timers and sockets of its own.
static EXECUTOR: LazyLock<Handle> = LazyLock::new(|| {
    let runtime = Builder::new_current_thread().build().expect("a runtime without drivers takes memory only");
    let handle = runtime.handle().clone();
    let work = move || {
        IS_LARGE_THREAD.set(true);
        runtime.block_on(std::future::pending::<()>());
    };
    std::thread::Builder::new().name(THREAD_NAME.into()).spawn(work).expect("the system starts a thread");
    handle
});

/// Returns true if a message of this length is to be handled on the thread for large ones.
pub fn is_large(bytes: usize) -> bool {
    bytes > MAX_SMALL_BYTES
}

/// Returns true if the current thread is to walk through a value of this length: a short one, or any on the thread for large
/// messages.
pub fn may_walk(bytes: usize) -> bool {
    !is_large(bytes) || IS_LARGE_THREAD.get()
}

/// Runs work on a large message. A caller that leaves does not stop it.
pub async fn run_large<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let runtime = Handle::current();
    let working = EXECUTOR.spawn(async move {
        let _context = runtime.enter();
        work()
    });
    match working.await {
        Ok(done) => done,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// Spawns a task that handles a large message.
pub fn spawn_large(tasks: &TaskTracker, task: impl Future<Output = ()> + Send + 'static) {
    tasks.spawn_on(TokioContext::new(task, Handle::current()), &EXECUTOR);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread_name() -> Option<String> {
        std::thread::current().name().map(str::to_owned)
    }

    // req: BR-12
    #[tokio::test]
    async fn runs_work_on_its_thread_and_the_rest_on_the_runtime() {
        assert!(may_walk(MAX_SMALL_BYTES) && !may_walk(MAX_SMALL_BYTES + 1));
        assert!(run_large(|| may_walk(usize::MAX)).await);
        let (tasks, (sender, receiver)) = (TaskTracker::new(), tokio::sync::oneshot::channel());
        spawn_large(&tasks, async move {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            let spawned = tokio::spawn(async { thread_name() }).await.unwrap();
            let _ = sender.send((thread_name(), spawned));
        });
        let (own, spawned) = receiver.await.unwrap();
        assert_eq!(own.as_deref(), Some(THREAD_NAME));
        assert_eq!(spawned, thread_name());
    }

    // req: BR-12
    #[tokio::test]
    async fn passes_panics_to_the_caller() {
        let failed = tokio::spawn(run_large(|| panic!("expected"))).await;
        assert!(failed.is_err_and(|error| error.is_panic()));
        assert_eq!(run_large(|| 7).await, 7);
    }
}
