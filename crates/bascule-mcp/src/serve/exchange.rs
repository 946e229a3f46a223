//! Turns one HTTP request into one response, by the rules of Streamable HTTP.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use hyper::body::{Body as _, Incoming};
use memchr::memchr2;
use percent_encoding::percent_decode_str;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tracing::debug;

use super::admission::admit;
use super::body::{Content, Events, Outgoing, Parting, unanswered};
use super::caller::{Caller, Turn};
use super::refusal::Refusal;
use super::response_stream::{Closer, Frame, Reader};
use super::wire::Busy;
use super::{ClientMessage, Endpoint, Host, HttpFace, ResponseStream, inbound};
use crate::envelope::one_line;
use crate::{Message, MessageError, ProtocolVersion, RpcError};

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";

/// What all connections share.
pub(super) struct Reception<H> {
    pub(super) face: HttpFace,
    pub(super) host: Arc<H>,
    /// For the bodies that are being read.
    pub(super) room: Semaphore,
    /// To be asked who one is.
    pub(super) turn: Turn,
    pub(super) listeners: Arc<Listeners>,
}

impl<H: Host> Reception<H> {
    /// Answers a request, whatever it is.
    pub(super) async fn answer(
        &self,
        request: Request<Incoming>,
        caller: &Caller,
        busy: Busy,
    ) -> Response<Outgoing> {
        let (head, body) = request.into_parts();
        let mut body = Some(body);
        let response = match self.respond(&head, caller, &mut body).await {
            Ok(response) => response,
            Err(refusal) => {
                debug!(status = refusal.status.as_u16(), method = %head.method, "request refused");
                self.refuse(&head, refusal, body)
            }
        };
        response.map(|content| content.during(busy))
    }

    async fn respond(
        &self,
        head: &Parts,
        caller: &Caller,
        body: &mut Option<Incoming>,
    ) -> Result<Response<Content>, Refusal> {
        // Who may not speak to us does not keep a endpoint by trying.
        admit(&self.face.admitted.borrow(), head).map_err(Refusal::and_close)?;
        caller.admit(&self.face.admitted, &self.turn).await?;
        let endpoint = endpoint(head.uri.path())
            .ok_or_else(|| Refusal::not_found("there is nothing here; try `/mcp`"))?;
        match head.method {
            Method::POST => self.post(endpoint, &head.headers, body).await,
            Method::GET => self.get(endpoint, &head.headers),
            Method::DELETE => self.delete(&endpoint, &head.headers),
            _ => Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "only POST, GET and DELETE")
                .with(header::ALLOW, "POST, GET, DELETE")),
        }
    }

    async fn post(
        &self,
        endpoint: Endpoint,
        headers: &HeaderMap,
        body: &mut Option<Incoming>,
    ) -> Result<Response<Content>, Refusal> {
        if !is_json(headers) {
            let reason = "`Content-Type` must be application/json";
            return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, reason));
        }
        if !accepts(headers, JSON) || !accepts(headers, EVENTS) {
            let reason = "`Accept` must include application/json and text/event-stream";
            return Err(Refusal::new(StatusCode::NOT_ACCEPTABLE, reason));
        }
        let mut frame = self.read(headers, body).await?;
        straighten(&mut frame).map_err(unreadable)?;
        match self.take(&endpoint, headers, &frame)? {
            Next::Initialize(id) => self.initialize(endpoint, id, frame).await,
            Next::Answer(id, reader) => Ok(self.answer_from(id, reader).await),
            Next::Nothing => Ok(bare(StatusCode::ACCEPTED)),
        }
    }

    /// Hands a message on, unless it is the beginning of a session.
    fn take(&self, endpoint: &Endpoint, headers: &HeaderMap, frame: &[u8]) -> Result<Next, Refusal> {
        let message = ClientMessage::parse(frame).map_err(unreadable)?;
        let id = match &message.message {
            Message::Request { id, method, .. } => {
                let id: Box<str> = id.as_json().into();
                if method == "initialize" && !headers.contains_key(SESSION) {
                    return Ok(Next::Initialize(id));
                }
                Some(id)
            }
            _ => None,
        };
        let client = match self.client(endpoint, headers) {
            Ok(client) => client,
            Err(refusal) => return Err(refusal.of(id)),
        };
        let stream = ResponseStream::new(self.face.lane_limit);
        let reader = stream.reader();
        self.host.deliver(client, message, stream);
        Ok(id.map_or(Next::Nothing, |id| Next::Answer(id, reader)))
    }

    /// Finds the client that sends a request.
    fn client(&self, endpoint: &Endpoint, headers: &HeaderMap) -> Result<Arc<H::Client>, Refusal> {
        self.host.find_session(endpoint, session(headers)?).ok_or_else(no_session)
    }

    async fn read(&self, headers: &HeaderMap, body: &mut Option<Incoming>) -> Result<Vec<u8>, Refusal> {
        let Some(incoming) = body else { return Ok(Vec::new()) };
        let read = inbound::read(incoming, self.face.body_limit, self.face.body_grace, &self.room).await;
        let is_heard_out = matches!(&read, Err(refusal) if refusal.status != StatusCode::REQUEST_TIMEOUT);
        // Who asks whether to go on sending is told by the refusal, and does not.
        if !is_heard_out || headers.contains_key(header::EXPECT) {
            *body = None;
        }
        read
    }

    async fn initialize(
        &self,
        endpoint: Endpoint,
        id: Box<str>,
        frame: Vec<u8>,
    ) -> Result<Response<Content>, Refusal> {
        let lane = ResponseStream::new(self.face.lane_limit);
        let reader = lane.reader();
        let begun = self.host.initialize(endpoint.clone(), frame, lane).await;
        let session = begun.map(|session| self.header_for(&endpoint, &session)).transpose()?;
        let mut response = self.answer_from(id, reader).await;
        if let Some(session) = session {
            response.headers_mut().insert(SESSION, session);
        }
        Ok(response)
    }

    fn header_for(&self, endpoint: &Endpoint, session: &str) -> Result<HeaderValue, Refusal> {
        HeaderValue::from_str(session).map_err(|_| {
            self.host.end_session(endpoint, session);
            Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "the session has an impossible id")
                .code(RpcError::INTERNAL_ERROR)
        })
    }

    /// One answer is JSON. If more comes, or nothing for a while, it is a stream: a connection on which nothing
    /// moves is given up by clients and by what stands between.
    async fn answer_from(&self, id: Box<str>, reader: Reader) -> Response<Content> {
        match timeout(self.face.keep_alive, reader.next()).await {
            Ok(Some(Frame { bytes, last: true })) => typed(JSON, Content::whole(bytes)),
            Ok(None) => typed(JSON, Content::whole(unanswered(&id))),
            Ok(first @ Some(_)) => stream(Events::answering(id, first, reader, self.face.keep_alive)),
            Err(_) => stream(Events::answering(id, None, reader, self.face.keep_alive)),
        }
    }

    fn get(&self, endpoint: Endpoint, headers: &HeaderMap) -> Result<Response<Content>, Refusal> {
        if !accepts(headers, EVENTS) {
            let reason = "`Accept` must include text/event-stream";
            return Err(Refusal::new(StatusCode::NOT_ACCEPTABLE, reason));
        }
        let session = session(headers)?;
        let client = self.host.find_session(&endpoint, session).ok_or_else(no_session)?;
        let lane = self.host.open_stream(&client);
        let reader = lane.reader();
        let listening = self.listeners.enter((endpoint, session.to_owned()), lane.closer());
        Ok(stream(Events::unasked(reader, self.face.keep_alive, listening)))
    }

    fn delete(&self, endpoint: &Endpoint, headers: &HeaderMap) -> Result<Response<Content>, Refusal> {
        match self.host.end_session(endpoint, session(headers)?) {
            true => Ok(bare(StatusCode::NO_CONTENT)),
            false => Err(no_session()),
        }
    }

    fn refuse(&self, head: &Parts, refusal: Refusal, unread: Option<Incoming>) -> Response<Content> {
        let unread =
            unread.filter(|body| !body.is_end_stream() && !head.headers.contains_key(header::EXPECT));
        let content = match unread {
            Some(rest) => {
                Content::Parting(Box::new(Parting::new(refusal.text(), rest, self.face.body_limit)))
            }
            None => Content::whole(refusal.text()),
        };
        let mut response = typed(JSON, content);
        *response.status_mut() = refusal.status;
        let closing = refusal.closes.then_some((header::CONNECTION, "close"));
        for (name, value) in refusal.header.into_iter().chain(closing) {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        response
    }
}

/// What becomes of a message.
enum Next {
    /// A session is begun with it.
    Initialize(Box<str>),
    /// It was handed on, and will be answered under its id.
    Answer(Box<str>, Reader),
    /// It was handed on, and wants no answer.
    Nothing,
}

/// Makes one line of a message that has several. Only if it is JSON: a line break inside a text breaks the message, and
/// must not be mended.
fn straighten(frame: &mut [u8]) -> Result<(), MessageError> {
    if memchr2(b'\n', b'\r', frame).is_some() {
        Message::parse(frame)?;
        one_line(frame);
    }
    Ok(())
}

fn unreadable(error: MessageError) -> Refusal {
    let refusal = Refusal::bad_request(error.to_string());
    match error {
        MessageError::NotJson(_) => refusal.code(RpcError::PARSE_ERROR),
        MessageError::Batch | MessageError::Invalid(_) => refusal,
    }
}

fn endpoint(path: &str) -> Option<Endpoint> {
    if path == "/mcp" {
        return Some(Endpoint::All);
    }
    let name = path.strip_prefix("/servers/")?.strip_suffix("/mcp")?;
    let is_one_segment = !name.is_empty() && !name.contains('/');
    let decoded = percent_decode_str(name).decode_utf8().ok()?;
    // An invalid escape is left as it is. No server's name contains `%`.
    (is_one_segment && !decoded.contains('%')).then(|| Endpoint::Server(decoded.into_owned()))
}

/// The session that a request belongs to; also checks the version that was agreed on with it.
fn session(headers: &HeaderMap) -> Result<&str, Refusal> {
    if let Some(version) = headers.get(VERSION) {
        let is_known = version.to_str().is_ok_and(|version| ProtocolVersion::agree(version).is_ok());
        if !is_known {
            return Err(Refusal::bad_request("this `MCP-Protocol-Version` is not supported"));
        }
    }
    let id = headers.get(SESSION).ok_or_else(|| Refusal::bad_request("`Mcp-Session-Id` is missing"))?;
    id.to_str().map_err(|_| no_session())
}

fn no_session() -> Refusal {
    Refusal::not_found("there is no such session; begin a new one")
}

fn is_json(headers: &HeaderMap) -> bool {
    headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|value| media_type(value.as_bytes()).eq_ignore_ascii_case(JSON.as_bytes()))
}

fn media_type(value: &[u8]) -> &[u8] {
    value.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii()
}

fn accepts(headers: &HeaderMap, wanted: &str) -> bool {
    let values = headers.get_all(header::ACCEPT).iter();
    values.flat_map(|value| value.as_bytes().split(|&byte| byte == b',')).any(|range| {
        let range = media_type(range);
        let is_of_kind = |kind: &[u8]| wanted.as_bytes().starts_with(&kind.to_ascii_lowercase());
        range == b"*/*"
            || range.eq_ignore_ascii_case(wanted.as_bytes())
            || range.strip_suffix(b"*").is_some_and(|kind| kind.ends_with(b"/") && is_of_kind(kind))
    })
}

fn bare(status: StatusCode) -> Response<Content> {
    let mut response = Response::new(Content::whole(Vec::new()));
    *response.status_mut() = status;
    response
}

fn typed(media_type: &'static str, content: Content) -> Response<Content> {
    let mut response = Response::new(content);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

fn stream(events: Events) -> Response<Content> {
    let mut response = typed(EVENTS, Content::Events(Box::new(events)));
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert(BUFFERING, HeaderValue::from_static("no"));
    response
}

type Key = (Endpoint, String);

/// The streams for what is said unasked: one for each session. A newer one takes the endpoint of an older one, for
/// who comes again has lost it, often before we could notice.
#[derive(Default)]
pub(super) struct Listeners(Mutex<Open>);

#[derive(Default)]
struct Open {
    count: u64,
    streams: HashMap<Key, (u64, Closer)>,
}

/// A stream's endpoint among the [`Listeners`].
pub(super) struct Listening {
    among: Arc<Listeners>,
    key: Key,
    number: u64,
}

impl Listeners {
    fn enter(self: &Arc<Self>, key: Key, closer: Closer) -> Listening {
        let mut open = self.lock();
        open.count += 1;
        let number = open.count;
        let before = open.streams.insert(key.clone(), (number, closer));
        drop(open);
        if let Some((_, before)) = before {
            before.close();
        }
        Listening { among: self.clone(), key, number }
    }

    pub(super) fn close_all(&self) {
        let streams = std::mem::take(&mut self.lock().streams);
        streams.into_values().for_each(|(_, closer)| closer.close());
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let mut open = self.among.lock();
        if open.streams.get(&self.key).is_some_and(|(number, _)| *number == self.number) {
            open.streams.remove(&self.key);
        }
    }
}
