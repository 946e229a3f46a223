//! Bounds: queues, messages, and streams that an operator has made.

use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy};
use bascule_bus::{Bus, BusError};
use bascule_testkit::{NatsServer, NatsSetting};
use serde_json::value::RawValue;

use crate::support::{agent, connect, id_of, jetstream, message, next, options, publish, raw_client, topic};

fn request_stream(retention: RetentionPolicy) -> Config {
    Config {
        name: "BASCULE_REQUESTS".into(),
        subjects: vec!["tool.invoke.mcp".into(), "tool.invoke.mcp.>".into()],
        retention,
        ..Config::default()
    }
}

// req: BU-09
#[tokio::test]
async fn full_stream_refuses_requests_and_keeps_the_others() {
    let server = NatsServer::start();
    let config =
        Config { max_messages: 2, discard: DiscardPolicy::New, ..request_stream(RetentionPolicy::WorkQueue) };
    jetstream(&raw_client(&server).await).create_stream(config).await.unwrap();
    let bus = connect(&server).await;
    publish(&bus, "tool.invoke.mcp.a", "m-1", "a").await;
    publish(&bus, "tool.invoke.mcp.a", "m-2", "a").await;
    let error = bus.publish(&topic("tool.invoke.mcp.a"), &message("m-3", "a")).await.unwrap_err();
    assert!(matches!(error, BusError::Full) && error.is_retryable(), "{error}");
    let mut queue = bus.requests(&agent("a"), 2).await.unwrap();
    for expected in ["m-1", "m-2"] {
        let delivery = next(&mut queue).await;
        assert_eq!(id_of(&delivery.message), expected);
        delivery.acknowledge().await.unwrap();
    }
    // There is room again as soon as the server has handled the acknowledgements.
    while bus.publish(&topic("tool.invoke.mcp.a"), &message("m-4", "a")).await.is_err() {}
    assert_eq!(id_of(&next(&mut queue).await.message), "m-4");
}

// req: BU-06
#[tokio::test]
async fn existing_stream_is_used_as_it_is() {
    for retention in [RetentionPolicy::WorkQueue, RetentionPolicy::Interest, RetentionPolicy::Limits] {
        let server = NatsServer::start();
        let context = jetstream(&raw_client(&server).await);
        context.create_stream(request_stream(retention)).await.unwrap();
        let bus = connect(&server).await;
        for name in ["a", "b"] {
            let mut queue = bus.requests(&agent(name), 2).await.unwrap();
            publish(&bus, &format!("tool.invoke.mcp.{name}"), "m-1", name).await;
            let delivery = next(&mut queue).await;
            assert_eq!(id_of(&delivery.message), "m-1");
            delivery.acknowledge().await.unwrap();
        }
        let info = context.get_stream("BASCULE_REQUESTS").await.unwrap().get_info().await.unwrap();
        assert_eq!((info.config.retention, info.config.max_messages), (retention, -1));
    }
}

// req: BU-09
#[tokio::test]
async fn streams_are_bounded() {
    let server = NatsServer::start();
    let bus = connect(&server).await;
    let _queue = bus.requests(&agent("a"), 1).await.unwrap();
    publish(&bus, "tool.dead.mcp", "m-1", "a").await;
    publish(&bus, "provider.mcp.tool.completed", "m-2", "a").await;
    bus.put_result("r", b"x").await.unwrap();
    let context = jetstream(&raw_client(&server).await);
    for name in
        ["BASCULE_REQUESTS", "BASCULE_DEAD", "BASCULE_EVENTS", "KV_BASCULE_CLAIMS", "OBJ_BASCULE_RESULTS"]
    {
        let config = context.get_stream(name).await.unwrap().get_info().await.unwrap().config;
        assert!(config.max_bytes > 0 && !config.max_age.is_zero(), "{name}: {config:?}");
    }
}

// req: BU-01
#[tokio::test]
async fn small_server_gets_small_streams() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().display();
    let lines = format!("jetstream: {{ store_dir: \"{store}\", max_file_store: 200M }}");
    let server = NatsServer::start_with([NatsSetting::Lines(lines)]);
    let bus = connect(&server).await;
    let mut queue = bus.requests(&agent("a"), 1).await.unwrap();
    publish(&bus, "tool.invoke.mcp.a", "m-1", "a").await;
    assert_eq!(id_of(&next(&mut queue).await.message), "m-1");
}

// req: BU-01
#[tokio::test]
async fn server_without_jetstream_is_refused_with_the_reason() {
    let server = NatsServer::start_with([NatsSetting::Lines("jetstream: disabled".into())]);
    let bus = connect(&server).await;
    let error = bus.publish(&topic("tool.invoke.mcp.a"), &message("m-1", "a")).await.unwrap_err();
    assert!(error.to_string().to_lowercase().contains("jetstream"), "{error}");
    assert!(bus.requests(&agent("a"), 1).await.is_err());
    // Core messages need no JetStream.
    publish(&bus, "tool.result.a", "m-2", "a").await;
    publish(&bus, "provider.mcp.tool.completed", "m-3", "a").await;
}

// req: BU-09
#[tokio::test]
async fn too_long_message_is_refused() {
    let server = NatsServer::start();
    let bus = connect(&server).await;
    let mut long = message("m-1", "a");
    long.body = RawValue::from_string(format!("\"{}\"", "x".repeat(bus.max_message_bytes()))).unwrap();
    for name in ["tool.invoke.mcp.a", "tool.result.a", "tool.dead.mcp"] {
        let error = bus.publish(&topic(name), &long).await.unwrap_err();
        assert!(matches!(error, BusError::TooLarge { .. }), "{error}");
    }
    // A message of exactly the limit arrives, with its headers.
    let spare = long.to_bytes().len() - bus.max_message_bytes();
    long.body =
        RawValue::from_string(format!("\"{}\"", "x".repeat(bus.max_message_bytes() - spare))).unwrap();
    assert_eq!(long.to_bytes().len(), bus.max_message_bytes());
    bus.publish(&topic("tool.invoke.mcp.a"), &long).await.unwrap();
    let mut queue = bus.requests(&agent("a"), 1).await.unwrap();
    assert_eq!(id_of(&next(&mut queue).await.message), "m-1");
    let mut limited = options(&server);
    limited.max_message_bytes = Some(1000);
    assert_eq!(Bus::connect(&limited).await.unwrap().max_message_bytes(), 1000);
}
