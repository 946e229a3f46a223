//! Finds the server behind a resource URI, and keeps the URIs in results resolvable.

use std::collections::BTreeSet;
use std::sync::Arc;

use bascule_mcp::{QualifiedIndex, may_walk, parse_qualified_uri, patch, qualify_uri, run_large};
use serde_json::value::RawValue;

use super::Gateway;
use super::aggregate::quoted;
use super::client_request::ClientRequest;
use super::listings::{RESOURCES, TEMPLATES, keys};
use super::reply::{ErrorReply, Reply};
use super::upstream_session::UpstreamSession;
use crate::client::ClientContext;
use crate::fleet::server::Server;

/// A server, and the URI under which it knows a resource.
type Owner = (String, String);

impl Gateway {
    /// Returns the owner of a resource by its URI alone, or by the last listing that the client has seen.
    fn known_owner(&self, client: &ClientContext, shown: &str) -> Option<Owner> {
        let listed = client.listed_uris();
        let by_listing = || listed.as_ref()?.original(shown).map(|(server, uri)| (server.into(), uri.into()));
        parse_qualified_uri(shown).or_else(by_listing)
    }

    /// Returns the possible owners of a resource by a new listing, else every server with resources. Of several servers
    /// that list the URI none is guessed.
    async fn owners(&self, request: &ClientRequest<'_>, shown: &str) -> Result<Vec<Owner>, ErrorReply> {
        let (items, _) = self.merge(request, RESOURCES, None).await;
        if let Some(owner) = self.known_owner(request.client, shown) {
            return Ok(vec![owner]);
        }
        let listing = items.iter().filter(|item| item.key == shown);
        let several: BTreeSet<String> = listing.map(|item| qualify_uri(&item.server, shown)).collect();
        if !several.is_empty() {
            let several = several.into_iter().collect::<Vec<_>>().join("` or `");
            let message = format!("several servers have `{shown}`: request `{several}`");
            return Err(ErrorReply::invalid_params(message));
        }
        let upstreams = self.upstreams_with(request.client, "resources");
        let can_respond =
            |one: &&Arc<UpstreamSession>| one.server.backend().is_ok() || one.server.is_on_demand();
        let upstreams = upstreams.iter().filter(can_respond);
        Ok(upstreams.map(|one| (one.server.settings.name.to_string(), shown.to_owned())).collect())
    }

    /// Reads a resource. Reading has no effects: while the owner is unknown, each server is asked until one has it.
    pub(super) async fn read_resource(self: &Arc<Self>, request: &ClientRequest<'_>, shown: &str) -> Reply {
        if let Some(reply) = self.read_kept_result(request, shown) {
            return reply;
        }
        let mut failure = ErrorReply::new(-32002, format!("no server is known to have `{shown}`"));
        if let Some(owner) = self.known_owner(request.client, shown) {
            match self.read_from(request, &owner, shown).await {
                Err(error) if parse_qualified_uri(shown).is_none() => failure = error,
                reply => return reply,
            }
        }
        for owner in self.owners(request, shown).await? {
            match self.read_from(request, &owner, shown).await {
                Ok(result) => return Ok(result),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    async fn read_from(self: &Arc<Self>, request: &ClientRequest<'_>, owner: &Owner, shown: &str) -> Reply {
        let result = self.forward_with(request, &owner.0, &["uri"], &owner.1).await?;
        if may_walk(result.len()) {
            return Ok(self.with_requested_uri(request.client, owner, shown, result));
        }
        let (gateway, client) = (self.clone(), request.client.clone());
        let (owner, shown) = (owner.clone(), shown.to_owned());
        Ok(run_large(move || gateway.with_requested_uri(&client, &owner, &shown, result)).await)
    }

    /// Replaces the URIs of the contents. The requested resource keeps the URI under which it was requested.
    fn with_requested_uri(
        &self,
        client: &Arc<ClientContext>,
        (server, uri): &Owner,
        shown: &str,
        result: String,
    ) -> String {
        let contents = patch::map_elements(&result, &["contents"], |item| {
            let own = patch::find_string(item, &["uri"])?;
            let shown = match own == *uri {
                true => shown.to_owned(),
                false => self.shown_uri(client, server, &own)?,
            };
            (shown != own).then(|| patch::insert(item, &["uri"], &quoted(&shown)))
        });
        contents.unwrap_or(result)
    }

    /// Replaces the URIs of links and embedded resources in a result. The items are in the list `member`; `path` leads to
    /// the content of an item.
    pub(super) fn with_shown_uris(
        &self,
        client: &Arc<ClientContext>,
        server: &str,
        result: String,
        member: &str,
        path: &[&str],
    ) -> String {
        // Most results have none.
        if !result.contains("\"resource") {
            return result;
        }
        let changed = patch::map_elements(&result, &[member], |item| {
            let uri_path = match patch::find_string(item, &[path, &["type"]].concat())?.as_str() {
                "resource_link" => [path, &["uri"]].concat(),
                "resource" => [path, &["resource", "uri"]].concat(),
                _ => return None,
            };
            let shown = self.shown_uri(client, server, &patch::find_string(item, &uri_path)?)?;
            Some(patch::insert(item, &uri_path, &quoted(&shown)))
        });
        changed.unwrap_or(result)
    }

    /// Returns the URI that leads a client back to a server's resource, if it differs from the server's own: the listed
    /// URI, or one with the server's name where another server could have the same. A web address needs no server.
    fn shown_uri(&self, client: &Arc<ClientContext>, server: &str, uri: &str) -> Option<String> {
        let listed = client.listed_uris();
        if let Some(shown) = listed.as_ref().and_then(|uris| uris.qualified(server, uri)) {
            return (shown != uri).then(|| shown.to_owned());
        }
        let is_web = uri.starts_with("http://") || uri.starts_with("https://");
        let snapshot = self.bridge.fleet.snapshot.load_full();
        let offers = |base: &&Arc<Server>| self.offers(client, base, "resources");
        let has_rivals = || {
            let offering: Vec<_> = snapshot.in_order().filter(offers).collect();
            offering.len() > 1 && offering.iter().any(|base| base.settings.name.as_str() == server)
        };
        let is_ambiguous = parse_qualified_uri(uri).is_some() || (!is_web && has_rivals());
        is_ambiguous.then(|| qualify_uri(server, uri))
    }

    pub(super) async fn subscribe_aggregate(&self, request: &ClientRequest<'_>, shown: &str) -> Reply {
        let owners = match self.known_owner(request.client, shown) {
            Some(owner) => vec![owner],
            None => self.owners(request, shown).await?,
        };
        let [(server, uri)] = &owners[..] else {
            return Err(ErrorReply::new(-32002, format!("no single server is known to have `{shown}`")));
        };
        let upstream = self.upstream(request.client, server)?;
        let params = RawValue::from_string(patch::insert(request.params(), &["uri"], &quoted(uri))).ok();
        self.subscribe(request, &upstream, (uri, shown), params.as_deref()).await
    }

    /// Finds the server and the resource template behind a template that a client sees.
    pub(super) async fn find_template(
        &self,
        request: &ClientRequest<'_>,
        shown: &str,
    ) -> Result<Owner, ErrorReply> {
        if let Some(owner) = parse_qualified_uri(shown) {
            return Ok(owner);
        }
        let (items, _) = self.merge(request, TEMPLATES, None).await;
        let uris = QualifiedIndex::of_uris(keys(&items));
        let found = uris.original(shown).map(|(server, uri)| (server.to_owned(), uri.to_owned()));
        found.ok_or_else(|| ErrorReply::invalid_params(format!("there is no template `{shown}`")))
    }
}
