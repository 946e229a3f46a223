//! Long results, dead letters, and events that last.

use bascule_bus::{
    Bus, BusError, BusOptions, DeadLetter, DeadLetterId, Envelope, McpToolsAvailable, MessageBody,
    ResultObject, StoredLists, ToolInvokeResponse, publish_availability, store_long_result,
};
use bascule_testkit::NatsServer;
use serde_json::value::{RawValue, to_raw_value};

use crate::support::{
    agent, connect, id_of, jetstream, message, next_message, options, publish, raw_client, subscribe, topic,
};

// req: BU-03
#[tokio::test]
async fn long_result_is_an_object() {
    let server = NatsServer::start();
    let bus = connect(&server).await;
    let content: Vec<u8> = (0..5_000_000_u32).map(|number| number.to_le_bytes()[0]).collect();
    let object = bus.put_result("m-1", &content).await.unwrap();
    assert_eq!(
        object,
        ResultObject { bucket: "BASCULE_RESULTS".into(), name: "m-1".into(), bytes: 5_000_000 }
    );
    // Another connection reads it.
    let reader = connect(&server).await;
    assert_eq!(reader.get_result(&object, content.len()).await.unwrap(), content);
    let error = reader.get_result(&object, content.len() - 1).await.unwrap_err();
    assert!(matches!(error, BusError::TooLarge { bytes: 5_000_000, limit: 4_999_999 }), "{error}");
    // The parts are large: few round trips.
    let stream = jetstream(&raw_client(&server).await).get_stream("OBJ_BASCULE_RESULTS").await.unwrap();
    assert!(stream.get_info().await.unwrap().state.messages < 60);
}

/// A connection whose messages are short.
async fn connect_with_short_messages(server: &NatsServer) -> Bus {
    Bus::connect(&BusOptions { max_message_bytes: Some(16 << 10), ..options(server) }).await.unwrap()
}

fn long_json(letter: &str) -> Box<RawValue> {
    to_raw_value(&letter.repeat(50_000)).unwrap()
}

// req: BU-03, BU-06
#[tokio::test]
async fn each_long_result_is_an_object_of_its_own() {
    let server = NatsServer::start();
    let bus = connect_with_short_messages(&server).await;
    let store = async |source: &str, id: &str, letter: &str| {
        let response = ToolInvokeResponse {
            tool_call_id: "t".into(),
            tool_name: "s:x".into(),
            is_error: false,
            result: Some(long_json(letter)),
            result_object: None,
            result_parts: None,
        };
        let (kind, body) = (ToolInvokeResponse::KIND.into(), to_raw_value(&response).unwrap());
        let stored = store_long_result(&bus, Envelope { kind, body, ..message(id, source) }).await.unwrap();
        let stored: ToolInvokeResponse = serde_json::from_str(stored.body.get()).unwrap();
        (stored.result_object.unwrap(), long_json(letter))
    };
    // Agents choose their ids by themselves, and replicas may answer differently.
    let stored = [
        store("bascule/a", "m-1", "x").await,
        store("bascule/b", "m-1", "x").await,
        store("bascule/a", "m-2", "x").await,
        store("bascule/a", "m-1", "y").await,
    ];
    let names: std::collections::BTreeSet<_> = stored.iter().map(|(object, _)| &object.name).collect();
    assert_eq!(names.len(), stored.len(), "{names:?}");
    for (object, result) in &stored {
        assert!(bus.get_result(object, 100_000).await.unwrap() == result.get().as_bytes());
    }
    // The same answer again is no other object.
    assert_eq!(store("bascule/a", "m-1", "x").await.0, stored[0].0);
}

// req: BU-05
#[tokio::test]
async fn long_list_of_tools_that_is_published_again_is_stored_once() {
    let server = NatsServer::start();
    let bus = connect_with_short_messages(&server).await;
    let mut received = subscribe(&bus, "tool.meta.mcp.a").await;
    let mut lists = StoredLists::default();
    let mut objects = Vec::new();
    for (number, letter) in ["x", "x", "y", "x"].into_iter().enumerate() {
        let tools = McpToolsAvailable {
            agent: agent("a"),
            tools: vec![long_json(letter)],
            servers: vec![],
            tools_object: None,
            tools_parts: None,
        };
        let (id, topic) = (format!("m-{number}"), agent("a").availability_topic());
        publish_availability(&bus, &topic, message(&id, "bascule/a"), tools, &mut lists).await.unwrap();
        let envelope = next_message(&mut received).await.content.unwrap();
        let available: McpToolsAvailable = serde_json::from_str(envelope.body.get()).unwrap();
        objects.push(available.tools_object.unwrap().name);
    }
    assert!(objects[0] == objects[1] && objects[0] == objects[3] && objects[0] != objects[2], "{objects:?}");
}

// req: BU-03
#[tokio::test]
async fn missing_and_foreign_objects_are_refused() {
    let server = NatsServer::start();
    let bus = connect(&server).await;
    let object =
        |bucket: &str, name: &str| ResultObject { bucket: bucket.into(), name: name.into(), bytes: 1 };
    let error = bus.get_result(&object("BASCULE_RESULTS", "none"), 10).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "could not read a long result: there is no object `none`; it may have aged out"
    );
    let error = bus.get_result(&object("SECRETS", "x"), 10).await.unwrap_err();
    assert_eq!(error.to_string(), "could not read a long result: `SECRETS` is not the bucket of results");
}

// req: BU-03
#[tokio::test]
async fn changed_object_is_refused() {
    let server = NatsServer::start();
    let bus = connect(&server).await;
    let object = bus.put_result("m-1", &[7; 1000]).await.unwrap();
    let context = jetstream(&raw_client(&server).await);
    let store = context.get_object_store("BASCULE_RESULTS").await.unwrap();
    let chunks = format!("$O.BASCULE_RESULTS.C.{}", store.info("m-1").await.unwrap().nuid);
    context.get_stream("OBJ_BASCULE_RESULTS").await.unwrap().purge().filter(&chunks).await.unwrap();
    context.publish(chunks, vec![8; 1000].into()).await.unwrap().await.unwrap();
    let error = bus.get_result(&object, 10_000).await.unwrap_err();
    assert!(error.to_string().contains("wrong digest"), "{error}");
}

// req: BU-09
#[tokio::test]
async fn dead_letters_are_kept_listed_and_removed() {
    let server = NatsServer::start();
    let bus = connect(&server).await;
    assert!(bus.dead_letters(10).await.unwrap().is_empty());
    for number in 0..3 {
        let letter = DeadLetter {
            reason: format!("reason {number}"),
            topic: "tool.invoke.mcp.a".into(),
            message: "{".into(),
            base64: false,
            original_bytes: None,
        };
        let envelope =
            Envelope { body: to_raw_value(&letter).unwrap(), ..message(&format!("m-{number}"), "bridge") };
        bus.publish(&topic("tool.dead.mcp"), &envelope).await.unwrap();
    }
    raw_client(&server).await.request("tool.dead.mcp", b"\xff".to_vec().into()).await.unwrap();
    let letters = bus.dead_letters(10).await.unwrap();
    let reasons: Vec<_> = letters.iter().map(|stored| stored.letter.reason.as_str()).collect();
    assert_eq!(reasons[..3], ["reason 0", "reason 1", "reason 2"]);
    assert_eq!((letters[3].letter.message.as_str(), letters[3].letter.base64), ("/w==", true));
    assert_eq!(bus.dead_letters(2).await.unwrap().len(), 2);
    assert!(letters[0].time.unix_millis() > 0);
    assert!(bus.remove_dead_letter(&letters[1].id).await.unwrap());
    assert!(!bus.remove_dead_letter(&letters[1].id).await.unwrap());
    assert!(!bus.remove_dead_letter(&DeadLetterId("none".into())).await.unwrap());
    let left = bus.dead_letters(10).await.unwrap();
    assert_eq!(
        left.iter().map(|stored| &stored.id).collect::<Vec<_>>(),
        [&letters[0].id, &letters[2].id, &letters[3].id]
    );
}

// req: BU-09
#[tokio::test]
async fn first_dead_letter_is_kept_once_though_somebody_listens() {
    let server = NatsServer::start();
    let bus = connect(&server).await;
    // A listener makes the server accept the message as if a stream took it.
    let mut listener = subscribe(&bus, "tool.dead.mcp").await;
    bus.publish(&topic("tool.dead.mcp"), &message("m-1", "bridge")).await.unwrap();
    assert_eq!(id_of(&next_message(&mut listener).await), "m-1");
    // A bridge repeats a letter if it does not know whether the broker has it.
    bus.publish(&topic("tool.dead.mcp"), &message("m-1", "bridge")).await.unwrap();
    assert_eq!(bus.dead_letters(10).await.unwrap().len(), 1);
}

// req: BU-02
#[tokio::test]
async fn events_last() {
    let server = NatsServer::start();
    let bus = connect(&server).await;
    publish(&bus, "provider.mcp.tool.completed", "m-1", "bridge").await;
    let stream = jetstream(&raw_client(&server).await).get_stream("BASCULE_EVENTS").await.unwrap();
    let stored = loop {
        if let Ok(stored) = stream.get_last_raw_message_by_subject("provider.mcp.tool.completed").await {
            break stored;
        }
    };
    assert_eq!(Envelope::parse(&stored.payload).unwrap().message_id.as_str(), "m-1");
}

// req: BU-09
#[tokio::test]
async fn dead_letter_is_queued_again_byte_for_byte() {
    let server = NatsServer::start();
    let bus = connect(&server).await;
    let mut queue = bus.requests(&crate::support::agent("a"), 1).await.unwrap();
    bus.publish_bytes(&topic("tool.invoke.mcp.a"), b"not json").await.unwrap();
    let delivery = crate::support::next(&mut queue).await;
    assert_eq!(&delivery.message.content.as_ref().unwrap_err().payload[..], b"not json");
}
