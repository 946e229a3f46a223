//! The host of the tests.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, mpsc};

use tokio_util::sync::CancellationToken;

use crate::serve::{ClientMessage, Endpoint, Host, PeerId, ResponseStream};
use crate::{Id, Message, error_response, notification, success_response};

/// A host that answers by the name of the method and reports events to the test.
pub(super) struct EchoHost {
    sessions: Mutex<HashSet<(Endpoint, String)>>,
    pub(super) session_streams: Mutex<Vec<ResponseStream>>,
    report_sender: mpsc::Sender<String>,
    /// Slow requests are answered when this fires.
    release: CancellationToken,
}

impl Host for EchoHost {
    type Client = ();

    async fn initialize(
        self: &Arc<Self>,
        endpoint: Endpoint,
        _sender: PeerId,
        request: Vec<u8>,
        stream: ResponseStream,
    ) -> Option<String> {
        let Ok(Message::Request { id, params, .. }) = Message::parse(&request) else {
            panic!("not a request")
        };
        if params.is_some_and(|params| params.get().contains("refuse")) {
            stream.finish(error_response(id, -32602, "no"));
            return None;
        }
        let session = match &endpoint {
            Endpoint::All => "s".to_owned(),
            Endpoint::Server(name) => format!("s-of-{name}"),
        };
        self.sessions.lock().unwrap().insert((endpoint, session.clone()));
        stream.finish(success_response(id, "{}"));
        Some(session)
    }

    fn find_session(&self, endpoint: &Endpoint, session: &str) -> Option<Arc<()>> {
        let key = (endpoint.clone(), session.to_owned());
        self.sessions.lock().unwrap().contains(&key).then(Arc::default)
    }

    fn deliver(self: &Arc<Self>, _client: Arc<()>, message: ClientMessage<'_>, stream: ResponseStream) {
        match message.message {
            Message::Request { id, method, params } => {
                let params = params.map_or("{}", |params| params.get());
                self.run_method(id, &method, params, stream);
            }
            _ => self.report(String::from_utf8(message.frame.to_vec()).unwrap()),
        }
    }

    fn open_stream(self: &Arc<Self>, _client: &Arc<()>) -> ResponseStream {
        let stream = ResponseStream::new(1 << 20);
        self.session_streams.lock().unwrap().push(stream.clone());
        self.watch(stream.clone(), "listener");
        stream
    }

    fn end_session(self: &Arc<Self>, endpoint: &Endpoint, session: &str) -> bool {
        self.sessions.lock().unwrap().remove(&(endpoint.clone(), session.to_owned()))
    }
}

impl EchoHost {
    fn run_method(self: &Arc<Self>, id: Id<'_>, method: &str, params: &str, stream: ResponseStream) {
        match method {
            "echo" => stream.finish(success_response(id, params)),
            "thread" => {
                let name = format!("{:?}", std::thread::current().name().unwrap_or_default());
                stream.finish(success_response(id, &name));
            }
            "count" => {
                for n in 0..200 {
                    assert!(stream.push(notification("n", Some(&n.to_string()))));
                }
                stream.finish(success_response(id, params));
            }
            "drop" => {}
            "drop-after-one" => drop(stream.push(notification("n", None))),
            "hang" => {
                self.report("hanging".into());
                self.watch(stream, "request");
            }
            "hang-after-one" => {
                stream.push(notification("n", None));
                self.watch(stream, "request");
            }
            "hang-after-much" => {
                stream.push(notification("n", Some(&format!("\"{}\"", "x".repeat(30 << 20)))));
                self.watch(stream, "request");
            }
            "slow" => {
                let (answer, release) = (success_response(id, params), self.release.clone());
                self.report("hanging".into());
                tokio::spawn(async move {
                    release.cancelled().await;
                    stream.finish(answer);
                });
            }
            "flood" => {
                let mut frames = 0;
                while stream.push(notification("n", Some(&format!("\"{}\"", "x".repeat(100_000))))) {
                    frames += 1;
                    assert!(frames < 100_000, "the stream has no limit");
                }
                assert!(stream.is_closed());
                self.report("flooded".into());
            }
            _ => stream.finish(error_response(id, -32601, "unknown method")),
        }
    }

    fn watch(self: &Arc<Self>, stream: ResponseStream, event: &'static str) {
        let host = self.clone();
        tokio::spawn(async move {
            stream.closed().await;
            host.report(format!("{event} closed"));
        });
    }

    /// The first stream that was opened for a session.
    pub(super) fn session_stream(&self) -> ResponseStream {
        self.session_streams.lock().unwrap()[0].clone()
    }

    pub(super) fn release_slow_requests(&self) {
        self.release.cancel();
    }

    pub(super) fn has_sessions(&self) -> bool {
        !self.sessions.lock().unwrap().is_empty()
    }

    fn report(&self, event: String) {
        let _ = self.report_sender.send(event);
    }
}

pub(super) fn echo_host() -> (Arc<EchoHost>, mpsc::Receiver<String>) {
    let (report_sender, reports) = mpsc::channel();
    let (sessions, session_streams, release) = (Mutex::default(), Mutex::default(), CancellationToken::new());
    (Arc::new(EchoHost { sessions, session_streams, report_sender, release }), reports)
}
