//! Selects the tools that a script may call by name (CM-07) and leaves out names that scripts cannot use (CM-09).

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bascule_catalog::{CatalogTool, NamePattern};
use bascule_model::{BridgeResult, ToolId};
use bascule_script::names::{self, InvalidToolName};
use bascule_script::wire::{InjectedTool, LogLine, ScriptError};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::McpBridgeAdapter;

/// Maximum wait for servers that are still starting.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum length of a tool description in a worker.
const MAX_DESCRIPTION: usize = 1_000;
/// Argument keys are not respelled for tools with a longer schema.
const MAX_SCHEMA: usize = 256 << 10;
/// Number of left-out tools to name.
const MAX_WARNINGS: usize = 10;

/// A choice of tools: all, or those that match one of the `server:tool` patterns.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ToolSelection(Option<Vec<(String, String)>>);

/// A pattern that is not `server:tool`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a tool pattern: use `server:tool` or `server:*`")]
pub struct ToolSelectionError(String);

impl ToolSelection {
    /// Selects every tool.
    pub fn all() -> Self {
        Self(None)
    }

    /// Parses patterns such as `server:tool`. Both parts may contain `*`.
    pub fn parse<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Result<Self, ToolSelectionError> {
        let split = |pattern: &'a str| match pattern.split_once(':') {
            Some((server, tool)) if !server.is_empty() && !tool.is_empty() => {
                Ok((server.into(), tool.into()))
            }
            _ => Err(ToolSelectionError(pattern.into())),
        };
        patterns.into_iter().map(str::trim).map(split).collect::<Result<_, _>>().map(|list| Self(Some(list)))
    }

    /// Returns true if a pattern names this server.
    pub(crate) fn includes_server(&self, name: &str) -> bool {
        let Some(patterns) = &self.0 else { return true };
        patterns.iter().any(|(server, _)| NamePattern::parse(server).matches(name))
    }

    pub(crate) fn includes(&self, id: &ToolId) -> bool {
        let Some(patterns) = &self.0 else { return true };
        patterns.iter().any(|(server, tool)| {
            NamePattern::parse(server).matches(id.server()) && NamePattern::parse(tool).matches(id.tool())
        })
    }

    /// Fails if a server without a wildcard is not configured.
    fn check_servers(&self, bridge: &McpBridgeAdapter) -> BridgeResult<()> {
        let snapshot = bridge.fleet.snapshot.load();
        let servers = self.0.iter().flatten().map(|(server, _)| server);
        let mut unknown = servers
            .filter(|name| NamePattern::parse(name).is_literal() && snapshot.settings.server(name).is_none());
        match unknown.next() {
            Some(name) => {
                Err(crate::normalise::missing(crate::normalise::no_server(&snapshot.settings, name)))
            }
            None => Ok(()),
        }
    }

    /// Returns the tools that are named without wildcards.
    fn literal_ids(&self) -> Vec<ToolId> {
        let is_literal = |text: &String| NamePattern::parse(text).is_literal();
        let literal = self.0.iter().flatten().filter(|(server, tool)| is_literal(server) && is_literal(tool));
        literal.filter_map(|(server, tool)| ToolId::parse(&format!("{server}:{tool}")).ok()).collect()
    }
}

/// The tools that a script may call.
pub(super) struct InjectedTools {
    tools: Vec<Arc<CatalogTool>>,
    ids: HashSet<String>,
    /// Configured servers that have not listed their tools.
    pub(super) absent_servers: Vec<String>,
    selection: ToolSelection,
    /// Tools with invalid names, matched by a wildcard.
    left_out: Vec<InvalidToolName>,
    /// A tool with an invalid name, requested without a wildcard.
    invalid: Option<InvalidToolName>,
}

impl InjectedTools {
    /// Waits for the selected servers to start and selects their tools. An unknown tool is an error, unless its server is
    /// down: the script gets that error when it calls.
    pub(super) async fn select(bridge: &McpBridgeAdapter, selection: &ToolSelection) -> BridgeResult<Self> {
        await_starts(bridge, selection).await;
        let absent_servers = absent_servers(bridge, selection);
        for id in selection.literal_ids() {
            if !absent_servers.iter().any(|server| server == id.server()) {
                bridge.get_tool(&id)?;
            }
        }
        selection.check_servers(bridge)?;
        let requested: HashSet<String> = selection.literal_ids().iter().map(ToString::to_string).collect();
        let mut injected = Self {
            tools: Vec::new(),
            ids: HashSet::new(),
            absent_servers,
            selection: selection.clone(),
            left_out: Vec::new(),
            invalid: None,
        };
        for tool in bridge.catalog().tools().filter(|tool| selection.includes(tool.id())) {
            match names::check(tool.id().server(), tool.id().tool()) {
                Ok(()) => {
                    injected.ids.insert(tool.id().to_string());
                    injected.tools.push(tool.clone());
                }
                Err(error) if requested.contains(&tool.id().to_string()) => injected.invalid = Some(error),
                Err(error) => injected.left_out.push(error),
            }
        }
        Ok(injected)
    }

    pub(super) fn ids(&self) -> Vec<String> {
        self.tools.iter().map(|tool| tool.id().to_string()).collect()
    }

    /// Returns the first few ids, for the log.
    pub(super) fn summary(&self) -> String {
        let first: Vec<String> = self.tools.iter().take(20).map(|tool| tool.id().to_string()).collect();
        first.join(" ")
    }

    /// Returns true if the script may call the tool. The worker is not trusted to call only the injected tools.
    pub(super) fn allows(&self, server: &str, tool: &str) -> bool {
        const MAX_NAME: usize = 256;
        let id = format!("{server}:{tool}");
        let is_absent = || self.absent_servers.iter().any(|absent| absent == server);
        let is_valid = || tool.len() <= MAX_NAME && names::check(server, tool).is_ok();
        let is_selected = || ToolId::parse(&id).is_ok_and(|id| self.selection.includes(&id));
        self.ids.contains(&id) || (is_absent() && is_valid() && is_selected())
    }

    pub(super) fn definitions(&self) -> Vec<InjectedTool> {
        let definition = |tool: &Arc<CatalogTool>| InjectedTool {
            server: tool.id().server().to_owned(),
            name: tool.id().tool().to_owned(),
            description: tool.definition().description.as_deref().map(|text| clipped(text, MAX_DESCRIPTION)),
            input_schema: Some(tool.definition().input_schema.clone())
                .filter(|raw| raw.get().len() <= MAX_SCHEMA),
        };
        self.tools.iter().map(definition).collect()
    }

    /// Returns the error for a requested tool whose name scripts cannot use.
    pub(super) fn invalid_name(&self) -> Option<ScriptError> {
        let error = self.invalid.as_ref()?;
        Some(ScriptError {
            name: "InvalidToolNameError".into(),
            code: Some("INVALID_TOOL_NAME".into()),
            message: error.to_string(),
            ..ScriptError::default()
        })
    }

    /// Returns warnings about tools that were left out.
    pub(super) fn warnings(&self) -> Vec<LogLine> {
        let line = |text: String| LogLine { level: "warn".into(), text };
        let shown = self.left_out.iter().take(MAX_WARNINGS);
        let mut lines: Vec<_> =
            shown.map(|error| line(format!("tool left out: {}", clipped(&error.to_string(), 200)))).collect();
        if self.left_out.len() > MAX_WARNINGS {
            lines.push(line(format!("{} more tools left out", self.left_out.len() - MAX_WARNINGS)));
        }
        lines
    }
}

fn clipped(text: &str, bytes: usize) -> String {
    text[..text.floor_char_boundary(bytes)].to_owned()
}

async fn await_starts(bridge: &McpBridgeAdapter, selection: &ToolSelection) {
    let (snapshot, deadline) = (bridge.fleet.snapshot.load_full(), Instant::now() + START_TIMEOUT);
    let selected =
        snapshot.in_order().filter(|server| selection.includes_server(server.settings.name.as_str()));
    let starts = selected.filter(|server| server.is_starting()).map(|server| server.first_start(deadline));
    futures_util::future::join_all(starts).await;
}

fn absent_servers(bridge: &McpBridgeAdapter, selection: &ToolSelection) -> Vec<String> {
    let snapshot = bridge.fleet.snapshot.load();
    let configured = snapshot.settings.servers.iter().map(|server| server.name.as_str());
    let unlisted = configured.filter(|name| snapshot.catalog.server(name).is_none());
    unlisted
        .filter(|name| selection.includes_server(name) && names::check(name, "tool").is_ok())
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: CM-07
    #[test]
    fn selects_tools_by_pattern() {
        let selection = ToolSelection::parse(["a:b", " c:* "]).unwrap();
        let includes = |id: &str| selection.includes(&ToolId::parse(id).unwrap());
        assert!(includes("a:b") && includes("c:x") && !includes("a:c") && !includes("d:b"));
        assert!(
            selection.includes_server("a")
                && selection.includes_server("c")
                && !selection.includes_server("d")
        );
        assert_eq!(selection.literal_ids().len(), 1);
        assert!(ToolSelection::all().includes(&ToolId::parse("x:y").unwrap()));
        assert!(ToolSelection::parse(["a"]).is_err() && ToolSelection::parse([":b"]).is_err());
    }
}
