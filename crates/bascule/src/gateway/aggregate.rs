//! All servers as one: requests find their server by the names that clients see.

use std::sync::Arc;
use std::time::Duration;

use bascule_mcp::{RpcError, may_walk, patch, run_large};
use serde_json::json;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::Gateway;
use super::client_request::ClientRequest;
use super::listings::{PROMPTS, RESOURCES, TEMPLATES};
use super::reply::{ErrorReply, Reply};
use crate::client::ClientContext;
use crate::fleet::request::ExtraMembers;
use crate::fleet::server::Server;

/// A client that initializes waits this long for servers that have never started; the others join later.
const INITIALIZING: Duration = Duration::from_secs(5);
/// The call of an unknown tool waits this long for servers that are starting.
const STARTING: Duration = Duration::from_secs(10);

impl Gateway {
    pub(super) async fn initialize_aggregate(&self, client: &Arc<ClientContext>) -> Reply {
        self.attach_all(client);
        self.wait_for_tools(client, INITIALIZING).await;
        let snapshot = self.bridge.fleet.snapshot.load_full();
        let infos: Vec<(String, Arc<str>)> = snapshot
            .in_order()
            .filter_map(|base| Some((base.settings.name.to_string(), self.info(client, base)?)))
            .collect();
        // A server that has never started may offer anything, and a client believes what it is told now.
        let may_come = snapshot.in_order().any(|base| base.is_starting_first());
        let is_offered = |name: &str| may_come || infos.iter().any(|(_, info)| declares(info, name));
        let mut result = json!({
            "protocolVersion": "",
            "capabilities": capabilities(is_offered),
            "serverInfo": { "name": "bascule", "version": env!("CARGO_PKG_VERSION") },
        });
        let instructions: Vec<String> = infos
            .iter()
            .filter_map(|(name, raw)| {
                Some(format!("{name}: {}", patch::find_string(raw, &["instructions"])?))
            })
            .collect();
        if !instructions.is_empty() {
            result["instructions"] = instructions.join("\n\n").into();
        }
        Ok(result.to_string())
    }

    pub(super) async fn handle_aggregate(self: &Arc<Self>, request: &ClientRequest<'_>) -> Reply {
        match request.method {
            "tools/call" => self.call_aggregate(request).await,
            // Boxed: a task has room for its largest branch, and most requests are calls.
            _ => Box::pin(self.handle_aggregate_other(request)).await,
        }
    }

    async fn call_aggregate(self: &Arc<Self>, request: &ClientRequest<'_>) -> Reply {
        let name = request.tool_name();
        let name = name.inspect_err(|error| self.record_invalid(request, "", "", error.message()))?;
        if self.is_own_tool(&name) {
            // Boxed: a script takes far more room than a call.
            return Box::pin(self.call_own(request, &name)).await;
        }
        let found = self.find_tool(request.client, &name).await;
        let (server, tool) =
            found.inspect_err(|error| self.record_unknown(request, &name, error.message()))?;
        let upstream = self.upstream(request.client, &server);
        let result = self.call_tool(request, &server, upstream, Some(&tool)).await?;
        if may_walk(result.len()) {
            return Ok(self.with_shown_uris(request.client, &server, result, "content", &[]));
        }
        let (gateway, client) = (self.clone(), request.client.clone());
        let change = move || gateway.with_shown_uris(&client, &server, result, "content", &[]);
        Ok(Box::pin(run_large(change)).await)
    }

    async fn handle_aggregate_other(self: &Arc<Self>, request: &ClientRequest<'_>) -> Reply {
        match request.method {
            "tools/list" => self.list_tools(request.client, &request.text("cursor")).await,
            "resources/list" => self.list(request, RESOURCES).await,
            "resources/templates/list" => self.list(request, TEMPLATES).await,
            "prompts/list" => self.list(request, PROMPTS).await,
            "prompts/get" => {
                let (server, name) = self.find_prompt(request, &request.text("name")).await?;
                let prompt = self.forward_with(request, &server, &["name"], &name).await?;
                Ok(self.with_shown_uris(request.client, &server, prompt, "messages", &["content"]))
            }
            "resources/read" => self.read_resource(request, &request.text("uri")).await,
            "resources/subscribe" | "resources/unsubscribe" => {
                self.subscribe_aggregate(request, &request.text("uri")).await
            }
            "completion/complete" => self.complete(request).await,
            "logging/setLevel" => {
                let mut upstreams = self.upstreams_with(request.client, "logging");
                upstreams.retain(|upstream| upstream.server.backend().is_ok());
                self.set_level(request, &upstreams).await
            }
            "initialize" => {
                Err(ErrorReply::new(RpcError::INVALID_REQUEST, "this session is initialized already"))
            }
            method => Err(ErrorReply::unknown_method(method)),
        }
    }

    async fn complete(&self, request: &ClientRequest<'_>) -> Reply {
        let reference =
            |field: &str| patch::find_string(request.params(), &["ref", field]).unwrap_or_default();
        if reference("type") == "ref/prompt" {
            let (server, name) = self.find_prompt(request, &reference("name")).await?;
            return self.forward_with(request, &server, &["ref", "name"], &name).await;
        }
        let (server, uri) = self.find_template(request, &reference("uri")).await?;
        self.forward_with(request, &server, &["ref", "uri"], &uri).await
    }

    /// Forwards a request to one server, with the server's own name or URI in one field.
    pub(super) async fn forward_with(
        &self,
        request: &ClientRequest<'_>,
        server: &str,
        field: &[&str],
        value: &str,
    ) -> Reply {
        let upstream = self.upstream(request.client, server)?;
        let params = RawValue::from_string(patch::insert(request.params(), field, &quoted(value))).ok();
        self.forward(request, &upstream, params.as_deref(), &ExtraMembers::default()).await
    }

    /// Waits for servers that are starting.
    pub(super) async fn wait_for_starts(&self, client: &Arc<ClientContext>) {
        let (by, servers) = (Instant::now() + STARTING, self.servers_of(client));
        futures_util::future::join_all(servers.iter().map(|server| server.wait_for_first_start(by))).await;
    }

    /// Waits for the tools of servers that are starting, unless they are known from an earlier run.
    pub(super) async fn wait_for_tools(&self, client: &Arc<ClientContext>, at_most: Duration) {
        let (by, servers) = (Instant::now() + at_most, self.servers_of(client));
        futures_util::future::join_all(servers.iter().map(|server| server.tools_known(by))).await;
    }

    /// Returns the bridge's servers, and the client's own.
    fn servers_of(&self, client: &Arc<ClientContext>) -> Vec<Arc<Server>> {
        let snapshot = self.bridge.fleet.snapshot.load_full();
        let own = snapshot.in_order().filter_map(|base| self.server_for(client, base).ok());
        own.chain(snapshot.in_order().cloned()).collect()
    }

    /// Returns a server's `initialize` result: the client's own server's, or the bridge's until that has started. It may come
    /// from an earlier run.
    pub(super) fn info(&self, client: &Arc<ClientContext>, base: &Arc<Server>) -> Option<Arc<str>> {
        self.server_for(client, base).ok()?.info().or_else(|| base.info())
    }

    /// Returns true if a server has declared a capability.
    pub(super) fn offers(&self, client: &Arc<ClientContext>, base: &Arc<Server>, capability: &str) -> bool {
        self.info(client, base).is_some_and(|info| declares(&info, capability))
    }
}

/// Returns true if an `initialize` result has a capability.
pub(super) fn declares(info: &str, capability: &str) -> bool {
    patch::find(info, &["capabilities", capability]).is_some()
}

/// Returns the capabilities of the bridge, with those that a server offers.
fn capabilities(is_offered: impl Fn(&str) -> bool) -> serde_json::Value {
    let mut capabilities = json!({ "tools": { "listChanged": true } });
    for (name, value) in [
        ("resources", json!({ "listChanged": true, "subscribe": true })),
        ("prompts", json!({ "listChanged": true })),
        ("completions", json!({})),
        ("logging", json!({})),
    ] {
        // Long results of scripts are resources of the bridge itself.
        if name == "resources" || is_offered(name) {
            capabilities[name] = value;
        }
    }
    capabilities
}

/// Returns text as a JSON string.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
