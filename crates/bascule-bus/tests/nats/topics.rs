//! Topics, headers and agents that are not ours.

use bascule_bus::{ContentTrust, Envelope};
use bascule_testkit::NatsServer;
use futures_util::StreamExt;

use crate::support::{
    agent, connect, id_of, message, next, next_message, publish, raw_client, subscribe, topic,
};

// req: BU-02
#[tokio::test]
async fn plain_publish_of_a_foreign_agent_reaches_the_queue() {
    let server = NatsServer::start();
    let mut queue = connect(&server).await.requests(&agent("a"), 4).await.unwrap();
    let foreign = raw_client(&server).await;
    for (subject, id) in [("tool.invoke.mcp.a", "m-1"), ("tool.invoke.mcp", "m-2")] {
        foreign.publish(subject, message(id, "a").to_bytes().into()).await.unwrap();
    }
    let mut ids = [id_of(&next(&mut queue).await.message), id_of(&next(&mut queue).await.message)];
    ids.sort();
    assert_eq!(ids, ["m-1", "m-2"]);
}

// req: BU-02, BU-06
#[tokio::test]
async fn agents_share_a_topic_and_see_only_their_own_requests() {
    let server = NatsServer::start();
    let bus = connect(&server).await;
    let mut a = bus.requests(&agent("a"), 8).await.unwrap();
    let mut b = connect(&server).await.requests(&agent("b"), 8).await.unwrap();
    for number in 0..6 {
        publish(&bus, "tool.invoke.mcp", &format!("m-{number}"), ["a", "b", "c"][number % 3]).await;
    }
    let ids = [next(&mut a).await, next(&mut a).await, next(&mut b).await, next(&mut b).await];
    assert_eq!(ids.map(|delivery| id_of(&delivery.message)), ["m-0", "m-3", "m-1", "m-4"]);
    // Nobody has served the third agent so far; its requests wait.
    let mut c = bus.requests(&agent("c"), 8).await.unwrap();
    assert_eq!([next(&mut c).await, next(&mut c).await].map(|d| id_of(&d.message)), ["m-2", "m-5"]);
}

// req: BU-06
#[tokio::test]
async fn request_that_came_before_the_first_bridge_is_kept() {
    let server = NatsServer::start();
    publish(&connect(&server).await, "tool.invoke.mcp.a", "m-1", "a").await;
    let mut queue = connect(&server).await.requests(&agent("a"), 1).await.unwrap();
    assert_eq!(id_of(&next(&mut queue).await.message), "m-1");
}

// req: BU-09
#[tokio::test]
async fn unreadable_requests_are_delivered_with_the_reason() {
    let server = NatsServer::start();
    let bus = connect(&server).await;
    let mut queue = bus.requests(&agent("a"), 8).await.unwrap();
    let foreign = raw_client(&server).await;
    let version = br#"{"version":2}"#.to_vec();
    let check = async |queue: &mut bascule_bus::RequestQueue, topic: &str, payload: Vec<u8>, reason: &str| {
        foreign.publish(topic.to_owned(), payload.clone().into()).await.unwrap();
        let delivery = next(queue).await;
        let error = delivery.message.content.as_ref().unwrap_err();
        assert_eq!((delivery.message.topic.as_str(), &error.payload[..]), (topic, &payload[..]));
        assert!(error.reason.contains(reason), "{}", error.reason);
        delivery.acknowledge().await.unwrap();
    };
    check(&mut queue, "tool.invoke.mcp.a", b"\xff\x00".to_vec(), "not an envelope").await;
    check(&mut queue, "tool.invoke.mcp.a", version.clone(), "version 2").await;
    check(&mut queue, "tool.invoke.mcp", version, "version 2").await;
    check(&mut queue, "tool.invoke.mcp", vec![], "not an envelope").await;
    check(&mut queue, "tool.invoke.mcp", message("m-1", "no agent").to_bytes(), "`source` names no agent")
        .await;
}

// req: BU-09
#[tokio::test]
async fn subscriber_gets_unreadable_bytes_and_ignores_foreign_subjects() {
    let server = NatsServer::start();
    let mut all = subscribe(&connect(&server).await, "#").await;
    let foreign = raw_client(&server).await;
    foreign.publish("$not.a.topic", "x".into()).await.unwrap();
    foreign.publish("tool.result.a", b"\xff".to_vec().into()).await.unwrap();
    let received = next_message(&mut all).await;
    assert_eq!(received.topic.as_str(), "tool.result.a");
    assert_eq!(&received.content.unwrap_err().payload[..], b"\xff");
}

// req: BU-03, BU-04
#[tokio::test]
async fn headers_are_also_the_brokers_own() {
    let server = NatsServer::start();
    let bus = connect(&server).await;
    let mut foreign = raw_client(&server).await.subscribe("tool.>").await.unwrap();
    let mut envelope =
        Envelope { headers: ContentTrust::ToolOutput.to_headers(), ..message("m-1", "bridge") };
    for (name, value) in [
        ("traceparent", "00-1-2-01"),
        // A message must not command the server.
        ("Nats-Msg-Id", "forged"),
        ("nats-rollup", "all"),
        ("with space", "x"),
        ("lines", "1\r\nNats-Rollup: all"),
    ] {
        envelope.headers.insert(name.into(), value.into());
    }
    envelope.headers.insert("long".into(), "x".repeat(10_000).into());
    // The subscription of the foreign client may be later than this connection: the answer shows that it is not.
    loop {
        bus.publish(&topic("tool.result.a"), &envelope).await.unwrap();
        let received = tokio::time::timeout(std::time::Duration::from_millis(200), foreign.next()).await;
        let Ok(Some(received)) = received else { continue };
        let headers = received.headers.unwrap();
        let mut names: Vec<_> = headers.iter().map(|(name, _)| name.to_string()).collect();
        names.sort();
        assert_eq!(names, ["rb-content-trust", "traceparent"]);
        assert_eq!(headers.get("rb-content-trust").unwrap().as_str(), "tool-output");
        assert_eq!(Envelope::parse(&received.payload).unwrap().headers.len(), 7);
        return;
    }
}
