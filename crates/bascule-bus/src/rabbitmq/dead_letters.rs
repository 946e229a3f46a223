//! The dead letters in their queue: lists them without taking them, and removes one.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lapin::BasicProperties;
use lapin::message::Delivery;
use lapin::options::{BasicAckOptions, BasicGetOptions};

use super::link::BrokerConnection;
use super::topology::{self, DEAD_QUEUE};
use crate::{DeadLetter, DeadLetterId, Envelope, StoredDeadLetter, Timestamp};

/// Lists at most `limit` letters. The queue has them all again when the channel is closed.
pub(super) async fn list(
    connection: &BrokerConnection,
    limit: usize,
) -> lapin::Result<Vec<StoredDeadLetter>> {
    let channel = connection.channel().await?;
    topology::declare_dead_letters(&channel).await?;
    let mut letters = Vec::new();
    while letters.len() < limit
        && let Some(message) = channel.basic_get(DEAD_QUEUE.into(), BasicGetOptions::default()).await?
    {
        letters.push(read(&message.delivery));
    }
    channel.close(200, "OK".into()).await?;
    Ok(letters)
}

/// Removes a letter. Returns false if there is none with this id.
pub(super) async fn remove(connection: &BrokerConnection, id: &DeadLetterId) -> lapin::Result<bool> {
    let channel = connection.channel().await?;
    topology::declare_dead_letters(&channel).await?;
    let mut is_found = false;
    while !is_found
        && let Some(message) = channel.basic_get(DEAD_QUEUE.into(), BasicGetOptions::default()).await?
    {
        if read(&message.delivery).id == *id {
            is_found = message.delivery.acker.ack(BasicAckOptions::default()).await?;
        }
    }
    channel.close(200, "OK".into()).await?;
    Ok(is_found)
}

/// Anybody may publish to the queue, so a message need not be a dead letter.
fn read(delivery: &Delivery) -> StoredDeadLetter {
    let envelope = Envelope::parse(&delivery.data).map_err(|error| error.to_string());
    let letter = envelope.and_then(|envelope| {
        let letter =
            serde_json::from_str::<DeadLetter>(envelope.body.get()).map_err(|error| error.to_string())?;
        let id = DeadLetterId(envelope.message_id.to_string());
        Ok(StoredDeadLetter { id, time: envelope.timestamp, letter })
    });
    letter.unwrap_or_else(|reason| unreadable(delivery, &reason))
}

fn unreadable(delivery: &Delivery, reason: &str) -> StoredDeadLetter {
    let text = std::str::from_utf8(&delivery.data);
    let letter = DeadLetter {
        reason: format!("this is no dead letter: {reason}"),
        topic: delivery.routing_key.to_string(),
        base64: text.is_err(),
        message: text.map_or_else(|_| STANDARD.encode(&delivery.data), str::to_owned),
        original_bytes: None,
    };
    let time =
        Timestamp::from_unix_millis(delivery.properties.timestamp().unwrap_or_default().saturating_mul(1000));
    StoredDeadLetter { id: DeadLetterId(id_of(&delivery.properties, &delivery.data)), time, letter }
}

/// The sender's id, or one that follows from the content.
fn id_of(properties: &BasicProperties, content: &[u8]) -> String {
    match properties.message_id() {
        Some(id) => id.to_string(),
        None => format!("unreadable-{:016x}", fnv1a(content)),
    }
}

/// FNV-1a: equal in every process, which the hashes of the standard library are not.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}
