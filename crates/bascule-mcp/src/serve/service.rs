//! Turns one HTTP request into one response: finds the route, checks access, runs the handler.

use std::sync::Arc;

use http::header::{self, HeaderMap, HeaderValue};
use http::request::Parts;
use http::{Request, Response, StatusCode};
use hyper::body::{Body as _, Incoming};
use tokio::sync::Semaphore;
use tracing::debug;

use super::HttpServer;
use super::access::check_headers;
use super::body_reader::read_body;
use super::connections::ConnectionState;
use super::event_streams::EventStreams;
use super::http_error::HttpError;
use super::peer_check::{Peer, PeerCheckSlot};
use super::peer_id::PeerId;
use super::response_body::{RefusalBody, ResponseBody, ResponseContent};
use super::router::{RouteAccess, RouteMatch, RouteRequest, Router};
use super::timed_socket::RequestGuard;

/// The state that all connections share.
pub(super) struct HttpService {
    pub(super) config: HttpServer,
    pub(super) router: Router,
    /// A permit for each byte of the large bodies that are being read.
    pub(super) body_budget: Semaphore,
    pub(super) peer_check_slot: PeerCheckSlot,
    pub(super) event_streams: Arc<EventStreams>,
}

impl HttpService {
    pub(super) async fn handle_request(
        &self,
        request: Request<Incoming>,
        peer: &Peer,
        state: &ConnectionState,
        guard: RequestGuard,
    ) -> Response<ResponseBody> {
        let (head, body) = request.into_parts();
        let mut body = Some(body);
        let response = match self.respond(&head, peer, state, &mut body).await {
            Ok(response) => response,
            Err(error) => {
                debug!(status = error.status.as_u16(), method = %head.method, "request refused");
                self.refuse(&head.headers, error, body)
            }
        };
        response.map(|content| content.with_guard(guard))
    }

    /// Access is checked before anything is revealed, and for unknown paths too.
    async fn respond(
        &self,
        head: &Parts,
        peer: &Peer,
        state: &ConnectionState,
        body: &mut Option<Incoming>,
    ) -> Result<Response<ResponseContent>, HttpError> {
        let found = self.router.find(&head.method, head.uri.path());
        let access = match &found {
            RouteMatch::Found(route, _) => route.access,
            RouteMatch::OtherMethods(_) | RouteMatch::NotFound => RouteAccess::Clients,
        };
        let checked = check_headers(&self.config.access.borrow(), head, access);
        // A refused client must not occupy a connection.
        let token = checked.map_err(HttpError::with_connection_close)?;
        let sender = PeerId { token, address: state.address };
        if access == RouteAccess::Clients {
            peer.check(&self.config.access, &self.peer_check_slot).await?;
            state.record_accepted_request(sender);
        }
        match found {
            RouteMatch::Found(route, params) => {
                let connection = state;
                let body_permit = None;
                let request =
                    RouteRequest { head, params, sender, connection, service: self, body, body_permit };
                (route.handler)(request).await
            }
            RouteMatch::OtherMethods(allowed) => Err(HttpError::method_not_allowed(&allowed)),
            RouteMatch::NotFound => Err(HttpError::not_found("nothing is served at this path; try `/mcp`")),
        }
    }

    fn refuse(
        &self,
        headers: &HeaderMap,
        error: HttpError,
        unread: Option<Incoming>,
    ) -> Response<ResponseContent> {
        let unread = unread.filter(|body| !body.is_end_stream() && !headers.contains_key(header::EXPECT));
        let json = error.to_json();
        let content = match unread {
            Some(body) => {
                let refusal = RefusalBody::new(json, body, self.config.body_limit);
                ResponseContent::Refusal(Box::new(refusal))
            }
            None => ResponseContent::Buffer(json.into()),
        };
        let mut response = response_of_type("application/json", content);
        *response.status_mut() = error.status;
        if error.closes_connection {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response.headers_mut().extend(error.header.map(|header| *header));
        response
    }
}

impl RouteRequest<'_> {
    /// Reads the whole body, within the limits of the server.
    pub async fn read_body(&mut self) -> Result<Vec<u8>, HttpError> {
        let Some(body) = &mut self.body else { return Ok(Vec::new()) };
        let HttpServer { body_limit, body_timeout, .. } = self.service.config;
        let read = read_body(body, body_limit, body_timeout, &self.service.body_budget).await;
        // A client that asks before it sends the body stops when it sees the error.
        let may_drain = matches!(&read, Err(error) if error.status != StatusCode::REQUEST_TIMEOUT)
            && !self.head.headers.contains_key(header::EXPECT);
        if !may_drain {
            *self.body = None;
        }
        let (bytes, permit) = read?;
        self.body_permit = permit;
        Ok(bytes)
    }
}

pub(super) fn response_of_type(
    media_type: &'static str,
    content: ResponseContent,
) -> Response<ResponseContent> {
    let mut response = Response::new(content);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}
