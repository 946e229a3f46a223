//! The merged listings of all servers, and the names under which clients see their items.
//!
//! Tools come from the catalog. Resources and prompts are requested from the servers that offer them (`listing_requests`); a
//! server that is down is left out, and named in the result.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use bascule_catalog::{Catalog, ServerTools, nearest_name};
use bascule_mcp::{QualifiedIndex, QualifiedNames, patch};
use bascule_model::ToolId;
use serde_json::{Value, json};

use super::Gateway;
use super::aggregate::quoted;
use super::client_request::ClientRequest;
use super::reply::{ErrorReply, Reply};
use super::upstream_session::UpstreamSession;
use super::upstreams::{has_session_per_client, sharing_key};
use crate::client::{ClientContext, SharingKey};
use crate::fleet::server::Server;

/// A list of tools waits this long for servers that have never listed theirs; the others join later.
const FIRST_LISTINGS: Duration = Duration::from_secs(10);
/// The tools on one page. Most clients never ask for a second page.
const PAGE: usize = 1_000;

/// The tools that a client sees, and their names.
pub(super) struct ToolNames {
    catalog: Arc<Catalog>,
    names: QualifiedIndex,
    /// The bridge's catalog, and the count of tool changes, from which the names were made.
    source: (Arc<Catalog>, u64),
}

/// The names that clients have been shown since the bridge started. They are the same for all clients.
#[derive(Default)]
pub(super) struct OwnedNames {
    tools: QualifiedNames,
    prompts: QualifiedNames,
}

/// A kind of item that servers list.
#[derive(Clone, Copy)]
pub(super) struct Listing {
    pub(super) capability: &'static str,
    pub(super) method: &'static str,
    /// The member of the result that holds the items.
    pub(super) member: &'static str,
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
pub(super) struct ListedItem {
    pub(super) server: String,
    /// The name or URI that the server gave it.
    pub(super) key: String,
    raw: String,
}

impl Gateway {
    /// Lists the tools of all servers, page by page. The cursor is the name after which the page begins.
    pub(super) async fn list_tools(&self, client: &Arc<ClientContext>, cursor: &str) -> Reply {
        self.wait_for_tools(client, FIRST_LISTINGS).await;
        let meta = self.tools_meta(client);
        if self.shows_code() {
            let tools = self.own_tools(client).join(",");
            return Ok(format!(r#"{{"tools":[{tools}]{meta}}}"#));
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
                tools.extend(self.own_tools(client));
                String::new()
            }
        };
        Ok(format!(r#"{{"tools":[{}]{next}{meta}}}"#, tools.join(",")))
    }

    /// Builds the `_meta` member of a list of tools: the servers that are missing, and those that have not listed their tools
    /// in this run.
    fn tools_meta(&self, client: &Arc<ClientContext>) -> String {
        let snapshot = self.bridge.fleet.snapshot.load_full();
        let is_last = |base: &&Arc<Server>| {
            self.tools_for(client, base).is_some_and(|tools| tools.is_from_last_listing())
        };
        let last: Vec<&str> =
            snapshot.in_order().filter(is_last).map(|base| base.settings.name.as_str()).collect();
        meta_member([
            ("bascule/missing", self.missing(client).into()),
            ("bascule/fromLastListing", json!(last)),
        ])
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
        let names = self
            .owned_names()
            .tools
            .index(catalog.tools().map(|tool| (tool.id().server(), tool.id().tool())));
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
            owned(names.names.original(shown))
        };
        if let Some(found) = find() {
            return Ok(found);
        }
        // The tool may belong to a server that is starting. Else the server that has or had the name, or that the name begins
        // with, says why the tool cannot be called: the server may be down, or the tool denied.
        Box::pin(self.wait_for_starts(client)).await;
        let unknown = || {
            let names = self.tool_names_for(client);
            let all = names
                .catalog
                .tools()
                .filter_map(|tool| names.names.qualified(tool.id().server(), tool.id().tool()));
            let nearest = nearest_name(all, shown).map(str::to_owned);
            ErrorReply::unknown_tool(shown, nearest.as_slice(), None)
        };
        let by_owner = || owned(self.owned_names().tools.owner(shown));
        find().or_else(by_owner).or_else(|| self.servers_by_prefix(shown).pop()).ok_or_else(unknown)
    }

    /// Returns the names under which a client sees these tools.
    pub(super) fn shown_names(&self, client: &Arc<ClientContext>, tools: &[ToolId]) -> Vec<String> {
        let names = self.tool_names_for(client);
        let shown = tools.iter().filter_map(|id| names.names.qualified(id.server(), id.tool()));
        shown.map(str::to_owned).collect()
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
            .zip(self.shown_keys(listing, &items))
            .map(|(item, shown)| patch::insert(&item.raw, &[listing.key], &quoted(&shown)));
        let items: Vec<String> = renamed.collect();
        let meta = meta_member([("bascule/missing", missing.into())]);
        Ok(format!(r#"{{"{}":[{}]{meta}}}"#, listing.member, items.join(",")))
    }

    /// Requests a listing of every server that offers it, unless the server is not running until its next call. Those named are
    /// started. Returns the items in the order of the configuration, and the servers that failed.
    pub(super) async fn merge(
        &self,
        request: &ClientRequest<'_>,
        listing: Listing,
        only: Option<&[String]>,
    ) -> (Vec<ListedItem>, Vec<Value>) {
        let (client, mut missing) = (request.client, self.missing(request.client));
        let mut upstreams = self.upstreams_with(client, listing.capability);
        upstreams.retain(|upstream| match only {
            Some(only) => only.iter().any(|name| upstream.server.settings.name.as_str() == name),
            None => {
                upstream.server.backend().is_ok()
                    || upstream.server.is_starting()
                    || upstream.kept_items(listing).is_some()
            }
        });
        let listed = self.request_listings(request, listing, &upstreams, only.is_some()).await;
        let mut items = Vec::new();
        for (upstream, listed) in upstreams.iter().zip(listed) {
            let name = upstream.server.settings.name.as_str();
            match listed {
                Ok(listed) => items.extend(listed.iter().filter_map(|raw| {
                    let key = patch::find_string(raw, &[listing.key])?;
                    Some(ListedItem { server: name.to_owned(), key, raw: raw.clone() })
                })),
                Err(error) => missing.push(json!({ "server": name, "why": error.message })),
            }
        }
        if listing.member == RESOURCES.member && only.is_none() {
            client.set_listed_uris(Arc::new(QualifiedIndex::of_uris(keys(&items))));
        }
        (items, missing)
    }

    /// Returns the upstream sessions of the servers that have declared a capability, or have not started yet.
    pub(super) fn upstreams_with(
        &self,
        client: &Arc<ClientContext>,
        capability: &str,
    ) -> Vec<Arc<UpstreamSession>> {
        let snapshot = self.bridge.fleet.snapshot.load_full();
        let may_offer =
            |base: &&Arc<Server>| self.offers(client, base, capability) || base.is_starting_first();
        let offering = snapshot.in_order().filter(may_offer);
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

    /// Finds the server and the prompt behind a name that a client sees. A name that was not listed yet is looked for in the
    /// servers that it begins with first: the others may be slow.
    pub(super) async fn find_prompt(
        &self,
        request: &ClientRequest<'_>,
        shown: &str,
    ) -> Result<(String, String), ErrorReply> {
        if let Some(known) = owned(self.owned_names().prompts.owner(shown)) {
            return Ok(known);
        }
        let likely: Vec<String> =
            self.servers_by_prefix(shown).into_iter().map(|(server, _)| server).collect();
        for only in [Some(&likely[..]).filter(|likely| !likely.is_empty()), None] {
            let (items, _) = self.merge(request, PROMPTS, only).await;
            if let Some(found) = owned(self.owned_names().prompts.index(keys(&items)).original(shown)) {
                return Ok(found);
            }
        }
        Err(ErrorReply::invalid_params(format!("there is no prompt `{shown}`")))
    }

    /// Returns the names or URIs under which clients see the items.
    fn shown_keys(&self, listing: Listing, items: &[ListedItem]) -> Vec<String> {
        let index = match listing.key == PROMPTS.key {
            true => self.owned_names().prompts.index(keys(items)),
            false => QualifiedIndex::of_uris(keys(items)),
        };
        keys(items).map(|(server, key)| index.qualified(server, key).unwrap_or(key).to_owned()).collect()
    }

    fn owned_names(&self) -> MutexGuard<'_, OwnedNames> {
        self.owned_names.lock().expect("no code panics while it holds the lock")
    }
}

fn owned(found: Option<(&str, &str)>) -> Option<(String, String)> {
    found.map(|(server, name)| (server.to_owned(), name.to_owned()))
}

pub(super) fn keys(items: &[ListedItem]) -> impl Iterator<Item = (&str, &str)> + Clone {
    items.iter().map(|item| (item.server.as_str(), item.key.as_str()))
}

/// Builds the `_meta` member of a result from lists of servers. Empty lists are left out.
fn meta_member<const N: usize>(lists: [(&str, Value); N]) -> String {
    let is_given = |(_, list): &(&str, Value)| list.as_array().is_some_and(|list| !list.is_empty());
    let members =
        lists.iter().filter(|list| is_given(list)).map(|(name, list)| format!(r#""{name}":{list}"#));
    match members.collect::<Vec<_>>() {
        members if members.is_empty() => String::new(),
        members => format!(r#","_meta":{{{}}}"#, members.join(",")),
    }
}
