//! All servers' tools at one moment. A change makes a new catalog, which shares with the old one whatever
//! stayed the same.

use std::collections::HashMap;
use std::sync::Arc;

use bascule_model::{ServerName, ToolDefinition, ToolId};

use crate::nearest::nearest_tools;
use crate::{CatalogTool, ServerTools, ToolFilter};

/// An immutable snapshot: take it once, use it for the whole job.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    /// In the order in which they first came.
    servers: Vec<Arc<ServerTools>>,
    by_name: HashMap<ServerName, usize>,
}

/// Why there is no such tool to be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Miss {
    /// The server's filter keeps it from being used.
    Denied,
    /// Nobody has it.
    Unknown {
        /// What may have been meant, best first.
        nearest: Vec<ToolId>,
    },
}

impl Catalog {
    /// Puts together what several servers listed.
    pub fn assemble(
        servers: impl IntoIterator<Item = (ServerName, ToolFilter, Vec<ToolDefinition>)>,
    ) -> Self {
        servers.into_iter().map(|(name, filter, tools)| ServerTools::new(name, filter, tools)).collect()
    }

    /// The same catalog with this server's tools instead of those it had, or with one server more.
    pub fn with_server(&self, tools: impl Into<Arc<ServerTools>>) -> Self {
        let mut changed = self.clone();
        changed.put(tools.into());
        changed
    }

    /// The same catalog without this server.
    pub fn without_server(&self, name: &str) -> Self {
        self.servers.iter().filter(|server| server.name().as_str() != name).cloned().collect()
    }

    fn put(&mut self, tools: Arc<ServerTools>) {
        match self.by_name.get(tools.name()) {
            Some(place) => self.servers[*place] = tools,
            None => {
                self.by_name.insert(tools.name().clone(), self.servers.len());
                self.servers.push(tools);
            }
        }
    }

    /// All servers, in the order in which they first came.
    pub fn servers(&self) -> &[Arc<ServerTools>] {
        &self.servers
    }

    /// One server's tools.
    pub fn server(&self, name: &str) -> Option<&Arc<ServerTools>> {
        self.by_name.get(name).map(|place| &self.servers[*place])
    }

    /// All that may be used: servers in their order, each server's tools in its own.
    pub fn tools(&self) -> impl Iterator<Item = &Arc<CatalogTool>> {
        self.servers.iter().flat_map(|server| server.tools())
    }

    /// What may be used of one server; nothing of one that is not there.
    pub fn tools_of(&self, server: &str) -> &[Arc<CatalogTool>] {
        self.server(server).map_or(&[], |server| server.tools())
    }

    /// The tool of this name, if it may be used.
    pub fn get(&self, id: &ToolId) -> Option<&Arc<CatalogTool>> {
        self.server(id.server())?.get(id.tool())
    }

    /// The tool of this name, or why not.
    pub fn resolve(&self, id: &ToolId) -> Result<&Arc<CatalogTool>, Miss> {
        self.get(id).ok_or_else(|| self.miss(id))
    }

    fn miss(&self, id: &ToolId) -> Miss {
        if self.server(id.server()).is_some_and(|server| server.denies(id.tool())) {
            return Miss::Denied;
        }
        let servers = self.servers.iter().map(|server| (server.name().as_str(), server.ids().collect()));
        Miss::Unknown { nearest: nearest_tools(servers, id) }
    }
}

impl<S: Into<Arc<ServerTools>>> FromIterator<S> for Catalog {
    fn from_iter<I: IntoIterator<Item = S>>(servers: I) -> Self {
        let mut catalog = Self::default();
        servers.into_iter().for_each(|server| catalog.put(server.into()));
        catalog
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::tests::filter;
    use crate::server::tests::{definitions, server};

    fn catalog() -> Catalog {
        let name = |name| ServerName::parse(name).unwrap();
        Catalog::assemble([
            (name("web"), ToolFilter::default(), definitions(&["fetch"])),
            (name("db"), filter(None, &["drop_*"]), definitions(&["query", "drop_table", "insert"])),
        ])
    }

    fn ids(catalog: &Catalog) -> Vec<&str> {
        catalog.tools().map(|tool| tool.id().as_str()).collect()
    }

    fn miss(id: &str) -> Miss {
        catalog().resolve(&ToolId::parse(id).unwrap()).unwrap_err()
    }

    // req: BR-03
    #[test]
    fn tools_are_listed_in_the_order_of_servers_and_of_their_lists() {
        assert_eq!(ids(&catalog()), ["web:fetch", "db:query", "db:insert"]);
        assert_eq!(catalog().tools_of("db").len(), 2);
        assert!(catalog().tools_of("nowhere").is_empty());
    }

    // req: BR-04
    #[test]
    fn a_tool_is_found_by_its_full_name() {
        let catalog = catalog();
        let id = ToolId::parse("db:query").unwrap();
        assert_eq!(catalog.resolve(&id).unwrap().id(), &id);
        assert!(catalog.get(&ToolId::parse("web:query").unwrap()).is_none());
    }

    // req: BR-04
    #[test]
    fn an_unknown_tool_is_answered_with_the_nearest_names() {
        let expected = vec![ToolId::parse("db:query").unwrap(), ToolId::parse("db:insert").unwrap()];
        assert_eq!(miss("db:querry"), Miss::Unknown { nearest: expected });
        assert_eq!(miss("nowhere:zzz"), Miss::Unknown { nearest: vec![] });
    }

    // req: BR-01
    #[test]
    fn a_hidden_tool_is_denied_and_never_suggested() {
        assert_eq!(miss("db:drop_table"), Miss::Denied);
        assert_eq!(miss("db:drop_everything"), Miss::Denied);
        let Miss::Unknown { nearest } = miss("web:drop_table") else { panic!("unknown there") };
        assert!(nearest.iter().all(|id| id.as_str() != "db:drop_table"));
    }

    // req: BR-14
    #[test]
    fn a_changed_server_keeps_its_place_and_the_others_are_shared() {
        let before = catalog();
        let after = before.with_server(server("web", ToolFilter::default(), &["get", "post"]));
        assert_eq!(ids(&after), ["web:get", "web:post", "db:query", "db:insert"]);
        assert_eq!(ids(&before), ["web:fetch", "db:query", "db:insert"]);
        assert!(Arc::ptr_eq(before.server("db").unwrap(), after.server("db").unwrap()));
    }

    #[test]
    fn a_server_that_went_takes_its_tools_along() {
        let after = catalog().without_server("web");
        assert_eq!(ids(&after), ["db:query", "db:insert"]);
        assert!(after.server("web").is_none());
        assert!(after.get(&ToolId::parse("db:query").unwrap()).is_some());
        assert_eq!(after.servers().len(), 1);
    }
}
