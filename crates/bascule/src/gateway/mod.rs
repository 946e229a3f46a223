//! The bridge as an MCP server: responds to clients, and routes their messages to the right server.
//!
//! Reading order: [`session`] keeps clients by session id; [`client_request`] is one request on its way. [`upstreams`] opens and
//! closes the sessions towards servers that clients share; [`upstream_session`] is one of them, and [`routing`] delivers
//! its server's messages to the right client. [`passthrough`] responds for a single server, [`aggregate`] for all of them,
//! with the [`listings`] it merges ([`listing_requests`]) and the [`resources`] it resolves; [`code`] has the bridge's own
//! tools; [`reply`] builds responses, [`correlation`] finds the ids that clients give. The bytes of clients come through
//! `bascule_mcp::serve`; calls go through `call`.

mod aggregate;
mod client_request;
mod code;
mod correlation;
mod kept_results;
mod listing_requests;
mod listings;
mod passthrough;
pub(crate) mod reply;
mod resources;
mod routing;
mod script_reply;
mod search;
mod session;
mod upstream_session;
mod upstreams;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::Duration;

use bascule_mcp::{
    ClientMessage, Endpoint, Host, Message, PeerId, ProtocolVersion, ResponseStream, RpcError, TraceHeaders,
    is_large, may_walk, notification, patch, run_large, spawn_large, with_extra_members,
};
use bascule_model::CorrelationId;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use crate::McpBridgeAdapter;
use crate::client::{ClientContext, SharingKey};
use crate::config::ToolView;
use crate::fleet::FleetObserver;
use crate::fleet::request::ExtraMembers;
use crate::in_flight::InFlight;
use crate::unique_number::next_correlation_id;
use client_request::ClientRequest;
pub(crate) use code::definitions_in_view;
use correlation::ClientIds;
use kept_results::KeptResults;
use listings::{OwnedNames, ToolNames};
use reply::{ErrorReply, Reply};
use session::Sessions;
use upstream_session::GatewayTasks;
use upstreams::Upstreams;

/// The longest pause between two checks for clients that are gone.
const CHECK_INTERVAL: Duration = Duration::from_secs(20);
/// The most bytes that wait on a client's stream for messages that belong to no request.
const STREAM_LIMIT: usize = 64 << 20;

/// Handles the requests of all clients.
pub(crate) struct Gateway {
    bridge: Arc<McpBridgeAdapter>,
    sessions: Sessions,
    upstreams: Upstreams,
    /// The names under which clients see the tools of all servers.
    tool_names: Mutex<HashMap<SharingKey, Arc<ToolNames>>>,
    owned_names: Mutex<OwnedNames>,
    tasks: GatewayTasks,
    kept_results: KeptResults,
    /// A client that was silent for this long is taken to be gone.
    idle: Duration,
    /// The time that calls have to finish when their server is reconfigured.
    grace: Duration,
    show: ToolView,
}

impl Gateway {
    /// Opens the gateway. It observes the bridge's reloads.
    pub(crate) fn open(
        bridge: Arc<McpBridgeAdapter>,
        idle: Duration,
        grace: Duration,
        show: ToolView,
    ) -> Arc<Self> {
        let gateway = Arc::new(Self {
            bridge,
            sessions: Sessions::default(),
            upstreams: Upstreams::default(),
            tool_names: Mutex::default(),
            owned_names: Mutex::default(),
            tasks: GatewayTasks::default(),
            kept_results: KeptResults::default(),
            idle,
            grace,
            show,
        });
        gateway.bridge.fleet.observe(Arc::downgrade(&gateway) as Weak<dyn FleetObserver>);
        gateway.tasks.spawn(gateway.clone().remove_gone_clients());
        gateway
    }

    /// Ends all sessions, and returns when their servers have stopped.
    pub(crate) async fn close(&self) {
        self.tasks.stop.cancel();
        self.sessions.clients().iter().for_each(|client| drop(self.remove_session(&client.id)));
        self.tasks.tracker.close();
        self.tasks.tracker.wait().await;
    }

    /// Makes room for one more session.
    fn make_room(&self) {
        if self.sessions.is_full() {
            let excess = self.sessions.find_excess(&self.bridge.fleet.in_flight);
            excess.iter().for_each(|client| drop(self.remove_session(&client.id)));
        }
    }

    fn remove_session(&self, id: &str) -> Option<Arc<ClientContext>> {
        let client = self.sessions.remove(id)?;
        self.close_client(&client);
        debug!(session = %client.id, "session ended");
        Some(client)
    }

    fn close_client(&self, client: &Arc<ClientContext>) {
        client.close();
        self.kept_results.remove_session(client.serial);
        self.bridge.fleet.in_flight.cancel_all(client.serial);
        self.bridge.fleet.traces.iter().for_each(|traces| traces.on_session_end(client));
        self.tool_names().remove(&SharingKey::Client(client.serial));
        self.detach(client).iter().for_each(|upstream| upstream.release(client));
        self.close_unused_upstreams();
    }

    async fn remove_gone_clients(self: Arc<Self>) {
        let interval = CHECK_INTERVAL.min(self.idle / 4);
        loop {
            tokio::time::sleep(interval).await;
            for client in self.sessions.find_gone(self.idle, &self.bridge.fleet.in_flight) {
                self.remove_session(&client.id);
            }
        }
    }

    fn tool_names(&self) -> MutexGuard<'_, HashMap<SharingKey, Arc<ToolNames>>> {
        self.tool_names.lock().expect("no code panics while it holds the lock")
    }

    /// Handles a request of a client, and returns its result or error.
    async fn handle(self: &Arc<Self>, request: &ClientRequest<'_>) -> Reply {
        match &request.client.endpoint {
            _ if request.method == "ping" => Ok("{}".to_owned()),
            Endpoint::Server(name) => self.handle_passthrough(request, name).await,
            Endpoint::All => self.handle_aggregate(request).await,
        }
    }

    /// Handles one request of a client in a separate task.
    fn spawn_request(
        self: &Arc<Self>,
        client: Arc<ClientContext>,
        id: Arc<str>,
        (method, params): (Cow<'static, str>, Option<Box<RawValue>>),
        (extra_members, trace): (Option<String>, Option<Box<TraceHeaders>>),
        stream: ResponseStream,
    ) {
        // Registered before the task runs: the client may cancel the request with its next message.
        let Some((in_flight, cancelled)) =
            self.bridge.fleet.in_flight.begin_client_request(client.serial, &id)
        else {
            let error = ErrorReply::new(RpcError::INVALID_REQUEST, "a request with this `id` is in flight");
            let error = error.with_correlation_id(&correlation_id_of(params.as_deref().map(RawValue::get)));
            return reply::finish(&stream, &id, Err(error), None);
        };
        if client.is_closed() {
            cancelled.cancel();
        }
        let length = params.as_ref().map_or(0, |params| params.get().len());
        let is_large = is_large(length + extra_members.as_ref().map_or(0, String::len));
        let message = OwnedRequest { client, id, method, params, extra_members, trace, stream };
        // Boxed: a task is moved several times before it runs.
        let handling = Box::pin(self.clone().handle_and_respond(message, in_flight, cancelled));
        match is_large {
            true => spawn_large(&self.tasks.tracker, handling),
            false => drop(self.tasks.tracker.spawn(handling)),
        }
    }

    /// Handles a request, and writes its response to the stream. A client does not wait for that of a cancelled request.
    async fn handle_and_respond(
        self: Arc<Self>,
        OwnedRequest { client, id, method, params, extra_members, trace, stream }: OwnedRequest,
        in_flight: InFlight,
        cancelled: CancellationToken,
    ) {
        let extra_members = ExtraMembers { request: extra_members, ..ExtraMembers::default() };
        let reply = {
            let request = ClientRequest {
                client: &client,
                method: &method,
                params: params.as_deref(),
                stream: &stream,
                extra_members: &extra_members,
                trace_headers: trace.as_deref(),
                ids: OnceLock::new(),
            };
            // Pinned, not moved: the task has room for the future once.
            let handling = std::pin::pin!(self.handle(&request));
            let reply = cancelled.run_until_cancelled(handling).await;
            reply.map(|reply| reply.map_err(|error| error.with_correlation_id(request.correlation_id())))
        };
        drop(in_flight);
        client.touch();
        let Some(reply) = reply else { return stream.close() };
        let is_long = reply.as_ref().is_ok_and(|result| !may_walk(result.len()));
        let finish =
            move || reply::finish(&stream, &id, reply, extra_members.response.get().map(String::as_str));
        match is_long {
            true => Box::pin(run_large(finish)).await,
            false => finish(),
        }
    }
}

/// A request of a client, which a task of its own handles.
struct OwnedRequest {
    client: Arc<ClientContext>,
    id: Arc<str>,
    method: Cow<'static, str>,
    params: Option<Box<RawValue>>,
    extra_members: Option<String>,
    trace: Option<Box<TraceHeaders>>,
    stream: ResponseStream,
}

/// Returns a method that outlives its message. Most requests are calls, whose method need not be copied.
fn owned_method(method: Cow<'_, str>) -> Cow<'static, str> {
    match &*method {
        "tools/call" => Cow::Borrowed("tools/call"),
        _ => Cow::Owned(method.into_owned()),
    }
}

/// Returns the id of a request with these parameters: the client's own, or a new one.
fn correlation_id_of(params: Option<&str>) -> CorrelationId {
    let meta = params.and_then(|params| patch::find(params, &["_meta"]));
    ClientIds::find(meta, None).correlation_id.unwrap_or_else(next_correlation_id)
}

/// Closes a client whose `initialize` fails, or is given up.
struct Initializing<'a> {
    gateway: &'a Gateway,
    client: &'a Arc<ClientContext>,
}

impl Drop for Initializing<'_> {
    fn drop(&mut self) {
        if !self.client.is_initialized() {
            self.gateway.close_client(self.client);
        }
    }
}

impl Host for Gateway {
    type Client = ClientContext;

    async fn initialize(
        self: &Arc<Self>,
        endpoint: Endpoint,
        sender: PeerId,
        request: Vec<u8>,
        stream: ResponseStream,
    ) -> Option<String> {
        let Ok(Message::Request { id, params, .. }) = Message::parse(&request) else { return None };
        let params = params.map_or("{}", RawValue::get);
        // A session id that others can guess would give them the session.
        let session = crate::token::generate();
        let session = session.inspect_err(|error| {
            let error = ErrorReply::new(RpcError::INTERNAL_ERROR, error.to_string())
                .with_correlation_id(&correlation_id_of(Some(params)));
            stream.finish(reply::frame(id, Err(error)));
        });
        let session = session.ok()?;
        let client = Arc::new(ClientContext::new(session.clone(), endpoint, sender, params));
        let _initializing = Initializing { gateway: self, client: &client };
        self.make_room();
        let reply = match &client.endpoint {
            Endpoint::Server(name) => self.initialize_passthrough(&client, name).await,
            Endpoint::All => self.initialize_aggregate(&client).await,
        };
        let requested = patch::find_string(params, &["protocolVersion"]).unwrap_or_default();
        let version = ProtocolVersion::negotiate(&requested).unwrap_or(ProtocolVersion::LATEST);
        let quoted = format!("\"{version}\"");
        let reply = reply.map(|result| patch::insert(&result, &["protocolVersion"], &quoted));
        let reply = reply.map_err(|error| error.with_correlation_id(&correlation_id_of(Some(params))));
        let is_accepted = reply.is_ok();
        stream.finish(reply::frame(id, reply));
        is_accepted.then(|| {
            let ClientContext { identity, endpoint, .. } = &*client;
            info!(%session, client = %identity, ?endpoint, %version, "session started");
            client.set_initialized();
            self.sessions.insert(client.clone());
            session
        })
    }

    fn find_session(&self, endpoint: &Endpoint, session: &str) -> Option<Arc<ClientContext>> {
        self.sessions.get(session).filter(|client| client.endpoint == *endpoint)
    }

    fn deliver(
        self: &Arc<Self>,
        client: Arc<ClientContext>,
        message: ClientMessage<'_>,
        stream: ResponseStream,
    ) {
        let ClientMessage { frame, message, extra_members, trace } = message;
        match message {
            // A client is active while it has requests, and is touched at the end of each.
            Message::Request { id, method, params } => {
                let request = (owned_method(method), params.map(ToOwned::to_owned));
                self.spawn_request(client, id.as_json().into(), request, (extra_members, trace), stream);
            }
            Message::Notification { method, params } => {
                client.touch();
                self.on_notification(&client, &method, params, extra_members.as_deref());
            }
            Message::Response { id, .. } => {
                client.touch();
                client.complete_server_request(id.as_json(), frame);
            }
        }
    }

    fn open_stream(self: &Arc<Self>, client: &Arc<ClientContext>) -> ResponseStream {
        client.touch();
        client.open_stream(STREAM_LIMIT)
    }

    fn end_session(self: &Arc<Self>, endpoint: &Endpoint, session: &str) -> bool {
        self.find_session(endpoint, session).is_some() && self.remove_session(session).is_some()
    }
}

impl FleetObserver for Gateway {
    fn on_reloaded(&self) {
        self.renew_upstreams();
        for client in self.sessions.clients() {
            client.notify(notification("notifications/tools/list_changed", None));
        }
    }
}

/// Returns true if MCP defines requests of this family: such a method is never a notification.
fn is_request_method(method: &str) -> bool {
    const FAMILIES: &str =
        "tools resources prompts completion logging sampling elicitation roots tasks initialize ping";
    let family = method.trim().split('/').next().unwrap_or_default();
    FAMILIES.split(' ').any(|own| own.eq_ignore_ascii_case(family))
}

impl Gateway {
    fn on_notification(
        &self,
        client: &Arc<ClientContext>,
        method: &str,
        params: Option<&RawValue>,
        extra_members: Option<&str>,
    ) {
        match method {
            "notifications/cancelled" => {
                let id = params.and_then(|params| patch::find(params.get(), &["requestId"]));
                id.into_iter().for_each(|id| self.bridge.fleet.in_flight.cancel(client.serial, id));
            }
            "notifications/initialized" => {}
            "notifications/progress" => {
                let token = params.and_then(|params| patch::find(params.get(), &["progressToken"]));
                let target = token.and_then(|token| client.progress_target(token));
                if let (Some(params), Some((server, token))) = (params, target) {
                    let params = patch::insert(params.get(), &["progressToken"], &token);
                    server.send(with_extra_members(notification(method, Some(&params)), extra_members));
                }
            }
            // Some servers would run a request without an id: unchecked and unanswered.
            _ if is_request_method(method) => {
                debug!(session = %client.id, method, "ignored a request without an id")
            }
            _ => self.forward_notification(client, method, params, extra_members),
        }
    }

    /// Forwards a notification to the client's servers: changed roots, or a method that the bridge does not know.
    fn forward_notification(
        &self,
        client: &Arc<ClientContext>,
        method: &str,
        params: Option<&RawValue>,
        extra_members: Option<&str>,
    ) {
        let names = match &client.endpoint {
            Endpoint::Server(name) => vec![name.clone()],
            Endpoint::All => client.servers(),
        };
        for upstream in names.iter().filter_map(|name| self.upstream(client, name).ok()) {
            upstream
                .server
                .send(with_extra_members(notification(method, params.map(RawValue::get)), extra_members));
        }
    }
}

#[cfg(test)]
mod tests;
