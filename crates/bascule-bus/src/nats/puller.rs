//! Pulls messages from a durable consumer, so that requested and unsettled ones together never exceed the prefetch.
//!
//! The client's own pull stream holds messages that nobody asked for yet; a replica that is busy would keep them from others.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_nats::jetstream::consumer::pull::Config;
use async_nats::{Message, StatusCode, Subject, Subscriber};
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::warn;

use super::connection::{LinkState, refused, within};
use super::delivery::{Position, PulledMessage, Settlement, Window};
use super::jetstream::JetStream;
use super::streams;
use crate::BusError;

const OPERATION: &str = "take requests";
/// The server ends a pull after this time.
const PULL_EXPIRES: Duration = Duration::from_secs(30);
/// The server shows this often that a pull is alive.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// The pause after a failure.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// The reader of one consumer of the stream of requests.
pub(super) struct Puller {
    jetstream: JetStream,
    consumer: Config,
    prefetch: usize,
    window: Arc<Window>,
    link: watch::Receiver<LinkState>,
    losses: u64,
    inbox: Inbox,
    pulls: Pulls,
    /// Messages of an inbox that is gone.
    backlog: VecDeque<Message>,
    /// The open deliveries, by their sequence in the stream.
    open: HashMap<u64, Weak<Settlement>>,
    /// The consumer may be gone: look for it at this time.
    repair_at: Option<Instant>,
}

struct Inbox {
    prefix: String,
    subscriber: Subscriber,
}

/// The pulls that the server has not ended, oldest first.
#[derive(Default)]
struct Pulls {
    open: VecDeque<Pull>,
    next_number: u64,
    /// The server is silent if nothing has come by then.
    silent_at: Option<Instant>,
}

struct Pull {
    number: u64,
    missing: usize,
}

impl Puller {
    /// Creates the consumer if it is absent.
    pub(super) async fn open(
        jetstream: &JetStream,
        consumer: Config,
        prefetch: usize,
    ) -> Result<Self, BusError> {
        ensure_consumer(jetstream, &consumer).await?;
        let link = jetstream.connection().watch();
        let losses = link.borrow().losses;
        Ok(Self {
            inbox: Inbox::open(jetstream).await?,
            jetstream: jetstream.clone(),
            consumer,
            prefetch: prefetch.max(1),
            window: Arc::default(),
            link,
            losses,
            pulls: Pulls::default(),
            backlog: VecDeque::new(),
            open: HashMap::new(),
            repair_at: None,
        })
    }

    /// Waits for the next message. Returns `None` once the bus is closed. Cancel safe.
    pub(super) async fn next(&mut self) -> Option<PulledMessage> {
        loop {
            if let Some(message) = self.backlog.pop_front() {
                match self.accept(message) {
                    Some(message) => return Some(message),
                    None => continue,
                }
            }
            let state = *self.link.borrow_and_update();
            if state.is_closed {
                return None;
            }
            if let Err(error) = self.prepare(state).await {
                warn!(%error, consumer = self.consumer.durable_name, "cannot take requests");
                self.repair_at = Some(Instant::now() + RETRY_DELAY);
            }
            // Without a connection nothing can be repaired: its return wakes this task.
            let repair_at = self.repair_at.filter(|_| state.is_connected);
            let wake_at = repair_at.into_iter().chain(self.pulls.silent_at).min();
            tokio::select! {
                message = self.inbox.subscriber.next() => self.backlog.extend(message),
                () = self.window.settled() => {}
                // The sender lives in the connection.
                _ = self.link.changed() => {}
                () = sleep_until(wake_at.unwrap_or_else(Instant::now)), if wake_at.is_some() => {
                    self.pulls.forget_if_silent();
                }
            }
        }
    }

    /// Does what is due before a wait: a new inbox after a loss, a look for the consumer, a pull.
    async fn prepare(&mut self, state: LinkState) -> Result<(), BusError> {
        if !state.is_connected {
            return Ok(());
        }
        if self.losses != state.losses {
            self.replace_inbox().await?;
            self.losses = state.losses;
        }
        match self.repair_at {
            Some(time) if time > Instant::now() => return Ok(()),
            Some(_) => {
                ensure_consumer(&self.jetstream, &self.consumer).await?;
                self.repair_at = None;
            }
            None => {}
        }
        match self.pulls.wanted(self.prefetch, self.window.unsettled()) {
            0 => Ok(()),
            count => self.pull(count).await,
        }
    }

    /// Pulls of the time before the loss must not add to new ones: they end with their inbox.
    async fn replace_inbox(&mut self) -> Result<(), BusError> {
        let inbox = Inbox::open(&self.jetstream).await?;
        let mut old = std::mem::replace(&mut self.inbox, inbox);
        while let Some(Some(message)) = old.subscriber.next().now_or_never() {
            self.backlog.push_back(message);
        }
        self.pulls = Pulls::default();
        Ok(())
    }

    async fn pull(&mut self, count: usize) -> Result<(), BusError> {
        let (number, client) = (self.pulls.next_number, self.jetstream.connection().client());
        let consumer = self.consumer.durable_name.as_deref().unwrap_or_default();
        let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{}.{consumer}", streams::REQUESTS);
        let reply = format!("{}.{number}", self.inbox.prefix);
        let (expires, heartbeat) = (PULL_EXPIRES.as_nanos(), HEARTBEAT.as_nanos());
        let body = format!(r#"{{"batch":{count},"expires":{expires},"idle_heartbeat":{heartbeat}}}"#);
        let sent = within(OPERATION, client.publish_with_reply(subject, reply, Bytes::from(body))).await?;
        sent.map_err(|error| refused(OPERATION, &error))?;
        self.pulls.add(count);
        Ok(())
    }

    /// Returns the message if it is a request that is not open here already.
    fn accept(&mut self, message: Message) -> Option<PulledMessage> {
        self.pulls.note_life();
        if let Some(status) = message.status {
            self.note_status(status, &message);
            return None;
        }
        self.pulls.note_delivery();
        let reply = message.reply?;
        let position = Position::parse(&reply)?;
        let settlement = self.begin(reply, &position)?;
        let headers = message.headers.unwrap_or_default();
        Some(PulledMessage {
            subject: message.subject,
            payload: message.payload,
            headers,
            position,
            settlement,
        })
    }

    /// The server delivers a request again if it heard nothing of it for a while, for example during a loss. If this replica
    /// still handles it, only the acknowledgement changes.
    fn begin(&mut self, reply: Subject, position: &Position) -> Option<Arc<Settlement>> {
        if let Some(open) = self.open.get(&position.stream_sequence).and_then(Weak::upgrade) {
            open.replace_reply(reply);
            return None;
        }
        if self.open.len() >= 2 * self.prefetch {
            self.open.retain(|_, settlement| settlement.strong_count() > 0);
        }
        let settlement = Settlement::new(self.jetstream.connection().clone(), reply, self.window.clone());
        let settlement = Arc::new(settlement);
        self.open.insert(position.stream_sequence, Arc::downgrade(&settlement));
        Some(settlement)
    }

    /// Notes the end of a pull. The subject of a status ends with the pull's number.
    fn note_status(&mut self, status: StatusCode, message: &Message) {
        if status == StatusCode::IDLE_HEARTBEAT {
            return;
        }
        let number = message.subject.rsplit('.').next().and_then(|number| number.parse().ok());
        self.pulls.open.retain(|pull| Some(pull.number) != number);
        // No message came in time: the usual end.
        if status != StatusCode::TIMEOUT && status != StatusCode::NOT_FOUND {
            let reason = message.description.as_deref().unwrap_or_default();
            warn!(status = status.as_u16(), reason, "the NATS server ended a pull of requests");
            self.repair_at = Some(Instant::now() + RETRY_DELAY);
        }
    }
}

impl Inbox {
    async fn open(jetstream: &JetStream) -> Result<Self, BusError> {
        let client = jetstream.connection().client();
        let prefix = client.new_inbox();
        let subscribed = within(OPERATION, client.subscribe(format!("{prefix}.*"))).await?;
        Ok(Self { prefix, subscriber: subscribed.map_err(|error| refused(OPERATION, &error))? })
    }
}

impl Pulls {
    /// The number of messages to ask for. Few large pulls cost less than many small ones, so a small number waits as long as
    /// the server still owes some.
    fn wanted(&self, prefetch: usize, unsettled: usize) -> usize {
        let missing: usize = self.open.iter().map(|pull| pull.missing).sum();
        let room = prefetch.saturating_sub(missing + unsettled);
        if missing == 0 || 2 * room >= prefetch { room } else { 0 }
    }

    fn add(&mut self, count: usize) {
        self.open.push_back(Pull { number: self.next_number, missing: count });
        self.next_number += 1;
        self.note_life();
    }

    /// The server serves the oldest pull first.
    fn note_delivery(&mut self) {
        if let Some(pull) = self.open.front_mut() {
            pull.missing -= 1;
            if pull.missing == 0 {
                self.open.pop_front();
            }
        }
    }

    fn note_life(&mut self) {
        self.silent_at = Some(Instant::now() + 3 * HEARTBEAT);
    }

    /// A server that has ended a pull without a word, such as one of a cluster that was lost, is asked again.
    fn forget_if_silent(&mut self) {
        if self.silent_at.is_some_and(|time| time <= Instant::now()) {
            self.open.clear();
            self.silent_at = None;
        }
    }
}

async fn ensure_consumer(jetstream: &JetStream, consumer: &Config) -> Result<(), BusError> {
    const OPERATION: &str = "create a consumer of requests";
    let stream = jetstream.ensure_stream(streams::requests()).await?;
    let name = consumer.durable_name.as_deref().unwrap_or_default();
    let created = within(OPERATION, stream.get_or_create_consumer(name, consumer.clone())).await?;
    created.map(|_| ()).map_err(|error| refused(OPERATION, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: BU-09
    #[test]
    fn pulls_never_exceed_the_prefetch() {
        let mut pulls = Pulls::default();
        assert_eq!(pulls.wanted(8, 0), 8);
        pulls.add(8);
        for unsettled in 1..=8 {
            pulls.note_delivery();
            assert_eq!(pulls.wanted(8, unsettled), 0);
        }
        assert!(pulls.open.is_empty());
        assert_eq!(pulls.wanted(8, 7), 1, "the server owes nothing, so every place is asked for");
        pulls.add(1);
        assert_eq!(pulls.wanted(8, 4), 0, "three places are not worth a pull");
        assert_eq!(pulls.wanted(8, 3), 4);
    }
}
