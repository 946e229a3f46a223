//! Long results, dead letters, and events that last.

use bascule_bus::{BusError, DeadLetter, DeadLetterId, Envelope, ResultObject};
use bascule_testkit::NatsServer;
use serde_json::value::to_raw_value;

use crate::support::{connect, jetstream, message, publish, raw_client, topic};

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
        let envelope = Envelope { body: to_raw_value(&letter).unwrap(), ..message("m", "bridge") };
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
