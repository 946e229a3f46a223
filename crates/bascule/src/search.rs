//! Searches the catalog of a bridge for the tools of an intent.
//!
//! `bascule-search` ranks; this module keeps the index of each server's tools. An index is built when somebody searches, on
//! another thread, and only for servers whose tools have changed since: calls never wait for it. If an encoder is configured, its
//! vectors replace the built-in ones as long as it answers.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use bascule_catalog::{Catalog, CatalogTool, ServerTools};
use bascule_model::ServerName;
use bascule_search::{Embedding, Intent, RankedTool, SearchIndex, ServerIndex};
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::McpBridgeAdapter;
use crate::blocking::run_blocking;
use crate::config::EncoderSettings;
use crate::encoder::Encoder;

/// The number of tools that a search returns unless the caller asks for more or fewer.
pub(crate) const DEFAULT_COUNT: usize = 5;
/// The most tools that a search returns.
pub(crate) const MAX_COUNT: usize = 1_000;

/// The purpose of a script or a question, and the number of tools for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolIntent {
    pub text: String,
    pub count: usize,
}

impl ToolIntent {
    /// Asks for the usual number of tools.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), count: DEFAULT_COUNT }
    }
}

/// A tool that was found.
#[derive(Debug, Clone)]
pub(crate) struct RankedCatalogTool {
    pub(crate) tool: Arc<CatalogTool>,
    /// The server is not connected, and no call would start it.
    pub(crate) is_down: bool,
}

/// The indexes of the servers' tools.
#[derive(Default)]
pub(crate) struct ToolSearch {
    servers: Mutex<HashMap<ServerName, IndexedServer>>,
    /// The encoder of the current settings.
    encoder: Mutex<Option<Arc<Encoder>>>,
}

struct IndexedServer {
    tools: Arc<ServerTools>,
    /// The encoder of its vectors; `None` is the built-in one.
    encoder: Option<Arc<Encoder>>,
    index: Arc<LazyIndex>,
}

/// An index that the first search builds, and for which the others wait.
type LazyIndex = LazyLock<Arc<ServerIndex>, Box<dyn FnOnce() -> Arc<ServerIndex> + Send>>;

/// The vectors of an encoder for one search.
pub(crate) struct EncodedSearch {
    encoder: Arc<Encoder>,
    intents: Vec<Intent>,
    /// The vectors of the tools of servers without an index.
    tools: HashMap<ServerName, Vec<Embedding>>,
}

impl ToolSearch {
    /// Asks the configured encoder for the vectors of a search. `None` without one, and if it fails.
    pub(crate) async fn encode(
        self: &Arc<Self>,
        settings: Option<&EncoderSettings>,
        catalog: &Arc<Catalog>,
        intents: &[ToolIntent],
    ) -> Option<EncodedSearch> {
        let (search, settings, catalog) = (self.clone(), settings?.clone(), catalog.clone());
        // A new encoder looks at files, and another thread may hold the lock while it indexes.
        let (encoder, servers) = run_blocking(move || {
            let encoder = search.encoder(&settings)?;
            let servers = search.servers_without_index(&catalog, &encoder);
            Some((encoder, servers))
        })
        .await?;
        let intents: Vec<_> = intents.iter().map(|intent| Intent::without_embeddings(&intent.text)).collect();
        let intent_texts = intents.iter().flat_map(|intent| intent.texts().map(str::to_owned)).collect();
        let tool_texts = servers.iter().flat_map(|(_, texts)| texts).cloned().collect();
        let (tools, vectors) = encoder.embed(tool_texts, intent_texts).await?;
        let (mut tools, mut vectors) = (tools.into_iter(), vectors.into_iter());
        let of_server =
            |(name, texts): (ServerName, Vec<String>)| (name, tools.by_ref().take(texts.len()).collect());
        let tools = servers.into_iter().map(of_server).collect();
        let with_vectors = |intent: Intent| {
            let count = intent.texts().count();
            intent.with_embeddings(vectors.by_ref().take(count))
        };
        let intents = intents.into_iter().map(with_vectors).collect();
        Some(EncodedSearch { encoder, intents, tools })
    }

    /// Returns the encoder of these settings. A reload may have changed them.
    fn encoder(&self, settings: &EncoderSettings) -> Option<Arc<Encoder>> {
        let mut current = self.encoder.lock().unwrap_or_else(PoisonError::into_inner);
        if current.as_ref().is_none_or(|encoder| encoder.settings() != settings) {
            let made = Encoder::new(settings.clone()).map(Arc::new);
            *current = made.map_err(|error| warn!("search uses the built-in encoder: {error}")).ok();
        }
        current.clone()
    }

    /// Returns the servers that have no index with vectors of this encoder, and the texts of their tools.
    fn servers_without_index(
        &self,
        catalog: &Catalog,
        encoder: &Arc<Encoder>,
    ) -> Vec<(ServerName, Vec<String>)> {
        let known = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let has_index = |tools: &&Arc<ServerTools>| {
            known.get(tools.name()).is_some_and(|known| known.is_of(tools, Some(encoder)))
        };
        let text = |tool: &Arc<CatalogTool>| ServerIndex::encoded_text(tool.definition());
        let missing = catalog.servers().iter().filter(|tools| !has_index(tools));
        missing.map(|tools| (tools.name().clone(), tools.tools().iter().map(text).collect())).collect()
    }

    /// Ranks the tools of a catalog, after indexing the servers that have changed.
    pub(crate) fn find(
        &self,
        catalog: &Catalog,
        intents: &[ToolIntent],
        encoded: Option<EncodedSearch>,
        is_wanted: impl Fn(&CatalogTool) -> bool,
    ) -> Vec<Vec<(Arc<CatalogTool>, f32)>> {
        let index = self.index(catalog, encoded.as_ref());
        let tool = |server: usize, tool: usize| &catalog.servers()[server].tools()[tool];
        let mut encoded = encoded.map(|encoded| encoded.intents.into_iter());
        let search = |intent: &ToolIntent| {
            let count = intent.count.min(MAX_COUNT);
            let vectors =
                encoded.as_mut().and_then(Iterator::next).unwrap_or_else(|| Intent::new(&intent.text));
            index.search(&vectors, count, |at, nth| is_wanted(tool(at, nth)))
        };
        let ranked: Vec<_> = intents.iter().map(search).collect();
        bascule_search::release_table();
        let found = |one: &RankedTool| (tool(one.server, one.tool).clone(), one.score);
        ranked.iter().map(|ranked| ranked.iter().map(found).collect()).collect()
    }

    /// Returns the index of a catalog. The lock is not held while a server's index is built: a server with much text delays only the
    /// searches in it.
    fn index(&self, catalog: &Catalog, encoded: Option<&EncodedSearch>) -> SearchIndex {
        self.server_indexes(catalog, encoded).iter().map(|index| LazyLock::force(index).clone()).collect()
    }

    fn server_indexes(&self, catalog: &Catalog, encoded: Option<&EncodedSearch>) -> Vec<Arc<LazyIndex>> {
        let encoder = encoded.map(|encoded| &encoded.encoder);
        let mut known = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut old = std::mem::take(&mut *known);
        let mut server_index = |tools: &Arc<ServerTools>| {
            let unchanged = old.remove(tools.name()).filter(|old| old.is_of(tools, encoder));
            let server = unchanged.unwrap_or_else(|| IndexedServer::new(tools, encoded));
            let index = server.index.clone();
            known.insert(tools.name().clone(), server);
            index
        };
        catalog.servers().iter().map(&mut server_index).collect()
    }
}

impl IndexedServer {
    fn new(tools: &Arc<ServerTools>, encoded: Option<&EncodedSearch>) -> Self {
        let vectors = encoded.and_then(|encoded| Some((encoded, encoded.tools.get(tools.name())?)));
        // Without vectors, because another search has replaced the index meanwhile, the built-in ones are indexed: they do not
        // compare with those of the intent, and words alone rank this server's tools this time.
        let (vectors, encoder) =
            vectors.map(|(encoded, vectors)| (vectors.clone(), encoded.encoder.clone())).unzip();
        let indexed = tools.clone();
        let build = move || {
            let definitions = indexed.tools().iter().map(|tool| tool.definition());
            let name = indexed.name().as_str();
            Arc::new(match vectors {
                Some(vectors) => ServerIndex::with_embeddings(name, definitions, &vectors),
                None => ServerIndex::new(name, definitions),
            })
        };
        Self { tools: tools.clone(), encoder, index: Arc::new(LazyLock::new(Box::new(build))) }
    }

    /// Returns true if the index is that of these tools, with the vectors of this encoder.
    fn is_of(&self, tools: &Arc<ServerTools>, encoder: Option<&Arc<Encoder>>) -> bool {
        let has_encoder = match (&self.encoder, encoder) {
            (Some(own), Some(other)) => Arc::ptr_eq(own, other),
            (own, other) => own.is_none() && other.is_none(),
        };
        has_encoder && Arc::ptr_eq(&self.tools, tools)
    }
}

impl McpBridgeAdapter {
    /// Returns the tools for an intent for which `is_wanted` returns true, best first.
    pub(crate) async fn search_tools(
        &self,
        intent: ToolIntent,
        is_wanted: impl Fn(&CatalogTool) -> bool + Send + 'static,
    ) -> Vec<RankedCatalogTool> {
        self.search_all(vec![intent], is_wanted).await.pop().unwrap_or_default()
    }

    /// Returns the tools for each of some intents.
    pub(crate) async fn search_all(
        &self,
        intents: Vec<ToolIntent>,
        is_wanted: impl Fn(&CatalogTool) -> bool + Send + 'static,
    ) -> Vec<Vec<RankedCatalogTool>> {
        let (snapshot, search) = (self.fleet.snapshot.load_full(), self.search.clone());
        let encoder = snapshot.settings.bridge.encoder.as_ref();
        let encoded = search.encode(encoder, &snapshot.catalog, &intents).await;
        let found = run_blocking(move || {
            let found = search.find(&snapshot.catalog, &intents, encoded, is_wanted);
            let is_down = |tool: &CatalogTool| {
                snapshot
                    .server(tool.id())
                    .is_ok_and(|server| !server.is_on_demand() && server.backend().is_err())
            };
            let ranked =
                |(tool, _): (Arc<CatalogTool>, f32)| RankedCatalogTool { is_down: is_down(&tool), tool };
            found.into_iter().map(|found| found.into_iter().map(ranked).collect()).collect()
        });
        found.await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::server_of;

    fn first(search: &ToolSearch, catalog: &Catalog, intent: &str) -> String {
        search.find(catalog, &[ToolIntent::new(intent)], None, |_| true)[0][0].0.id().to_string()
    }

    // req: SE-02
    #[test]
    fn indexes_only_changed_servers_again() {
        let (search, files) = (ToolSearch::default(), server_of("files", &["read_file", "move_file"]));
        let before: Catalog = [files.clone(), server_of("mail", &["send_mail"])].into_iter().collect();
        assert_eq!(first(&search, &before, "send a mail"), "mail:send_mail");
        let kept = search.servers.lock().unwrap()["files"].index.clone();
        let after: Catalog = [files, server_of("mail", &["draw_chart"])].into_iter().collect();
        assert_eq!(first(&search, &after, "draw a chart"), "mail:draw_chart");
        assert!(Arc::ptr_eq(&kept, &search.servers.lock().unwrap()["files"].index));
        first(
            &search,
            &Catalog::default().servers().iter().cloned().chain([server_of("x", &["y"])]).collect(),
            "z",
        );
        assert_eq!(search.servers.lock().unwrap().len(), 1, "removed servers are forgotten");
    }

    // req: SE-02
    #[test]
    fn index_is_built_outside_the_lock() {
        let search = Arc::new(ToolSearch::default());
        let tools = server_of("files", &["read_file"]);
        let catalog: Catalog = [tools.clone()].into_iter().collect();
        let mut slow = IndexedServer::new(&tools, None);
        let (started, has_started) = std::sync::mpsc::channel();
        let (release, released) = std::sync::mpsc::channel::<()>();
        slow.index = Arc::new(LazyLock::new(Box::new(move || {
            started.send(()).unwrap();
            released.recv().unwrap();
            Arc::new(ServerIndex::new("files", []))
        })));
        search.servers.lock().unwrap().insert(tools.name().clone(), slow);
        let searching = search.clone();
        let thread = std::thread::spawn(move || searching.index(&catalog, None));
        has_started.recv().unwrap();
        assert!(search.servers.try_lock().is_ok());
        release.send(()).unwrap();
        thread.join().unwrap();
    }

    // req: SE-01
    #[test]
    fn finds_only_wanted_tools() {
        let catalog: Catalog = [server_of("files", &["read_file", "move_file"])].into_iter().collect();
        let intent = ToolIntent { text: "read a file".into(), count: 10 };
        let found =
            ToolSearch::default().find(&catalog, &[intent], None, |tool| tool.id().tool() != "read_file");
        assert_eq!(
            found[0].iter().map(|(tool, _)| tool.id().as_str()).collect::<Vec<_>>(),
            ["files:move_file"]
        );
    }
}
