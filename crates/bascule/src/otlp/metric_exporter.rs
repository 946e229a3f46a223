//! Sends the metrics of a bridge to a collector, from time to time and at its end.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::metrics::{CoveredTime, metrics_message};
use super::sender::OtlpSender;
use super::settings::{OtlpResource, OtlpSettings, Signal};
use crate::McpBridgeAdapter;

/// The longest wait for the collector when a bridge ends.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Owns the task that sends metrics.
pub(crate) struct MetricExporter {
    stop: CancellationToken,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl MetricExporter {
    /// Returns `None` if no metrics are to be sent.
    pub(crate) fn start(settings: &OtlpSettings, bridge: &Arc<McpBridgeAdapter>) -> Option<Self> {
        let sender = OtlpSender::new(Signal::Metrics, settings.metrics.clone()?);
        let stop = CancellationToken::new();
        let task = MetricTask {
            bridge: bridge.clone(),
            sender,
            resource: settings.resource.clone(),
            interval: settings.metric_interval,
            started: unix_nanos(),
            stop: stop.clone(),
        };
        Some(Self { stop, task: Mutex::new(Some(tokio::spawn(task.run()))) })
    }

    /// Sends the last values, but not for long, and ends the task.
    pub(crate) async fn close(&self) {
        self.stop.cancel();
        let task = self.task.lock().expect("no code panics while it holds the lock").take();
        let Some(mut task) = task else { return };
        if timeout(CLOSE_TIMEOUT, &mut task).await.is_err() {
            task.abort();
        }
    }
}

impl Drop for MetricExporter {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

struct MetricTask {
    bridge: Arc<McpBridgeAdapter>,
    sender: OtlpSender,
    resource: OtlpResource,
    interval: Duration,
    started: u64,
    stop: CancellationToken,
}

impl MetricTask {
    /// Values are totals since the start, so a lost message loses nothing but its moment.
    async fn run(self) {
        loop {
            let is_last = self.stop.run_until_cancelled(sleep(self.interval)).await.is_none();
            let (bridge, resource) = (self.bridge.clone(), self.resource.clone());
            let covered = CoveredTime { start: self.started, end: unix_nanos() };
            self.sender.send(move || metrics_message(&bridge, &resource, covered), &self.stop).await;
            if is_last {
                return;
            }
        }
    }
}

fn unix_nanos() -> u64 {
    let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
