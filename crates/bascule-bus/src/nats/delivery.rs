//! A request that was delivered to this replica, until it is settled.

use std::mem;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_nats::{HeaderMap, Subject};
use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::claims::Claims;
use super::connection::NatsConnection;
use crate::request_identity::RequestIdentity;
use crate::{BusError, Claim, ClaimTicket, Envelope, MessageId};

/// A message that JetStream has delivered and waits for.
pub(super) struct PulledMessage {
    pub(super) subject: Subject,
    pub(super) payload: Bytes,
    pub(super) headers: HeaderMap,
    pub(super) position: Position,
    pub(super) settlement: Arc<Settlement>,
}

/// The place of a delivery in its stream, from the subject of its acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    /// 1 at the first delivery.
    pub(super) attempt: u32,
    pub(super) stream_sequence: u64,
    pub(super) stored_nanos: u64,
}

impl Position {
    /// Reads `$JS.ACK.STREAM.CONSUMER.ATTEMPT.SEQUENCE.CONSUMER-SEQUENCE.TIME.PENDING`, also with a domain and an account
    /// before the stream.
    pub(super) fn parse(reply: &str) -> Option<Self> {
        let tokens: Vec<_> = reply.strip_prefix("$JS.ACK.")?.split('.').collect();
        let numbers = match tokens.len() {
            7 => &tokens[2..6],
            length if length >= 9 => &tokens[4..8],
            _ => return None,
        };
        Some(Self {
            attempt: numbers[0].parse().ok()?,
            stream_sequence: numbers[1].parse().ok()?,
            stored_nanos: numbers[3].parse().ok()?,
        })
    }
}

/// The open acknowledgement of a delivery. Dropped, it gives the message back.
pub(super) struct Settlement {
    connection: NatsConnection,
    /// The subject for the acknowledgement; a later delivery of the same message replaces it.
    reply: Mutex<Subject>,
    is_settled: AtomicBool,
    window: Arc<Window>,
}

impl Settlement {
    pub(super) fn new(connection: NatsConnection, reply: Subject, window: Arc<Window>) -> Self {
        window.unsettled.fetch_add(1, Ordering::AcqRel);
        Self { connection, reply: Mutex::new(reply), is_settled: AtomicBool::new(false), window }
    }

    /// Takes over the acknowledgement of a later delivery.
    pub(super) fn replace_reply(&self, reply: Subject) {
        drop(mem::replace(&mut *self.reply.lock().expect("no code panics while it holds the lock"), reply));
    }

    pub(super) async fn acknowledge(&self) -> Result<(), BusError> {
        self.settle("+ACK".into()).await
    }

    pub(super) async fn return_after(&self, delay: Duration) -> Result<(), BusError> {
        self.settle(format!(r#"-NAK {{"delay":{}}}"#, delay.as_nanos()).into()).await
    }

    async fn settle(&self, answer: Bytes) -> Result<(), BusError> {
        match self.is_settled.swap(true, Ordering::AcqRel) {
            true => Ok(()),
            false => {
                self.window.release();
                self.connection.publish(&self.reply(), HeaderMap::new(), answer).await
            }
        }
    }

    /// While the broker is lost there is nobody to tell; the next call tells it.
    async fn keep(&self) -> Result<(), BusError> {
        match self.connection.is_connected() {
            true => self.connection.publish(&self.reply(), HeaderMap::new(), "+WPI".into()).await,
            false => Ok(()),
        }
    }

    fn reply(&self) -> Subject {
        self.reply.lock().expect("no code panics while it holds the lock").clone()
    }
}

impl Drop for Settlement {
    fn drop(&mut self) {
        if *self.is_settled.get_mut() {
            return;
        }
        self.window.release();
        let (connection, reply) = (self.connection.clone(), self.reply());
        // Without a runtime the server notices by itself, a little later.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move { connection.publish(&reply, HeaderMap::new(), "-NAK".into()).await });
        }
    }
}

/// The number of delivered messages that are not settled.
#[derive(Default)]
pub(super) struct Window {
    unsettled: AtomicUsize,
    settled: Notify,
}

impl Window {
    pub(super) fn unsettled(&self) -> usize {
        self.unsettled.load(Ordering::Acquire)
    }

    /// Waits until a message is settled. Each is reported at least once.
    pub(super) async fn settled(&self) {
        self.settled.notified().await;
    }

    fn release(&self) {
        self.unsettled.fetch_sub(1, Ordering::AcqRel);
        self.settled.notify_one();
    }
}

/// A request that is being handled.
pub(crate) struct NatsDelivery {
    pub(super) claims: Arc<Claims>,
    pub(super) position: Position,
    /// `None` if the message cannot be read.
    pub(super) request: Option<RequestIdentity>,
    /// The first delivery of a message whose id is new.
    pub(super) is_first_copy: bool,
    /// Different for each delivery to this replica.
    pub(super) number: u64,
    pub(super) settlement: Arc<Settlement>,
}

impl NatsDelivery {
    /// An answer needs no claim: its own subject decides which one is the first.
    pub(crate) fn early_ticket(&self, id: &MessageId) -> Option<ClaimTicket> {
        self.is_first_copy.then(|| ClaimTicket { message_id: id.clone(), revision: 0 })
    }

    pub(crate) async fn claim(&self, id: &MessageId) -> Result<Claim, BusError> {
        self.claims.claim(self.request(id)?, &self.position, self.number).await
    }

    pub(crate) async fn release(&self, ticket: ClaimTicket) -> Result<(), BusError> {
        self.claims.release(self.request(&ticket.message_id)?, &ticket).await
    }

    pub(crate) async fn record_answer(
        &self,
        ticket: &ClaimTicket,
        answer: &Envelope,
    ) -> Result<bool, BusError> {
        self.claims.answers.record(self.request(&ticket.message_id)?, answer).await
    }

    pub(crate) fn publishes_recorded_answer(&self) -> bool {
        self.request.as_ref().is_some_and(|request| self.claims.answers.are_published(request))
    }

    fn request(&self, id: &MessageId) -> Result<&RequestIdentity, BusError> {
        let reason = || format!("the delivered message has not the id `{id}`");
        let refuse = || BusError::Refused { operation: "handle a request", reason: reason() };
        self.request.as_ref().filter(|request| request.id == *id).ok_or_else(refuse)
    }

    pub(crate) async fn keep(&self) -> Result<(), BusError> {
        self.settlement.keep().await
    }

    pub(crate) async fn acknowledge(&self) -> Result<(), BusError> {
        self.settlement.acknowledge().await
    }

    pub(crate) async fn return_after(&self, delay: Duration) -> Result<(), BusError> {
        self.settlement.return_after(delay).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_both_forms_of_acknowledgement_subjects() {
        let expected = Position { attempt: 2, stream_sequence: 7, stored_nanos: 1_700_000_000 };
        let short = "$JS.ACK.BASCULE_REQUESTS.agent-a.2.7.9.1700000000.0";
        assert_eq!(Position::parse(short), Some(expected));
        let long = "$JS.ACK.hub.AHASH.BASCULE_REQUESTS.agent-a.2.7.9.1700000000.0.token";
        assert_eq!(Position::parse(long), Some(expected));
        for reply in ["", "$JS.ACK", "$JS.ACK.a.b.c.d.e.f.g", "_INBOX.x", "$JS.ACK.s.c.-1.1.1.1.1"] {
            assert_eq!(Position::parse(reply), None, "{reply}");
        }
    }
}
