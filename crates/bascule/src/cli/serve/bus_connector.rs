//! Serves an agent on the bus for as long as the bridge runs. A broker that is absent is waited for.

use std::sync::Arc;
use std::time::Duration;

use bascule_bus::{Bus, BusError, BusOptions};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::bus_face::status::BusMonitor;
use crate::fleet::server_log::{OPERATIONS, format_duration};
use crate::{BusService, BusServiceOptions, McpBridgeAdapter};

/// The pause after the first failed attempt to connect. It doubles.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// A bridge that serves an agent on a bus.
pub(super) struct BusConnector {
    pub(super) bridge: Arc<McpBridgeAdapter>,
    pub(super) connection: BusOptions,
    pub(super) service: BusServiceOptions,
    /// The time for requests in progress when the bridge stops.
    pub(super) grace: Duration,
}

impl BusConnector {
    /// Serves until `stop`.
    pub(super) async fn run(self, stop: CancellationToken) {
        let monitor = BusMonitor::of_bridge(&self.bridge, &self.service.agent);
        monitor.set_url(self.connection.url.to_string());
        let Some((bus, service)) = stop.run_until_cancelled(self.connect(&monitor)).await else { return };
        let (agent, url) = (&self.service.agent, &self.connection.url);
        info!(target: OPERATIONS, "serving agent `{agent}` on the bus at {url}");
        let mut reconnections = bus.reconnections();
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                () = reconnections.next() => {
                    info!(target: OPERATIONS, "connected to the bus at {url} again");
                }
            }
        }
        service.close(self.grace).await;
        bus.close().await;
    }

    async fn connect(&self, monitor: &BusMonitor) -> (Bus, BusService) {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.try_connect().await {
                Ok(connected) => return connected,
                Err(error) => {
                    warn!(target: OPERATIONS, "{error}; trying again in {}", format_duration(pause));
                    monitor.set_failure(error.to_string());
                }
            }
            tokio::time::sleep(pause).await;
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
    }

    async fn try_connect(&self) -> Result<(Bus, BusService), BusError> {
        let bus = Bus::connect(&self.connection).await?;
        let service = BusService::start(self.bridge.clone(), bus.clone(), self.service.clone()).await?;
        Ok((bus, service))
    }
}
