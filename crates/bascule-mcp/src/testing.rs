//! Test support for the HTTP transports: a client connected to a scripted server.

use std::time::Duration;

use bascule_testkit::{Script, ScriptedHttp};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::{
    Connection, HttpEndpoint, ProtocolVersion, RequestResult, ServerMessage, Transport, Unsolicited,
};

/// Message size limit in these tests.
pub(crate) const LIMIT: usize = 100_000;

/// A connection, and the messages its listener received.
pub(crate) struct Played {
    pub(crate) connection: Connection,
    pub(crate) heard: mpsc::UnboundedReceiver<String>,
}

/// A server with one tool, `x`, that echoes its arguments.
pub(crate) fn echoing() -> Script {
    Script::new().tools(["x"])
}

pub(crate) fn endpoint(server: &ScriptedHttp) -> HttpEndpoint {
    HttpEndpoint::new(&server.url(), [("authorization", "secret")]).unwrap()
}

impl Played {
    pub(crate) fn open(transport: Transport) -> Self {
        let (told, heard) = mpsc::unbounded_channel();
        let listener = move |said: Unsolicited<'_>| {
            let _ = told.send(match said {
                Unsolicited::Notification(ServerMessage { method, params, .. }) => {
                    format!("{method} {}", params.map_or("", |params| params.get()))
                }
                other => format!("{other:?}"),
            });
        };
        Self { connection: Connection::open(transport, LIMIT, Box::new(listener), None), heard }
    }

    /// Opens a connection and completes the handshake.
    pub(crate) async fn connect(transport: Transport) -> Self {
        let played = Self::open(transport);
        played.initialize().await.unwrap();
        played.connection.set_version(ProtocolVersion::LATEST);
        played.connection.notify("notifications/initialized", None).await.unwrap();
        played.connection.listen();
        played
    }

    pub(crate) async fn initialize(&self) -> RequestResult {
        let offer = r#"{"protocolVersion":"2025-11-25"}"#.to_owned();
        patiently(self.connection.request("initialize", |_| Some(offer)).answer()).await
    }

    /// Calls the tool `x`.
    pub(crate) async fn call(&self) -> RequestResult {
        patiently(self.start_call().answer()).await
    }

    pub(crate) fn start_call(&self) -> crate::PendingRequest {
        self.connection.request("tools/call", |id| {
            Some(format!(r#"{{"name":"x","arguments":{{"a":1.0}},"_meta":{{"progressToken":{id}}}}}"#))
        })
    }

    /// Waits for the next message from the server.
    pub(crate) async fn next_heard(&mut self) -> String {
        patiently(self.heard.recv()).await.expect("the listener lives as long as the connection")
    }

    /// Closes the connection and returns all remaining messages.
    pub(crate) async fn close(mut self) -> Vec<String> {
        patiently(self.connection.close()).await;
        let mut all = Vec::new();
        while let Ok(said) = self.heard.try_recv() {
            all.push(said);
        }
        all
    }
}

/// Awaits `work` with a generous time-out.
pub(crate) async fn patiently<T>(work: impl Future<Output = T>) -> T {
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

/// Polls `is_so` until it returns true, without blocking the runtime of the test.
pub(crate) async fn until(mut is_so: impl FnMut() -> bool) {
    patiently(async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// Returns the text of a result, or the failure and how far the request got.
pub(crate) fn told(answer: RequestResult) -> String {
    match answer {
        Ok(result) => result.get().to_owned(),
        Err(failure) => format!("{:?}: {failure}", failure.delivery()),
    }
}
