//! The task of an exporter, which ends soon after its owner wants it to.

use std::sync::Mutex;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// The longest wait for the collector when a bridge ends.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Owns a task. Dropping it lets the task end by itself.
pub(super) struct ExportTask {
    stop: CancellationToken,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl ExportTask {
    /// Spawns the task, which sends its rest and ends after `stop`.
    pub(super) fn spawn(stop: CancellationToken, task: impl Future<Output = ()> + Send + 'static) -> Self {
        Self { stop, task: Mutex::new(Some(tokio::spawn(task))) }
    }

    /// Lets the task send its rest, but not for long, and ends it.
    pub(super) async fn close(&self) {
        self.stop.cancel();
        let task = self.task.lock().expect("no code panics while it holds the lock").take();
        let Some(mut task) = task else { return };
        if timeout(CLOSE_TIMEOUT, &mut task).await.is_err() {
            task.abort();
        }
    }
}

impl Drop for ExportTask {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
