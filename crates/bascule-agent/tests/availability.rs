//! The handler of availability on the embedded bus.

#![allow(clippy::unwrap_used, reason = "test helpers may panic")]

mod support;

use std::time::Duration;

use bascule_agent::{Bus, ContentTrust, McpToolsAvailableHandler};
use bascule_bus::McpMetadataRefreshRequest;
use bascule_model::{Health, ServerName};
use support::{agent, bus, envelope, next_message, publish, subscribe};

const TOPIC: &str = "tool.meta.mcp.research";

async fn announce(bus: &Bus, agent: &str, tools: &str) {
    let body =
        format!(r#"{{"agent":"{agent}","tools":[{tools}],"servers":[{{"name":"s","health":"degraded"}}]}}"#);
    publish(bus, TOPIC, &envelope("McpToolsAvailable", &body)).await;
}

// req: BU-05
// req: BU-07
#[tokio::test(start_paused = true)]
async fn asks_for_the_tools_and_follows_their_changes() {
    let bus = bus();
    let mut refreshes = subscribe(&bus, "tool.meta.mcp.refresh").await;
    let handler = McpToolsAvailableHandler::connect(&bus, &agent()).await.unwrap();
    let request = next_message(&mut refreshes).await;
    assert_eq!((&*request.kind, &*request.source), ("McpMetadataRefreshRequest", "research"));
    assert_eq!(ContentTrust::from_headers(&request.headers), Some(ContentTrust::ToolRequest));
    let body: McpMetadataRefreshRequest = serde_json::from_str(request.body.get()).unwrap();
    assert_eq!((body.agent, body.server), (Some(agent()), None));

    let registry = handler.registry().clone();
    assert!(!registry.is_ready() && registry.get("s:a").is_none());
    let mut changes = registry.watch();
    announce(&bus, "research", r#"{"id":"s:a"},{"id":"s:b"}"#).await;
    assert_eq!(changes.next().await.unwrap().added.len(), 2);
    let tools = handler.wait_until_ready(Duration::from_secs(1)).await.unwrap();
    assert_eq!((tools.len(), tools.health("s"), tools.health("t")), (2, Some(Health::Degraded), None));
    announce(&bus, "research", r#"{"id":"s:b","description":"new"}"#).await;
    let change = changes.next().await.unwrap();
    assert_eq!((change.added.len(), change.removed.len(), change.changed.len()), (0, 1, 1));
    assert_eq!(registry.get("s:b").unwrap().description.as_deref(), Some("new"));

    handler.refresh(Some(ServerName::parse("s").unwrap())).await.unwrap();
    let body: McpMetadataRefreshRequest =
        serde_json::from_str(next_message(&mut refreshes).await.body.get()).unwrap();
    assert_eq!(body.server.unwrap().as_str(), "s");
    handler.close().await;
    assert!(changes.next().await.is_none());
    assert!(registry.get("s:b").is_some());
}

// req: BU-06
// req: BU-07
#[tokio::test(start_paused = true)]
async fn ignores_other_agents_and_unreadable_messages() {
    let bus = bus();
    let handler = McpToolsAvailableHandler::connect(&bus, &agent()).await.unwrap();
    announce(&bus, "other", r#"{"id":"s:a"}"#).await;
    publish(&bus, TOPIC, &envelope("McpToolsAvailable", "7")).await;
    publish(&bus, TOPIC, &envelope("ToolError", "{}")).await;
    publish(&bus, "tool.meta.mcp.other", &envelope("McpToolsAvailable", "7")).await;
    announce(&bus, "research", r#"{"id":"s:b"},{"id":"broken"}"#).await;
    let tools = handler.wait_until_ready(Duration::from_secs(1)).await.unwrap();
    assert_eq!(tools.iter().map(|tool| tool.id.to_string()).collect::<Vec<_>>(), ["s:b"]);
    let counts = handler.counts();
    assert_eq!((counts.applied, counts.foreign, counts.unreadable, counts.unusable_tools), (1, 1, 2, 1));
}

// req: BU-07
#[tokio::test(start_paused = true)]
async fn says_that_no_bridge_has_published() {
    let handler = McpToolsAvailableHandler::connect(&bus(), &agent()).await.unwrap();
    let error = handler.wait_until_ready(Duration::from_millis(100)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the bridge of agent `research` published no tools within 100 ms: is it running?"
    );
}

// req: BU-07
#[tokio::test(start_paused = true)]
async fn bridge_without_tools_is_ready() {
    let bus = bus();
    let handler = McpToolsAvailableHandler::connect(&bus, &agent()).await.unwrap();
    announce(&bus, "research", "").await;
    assert!(handler.wait_until_ready(Duration::from_secs(1)).await.unwrap().is_empty());
}

// req: BU-03
// req: BU-07
#[tokio::test(start_paused = true)]
async fn assembles_a_long_list_of_tools() {
    let bus = bus();
    let handler = McpToolsAvailableHandler::connect(&bus, &agent()).await.unwrap();
    let list = r#"[{"id":"s:a"},{"id":"s:b"}]"#;
    let body = format!(
        r#"{{"agent":"research","tools":[],"servers":[],"toolsParts":{{"count":3,"bytes":{}}}}}"#,
        list.len()
    );
    let announcement = envelope("McpToolsAvailable", &body);
    let id = announcement.message_id.clone();
    let part = |id: &str, index: usize| {
        let text = &list[index * 10..list.len().min(index * 10 + 10)];
        let body = serde_json::json!({"toolCallId": id, "index": index, "text": text});
        envelope("ToolResultPart", &body.to_string())
    };
    publish(&bus, TOPIC, &part("another-message", 0)).await;
    publish(&bus, TOPIC, &announcement).await;
    for index in [2, 0, 2, 1] {
        publish(&bus, TOPIC, &part(id.as_str(), index)).await;
    }
    let tools = handler.wait_until_ready(Duration::from_secs(1)).await.unwrap();
    assert_eq!((tools.len(), handler.counts().unreadable), (2, 0));
    // An object that does not exist is as good as no message.
    let object =
        r#"{"agent":"research","tools":[],"servers":[],"toolsObject":{"bucket":"b","name":"n","bytes":5}}"#;
    publish(&bus, TOPIC, &envelope("McpToolsAvailable", object)).await;
    while handler.counts().unreadable == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(handler.registry().snapshot().len(), 2);
}
