//! The HTTP face, spoken to over real sockets by clients that mind no manners.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use bascule_model::Secret;
use proptest::prelude::*;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Admitted, ClientMessage, Endpoint, Host, HttpFace, ResponseStream};
use crate::{Id, Message, error_response, notification, success_response};

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#;
const NOTICE: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
/// Nothing that is waited for takes longer.
const SOON: Duration = Duration::from_secs(60);
/// A deadline that is to be met.
const SHORT: Duration = Duration::from_millis(300);

/// Answers by the name of the method, and tells what happened.
pub(super) struct Parrot {
    sessions: Mutex<HashSet<(Endpoint, String)>>,
    unasked: Mutex<Vec<ResponseStream>>,
    told: mpsc::Sender<String>,
    /// Until this fires, what is slow is not answered.
    go: CancellationToken,
}

impl Host for Parrot {
    type Client = ();

    async fn initialize(
        self: &Arc<Self>,
        endpoint: Endpoint,
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
                self.act(id, &method, params, stream);
            }
            _ => self.tell(String::from_utf8(message.frame.to_vec()).unwrap()),
        }
    }

    fn open_stream(self: &Arc<Self>, _client: &Arc<()>) -> ResponseStream {
        let stream = ResponseStream::new(1 << 20);
        self.unasked.lock().unwrap().push(stream.clone());
        self.watch(stream.clone(), "listener");
        stream
    }

    fn end_session(self: &Arc<Self>, endpoint: &Endpoint, session: &str) -> bool {
        self.sessions.lock().unwrap().remove(&(endpoint.clone(), session.to_owned()))
    }
}

impl Parrot {
    fn act(self: &Arc<Self>, id: Id<'_>, method: &str, params: &str, lane: ResponseStream) {
        match method {
            "echo" => lane.finish(success_response(id, params)),
            "count" => {
                for n in 0..200 {
                    assert!(lane.push(notification("n", Some(&n.to_string()))));
                }
                lane.finish(success_response(id, params));
            }
            "drop" => {}
            "drop-after-one" => drop(lane.push(notification("n", None))),
            "hang" => {
                self.tell("hanging".into());
                self.watch(lane, "request");
            }
            "hang-after-one" => {
                lane.push(notification("n", None));
                self.watch(lane, "request");
            }
            "hang-after-much" => {
                lane.push(notification("n", Some(&format!("\"{}\"", "x".repeat(30 << 20)))));
                self.watch(lane, "request");
            }
            "slow" => {
                let (answer, go) = (success_response(id, params), self.go.clone());
                self.tell("hanging".into());
                tokio::spawn(async move {
                    go.cancelled().await;
                    lane.finish(answer);
                });
            }
            "flood" => {
                let mut frames = 0;
                while lane.push(notification("n", Some(&format!("\"{}\"", "x".repeat(100_000))))) {
                    frames += 1;
                    assert!(frames < 100_000, "nobody stops it");
                }
                assert!(lane.is_closed());
                self.tell("flooded".into());
            }
            _ => lane.finish(error_response(id, -32601, "what?")),
        }
    }

    fn watch(self: &Arc<Self>, lane: ResponseStream, what: &'static str) {
        let parrot = self.clone();
        tokio::spawn(async move {
            lane.closed().await;
            parrot.tell(format!("{what} left"));
        });
    }

    /// The lane of the first who listened.
    pub(super) fn unasked_lane(&self) -> ResponseStream {
        self.unasked.lock().unwrap()[0].clone()
    }

    /// Lets what is slow be answered.
    pub(super) fn go_on(&self) {
        self.go.cancel();
    }

    pub(super) fn has_sessions(&self) -> bool {
        !self.sessions.lock().unwrap().is_empty()
    }

    fn tell(&self, what: String) {
        let _ = self.told.send(what);
    }
}

pub(super) fn parrot() -> (Arc<Parrot>, mpsc::Receiver<String>) {
    let (told, heard) = mpsc::channel();
    let (sessions, unasked, go) = (Mutex::default(), Mutex::default(), CancellationToken::new());
    (Arc::new(Parrot { sessions, unasked, told, go }), heard)
}

struct Served {
    address: SocketAddr,
    parrot: Arc<Parrot>,
    heard: mpsc::Receiver<String>,
    stop: CancellationToken,
    thread: Option<std::thread::JoinHandle<()>>,
}

fn serve(face: HttpFace) -> Served {
    let (parrot, heard) = parrot();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let (host, until) = (parrot.clone(), stop.clone());
    let thread = std::thread::spawn(move || {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            face.serve(listener, host, until).await;
        });
    });
    Served { address, parrot, heard, stop, thread: Some(thread) }
}

/// No deadline is met by chance, on the busiest machine; a test that waits for one says so.
fn patient() -> HttpFace {
    HttpFace {
        head_within: SOON * 2,
        body_grace: SOON * 2,
        idle_within: SOON * 2,
        write_within: SOON * 2,
        keep_alive: Duration::from_millis(100),
        ..HttpFace::default()
    }
}

impl Served {
    fn connect(&self) -> Caller {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream.set_write_timeout(Some(SOON)).unwrap();
        Caller { stream, rest: Vec::new() }
    }

    /// One request on a connection of its own.
    fn ask(&self, request: &str) -> Response {
        let mut caller = self.connect();
        caller.send(request);
        caller.response()
    }

    /// A session at `/mcp`.
    fn begun(self) -> Self {
        let response = self.ask(&post("/mcp", "", INITIALIZE));
        assert_eq!((response.status, response.header("mcp-session-id")), (200, Some("s")));
        self
    }

    fn hear(&self, expected: &str) {
        assert_eq!(self.heard.recv_timeout(SOON).as_deref(), Ok(expected));
    }

    fn end(mut self) {
        self.stop.cancel();
        self.thread.take().unwrap().join().unwrap();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

struct Caller {
    stream: TcpStream,
    rest: Vec<u8>,
}

#[derive(Debug)]
struct Response {
    status: u16,
    head: String,
    body: String,
    /// False if the connection ended before the body did.
    whole: bool,
}

impl Response {
    fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(given, _)| given.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    fn events(&self) -> Vec<&str> {
        self.body.split("\n\n").filter_map(|event| event.strip_prefix("event: message\ndata: ")).collect()
    }
}

impl Caller {
    fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).unwrap();
    }

    fn more(&mut self) -> bool {
        let mut buffer = [0; 65536];
        match self.stream.read(&mut buffer) {
            Ok(0) | Err(_) => false,
            Ok(read) => {
                self.rest.extend_from_slice(&buffer[..read]);
                true
            }
        }
    }

    fn until(&mut self, mark: &str) -> Option<String> {
        loop {
            let found = self.rest.windows(mark.len()).position(|window| window == mark.as_bytes());
            if let Some(at) = found {
                let text = self.rest.drain(..at + mark.len()).collect();
                return Some(String::from_utf8(text).unwrap());
            }
            if !self.more() {
                return None;
            }
        }
    }

    /// Says something. None if it was hung up on instead of being answered.
    fn welcomed(mut self) -> Option<Self> {
        let _ = self.stream.write_all(post("/mcp", SESSION, NOTICE).as_bytes());
        let head = self.until("\r\n\r\n")?;
        assert!(head.contains(" 202 "), "{head}");
        Some(self)
    }

    /// Whether it is hung up on before it has sent all of this, byte by byte.
    fn is_cut_off(&mut self, bytes: &[u8]) -> bool {
        bytes.iter().any(|byte| {
            std::thread::sleep(Duration::from_millis(20));
            self.stream.write_all(&[*byte]).is_err()
        })
    }

    fn exactly(&mut self, length: usize) -> Option<String> {
        while self.rest.len() < length {
            if !self.more() {
                return None;
            }
        }
        Some(String::from_utf8(self.rest.drain(..length).collect()).unwrap())
    }

    fn head(&mut self) -> Response {
        let head = self.until("\r\n\r\n").expect("a response");
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Response { status, head, body: String::new(), whole: true }
    }

    fn chunk(&mut self) -> Option<String> {
        let size = self.until("\r\n")?;
        let size = usize::from_str_radix(size.trim(), 16).unwrap();
        let text = self.exactly(size + 2)?;
        Some(text[..size].to_owned())
    }

    fn response(&mut self) -> Response {
        let mut response = self.head();
        if let Some(length) = response.header("content-length") {
            let length = length.parse().unwrap();
            match self.exactly(length) {
                Some(body) => response.body = body,
                None => response.whole = false,
            }
        } else if response.header("transfer-encoding") == Some("chunked") {
            loop {
                match self.chunk() {
                    Some(chunk) if chunk.is_empty() => break,
                    Some(chunk) => response.body += &chunk,
                    None => {
                        response.whole = false;
                        break;
                    }
                }
            }
        }
        response
    }

    /// Reads until the other side hangs up; fails if it does not.
    fn ended(&mut self) {
        let since = Instant::now();
        while self.more() {}
        assert!(since.elapsed() < SOON, "it was not hung up");
    }
}

const ACCEPT: &str = "Accept: application/json, text/event-stream\r\n";
const SESSION: &str = "Mcp-Session-Id: s\r\n";

fn post(path: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nHost: localhost:1\r\nContent-Type: application/json\r\n{ACCEPT}{headers}\
         Content-Length: {length}\r\n\r\n{body}"
    )
}

fn bare(method: &str, path: &str, headers: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{headers}\r\n")
}

fn request(method: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":"q","method":"{method}","params":{{"a":1.50,"z":[]}}}}"#)
}

fn check(request: &str, status: u16, says: &str) {
    let served = serve(patient()).begun();
    let response = served.ask(request);
    assert_eq!(response.status, status, "{request}\n{response:?}");
    assert!(response.body.contains(says), "{request}\n{response:?}");
}

// req: GW-01
#[test]
fn a_request_with_one_answer_is_answered_by_json() {
    let served = serve(patient()).begun();
    let response = served.ask(&post("/mcp", SESSION, &request("echo")));
    assert_eq!(response.header("content-type"), Some("application/json"));
    assert_eq!(response.body, r#"{"jsonrpc":"2.0","id":"q","result":{"a":1.50,"z":[]}}"#);
}

// req: GW-01
#[test]
fn a_server_alone_has_sessions_of_its_own() {
    let served = serve(patient()).begun();
    let response = served.ask(&post("/servers/a%20b/mcp?x=y", "", INITIALIZE));
    assert_eq!(response.header("mcp-session-id"), Some("s-of-a b"));
    let alone = "Mcp-Session-Id: s-of-a b\r\n";
    assert_eq!(served.ask(&post("/servers/a%20b/mcp", alone, &request("echo"))).status, 200);
    assert_eq!(served.ask(&post("/mcp", alone, &request("echo"))).status, 404);
    assert_eq!(served.ask(&post("/servers/a%20b/mcp", SESSION, &request("echo"))).status, 404);
}

// req: GW-01
#[test]
fn a_refused_beginning_is_an_answer_without_a_session() {
    let served = serve(patient());
    let response = served.ask(&post("/mcp", "", &INITIALIZE.replace("{}", "\"refuse\"")));
    assert_eq!((response.status, response.header("mcp-session-id")), (200, None));
    assert!(response.body.contains("-32602"));
}

#[test]
fn other_paths_and_methods_are_refused() {
    for path in [
        "/",
        "/mcp/",
        "/mcpx",
        "/servers//mcp",
        "/servers/a/b/mcp",
        "/servers/mcp",
        "/servers/%zz/mcp",
        "/servers/%f/mcp",
        "/servers/%ff/mcp",
    ] {
        check(&bare("GET", path, ACCEPT), 404, "nothing here");
    }
    let served = serve(patient());
    for method in ["PUT", "OPTIONS", "PATCH", "HEAD"] {
        let response = served.connect_and_head(&bare(method, "/mcp", ""));
        assert_eq!((response.status, response.header("allow")), (405, Some("POST, GET, DELETE")), "{method}");
    }
}

impl Served {
    fn connect_and_head(&self, request: &str) -> Response {
        let mut caller = self.connect();
        caller.send(request);
        caller.head()
    }
}

#[test]
fn a_post_is_json_and_takes_both_kinds_of_answer() {
    let good = post("/mcp", SESSION, &request("echo"));
    check(&good.replace("Content-Type: application/json", "Content-Type: text/plain"), 415, "Content-Type");
    check(&good.replace("Content-Type: application/json\r\n", ""), 415, "Content-Type");
    check(&good.replace("application/json\r\n", "Application/JSON; charset=utf-8\r\n"), 200, "result");
    for accept in
        ["", "Accept: application/json\r\n", "Accept: text/event-stream\r\n", "Accept: text/*, image/png\r\n"]
    {
        check(&good.replace(ACCEPT, accept), 406, "Accept");
    }
    for accept in ["*/*", "text/*, Application/*;q=0.5", "text/event-stream\r\nAccept: application/json"] {
        check(&good.replace(ACCEPT, &format!("Accept: {accept}\r\n")), 200, "result");
    }
}

#[test]
fn a_post_is_one_message() {
    check(&post("/mcp", SESSION, "{oops"), 400, "-32700");
    check(&post("/mcp", SESSION, ""), 400, "-32700");
    check(&post("/mcp", SESSION, "\u{0}\u{1}"), 400, "-32700");
    check(&post("/mcp", SESSION, &format!("[{}]", request("echo"))), 400, "-32600");
    check(&post("/mcp", SESSION, r#"{"jsonrpc":"1.0","id":1,"method":"x"}"#), 400, "-32600");
    check(&post("/mcp", SESSION, "7"), 400, "-32600");
}

#[test]
fn whatever_does_not_begin_needs_a_session() {
    let unknown = "Mcp-Session-Id: other\r\n";
    for body in [&request("echo"), NOTICE] {
        check(&post("/mcp", "", body), 400, "Mcp-Session-Id");
        check(&post("/mcp", unknown, body), 404, "no such session");
        check(&post("/mcp", "Mcp-Session-Id: \u{e9}\r\n", body), 404, "no such session");
    }
    check(&post("/mcp", unknown, INITIALIZE), 404, "no such session");
    check(&post("/mcp", "", &request("echo")), 400, r#""id":"q""#);
    check(&bare("GET", "/mcp", ACCEPT), 400, "Mcp-Session-Id");
    check(&bare("GET", "/mcp", &format!("{ACCEPT}{unknown}")), 404, "no such session");
    check(&bare("DELETE", "/mcp", ""), 400, "Mcp-Session-Id");
    check(&bare("DELETE", "/mcp", unknown), 404, "no such session");
}

#[test]
fn an_unknown_version_is_refused_and_known_ones_are_not() {
    for version in crate::ProtocolVersion::ALL {
        check(
            &post("/mcp", &format!("{SESSION}MCP-Protocol-Version: {version}\r\n"), &request("echo")),
            200,
            "",
        );
    }
    for version in ["1999-01-01", "", "2025-11-25x"] {
        let headers = format!("{SESSION}MCP-Protocol-Version: {version}\r\n");
        check(&post("/mcp", &headers, &request("echo")), 400, "MCP-Protocol-Version");
    }
}

#[test]
fn what_wants_no_answer_is_accepted_and_heard() {
    let served = serve(patient()).begun();
    for body in [NOTICE, r#"{"jsonrpc":"2.0","id":9,"result":{"x":1e2}}"#] {
        let response = served.ask(&post("/mcp", SESSION, body));
        assert_eq!((response.status, &*response.body), (202, ""));
        served.hear(body);
    }
}

#[test]
fn a_session_that_was_deleted_is_gone() {
    let served = serve(patient()).begun();
    assert_eq!(served.ask(&bare("DELETE", "/mcp", SESSION)).status, 204);
    assert_eq!(served.ask(&bare("DELETE", "/mcp", SESSION)).status, 404);
    assert_eq!(served.ask(&post("/mcp", SESSION, &request("echo"))).status, 404);
}

// req: GW-03
#[test]
fn two_hundred_notifications_come_in_order_before_the_answer() {
    let served = serve(patient()).begun();
    let response = served.ask(&post("/mcp", SESSION, &request("count")));
    assert_eq!(response.header("content-type"), Some("text/event-stream"));
    let events = response.events();
    assert_eq!(events.len(), 201);
    for (n, event) in events[..200].iter().enumerate() {
        assert_eq!(*event, format!(r#"{{"jsonrpc":"2.0","method":"n","params":{n}}}"#));
    }
    assert_eq!(events[200], r#"{"jsonrpc":"2.0","id":"q","result":{"a":1.50,"z":[]}}"#);
    assert!(response.whole);
}

// req: GW-03
#[test]
fn a_request_that_is_dropped_ends_in_an_error() {
    check(&post("/mcp", SESSION, &request("drop")), 200, r#""id":"q","error":{"code":-32000"#);
    check(&post("/mcp", SESSION, &request("drop-after-one")), 200, r#""id":"q","error":{"code":-32000"#);
}

#[test]
fn a_slow_answer_comes_on_a_stream_that_shows_life() {
    let served = serve(patient()).begun();
    let mut caller = served.connect();
    caller.send(&post("/mcp", SESSION, &request("slow")));
    assert_eq!(caller.head().header("content-type"), Some("text/event-stream"));
    assert_eq!(caller.chunk().as_deref(), Some(": still here\n\n"));
    served.parrot.go_on();
    let answer = std::iter::from_fn(|| caller.chunk()).find(|chunk| !chunk.starts_with(':')).unwrap();
    assert!(
        answer.ends_with("data: {\"jsonrpc\":\"2.0\",\"id\":\"q\",\"result\":{\"a\":1.50,\"z\":[]}}\n\n"),
        "{answer}"
    );
    assert_eq!(caller.chunk().as_deref(), Some(""), "the stream is whole");
}

// req: GW-03
#[test]
fn a_message_over_several_lines_becomes_one() {
    let served = serve(patient()).begun();
    let body = "{\n\"jsonrpc\": \"2.0\",\r\n\"method\": \"m\"\n}";
    assert_eq!(served.ask(&post("/mcp", SESSION, body)).status, 202);
    served.hear("{ \"jsonrpc\": \"2.0\",  \"method\": \"m\" }");
}

#[test]
fn requests_that_come_at_once_are_answered_one_after_the_other() {
    let served = serve(patient()).begun();
    let mut caller = served.connect();
    let three =
        [request("echo"), request("count"), NOTICE.to_owned()].map(|body| post("/mcp", SESSION, &body));
    caller.send(&three.concat());
    assert_eq!(caller.response().header("content-type"), Some("application/json"));
    assert_eq!(caller.response().events().len(), 201);
    assert_eq!(caller.response().status, 202);
}

#[test]
fn a_connection_serves_until_it_has_been_idle_for_long() {
    let (head_within, idle_within) = (Duration::from_secs(2), Duration::from_secs(2));
    let served = serve(HttpFace { head_within, idle_within, ..patient() }).begun();
    let mut caller = served.connect();
    // Longer altogether than a head may take, and than a connection may be idle.
    for _ in 0..30 {
        caller.send(&post("/mcp", SESSION, &request("echo")));
        assert_eq!(caller.response().status, 200);
        std::thread::sleep(Duration::from_millis(100));
    }
    caller.ended();
}

// req: GW-07
#[test]
fn pages_of_strangers_are_kept_out() {
    let good = post("/mcp", SESSION, &request("echo"));
    check(&good.replace("localhost:1", "evil.example"), 403, "Host");
    check(&good.replace("Host: localhost:1\r\n", ""), 403, "Host");
    check(&good.replace("Host: localhost:1\r\n", "Host: localhost\r\nHost: evil.example\r\n"), 403, "host");
    check(&good.replace("POST /mcp", "POST http://evil.example/mcp"), 403, "Host");
    check(&good.replace(ACCEPT, &format!("{ACCEPT}Origin: http://evil.example\r\n")), 403, "Origin");
    check(&good.replace(ACCEPT, &format!("{ACCEPT}Origin: null\r\n")), 403, "Origin");
    check(&good.replace(ACCEPT, &format!("{ACCEPT}Origin: http://localhost:5173\r\n")), 200, "result");
    check(&good.replace("localhost:1", "[::1]:7"), 200, "result");
}

fn with_tokens(tokens: &[&str]) -> Admitted {
    let tokens = tokens.iter().map(|token| Secret::new((*token).to_owned())).collect();
    Admitted { tokens, ..Admitted::default() }
}

// req: GW-07
#[test]
fn tokens_can_change_while_clients_are_there() {
    let (change, admitted) = watch::channel(with_tokens(&["one", "two"]));
    let served = serve(HttpFace { admitted, keep_alive: SOON * 2, idle_within: SOON, ..patient() });
    let shown = |token: &str| format!("{SESSION}Authorization: Bearer {token}\r\n");
    let begun = served.ask(&post("/mcp", "Authorization: Bearer one\r\n", INITIALIZE));
    assert_eq!(begun.status, 200);
    let mut listening = served.connect();
    listening.send(&bare("GET", "/mcp", &format!("Accept: text/event-stream\r\n{}", shown("one"))));
    assert_eq!(listening.head().status, 200);
    let mut waiting = served.connect();
    waiting.send(&post("/mcp", &shown("one"), &request("slow")));
    while served.heard.recv_timeout(SOON).unwrap() != "hanging" {}
    let mut idle = served.connect();
    idle.send(&post("/mcp", &shown("one"), &request("echo")));
    assert_eq!(idle.response().status, 200);
    change.send_replace(with_tokens(&["two", "three"]));
    idle.send(&post("/mcp", &shown("one"), &request("echo")));
    assert_eq!(idle.response().status, 401);
    served.parrot.go_on();
    let answered = waiting.response();
    assert!(answered.status == 200 && answered.body.contains("result"), "{answered:?}");
    assert_eq!(listening.chunk().as_deref(), Some(""), "its stream goes on");
    for (token, status) in [("one", 401), ("two", 200), ("three", 200)] {
        assert_eq!(served.ask(&post("/mcp", &shown(token), &request("echo"))).status, status, "{token}");
    }
}

// req: GW-07
#[test]
fn a_connection_is_idle_when_its_stream_has_ended() {
    let served = serve(HttpFace { idle_within: SHORT, ..patient() }).begun();
    let mut answered = served.connect();
    answered.send(&post("/mcp", SESSION, &request("slow")));
    assert_eq!(answered.head().status, 200);
    served.parrot.go_on();
    assert!(std::iter::from_fn(|| answered.chunk()).any(|chunk| chunk.contains("result")));
    answered.ended();
    let mut listening = served.connect();
    listening.send(&bare("GET", "/mcp", &format!("Accept: text/event-stream\r\n{SESSION}")));
    assert_eq!(listening.head().status, 200);
    served.parrot.unasked_lane().close();
    listening.ended();
}

// req: GW-07
#[test]
fn who_may_come_no_more_is_hung_up_on() {
    let nobody = Admitted { peers: Some(|_, _, _| false), ..Admitted::default() };
    let (change, admitted) = watch::channel(Admitted { peers: Some(|_, _, _| true), ..Admitted::default() });
    let served = serve(HttpFace { admitted, idle_within: SOON * 2, ..patient() }).begun();
    let mut idle = served.connect();
    idle.send(&post("/mcp", SESSION, &request("echo")));
    assert_eq!(idle.response().status, 200);
    change.send_replace(nobody);
    idle.ended();
    assert_eq!(served.ask(&post("/mcp", SESSION, &request("echo"))).status, 403);
}

// req: GW-07
#[test]
fn who_may_not_speak_to_us_keeps_no_connection() {
    let admitted = watch::channel(with_tokens(&["one"])).1;
    let served = serve(HttpFace { admitted, idle_within: SOON * 2, ..patient() });
    for (request, status) in [
        (post("/mcp", "", INITIALIZE), 401),
        (
            post("/mcp", "Authorization: Bearer one\r\n", INITIALIZE).replace("localhost:1", "evil.example"),
            403,
        ),
    ] {
        let mut caller = served.connect();
        caller.send(&request);
        let response = caller.response();
        assert_eq!((response.status, response.header("connection")), (status, Some("close")));
        caller.ended();
    }
}

// req: GW-07
#[test]
fn a_token_is_asked_for_and_checked() {
    let served = serve(HttpFace { admitted: watch::channel(with_tokens(&["one", "two"])).1, ..patient() });
    for wrong in
        ["", "Authorization: Bearer on\r\n", "Authorization: Basic one\r\n", "Authorization: Bearer\r\n"]
    {
        let response = served.ask(&post("/mcp", wrong, INITIALIZE));
        assert_eq!((response.status, response.header("www-authenticate")), (401, Some("Bearer")), "{wrong}");
        assert_eq!(served.ask(&bare("GET", "/nowhere", wrong)).status, 401);
    }
    for right in ["one", "two"] {
        let header = format!("Authorization: Bearer {right}\r\n");
        assert_eq!(served.ask(&post("/mcp", &header, INITIALIZE)).status, 200);
    }
}

// req: GW-07
// req: GW-03
#[test]
fn a_body_that_is_too_long_is_refused_before_it_is_read() {
    let served = serve(HttpFace { body_limit: 1000, ..patient() }).begun();
    let long = post("/mcp", SESSION, &"x".repeat(1001));
    let (head, body) = long.split_once("\r\n\r\n").unwrap();
    let mut caller = served.connect();
    caller.send(&format!("{head}\r\n\r\n"));
    assert_eq!(caller.head().status, 413);
    // Who writes everything first sees the reason too.
    let response = served.ask(&format!("{head}\r\n\r\n{body}"));
    assert_eq!(response.status, 413);
    assert!(response.body.contains("1000 bytes"), "{response:?}");
    // Without a length it is found out on the way, and a gigabyte is not waited for.
    let chunked = long.replace("Content-Length: 1001", "Transfer-Encoding: chunked");
    let (head, _) = chunked.split_once("\r\n\r\n").unwrap();
    caller = served.connect();
    caller.send(&format!("{head}\r\n\r\n40000000\r\n{}", "x".repeat(1001)));
    assert_eq!(caller.head().status, 413);
    let _ = caller.stream.write_all(&vec![b'x'; 3000]);
    caller.ended();
    // Who asks first is not told to go on.
    let asking = long.replace(ACCEPT, &format!("{ACCEPT}Expect: 100-continue\r\n"));
    caller = served.connect();
    caller.send(asking.split_once("\r\n\r\n").map(|(head, _)| format!("{head}\r\n\r\n")).unwrap().as_str());
    assert_eq!(caller.response().status, 413);
}

// req: GW-07
#[test]
fn long_messages_share_a_bounded_room_and_short_ones_need_none() {
    let served = serve(HttpFace { body_room: 300_000, body_grace: SOON, ..patient() }).begun();
    let long = post("/mcp", SESSION, &format!("{NOTICE}{}", " ".repeat(250_000)));
    let attempt = |_| {
        let mut first = served.connect();
        first.send(&long[..200_000]);
        let response = served.ask(&long);
        if response.status == 503 {
            return Some((first, response));
        }
        // Not enough of the first had been read by then.
        let _ = first.stream.write_all(&long.as_bytes()[200_000..]);
        first.response();
        None
    };
    let (mut first, response) = (0..1000).find_map(attempt).expect("there is room without end");
    assert_eq!(response.header("retry-after"), Some("1"));
    assert_eq!(served.ask(&post("/mcp", SESSION, NOTICE)).status, 202);
    first.send(&long[200_000..]);
    assert_eq!(first.response().status, 202);
    assert_eq!(served.ask(&long).status, 202);
}

// req: GW-03
#[test]
fn a_long_message_passes_both_ways() {
    let served = serve(HttpFace::default()).begun();
    let body = request("echo").replace("1.50", &format!("\"{}\"", "y".repeat(8 << 20)));
    let response = served.ask(&post("/mcp", SESSION, &body));
    let expected = body.replace(r#""method":"echo","params""#, r#""result""#);
    assert!(response.body == expected, "not as it was sent");
}

// req: GW-07
#[test]
fn a_head_that_trickles_is_cut_off() {
    let served = serve(HttpFace { head_within: SHORT, ..patient() });
    let mut silent = served.connect();
    let mut caller = served.connect();
    let head = post("/mcp", SESSION, NOTICE);
    assert!(caller.is_cut_off(head.as_bytes()), "it was let go on");
    caller.ended();
    silent.ended();
}

// req: GW-07
#[test]
fn a_second_head_that_trickles_is_cut_off_too() {
    let served = serve(HttpFace { head_within: Duration::from_secs(2), ..patient() }).begun();
    let mut caller = served.connect();
    caller.send(&post("/mcp", SESSION, NOTICE));
    assert_eq!(caller.response().status, 202);
    assert!(caller.is_cut_off(&[b'P'; 1000]), "it was let go on");
}

// req: GW-07
#[test]
fn a_body_that_trickles_is_cut_off() {
    let served = serve(HttpFace { body_grace: SHORT, ..patient() }).begun();
    let mut caller = served.connect();
    let message = post("/mcp", SESSION, &format!("{NOTICE}{}", " ".repeat(1000)));
    let (head, body) = message.split_once("\r\n\r\n").unwrap();
    caller.send(&format!("{head}\r\n\r\n"));
    let since = Instant::now();
    for byte in body.bytes() {
        if since.elapsed() > Duration::from_secs(1) || caller.stream.write_all(&[byte]).is_err() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let response = caller.response();
    assert_eq!((response.status, response.header("connection")), (408, Some("close")));
    caller.ended();
}

// req: GW-07
#[test]
fn garbage_and_huge_heads_harm_nobody() {
    let within = Duration::from_secs(3);
    let served = serve(HttpFace { head_within: within, idle_within: within, ..patient() }).begun();
    let many = "X-A: b\r\n".repeat(200);
    let long = format!("X-A: {}\r\n", "b".repeat(1 << 20));
    let cases = [
        "\0\u{1}\u{2}\r\n\r\n".to_owned(),
        "GET\r\n\r\n".to_owned(),
        "POST /mcp HTTP/9.9\r\n\r\n".to_owned(),
        post("/mcp", SESSION, NOTICE).replace("Content-Length: ", "Content-Length: -"),
        post("/mcp", SESSION, NOTICE).replace("Content-Length: ", "Content-Length: 99999999999999999999"),
        post("/mcp", &format!("{SESSION}Transfer-Encoding: nonsense\r\n"), NOTICE),
        post("/mcp", &format!("{SESSION}{many}"), NOTICE),
        post("/mcp", &format!("{SESSION}{long}"), NOTICE),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
    ];
    for case in cases {
        let mut caller = served.connect();
        let _ = caller.stream.write_all(case.as_bytes());
        caller.ended();
        let said = String::from_utf8_lossy(&caller.rest).into_owned();
        assert!(said.is_empty() || said.starts_with("HTTP/1.1 4"), "{:.80}\n{said}", case);
    }
    assert_eq!(served.ask(&post("/mcp", SESSION, &request("echo"))).status, 200);
}

#[test]
fn a_client_that_leaves_before_the_answer_is_missed() {
    let served = serve(patient()).begun();
    for close in [Shutdown::Both, Shutdown::Write] {
        let mut caller = served.connect();
        caller.send(&post("/mcp", SESSION, &request("hang")));
        served.hear("hanging");
        caller.stream.shutdown(close).unwrap();
        served.hear("request left");
    }
}

#[test]
fn a_client_that_leaves_in_the_middle_of_a_stream_is_missed() {
    let served = serve(patient()).begun();
    let mut caller = served.connect();
    caller.send(&post("/mcp", SESSION, &request("hang-after-one")));
    assert_eq!(caller.head().status, 200);
    assert!(caller.chunk().unwrap().contains("\"method\":\"n\""));
    drop(caller);
    served.hear("request left");
}

// req: GW-07
#[test]
fn a_client_that_does_not_read_is_cut_off() {
    let served = serve(HttpFace { lane_limit: 1 << 20, ..patient() }).begun();
    let mut caller = served.connect();
    caller.send(&post("/mcp", SESSION, &request("flood")));
    served.hear("flooded");
    let response = caller.response();
    assert!(!response.whole || response.body.contains("error"), "it must not look whole: {response:?}");

    // What is said fits the lane, but nobody takes it from the socket.
    let served = serve(HttpFace { write_within: SHORT, ..patient() }).begun();
    let mut caller = served.connect();
    caller.send(&post("/mcp", SESSION, &request("hang-after-much")));
    served.hear("request left");
    assert!(!caller.response().whole);
}

#[test]
fn what_is_said_unasked_comes_on_the_get_stream() {
    let served = serve(patient()).begun();
    let mut caller = served.connect();
    caller.send(&bare("GET", "/mcp", &format!("{SESSION}Accept: text/event-stream\r\n")));
    let head = caller.head();
    assert_eq!((head.status, head.header("content-type")), (200, Some("text/event-stream")));
    let lane = served.parrot.unasked_lane();
    assert!(lane.push(b"{\"a\":\n1}".to_vec()));
    let first = std::iter::from_fn(|| caller.chunk()).find(|chunk| !chunk.starts_with(':'));
    assert_eq!(first.as_deref(), Some("event: message\ndata: {\"a\": 1}\n\n"));
    assert_eq!(caller.chunk().as_deref(), Some(": still here\n\n"));
    assert_eq!(caller.chunk().as_deref(), Some(": still here\n\n"));
    drop(caller);
    served.hear("listener left");
    assert!(!lane.push(b"{}".to_vec()));
    assert_eq!(
        served.ask(&bare("GET", "/mcp", &format!("{SESSION}Accept: application/json\r\n"))).status,
        406
    );
}

#[test]
fn a_newer_get_stream_takes_the_place_of_an_older_one() {
    let served = serve(patient()).begun();
    let get = bare("GET", "/mcp", &format!("{SESSION}{ACCEPT}"));
    let (mut older, mut newer) = (served.connect(), served.connect());
    older.send(&get);
    assert_eq!(older.head().status, 200);
    newer.send(&get);
    assert_eq!(newer.head().status, 200);
    served.hear("listener left");
    while older.chunk().is_some_and(|chunk| !chunk.is_empty()) {}
    older.send(&post("/mcp", SESSION, &request("echo")));
    assert_eq!(older.response().status, 200, "the connection goes on");
    let lanes = served.parrot.unasked.lock().unwrap();
    assert_eq!(lanes.iter().map(ResponseStream::is_closed).collect::<Vec<_>>(), [true, false]);
}

// req: GW-07
#[test]
fn one_connection_too_many_is_hung_up_on() {
    let served = serve(HttpFace { connections: 2, idle_within: SOON * 2, ..patient() }).begun();
    // It may not have noticed yet that an earlier one has left.
    let welcomed = || (0..10_000).find_map(|_| served.connect().welcomed()).expect("there is room for two");
    let callers = [welcomed(), welcomed()];
    let mut third = served.connect();
    third.ended();
    assert!(third.rest.is_empty());
    drop(callers);
    welcomed();
}

// req: GW-07
#[test]
fn who_only_connects_is_not_asked_about_and_others_once() {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let admit = |_, _, _| ASKED.fetch_add(1, Ordering::Relaxed) < usize::MAX;
    let admitted = watch::channel(Admitted { peers: Some(admit), ..Admitted::default() }).1;
    let served = serve(HttpFace { admitted, ..HttpFace::default() }).begun();
    for _ in 0..500 {
        drop(served.connect());
        served.connect().send("POST /mcp HTTP/1.1\r\nhost: loc");
    }
    for _ in 0..50 {
        assert_eq!(served.ask(&bare("GET", "/mcp", "origin: https://evil.example\r\n")).status, 403);
    }
    assert_eq!(ASKED.load(Ordering::Relaxed), 1, "who began the session");
    let mut caller = served.connect();
    for _ in 0..50 {
        caller.send(&post("/mcp", SESSION, NOTICE));
        assert_eq!(caller.response().status, 202);
    }
    assert_eq!(ASKED.load(Ordering::Relaxed), 2);
}

// req: GW-07
#[test]
fn a_crowd_is_asked_about_one_by_one_and_those_who_may_not_come_are_hung_up_on() {
    static AT_ONCE: AtomicUsize = AtomicUsize::new(0);
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let admit = |_, _, asked: Instant| {
        assert_eq!(AT_ONCE.fetch_add(1, Ordering::SeqCst), 0);
        assert!(asked <= Instant::now());
        std::thread::yield_now();
        AT_ONCE.fetch_sub(1, Ordering::SeqCst);
        // The first one may.
        ASKED.fetch_add(1, Ordering::SeqCst) == 0
    };
    let admitted = watch::channel(Admitted { peers: Some(admit), ..Admitted::default() }).1;
    let served = serve(HttpFace { admitted, ..HttpFace::default() }).begun();
    let mut crowd: Vec<_> = (0..200).map(|_| served.connect()).collect();
    for caller in &mut crowd {
        caller.send(&post("/mcp", SESSION, NOTICE));
    }
    for caller in &mut crowd {
        assert_eq!(caller.response().status, 403);
        caller.ended();
    }
    assert_eq!(ASKED.load(Ordering::SeqCst), 201);
}

#[test]
fn at_the_end_open_requests_are_answered_and_streams_ended() {
    let served = serve(HttpFace { keep_alive: SOON, ..patient() }).begun();
    let (mut asking, mut listening, mut hanging) = (served.connect(), served.connect(), served.connect());
    listening.send(&bare("GET", "/mcp", &format!("{SESSION}{ACCEPT}")));
    assert_eq!(listening.head().status, 200);
    hanging.send(&post("/mcp", SESSION, &request("hang")));
    served.hear("hanging");
    asking.send(&post("/mcp", SESSION, &request("slow")));
    served.hear("hanging");
    served.stop.cancel();
    listening.ended();
    assert!(listening.rest.ends_with(b"0\r\n\r\n"));
    served.parrot.go_on();
    assert!(asking.response().body.contains("result"), "what was open at the end is answered after it");
    let address = served.address;
    served.end();
    hanging.ended();
    assert!(TcpStream::connect(address).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    // req: GW-03
    #[test]
    fn frames_pass_byte_for_byte(texts in prop::collection::vec(".*", 1..8), number in "-?[1-9][0-9]{0,30}(\\.[0-9]{1,9})?(e[0-9]{1,3})?") {
        static SERVED: std::sync::OnceLock<SocketAddr> = std::sync::OnceLock::new();
        let address = *SERVED.get_or_init(|| {
            let served = serve(HttpFace::default()).begun();
            let address = served.address;
            std::mem::forget(served);
            address
        });
        let params = format!("[{number},{}]", serde_json::to_string(&texts).unwrap());
        let mut caller = Caller { stream: TcpStream::connect(address).unwrap(), rest: Vec::new() };
        for method in ["echo", "count"] {
            let body = format!(r#"{{"jsonrpc":"2.0","id":{number},"method":"{method}","params":{params}}}"#);
            caller.send(&post("/mcp", SESSION, &body));
            let response = caller.response();
            let expected = format!(r#"{{"jsonrpc":"2.0","id":{number},"result":{params}}}"#);
            let last = response.events().last().map_or(response.body.clone(), |event| (*event).to_owned());
            prop_assert_eq!(last, expected);
        }
    }
}
