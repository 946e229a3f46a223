//! The bridge on a message bus: an agent's requests come from the bus, and their answers go there.
//!
//! A bridge belongs to one agent and may run as several replicas. `incoming` reads a request, `lifecycle` takes it from the
//! claim to the answer, `answer` writes the answer, `cancellation` ends calls. `availability` publishes the agent's tools,
//! `events` the bridge's events. `status` is what `bascule status` shows.

mod answer;
mod availability;
mod cancellation;
mod events;
mod incoming;
mod lifecycle;
pub(crate) mod status;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bascule_bus::{
    AgentName, Bus, BusError, BusSubscription, EmbeddedBus, Envelope, Headers, MessageBody,
    MessageIdGenerator, ReceivedItem, RequestQueue, SharedTopics, TopicPattern,
};
use bascule_model::clip;
use serde_json::value::to_raw_value;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use crate::McpBridgeAdapter;
use crate::unique_number::random_u64;
use availability::AvailabilityPublisher;
use cancellation::Cancellations;
use status::BusMonitor;

/// The settings of a bridge on a bus.
#[derive(Clone)]
pub struct BusServiceOptions {
    /// The agent whose requests are handled.
    pub agent: AgentName,
    /// The most requests that are handled at the same time.
    pub prefetch: usize,
    /// The longest time of one call. It must be shorter than `agent_timeout`.
    pub timeout: Duration,
    /// The age at which a request without a deadline is not run any more: its agent has given up.
    pub agent_timeout: Duration,
    /// Longer requests become dead letters.
    pub max_request_bytes: usize,
    /// The bus inside the process whose events are published. Default: none.
    pub events: Option<Arc<EmbeddedBus>>,
}

impl BusServiceOptions {
    pub const PREFETCH: usize = 64;
    pub const TIMEOUT: Duration = Duration::from_secs(30);
    pub const AGENT_TIMEOUT: Duration = Duration::from_secs(60);

    /// The default settings.
    pub fn new(agent: AgentName) -> Self {
        Self {
            agent,
            prefetch: Self::PREFETCH,
            timeout: Self::TIMEOUT,
            agent_timeout: Self::AGENT_TIMEOUT,
            max_request_bytes: 64 << 20,
            events: None,
        }
    }

    fn check(&self) -> Result<(), BusError> {
        if self.timeout < self.agent_timeout {
            return Ok(());
        }
        let reason = format!(
            "the time-out of a call ({} ms) must be shorter than that of the agent ({} ms): the agent would give up before the bridge answers",
            self.timeout.as_millis(),
            self.agent_timeout.as_millis()
        );
        Err(BusError::Refused { operation: "serve the agent", reason })
    }
}

/// A bridge that serves one agent over a bus. Dropping it abandons the requests in progress: other replicas get them.
pub struct BusService {
    face: Arc<BusFace>,
    tasks: TaskTracker,
    /// Ends everything but the requests in progress.
    stop: CancellationToken,
}

/// The state that all tasks of the service share.
struct BusFace {
    bridge: Arc<McpBridgeAdapter>,
    bus: Bus,
    options: BusServiceOptions,
    /// The publisher that the messages of the bridge name.
    source: String,
    ids: MessageIdGenerator,
    cancellations: Cancellations,
    monitor: Arc<BusMonitor>,
    /// Ends the requests in progress.
    abort: CancellationToken,
}

impl BusService {
    /// Begins to serve. Creates at the broker what it needs. Refuses a `timeout` that is not shorter than `agent_timeout`.
    pub async fn start(
        bridge: Arc<McpBridgeAdapter>,
        bus: Bus,
        options: BusServiceOptions,
    ) -> Result<Self, BusError> {
        options.check()?;
        let agent = options.agent.clone();
        let pattern = |topic: &str| TopicPattern::parse(topic).expect("a topic is a pattern");
        let cancels = bus.subscribe(&pattern(agent.cancel_topic().as_str())).await?;
        let refreshes = bus.subscribe(&pattern(SharedTopics::REFRESH)).await?;
        let requests = bus.requests(&agent, options.prefetch).await?;
        let monitor = BusMonitor::of_bridge(&bridge, &agent);
        monitor.set_connected(bus.clone());
        let face = Arc::new(BusFace {
            source: format!("bascule/{agent}"),
            ids: MessageIdGenerator::new(random_u64()),
            cancellations: Cancellations::new(options.agent_timeout),
            abort: CancellationToken::new(),
            bridge,
            bus,
            options,
            monitor,
        });
        let service = Self { face, tasks: TaskTracker::new(), stop: CancellationToken::new() };
        service.spawn(requests, cancels, refreshes);
        Ok(service)
    }

    fn spawn(&self, requests: RequestQueue, cancels: BusSubscription, refreshes: BusSubscription) {
        let (face, tasks, stop) = (&self.face, &self.tasks, &self.stop);
        tasks.spawn(stop.clone().run_until_cancelled_owned(take_requests(
            face.clone(),
            requests,
            tasks.clone(),
        )));
        tasks.spawn(stop.clone().run_until_cancelled_owned(face.clone().take_cancellations(cancels)));
        let availability = AvailabilityPublisher::new(face.clone());
        tasks.spawn(stop.clone().run_until_cancelled_owned(availability.run(refreshes)));
        if let Some(events) = &face.options.events {
            let events = events::subscribe(events);
            tasks.spawn(stop.clone().run_until_cancelled_owned(face.clone().publish_events(events)));
        }
    }

    /// Takes no more requests, and waits for those in progress, at most for `grace`. The rest is given to other replicas
    /// where that is safe, else answered with `outcome_unknown`.
    pub async fn close(&self, grace: Duration) {
        self.stop.cancel();
        self.tasks.close();
        if timeout(grace, self.tasks.wait()).await.is_err() {
            self.face.abort.cancel();
            let _ = timeout(LAST_ANSWERS, self.tasks.wait()).await;
        }
    }
}

/// The longest quotation of a message in a log line.
const MAX_LOGGED: usize = 256;
/// The time for the answers of requests that `close` ends.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

impl Drop for BusService {
    fn drop(&mut self) {
        self.stop.cancel();
        self.face.abort.cancel();
    }
}

/// Handles each request in a task of its own. The queue bounds their number.
async fn take_requests(face: Arc<BusFace>, mut requests: RequestQueue, tasks: TaskTracker) {
    while let Some(delivery) = requests.next().await {
        tasks.spawn(face.clone().handle(delivery));
    }
}

impl BusFace {
    /// Wraps a body. Everything that a bridge publishes may quote tools, so it is marked as such.
    fn envelope<T: MessageBody>(&self, body: &T) -> Envelope {
        Envelope {
            message_id: self.ids.generate(),
            kind: T::KIND.into(),
            correlation_id: None,
            reply_to: None,
            source: self.source.clone().into(),
            destination: Some(self.options.agent.to_string()),
            timestamp: SystemTime::now().into(),
            headers: self.headers(),
            body: to_raw_value(body).expect("all keys of a message are strings"),
            unknown: Default::default(),
        }
    }

    fn headers(&self) -> Headers {
        bascule_bus::ContentTrust::ToolOutput.to_headers()
    }
}

/// Waits for the next message of one kind, and reads its body. Others are ignored: anybody may publish on a broker. Returns
/// `None` once the bus is closed.
async fn next_of_kind<T: MessageBody>(messages: &mut BusSubscription) -> Option<(Arc<Envelope>, T)> {
    loop {
        let message = match messages.next().await? {
            ReceivedItem::Message(message) => message,
            ReceivedItem::Lost(count) => {
                warn!(
                    count,
                    kind = T::KIND,
                    "messages of the bus were lost: they came too fast, or the broker was away"
                );
                continue;
            }
        };
        match message.content {
            Ok(envelope) if envelope.kind == T::KIND => match serde_json::from_str(envelope.body.get()) {
                Ok(body) => return Some((envelope, body)),
                Err(error) => {
                    let error = clip(&error.to_string(), MAX_LOGGED).to_owned();
                    warn!(topic = %message.topic, error, "ignored a message of the bus")
                }
            },
            Ok(_) => debug!(topic = %message.topic, "ignored a message of another type"),
            Err(unreadable) => {
                let reason = clip(&unreadable.reason, MAX_LOGGED);
                warn!(topic = %message.topic, reason, "ignored a message of the bus")
            }
        }
    }
}
