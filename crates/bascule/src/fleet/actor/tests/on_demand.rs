//! Lazy servers: stopped when idle, started by the next call.

use std::pin::pin;
use std::task::{Context, Wake, Waker};

use super::*;
use crate::config::StartMode;
use crate::in_flight::{InFlight, Origin};

const IDLE: Duration = Duration::from_secs(100);

async fn lazy_server() -> TestBridge {
    TestBridge::start(|server| (server.start, server.idle_stop) = (StartMode::Lazy, Some(IDLE))).await
}

async fn wait_for(test: &TestBridge, health: Health) {
    let mut status = test.server().watch();
    status.wait_for(|status| status.state.health() == health).await.unwrap();
}

// req: US-03
#[tokio::test(start_paused = true)]
async fn stops_a_lazy_server_that_is_idle_and_starts_it_for_the_next_call() {
    let test = lazy_server().await;
    assert_eq!(test.health(), Health::Healthy, "without a last listing it starts at once");
    advance(IDLE / 2).await;
    assert_eq!(test.call().await, Ok(()));
    advance(IDLE * 3 / 4).await;
    settle().await;
    assert_eq!(test.health(), Health::Healthy, "the time begins with the last call");
    wait_for(&test, Health::Stopped).await;
    settle().await;
    assert_eq!(test.servers.alive.load(Ordering::SeqCst), 0);
    use bascule_model::ProviderAdapter;
    let health = test.bridge.health().remove(0);
    assert!(health.cause.unwrap().contains("100000 ms without calls"));
    assert_eq!((health.tools, health.from_last_listing, health.restarts), (1, false, 0));
    assert_eq!(test.call().await, Ok(()));
    assert_eq!(test.health(), Health::Healthy);
    assert_eq!(test.servers.starts_since(test.begin).len(), 2);
    assert!(test.servers.named("provider.mcp.disconnected").is_empty());
    assert!(test.servers.named("provider.mcp.reconnected").is_empty());
    assert_eq!(test.bridge.health()[0].restarts, 0);
    test.end().await;
}

// req: US-03
#[tokio::test(start_paused = true)]
async fn refresh_starts_a_server_that_is_not_running() {
    let test = lazy_server().await;
    wait_for(&test, Health::Stopped).await;
    *test.servers.tools.lock().unwrap() = vec!["t", "u"];
    test.bridge.refresh(&ServerName::parse("s").unwrap()).await.unwrap();
    assert_eq!((test.health(), test.bridge.list_tools().len()), (Health::Healthy, 2));
    test.end().await;
}

// req: US-03
#[tokio::test(start_paused = true)]
async fn failed_start_on_demand_is_the_error_of_the_call() {
    let test = lazy_server().await;
    wait_for(&test, Health::Stopped).await;
    test.servers.refuses.store(true, Ordering::SeqCst);
    assert_eq!(test.call().await, Err((ErrorCode::ProviderUnavailable, None)));
    assert_eq!(test.health(), Health::Degraded);
    test.servers.refuses.store(false, Ordering::SeqCst);
    wait_for(&test, Health::Healthy).await;
    assert_eq!(test.call().await, Ok(()));
    test.end().await;
}

// req: US-03
#[tokio::test(start_paused = true)]
async fn keeps_a_lazy_server_while_a_call_is_in_flight() {
    let test = TestBridge::start(|server| {
        (server.start, server.idle_stop) = (StartMode::Lazy, Some(Duration::from_secs(1)));
        server.keep_alive = None;
    })
    .await;
    test.servers.is_silent.store(true, Ordering::SeqCst);
    // The call takes thirty seconds.
    assert_eq!(test.call().await, Err((ErrorCode::ProviderTimeout, Some(1))));
    assert_eq!(test.servers.starts_since(test.begin).len(), 1);
    wait_for(&test, Health::Stopped).await;
    test.end().await;
}

/// Registers a request in the moment in which the state of its server changes, as another thread may.
struct RequestAtChange {
    server: Arc<Server>,
    request: Mutex<Option<InFlight>>,
}

impl Wake for RequestAtChange {
    fn wake(self: Arc<Self>) {
        *self.request.lock().unwrap() = Some(self.server.begin_request("t", Origin::Detached));
    }
}

// req: US-03
#[tokio::test(start_paused = true)]
async fn keeps_a_lazy_server_whose_next_call_comes_while_it_is_being_stopped() {
    let test = lazy_server().await;
    let mut status = test.server().watch();
    let caller = Arc::new(RequestAtChange { server: test.server(), request: Mutex::default() });
    let waker = Waker::from(caller.clone());
    let mut changed = pin!(status.changed());
    assert!(changed.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    advance(IDLE).await;
    settle().await;
    assert!(caller.request.lock().unwrap().is_some(), "the server was about to be stopped");
    assert_eq!(test.health(), Health::Healthy);
    assert_eq!(test.servers.alive.load(Ordering::SeqCst), 1);
    caller.request.lock().unwrap().take();
    wait_for(&test, Health::Stopped).await;
    test.end().await;
}

// req: US-03
#[tokio::test(start_paused = true)]
async fn eager_server_is_never_idle() {
    let test = TestBridge::start(|server| server.idle_stop = Some(IDLE)).await;
    advance(IDLE * 10).await;
    settle().await;
    assert_eq!(test.health(), Health::Healthy);
    test.end().await;
}
