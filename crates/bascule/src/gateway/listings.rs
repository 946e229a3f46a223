//! The merged listings of all servers, and the names under which clients see their items (GW-02).
//!
//! Tools come from the catalog. Resources and prompts are requested from the servers that offer them; a server that is
//! down is left out, and named in the result.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bascule_catalog::{Catalog, ServerTools};
use bascule_mcp::{QualifiedIndex, patch};
use bascule_model::BridgeResult;
use serde_json::{Value, json};

use super::Gateway;
use super::aggregate::quoted;
use super::client_request::ClientRequest;
use super::reply::{ErrorReply, Reply};
use super::upstream_session::UpstreamSession;
use super::upstreams::{has_session_per_client, sharing_key};
use crate::client::{ClientContext, SharingKey};
use crate::fleet::server::Server;

/// The most pages that are requested of one listing; more are taken for endless.
const MAX_PAGES: usize = 100;
/// The tools on one page. Most clients never ask for a second page.
const PAGE: usize = 1_000;

/// The tools that a client sees, and their names.
pub(super) struct ToolNames {
    catalog: Arc<Catalog>,
    names: QualifiedIndex,
    /// The bridge's catalog, and the count of tool changes, from which the names were made.
    source: (Arc<Catalog>, u64),
}

/// A kind of item that servers list.
#[derive(Clone, Copy)]
pub(super) struct Listing {
    capability: &'static str,
    method: &'static str,
    /// The member of the result that holds the items.
    member: &'static str,
    /// The member of an item that identifies it.
    key: &'static str,
}

pub(super) const RESOURCES: Listing =
    Listing { capability: "resources", method: "resources/list", member: "resources", key: "uri" };
pub(super) const TEMPLATES: Listing = Listing {
    capability: "resources",
    method: "resources/templates/list",
    member: "resourceTemplates",
    key: "uriTemplate",
};
pub(super) const PROMPTS: Listing =
    Listing { capability: "prompts", method: "prompts/list", member: "prompts", key: "name" };

/// One item of a listing.
pub(super) struct Item {
    pub(super) server: String,
    /// The name or URI that the server gave it.
    pub(super) key: String,
    raw: String,
}

impl Gateway {
    /// Lists the tools of all servers, page by page. The cursor is the name after which the page begins.
    pub(super) async fn list_tools(&self, client: &Arc<ClientContext>, cursor: &str) -> Reply {
        self.first_starts(client).await;
        if self.shows_code() {
            let tools = self.own_tools().join(",");
            return Ok(format!(r#"{{"tools":[{tools}]{}}}"#, missing_member(&self.missing(client))));
        }
        let shown = self.tool_names_for(client);
        let tools = shown.catalog.tools().filter_map(|tool| {
            let name = shown.names.qualified(tool.id().server(), tool.id().tool())?;
            Some((name, tool))
        });
        let mut rest = tools.skip_while(|(name, _)| !cursor.is_empty() && *name != cursor).peekable();
        if !cursor.is_empty() && rest.next().is_none() {
            return Err(ErrorReply::invalid_params("the cursor belongs to no listing of the bridge"));
        }
        let page: Vec<_> = rest.by_ref().take(PAGE).collect();
        let renamed = page
            .iter()
            .map(|(name, tool)| patch::insert(tool.definition().raw.get(), &["name"], &quoted(name)));
        let mut tools: Vec<String> = renamed.collect();
        let next = match (rest.peek(), page.last()) {
            (Some(_), Some((name, _))) => format!(r#","nextCursor":{}"#, quoted(name)),
            _ => {
                tools.extend(self.own_tools());
                String::new()
            }
        };
        Ok(format!(r#"{{"tools":[{}]{next}{}}}"#, tools.join(","), missing_member(&self.missing(client))))
    }

    /// Returns the tools that a client sees. Clients of equal capabilities see the same, unless a server has a session for
    /// each client.
    fn tool_names_for(&self, client: &Arc<ClientContext>) -> Arc<ToolNames> {
        let snapshot = self.bridge.fleet.snapshot.load();
        let has_own = snapshot.servers.values().any(|base| has_session_per_client(&base.settings));
        let view = if has_own { SharingKey::Client(client.serial) } else { client.sharing_key() };
        // Read before the tools: a change in between is seen the next time.
        let changes = match view.has_no_capabilities() {
            true => 0,
            false => self.tasks.tool_changes.load(Ordering::Acquire),
        };
        let is_current = |known: &&Arc<ToolNames>| {
            known.source.1 == changes && Arc::ptr_eq(&known.source.0, &snapshot.catalog)
        };
        if let Some(known) = self.tool_names().get(&view).filter(is_current) {
            return known.clone();
        }
        let catalog = match view.has_no_capabilities() {
            true => snapshot.catalog.clone(),
            false => Arc::new(snapshot.in_order().filter_map(|base| self.tools_for(client, base)).collect()),
        };
        let names =
            QualifiedIndex::of_names(catalog.tools().map(|tool| (tool.id().server(), tool.id().tool())));
        let names = Arc::new(ToolNames { catalog, names, source: (snapshot.catalog.clone(), changes) });
        self.tool_names().insert(view, names.clone());
        names
    }

    fn tools_for(&self, client: &Arc<ClientContext>, base: &Arc<Server>) -> Option<Arc<ServerTools>> {
        match sharing_key(&base.settings, client).has_no_capabilities() {
            true => base.tools(),
            false => self.upstream(client, base.settings.name.as_str()).ok()?.tools(base),
        }
    }

    /// Finds the server and the tool behind a name that a client sees.
    pub(super) async fn find_tool(
        &self,
        client: &Arc<ClientContext>,
        shown: &str,
    ) -> Result<(String, String), ErrorReply> {
        let find = || {
            let names = self.tool_names_for(client);
            names.names.original(shown).map(|(server, tool)| (server.to_owned(), tool.to_owned()))
        };
        if let Some(found) = find() {
            return Ok(found);
        }
        // The tool may belong to a server that is starting. Else the server that the name begins with says why the tool
        // cannot be called: the server may be down, or the tool denied.
        Box::pin(self.first_starts(client)).await;
        let unknown = || ErrorReply::invalid_params(format!("there is no tool `{shown}`"));
        find().or_else(|| self.servers_by_prefix(shown).pop()).ok_or_else(unknown)
    }

    /// Returns the servers whose names a shown name begins with, and the rest of the name. The longest comes last.
    fn servers_by_prefix(&self, shown: &str) -> Vec<(String, String)> {
        let snapshot = self.bridge.fleet.snapshot.load();
        let parts = snapshot.in_order().filter_map(|base| {
            let name = base.settings.name.as_str();
            let rest = shown.strip_prefix(name)?.strip_prefix("__")?;
            Some((name.to_owned(), rest.to_owned()))
        });
        let mut parts: Vec<_> = parts.collect();
        parts.sort_by_key(|(name, _)| name.len());
        parts
    }

    /// Lists the items of all servers under the names that clients see.
    pub(super) async fn list(&self, request: &ClientRequest<'_>, listing: Listing) -> Reply {
        let (items, missing) = self.merge(request, listing, None).await;
        let renamed = items
            .iter()
            .zip(shown_keys(listing, &items))
            .map(|(item, shown)| patch::insert(&item.raw, &[listing.key], &quoted(&shown)));
        let items: Vec<String> = renamed.collect();
        Ok(format!(r#"{{"{}":[{}]{}}}"#, listing.member, items.join(","), missing_member(&missing)))
    }

    /// Requests a listing of every server that offers it, or of those named, at the same time. Returns the items in the
    /// order of the configuration, and the servers that failed.
    pub(super) async fn merge(
        &self,
        request: &ClientRequest<'_>,
        listing: Listing,
        only: Option<&[String]>,
    ) -> (Vec<Item>, Vec<Value>) {
        let (client, mut missing) = (request.client, self.missing(request.client));
        let mut upstreams = self.upstreams_with(client, listing.capability);
        upstreams.retain(|upstream| {
            only.is_none_or(|only| only.iter().any(|name| upstream.server.settings.name.as_str() == name))
        });
        let requests = upstreams
            .iter()
            .map(|upstream| async move { (upstream, upstream.pages(request, listing).await) });
        let mut items = Vec::new();
        for (upstream, pages) in futures_util::future::join_all(requests).await {
            let name = upstream.server.settings.name.as_str();
            match pages {
                Ok(listed) => items.extend(listed.into_iter().filter_map(|raw| {
                    let key = patch::find_string(&raw, &[listing.key])?;
                    Some(Item { server: name.to_owned(), key, raw })
                })),
                Err(error) => missing.push(json!({ "server": name, "why": error.message })),
            }
        }
        if listing.member == RESOURCES.member && only.is_none() {
            client.set_listed_uris(Arc::new(QualifiedIndex::of_uris(keys(&items))));
        }
        (items, missing)
    }

    /// Returns the upstream sessions of the servers that have declared a capability.
    pub(super) fn upstreams_with(
        &self,
        client: &Arc<ClientContext>,
        capability: &str,
    ) -> Vec<Arc<UpstreamSession>> {
        let snapshot = self.bridge.fleet.snapshot.load_full();
        let offering = snapshot.in_order().filter(|server| self.offers(client, server, capability));
        offering.filter_map(|server| self.upstream(client, server.settings.name.as_str()).ok()).collect()
    }

    /// Returns the servers that are down, each with the reason.
    fn missing(&self, client: &Arc<ClientContext>) -> Vec<Value> {
        let snapshot = self.bridge.fleet.snapshot.load_full();
        let missing = |base: &Arc<Server>| {
            let reason = match self.server_for(client, base) {
                Ok(server) => server.state().cause()?.message.clone(),
                Err(error) => error.message,
            };
            Some(json!({ "server": base.settings.name, "why": reason }))
        };
        snapshot.in_order().filter_map(missing).collect()
    }

    /// Finds the server and the prompt behind a name that a client sees. Servers that the name begins with are asked
    /// first: the others may be slow.
    pub(super) async fn find_prompt(
        &self,
        request: &ClientRequest<'_>,
        shown: &str,
    ) -> Result<(String, String), ErrorReply> {
        let likely: Vec<String> =
            self.servers_by_prefix(shown).into_iter().map(|(server, _)| server).collect();
        for only in [Some(&likely[..]).filter(|likely| !likely.is_empty()), None] {
            let (items, _) = self.merge(request, PROMPTS, only).await;
            if let Some((server, name)) = QualifiedIndex::of_names(keys(&items)).original(shown) {
                return Ok((server.to_owned(), name.to_owned()));
            }
        }
        Err(ErrorReply::invalid_params(format!("there is no prompt `{shown}`")))
    }
}

pub(super) fn keys(items: &[Item]) -> impl Iterator<Item = (&str, &str)> + Clone {
    items.iter().map(|item| (item.server.as_str(), item.key.as_str()))
}

/// Returns the names or URIs under which clients see the items.
fn shown_keys(listing: Listing, items: &[Item]) -> Vec<String> {
    let index = match listing.key == PROMPTS.key {
        true => QualifiedIndex::of_names(keys(items)),
        false => QualifiedIndex::of_uris(keys(items)),
    };
    keys(items).map(|(server, key)| index.qualified(server, key).unwrap_or(key).to_owned()).collect()
}

impl UpstreamSession {
    /// Requests all pages of a listing. Returns the items as the server sent them.
    async fn pages(&self, request: &ClientRequest<'_>, listing: Listing) -> BridgeResult<Vec<String>> {
        let (origin, deadline) = (request.origin(), self.deadline());
        self.server.first_start(deadline.next()).await;
        let (mut items, mut cursor) = (Vec::new(), None::<String>);
        for _ in 0..MAX_PAGES {
            let params = cursor.as_ref().map(|cursor| format!(r#"{{"cursor":{cursor}}}"#));
            let page = self.send_request(listing.method, params.as_deref(), &origin, &deadline).await?;
            let listed = patch::find_elements(&page, &[listing.member]).unwrap_or_default();
            items.extend(listed.into_iter().map(str::to_owned));
            match patch::find(&page, &["nextCursor"]).filter(|next| *next != "null") {
                Some(next) => cursor = Some(next.to_owned()),
                None => break,
            }
        }
        Ok(items)
    }
}

/// Builds the `_meta` member that names the servers missing from a result.
fn missing_member(missing: &[Value]) -> String {
    match missing.is_empty() {
        true => String::new(),
        false => format!(r#","_meta":{{"bascule/missing":{}}}"#, Value::from(missing.to_vec())),
    }
}
