//! The routes of MCP over Streamable HTTP: POST takes a message, GET opens an event stream, DELETE ends a session.

use std::sync::Arc;
use std::time::Duration;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Response, StatusCode};
use memchr::memchr2;
use tokio::time::Instant;

use super::http_error::HttpError;
use super::response_body::{EventStream, ResponseContent, missing_response_error};
use super::response_stream::{FrameReceiver, ResponseFrame};
use super::router::{RouteAccess, RouteRequest, Router};
use super::service::response_of_type;
use super::slow_response_timer::SlowResponseTimer;
use super::{ClientMessage, Endpoint, Host, ResponseStream, TraceHeaders};
use crate::envelope::replace_line_breaks;
use crate::{Message, MessageError, ProtocolVersion, RpcError, is_large, run_large};

const TRACE_PARENT: &str = "traceparent";
const TRACE_STATE: &str = "tracestate";
const BAGGAGE: &str = "baggage";
const SESSION_ID: &str = "mcp-session-id";
const PROTOCOL_VERSION: &str = "mcp-protocol-version";
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
const JSON: &str = "application/json";
const EVENT_STREAM: &str = "text/event-stream";

type HttpResult = Result<Response<ResponseContent>, HttpError>;

impl Router {
    /// Adds `/mcp` for all servers and `/servers/{name}/mcp` for each one.
    pub fn mcp<H: Host>(self, host: &Arc<H>) -> Self {
        ["/mcp", "/servers/{name}/mcp"].into_iter().fold(self, |router, path| {
            let [post_host, get_host, delete_host] = [(); 3].map(|()| host.clone());
            router
                .route(Method::POST, path, RouteAccess::Clients, move |request| {
                    Box::pin(post(post_host.clone(), request))
                })
                .route(Method::GET, path, RouteAccess::Clients, move |request| {
                    let response = get(&get_host, request);
                    Box::pin(async { response })
                })
                .route(Method::DELETE, path, RouteAccess::Clients, move |request| {
                    let response = delete(&delete_host, request);
                    Box::pin(async { response })
                })
        })
    }
}

async fn post<H: Host>(host: Arc<H>, mut request: RouteRequest<'_>) -> HttpResult {
    let (headers, config) = (&request.head.headers, &request.service.config);
    if !is_json(headers) {
        let reason = "`Content-Type` must be application/json";
        return Err(HttpError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, reason));
    }
    if !accepts_both(headers) {
        let reason = "`Accept` must include application/json and text/event-stream";
        return Err(HttpError::new(StatusCode::NOT_ACCEPTABLE, reason));
    }
    let mut frame = request.read_body().await?;
    let (endpoint, stream_limit) = (endpoint(std::mem::take(&mut request.params)), config.stream_limit);
    let delivered = match is_large(frame.len()) {
        false => deliver(&host, &endpoint, headers, &mut frame, stream_limit),
        true => {
            let (host, endpoint, headers) = (host.clone(), endpoint.clone(), headers.clone());
            let mut frame = std::mem::take(&mut frame);
            run_large(move || deliver(&host, &endpoint, &headers, &mut frame, stream_limit)).await
        }
    };
    match delivered? {
        // Boxed: most messages are no `initialize`, and need not have room for it.
        Delivered::Initialize(id) => Box::pin(initialize(&host, endpoint, &request, id, frame)).await,
        Delivered::Request(id, receiver) => {
            Ok(respond(id, receiver, config.keep_alive, &request.connection.slow_response_timer).await)
        }
        Delivered::Other => Ok(empty_response(StatusCode::ACCEPTED)),
    }
}

/// The result of delivering a message.
enum Delivered {
    /// Nothing was delivered: the message starts a session.
    Initialize(Box<str>),
    /// The response to this request arrives on a stream.
    Request(Box<str>, FrameReceiver),
    /// A notification or a response.
    Other,
}

fn deliver<H: Host>(
    host: &Arc<H>,
    endpoint: &Endpoint,
    headers: &HeaderMap,
    frame: &mut [u8],
    stream_limit: usize,
) -> Result<Delivered, HttpError> {
    join_lines(frame).map_err(invalid_message)?;
    let mut message = ClientMessage::parse(frame).map_err(invalid_message)?;
    let mcp_headers = McpHeaders::find(headers);
    if mcp_headers.has_trace {
        message.trace = trace_headers(headers);
    }
    let id: Option<Box<str>> = match &message.message {
        Message::Request { id, method, .. } if method == "initialize" && mcp_headers.session.is_none() => {
            return match is_large(frame.len()) {
                true => Err(HttpError::new(StatusCode::PAYLOAD_TOO_LARGE, "`initialize` is too large")),
                false => Ok(Delivered::Initialize(id.as_json().into())),
            };
        }
        Message::Request { id, .. } => Some(id.as_json().into()),
        _ => None,
    };
    let client = match find_client(host, endpoint, &mcp_headers) {
        Ok(client) => client,
        Err(error) => return Err(error.with_request_id(id)),
    };
    let stream = ResponseStream::new(stream_limit);
    let receiver = stream.receiver();
    host.deliver(client, message, stream);
    Ok(id.map_or(Delivered::Other, |id| Delivered::Request(id, receiver)))
}

/// The headers of MCP, found in one pass: a look-up of each would take longer.
#[derive(Default)]
struct McpHeaders<'a> {
    session: Option<&'a HeaderValue>,
    version: Option<&'a HeaderValue>,
    /// Some header belongs to a trace. Few requests have one.
    has_trace: bool,
}

impl<'a> McpHeaders<'a> {
    fn find(headers: &'a HeaderMap) -> Self {
        let mut found = Self::default();
        for (name, value) in headers {
            match name.as_str() {
                SESSION_ID => drop(found.session.get_or_insert(value)),
                PROTOCOL_VERSION => drop(found.version.get_or_insert(value)),
                TRACE_PARENT | TRACE_STATE | BAGGAGE => found.has_trace = true,
                _ => {}
            }
        }
        found
    }
}

/// Returns the trace and the baggage that the headers name.
fn trace_headers(headers: &HeaderMap) -> Option<Box<TraceHeaders>> {
    let joined = |name: &str| {
        let lines = headers.get_all(name).iter().map(HeaderValue::to_str);
        let text = lines.collect::<Result<Vec<&str>, _>>().ok()?.join(",");
        (!text.is_empty()).then_some(text)
    };
    let parent = headers.get(TRACE_PARENT).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let found = TraceHeaders { parent, state: joined(TRACE_STATE), baggage: joined(BAGGAGE) };
    (found.parent.is_some() || found.baggage.is_some()).then(|| Box::new(found))
}

async fn initialize<H: Host>(
    host: &Arc<H>,
    endpoint: Endpoint,
    request: &RouteRequest<'_>,
    id: Box<str>,
    frame: Vec<u8>,
) -> HttpResult {
    let config = &request.service.config;
    let stream = ResponseStream::new(config.stream_limit);
    let receiver = stream.receiver();
    let session = host.initialize(endpoint.clone(), request.sender, frame, stream).await;
    let session = session.map(|session| session_header(host, &endpoint, &session)).transpose()?;
    let mut response =
        respond(id, receiver, config.keep_alive, &request.connection.slow_response_timer).await;
    if let Some(session) = session {
        response.headers_mut().insert(SESSION_ID, session);
    }
    Ok(response)
}

fn session_header<H: Host>(
    host: &Arc<H>,
    endpoint: &Endpoint,
    session: &str,
) -> Result<HeaderValue, HttpError> {
    HeaderValue::from_str(session).map_err(|_| {
        host.end_session(endpoint, session);
        HttpError::new(StatusCode::INTERNAL_SERVER_ERROR, "the id of the session is not visible ASCII")
            .with_code(RpcError::INTERNAL_ERROR)
    })
}

/// A single response is sent as JSON. If other messages come first, or nothing for a while, the response is an event stream:
/// clients and proxies give up connections on which nothing moves.
async fn respond(
    id: Box<str>,
    receiver: FrameReceiver,
    keep_alive: Duration,
    timer: &SlowResponseTimer,
) -> Response<ResponseContent> {
    let first = tokio::select! {
        biased;
        first = receiver.next() => match first {
            Some(ResponseFrame { bytes, is_response: true }) => return json_response(bytes),
            None => return json_response(missing_response_error(&id)),
            first => first,
        },
        () = timer.wait_until(Instant::now() + keep_alive) => None,
    };
    event_stream_response(EventStream::for_request(id, first, receiver, keep_alive))
}

fn get<H: Host>(host: &Arc<H>, request: RouteRequest<'_>) -> HttpResult {
    let (headers, service) = (&request.head.headers, request.service);
    if !accepts(headers, EVENT_STREAM) {
        let reason = "`Accept` must include text/event-stream";
        return Err(HttpError::new(StatusCode::NOT_ACCEPTABLE, reason));
    }
    let (endpoint, session) = (endpoint(request.params), session_id(&McpHeaders::find(headers))?);
    let client = host.find_session(&endpoint, session).ok_or_else(unknown_session)?;
    let stream = host.open_stream(&client);
    request.connection.record_event_stream();
    let receiver = stream.receiver();
    let guard = service.event_streams.insert((endpoint, session.to_owned()), stream.closer());
    Ok(event_stream_response(EventStream::new(receiver, service.config.keep_alive, Some(guard))))
}

fn delete<H: Host>(host: &Arc<H>, request: RouteRequest<'_>) -> HttpResult {
    let headers = McpHeaders::find(&request.head.headers);
    match host.end_session(&endpoint(request.params), session_id(&headers)?) {
        true => Ok(empty_response(StatusCode::NO_CONTENT)),
        false => Err(unknown_session()),
    }
}

fn endpoint(mut params: Vec<String>) -> Endpoint {
    params.pop().map_or(Endpoint::All, Endpoint::Server)
}

/// Finds the client that sent a request.
fn find_client<H: Host>(
    host: &Arc<H>,
    endpoint: &Endpoint,
    headers: &McpHeaders<'_>,
) -> Result<Arc<H::Client>, HttpError> {
    host.find_session(endpoint, session_id(headers)?).ok_or_else(unknown_session)
}

/// Returns the session id of a request. Also checks the protocol version, which was agreed with the session.
fn session_id<'a>(headers: &McpHeaders<'a>) -> Result<&'a str, HttpError> {
    if let Some(version) = headers.version {
        let is_known = version.to_str().is_ok_and(|version| ProtocolVersion::negotiate(version).is_ok());
        if !is_known {
            return Err(HttpError::bad_request("this `MCP-Protocol-Version` is not supported"));
        }
    }
    let id =
        headers.session.ok_or_else(|| HttpError::bad_request("the header `Mcp-Session-Id` is missing"))?;
    id.to_str().map_err(|_| unknown_session())
}

fn unknown_session() -> HttpError {
    HttpError::not_found("no such session; start a new one with `initialize`")
}

/// Turns a message of several lines into one. Only JSON is changed: a line break inside a string makes the message
/// invalid and must not be repaired.
fn join_lines(frame: &mut [u8]) -> Result<(), MessageError> {
    if memchr2(b'\n', b'\r', frame).is_some() {
        Message::parse(frame)?;
        replace_line_breaks(frame);
    }
    Ok(())
}

fn invalid_message(error: MessageError) -> HttpError {
    let response = HttpError::bad_request(error.to_string());
    match error {
        MessageError::NotJson(_) => response.with_code(RpcError::PARSE_ERROR),
        MessageError::Batch | MessageError::Invalid(_) | MessageError::Ambiguous(_) => response,
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|value| media_type(value.as_bytes()).eq_ignore_ascii_case(JSON.as_bytes()))
}

fn media_type(value: &[u8]) -> &[u8] {
    value.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii()
}

/// Returns true if the client accepts both forms of a response.
fn accepts_both(headers: &HeaderMap) -> bool {
    // The official SDKs send exactly this.
    let is_usual = |value: &HeaderValue| value == "application/json, text/event-stream";
    headers.get(header::ACCEPT).is_some_and(is_usual)
        || (accepts(headers, JSON) && accepts(headers, EVENT_STREAM))
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

fn empty_response(status: StatusCode) -> Response<ResponseContent> {
    let mut response = Response::new(ResponseContent::Buffer(Default::default()));
    *response.status_mut() = status;
    response
}

fn json_response(bytes: Vec<u8>) -> Response<ResponseContent> {
    response_of_type(JSON, ResponseContent::Buffer(bytes.into()))
}

fn event_stream_response(events: EventStream) -> Response<ResponseContent> {
    let mut response = response_of_type(EVENT_STREAM, ResponseContent::Events(Box::new(events)));
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert(X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
    response
}
