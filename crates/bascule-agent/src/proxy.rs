//! Calls tools through the bridge of an agent.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bascule_bus::{
    AgentName, Bus, BusError, BusReconnections, BusSubscription, ContentTrust, Envelope, MessageBody,
    MessageId, MessageIdGenerator, ReceivedItem, Timestamp, ToolCancelRequest, ToolInvokeRequest, Topic,
    TopicPattern, WellKnownHeaders,
};
use bascule_model::CorrelationId;
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::{Instant, timeout_at};

use crate::error::CallIdentity;
use crate::pending::{AddError, ClosedCause, PendingCalls};
use crate::{PendingToolCall, ProxyOptions, ProxyOptionsError, ToolCallError, ToolOutput, ToolRequest};

/// Calls the tools of one agent. Clones share the connection and its limits.
///
/// Every proxy has a reply topic of its own, so several processes may act for one agent. After a broker was lost, requests
/// without an answer are sent again under their message ids; the bridge runs none of them twice.
#[derive(Clone)]
pub struct McpToolProxy {
    connection: Arc<ProxyConnection>,
}

/// The reason why a proxy cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    #[error("invalid options of the proxy")]
    Options(#[from] ProxyOptionsError),
    #[error("could not subscribe to answers")]
    Bus(#[from] BusError),
    /// Answers to two proxies with one topic would be mixed up.
    #[error("no random source is available for the name of the reply topic: {0}")]
    NoRandomSource(String),
}

/// The numbers of a proxy since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProxyCounts {
    /// Calls that wait for an answer now.
    pub pending: usize,
    /// Calls that were refused because too many were pending.
    pub refused: u64,
    /// Messages for no pending call: answers that came late or twice.
    pub repeated: u64,
    /// Messages that could not be read.
    pub unreadable: u64,
    /// Messages that the bus dropped because the proxy was too slow.
    pub lost: u64,
    /// Requests that were sent again.
    pub resent: u64,
}

impl McpToolProxy {
    /// Subscribes to the answers for `agent` on a reply topic of its own.
    pub async fn connect(bus: &Bus, agent: &AgentName, options: ProxyOptions) -> Result<Self, ProxyError> {
        options.check()?;
        let [instance, messages] = random_numbers()?;
        let reply_to = Topic::parse(&format!("{}.{instance:016x}", agent.result_topic()))
            .expect("an agent's name is short");
        let pattern = TopicPattern::parse(reply_to.as_str()).expect("a topic is a pattern");
        let reconnections = bus.reconnections();
        let subscription = bus.subscribe(&pattern).await?;
        let pending = Arc::new(PendingCalls::new(&options));
        let (cancellations, queued) = mpsc::channel(options.max_pending);
        let reader = tokio::spawn(read_answers(subscription, pending.clone()));
        let sender = Sender {
            bus: bus.clone(),
            request_topic: agent.request_topic(),
            cancel_topic: agent.cancel_topic(),
            pending: pending.clone(),
        };
        let connection = ProxyConnection {
            bus: bus.clone(),
            agent: agent.clone(),
            options,
            reply_to,
            ids: MessageIdGenerator::new(messages),
            pending,
            cancellations,
            reader: reader.abort_handle(),
            sender: tokio::spawn(sender.run(queued, reconnections)),
        };
        Ok(Self { connection: Arc::new(connection) })
    }

    /// Calls a tool, `server:tool`, and waits for its result. Dropping the future cancels the call.
    pub async fn call(&self, tool: &str, arguments: &impl Serialize) -> Result<ToolOutput, ToolCallError> {
        self.start(ToolRequest::new(tool, arguments)).await?.finish().await
    }

    /// Sends the request of a call. Dropping the future, or the call, cancels it.
    pub async fn start(&self, request: ToolRequest) -> Result<PendingToolCall, ToolCallError> {
        let deadline = Instant::now() + self.connection.options.timeout;
        let (call, envelope) = self.register(request, deadline)?;
        let publish = self.connection.publish_request(&envelope);
        // A request that is sent later than this has less time than the bridge allows it.
        let latest = deadline - self.connection.options.bridge_timeout;
        match timeout_at(latest, publish).await {
            Ok(Ok(())) => Ok(call),
            Ok(Err(error)) => Err(call.identity.not_published(&error)),
            Err(_) => {
                let message = "the broker did not take the request in time".to_owned();
                Err(call.identity.error("timeout", true, message))
            }
        }
    }

    pub fn counts(&self) -> ProxyCounts {
        self.connection.pending.counts()
    }

    /// Ends all calls and stops receiving. Cancellations that wait are sent first.
    pub async fn close(self) {
        let Self { connection } = self;
        connection.pending.close(ClosedCause::Proxy);
        connection.reader.abort();
        // Calls and clones that others hold keep the connection: the last one of them ends the task.
        if let Some(mut connection) = Arc::into_inner(connection) {
            let (closed, _) = mpsc::channel(1);
            connection.cancellations = closed;
            let _ = (&mut connection.sender).await;
        }
    }

    fn register(
        &self,
        request: ToolRequest,
        deadline: Instant,
    ) -> Result<(PendingToolCall, Arc<Envelope>), ToolCallError> {
        let connection = &self.connection;
        let (identity, envelope) = connection.request_envelope(request)?;
        let envelope = Arc::new(envelope);
        let receivers = connection.pending.add(&identity.tool_call_id, envelope.clone()).map_err(
            |error| match error {
                AddError::TooMany(limit) => {
                    let message = format!("{limit} calls wait for their answers: no more are accepted");
                    identity.error("rate_limited", true, message)
                }
                AddError::Closed => identity.error("cancelled", false, "the proxy was closed".into()),
            },
        )?;
        let connection = connection.clone();
        Ok((PendingToolCall { identity, receivers, deadline, connection }, envelope))
    }
}

impl fmt::Debug for McpToolProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpToolProxy")
            .field("agent", &self.connection.agent)
            .field("reply_to", &self.connection.reply_to.as_str())
            .finish_non_exhaustive()
    }
}

fn random_numbers() -> Result<[u64; 2], ProxyError> {
    let no_source = |error: getrandom::Error| ProxyError::NoRandomSource(error.to_string());
    Ok([getrandom::u64().map_err(no_source)?, getrandom::u64().map_err(no_source)?])
}

/// The parts of a proxy that its calls share.
pub(crate) struct ProxyConnection {
    pub(crate) bus: Bus,
    agent: AgentName,
    pub(crate) options: ProxyOptions,
    reply_to: Topic,
    ids: MessageIdGenerator,
    pub(crate) pending: Arc<PendingCalls>,
    cancellations: mpsc::Sender<Envelope>,
    reader: AbortHandle,
    /// It ends by itself once it has sent the last cancellation.
    sender: JoinHandle<()>,
}

impl ProxyConnection {
    fn request_envelope(&self, request: ToolRequest) -> Result<(CallIdentity, Envelope), ToolCallError> {
        let message_id = self.ids.generate();
        let own_id = || CorrelationId::parse(message_id.as_str()).expect("both have the same form");
        let identity = CallIdentity {
            tool_call_id: message_id.as_str().to_owned(),
            tool_name: request.tool,
            correlation_id: request.correlation_id.unwrap_or_else(own_id),
        };
        let arguments = request.arguments.map_err(|reason| {
            identity.error("invalid_input", false, format!("the arguments cannot be sent: {reason}"))
        })?;
        let body = ToolInvokeRequest {
            tool_call_id: identity.tool_call_id.clone(),
            tool_name: identity.tool_name.clone(),
            arguments: Some(arguments),
            deadline: Some(Timestamp::from(SystemTime::now() + self.options.time_to_answer())),
            progress: request.progress,
        };
        let mut envelope = self.envelope(&body, &identity.correlation_id);
        envelope.message_id = message_id;
        envelope.reply_to = Some(self.reply_to.clone());
        if let Some(parent) = request.trace_parent {
            let text = format!("00-{}-{}-01", parent.trace_id, parent.span_id);
            envelope.headers.insert(WellKnownHeaders::TRACE_PARENT.into(), text.into());
        }
        Ok((identity, envelope))
    }

    fn envelope<B: MessageBody>(&self, body: &B, correlation_id: &CorrelationId) -> Envelope {
        Envelope {
            message_id: self.ids.generate(),
            kind: B::KIND.into(),
            correlation_id: Some(correlation_id.clone()),
            reply_to: None,
            source: self.agent.to_string().into(),
            destination: None,
            timestamp: Timestamp::from(SystemTime::now()),
            headers: ContentTrust::ToolRequest.to_headers(),
            body: serde_json::value::to_raw_value(body).expect("all keys of a message are strings"),
            unknown: Default::default(),
        }
    }

    /// Publishes a request. A broker that does not respond is tried again: the message id keeps its place.
    async fn publish_request(&self, envelope: &Envelope) -> Result<(), BusError> {
        loop {
            match self.bus.publish(&self.agent.request_topic(), envelope).await {
                Err(BusError::Timeout { .. }) => {}
                result => return result,
            }
        }
    }

    /// Queues the cancellation of a call. If the queue is full, the bridge's own time-out ends the call.
    pub(crate) fn cancel(&self, identity: &CallIdentity) {
        let body = ToolCancelRequest {
            tool_call_id: identity.tool_call_id.clone(),
            // Both ids of a request of this library are the same.
            request_message_id: MessageId::parse(&identity.tool_call_id).ok(),
        };
        let _ = self.cancellations.try_send(self.envelope(&body, &identity.correlation_id));
    }
}

impl Drop for ProxyConnection {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// Hands messages to the calls that they name, until the bus is closed.
async fn read_answers(mut subscription: BusSubscription, pending: Arc<PendingCalls>) {
    while let Some(item) = subscription.next().await {
        match item {
            ReceivedItem::Message(message) => match message.content {
                Ok(envelope) => pending.dispatch(&envelope),
                Err(_) => pending.count_unreadable(),
            },
            ReceivedItem::Lost(messages) => pending.count_lost(messages),
        }
    }
    pending.close(ClosedCause::Bus);
}

/// The times between a loss and the repetitions of its requests. A bridge runs none of them twice.
const RESEND_PAUSES: [Duration; 4] =
    [Duration::ZERO, Duration::from_secs(1), Duration::from_secs(4), Duration::from_secs(15)];
/// The pauses after attempts that the broker did not take.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// The task that publishes what no caller waits for.
struct Sender {
    bus: Bus,
    request_topic: Topic,
    cancel_topic: Topic,
    pending: Arc<PendingCalls>,
}

impl Sender {
    /// Runs until the connection is dropped and the last cancellation is sent.
    async fn run(self, mut cancellations: mpsc::Receiver<Envelope>, mut reconnections: BusReconnections) {
        let send_cancellations = async {
            while let Some(envelope) = cancellations.recv().await {
                // A cancellation that is lost with its broker is not needed: the bridge's time-out ends the call.
                let _ = self.bus.publish(&self.cancel_topic, &envelope).await;
            }
        };
        tokio::select! {
            () = send_cancellations => {}
            () = self.resend_after_losses(&mut reconnections) => {}
        }
    }

    /// Sends pending requests again whenever answers may have been lost.
    async fn resend_after_losses(&self, reconnections: &mut BusReconnections) {
        loop {
            self.loss(reconnections).await;
            // A further loss while they are sent again begins anew.
            while tokio::select! {
                () = self.resend_repeatedly() => false,
                () = self.loss(reconnections) => true,
            } {}
        }
    }

    async fn loss(&self, reconnections: &mut BusReconnections) {
        tokio::select! {
            () = reconnections.next() => {}
            () = self.pending.resend.notified() => {}
        }
    }

    /// The answer to a request that is sent at once may come before the subscription to answers is back.
    async fn resend_repeatedly(&self) {
        for pause in RESEND_PAUSES {
            tokio::time::sleep(pause).await;
            self.resend().await;
        }
    }

    async fn resend(&self) {
        for (id, request) in self.pending.requests() {
            let mut pause = FIRST_PAUSE;
            while self.pending.contains(&id) {
                match self.bus.publish(&self.request_topic, &request).await {
                    Ok(()) => {
                        self.pending.count_resent();
                        break;
                    }
                    Err(BusError::Closed) => return,
                    // A broker that has just started may not know its queues yet.
                    Err(_) => tokio::time::sleep(pause).await,
                }
                pause = (2 * pause).min(LONGEST_PAUSE);
            }
        }
    }
}
