//! Publishes the tools of the agent: at the start, on request, and whenever they or the health of a server change.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bascule_bus::{
    AgentName, BusReconnections, BusSubscription, McpMetadataRefreshRequest, McpToolsAvailable, ServerState,
    StoredLists, publish_availability,
};
use bascule_catalog::CatalogTool;
use bascule_model::{ProviderAdapter, ServerName};
use futures_util::FutureExt;
use serde_json::value::to_raw_value;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use tracing::{debug, warn};

use super::{BusFace, next_of_kind};
use crate::fleet::FleetObserver;

/// The wait for the first start of all servers. Later ones are published when they come.
const FIRST_STARTS: Duration = Duration::from_secs(10);
/// Changes within this time are published together,
const QUIET: Duration = Duration::from_millis(150);
/// but not later than this.
const LONGEST_DELAY: Duration = Duration::from_secs(2);
/// The longest time that a reload takes to publish its tools.
const RELOAD: Duration = Duration::from_secs(15);
/// The longest time for listing the tools again.
const REFRESH: Duration = Duration::from_secs(30);
/// The shortest time between two refreshes on demand. Requests that come meanwhile are served together,
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);
/// at most so many.
const MAX_TOGETHER: usize = 10_000;
/// The pause after a publication that failed.
const RETRY: Duration = Duration::from_secs(2);

pub(super) struct AvailabilityPublisher {
    face: Arc<BusFace>,
    reloads: Arc<ReloadObserver>,
    /// The hash of the last published tools and servers.
    published: Option<u64>,
    lists: StoredLists,
    reconnections: BusReconnections,
    /// No refresh on demand before this time.
    next_refresh: Instant,
}

/// Notices the reloads of the bridge.
#[derive(Default)]
struct ReloadObserver {
    is_reloading: AtomicBool,
    is_reloaded: AtomicBool,
    changed: Notify,
}

/// A reason to look at the tools.
enum Cause {
    /// They are published if they have changed.
    Change,
    /// They are published anyway.
    Demand,
    Closed,
}

impl FleetObserver for ReloadObserver {
    fn on_reload_started(&self) {
        self.is_reloading.store(true, Ordering::Relaxed);
    }

    fn on_reloaded(&self) {
        self.is_reloading.store(false, Ordering::Relaxed);
        self.is_reloaded.store(true, Ordering::Relaxed);
        self.changed.notify_one();
    }
}

impl AvailabilityPublisher {
    pub(super) fn new(face: Arc<BusFace>) -> Self {
        let reloads = Arc::<ReloadObserver>::default();
        let observer: Arc<dyn FleetObserver> = reloads.clone();
        face.bridge.fleet.observe(Arc::downgrade(&observer));
        let (reconnections, lists) = (face.bus.reconnections(), StoredLists::default());
        Self { face, reloads, published: None, lists, reconnections, next_refresh: Instant::now() }
    }

    /// Publishes until the bus is closed.
    pub(super) async fn run(mut self, mut refreshes: BusSubscription) {
        self.face.bridge.wait_for_first_starts(FIRST_STARTS).await;
        let mut cause = Cause::Demand;
        loop {
            // From here on every change wakes this task: none is missed while the last one is being published.
            let server_change = self.face.bridge.next_server_change();
            self.publish(matches!(cause, Cause::Demand)).await;
            cause = self.next_cause(server_change, &mut refreshes).await;
            if matches!(cause, Cause::Closed) {
                return;
            }
            self.settle().await;
            // One publication serves a reload and the changes that it made.
            if self.reloads.is_reloaded.swap(false, Ordering::Relaxed) {
                cause = Cause::Demand;
            }
        }
    }

    async fn next_cause(
        &mut self,
        server_change: impl Future<Output = ()>,
        refreshes: &mut BusSubscription,
    ) -> Cause {
        let agent = &self.face.options.agent;
        let request = tokio::select! {
            () = server_change => return Cause::Change,
            () = self.reloads.changed.notified() => return Cause::Change,
            // Agents may have missed what was published during the loss.
            () = self.reconnections.next() => {
                // The broker may have lost what it stored.
                self.lists = StoredLists::default();
                return Cause::Demand;
            }
            request = next_refresh(agent, refreshes) => request,
        };
        let Some(request) = request else { return Cause::Closed };
        sleep_until(self.next_refresh).await;
        let server = join_waiting(agent, refreshes, request.server);
        self.next_refresh = Instant::now() + REFRESH_INTERVAL;
        // Not in the `select!`: the first server that is listed again is a change, which would end the refresh.
        let refresh = crate::api::refresh(&self.face.bridge, server.as_ref());
        match timeout(REFRESH, refresh).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => warn!(%error, "a refresh failed"),
            Err(_) => warn!("a refresh takes longer than {REFRESH:?}: publishing what is known"),
        }
        Cause::Demand
    }

    /// Waits until the changes have come to rest, so that one reload or restart is published once.
    async fn settle(&self) {
        let latest = Instant::now() + LONGEST_DELAY;
        loop {
            let change = self.face.bridge.next_server_change();
            let quiet = Instant::now() + QUIET;
            if timeout_at(quiet.min(latest), change).await.is_err() {
                break;
            }
        }
        let reloaded = async {
            while self.reloads.is_reloading.load(Ordering::Relaxed) {
                self.reloads.changed.notified().await;
            }
        };
        if timeout(RELOAD, reloaded).await.is_err() {
            self.reloads.is_reloading.store(false, Ordering::Relaxed);
        }
    }

    /// Publishes the tools if they have changed, or if somebody wants them.
    async fn publish(&mut self, is_wanted: bool) {
        let (hash, tools) = self.tools();
        if !is_wanted && self.published == Some(hash) {
            return;
        }
        let (count, topic) = (tools.tools.len(), self.face.options.agent.availability_topic());
        let envelope = self.face.envelope(&McpToolsAvailable { tools: Vec::new(), ..tools.clone() });
        match publish_availability(&self.face.bus, &topic, envelope, tools, &mut self.lists).await {
            Ok(()) => {
                debug!(count, "published the tools");
                self.published = Some(hash);
            }
            Err(error) => {
                warn!(%error, "the tools were not published: trying again");
                self.published = None;
                self.reloads.changed.notify_one();
                sleep(RETRY).await;
            }
        }
    }

    /// Returns the tools, and a hash that changes with them.
    fn tools(&self) -> (u64, McpToolsAvailable) {
        let bridge = &self.face.bridge;
        let servers = bridge.health().into_iter();
        let servers: Vec<_> =
            servers.map(|server| ServerState { name: server.name, health: server.health }).collect();
        let tools = bridge.list_tools();
        let entry = |tool: &Arc<CatalogTool>| to_raw_value(&**tool).expect("all keys of a tool are strings");
        let available = McpToolsAvailable {
            agent: self.face.options.agent.clone(),
            tools: tools.iter().map(entry).collect(),
            servers,
            tools_object: None,
            tools_parts: None,
        };
        (hash(&tools, &available.servers), available)
    }
}

/// Waits for a request to list the tools of this agent again. Returns `None` once the bus is closed. Cancel safe.
async fn next_refresh(
    agent: &AgentName,
    refreshes: &mut BusSubscription,
) -> Option<McpMetadataRefreshRequest> {
    loop {
        let (_, request) = next_of_kind::<McpMetadataRefreshRequest>(refreshes).await?;
        if request.agent.as_ref().is_none_or(|meant| meant == agent) {
            return Some(request);
        }
    }
}

/// Takes the requests that wait. Returns the one server that all mean; `None`: all servers.
fn join_waiting(
    agent: &AgentName,
    refreshes: &mut BusSubscription,
    mut server: Option<ServerName>,
) -> Option<ServerName> {
    for _ in 0..MAX_TOGETHER {
        let Some(Some(request)) = next_refresh(agent, refreshes).now_or_never() else { break };
        server = server.filter(|server| request.server.as_ref() == Some(server));
    }
    server
}

/// Types that were learned from answers do not count: they change with the calls.
fn hash(tools: &[Arc<CatalogTool>], servers: &[ServerState]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for tool in tools {
        (tool.id().as_str(), tool.definition().raw.get(), tool.is_from_last_listing()).hash(&mut hasher);
    }
    for server in servers {
        (server.name.as_str(), server.health.to_string()).hash(&mut hasher);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use bascule_bus::{
        Bus, Envelope, Headers, MessageBody, MessageId, SharedTopics, Timestamp, Topic, TopicPattern,
    };
    use serde_json::value::to_raw_value;

    use super::*;

    /// Publishes requests for the given servers, and returns what the next refresh lists: `None` is all servers.
    async fn next_listing(requests: &[(&str, Option<&str>)]) -> Option<String> {
        let bus = Bus::embedded(Arc::default());
        let mut refreshes =
            bus.subscribe(&TopicPattern::parse(SharedTopics::REFRESH).unwrap()).await.unwrap();
        for (agent, server) in requests {
            let body = McpMetadataRefreshRequest {
                agent: Some(AgentName::parse(agent).unwrap()),
                server: server.map(|server| ServerName::parse(server).unwrap()),
            };
            let envelope = Envelope {
                message_id: MessageId::parse("m").unwrap(),
                kind: McpMetadataRefreshRequest::KIND.into(),
                correlation_id: None,
                reply_to: None,
                source: "a".into(),
                destination: None,
                timestamp: Timestamp::from_unix_millis(0),
                headers: Headers::new(),
                body: to_raw_value(&body).unwrap(),
                unknown: Default::default(),
            };
            bus.publish(&Topic::from_static(SharedTopics::REFRESH), &envelope).await.unwrap();
        }
        let agent = AgentName::parse("a").unwrap();
        let first = next_refresh(&agent, &mut refreshes).await.unwrap();
        let server = join_waiting(&agent, &mut refreshes, first.server);
        assert!(refreshes.next().now_or_never().is_none(), "one listing serves all of them");
        server.map(|server| server.to_string())
    }

    // req: BU-05
    #[tokio::test]
    async fn requests_that_wait_are_served_together() {
        assert_eq!(next_listing(&[("a", Some("s")); 50]).await.as_deref(), Some("s"));
        assert_eq!(next_listing(&[("a", Some("s")), ("a", Some("t"))]).await, None);
        assert_eq!(next_listing(&[("a", Some("s")), ("a", None)]).await, None);
        assert_eq!(next_listing(&[("a", None), ("a", Some("s"))]).await, None);
        assert_eq!(next_listing(&[("a", Some("s")), ("b", Some("t"))]).await.as_deref(), Some("s"));
    }
}
