//! Clients for whom there is no room.

use bascule_model::ProviderAdapter;
use tokio::time::advance;

use super::session::MAX_SESSIONS;
use super::*;
use crate::BridgeConfig;
use crate::config::Settings;

const NOTICE: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
const MOMENT: Duration = Duration::from_millis(1);
const SILENT: Duration = Duration::from_secs(60);

async fn gateway() -> Arc<Gateway> {
    let bridge = McpBridgeAdapter::init(BridgeConfig::new(Settings::default())).await.unwrap();
    Gateway::open(Arc::new(bridge), Duration::from_secs(24 * 3600), SILENT, ToolView::All)
}

/// One more client of this name, if there is room.
async fn begin(gateway: &Arc<Gateway>, name: &str) -> Option<String> {
    let params = format!(r#"{{"capabilities":{{}},"clientInfo":{{"name":"{name}"}}}}"#);
    let hello = format!(r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{params}}}"#);
    let stream = ResponseStream::new(1 << 20);
    gateway.initialize(Endpoint::All, PeerId::default(), hello.into(), stream).await
}

// req: GW-04, GW-07
#[tokio::test(start_paused = true)]
async fn client_with_most_idle_sessions_makes_room() {
    let gateway = gateway().await;
    let few = begin(&gateway, "few").await.expect("there is room");
    let mut many = Vec::new();
    for _ in 1..MAX_SESSIONS {
        advance(MOMENT).await;
        many.push(begin(&gateway, "many").await.expect("there is room"));
    }
    let session = |id: &String| gateway.find_session(&Endpoint::All, id);
    // The first has an event stream, and the second has just sent a message.
    let _stream = gateway.open_stream(&session(&many[0]).expect("the session exists"));
    let message = ClientMessage::parse(NOTICE.as_bytes()).unwrap();
    gateway.deliver(session(&many[1]).expect("the session exists"), message, ResponseStream::new(1 << 20));
    let newcomer = begin(&gateway, "new").await.expect("another session ends");
    assert!([&few, &newcomer].into_iter().all(|id| session(id).is_some()));
    let is_there = |client: usize| session(&many[client]).is_some();
    assert_eq!([0, 1, 2, 3].map(is_there), [true, true, false, false]);
    assert!(is_there(many.len() - 1), "the newest stay");
    gateway.close().await;
}

// req: GW-04, GW-07
#[tokio::test(start_paused = true)]
async fn client_with_request_in_flight_is_neither_gone_nor_idle() {
    let gateway = gateway().await;
    let in_flight = &gateway.bridge.fleet.in_flight;
    let id = begin(&gateway, "one").await.expect("there is room");
    let client = gateway.find_session(&Endpoint::All, &id).expect("the session exists");
    let request = in_flight.begin_client_request(client.serial, &"1".into()).expect("the id is free");
    advance(2 * SILENT).await;
    assert!(gateway.sessions.find_gone(SILENT, in_flight).is_empty());
    let idle = begin(&gateway, "one").await.expect("there is room");
    let ending =
        || gateway.sessions.find_excess(in_flight).iter().map(|client| client.id.clone()).collect::<Vec<_>>();
    assert_eq!(ending(), std::slice::from_ref(&idle));
    gateway.remove_session(&idle);
    assert_eq!(ending(), [id], "without an idle session another one ends");
    drop(request);
    assert_eq!(gateway.sessions.find_gone(SILENT, in_flight).len(), 1);
    gateway.close().await;
}
