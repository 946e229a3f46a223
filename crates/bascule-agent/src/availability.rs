//! Keeps a registry in step with the tools that the bridge of an agent publishes.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use bascule_bus::{
    AgentName, Bus, BusError, BusReconnections, BusSubscription, ContentTrust, Envelope,
    McpMetadataRefreshRequest, McpToolsAvailable, MessageBody, MessageId, MessageIdGenerator, PartsReader,
    ReceivedItem, ResultObject, ServerState, SharedTopics, Timestamp, ToolResultPart, Topic, TopicPattern,
};
use bascule_model::ServerName;
use serde_json::value::RawValue;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::registry::RegistryWriter;
use crate::{ProxyError, ToolRegistry, ToolSet};

/// Receives `McpToolsAvailable` and fills a [`ToolRegistry`]. Dropping it stops that; the registry keeps its tools.
pub struct McpToolsAvailableHandler {
    refresher: Arc<Refresher>,
    registry: ToolRegistry,
    counts: Arc<Mutex<AvailabilityCounts>>,
    task: JoinHandle<()>,
}

/// The numbers of a handler since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AvailabilityCounts {
    /// Messages that replaced the tools.
    pub applied: u64,
    /// Messages about another agent.
    pub foreign: u64,
    /// Messages that could not be read.
    pub unreadable: u64,
    /// Tools in readable messages that cannot be used: their entry is broken, or repeats an id.
    pub unusable_tools: u64,
    /// Messages that the bus dropped because the handler was too slow.
    pub lost: u64,
}

/// The bridge of the agent did not publish its tools in time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the bridge of agent `{agent}` published no tools within {ms} ms: is it running?")]
pub struct NotReadyError {
    agent: AgentName,
    ms: u128,
}

impl NotReadyError {
    pub fn agent(&self) -> &AgentName {
        &self.agent
    }
}

impl McpToolsAvailableHandler {
    /// Subscribes to the tools of `agent` and asks its bridge to publish them now.
    pub async fn connect(bus: &Bus, agent: &AgentName) -> Result<Self, ProxyError> {
        let prefix = getrandom::u64().map_err(|error| ProxyError::NoRandomSource(error.to_string()))?;
        let topic = agent.availability_topic();
        let pattern = TopicPattern::parse(topic.as_str()).expect("a topic is a pattern");
        let reconnections = bus.reconnections();
        let subscription = bus.subscribe(&pattern).await?;
        let refresher =
            Refresher { bus: bus.clone(), agent: agent.clone(), ids: MessageIdGenerator::new(prefix) };
        let refresher = Arc::new(refresher);
        let (writer, registry) = RegistryWriter::new();
        let counts = Arc::default();
        let reader = Reader {
            refresher: refresher.clone(),
            writer,
            counts: Arc::clone(&counts),
            missed: Notify::new(),
        };
        let task = tokio::spawn(reader.run(subscription, reconnections));
        let handler = Self { refresher, registry, counts, task };
        handler.refresh(None).await?;
        Ok(handler)
    }

    pub fn registry(&self) -> &ToolRegistry {
        &self.registry
    }

    /// Asks the bridge to list its tools again: those of one server, or all. The registry changes when it has done so.
    pub async fn refresh(&self, server: Option<ServerName>) -> Result<(), BusError> {
        self.refresher.refresh(server).await
    }

    /// Waits until the tools have been published.
    pub async fn wait_until_ready(&self, timeout: Duration) -> Result<Arc<ToolSet>, NotReadyError> {
        let not_ready = || NotReadyError { agent: self.refresher.agent.clone(), ms: timeout.as_millis() };
        tokio::time::timeout(timeout, self.registry.ready()).await.ok().flatten().ok_or_else(not_ready)
    }

    pub fn counts(&self) -> AvailabilityCounts {
        *self.counts.lock().expect("no code panics while it holds the lock")
    }

    /// Stops receiving.
    pub async fn close(mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }
}

impl Drop for McpToolsAvailableHandler {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Asks the bridge for its tools.
struct Refresher {
    bus: Bus,
    agent: AgentName,
    ids: MessageIdGenerator,
}

impl Refresher {
    async fn refresh(&self, server: Option<ServerName>) -> Result<(), BusError> {
        let body = McpMetadataRefreshRequest { agent: Some(self.agent.clone()), server };
        let envelope = Envelope {
            message_id: self.ids.generate(),
            kind: McpMetadataRefreshRequest::KIND.into(),
            correlation_id: None,
            reply_to: None,
            source: self.agent.to_string().into(),
            destination: None,
            timestamp: Timestamp::from(SystemTime::now()),
            headers: ContentTrust::ToolRequest.to_headers(),
            body: serde_json::value::to_raw_value(&body).expect("all keys of a message are strings"),
            unknown: Default::default(),
        };
        self.bus.publish(&Topic::from_static(SharedTopics::REFRESH), &envelope).await
    }
}

/// The longest list of tools.
const MAX_LIST_BYTES: usize = 64 << 20;
/// The time to read a list that is an object.
const FETCH_TIMEOUT: Duration = Duration::from_secs(30);

/// A list of tools that arrives in parts.
struct PartialTools {
    /// The id of the message that announced it.
    id: MessageId,
    servers: Vec<ServerState>,
    published: Timestamp,
    reader: PartsReader,
}

/// The task that reads the messages.
struct Reader {
    refresher: Arc<Refresher>,
    writer: RegistryWriter,
    counts: Arc<Mutex<AvailabilityCounts>>,
    missed: Notify,
}

impl Reader {
    async fn run(self, subscription: BusSubscription, reconnections: BusReconnections) {
        tokio::select! {
            () = self.read(subscription) => {}
            () = self.refresh_after_losses(reconnections) => {}
        }
    }

    async fn read(&self, mut subscription: BusSubscription) {
        let mut partial = None;
        while let Some(item) = subscription.next().await {
            match item {
                ReceivedItem::Message(message) => {
                    let read = match message.content {
                        Ok(envelope) => self.on_message(&envelope, &mut partial).await,
                        Err(_) => None,
                    };
                    if read.is_none() {
                        self.count(|counts| counts.unreadable += 1);
                    }
                }
                ReceivedItem::Lost(messages) => {
                    self.count(|counts| counts.lost += messages);
                    self.missed.notify_one();
                }
            }
        }
    }

    /// Messages that were published while the broker was lost, or the reader slow, are missed.
    async fn refresh_after_losses(&self, mut reconnections: BusReconnections) {
        loop {
            tokio::select! {
                () = reconnections.next() => {}
                () = self.missed.notified() => {}
            }
            // If this fails, the broker is lost again, and the next connection brings the next request.
            let _ = self.refresher.refresh(None).await;
        }
    }

    /// Returns `None` if the message cannot be read.
    async fn on_message(&self, envelope: &Envelope, partial: &mut Option<PartialTools>) -> Option<()> {
        match &*envelope.kind {
            McpToolsAvailable::KIND => {
                let available = serde_json::from_str::<McpToolsAvailable>(envelope.body.get()).ok()?;
                if available.agent != self.refresher.agent {
                    self.count(|counts| counts.foreign += 1);
                    return Some(());
                }
                self.on_available(envelope, available, partial).await
            }
            ToolResultPart::KIND => {
                let part = serde_json::from_str::<ToolResultPart>(envelope.body.get()).ok()?;
                self.on_part(part, partial)
            }
            _ => None,
        }
    }

    async fn on_available(
        &self,
        envelope: &Envelope,
        available: McpToolsAvailable,
        partial: &mut Option<PartialTools>,
    ) -> Option<()> {
        let published = envelope.timestamp;
        match (available.tools_object, available.tools_parts) {
            (Some(object), _) => {
                let content = self.fetch(&object).await?;
                self.apply(&serde_json::from_slice::<Vec<_>>(&content).ok()?, available.servers, published);
            }
            (None, Some(parts)) => {
                let mut reader = PartsReader::new(MAX_LIST_BYTES);
                reader.announce(parts).ok()?;
                let (id, servers) = (envelope.message_id.clone(), available.servers);
                *partial = Some(PartialTools { id, servers, published, reader });
            }
            (None, None) => self.apply(&available.tools, available.servers, published),
        }
        Some(())
    }

    /// Parts follow their announcement on one topic. Of two lists that arrive at once, the one that was announced last counts.
    fn on_part(&self, part: ToolResultPart, partial: &mut Option<PartialTools>) -> Option<()> {
        let current = partial.as_mut().filter(|partial| partial.id.as_str() == part.tool_call_id);
        let Some(current) = current else { return Some(()) };
        if let Some(text) = current.reader.read(part).ok()? {
            let PartialTools { servers, published, .. } = partial.take()?;
            self.apply(&serde_json::from_str::<Vec<_>>(&text).ok()?, servers, published);
        }
        Some(())
    }

    async fn fetch(&self, object: &ResultObject) -> Option<Vec<u8>> {
        let fetch = self.refresher.bus.get_result(object, MAX_LIST_BYTES);
        tokio::time::timeout(FETCH_TIMEOUT, fetch).await.ok()?.ok()
    }

    fn apply(&self, entries: &[Box<RawValue>], servers: Vec<ServerState>, published: Timestamp) {
        let (tools, unusable) = ToolSet::read(entries, servers, published);
        self.count(|counts| {
            counts.applied += 1;
            counts.unusable_tools += unusable;
        });
        self.writer.replace(tools);
    }

    fn count(&self, change: impl FnOnce(&mut AvailabilityCounts)) {
        change(&mut self.counts.lock().expect("no code panics while it holds the lock"));
    }
}
