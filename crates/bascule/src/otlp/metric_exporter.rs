//! Sends the metrics of a bridge to a collector, from time to time and at its end.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::export_task::ExportTask;
use super::metrics::{CoveredTime, metrics_message};
use super::sender::OtlpSender;
use super::settings::{OtlpResource, OtlpSettings, Signal};
use crate::McpBridgeAdapter;

/// Owns the task that sends metrics.
pub(crate) struct MetricExporter(ExportTask);

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
        Some(Self(ExportTask::spawn(stop, task.run())))
    }

    /// Sends the last values, but not for long, and ends the task.
    pub(crate) async fn close(&self) {
        self.0.close().await;
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
