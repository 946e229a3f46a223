//! Shared by the tests of the HTTP transports: a client that is connected to a scripted server.

use std::time::Duration;

use bascule_testkit::{Script, ScriptedHttp};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::{
    Connection, HttpEndpoint, ProtocolVersion, RequestResult, ServerMessage, Transport, Unsolicited,
};

/// The longest message read in these tests.
pub(crate) const LIMIT: usize = 100_000;

/// A connection and its unsolicited messages.
pub(crate) struct TestClient {
    pub(crate) connection: Connection,
    pub(crate) unsolicited: mpsc::UnboundedReceiver<String>,
}

/// A server with one tool, `x`, that echoes its arguments.
pub(crate) fn echoing() -> Script {
    Script::new().tools(["x"])
}

pub(crate) fn endpoint(server: &ScriptedHttp) -> HttpEndpoint {
    HttpEndpoint::new(&server.url(), [("authorization", "secret")]).unwrap()
}

impl TestClient {
    pub(crate) fn open(transport: Transport) -> Self {
        let (sender, unsolicited) = mpsc::unbounded_channel();
        let listener = move |message: Unsolicited<'_>| {
            let _ = sender.send(match message {
                Unsolicited::Notification(ServerMessage { method, params, .. }) => {
                    format!("{method} {}", params.map_or("", |params| params.get()))
                }
                other => format!("{other:?}"),
            });
        };
        Self { connection: Connection::open(transport, LIMIT, Box::new(listener), None), unsolicited }
    }

    /// Opens a connection and does the handshake.
    pub(crate) async fn connect(transport: Transport) -> Self {
        let client = Self::open(transport);
        client.initialize().await.unwrap();
        client.connection.set_version(ProtocolVersion::LATEST);
        client.connection.notify("notifications/initialized", None).await.unwrap();
        client.connection.open_server_stream();
        client
    }

    pub(crate) async fn initialize(&self) -> RequestResult {
        let offer = r#"{"protocolVersion":"2025-11-25"}"#.to_owned();
        with_timeout(self.connection.request("initialize", |_| Some(offer)).response()).await
    }

    /// Calls `x`.
    pub(crate) async fn call(&self) -> RequestResult {
        with_timeout(self.start_call()).await.unwrap()
    }

    pub(crate) fn start_call(&self) -> JoinHandle<RequestResult> {
        let mut pending = self.connection.request("tools/call", |id| {
            Some(format!(r#"{{"name":"x","arguments":{{"a":1.0}},"_meta":{{"progressToken":{id}}}}}"#))
        });
        tokio::spawn(async move { pending.response().await })
    }

    pub(crate) async fn next_unsolicited(&mut self) -> String {
        with_timeout(self.unsolicited.recv()).await.expect("the listener lives as long as the connection")
    }

    /// Closes the connection and returns the remaining unsolicited messages.
    pub(crate) async fn close(mut self) -> Vec<String> {
        with_timeout(self.connection.close()).await;
        let mut all = Vec::new();
        while let Ok(message) = self.unsolicited.try_recv() {
            all.push(message);
        }
        all
    }
}

/// Awaits a future for at most a minute.
pub(crate) async fn with_timeout<T>(work: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(60), work).await.expect("it does not hang")
}

/// Runs `work` while all timers are stopped and returns the time that it waited for timers: zero, unless it never
/// completes without them. Network traffic goes on, so the result does not depend on the load of the machine.
pub(crate) async fn timer_wait(work: impl Future) -> Duration {
    tokio::time::pause();
    let (done, wait) = std::sync::mpsc::channel::<()>();
    // tokio does not advance a paused clock while a blocking task runs.
    let keeper = tokio::task::spawn_blocking(move || wait.recv_timeout(Duration::from_secs(60)));
    let start = tokio::time::Instant::now();
    work.await;
    let waited = start.elapsed();
    drop(done);
    let _ = keeper.await;
    tokio::time::resume();
    waited
}

/// Waits, without blocking the runtime of the test, until the condition is true.
pub(crate) async fn wait_until(mut condition: impl FnMut() -> bool) {
    with_timeout(async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// The text of a result, or the delivery and the failure.
pub(crate) fn to_text(result: RequestResult) -> String {
    match result {
        Ok(result) => result.get().to_owned(),
        Err(failure) => format!("{:?}: {failure}", failure.delivery()),
    }
}
