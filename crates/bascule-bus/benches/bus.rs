//! Measures publishing: `cargo bench -p bascule-bus` prints the best wall time and the average processor time.

#![allow(clippy::print_stdout, reason = "the program prints its measurements")]

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bascule_bus::{
    BusEventSink, EmbeddedBus, Envelope, MessageIdGenerator, ReplayLimits, SubscribeOptions, Subscription,
    Timestamp, Topic, TopicPattern, event_envelope, event_topic,
};
use bascule_model::{CorrelationId, Event, EventSink, ToolId};

fn main() {
    let (event, topic) = (completed(), event_topic(&completed()));
    let envelope = Arc::new(envelope(&event));
    measure("clone an event", || event.clone());
    measure("make its envelope", || self::envelope(&event));

    for (case, limits, patterns) in cases() {
        let bus = Arc::new(EmbeddedBus::new(limits));
        let _subscriptions = subscribe(&bus, &patterns);
        measure(&format!("publish, {case}"), || bus.publish(&topic, envelope.clone()));
        let sink = BusEventSink::new(bus, "bridge", MessageIdGenerator::new(1), SystemTime::now);
        measure(&format!("clone and offer an event, {case}"), || sink.offer(event.clone()));
    }

    let topic = Topic::parse(&["a"; 128].join(".")).expect("a topic");
    let hostile = TopicPattern::parse(&format!("{}.b", ["#.a"; 60].join("."))).expect("a pattern");
    measure("match a hostile pattern", || hostile.matches(&topic));
}

fn cases() -> [(&'static str, ReplayLimits, Vec<&'static str>); 5] {
    [
        ("no replay, no subscriber", ReplayLimits::NONE, vec![]),
        (
            "no replay, no matching subscriber",
            ReplayLimits::NONE,
            vec!["tool.#", "provider.mcp.tools.*", "a.b.c"],
        ),
        ("replay, no subscriber", ReplayLimits::default(), vec![]),
        ("replay, one full queue", ReplayLimits::default(), vec!["provider.mcp.#"]),
        ("replay, ten full queues", ReplayLimits::default(), vec!["provider.#.completed"; 10]),
    ]
}

fn subscribe(bus: &EmbeddedBus, patterns: &[&str]) -> Vec<Subscription> {
    let parse = |text: &&str| TopicPattern::parse(text).expect("a pattern");
    patterns.iter().map(|text| bus.subscribe(parse(text), SubscribeOptions::default())).collect()
}

/// An event of typical size: summaries are cut at 256 bytes.
fn completed() -> Event {
    Event::ToolCompleted {
        correlation_id: CorrelationId::from_random(0x0123_4567_89ab_cdef),
        tool: ToolId::parse("everything:get-sum").expect("a name"),
        is_error: false,
        summary: r#"{"content":[{"type":"text","text":"The sum is 3."}]}"#.repeat(5)[..256].to_owned(),
        duration: Duration::from_micros(1234),
        hint: None,
        span: None,
    }
}

fn envelope(event: &Event) -> Envelope {
    event_envelope(event, MessageIdGenerator::new(1).generate(), "bridge", Timestamp::from(SystemTime::now()))
}

/// Runs `work` in 50 rounds of 10,000 iterations.
fn measure<T>(name: &str, mut work: impl FnMut() -> T) {
    const ITERATIONS: u32 = 10_000;
    const ROUNDS: u32 = 50;
    let (mut best, mut processor) = (Duration::MAX, Duration::ZERO);
    for _ in 0..ROUNDS {
        let (started, used) = (Instant::now(), processor_time());
        for _ in 0..ITERATIONS {
            drop(std::hint::black_box(work()));
        }
        processor += processor_time() - used;
        best = best.min(started.elapsed());
    }
    println!("{name:<56} {:>10.1?} {:>10.1?}", best / ITERATIONS, processor / ITERATIONS / ROUNDS);
}

/// Returns the processor time of this thread; zero if the system does not report it.
fn processor_time() -> Duration {
    let scheduled = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanos = scheduled.and_then(|text| text.split(' ').next()?.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}
