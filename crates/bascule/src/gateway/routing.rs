//! Routes the messages of a server to the clients they concern.
//!
//! Changed listings are announced to all clients of the session, resource updates to the subscribers. Every other message
//! concerns the one client whose request caused it, but MCP messages of a server do not name that request. Over Streamable
//! HTTP the response stream that carries the message identifies it. Over other transports the recipient is the only client
//! with requests in flight, or, if there are no requests in flight, the session's only client. Otherwise the message has no
//! recipient: it is dropped or refused, never guessed. Abandoned requests count as in flight. So do calls of detached
//! callers, such as the command line, which cannot receive messages of servers.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bascule_mcp::{
    Id, ResponseStream, RpcError, ServerMessage, notification, patch, request_with_id, with_extra_members,
};
use serde_json::value::RawValue;
use tokio::time::sleep;
use tracing::debug;

use super::upstream_session::UpstreamSession;
use crate::client::ClientContext;
use crate::config::Isolation;
use crate::fleet::client_profile::UpstreamObserver;
use crate::in_flight::Origin;
use crate::logging_level::LoggingLevel;

/// The JSON-RPC error code for a request of a server that cannot be sent to its client.
const CANNOT_FORWARD: i64 = RpcError::CONNECTION_CLOSED;

/// Changes of listings within this time are announced together.
const ANNOUNCE_DELAY: Duration = Duration::from_millis(50);

/// The client that a message concerns, and the response stream of the request that caused it.
type Recipient = (Arc<ClientContext>, Option<ResponseStream>);

/// The reason for which a message has no recipient.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NoRecipient {
    /// No client has caused the message: its stream belongs to a request of another caller, or the session has no client.
    NoClient,
    /// The message may concern any of several clients.
    SeveralClients,
    /// The message may concern a call of a detached caller, which cannot receive it.
    DetachedCaller,
    /// The message may concern an abandoned request whose sender is not stored.
    UnknownSender,
}

impl NoRecipient {
    /// Completes "`METHOD` ".
    fn as_str(self) -> &'static str {
        match self {
            Self::NoClient => "concerns no client",
            Self::SeveralClients => {
                "may concern any of several clients: configure `session: \"per-client\"` for this server"
            }
            Self::DetachedCaller => {
                "may concern a call of the command line or of an embedding program, which cannot respond to it"
            }
            Self::UnknownSender => "may concern one of very many cancelled requests",
        }
    }
}

/// A changed listing that clients are to be told of.
pub(super) struct ListChange {
    /// The method of the notification: `notifications/tools/list_changed`, for example.
    pub(super) method: String,
    /// The notification that the server sent. `None` if the bridge noticed the change itself; then it builds the
    /// notification, if the server offers the listing.
    pub(super) notification: Option<Vec<u8>>,
}

impl ListChange {
    /// A change that the bridge noticed. `listing` is `tools`, `prompts` or `resources`.
    pub(super) fn noticed(listing: &str) -> Self {
        Self { method: format!("notifications/{listing}/list_changed"), notification: None }
    }
}

impl UpstreamSession {
    /// Finds the recipient of a message. `stream_request_id` is the id of the request whose response stream carried the
    /// message; `None` if the transport has no stream for each request.
    fn recipient(&self, stream_request_id: Option<u64>) -> Result<Recipient, NoRecipient> {
        match stream_request_id {
            Some(id) => self.sender_of_request(id),
            None => self.only_client_in_flight(),
        }
    }

    /// Returns the client that sent the request with this id, and its response stream while that is open.
    fn sender_of_request(&self, id: u64) -> Result<Recipient, NoRecipient> {
        match self.in_flight.origin_of(self.server.serial, id) {
            Some(Origin::Client { client, stream }) => {
                Ok((client, Some(stream).filter(|stream| !stream.is_closed())))
            }
            _ => Err(NoRecipient::NoClient),
        }
    }

    /// Returns the only client with requests in flight, or the session's only client if no request is in flight.
    fn only_client_in_flight(&self) -> Result<Recipient, NoRecipient> {
        let mut requests = Vec::new();
        for origin in self.in_flight.origins(self.server.serial) {
            match origin {
                Origin::Client { client, stream } => requests.push((client, stream)),
                Origin::Detached => return Err(NoRecipient::DetachedCaller),
                Origin::Unknown => return Err(NoRecipient::UnknownSender),
                Origin::Bridge => {}
            }
        }
        let Some((client, _)) = requests.first() else {
            return self.only_client().map(|client| (client, None));
        };
        if requests.iter().any(|(other, _)| !Arc::ptr_eq(other, client)) {
            return Err(NoRecipient::SeveralClients);
        }
        Ok((client.clone(), choose_stream(client, &requests)))
    }

    /// Returns the client of a session with one client.
    fn only_client(&self) -> Result<Arc<ClientContext>, NoRecipient> {
        match &self.clients()[..] {
            [only] => Ok(only.clone()),
            [] => Err(NoRecipient::NoClient),
            _ => Err(NoRecipient::SeveralClients),
        }
    }

    /// Forwards a log message to its recipient, if the client wants its level.
    fn forward_log(&self, level: Option<LoggingLevel>, frame: Vec<u8>, stream_request_id: Option<u64>) {
        let Ok((client, stream)) = self.recipient(stream_request_id) else { return };
        if level.is_none() || level >= self.min_level_for(&client) {
            client.send(stream.as_ref(), frame);
        }
    }

    /// Returns the lowest level of log messages that a client gets; `None` for all messages. A client that has set no level
    /// gets all, unless another client has: the server then logs at the level of that one.
    fn min_level_for(&self, client: &ClientContext) -> Option<LoggingLevel> {
        let is_set_by_another = self.logging_level().is_some();
        client.logging_level().or(is_set_by_another.then_some(LoggingLevel::DEFAULT))
    }

    /// Forwards a resource update to all subscribers, with the URI under which each of them knows the resource.
    fn forward_resource_update(&self, message: &ServerMessage<'_>) {
        let Some(params) = message.params else { return };
        let uri = patch::find_string(params.get(), &["uri"]).unwrap_or_default();
        for client in self.clients() {
            let Some(client_uri) = client.subscribed_uri(self.server.settings.name.as_str(), &uri) else {
                continue;
            };
            client.notify(if client_uri == uri {
                forwarded(message)
            } else {
                let client_uri = serde_json::Value::from(client_uri).to_string();
                forwarded_with(message, Some(&patch::insert(params.get(), &["uri"], &client_uri)))
            });
        }
    }

    /// Sends a request of the server to a client, under an id that the bridge chooses. The id also replaces the server's
    /// progress token. Returns the reason if the client cannot take the request.
    fn forward_request(
        &self,
        id: Id<'_>,
        message: &ServerMessage<'_>,
        (client, stream): Recipient,
    ) -> Result<(), &'static str> {
        let params = message.params.map(RawValue::get);
        let token = params.and_then(|params| patch::find(params, &["_meta", "progressToken"]));
        let bridge_id = client.begin_server_request(&self.server, id.as_json(), token, stream.as_ref())?;
        let with_own_token = params
            .filter(|_| token.is_some())
            .map(|params| patch::insert(params, &["_meta", "progressToken"], &bridge_id));
        let params = with_own_token.as_deref().or(params);
        client.send(
            stream.as_ref(),
            with_extra_members(request_with_id(&bridge_id, message.method, params), message.extra_members),
        );
        Ok(())
    }

    /// Tells clients that one request of the server is cancelled, or all of them if `id` is `None`. `params` are those of the
    /// notification; each client gets them with its own `requestId`.
    fn cancel_server_requests(&self, id: Option<&str>, params: &str) {
        for client in self.clients() {
            for (bridge_id, stream) in client.remove_server_requests(&self.server, id) {
                let params = patch::insert(params, &["requestId"], &bridge_id);
                client.send(stream.as_ref(), notification("notifications/cancelled", Some(&params)));
            }
        }
    }

    /// Announces changed listings to clients. Changes within `ANNOUNCE_DELAY` are announced once.
    pub(super) fn announce(&self, changes: impl IntoIterator<Item = ListChange>) {
        let Some(upstream) = self.this.upgrade() else { return };
        // Clients that are still initializing have seen no listing.
        if self.clients().iter().all(|client| !client.is_initialized()) {
            return;
        }
        let was_scheduled = self.queue_list_changes(changes);
        if was_scheduled {
            return;
        }
        self.tasks.spawn(async move {
            sleep(ANNOUNCE_DELAY).await;
            let changes = upstream.take_list_changes();
            let frames: Vec<Vec<u8>> =
                changes.into_iter().filter_map(|change| upstream.list_changed(change)).collect();
            for client in upstream.clients().iter().filter(|client| client.is_initialized()) {
                frames.iter().for_each(|frame| client.notify(frame.clone()));
            }
        });
    }

    /// Returns the server's notification of a change, or builds one if the server offers the listing.
    fn list_changed(&self, ListChange { method, notification: received }: ListChange) -> Option<Vec<u8>> {
        received.or_else(|| {
            let listing = method.strip_prefix("notifications/")?.strip_suffix("/list_changed")?;
            let backend = self.server.backend().ok()?;
            patch::find(backend.info().raw.get(), &["capabilities", listing])?;
            Some(notification(&method, None))
        })
    }
}

/// Chooses the response stream for a message to a client with requests in flight. `None` stands for the client's GET
/// stream. The response stream of the only request is chosen. Of several requests any may have caused the message: the GET
/// stream is chosen, or the newest open response stream if the client has no GET stream.
fn choose_stream(
    client: &ClientContext,
    requests: &[(Arc<ClientContext>, ResponseStream)],
) -> Option<ResponseStream> {
    let last_open = requests.iter().rev().map(|(_, stream)| stream).find(|stream| !stream.is_closed());
    last_open.filter(|_| requests.len() == 1 || client.stream().is_none()).cloned()
}

/// Rebuilds a notification as the server sent it.
fn forwarded(message: &ServerMessage<'_>) -> Vec<u8> {
    forwarded_with(message, message.params.map(RawValue::get))
}

/// Rebuilds a notification with other parameters.
fn forwarded_with(message: &ServerMessage<'_>, params: Option<&str>) -> Vec<u8> {
    with_extra_members(notification(message.method, params), message.extra_members)
}

impl UpstreamObserver for UpstreamSession {
    fn on_notification(&self, message: ServerMessage<'_>) {
        let field = |name: &str| message.params.and_then(|params| patch::find_string(params.get(), &[name]));
        match message.method {
            // `on_tools_listed` announces the change: a client that lists the tools at once must not get the old ones.
            "notifications/tools/list_changed" => {}
            "notifications/message" => {
                let level = field("level").as_deref().and_then(LoggingLevel::parse);
                self.forward_log(level, forwarded(&message), message.stream_request_id);
            }
            "notifications/resources/updated" => self.forward_resource_update(&message),
            "notifications/cancelled" => {
                let params = message.params.map_or("{}", RawValue::get);
                if let Some(id) = patch::find(params, &["requestId"]) {
                    self.cancel_server_requests(Some(id), params);
                }
            }
            method if method.ends_with("/list_changed") => {
                let notification = Some(forwarded(&message));
                self.announce([ListChange { method: method.to_owned(), notification }]);
            }
            method => match self.recipient(message.stream_request_id) {
                Ok((client, stream)) => client.send(stream.as_ref(), forwarded(&message)),
                Err(reason) => {
                    debug!(server = %self.server.settings.name, method, ?reason, "dropped a notification without a recipient")
                }
            },
        }
    }

    fn on_request(&self, id: Id<'_>, message: ServerMessage<'_>) -> bool {
        // The process of one call (`isolation: "per-call"`) would never receive the response: no connection to it outlives
        // the call.
        if self.server.settings.isolation == Isolation::PerCall {
            return false;
        }
        match self.recipient(message.stream_request_id) {
            Err(NoRecipient::NoClient) => false,
            Ok((client, _)) if !client.accepts(message.method) => false,
            Ok(recipient) => {
                if let Err(reason) = self.forward_request(id, &message, recipient) {
                    self.server.reject_request(id.as_json(), CANNOT_FORWARD, reason);
                }
                true
            }
            Err(reason) => {
                let reason = format!("`{}` {}", message.method, reason.as_str());
                self.server.reject_request(id.as_json(), RpcError::INVALID_REQUEST, &reason);
                true
            }
        }
    }

    fn on_last_listing_read(&self) {
        // Tool names that were made without it are outdated.
        self.tasks.tool_changes.fetch_add(1, Ordering::AcqRel);
    }

    fn on_tools_listed(&self, is_first: bool, has_changed: bool) {
        // Tool names that were made from the earlier listing are outdated.
        self.tasks.tool_changes.fetch_add(1, Ordering::AcqRel);
        let replaces_base_tools = self.take_has_served_base_tools();
        let tools = (has_changed || replaces_base_tools).then_some("tools");
        // Clients that were connected before the first start of this server have not seen its other listings.
        let others = ["prompts", "resources"].into_iter().filter(|_| is_first && !replaces_base_tools);
        self.announce(tools.into_iter().chain(others).map(ListChange::noticed));
    }

    fn on_lost(&self) {
        self.cancel_server_requests(None, r#"{"reason":"the server has disconnected"}"#);
    }

    fn on_connected(&self) {
        self.spawn_restoring();
    }

    fn has_subscribers(&self) -> bool {
        let name = self.server.settings.name.as_str();
        self.clients().iter().any(|client| !client.subscriptions(name).is_empty())
    }
}
