//! What publishing costs: `cargo bench -p bascule-bus` prints the best time of all rounds, and the processor time
//! of an average one.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bascule_bus::{
    BusEvents, EmbeddedBus, Envelope, MessageIds, Recall, SubscribeOptions, Subscription, Timestamp, Topic,
    TopicPattern, event_envelope, event_topic,
};
use bascule_model::{CorrelationId, Event, EventSink, ToolId};

fn main() {
    let (event, topic) = (completed(), event_topic(&completed()));
    let envelope = Arc::new(envelope(&event));
    rounds("clone an event", || event.clone());
    rounds("make its envelope", || self::envelope(&event));

    for (what, recall, patterns) in cases() {
        let bus = Arc::new(EmbeddedBus::new(recall));
        let _subscriptions = subscribe(&bus, &patterns);
        rounds(&format!("publish, {what}"), || bus.publish(&topic, envelope.clone()));
        let sink = BusEvents::new(bus, "bridge", MessageIds::new(1), SystemTime::now);
        rounds(&format!("clone and offer an event, {what}"), || sink.offer(event.clone()));
    }

    let topic = Topic::parse(&["a"; 128].join(".")).expect("a topic");
    let hostile = TopicPattern::parse(&format!("{}.b", ["#.a"; 60].join("."))).expect("a pattern");
    rounds("match a hostile pattern", || hostile.matches(&topic));
}

fn cases() -> [(&'static str, Recall, Vec<&'static str>); 5] {
    [
        ("no past, nobody listens", Recall::NOTHING, vec![]),
        ("no past, nobody wants it", Recall::NOTHING, vec!["tool.#", "provider.mcp.tools.*", "a.b.c"]),
        ("a past, nobody listens", Recall::default(), vec![]),
        ("a past, one full queue", Recall::default(), vec!["provider.mcp.#"]),
        ("a past, ten full queues", Recall::default(), vec!["provider.#.completed"; 10]),
    ]
}

fn subscribe(bus: &EmbeddedBus, patterns: &[&str]) -> Vec<Subscription> {
    let parse = |text: &&str| TopicPattern::parse(text).expect("a pattern");
    patterns.iter().map(|text| bus.subscribe(parse(text), SubscribeOptions::default())).collect()
}

/// An event as a call of some length makes it: its summary is cut at 256 bytes.
fn completed() -> Event {
    Event::ToolCompleted {
        correlation_id: CorrelationId::from_random(0x0123_4567_89ab_cdef),
        tool: ToolId::parse("everything:get-sum").expect("a name"),
        is_error: false,
        summary: r#"{"content":[{"type":"text","text":"The sum is 3."}]}"#.repeat(5)[..256].to_owned(),
        duration: Duration::from_micros(1234),
    }
}

fn envelope(event: &Event) -> Envelope {
    event_envelope(event, MessageIds::new(1).next(), "bridge", Timestamp::from(SystemTime::now()))
}

/// Does `work` in 50 rounds of 10,000 times each.
fn rounds<T>(what: &str, mut work: impl FnMut() -> T) {
    const TIMES: u32 = 10_000;
    const ROUNDS: u32 = 50;
    let (mut best, mut processor) = (Duration::MAX, Duration::ZERO);
    for _ in 0..ROUNDS {
        let (started, used) = (Instant::now(), processor_time());
        for _ in 0..TIMES {
            drop(std::hint::black_box(work()));
        }
        processor += processor_time() - used;
        best = best.min(started.elapsed());
    }
    println!("{what:<56} {:>10.1?} {:>10.1?}", best / TIMES, processor / TIMES / ROUNDS);
}

/// How long this thread has run so far; zero where the system does not say.
fn processor_time() -> Duration {
    let scheduled = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanos = scheduled.and_then(|text| text.split(' ').next()?.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}
