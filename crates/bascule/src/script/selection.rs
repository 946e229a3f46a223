//! Which tools a script is given (CM-07, so far by name), and which of their names it may not be given (CM-09).

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bascule_catalog::{CatalogTool, NamePattern};
use bascule_model::{BridgeResult, ToolId};
use bascule_script::names::{self, InvalidToolName};
use bascule_script::wire::{LogLine, ScriptError, ToolDefinition};

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::McpBridgeAdapter;

/// A script waits so long for servers that are still starting.
const STARTING: Duration = Duration::from_secs(30);

/// A description is for people; workers only call_with it.
const DESCRIPTION: usize = 1_000;
/// A longer schema is not looked at for the spelling of keys.
const SCHEMA: usize = 256 << 10;
/// So many tools that are left out are named.
const REMARKS: usize = 10;

/// The tools that somebody asks for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Selection(Option<Vec<(String, String)>>);

/// What cannot be a selection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` selects no tools: write `server:tool` or `server:*`")]
pub struct SelectionError(String);

impl Selection {
    /// Every tool there is.
    pub fn all() -> Self {
        Self(None)
    }

    /// Those that are named, as `server:tool` or with `*` in either part.
    pub fn named<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, SelectionError> {
        let parts = |name: &'a str| match name.split_once(':') {
            Some((server, tool)) if !server.is_empty() && !tool.is_empty() => {
                Ok((server.into(), tool.into()))
            }
            _ => Err(SelectionError(name.into())),
        };
        names.into_iter().map(str::trim).map(parts).collect::<Result<_, _>>().map(|named| Self(Some(named)))
    }

    /// Whether it asks for anything of a server.
    pub(crate) fn concerns(&self, server: &str) -> bool {
        let Some(named) = &self.0 else { return true };
        named.iter().any(|(wanted, _)| NamePattern::parse(wanted).matches(server))
    }

    pub(crate) fn takes(&self, id: &ToolId) -> bool {
        let Some(named) = &self.0 else { return true };
        named.iter().any(|(server, tool)| {
            NamePattern::parse(server).matches(id.server()) && NamePattern::parse(tool).matches(id.tool())
        })
    }

    /// A server that is named in full must be configured.
    fn check_servers(&self, bridge: &McpBridgeAdapter) -> BridgeResult<()> {
        let snapshot = bridge.fleet.snapshot.load();
        let named = self.0.iter().flatten().map(|(server, _)| server);
        let mut unknown = named
            .filter(|name| NamePattern::parse(name).is_literal() && snapshot.settings.server(name).is_none());
        match unknown.next() {
            Some(name) => {
                Err(crate::normalise::missing(crate::normalise::no_server(&snapshot.settings, name)))
            }
            None => Ok(()),
        }
    }

    /// The tools that were named in full.
    fn literal(&self) -> Vec<ToolId> {
        let is_literal = |text: &String| NamePattern::parse(text).is_literal();
        let literal = self.0.iter().flatten().filter(|(server, tool)| is_literal(server) && is_literal(tool));
        literal.filter_map(|(server, tool)| ToolId::parse(&format!("{server}:{tool}")).ok()).collect()
    }
}

/// The tools that a script is given.
pub(super) struct Injected {
    tools: Vec<Arc<CatalogTool>>,
    /// What it may call, to ask quickly.
    ids: HashSet<String>,
    /// Servers that are configured, but have not listed their tools.
    pub(super) absent: Vec<String>,
    selection: Selection,
    /// Tools that were not asked for by name and cannot be given.
    refused: Vec<InvalidToolName>,
    /// A tool that was asked for by name and cannot be given.
    invalid: Option<InvalidToolName>,
}

impl Injected {
    /// Waits for the servers concerned to have started, and looks at what they have. A tool that is named but not there
    /// is an error; one whose server is down is not, for a script can hear of that when it calls.
    pub(super) async fn select(bridge: &McpBridgeAdapter, selection: &Selection) -> BridgeResult<Self> {
        wait(bridge, selection).await;
        let absent = absent(bridge, selection);
        for id in selection.literal() {
            if !absent.iter().any(|server| server == id.server()) {
                bridge.get_tool(&id)?;
            }
        }
        selection.check_servers(bridge)?;
        let named: HashSet<String> = selection.literal().iter().map(ToString::to_string).collect();
        let mut injected = Self {
            tools: Vec::new(),
            ids: HashSet::new(),
            absent,
            selection: selection.clone(),
            refused: Vec::new(),
            invalid: None,
        };
        for tool in bridge.catalog().tools().filter(|tool| selection.takes(tool.id())) {
            match names::check(tool.id().server(), tool.id().tool()) {
                Ok(()) => {
                    injected.ids.insert(tool.id().to_string());
                    injected.tools.push(tool.clone());
                }
                Err(error) if named.contains(&tool.id().to_string()) => injected.invalid = Some(error),
                Err(error) => injected.refused.push(error),
            }
        }
        Ok(injected)
    }

    pub(super) fn ids(&self) -> Vec<String> {
        self.tools.iter().map(|tool| tool.id().to_string()).collect()
    }

    /// The first few, for the log.
    pub(super) fn named(&self) -> String {
        let first: Vec<String> = self.tools.iter().take(20).map(|tool| tool.id().to_string()).collect();
        first.join(" ")
    }

    /// Whether the script may call it at all. The worker is not trusted to ask only for what it was given.
    pub(super) fn allows(&self, server: &str, tool: &str) -> bool {
        const LONGEST: usize = 256;
        let is_absent = || self.absent.iter().any(|absent| absent == server);
        let is_wanted =
            || ToolId::parse(&format!("{server}:{tool}")).is_ok_and(|id| self.selection.takes(&id));
        let may_be = || tool.len() <= LONGEST && names::check(server, tool).is_ok() && is_wanted();
        self.ids.contains(&format!("{server}:{tool}")) || (is_absent() && may_be())
    }

    pub(super) fn definitions(&self) -> Vec<ToolDefinition> {
        let definition = |tool: &Arc<CatalogTool>| ToolDefinition {
            server: tool.id().server().to_owned(),
            name: tool.id().tool().to_owned(),
            description: tool.definition().description.as_deref().map(|text| clipped(text, DESCRIPTION)),
            input_schema: Some(tool.definition().input_schema.clone())
                .filter(|raw| raw.get().len() <= SCHEMA),
        };
        self.tools.iter().map(definition).collect()
    }

    /// Why the script cannot be given what was asked for.
    pub(super) fn invalid(&self) -> Option<ScriptError> {
        let error = self.invalid.as_ref()?;
        Some(ScriptError {
            name: "InvalidToolNameError".into(),
            code: Some("INVALID_TOOL_NAME".into()),
            message: error.to_string(),
            ..ScriptError::default()
        })
    }

    /// What the script's caller should know of what it was not given.
    pub(super) fn remarks(&self) -> Vec<LogLine> {
        let line = |text: String| LogLine { level: "warn".into(), text };
        let shown = self.refused.iter().take(REMARKS);
        let mut lines: Vec<_> =
            shown.map(|error| line(format!("left out: {}", clipped(&error.to_string(), 200)))).collect();
        if self.refused.len() > REMARKS {
            lines.push(line(format!("left out: {} more tools", self.refused.len() - REMARKS)));
        }
        lines
    }
}

fn clipped(text: &str, bytes: usize) -> String {
    text[..text.floor_char_boundary(bytes)].to_owned()
}

async fn wait(bridge: &McpBridgeAdapter, selection: &Selection) {
    let (snapshot, by) = (bridge.fleet.snapshot.load_full(), Instant::now() + STARTING);
    let concerned = snapshot.in_order().filter(|server| selection.concerns(server.settings.name.as_str()));
    let starts = concerned.filter(|server| server.is_starting()).map(|server| server.first_start(by));
    futures_util::future::join_all(starts).await;
}

fn absent(bridge: &McpBridgeAdapter, selection: &Selection) -> Vec<String> {
    let snapshot = bridge.fleet.snapshot.load();
    let configured = snapshot.settings.servers.iter().map(|server| server.name.as_str());
    let unlisted = configured.filter(|name| snapshot.catalog.server(name).is_none());
    unlisted
        .filter(|name| selection.concerns(name) && names::check(name, "tool").is_ok())
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: CM-07
    #[test]
    fn tools_are_selected_by_name() {
        let selection = Selection::named(["a:b", " c:* "]).unwrap();
        let takes = |id: &str| selection.takes(&ToolId::parse(id).unwrap());
        assert!(takes("a:b") && takes("c:x") && !takes("a:c") && !takes("d:b"));
        assert!(selection.concerns("a") && selection.concerns("c") && !selection.concerns("d"));
        assert_eq!(selection.literal().len(), 1);
        assert!(Selection::all().takes(&ToolId::parse("x:y").unwrap()));
        assert!(Selection::named(["a"]).is_err() && Selection::named([":b"]).is_err());
    }
}
