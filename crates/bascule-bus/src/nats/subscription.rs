//! Subscriptions over core NATS. A slow subscriber loses its oldest messages and learns how many.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Waker;

use async_nats::Message;
use futures_util::StreamExt;
use futures_util::stream::select_all;
use tokio::task::JoinSet;

use super::connection::{NatsConnection, refused, within};
use crate::subscriber_queue::{QueueItem, SubscriberQueue};
use crate::{BusError, InboxPrefix, ReceivedItem, ReceivedMessage, SubscribeOptions, Topic, TopicPattern};

/// The messages of matching topics. Dropping it unsubscribes.
pub(crate) struct NatsSubscription {
    pattern: TopicPattern,
    /// The pattern names inboxes. Those of others are their own business.
    has_inboxes: bool,
    queue: Arc<SubscriberQueue<Message>>,
    _reader: JoinSet<()>,
}

impl NatsSubscription {
    pub(super) async fn open(connection: &NatsConnection, pattern: &TopicPattern) -> Result<Self, BusError> {
        const OPERATION: &str = "subscribe";
        connection.connected(OPERATION).await?;
        let mut subscribers = Vec::new();
        for subject in subjects(pattern.as_str()) {
            let subscribed = within(OPERATION, connection.client().subscribe(subject)).await?;
            subscribers.push(subscribed.map_err(|error| refused(OPERATION, &error))?);
        }
        connection.synchronise().await;
        let limits = SubscribeOptions::default();
        let queue = Arc::new(SubscriberQueue::new(limits.capacity, limits.bytes));
        let mut reader = JoinSet::new();
        reader.spawn(read(select_all(subscribers), queue.clone(), connection.clone()));
        let has_inboxes = pattern.as_str().starts_with(InboxPrefix::START);
        Ok(Self { pattern: pattern.clone(), has_inboxes, queue, _reader: reader })
    }

    pub(crate) async fn next(&mut self) -> Option<ReceivedItem> {
        loop {
            match poll_fn(|context| self.queue.poll_next(context)).await? {
                QueueItem::Lost(count) => return Some(ReceivedItem::Lost(count)),
                QueueItem::Message(message) => {
                    // Subjects that are no topics belong to NATS itself or to others.
                    let Ok(topic) = Topic::parse(&message.subject) else { continue };
                    if self.pattern.matches(&topic) && (self.has_inboxes || !is_inbox(&topic)) {
                        return Some(ReceivedItem::Message(ReceivedMessage::read(topic, message.payload)));
                    }
                }
            }
        }
    }
}

/// Moves messages into the queue, which never makes it wait: a slow reader must not fill the client's own buffer.
async fn read(
    mut messages: impl futures_util::Stream<Item = Message> + Unpin,
    queue: Arc<SubscriberQueue<Message>>,
    connection: NatsConnection,
) {
    let mut link = connection.watch();
    loop {
        tokio::select! {
            message = messages.next() => match message {
                Some(message) => {
                    let size = message.length;
                    queue.push(message, size).into_iter().for_each(Waker::wake);
                }
                None => break,
            },
            _ = link.wait_for(|state| state.is_closed) => break,
        }
    }
    queue.close().into_iter().for_each(Waker::wake);
}

fn is_inbox(topic: &Topic) -> bool {
    topic.as_str().starts_with(InboxPrefix::START)
}

/// The subjects that cover a pattern. NATS has `>` only at the end, where it stands for one token or more: `a.#` needs `a` and
/// `a.>`. A pattern that goes on after `#` is subscribed up to it, and the rest is checked here.
fn subjects(pattern: &str) -> BTreeSet<String> {
    let Some(at) = pattern.split('.').position(|segment| segment == "#") else {
        return BTreeSet::from([pattern.to_owned()]);
    };
    let prefix = pattern.split('.').take(at).collect::<Vec<_>>().join(".");
    match prefix.is_empty() {
        true => BTreeSet::from([">".to_owned()]),
        false => BTreeSet::from([format!("{prefix}.>"), prefix]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: BU-02
    #[test]
    fn patterns_become_subjects() {
        let check = |pattern: &str, expected: &[&str]| {
            assert_eq!(subjects(pattern).into_iter().collect::<Vec<_>>(), expected, "{pattern}");
        };
        check("tool.result.a", &["tool.result.a"]);
        check("tool.*.a", &["tool.*.a"]);
        check("tool.#", &["tool", "tool.>"]);
        check("tool.*.#", &["tool.*", "tool.*.>"]);
        check("tool.#.a.#", &["tool", "tool.>"]);
        check("#", &[">"]);
        check("#.a", &[">"]);
    }
}
