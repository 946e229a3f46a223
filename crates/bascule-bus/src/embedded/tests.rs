//! What the bus promises, one subscriber at a time. `tests/crowd.rs` has many at once.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake};

use proptest::prelude::*;
use serde_json::value::RawValue;

use super::*;
use crate::{Headers, MessageId, Timestamp};

/// A message whose body is a number, written so that it takes this many bytes where that is enough.
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
    })
}

fn number(message: &Message) -> String {
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

/// What a message of a body this long weighs.
fn weight(topic: &Topic, length: usize) -> usize {
    size_of::<Message>() + topic.as_str().len() + numbered(0, length).weight()
}

/// What is next, in a word: `3`, `lost 2`, `end`, or `nothing` yet.
fn take(subscription: &mut Subscription) -> String {
    match pin!(subscription.next()).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Some(Delivery::Message(message))) => number(&message),
        Poll::Ready(Some(Delivery::Lost(count))) => format!("lost {count}"),
        Poll::Ready(None) => "end".into(),
        Poll::Pending => "nothing".into(),
    }
}

/// All that is there.
fn drain(subscription: &mut Subscription) -> String {
    let mut words = Vec::new();
    loop {
        match take(subscription) {
            word if word == "nothing" => return words.join(" "),
            word => words.push(word),
        }
        if words.last().is_some_and(|word| word == "end") {
            return words.join(" ");
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
fn a_message_goes_to_everyone_whose_pattern_fits() {
    let bus = EmbeddedBus::new(Recall::default());
    let mut all = bus.subscribe(pattern("#"), options(9, 0));
    let mut some = bus.subscribe(pattern("a.*"), options(9, 0));
    assert_eq!(bus.publish(&topic("a.b"), numbered(1, 0)), 2);
    assert_eq!(bus.publish(&topic("b"), numbered(2, 0)), 1);
    assert_eq!((drain(&mut all), drain(&mut some)), ("1 2".into(), "1".into()));
}

// req: BU-01
#[test]
fn a_slow_subscriber_loses_the_oldest_and_is_told_in_place() {
    let bus = EmbeddedBus::new(Recall::NOTHING);
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
fn a_queue_is_bounded_in_bytes_but_keeps_the_newest() {
    let bus = EmbeddedBus::new(Recall::NOTHING);
    let bytes = 3 * weight(&topic("t"), 1000);
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
fn a_capacity_of_nothing_still_holds_the_newest() {
    let bus = EmbeddedBus::new(Recall::NOTHING);
    let mut slow = bus.subscribe(pattern("#"), options(0, 0));
    publish(&bus, "t", 0..3);
    assert_eq!(drain(&mut slow), "lost 2 2");
}

// req: BU-01
#[test]
fn a_newcomer_may_ask_for_the_recent_past() {
    let bus = EmbeddedBus::new(Recall { messages: 4, bytes: 1 << 20 });
    publish(&bus, "a", 0..3);
    publish(&bus, "b", 3..6);
    let mut replays = [("#", 0), ("#", 2), ("#", 100), ("a", 100), ("b", 2)]
        .map(|(text, replay)| bus.subscribe(pattern(text), options(100, replay)));
    publish(&bus, "a", 6..7);
    assert_eq!(replays.each_mut().map(drain), ["6", "4 5 6", "2 3 4 5 6", "2 6", "4 5"]);
}

#[test]
fn a_replay_that_does_not_fit_the_queue_says_so() {
    let bus = EmbeddedBus::new(Recall::default());
    publish(&bus, "t", 0..5);
    assert_eq!(drain(&mut bus.subscribe(pattern("#"), options(2, 4))), "lost 2 3 4");
}

#[test]
fn the_past_is_bounded_in_bytes_and_never_has_a_gap() {
    let bus = EmbeddedBus::new(Recall { messages: 100, bytes: 2 * weight(&topic("t"), 500) });
    let past = || drain(&mut bus.subscribe(pattern("#"), options(100, 100)));
    for number in 0..4 {
        bus.publish(&topic("t"), numbered(number, 500));
    }
    assert_eq!(past(), "2 3");
    bus.publish(&topic("t"), numbered(4, 10_000));
    assert_eq!(past(), "");
    publish(&bus, "t", 5..6);
    assert_eq!(past(), "5");
}

#[test]
fn whoever_leaves_gets_nothing_and_costs_nothing() {
    let bus = EmbeddedBus::new(Recall::NOTHING);
    let (one, mut other) =
        (bus.subscribe(pattern("t"), options(9, 0)), bus.subscribe(pattern("t"), options(9, 0)));
    drop(one);
    assert_eq!(bus.publish(&topic("t"), numbered(1, 0)), 1);
    assert_eq!(drain(&mut other), "1");
    assert!(bus.wants(&topic("t")) && !bus.wants(&topic("u")));
    drop(other);
    assert!(!bus.wants(&topic("t")));
    assert!(EmbeddedBus::new(Recall::default()).wants(&topic("t")));
}

// req: BU-01
#[test]
fn closing_ends_subscriptions_after_what_is_queued() {
    let bus = EmbeddedBus::new(Recall::default());
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
fn a_dropped_bus_is_closed() {
    let bus = EmbeddedBus::new(Recall::NOTHING);
    let mut one = bus.subscribe(pattern("#"), options(9, 0));
    publish(&bus, "t", 0..1);
    assert!(format!("{bus:?} {one:?}").starts_with("EmbeddedBus { recall"));
    drop(bus);
    assert_eq!(drain(&mut one), "0 end");
}

/// Counts how often it is woken.
#[derive(Default)]
struct Alarm(AtomicUsize);

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

// req: BU-01
#[test]
fn whoever_waits_is_woken_by_a_message_and_by_the_end() {
    let bus = EmbeddedBus::new(Recall::NOTHING);
    let mut one = bus.subscribe(pattern("t"), options(9, 0));
    let alarm = Arc::<Alarm>::default();
    let waker = Waker::from(alarm.clone());
    let mut is_waiting = || pin!(one.next()).poll(&mut Context::from_waker(&waker)).is_pending();
    let woken = || alarm.0.load(Ordering::Relaxed);

    assert!(is_waiting());
    publish(&bus, "u", 0..1);
    assert_eq!(woken(), 0, "it is not for this one");
    publish(&bus, "t", 1..3);
    assert_eq!(woken(), 1, "once is enough for two");
    assert!(!is_waiting() && !is_waiting() && is_waiting());
    bus.close();
    assert_eq!(woken(), 2);
}

#[test]
fn a_wait_that_is_dropped_loses_nothing() {
    let bus = EmbeddedBus::new(Recall::NOTHING);
    let mut one = bus.subscribe(pattern("#"), options(9, 0));
    let given_up = pin!(one.next()).poll(&mut Context::from_waker(Waker::noop())).is_pending();
    publish(&bus, "t", 0..1);
    assert!(given_up);
    assert_eq!(drain(&mut one), "0");
}

/// What may happen to a bus with one subscriber.
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

/// The same promises, kept in the plainest way: everything is remembered, and limits are applied by counting.
#[derive(Default)]
struct Plain {
    past: Vec<(u64, usize)>,
    queue: VecDeque<(u64, usize)>,
    lost: u64,
    limits: (usize, usize),
}

impl Plain {
    fn push(&mut self, message: (u64, usize)) {
        self.queue.push_back(message);
        let fits = |queue: &VecDeque<(u64, usize)>| {
            queue.len() <= self.limits.0
                && queue.iter().map(|(_, weight)| weight).sum::<usize>() <= self.limits.1
        };
        while self.queue.len() > 1 && !fits(&self.queue) {
            self.queue.pop_front();
            self.lost += 1;
        }
    }

    /// How many of the last messages fit the past's limits together.
    fn remembered(&self, recall: Recall) -> usize {
        (0..=self.past.len().min(recall.messages))
            .rev()
            .find(|count| {
                let last = &self.past[self.past.len() - count..];
                last.iter().map(|(_, weight)| weight).sum::<usize>() <= recall.bytes
            })
            .unwrap_or(0)
    }

    fn subscribe(&mut self, capacity: usize, bytes: usize, replay: usize, recall: Recall) {
        (self.queue, self.lost, self.limits) = (VecDeque::new(), 0, (capacity, bytes));
        let count = self.remembered(recall).min(replay);
        for at in self.past.len() - count..self.past.len() {
            self.push(self.past[at]);
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
    fn the_bus_agrees_with_the_plainest_one(steps in steps(), messages in 0usize..6, kilobytes in 0usize..8) {
        let recall = Recall { messages, bytes: kilobytes << 10 };
        let (bus, topic) = (EmbeddedBus::new(recall), topic("t"));
        let mut real = bus.subscribe(pattern("#"), options(3, 0));
        let mut plain = Plain { limits: (3, usize::MAX), ..Plain::default() };
        for step in steps {
            match step {
                Step::Publish { length } => {
                    let message = (plain.past.len() as u64, weight(&topic, length));
                    bus.publish(&topic, numbered(message.0, length));
                    plain.past.push(message);
                    plain.push(message);
                }
                Step::Take => prop_assert_eq!(take(&mut real), plain.take()),
                Step::Subscribe { capacity, kilobytes, replay } => {
                    let bytes = kilobytes << 10;
                    real = bus.subscribe(pattern("#"), SubscribeOptions { capacity, bytes, replay });
                    plain.subscribe(capacity, bytes, replay, recall);
                }
            }
        }
    }
}
