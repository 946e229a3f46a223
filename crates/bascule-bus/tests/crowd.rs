//! Many publish at once while subscribers come, go and lag: everyone sees a stretch of one and the same order,
//! and what is missing from it was told, to the message.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;

use bascule_bus::{
    Delivery, EmbeddedBus, Envelope, Headers, MessageIds, Recall, SubscribeOptions, Subscription, Timestamp,
    Topic, TopicPattern,
};
use serde_json::value::RawValue;

const PUBLISHERS: usize = 4;
const EACH: usize = 5_000;
const ALL: usize = PUBLISHERS * EACH;

/// Which publisher, and its how-manieth message.
type Mark = (usize, usize);

/// What one subscriber heard, in order.
#[derive(Debug, PartialEq)]
enum Heard {
    Message(Mark),
    Lost(u64),
}

// req: BU-01
#[test]
fn nothing_is_lost_untold_repeated_or_out_of_order() {
    // On a busy machine it may be that nobody lags, or that hardly anybody passes by.
    assert!((0..50).any(|_| meet()), "nobody lagged, or nobody came and went, so little was shown");
}

/// Has them meet, and checks what they heard. Whether some lagged, and some came and went.
fn meet() -> bool {
    let bus = EmbeddedBus::new(Recall { messages: 50, bytes: 1 << 20 });
    let publishing = AtomicUsize::new(PUBLISHERS);
    let witness = subscribe(&bus, ALL, 0);
    let lagging = [1, 3, 64].map(|capacity| subscribe(&bus, capacity, 0));
    let (order, lagged, passing) = thread::scope(|scope| {
        let witness = scope.spawn(|| listen(witness, false));
        let lagging = lagging.map(|lagging| scope.spawn(|| listen(lagging, true)));
        let passing = [0, 7, 50].map(|replay| {
            let (bus, publishing) = (&bus, &publishing);
            scope.spawn(move || pass_by(bus, publishing, replay))
        });
        for publisher in 0..PUBLISHERS {
            let (bus, publishing) = (&bus, &publishing);
            scope.spawn(move || publish(bus, publisher, publishing));
        }
        let passing = passing.map(|visitor| visitor.join().unwrap());
        bus.close();
        (witness.join().unwrap(), lagging.map(|lagging| lagging.join().unwrap()), passing)
    });

    let order = everything_in_order(order);
    for heard in &lagged {
        assert_eq!(stretch(&order, heard), 0..ALL, "who stays all the time accounts for everything");
    }
    for heard in passing.iter().flatten() {
        stretch(&order, heard);
    }
    let lost = |heard: &Vec<Heard>| heard.iter().any(|heard| matches!(heard, Heard::Lost(_)));
    lost(&lagged[0]) && passing.iter().flatten().filter(|heard| !heard.is_empty()).count() > 10
}

fn subscribe(bus: &EmbeddedBus, capacity: usize, replay: usize) -> Subscription {
    let options = SubscribeOptions { capacity, bytes: usize::MAX, replay };
    bus.subscribe(TopicPattern::parse("crowd.*").unwrap(), options)
}

fn publish(bus: &EmbeddedBus, publisher: usize, publishing: &AtomicUsize) {
    let topic = Topic::parse(&format!("crowd.p{publisher}")).unwrap();
    let ids = MessageIds::new(publisher as u64);
    for count in 0..EACH {
        let envelope = Envelope {
            message_id: ids.next(),
            kind: "mark".into(),
            correlation_id: None,
            reply_to: None,
            source: "crowd".into(),
            destination: None,
            timestamp: Timestamp::from_unix_millis(0),
            headers: Headers::new(),
            body: RawValue::from_string(format!("[{publisher},{count}]")).unwrap(),
        };
        bus.publish(&topic, Arc::new(envelope));
        // On few cores a publisher would else be done before anyone has listened.
        if count % 16 == 0 {
            thread::yield_now();
        }
    }
    publishing.fetch_sub(1, Ordering::Release);
}

/// Comes and goes for as long as there is something to hear.
fn pass_by(bus: &EmbeddedBus, publishing: &AtomicUsize, replay: usize) -> Vec<Vec<Heard>> {
    let mut visits = Vec::new();
    while publishing.load(Ordering::Acquire) > 0 {
        let capacity = [4, 100][visits.len() % 2];
        let visit = subscribe(bus, capacity, replay);
        visits.push(listen_a_little(visit));
    }
    visits
}

/// Polls a few times and goes, perhaps leaving a waker behind: that must do no harm either.
fn listen_a_little(mut subscription: Subscription) -> Vec<Heard> {
    let mut heard = Vec::new();
    for _ in 0..40 {
        match pin!(subscription.next()).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Some(delivery)) => heard.push(note(delivery)),
            Poll::Ready(None) => break,
            Poll::Pending => thread::yield_now(),
        }
    }
    heard
}

/// Listens to the end. Who lags lets others run after every message.
fn listen(mut subscription: Subscription, lags: bool) -> Vec<Heard> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut heard = Vec::new();
    runtime.block_on(async {
        while let Some(delivery) = subscription.next().await {
            heard.push(note(delivery));
            if lags {
                thread::yield_now();
            }
        }
    });
    heard
}

fn note(delivery: Delivery) -> Heard {
    match delivery {
        Delivery::Lost(count) => Heard::Lost(count),
        Delivery::Message(message) => {
            let mark: Mark = serde_json::from_str(message.envelope.body.get()).unwrap();
            assert_eq!(message.topic.as_str(), format!("crowd.p{}", mark.0));
            Heard::Message(mark)
        }
    }
}

/// The witness had room for all, so it heard all: each publisher's messages in that publisher's order.
fn everything_in_order(heard: Vec<Heard>) -> Vec<Mark> {
    let mark = |heard| match heard {
        Heard::Message(mark) => mark,
        Heard::Lost(count) => panic!("the witness lost {count}"),
    };
    let order: Vec<Mark> = heard.into_iter().map(mark).collect();
    for publisher in 0..PUBLISHERS {
        let own = order.iter().filter(|mark| mark.0 == publisher).map(|mark| mark.1);
        assert!(own.eq(0..EACH), "publisher {publisher}");
    }
    order
}

/// Which stretch of the order a subscriber's story covers; each loss skips exactly as many as it says.
fn stretch(order: &[Mark], heard: &[Heard]) -> std::ops::Range<usize> {
    let Some(first) = heard.iter().position(|heard| matches!(heard, Heard::Message(_))) else { return 0..0 };
    let before = |heard: &Heard| if let Heard::Lost(count) = heard { *count as usize } else { 0 };
    let Heard::Message(mark) = heard[first] else { unreachable!() };
    let at = order.iter().position(|other| *other == mark).unwrap();
    let start = at - heard[..first].iter().map(before).sum::<usize>();
    let mut next = start;
    for heard in heard {
        match heard {
            Heard::Lost(count) => next += *count as usize,
            Heard::Message(mark) => {
                assert_eq!(order[next], *mark, "at {next}");
                next += 1;
            }
        }
    }
    start..next
}
