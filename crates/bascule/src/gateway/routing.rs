//! Routes the messages of a server to the one client they concern (GW-04).
//!
//! MCP messages of a server do not name the client request that caused them. Over Streamable HTTP the response stream
//! identifies it. Over other transports the recipient is the only client with requests in flight; with several such
//! clients the message has no recipient. Abandoned requests count as in flight, and so do calls of detached callers.

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
#[derive(Debug)]
enum NoRecipient {
    NoClient,
    /// The message may concern any of several clients.
    Ambiguous,
}

impl UpstreamSession {
    /// Finds the recipient of a message. `stream_request_id` is the id of the request whose response stream carried the
    /// message; `None` if the transport has no stream for each request.
    fn recipient(&self, stream_request_id: Option<u64>) -> Result<Recipient, NoRecipient> {
        if let Some(id) = stream_request_id {
            return match self.in_flight.origin_of(self.server.serial, id) {
                Some(Origin::Client { client, stream }) => {
                    Ok((client, Some(stream).filter(|stream| !stream.is_closed())))
                }
                _ => Err(NoRecipient::NoClient),
            };
        }
        let origins = self.in_flight.origins(self.server.serial);
        if origins.iter().any(|origin| matches!(origin, Origin::Detached)) {
            return Err(NoRecipient::Ambiguous);
        }
        let requests: Vec<_> = origins
            .iter()
            .filter_map(|origin| match origin {
                Origin::Client { client, stream } => Some((client, stream)),
                _ => None,
            })
            .collect();
        match requests.first() {
            Some((client, _)) if requests.iter().any(|(other, _)| !Arc::ptr_eq(other, client)) => {
                Err(NoRecipient::Ambiguous)
            }
            Some((client, _)) => Ok(((*client).clone(), choose_stream(client, &requests))),
            None => self.only_client().map(|client| (client, None)),
        }
    }

    /// Returns the client of a session with one client.
    fn only_client(&self) -> Result<Arc<ClientContext>, NoRecipient> {
        match &self.clients()[..] {
            [only] => Ok(only.clone()),
            [] => Err(NoRecipient::NoClient),
            _ => Err(NoRecipient::Ambiguous),
        }
    }

    /// Forwards a log message to its recipient, if the client wants its level.
    fn forward_log(&self, level: Option<LoggingLevel>, frame: Vec<u8>, stream_request_id: Option<u64>) {
        let Ok((client, stream)) = self.recipient(stream_request_id) else { return };
        let default = self.logging_level().map(|_| LoggingLevel::DEFAULT);
        let min_level = client.logging_level().or(default);
        if level.is_none() || level >= min_level {
            client.send(stream.as_ref(), frame);
        }
    }

    fn forward_resource_update(&self, message: &ServerMessage<'_>) {
        let Some(params) = message.params else { return };
        let uri = patch::find_string(params.get(), &["uri"]).unwrap_or_default();
        for client in self.clients() {
            let Some(shown) = client.subscribed_uri(self.server.settings.name.as_str(), &uri) else {
                continue;
            };
            client.notify(match shown == uri {
                true => forwarded(message),
                false => {
                    let shown = serde_json::Value::from(shown).to_string();
                    notification(message.method, Some(&patch::insert(params.get(), &["uri"], &shown)))
                }
            });
        }
    }

    /// Sends a request of the server to a client, under an id that the bridge chooses.
    fn forward_request(
        &self,
        id: Id<'_>,
        message: &ServerMessage<'_>,
        (client, stream): Recipient,
    ) -> Result<(), &'static str> {
        let params = message.params.map(RawValue::get);
        let token = params.and_then(|params| patch::find(params, &["_meta", "progressToken"]));
        let bridge_id = client.begin_server_request(&self.server, id.as_json(), token, stream.as_ref())?;
        let with_token = params.filter(|_| token.is_some());
        let with_token =
            with_token.map(|params| patch::insert(params, &["_meta", "progressToken"], &bridge_id));
        let params = with_token.as_deref().or(params);
        client.send(
            stream.as_ref(),
            with_extra_members(request_with_id(&bridge_id, message.method, params), message.extra_members),
        );
        Ok(())
    }

    /// Tells clients that one request of the server is cancelled, or all of them.
    fn cancel_server_requests(&self, id: Option<&str>, params: &str) {
        for client in self.clients() {
            for (bridge_id, stream) in client.remove_server_requests(&self.server, id) {
                let params = patch::insert(params, &["requestId"], &bridge_id);
                client.send(stream.as_ref(), notification("notifications/cancelled", Some(&params)));
            }
        }
    }

    /// Announces changed listings to clients: with the server's notification, or one that the bridge builds for a listing
    /// that the server offers. Changes within `ANNOUNCE_DELAY` are announced once.
    fn announce<'a>(&self, changes: impl IntoIterator<Item = (&'a str, Option<Vec<u8>>)>) {
        let Some(upstream) = self.this.upgrade() else { return };
        // Clients that are still initializing have seen no listing.
        if self.clients().iter().all(|client| !client.is_initialized()) || self.add_announcements(changes) {
            return;
        }
        self.tasks.spawn(async move {
            sleep(ANNOUNCE_DELAY).await;
            let changes = upstream.take_announcements().into_iter();
            let frames: Vec<Vec<u8>> = changes
                .filter_map(|(listing, frame)| frame.or_else(|| upstream.list_changed(&listing)))
                .collect();
            for client in upstream.clients().iter().filter(|client| client.is_initialized()) {
                frames.iter().for_each(|frame| client.notify(frame.clone()));
            }
        });
    }

    /// Builds the notification that a listing has changed, if the server offers that listing.
    fn list_changed(&self, listing: &str) -> Option<Vec<u8>> {
        let backend = self.server.backend().ok()?;
        patch::find(backend.info().raw.get(), &["capabilities", listing])?;
        Some(notification(&format!("notifications/{listing}/list_changed"), None))
    }
}

/// Chooses the response stream for a message to a client with requests in flight. `None` stands for the client's GET
/// stream. The response stream of the only request is chosen. Of several requests any may have caused the message: the GET
/// stream is chosen, or the newest open response stream if the client has no GET stream.
fn choose_stream(
    client: &ClientContext,
    requests: &[(&Arc<ClientContext>, &ResponseStream)],
) -> Option<ResponseStream> {
    let last_open = requests.iter().rev().map(|(_, stream)| *stream).find(|stream| !stream.is_closed());
    last_open.filter(|_| requests.len() == 1 || client.stream().is_none()).cloned()
}

/// Rebuilds a notification as the server sent it.
fn forwarded(message: &ServerMessage<'_>) -> Vec<u8> {
    with_extra_members(notification(message.method, message.params.map(RawValue::get)), message.extra_members)
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
                self.announce([(method, Some(forwarded(&message)))])
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
        // A process for one call would never receive the response.
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
            Err(NoRecipient::Ambiguous) => {
                let reason = format!(
                    "`{}` may concern any of several clients: configure `session: \"per-client\"` for this server",
                    message.method
                );
                self.server.reject_request(id.as_json(), RpcError::INVALID_REQUEST, &reason);
                true
            }
        }
    }

    fn on_tools_listed(&self, is_first: bool) {
        self.tasks.tool_changes.fetch_add(1, Ordering::AcqRel);
        let served_substitute_tools = self.take_served_substitute_tools();
        match is_first && !served_substitute_tools {
            false => self.announce([("tools", None)]),
            // Clients that were connected before the first start of this server have not seen its listings.
            true => self.announce(["tools", "prompts", "resources"].map(|listing| (listing, None))),
        }
    }

    fn on_lost(&self) {
        self.cancel_server_requests(None, r#"{"requestId":0,"reason":"the server has disconnected"}"#);
    }

    fn on_reconnected(&self) {
        let Some(upstream) = self.this.upgrade() else { return };
        self.tasks.spawn(async move { upstream.restore_subscriptions().await });
    }
}
