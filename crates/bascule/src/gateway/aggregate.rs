//! All servers as one: requests find their server by the names that clients see (GW-02).

use std::sync::Arc;
use std::time::Duration;

use bascule_mcp::{RpcError, patch};
use serde_json::json;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::Gateway;
use super::client_request::ClientRequest;
use super::listings::{PROMPTS, RESOURCES, TEMPLATES};
use super::reply::{ErrorReply, Reply, call_failure};
use crate::client::ClientContext;
use crate::fleet::request::ExtraMembers;
use crate::fleet::server::Server;

/// A client that initializes waits this long for servers that are starting; the others join later.
const STARTING: Duration = Duration::from_secs(10);

impl Gateway {
    pub(super) async fn initialize_aggregate(&self, client: &Arc<ClientContext>) -> Reply {
        self.attach_all(client);
        self.first_starts(client).await;
        let snapshot = self.bridge.fleet.snapshot.load_full();
        let infos: Vec<(String, String)> = snapshot
            .in_order()
            .filter_map(|base| Some((base.settings.name.to_string(), self.info(client, base)?)))
            .collect();
        let is_offered =
            |name: &str| infos.iter().any(|(_, raw)| patch::find(raw, &["capabilities", name]).is_some());
        let mut capabilities = json!({ "tools": { "listChanged": true } });
        for (name, value) in [
            ("resources", json!({ "listChanged": true, "subscribe": true })),
            ("prompts", json!({ "listChanged": true })),
            ("completions", json!({})),
            ("logging", json!({})),
        ] {
            if is_offered(name) {
                capabilities[name] = value;
            }
        }
        let mut result = json!({
            "protocolVersion": "",
            "capabilities": capabilities,
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

    pub(super) async fn handle_aggregate(&self, request: &ClientRequest<'_>) -> Reply {
        match request.method {
            "tools/call" => self.call_aggregate(request).await,
            // Boxed: a task has room for its largest branch, and most requests are calls.
            _ => Box::pin(self.handle_aggregate_other(request)).await,
        }
    }

    async fn call_aggregate(&self, request: &ClientRequest<'_>) -> Reply {
        let name = request.text("name");
        if self.is_own_tool(&name) {
            // Boxed: a script takes far more room than a call.
            return Box::pin(self.call_own(request, &name)).await;
        }
        let (server, tool) = self.find_tool(request.client, &name).await?;
        let upstream = match self.upstream(request.client, &server) {
            Ok(upstream) => upstream,
            Err(error) => return call_failure(error),
        };
        let result = self.call_tool(request, &upstream, Some(&tool)).await?;
        Ok(self.with_shown_uris(request.client, &server, result, "content", &[]))
    }

    async fn handle_aggregate_other(&self, request: &ClientRequest<'_>) -> Reply {
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
                let upstreams = self.upstreams_with(request.client, "logging");
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

    /// Waits for servers that are starting: the bridge's, and the client's own.
    pub(super) async fn first_starts(&self, client: &Arc<ClientContext>) {
        let by = Instant::now() + STARTING;
        let snapshot = self.bridge.fleet.snapshot.load_full();
        let own = snapshot.in_order().filter_map(|base| self.server_for(client, base).ok());
        let servers: Vec<_> = own.chain(snapshot.in_order().cloned()).collect();
        futures_util::future::join_all(servers.iter().map(|server| server.first_start(by))).await;
    }

    /// Returns a server's `initialize` result: the client's own server's, or the bridge's until that has started.
    fn info(&self, client: &Arc<ClientContext>, base: &Arc<Server>) -> Option<String> {
        let backend = self.server_for(client, base).ok()?.backend().or_else(|_| base.backend()).ok()?;
        Some(backend.info().raw.get().to_owned())
    }

    /// Returns true if a server has declared a capability.
    pub(super) fn offers(&self, client: &Arc<ClientContext>, base: &Arc<Server>, capability: &str) -> bool {
        let info = self.info(client, base);
        info.is_some_and(|raw| patch::find(&raw, &["capabilities", capability]).is_some())
    }
}

/// Returns text as a JSON string.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
