//! Publishes from many threads while subscribers lag, subscribe and unsubscribe. Every subscriber receives a
//! contiguous part of one common order, and every gap is reported with the exact number of lost messages.

#![allow(clippy::unwrap_used, reason = "test helpers may panic")]

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;

use bascule_bus::{
    EmbeddedBus, Envelope, Headers, MessageIdGenerator, ReplayLimits, SubscribeOptions, Subscription,
    SubscriptionItem, Timestamp, Topic, TopicPattern,
};
use serde_json::value::RawValue;

const PUBLISHERS: usize = 4;
const MESSAGES_EACH: usize = 5_000;
const ALL: usize = PUBLISHERS * MESSAGES_EACH;

/// The index of a publisher and the index of its message.
type Sequence = (usize, usize);

/// One item that a subscriber received.
#[derive(Debug, PartialEq)]
enum Item {
    Message(Sequence),
    Lost(u64),
}

// req: BU-01
#[test]
fn delivers_in_one_order_and_reports_every_loss() {
    // On a busy machine a round may have no lagging subscriber, or too few short subscriptions.
    assert!((0..50).any(|_| run_round()), "no round had lagging and short-lived subscribers");
}

/// Runs publishers and subscribers and checks the received items. Returns true if some subscribers lagged and
/// some subscribed and unsubscribed.
fn run_round() -> bool {
    let bus = EmbeddedBus::new(ReplayLimits { messages: 50, bytes: 1 << 20 });
    let publishing = AtomicUsize::new(PUBLISHERS);
    let complete = subscribe(&bus, ALL, 0);
    let lagging = [1, 3, 64].map(|capacity| subscribe(&bus, capacity, 0));
    let (order, lagged, short) = thread::scope(|scope| {
        let complete = scope.spawn(|| receive_all(complete, false));
        let lagging = lagging.map(|lagging| scope.spawn(|| receive_all(lagging, true)));
        let short = [0, 7, 50].map(|replay| {
            let (bus, publishing) = (&bus, &publishing);
            scope.spawn(move || subscribe_repeatedly(bus, publishing, replay))
        });
        for publisher in 0..PUBLISHERS {
            let (bus, publishing) = (&bus, &publishing);
            scope.spawn(move || publish(bus, publisher, publishing));
        }
        let short = short.map(|thread| thread.join().unwrap());
        bus.close();
        (complete.join().unwrap(), lagging.map(|lagging| lagging.join().unwrap()), short)
    });

    let order = check_publisher_order(order);
    for items in &lagged {
        assert_eq!(covered_range(&order, items), 0..ALL, "a permanent subscriber accounts for all messages");
    }
    for items in short.iter().flatten() {
        covered_range(&order, items);
    }
    let has_loss = |items: &Vec<Item>| items.iter().any(|item| matches!(item, Item::Lost(_)));
    has_loss(&lagged[0]) && short.iter().flatten().filter(|items| !items.is_empty()).count() > 10
}

fn subscribe(bus: &EmbeddedBus, capacity: usize, replay: usize) -> Subscription {
    let options = SubscribeOptions { capacity, bytes: usize::MAX, replay };
    bus.subscribe(TopicPattern::parse("concurrency.*").unwrap(), options)
}

fn publish(bus: &EmbeddedBus, publisher: usize, publishing: &AtomicUsize) {
    let topic = Topic::parse(&format!("concurrency.p{publisher}")).unwrap();
    let ids = MessageIdGenerator::new(publisher as u64);
    for count in 0..MESSAGES_EACH {
        let envelope = Envelope {
            message_id: ids.generate(),
            kind: "sequence".into(),
            correlation_id: None,
            reply_to: None,
            source: "concurrency".into(),
            destination: None,
            timestamp: Timestamp::from_unix_millis(0),
            headers: Headers::new(),
            body: RawValue::from_string(format!("[{publisher},{count}]")).unwrap(),
            unknown: Default::default(),
        };
        bus.publish(&topic, Arc::new(envelope));
        // On few cores a publisher could otherwise finish before any subscriber runs.
        if count % 16 == 0 {
            thread::yield_now();
        }
    }
    publishing.fetch_sub(1, Ordering::Release);
}

/// Subscribes and unsubscribes until all publishers are done.
fn subscribe_repeatedly(bus: &EmbeddedBus, publishing: &AtomicUsize, replay: usize) -> Vec<Vec<Item>> {
    let mut received = Vec::new();
    while publishing.load(Ordering::Acquire) > 0 {
        let capacity = [4, 100][received.len() % 2];
        received.push(receive_some(subscribe(bus, capacity, replay)));
    }
    received
}

/// Polls a few times and unsubscribes, possibly with a registered waker.
fn receive_some(mut subscription: Subscription) -> Vec<Item> {
    let mut items = Vec::new();
    for _ in 0..40 {
        match pin!(subscription.next()).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Some(item)) => items.push(parse_item(item)),
            Poll::Ready(None) => break,
            Poll::Pending => thread::yield_now(),
        }
    }
    items
}

/// Receives until the end. A lagging subscriber yields after every message.
fn receive_all(mut subscription: Subscription, lags: bool) -> Vec<Item> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut items = Vec::new();
    runtime.block_on(async {
        while let Some(item) = subscription.next().await {
            items.push(parse_item(item));
            if lags {
                thread::yield_now();
            }
        }
    });
    items
}

fn parse_item(item: SubscriptionItem) -> Item {
    match item {
        SubscriptionItem::Lost(count) => Item::Lost(count),
        SubscriptionItem::Message(message) => {
            let sequence: Sequence = serde_json::from_str(message.envelope.body.get()).unwrap();
            assert_eq!(message.topic.as_str(), format!("concurrency.p{}", sequence.0));
            Item::Message(sequence)
        }
    }
}

/// Checks that the subscriber with the large queue received every publisher's messages in order.
fn check_publisher_order(items: Vec<Item>) -> Vec<Sequence> {
    let sequence = |item| match item {
        Item::Message(sequence) => sequence,
        Item::Lost(count) => panic!("lost {count} messages"),
    };
    let order: Vec<Sequence> = items.into_iter().map(sequence).collect();
    for publisher in 0..PUBLISHERS {
        let own = order.iter().filter(|sequence| sequence.0 == publisher).map(|sequence| sequence.1);
        assert!(own.eq(0..MESSAGES_EACH), "publisher {publisher}");
    }
    order
}

/// Returns the part of the order that the items cover. Every loss must skip exactly the reported number.
fn covered_range(order: &[Sequence], items: &[Item]) -> std::ops::Range<usize> {
    let Some(first) = items.iter().position(|item| matches!(item, Item::Message(_))) else { return 0..0 };
    let lost = |item: &Item| if let Item::Lost(count) = item { *count as usize } else { 0 };
    let Item::Message(sequence) = items[first] else { unreachable!() };
    let at = order.iter().position(|other| *other == sequence).unwrap();
    let start = at - items[..first].iter().map(lost).sum::<usize>();
    let mut next = start;
    for item in items {
        match item {
            Item::Lost(count) => next += *count as usize,
            Item::Message(sequence) => {
                assert_eq!(order[next], *sequence, "at {next}");
                next += 1;
            }
        }
    }
    start..next
}
