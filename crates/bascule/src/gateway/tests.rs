//! Clients for whom there is no room.

use bascule_model::ProviderAdapter;
use tokio::time::advance;

use super::session::{MAX_SESSIONS, SILENT};
use super::*;
use crate::BridgeConfig;
use crate::config::Settings;

const HELLO: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"capabilities":{}}}"#;
const NOTICE: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
const MOMENT: Duration = Duration::from_millis(1);

async fn gateway() -> Arc<Gateway> {
    let bridge = McpBridgeAdapter::init(BridgeConfig::new(Settings::default())).await.unwrap();
    Gateway::open(Arc::new(bridge), Duration::from_secs(24 * 3600), SILENT, ToolView::All)
}

/// One more client, if there is room.
async fn begin(gateway: &Arc<Gateway>) -> Option<String> {
    gateway.initialize(Endpoint::All, HELLO.into(), ResponseStream::new(1 << 20)).await
}

// req: GW-04, GW-07
#[tokio::test(start_paused = true)]
async fn where_there_is_no_room_the_one_that_was_silent_for_longest_makes_some() {
    let gateway = gateway().await;
    let mut clients = Vec::new();
    for _ in 0..MAX_SESSIONS {
        advance(MOMENT).await;
        clients.push(begin(&gateway).await.expect("there is room"));
    }
    let session = |client: usize| gateway.find_session(&Endpoint::All, &clients[client]);
    let is_there = |client: usize| session(client).is_some();
    let _stream = gateway.open_stream(&session(0).expect("the session exists"));
    assert_eq!(begin(&gateway).await, None, "nobody has been silent for long");
    advance(SILENT).await;
    // The first listens, and the second has just said something.
    let message = ClientMessage::parse(NOTICE.as_bytes()).unwrap();
    gateway.deliver(session(1).expect("the session exists"), message, ResponseStream::new(1 << 20));
    assert!(begin(&gateway).await.is_some());
    assert_eq!([0, 1, 2, 3].map(is_there), [true, true, false, true]);
    gateway.close().await;
}

// req: GW-04, GW-07
#[tokio::test(start_paused = true)]
async fn client_with_request_in_flight_is_neither_gone_nor_silent() {
    let gateway = gateway().await;
    let in_flight = &gateway.bridge.fleet.in_flight;
    let id = begin(&gateway).await.expect("there is room");
    let client = gateway.find_session(&Endpoint::All, &id).expect("the session exists");
    let request = in_flight.begin_client_request(client.serial, "1").expect("the id is free");
    advance(2 * SILENT).await;
    assert!(gateway.sessions.gone(SILENT, in_flight).is_empty());
    assert!(gateway.sessions.longest_silent(in_flight).is_none());
    drop(request);
    assert_eq!(gateway.sessions.gone(SILENT, in_flight).len(), 1);
    assert!(gateway.sessions.longest_silent(in_flight).is_some());
    gateway.close().await;
}
