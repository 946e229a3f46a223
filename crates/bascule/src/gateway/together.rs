//! All servers behind the bridge as if they were one: listings merged, names told apart (GW-02).
//!
//! Tools come from the catalog, which the bridge keeps anyway. Resources and prompts are asked of those servers that
//! have them; one that is down is left out, and said to be.

use std::sync::Arc;
use std::time::Duration;

use bascule_catalog::Catalog;
use bascule_client::patch;
use bascule_mcp::Lane;
use bascule_mcp::{Names, Uris, parse_prefixed};
use bascule_model::{BridgeResult, ProviderAdapter};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Gateway;
use super::desk::Desk;
use super::session::Session;
use super::wire::{Outcome, Refusal};
use crate::deadline::Deadline;
use crate::fleet::errand::Errand;

/// A client that begins waits so long for servers that are starting; the others join as they come.
const BEGINNING: Duration = Duration::from_secs(10);
/// More pages of a listing than this are taken for endless.
const MOST_PAGES: usize = 100;
/// So many tools are listed on a page: most clients never ask for a second one.
const PAGE: usize = 1_000;

/// The names under which the tools of a catalog are shown.
pub(super) struct ToolNames {
    catalog: Arc<Catalog>,
    names: Names,
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
    pub(super) async fn begin_together(&self, _: &Arc<Session>) -> Outcome {
        self.bridge.first_starts(BEGINNING).await;
        let world = self.bridge.common.world.load();
        let infos: Vec<(String, String)> = world
            .in_order()
            .filter_map(|server| {
                let line = server.line().ok()?;
                Some((server.settings.name.to_string(), line.info().raw.get().to_owned()))
            })
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
        let instructions = infos
            .iter()
            .filter_map(|(name, raw)| Some(format!("{name}: {}", patch::text(raw, &["instructions"])?)));
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

    pub(super) async fn answer_together(
        &self,
        session: &Arc<Session>,
        method: &str,
        params: Option<Box<RawValue>>,
        lane: &Lane,
    ) -> Outcome {
        let raw = params.as_deref().map_or("{}", RawValue::get);
        let text = |field: &str| patch::text(raw, &[field]).unwrap_or_default();
        match method {
            "tools/list" => self.list_tools(&text("cursor")).await,
            "tools/call" => {
                let (server, tool) = self.tool_of(&text("name")).await?;
                let desk = self.desk(session, &server)?;
                self.call(session, &desk, params, Some(tool), lane).await
            }
            "resources/list" => self.list(session, RESOURCES).await,
            "resources/templates/list" => self.list(session, TEMPLATES).await,
            "prompts/list" => self.list(session, PROMPTS).await,
            "prompts/get" => {
                let (server, name) = self.prompt_of(session, &text("name")).await?;
                self.hand_on(session, &server, method, raw, &[(&["name"], quoted(&name))], lane).await
            }
            "resources/read" => self.read(session, &text("uri"), raw, lane).await,
            "resources/subscribe" | "resources/unsubscribe" => {
                self.subscribe_to(session, method, &text("uri"), raw, lane).await
            }
            "completion/complete" => self.complete(session, raw, lane).await,
            "logging/setLevel" => {
                let desks = self.desks_with(session, "logging").0;
                self.set_level(session, &desks, params.as_deref()).await
            }
            "initialize" => Err(Refusal::new(-32600, "this session has begun already")),
            _ => Err(Refusal::new(Refusal::METHOD_NOT_FOUND, format!("nobody here knows `{method}`"))),
        }
    }

    /// The tools of all servers, page by page; the cursor is the name after which the page begins.
    async fn list_tools(&self, cursor: &str) -> Outcome {
        self.bridge.first_starts(BEGINNING).await;
        let shown = self.tool_names();
        let tools = shown.catalog.tools().filter_map(|tool| {
            let name = shown.names.shown(tool.id().server(), tool.id().tool())?;
            Some((name, tool))
        });
        let mut rest = tools.skip_while(|(name, _)| !cursor.is_empty() && *name != cursor).peekable();
        if !cursor.is_empty() && rest.next().is_none() {
            return Err(Refusal::new(Refusal::INVALID_PARAMS, "the cursor is of no listing of ours"));
        }
        let page: Vec<_> = rest.by_ref().take(PAGE).collect();
        let spelled = page.iter().map(|(name, tool)| {
            let raw = tool.definition().raw.get();
            patch::insert(raw, &["name"], &quoted(name))
        });
        let tools: Vec<String> = spelled.collect();
        let next = match (rest.peek(), page.last()) {
            (Some(_), Some((name, _))) => format!(r#","nextCursor":{}"#, quoted(name)),
            _ => String::new(),
        };
        Ok(format!(r#"{{"tools":[{}]{next}{}}}"#, tools.join(","), absent(&self.missing())))
    }

    /// Made anew when the catalog is another.
    fn tool_names(&self) -> Arc<ToolNames> {
        let catalog = self.bridge.common.world.load().catalog.clone();
        let mut known = self.names.lock().expect("nothing panics while holding it");
        match &*known {
            Some(names) if Arc::ptr_eq(&names.catalog, &catalog) => names.clone(),
            _ => {
                let names = Names::of(catalog.tools().map(|tool| (tool.id().server(), tool.id().tool())));
                let names = Arc::new(ToolNames { catalog, names });
                *known = Some(names.clone());
                names
            }
        }
    }

    async fn tool_of(&self, shown: &str) -> Result<(String, String), Refusal> {
        let find = || {
            self.tool_names().names.original(shown).map(|(server, tool)| (server.to_owned(), tool.to_owned()))
        };
        if let Some(found) = find() {
            return Ok(found);
        }
        // It may be a tool of a server that is starting.
        self.bridge.first_starts(BEGINNING).await;
        // Else the server by whose name it goes knows what is the matter: it may be down, or the tool kept back.
        find()
            .or_else(|| self.by_name(shown))
            .ok_or_else(|| Refusal::new(Refusal::INVALID_PARAMS, format!("there is no tool `{shown}`")))
    }

    /// The server whose name a shown name begins with, the longest of several, and the rest.
    fn by_name(&self, shown: &str) -> Option<(String, String)> {
        let world = self.bridge.common.world.load();
        let parts = world.in_order().filter_map(|server| {
            let name = server.settings.name.as_str();
            Some((name.to_owned(), shown.strip_prefix(name)?.strip_prefix("__")?.to_owned()))
        });
        parts.max_by_key(|(name, _)| name.len())
    }

    async fn list(&self, session: &Arc<Session>, kind: Kind) -> Outcome {
        let Merged { items, missing } = self.merged(session, kind).await;
        let shown = shown(kind, &items);
        let spelled = items
            .iter()
            .zip(shown)
            .map(|((_, _, raw), shown)| patch::insert(raw, &[kind.known_by], &quoted(&shown)));
        let items: Vec<String> = spelled.collect();
        Ok(format!(r#"{{"{}":[{}]{}}}"#, kind.field, items.join(","), absent(&missing)))
    }

    /// Asks every server that has such things, all at once; the order is that of the configuration.
    async fn merged(&self, session: &Arc<Session>, kind: Kind) -> Merged {
        let (desks, mut missing) = self.desks_with(session, kind.capability);
        let asking = desks.iter().map(|desk| async move { (desk, pages(desk, kind).await) });
        let mut items = Vec::new();
        for (desk, listed) in futures_util::future::join_all(asking).await {
            let name = desk.server.settings.name.as_str();
            match listed {
                Ok(listed) => items.extend(listed.into_iter().filter_map(|raw| {
                    let known = patch::text(&raw, &[kind.known_by])?;
                    Some((name.to_owned(), known, raw))
                })),
                Err(error) => missing.push(json!({ "server": name, "why": error.message })),
            }
        }
        Merged { items, missing }
    }

    /// The servers that offer something, and those that cannot say.
    fn desks_with(&self, session: &Arc<Session>, capability: &str) -> (Vec<Arc<Desk>>, Vec<Value>) {
        let world = self.bridge.common.world.load_full();
        let offers = world.in_order().filter(|server| {
            let offer = |raw: &str| patch::find(raw, &["capabilities", capability]).is_some();
            server.line().is_ok_and(|line| offer(line.info().raw.get()))
        });
        let desks =
            offers.filter_map(|server| self.desk(session, server.settings.name.as_str()).ok()).collect();
        (desks, self.missing())
    }

    fn missing(&self) -> Vec<Value> {
        let down = |server: bascule_model::ServerHealth| {
            let why = server.cause?;
            Some(json!({ "server": server.name, "why": why }))
        };
        self.bridge.health().into_iter().filter_map(down).collect()
    }

    async fn prompt_of(&self, session: &Arc<Session>, shown: &str) -> Result<(String, String), Refusal> {
        let merged = self.merged(session, PROMPTS).await;
        let names = Names::of(merged.items.iter().map(|(server, name, _)| (server.as_str(), name.as_str())));
        let found = names.original(shown).map(|(server, name)| (server.to_owned(), name.to_owned()));
        found.ok_or_else(|| Refusal::new(Refusal::INVALID_PARAMS, format!("there is no prompt `{shown}`")))
    }

    /// Whose resource it may be: as the URI says, else as the listing says, else anybody's who has some.
    async fn owners(&self, session: &Arc<Session>, shown: &str) -> Vec<(String, String)> {
        if let Some((server, uri)) = parse_prefixed(shown) {
            return vec![(server, uri)];
        }
        let items = self.merged(session, RESOURCES).await.items;
        let uris = Uris::of(items.iter().map(|(server, uri, _)| (server.as_str(), uri.as_str())));
        if let Some((server, uri)) = uris.original(shown) {
            return vec![(server.to_owned(), uri.to_owned())];
        }
        let desks = self.desks_with(session, "resources").0;
        desks.iter().map(|desk| (desk.server.settings.name.to_string(), shown.to_owned())).collect()
    }

    /// Reading does no harm: where nobody knows whose a resource is, each is asked until one has it.
    async fn read(&self, session: &Arc<Session>, shown: &str, params: &str, lane: &Lane) -> Outcome {
        let mut refused = Refusal::new(-32002, format!("no server is known to have `{shown}`"));
        for (server, uri) in self.owners(session, shown).await {
            let own = [(&["uri"][..], quoted(&uri))];
            match self.hand_on(session, &server, "resources/read", params, &own, lane).await {
                Ok(read) => return Ok(read),
                Err(refusal) => refused = refusal,
            }
        }
        Err(refused)
    }

    async fn subscribe_to(
        &self,
        session: &Arc<Session>,
        method: &str,
        shown: &str,
        params: &str,
        lane: &Lane,
    ) -> Outcome {
        let [(server, uri)] = &self.owners(session, shown).await[..] else {
            return Err(Refusal::new(-32002, format!("no one server is known to have `{shown}`")));
        };
        let desk = self.desk(session, server)?;
        let params = RawValue::from_string(patch::insert(params, &["uri"], &quoted(uri))).ok();
        self.subscribe(session, &desk, method, (uri, shown), params, lane).await
    }

    async fn template_of(&self, session: &Arc<Session>, shown: &str) -> Result<(String, String), Refusal> {
        if let Some(own) = parse_prefixed(shown) {
            return Ok(own);
        }
        let items = self.merged(session, TEMPLATES).await.items;
        let uris = Uris::of(items.iter().map(|(server, uri, _)| (server.as_str(), uri.as_str())));
        let found = uris.original(shown).map(|(server, uri)| (server.to_owned(), uri.to_owned()));
        found.ok_or_else(|| Refusal::new(Refusal::INVALID_PARAMS, format!("there is no template `{shown}`")))
    }

    async fn complete(&self, session: &Arc<Session>, params: &str, lane: &Lane) -> Outcome {
        let kind = patch::text(params, &["ref", "type"]).unwrap_or_default();
        let (server, field, own) = match kind.as_str() {
            "ref/prompt" => {
                let shown = patch::text(params, &["ref", "name"]).unwrap_or_default();
                let (server, name) = self.prompt_of(session, &shown).await?;
                (server, "name", name)
            }
            _ => {
                let shown = patch::text(params, &["ref", "uri"]).unwrap_or_default();
                let (server, uri) = self.template_of(session, &shown).await?;
                (server, "uri", uri)
            }
        };
        self.hand_on(
            session,
            &server,
            "completion/complete",
            params,
            &[(&["ref", field], quoted(&own))],
            lane,
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
        lane: &Lane,
    ) -> Outcome {
        let desk = self.desk(session, server)?;
        let params = fields
            .iter()
            .fold(params.to_owned(), |params, (path, value)| patch::insert(&params, path, value));
        self.forward(session, &desk, method, RawValue::from_string(params).ok(), lane).await
    }
}

/// How items are shown: prompts by names, the others by URIs.
fn shown(kind: Kind, items: &[(String, String, String)]) -> Vec<String> {
    let pairs = || items.iter().map(|(server, known, _)| (server.as_str(), known.as_str()));
    let own = |found: Option<&str>, known: &str| found.unwrap_or(known).to_owned();
    match kind.known_by {
        "name" => {
            let names = Names::of(pairs());
            pairs().map(|(server, known)| own(names.shown(server, known), known)).collect()
        }
        _ => {
            let uris = Uris::of(pairs());
            pairs().map(|(server, known)| own(uris.shown(server, known), known)).collect()
        }
    }
}

/// All pages of what one server lists, each item as it came.
async fn pages(desk: &Desk, kind: Kind) -> BridgeResult<Vec<String>> {
    let settings = &desk.server.settings;
    let deadline = Deadline::new(Instant::now(), None, settings.call_timeout, settings.limits.max_execution);
    desk.server.first_start(deadline.next()).await;
    let (mut items, mut cursor) = (Vec::new(), None::<String>);
    for _ in 0..MOST_PAGES {
        let spelled = |_| cursor.as_ref().map(|cursor| format!(r#"{{"cursor":{cursor}}}"#));
        let errand = Errand { method: kind.method, tool: None, params: &spelled, hear: None };
        let page = desk.server.run(&errand, true, &deadline).await?.raw;
        items.extend(
            patch::each(page.get(), &[kind.field]).unwrap_or_default().into_iter().map(str::to_owned),
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
