//! The permissions that keep agents apart, as the documentation and the manifest have them.

use std::fs;
use std::path::Path;

use async_nats::{ConnectOptions, Event};
use bascule_bus::{Bus, BusOptions, BusUrl, Envelope, InboxPrefix, publish_answer};
use bascule_testkit::{NatsServer, NatsSetting};
use tokio::sync::mpsc;

use crate::support::{agent, id_of, message, next, next_message, publish, subscribe, topic, win};

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)).unwrap()
}

/// Returns the lines from the one that begins with `first` to the next one that is `last`.
fn lines(text: &str, first: &str, last: &str) -> String {
    let lines = text.lines().skip_while(|line| !line.starts_with(first));
    let mut is_last = false;
    let lines: Vec<_> = lines.take_while(|line| !std::mem::replace(&mut is_last, *line == last)).collect();
    assert_eq!(lines.last(), Some(&last));
    lines.join("\n")
}

// req: BU-06
#[tokio::test]
async fn documented_permissions_keep_agents_apart() {
    let permissions = lines(&read("docs/bus.md"), "permissions: {", "}");
    check(&format!(
        "authorization: {{ users: [\n\
        {{ user: bridge, password: bridge }}\n\
        {{ user: research, password: research, {permissions} }}\n\
        ] }}"
    ))
    .await;
}

// req: BU-06
#[tokio::test]
async fn permissions_of_the_manifest_keep_agents_apart() {
    let authorization = lines(&read("contrib/kubernetes/nats.yaml"), "    authorization: {", "    }");
    check(&authorization.replace("$BRIDGE_PASSWORD", "bridge").replace("$AGENT_PASSWORD", "research")).await;
}

async fn check(authorization: &str) {
    let server = NatsServer::start_with([NatsSetting::Lines(authorization.into())]);
    check_service(&server).await;
    check_refusals(&server).await;
}

async fn connect(server: &NatsServer, user: &str, inbox_prefix: Option<&str>) -> Bus {
    let url = server.url().replace("://", &format!("://{user}:{user}@"));
    let inbox_prefix = inbox_prefix.map(|prefix| InboxPrefix::parse(prefix).unwrap());
    let options = BusOptions { inbox_prefix, ..BusOptions::new(BusUrl::parse(&url).unwrap()) };
    Bus::connect(&options).await.unwrap()
}

/// Bridge and agent do all that they do for each other.
async fn check_service(server: &NatsServer) {
    let bridge = connect(server, "bridge", None).await;
    let mut requests = bridge.requests(&agent("research"), 4).await.unwrap();
    let mut asked = subscribe(&bridge, "tool.meta.mcp.refresh").await;
    let mut cancelled = subscribe(&bridge, "tool.cancel.mcp.research").await;
    let long: Vec<u8> = (0..40_000_000_u32).map(|number| number.to_le_bytes()[0]).collect();
    let object = bridge.put_result("long", &long).await.unwrap();

    let agent = connect(server, "research", Some("_INBOX_research")).await;
    let mut tools = subscribe(&agent, "tool.meta.mcp.research").await;
    publish(&agent, "tool.meta.mcp.refresh", "m-1", "research").await;
    assert_eq!(id_of(&next_message(&mut asked).await), "m-1");
    publish(&bridge, "tool.meta.mcp.research", "m-2", "bridge").await;
    assert_eq!(id_of(&next_message(&mut tools).await), "m-2");

    for (reply_to, id) in [("tool.result.research.7", "m-3"), ("_INBOX_research.7", "m-4")] {
        let mut answers = subscribe(&agent, reply_to).await;
        let request = Envelope { reply_to: Some(topic(reply_to)), ..message(id, "research") };
        agent.publish(&topic("tool.invoke.mcp.research"), &request).await.unwrap();
        let delivery = next(&mut requests).await;
        let ticket = win(&delivery, id).await;
        let answer = message(&format!("r-{id}"), "bridge");
        assert!(delivery.record_answer(&ticket, &answer).await.unwrap());
        if !delivery.publishes_recorded_answer() {
            publish_answer(&bridge, &topic(reply_to), &answer).await.unwrap();
        }
        delivery.acknowledge().await.unwrap();
        assert_eq!(id_of(&next_message(&mut answers).await), format!("r-{id}"));
    }
    publish(&agent, "tool.cancel.mcp.research", "m-5", "research").await;
    assert_eq!(id_of(&next_message(&mut cancelled).await), "m-5");
    assert!(agent.get_result(&object, long.len()).await.unwrap() == long);
}

/// The agent reaches nothing of others: no inboxes, no answers, no requests.
async fn check_refusals(server: &NatsServer) {
    let (errors, mut refused) = mpsc::unbounded_channel();
    let options = ConnectOptions::with_user_and_password("research".into(), "research".into());
    let note_error = move |event| {
        if let Event::ServerError(error) = event {
            let _ = errors.send(error.to_string().to_lowercase());
        }
        std::future::ready(())
    };
    let client = options.event_callback(note_error).connect(server.url()).await.unwrap();
    let mut check = async |subject: &str, error: String| {
        let found = refused.recv().await.unwrap();
        assert!(found.contains("permissions violation") && found.contains(&error), "{subject}: {found}");
    };
    let mut subscriptions = Vec::new();
    for subject in
        ["_INBOX.>", "_INBOX.x", "_INBOX_billing.>", "tool.result.billing", "tool.invoke.mcp.>", ">", "$KV.>"]
    {
        subscriptions.push(client.subscribe(subject).await.unwrap());
        check(subject, format!("subscription to \"{}\"", subject.to_lowercase())).await;
    }
    for subject in [
        "tool.invoke.mcp.billing",
        "tool.invoke.mcp",
        "tool.result.research",
        "_INBOX.x",
        "$JS.API.CONSUMER.MSG.NEXT.BASCULE_REQUESTS.agent-research",
        "$JS.API.CONSUMER.CREATE.BASCULE_REQUESTS.x",
        "$JS.API.STREAM.MSG.GET.BASCULE_ANSWERS",
        "$JS.API.DIRECT.GET.KV_BASCULE_CLAIMS.x",
        "$JS.API.STREAM.DELETE.OBJ_BASCULE_RESULTS",
        "$O.BASCULE_RESULTS.C.x",
    ] {
        client.publish(subject, "x".into()).await.unwrap();
        check(subject, format!("publish to \"{}\"", subject.to_lowercase())).await;
    }
}
