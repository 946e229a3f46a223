//! Runs work that may take long away from the one thread that serves all calls.

use tokio::task::JoinError;

/// Runs blocking work on another thread. A caller that does not wait for the result drops it, which ends a process.
pub(crate) async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await.map_err(JoinError::try_into_panic) {
        Ok(done) => done,
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        // The runtime is shutting down, and the caller with it.
        Err(Err(_)) => std::future::pending().await,
    }
}
