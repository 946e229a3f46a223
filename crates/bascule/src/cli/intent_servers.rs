//! Finds the servers that a script with an intent needs, by their last listings, so that the others are not started.

use std::collections::HashSet;
use std::sync::Arc;

use bascule_catalog::{Catalog, ServerTools};
use bascule_model::ServerName;
use tracing::warn;

use crate::blocking::run_blocking;
use crate::config::{ServerSettings, Settings};
use crate::fleet::client_profile::ClientProfile;
use crate::fleet::tools::tool_filter;
use crate::listing_store::{ListingKey, ListingStore};
use crate::script_types::is_callable;
use crate::search::ToolSearch;
use crate::{ToolIntent, ToolSelection};

/// Returns the servers of the best tools for an intent, and those without a last listing. Only selected tools count.
pub(super) async fn servers_for_intent(
    settings: &Settings,
    tools: &ToolSelection,
    intent: &ToolIntent,
) -> Vec<ServerName> {
    let selected = settings.servers.iter().filter(|server| tools.includes_server(server.name.as_str()));
    let selected: Vec<ServerSettings> = selected.cloned().collect();
    let names: Vec<ServerName> = selected.iter().map(|server| server.name.clone()).collect();
    let catalog = Arc::new(run_blocking(move || last_listings(&selected)).await);
    let (search, intents) = (Arc::new(ToolSearch::default()), [intent.clone()]);
    let encoded = search.encode(settings.bridge.encoder.as_ref(), &catalog, &intents).await;
    let (ranked, tools) = (catalog.clone(), tools.clone());
    let found = run_blocking(move || {
        search.find(&ranked, &intents, encoded, |tool| tools.includes(tool.id()) && is_callable(tool))
    });
    let found = found.await;
    let best: HashSet<&str> = found.iter().flatten().map(|(tool, _)| tool.id().server()).collect();
    let is_needed =
        |name: &ServerName| best.contains(name.as_str()) || catalog.server(name.as_str()).is_none();
    names.into_iter().filter(is_needed).collect()
}

/// Returns the tools that servers have listed in earlier runs.
fn last_listings(servers: &[ServerSettings]) -> Catalog {
    let store = ListingStore::open().inspect_err(|error| warn!("last listings are not used: {error}")).ok();
    let tools = |server: &ServerSettings| {
        let key = ListingKey::new(server, &ClientProfile::default().capabilities);
        let definitions = store.as_ref()?.read(&key)?.parse_tools().ok()?;
        Some(Arc::new(ServerTools::from_last_listing(server.name.clone(), tool_filter(server), definitions)))
    };
    servers.iter().filter_map(tools).collect()
}
