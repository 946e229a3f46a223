//! All there is at one moment: settings, servers, tools. One snapshot, so that they always agree.

use std::collections::HashMap;
use std::sync::Arc;

use bascule_catalog::{Catalog, CatalogTool};
use bascule_model::{BridgeResult, ServerName, ToolId};

use super::server::Server;
use crate::config::Settings;
use crate::normalise::{unknown_server, unknown_tool};

/// Never changes: a change makes a new one.
#[derive(Clone, Default)]
pub(crate) struct Snapshot {
    pub(crate) settings: Arc<Settings>,
    pub(crate) servers: Arc<HashMap<ServerName, Arc<Server>>>,
    /// In the order of the configuration.
    pub(crate) catalog: Arc<Catalog>,
}

impl Snapshot {
    /// A snapshot of these servers, and of what they have listed so far.
    pub(crate) fn of(settings: Arc<Settings>, servers: HashMap<ServerName, Arc<Server>>) -> Self {
        let mut snapshot = Self { settings, servers: Arc::new(servers), catalog: Arc::default() };
        let listed = snapshot.in_order().filter_map(|server| server.tools());
        snapshot.catalog = Arc::new(listed.collect());
        snapshot
    }

    /// The same snapshot after one of its servers has listed its tools; none if it is not of this snapshot.
    pub(crate) fn with_tools_of(&self, name: &ServerName, serial: u64) -> Option<Self> {
        // RequestHandler for here, not brought along: of two who publish, the later one may know less.
        let tools = self.servers.get(name).filter(|server| server.serial == serial)?.tools()?;
        let listed = self.in_order().filter_map(|server| match server.settings.name == *name {
            true => Some(tools.clone()),
            false => self.catalog.server(server.settings.name.as_str()).cloned(),
        });
        Some(Self { catalog: Arc::new(listed.collect()), ..self.clone() })
    }

    /// The servers in the order of the configuration.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = &Arc<Server>> {
        self.settings.servers.iter().filter_map(|settings| self.servers.get(&settings.name))
    }

    /// Who would serve a call.
    pub(crate) fn server(&self, tool: &ToolId) -> BridgeResult<&Arc<Server>> {
        self.servers.get(tool.server()).ok_or_else(|| unknown_server(&self.settings, tool))
    }

    /// What it would call. A server that is down says so, whatever its tools were.
    pub(crate) fn tool(&self, id: &ToolId) -> BridgeResult<(&Arc<Server>, &Arc<CatalogTool>)> {
        let server = self.server(id)?;
        server.backend()?;
        let tool = self.catalog.resolve(id).map_err(|miss| unknown_tool(id, miss))?;
        Ok((server, tool))
    }
}
