//! Tests of the bus with one thread. `tests/concurrency.rs` has many.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake};

use proptest::prelude::*;
use serde_json::value::RawValue;

use super::*;
use crate::{Headers, MessageId, Timestamp};

/// Makes a message whose body is a number, padded to `length` bytes.
fn numbered(number: u64, length: usize) -> Arc<Envelope> {
    Arc::new(Envelope {
        message_id: MessageId::parse("m").unwrap(),
        kind: "number".into(),
        correlation_id: None,
        reply_to: None,
        source: "test".into(),
        destination: None,
        timestamp: Timestamp::from_unix_millis(0),
        headers: Headers::new(),
        body: RawValue::from_string(format!("[{number:>length$}]")).unwrap(),
        unknown: Default::default(),
    })
}

fn number(message: &BusMessage) -> String {
    message.envelope.body.get().replace(['[', ']', ' '], "")
}

fn topic(text: &str) -> Topic {
    Topic::parse(text).unwrap()
}

fn pattern(text: &str) -> TopicPattern {
    TopicPattern::parse(text).unwrap()
}

fn options(capacity: usize, replay: usize) -> SubscribeOptions {
    SubscribeOptions { capacity, replay, ..SubscribeOptions::default() }
}

/// Returns the size of a message with a body of this length.
fn message_size(topic: &Topic, length: usize) -> usize {
    size_of::<BusMessage>() + topic.as_str().len() + numbered(0, length).memory_size()
}

/// Formats the next item: `3`, `lost 2`, `end`, or `nothing` if the subscription would wait.
fn take(subscription: &mut Subscription) -> String {
    match pin!(subscription.next()).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Some(SubscriptionItem::Message(message))) => number(&message),
        Poll::Ready(Some(SubscriptionItem::Lost(count))) => format!("lost {count}"),
        Poll::Ready(None) => "end".into(),
        Poll::Pending => "nothing".into(),
    }
}

/// Formats all items up to the end or to the first wait.
fn drain(subscription: &mut Subscription) -> String {
    let mut items = Vec::new();
    loop {
        match take(subscription) {
            item if item == "nothing" => return items.join(" "),
            item => items.push(item),
        }
        if items.last().is_some_and(|item| item == "end") {
            return items.join(" ");
        }
    }
}

fn publish(bus: &EmbeddedBus, topic: &str, numbers: std::ops::Range<u64>) {
    for number in numbers {
        bus.publish(&Topic::parse(topic).unwrap(), numbered(number, 0));
    }
}

// req: BU-01
#[test]
fn delivers_to_all_matching_subscribers() {
    let bus = EmbeddedBus::new(ReplayLimits::default());
    let mut all = bus.subscribe(pattern("#"), options(9, 0));
    let mut some = bus.subscribe(pattern("a.*"), options(9, 0));
    assert_eq!(bus.publish(&topic("a.b"), numbered(1, 0)), 2);
    assert_eq!(bus.publish(&topic("b"), numbered(2, 0)), 1);
    assert_eq!((drain(&mut all), drain(&mut some)), ("1 2".into(), "1".into()));
}

// req: BU-01
#[test]
fn slow_subscriber_loses_oldest_and_learns_the_count() {
    let bus = EmbeddedBus::new(ReplayLimits::NONE);
    let mut slow = bus.subscribe(pattern("#"), options(2, 0));
    publish(&bus, "t", 0..5);
    assert_eq!(drain(&mut slow), "lost 3 3 4");
    publish(&bus, "t", 5..7);
    assert_eq!(drain(&mut slow), "5 6");
    publish(&bus, "t", 7..10);
    bus.close();
    assert_eq!(drain(&mut slow), "lost 1 8 9 end");
}

// req: BU-01
#[test]
fn queue_is_bounded_in_bytes_but_keeps_newest() {
    let bus = EmbeddedBus::new(ReplayLimits::NONE);
    let bytes = 3 * message_size(&topic("t"), 1000);
    let mut slow = bus.subscribe(pattern("#"), SubscribeOptions { bytes, ..options(100, 0) });
    for number in 0..5 {
        bus.publish(&topic("t"), numbered(number, 1000));
    }
    assert_eq!(drain(&mut slow), "lost 2 2 3 4");
    bus.publish(&topic("t"), numbered(5, 0));
    bus.publish(&topic("t"), numbered(6, 10 * bytes));
    assert_eq!(drain(&mut slow), "lost 1 6");
    assert_eq!(drain(&mut bus.subscribe(pattern("#"), options(0, 0))), "");
}

#[test]
fn queue_of_zero_capacity_keeps_newest() {
    let bus = EmbeddedBus::new(ReplayLimits::NONE);
    let mut slow = bus.subscribe(pattern("#"), options(0, 0));
    publish(&bus, "t", 0..3);
    assert_eq!(drain(&mut slow), "lost 2 2");
}

// req: BU-01
#[test]
fn replays_recent_messages_to_new_subscriber() {
    let bus = EmbeddedBus::new(ReplayLimits { messages: 4, bytes: 1 << 20 });
    publish(&bus, "a", 0..3);
    publish(&bus, "b", 3..6);
    let mut replays = [("#", 0), ("#", 2), ("#", 100), ("a", 100), ("b", 2)]
        .map(|(text, replay)| bus.subscribe(pattern(text), options(100, replay)));
    publish(&bus, "a", 6..7);
    assert_eq!(replays.each_mut().map(drain), ["6", "4 5 6", "2 3 4 5 6", "2 6", "4 5"]);
}

#[test]
fn replay_larger_than_queue_reports_loss() {
    let bus = EmbeddedBus::new(ReplayLimits::default());
    publish(&bus, "t", 0..5);
    assert_eq!(drain(&mut bus.subscribe(pattern("#"), options(2, 4))), "lost 2 3 4");
}

#[test]
fn replay_buffer_is_bounded_in_bytes_and_has_no_gap() {
    let bus = EmbeddedBus::new(ReplayLimits { messages: 100, bytes: 2 * message_size(&topic("t"), 500) });
    let replayed = || drain(&mut bus.subscribe(pattern("#"), options(100, 100)));
    for number in 0..4 {
        bus.publish(&topic("t"), numbered(number, 500));
    }
    assert_eq!(replayed(), "2 3");
    bus.publish(&topic("t"), numbered(4, 10_000));
    assert_eq!(replayed(), "");
    publish(&bus, "t", 5..6);
    assert_eq!(replayed(), "5");
}

#[test]
fn dropped_subscription_is_removed() {
    let bus = EmbeddedBus::new(ReplayLimits::NONE);
    let (one, mut other) =
        (bus.subscribe(pattern("t"), options(9, 0)), bus.subscribe(pattern("t"), options(9, 0)));
    drop(one);
    assert_eq!(bus.publish(&topic("t"), numbered(1, 0)), 1);
    assert_eq!(drain(&mut other), "1");
    assert!(bus.has_receiver(&topic("t")) && !bus.has_receiver(&topic("u")));
    drop(other);
    assert!(!bus.has_receiver(&topic("t")));
    assert!(EmbeddedBus::new(ReplayLimits::default()).has_receiver(&topic("t")));
}

// req: BU-01
#[test]
fn close_ends_subscriptions_after_queued_messages() {
    let bus = EmbeddedBus::new(ReplayLimits::default());
    let mut one = bus.subscribe(pattern("#"), options(9, 0));
    publish(&bus, "t", 0..2);
    bus.close();
    assert_eq!(bus.publish(&topic("t"), numbered(2, 0)), 0);
    assert_eq!((drain(&mut one), drain(&mut one)), ("0 1 end".into(), "end".into()));
    let mut late = bus.subscribe(pattern("#"), options(9, 1));
    assert_eq!(drain(&mut late), "1 end");
    drop(bus);
    drop((one, late));
}

#[test]
fn dropping_the_bus_closes_it() {
    let bus = EmbeddedBus::new(ReplayLimits::NONE);
    let mut one = bus.subscribe(pattern("#"), options(9, 0));
    publish(&bus, "t", 0..1);
    assert!(format!("{bus:?} {one:?}").starts_with("EmbeddedBus { replay"));
    drop(bus);
    assert_eq!(drain(&mut one), "0 end");
}

/// Counts wake-ups.
#[derive(Default)]
struct WakeCounter(AtomicUsize);

impl Wake for WakeCounter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

// req: BU-01
#[test]
fn wakes_reader_on_message_and_on_close() {
    let bus = EmbeddedBus::new(ReplayLimits::NONE);
    let mut one = bus.subscribe(pattern("t"), options(9, 0));
    let counter = Arc::<WakeCounter>::default();
    let waker = Waker::from(counter.clone());
    let mut is_waiting = || pin!(one.next()).poll(&mut Context::from_waker(&waker)).is_pending();
    let woken = || counter.0.load(Ordering::Relaxed);

    assert!(is_waiting());
    publish(&bus, "u", 0..1);
    assert_eq!(woken(), 0, "the message does not match");
    publish(&bus, "t", 1..3);
    assert_eq!(woken(), 1, "one wake-up for two messages");
    assert!(!is_waiting() && !is_waiting() && is_waiting());
    bus.close();
    assert_eq!(woken(), 2);
}

#[test]
fn dropped_wait_loses_nothing() {
    let bus = EmbeddedBus::new(ReplayLimits::NONE);
    let mut one = bus.subscribe(pattern("#"), options(9, 0));
    let was_pending = pin!(one.next()).poll(&mut Context::from_waker(Waker::noop())).is_pending();
    publish(&bus, "t", 0..1);
    assert!(was_pending);
    assert_eq!(drain(&mut one), "0");
}

/// An operation on a bus with one subscriber.
#[derive(Debug, Clone)]
enum Step {
    Publish { length: usize },
    Take,
    Subscribe { capacity: usize, kilobytes: usize, replay: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (2usize..3000).prop_map(|length| Step::Publish { length }),
        3 => Just(Step::Take),
        1 => (0usize..6, 0usize..8, 0usize..8)
            .prop_map(|(capacity, kilobytes, replay)| Step::Subscribe { capacity, kilobytes, replay }),
    ];
    prop::collection::vec(step, 0..60)
}

/// The reference model: it keeps all messages and applies the limits by counting.
#[derive(Default)]
struct ReferenceBus {
    published: Vec<(u64, usize)>,
    queue: VecDeque<(u64, usize)>,
    lost: u64,
    limits: (usize, usize),
}

impl ReferenceBus {
    fn push(&mut self, message: (u64, usize)) {
        self.queue.push_back(message);
        let fits = |queue: &VecDeque<(u64, usize)>| {
            queue.len() <= self.limits.0 && queue.iter().map(|(_, size)| size).sum::<usize>() <= self.limits.1
        };
        while self.queue.len() > 1 && !fits(&self.queue) {
            self.queue.pop_front();
            self.lost += 1;
        }
    }

    /// Returns the number of last messages that fit the replay limits together.
    fn replayable(&self, limits: ReplayLimits) -> usize {
        (0..=self.published.len().min(limits.messages))
            .rev()
            .find(|count| {
                let last = &self.published[self.published.len() - count..];
                last.iter().map(|(_, size)| size).sum::<usize>() <= limits.bytes
            })
            .unwrap_or(0)
    }

    fn subscribe(&mut self, capacity: usize, bytes: usize, replay: usize, limits: ReplayLimits) {
        (self.queue, self.lost, self.limits) = (VecDeque::new(), 0, (capacity, bytes));
        let count = self.replayable(limits).min(replay);
        for at in self.published.len() - count..self.published.len() {
            self.push(self.published[at]);
        }
    }

    fn take(&mut self) -> String {
        match std::mem::take(&mut self.lost) {
            0 => self.queue.pop_front().map_or("nothing".into(), |(number, _)| number.to_string()),
            lost => format!("lost {lost}"),
        }
    }
}

proptest! {
    // req: BU-01
    #[test]
    fn behaves_like_the_reference_model(steps in steps(), messages in 0usize..6, kilobytes in 0usize..8) {
        let limits = ReplayLimits { messages, bytes: kilobytes << 10 };
        let (bus, topic) = (EmbeddedBus::new(limits), topic("t"));
        let mut real = bus.subscribe(pattern("#"), options(3, 0));
        let mut reference = ReferenceBus { limits: (3, usize::MAX), ..ReferenceBus::default() };
        for step in steps {
            match step {
                Step::Publish { length } => {
                    let message = (reference.published.len() as u64, message_size(&topic, length));
                    bus.publish(&topic, numbered(message.0, length));
                    reference.published.push(message);
                    reference.push(message);
                }
                Step::Take => prop_assert_eq!(take(&mut real), reference.take()),
                Step::Subscribe { capacity, kilobytes, replay } => {
                    let bytes = kilobytes << 10;
                    real = bus.subscribe(pattern("#"), SubscribeOptions { capacity, bytes, replay });
                    reference.subscribe(capacity, bytes, replay, limits);
                }
            }
        }
    }
}
