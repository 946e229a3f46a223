//! Settings, servers and tools at one moment, in one snapshot, so that they always agree.

use std::sync::Arc;

use bascule_catalog::{Catalog, CatalogTool};
use bascule_model::{BridgeResult, ServerName, ToolId};
use foldhash::HashMap;

use super::server::Server;
use crate::config::Settings;
use crate::normalise::{unknown_server, unknown_tool};

/// Immutable: a change makes a new snapshot.
#[derive(Clone, Default)]
pub(crate) struct Snapshot {
    pub(crate) settings: Arc<Settings>,
    pub(crate) servers: Arc<HashMap<ServerName, Arc<Server>>>,
    /// In the order of the configuration.
    pub(crate) catalog: Arc<Catalog>,
}

impl Snapshot {
    /// Makes a snapshot of these servers, with the tools they have listed so far.
    pub(crate) fn new(settings: Arc<Settings>, servers: HashMap<ServerName, Arc<Server>>) -> Self {
        let mut snapshot = Self { settings, servers: Arc::new(servers), catalog: Arc::default() };
        let listed = snapshot.in_order().filter_map(|server| server.tools());
        snapshot.catalog = Arc::new(listed.collect());
        snapshot
    }

    /// Returns the snapshot after one of its servers has listed its tools; `None` if the server is not part of it.
    pub(crate) fn with_tools_of(&self, name: &ServerName, serial: u64) -> Option<Self> {
        // The tools are read here, not passed in: of two that publish, the later one may have older tools.
        let tools = self.servers.get(name).filter(|server| server.serial == serial)?.tools()?;
        let listed = self.in_order().filter_map(|server| match server.settings.name == *name {
            true => Some(tools.clone()),
            false => self.catalog.server(server.settings.name.as_str()).cloned(),
        });
        Some(Self { catalog: Arc::new(listed.collect()), ..self.clone() })
    }

    /// Returns the servers in the order of the configuration.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = &Arc<Server>> {
        self.settings.servers.iter().filter_map(|settings| self.servers.get(&settings.name))
    }

    pub(crate) fn server(&self, tool: &ToolId) -> BridgeResult<&Arc<Server>> {
        self.servers.get(tool.server()).ok_or_else(|| unknown_server(&self.settings, tool))
    }

    /// Finds a tool. A server that is not running until its next call, or is starting, has its last tools.
    pub(crate) fn known_tool(&self, id: &ToolId) -> BridgeResult<&Arc<CatalogTool>> {
        let server = self.server(id)?;
        let is_known = || server.is_starting() && self.catalog.get(id).is_some();
        match server.is_on_demand() || is_known() {
            true => self.catalog.resolve(id).map_err(|miss| unknown_tool(id, miss)),
            false => self.tool(id).map(|(_, tool)| tool),
        }
    }

    /// Finds the server and the tool of a call. Fails if the server is down.
    pub(crate) fn tool(&self, id: &ToolId) -> BridgeResult<(&Arc<Server>, &Arc<CatalogTool>)> {
        let server = self.server(id)?;
        server.backend()?;
        let tool = self.catalog.resolve(id).map_err(|miss| unknown_tool(id, miss))?;
        Ok((server, tool))
    }
}
