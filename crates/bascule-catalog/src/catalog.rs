//! The tools of all servers at one moment. Every change creates a new catalog; unchanged servers are shared.

use std::collections::HashMap;
use std::sync::Arc;

use bascule_model::{ServerName, ToolId};

use crate::nearest::nearest_tools;
use crate::{CatalogTool, ServerTools};

/// An immutable snapshot of all tools.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    /// In the order of insertion.
    servers: Vec<Arc<ServerTools>>,
    by_name: HashMap<ServerName, usize>,
}

/// The reason why a tool cannot be called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResolveError {
    /// The server's filter denies the tool.
    Denied,
    /// No server has the tool.
    Unknown {
        /// Tools with similar names, best first.
        nearest: Vec<ToolId>,
    },
}

impl Catalog {
    fn insert(&mut self, tools: Arc<ServerTools>) {
        match self.by_name.get(tools.name()) {
            Some(index) => self.servers[*index] = tools,
            None => {
                self.by_name.insert(tools.name().clone(), self.servers.len());
                self.servers.push(tools);
            }
        }
    }

    pub fn servers(&self) -> &[Arc<ServerTools>] {
        &self.servers
    }

    pub fn server(&self, name: &str) -> Option<&Arc<ServerTools>> {
        self.by_name.get(name).map(|index| &self.servers[*index])
    }

    /// Iterates over all allowed tools in the order of servers and of their lists.
    pub fn tools(&self) -> impl Iterator<Item = &Arc<CatalogTool>> {
        self.servers.iter().flat_map(|server| server.tools())
    }

    /// Returns the allowed tools of one server; an empty slice if there is no such server.
    pub fn tools_of(&self, server: &str) -> &[Arc<CatalogTool>] {
        self.server(server).map_or(&[], |server| server.tools())
    }

    /// Returns the tool if it exists and is allowed.
    pub fn get(&self, id: &ToolId) -> Option<&Arc<CatalogTool>> {
        self.server(id.server())?.get(id.tool())
    }

    /// Returns the tool, or the reason why it cannot be called.
    pub fn resolve(&self, id: &ToolId) -> Result<&Arc<CatalogTool>, ResolveError> {
        self.get(id).ok_or_else(|| self.resolve_error(id))
    }

    fn resolve_error(&self, id: &ToolId) -> ResolveError {
        if self.server(id.server()).is_some_and(|server| server.is_denied(id.tool())) {
            return ResolveError::Denied;
        }
        let servers = self.servers.iter().map(|server| (server.name().as_str(), server.ids().collect()));
        ResolveError::Unknown { nearest: nearest_tools(servers, id) }
    }
}

impl<S: Into<Arc<ServerTools>>> FromIterator<S> for Catalog {
    fn from_iter<I: IntoIterator<Item = S>>(servers: I) -> Self {
        let mut catalog = Self::default();
        servers.into_iter().for_each(|server| catalog.insert(server.into()));
        catalog
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ToolFilter;
    use crate::filter::tests::filter;
    use crate::server::tests::server;

    fn catalog() -> Catalog {
        Catalog::from_iter([
            server("web", ToolFilter::default(), &["fetch"]),
            server("db", filter(None, &["drop_*"]), &["query", "drop_table", "insert"]),
        ])
    }

    fn ids(catalog: &Catalog) -> Vec<&str> {
        catalog.tools().map(|tool| tool.id().as_str()).collect()
    }

    fn resolve_error(id: &str) -> ResolveError {
        catalog().resolve(&ToolId::parse(id).unwrap()).unwrap_err()
    }

    // req: BR-03
    #[test]
    fn lists_tools_in_order_of_servers_and_their_lists() {
        assert_eq!(ids(&catalog()), ["web:fetch", "db:query", "db:insert"]);
        assert_eq!(catalog().tools_of("db").len(), 2);
        assert!(catalog().tools_of("nowhere").is_empty());
    }

    // req: BR-04
    #[test]
    fn resolves_tool_by_full_name() {
        let catalog = catalog();
        let id = ToolId::parse("db:query").unwrap();
        assert_eq!(catalog.resolve(&id).unwrap().id(), &id);
        assert!(catalog.get(&ToolId::parse("web:query").unwrap()).is_none());
    }

    // req: BR-04
    #[test]
    fn suggests_similar_names_for_unknown_tool() {
        let expected = vec![ToolId::parse("db:query").unwrap(), ToolId::parse("db:insert").unwrap()];
        assert_eq!(resolve_error("db:querry"), ResolveError::Unknown { nearest: expected });
        assert_eq!(resolve_error("nowhere:zzz"), ResolveError::Unknown { nearest: vec![] });
    }

    // req: BR-01
    #[test]
    fn denies_filtered_tool_and_never_suggests_it() {
        assert_eq!(resolve_error("db:drop_table"), ResolveError::Denied);
        assert_eq!(resolve_error("db:drop_everything"), ResolveError::Denied);
        let ResolveError::Unknown { nearest } = resolve_error("web:drop_table") else { panic!("denied") };
        assert!(nearest.iter().all(|id| id.as_str() != "db:drop_table"));
    }

    // req: BR-14
    #[test]
    fn replacing_a_server_keeps_its_position_and_shares_the_others() {
        let before = catalog();
        let web = Arc::new(server("web", ToolFilter::default(), &["get", "post"]));
        let after: Catalog = before.servers().iter().cloned().chain([web]).collect();
        assert_eq!(ids(&after), ["web:get", "web:post", "db:query", "db:insert"]);
        assert_eq!(ids(&before), ["web:fetch", "db:query", "db:insert"]);
        assert!(Arc::ptr_eq(before.server("db").unwrap(), after.server("db").unwrap()));
    }

    #[test]
    fn leaving_out_a_server_removes_its_tools() {
        let after: Catalog = catalog().servers()[1..].iter().cloned().collect();
        assert_eq!(ids(&after), ["db:query", "db:insert"]);
        assert!(after.server("web").is_none());
        assert!(after.get(&ToolId::parse("db:query").unwrap()).is_some());
        assert_eq!(after.servers().len(), 1);
    }
}
