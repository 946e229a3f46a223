//! All servers behind the bridge as if they were one: listings merged, names told apart (GW-02).
//!
//! Tools come from the catalog, which the bridge keeps anyway. Resources and prompts are asked of those servers that
//! have them; one that is down is left out, and said to be.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bascule_catalog::{Catalog, ServerTools};
use bascule_mcp::ResponseStream;
use bascule_mcp::patch;
use bascule_mcp::{QualifiedNames, QualifiedUris, parse_qualified_uri, qualify_uri};
use bascule_model::BridgeResult;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::reply::{ErrorReply, Reply, failed_call};
use super::session::{Session, SharingKey};
use super::upstream_session::UpstreamSession;
use super::{Gateway, sharing_key};
use crate::deadline::Deadline;
use crate::fleet::request::{ExtraMembers, UpstreamRequest};
use crate::fleet::server::{Server, was_given_up};

/// A client that begins waits so long for servers that are starting; the others join as they come.
const BEGINNING: Duration = Duration::from_secs(10);
/// More pages of a listing than this are taken for endless.
const MOST_PAGES: usize = 100;
/// So many tools are listed on a page: most clients never ask for a second one.
const PAGE: usize = 1_000;

/// The tools that a client sees, and the names under which they are shown.
pub(super) struct ToolNames {
    catalog: Arc<Catalog>,
    names: QualifiedNames,
    /// The bridge's catalog and the upstreams' changes when this was made: as long as they are the same, so is this.
    made_of: (Arc<Catalog>, u64),
}

/// A kind of thing that is listed.
#[derive(Clone, Copy)]
struct Kind {
    /// What a server has to offer to be asked.
    capability: &'static str,
    method: &'static str,
    /// The field of the result.
    field: &'static str,
    /// What an item is known by.
    known_by: &'static str,
}

const RESOURCES: Kind =
    Kind { capability: "resources", method: "resources/list", field: "resources", known_by: "uri" };
const TEMPLATES: Kind = Kind {
    capability: "resources",
    method: "resources/templates/list",
    field: "resourceTemplates",
    known_by: "uriTemplate",
};
const PROMPTS: Kind =
    Kind { capability: "prompts", method: "prompts/list", field: "prompts", known_by: "name" };

/// What several servers listed: each item with its server and what it is known by there.
struct Merged {
    items: Vec<(String, String, String)>,
    missing: Vec<Value>,
}

impl Gateway {
    pub(super) async fn initialize_aggregate(&self, session: &Arc<Session>) -> Reply {
        self.attach(session);
        self.first_starts(session).await;
        let snapshot = self.bridge.fleet.snapshot.load_full();
        let infos: Vec<(String, String)> = snapshot
            .in_order()
            .filter_map(|base| Some((base.settings.name.to_string(), self.info(session, base)?)))
            .collect();
        let has =
            |name: &str| infos.iter().any(|(_, raw)| patch::find(raw, &["capabilities", name]).is_some());
        let mut capabilities = json!({ "tools": { "listChanged": true } });
        for (name, value) in [
            ("resources", json!({ "listChanged": true, "subscribe": true })),
            ("prompts", json!({ "listChanged": true })),
            ("completions", json!({})),
            ("logging", json!({})),
        ] {
            if has(name) {
                capabilities[name] = value;
            }
        }
        let instructions = infos.iter().filter_map(|(name, raw)| {
            Some(format!("{name}: {}", patch::find_string(raw, &["instructions"])?))
        });
        let instructions: Vec<String> = instructions.collect();
        let mut result = json!({
            "protocolVersion": "",
            "capabilities": capabilities,
            "serverInfo": { "name": "bascule", "version": env!("CARGO_PKG_VERSION") },
        });
        if !instructions.is_empty() {
            result["instructions"] = instructions.join("\n\n").into();
        }
        Ok(result.to_string())
    }

    pub(super) async fn answer_aggregate(
        &self,
        session: &Arc<Session>,
        method: &str,
        params: Option<Box<RawValue>>,
        stream: &ResponseStream,
        extra: &Arc<ExtraMembers>,
    ) -> Reply {
        let raw = params.as_deref().map_or("{}", RawValue::get);
        let text = |field: &str| patch::find_string(raw, &[field]).unwrap_or_default();
        match method {
            "tools/list" => self.list_tools(session, &text("cursor")).await,
            "tools/call" => {
                let name = text("name");
                if let Some(done) = self.call_own(session, &name, raw, stream).await {
                    return done;
                }
                let (server, tool) = self.tool_of(session, &name).await?;
                let upstream = match self.upstream(session, &server) {
                    Ok(upstream) => upstream,
                    Err(error) => return failed_call(error),
                };
                let called = self.call(session, &upstream, params, Some(tool), stream, extra).await?;
                Ok(self.with_shown_links(session, &server, called, "content", &[]))
            }
            "resources/list" => self.list(session, RESOURCES, stream).await,
            "resources/templates/list" => self.list(session, TEMPLATES, stream).await,
            "prompts/list" => self.list(session, PROMPTS, stream).await,
            "prompts/get" => {
                let (server, name) = self.prompt_of(session, &text("name"), stream).await?;
                let fields: &[(&[&str], String)] = &[(&["name"], quoted(&name))];
                let prompt = self.hand_on(session, &server, method, raw, fields, stream).await?;
                Ok(self.with_shown_links(session, &server, prompt, "messages", &["content"]))
            }
            "resources/read" => self.read(session, &text("uri"), raw, stream).await,
            "resources/subscribe" | "resources/unsubscribe" => {
                self.subscribe_to(session, method, &text("uri"), raw, stream).await
            }
            "completion/complete" => self.complete(session, raw, stream).await,
            "logging/setLevel" => {
                let upstreams = self.desks_with(session, "logging").0;
                self.set_level(session, &upstreams, params.as_deref(), stream).await
            }
            "initialize" => Err(ErrorReply::new(-32600, "this session has begun already")),
            _ => Err(ErrorReply::new(ErrorReply::METHOD_NOT_FOUND, format!("nobody here knows `{method}`"))),
        }
    }

    /// Waits for those servers that are starting, the bridge's and this client's own.
    async fn first_starts(&self, session: &Arc<Session>) {
        let by = Instant::now() + BEGINNING;
        let snapshot = self.bridge.fleet.snapshot.load_full();
        let own = snapshot.in_order().filter_map(|base| self.server_for(session, base).ok());
        let servers: Vec<_> = own.chain(snapshot.in_order().cloned()).collect();
        futures_util::future::join_all(servers.iter().map(|server| server.first_start(by))).await;
    }

    /// What a server says of itself to this client; before it has, what it says to others.
    fn info(&self, session: &Arc<Session>, base: &Arc<Server>) -> Option<String> {
        let backend = self.server_for(session, base).ok()?.backend().or_else(|_| base.backend()).ok()?;
        Some(backend.info().raw.get().to_owned())
    }

    /// The tools of all servers, page by page; the cursor is the name after which the page begins.
    async fn list_tools(&self, session: &Arc<Session>, cursor: &str) -> Reply {
        self.first_starts(session).await;
        if self.shows_code() {
            let tools = self.own_tools().join(",");
            return Ok(format!(r#"{{"tools":[{tools}]{}}}"#, absent(&self.missing(session))));
        }
        let shown = self.tool_names(session);
        let tools = shown.catalog.tools().filter_map(|tool| {
            let name = shown.names.qualified(tool.id().server(), tool.id().tool())?;
            Some((name, tool))
        });
        let mut rest = tools.skip_while(|(name, _)| !cursor.is_empty() && *name != cursor).peekable();
        if !cursor.is_empty() && rest.next().is_none() {
            return Err(ErrorReply::new(ErrorReply::INVALID_PARAMS, "the cursor is of no listing of ours"));
        }
        let page: Vec<_> = rest.by_ref().take(PAGE).collect();
        let spelled = page.iter().map(|(name, tool)| {
            let raw = tool.definition().raw.get();
            patch::insert(raw, &["name"], &quoted(name))
        });
        let mut tools: Vec<String> = spelled.collect();
        let next = match (rest.peek(), page.last()) {
            (Some(_), Some((name, _))) => format!(r#","nextCursor":{}"#, quoted(name)),
            _ => {
                tools.extend(self.own_tools());
                String::new()
            }
        };
        Ok(format!(r#"{{"tools":[{}]{next}{}}}"#, tools.join(","), absent(&self.missing(session))))
    }

    /// What a client sees, made anew when that is something else than before. All who can do the same see the same,
    /// unless some server has a process for each.
    fn tool_names(&self, session: &Arc<Session>) -> Arc<ToolNames> {
        let snapshot = self.bridge.fleet.snapshot.load_full();
        let mut keys = snapshot.servers.values().map(|base| sharing_key(&base.settings, session));
        let own = keys.by_ref().find(|key| matches!(key, SharingKey::Client(_)));
        let view = own.unwrap_or_else(|| session.key.clone());
        // Read before the tools are: what changes meanwhile is seen the next time.
        let changes = if view.has_no_capabilities() { 0 } else { self.tasks.changes.load(Ordering::Acquire) };
        let is_same = |known: &&Arc<ToolNames>| {
            known.made_of.1 == changes && Arc::ptr_eq(&known.made_of.0, &snapshot.catalog)
        };
        if let Some(known) = self.names().get(&view).filter(is_same) {
            return known.clone();
        }
        let catalog = match view.has_no_capabilities() {
            true => snapshot.catalog.clone(),
            false => Arc::new(snapshot.in_order().filter_map(|base| self.tools_for(session, base)).collect()),
        };
        let names =
            QualifiedNames::from_pairs(catalog.tools().map(|tool| (tool.id().server(), tool.id().tool())));
        let names = Arc::new(ToolNames { catalog, names, made_of: (snapshot.catalog.clone(), changes) });
        self.names().insert(view, names.clone());
        names
    }

    fn tools_for(&self, session: &Arc<Session>, base: &Arc<Server>) -> Option<Arc<ServerTools>> {
        match sharing_key(&base.settings, session).has_no_capabilities() {
            true => base.tools(),
            false => self.upstream(session, base.settings.name.as_str()).ok()?.tools(base),
        }
    }

    async fn tool_of(&self, session: &Arc<Session>, shown: &str) -> Result<(String, String), ErrorReply> {
        let find = || {
            let names = self.tool_names(session);
            names.names.original(shown).map(|(server, tool)| (server.to_owned(), tool.to_owned()))
        };
        if let Some(found) = find() {
            return Ok(found);
        }
        // It may be a tool of a server that is starting.
        self.first_starts(session).await;
        // Else the server by whose name it goes says what is the matter: it may be down, or the tool denied.
        find()
            .or_else(|| self.by_prefix(shown).pop())
            .ok_or_else(|| ErrorReply::new(ErrorReply::INVALID_PARAMS, format!("there is no tool `{shown}`")))
    }

    /// The servers by whose names what is shown like this may go, and what it would be called there.
    fn by_prefix(&self, shown: &str) -> Vec<(String, String)> {
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

    async fn list(&self, session: &Arc<Session>, kind: Kind, stream: &ResponseStream) -> Reply {
        let Merged { items, missing } = self.merged(session, kind, stream, None).await;
        let shown = shown(kind, &items);
        let spelled = items
            .iter()
            .zip(shown)
            .map(|((_, _, raw), shown)| patch::insert(raw, &[kind.known_by], &quoted(&shown)));
        let items: Vec<String> = spelled.collect();
        Ok(format!(r#"{{"{}":[{}]{}}}"#, kind.field, items.join(","), absent(&missing)))
    }

    /// Asks every server that has such things, or only some, all at once; the order is that of the configuration.
    async fn merged(
        &self,
        session: &Arc<Session>,
        kind: Kind,
        stream: &ResponseStream,
        only: Option<&[String]>,
    ) -> Merged {
        let (mut upstreams, mut missing) = self.desks_with(session, kind.capability);
        upstreams.retain(|upstream| {
            only.is_none_or(|only| only.iter().any(|name| upstream.server.settings.name.as_str() == name))
        });
        let asking = upstreams.iter().map(|upstream| async move {
            let mut flight = upstream.fly(session, stream, kind.method);
            let listed = pages(upstream, kind, &flight.sent).await;
            flight.has_landed = !matches!(&listed, Err(error) if was_given_up(error));
            (upstream, listed)
        });
        let mut items = Vec::new();
        for (upstream, listed) in futures_util::future::join_all(asking).await {
            let name = upstream.server.settings.name.as_str();
            match listed {
                Ok(listed) => items.extend(listed.into_iter().filter_map(|raw| {
                    let known = patch::find_string(&raw, &[kind.known_by])?;
                    Some((name.to_owned(), known, raw))
                })),
                Err(error) => missing.push(json!({ "server": name, "why": error.message })),
            }
        }
        if kind.field == RESOURCES.field && only.is_none() {
            let uris = QualifiedUris::from_pairs(
                items.iter().map(|(server, uri, _)| (server.as_str(), uri.as_str())),
            );
            session.has_seen(Arc::new(uris));
        }
        Merged { items, missing }
    }

    /// The servers that offer something, and those that cannot say.
    fn desks_with(
        &self,
        session: &Arc<Session>,
        capability: &str,
    ) -> (Vec<Arc<UpstreamSession>>, Vec<Value>) {
        let snapshot = self.bridge.fleet.snapshot.load_full();
        let offers = snapshot.in_order().filter(|server| self.offers(session, server, capability));
        let upstreams =
            offers.filter_map(|server| self.upstream(session, server.settings.name.as_str()).ok()).collect();
        (upstreams, self.missing(session))
    }

    fn missing(&self, session: &Arc<Session>) -> Vec<Value> {
        let snapshot = self.bridge.fleet.snapshot.load_full();
        let down = |base: &Arc<Server>| {
            let why = match self.server_for(session, base) {
                Ok(server) => server.state().why()?.message.clone(),
                Err(error) => error.message,
            };
            Some(json!({ "server": base.settings.name, "why": why }))
        };
        snapshot.in_order().filter_map(down).collect()
    }

    fn offers(&self, session: &Arc<Session>, base: &Arc<Server>, capability: &str) -> bool {
        let info = self.info(session, base);
        info.is_some_and(|raw| patch::find(&raw, &["capabilities", capability]).is_some())
    }

    /// Whose prompt it is. Those are asked first by whose names it goes: the others may be slow.
    async fn prompt_of(
        &self,
        session: &Arc<Session>,
        shown: &str,
        stream: &ResponseStream,
    ) -> Result<(String, String), ErrorReply> {
        let likely: Vec<String> = self.by_prefix(shown).into_iter().map(|(server, _)| server).collect();
        for only in [Some(&likely[..]).filter(|likely| !likely.is_empty()), None] {
            let merged = self.merged(session, PROMPTS, stream, only).await;
            let pairs = merged.items.iter().map(|(server, name, _)| (server.as_str(), name.as_str()));
            if let Some((server, name)) = QualifiedNames::from_pairs(pairs).original(shown) {
                return Ok((server.to_owned(), name.to_owned()));
            }
        }
        Err(ErrorReply::new(ErrorReply::INVALID_PARAMS, format!("there is no prompt `{shown}`")))
    }

    /// Whose resource it is, as the URI says or the listing that the client has seen.
    fn known_owner(&self, session: &Session, shown: &str) -> Option<(String, String)> {
        let seen = session.uris();
        let seen = || seen.as_ref()?.original(shown).map(|(server, uri)| (server.to_owned(), uri.to_owned()));
        parse_qualified_uri(shown).or_else(seen)
    }

    /// Whose it may be otherwise: as a new listing says, else anybody's who has resources. It is never guessed which
    /// of several is meant that list it.
    async fn owners(
        &self,
        session: &Arc<Session>,
        shown: &str,
        stream: &ResponseStream,
    ) -> Result<Vec<(String, String)>, ErrorReply> {
        let items = self.merged(session, RESOURCES, stream, None).await.items;
        if let Some(owner) = self.known_owner(session, shown) {
            return Ok(vec![owner]);
        }
        let several = items.iter().filter(|(_, uri, _)| uri == shown);
        let several: BTreeSet<String> = several.map(|(server, ..)| qualify_uri(server, shown)).collect();
        if !several.is_empty() {
            let said = several.into_iter().collect::<Vec<_>>().join("` or `");
            let said = format!("several servers have `{shown}`: ask for `{said}`");
            return Err(ErrorReply::new(ErrorReply::INVALID_PARAMS, said));
        }
        let upstreams = self.desks_with(session, "resources").0;
        Ok(upstreams
            .iter()
            .map(|upstream| (upstream.server.settings.name.to_string(), shown.to_owned()))
            .collect())
    }

    /// Reading does no harm: where nobody knows whose a resource is, each is asked until one has it.
    async fn read(
        &self,
        session: &Arc<Session>,
        shown: &str,
        params: &str,
        stream: &ResponseStream,
    ) -> Reply {
        let mut refused = ErrorReply::new(-32002, format!("no server is known to have `{shown}`"));
        let known = self.known_owner(session, shown);
        if let Some(owner) = &known {
            match self.read_from(session, owner, shown, params, stream).await {
                Err(refusal) if parse_qualified_uri(shown).is_none() => refused = refusal,
                read => return read,
            }
        }
        for owner in self.owners(session, shown, stream).await? {
            match self.read_from(session, &owner, shown, params, stream).await {
                Ok(read) => return Ok(read),
                Err(refusal) => refused = refusal,
            }
        }
        Err(refused)
    }

    async fn read_from(
        &self,
        session: &Arc<Session>,
        (server, uri): &(String, String),
        shown: &str,
        params: &str,
        stream: &ResponseStream,
    ) -> Reply {
        let fields: &[(&[&str], String)] = &[(&["uri"], quoted(uri))];
        let read = self.hand_on(session, server, "resources/read", params, fields, stream).await?;
        // What was asked for is called as it was asked for.
        let contents = patch::map_elements(&read, &["contents"], |item| {
            let own = patch::find_string(item, &["uri"])?;
            let shown = match own == *uri {
                true => shown.to_owned(),
                false => self.shown_uri(session, server, &own)?,
            };
            (shown != own).then(|| patch::insert(item, &["uri"], &quoted(&shown)))
        });
        Ok(contents.unwrap_or(read))
    }

    /// A result in which links and embedded resources lead back to their server. They stand in the list `field`, each
    /// at this path of its item.
    fn with_shown_links(
        &self,
        session: &Arc<Session>,
        server: &str,
        result: String,
        field: &str,
        at: &[&str],
    ) -> String {
        // Most results have none.
        if !result.contains("\"resource") {
            return result;
        }
        let changed = patch::map_elements(&result, &[field], |item| {
            let endpoint = match patch::find_string(item, &[at, &["type"]].concat())?.as_str() {
                "resource_link" => [at, &["uri"]].concat(),
                "resource" => [at, &["resource", "uri"]].concat(),
                _ => return None,
            };
            let shown = self.shown_uri(session, server, &patch::find_string(item, &endpoint)?)?;
            Some(patch::insert(item, &endpoint, &quoted(&shown)))
        });
        changed.unwrap_or(result)
    }

    /// What a server's URI is called where a client must find back to it: as it was listed. One that was not listed
    /// names its server if another might be taken for it; but an address on the web is one for everybody.
    fn shown_uri(&self, session: &Arc<Session>, server: &str, uri: &str) -> Option<String> {
        let seen = session.uris();
        if let Some(shown) = seen.as_ref().and_then(|uris| uris.qualified(server, uri)) {
            return (shown != uri).then(|| shown.to_owned());
        }
        let is_web = uri.starts_with("http://") || uri.starts_with("https://");
        let snapshot = self.bridge.fleet.snapshot.load_full();
        let offers = |base: &&Arc<Server>| self.offers(session, base, "resources");
        let is_own = |base: &Arc<Server>| base.settings.name.as_str() == server;
        let has_rivals = || {
            let able: Vec<_> = snapshot.in_order().filter(offers).collect();
            able.len() > 1 && able.into_iter().any(is_own)
        };
        let is_ambiguous = parse_qualified_uri(uri).is_some() || (!is_web && has_rivals());
        is_ambiguous.then(|| qualify_uri(server, uri))
    }

    async fn subscribe_to(
        &self,
        session: &Arc<Session>,
        method: &str,
        shown: &str,
        params: &str,
        stream: &ResponseStream,
    ) -> Reply {
        let owners = match self.known_owner(session, shown) {
            Some(owner) => vec![owner],
            None => self.owners(session, shown, stream).await?,
        };
        let [(server, uri)] = &owners[..] else {
            return Err(ErrorReply::new(-32002, format!("no one server is known to have `{shown}`")));
        };
        let upstream = self.upstream(session, server)?;
        let params = RawValue::from_string(patch::insert(params, &["uri"], &quoted(uri))).ok();
        self.subscribe(session, &upstream, method, (uri, shown), params, stream).await
    }

    async fn template_of(
        &self,
        session: &Arc<Session>,
        shown: &str,
        stream: &ResponseStream,
    ) -> Result<(String, String), ErrorReply> {
        if let Some(own) = parse_qualified_uri(shown) {
            return Ok(own);
        }
        let items = self.merged(session, TEMPLATES, stream, None).await.items;
        let uris =
            QualifiedUris::from_pairs(items.iter().map(|(server, uri, _)| (server.as_str(), uri.as_str())));
        let found = uris.original(shown).map(|(server, uri)| (server.to_owned(), uri.to_owned()));
        found.ok_or_else(|| {
            ErrorReply::new(ErrorReply::INVALID_PARAMS, format!("there is no template `{shown}`"))
        })
    }

    async fn complete(&self, session: &Arc<Session>, params: &str, stream: &ResponseStream) -> Reply {
        let kind = patch::find_string(params, &["ref", "type"]).unwrap_or_default();
        let (server, field, own) = match kind.as_str() {
            "ref/prompt" => {
                let shown = patch::find_string(params, &["ref", "name"]).unwrap_or_default();
                let (server, name) = self.prompt_of(session, &shown, stream).await?;
                (server, "name", name)
            }
            _ => {
                let shown = patch::find_string(params, &["ref", "uri"]).unwrap_or_default();
                let (server, uri) = self.template_of(session, &shown, stream).await?;
                (server, "uri", uri)
            }
        };
        self.hand_on(
            session,
            &server,
            "completion/complete",
            params,
            &[(&["ref", field], quoted(&own))],
            stream,
        )
        .await
    }

    /// A request for one server, in which some fields are its own.
    async fn hand_on(
        &self,
        session: &Arc<Session>,
        server: &str,
        method: &str,
        params: &str,
        fields: &[(&[&str], String)],
        stream: &ResponseStream,
    ) -> Reply {
        let upstream = self.upstream(session, server)?;
        let params = fields
            .iter()
            .fold(params.to_owned(), |params, (path, value)| patch::insert(&params, path, value));
        self.forward(session, &upstream, method, RawValue::from_string(params).ok(), stream, &Arc::default())
            .await
    }
}

/// How items are shown: prompts by names, the others by URIs.
fn shown(kind: Kind, items: &[(String, String, String)]) -> Vec<String> {
    let pairs = || items.iter().map(|(server, known, _)| (server.as_str(), known.as_str()));
    let own = |found: Option<&str>, known: &str| found.unwrap_or(known).to_owned();
    match kind.known_by {
        "name" => {
            let names = QualifiedNames::from_pairs(pairs());
            pairs().map(|(server, known)| own(names.qualified(server, known), known)).collect()
        }
        _ => {
            let uris = QualifiedUris::from_pairs(pairs());
            pairs().map(|(server, known)| own(uris.qualified(server, known), known)).collect()
        }
    }
}

/// All pages of what one server lists, each item as it came.
async fn pages(upstream: &UpstreamSession, kind: Kind, sent: &AtomicU64) -> BridgeResult<Vec<String>> {
    let settings = &upstream.server.settings;
    let deadline = Deadline::new(Instant::now(), None, settings.call_timeout, settings.limits.max_execution);
    upstream.server.first_start(deadline.next()).await;
    let (mut items, mut cursor) = (Vec::new(), None::<String>);
    for _ in 0..MOST_PAGES {
        let spelled = |token| {
            sent.store(token, Ordering::Release);
            cursor.as_ref().map(|cursor| format!(r#"{{"cursor":{cursor}}}"#))
        };
        let errand = UpstreamRequest {
            method: kind.method,
            tool: None,
            params: &spelled,
            progress: None,
            extra: None,
        };
        let page = upstream.server.run(&errand, true, &deadline).await?.raw;
        items.extend(
            patch::find_elements(page.get(), &[kind.field])
                .unwrap_or_default()
                .into_iter()
                .map(str::to_owned),
        );
        match patch::find(page.get(), &["nextCursor"]).filter(|next| *next != "null") {
            Some(next) => cursor = Some(next.to_owned()),
            None => break,
        }
    }
    Ok(items)
}

/// What is said of servers that could not be asked.
fn absent(missing: &[Value]) -> String {
    match missing.is_empty() {
        true => String::new(),
        false => format!(r#","_meta":{{"bascule/missing":{}}}"#, Value::from(missing.to_vec())),
    }
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}
