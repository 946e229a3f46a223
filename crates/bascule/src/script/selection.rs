//! Which tools a script is given (CM-07, so far by name), and which of their names it may not be given (CM-09).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bascule_catalog::{CatalogTool, Pattern};
use bascule_model::{BridgeResult, ProviderAdapter, ToolId};
use bascule_script::names::{self, InvalidToolName};
use bascule_script::wire::{LogLine, ScriptError, ToolDefinition};

use serde::{Deserialize, Serialize};

use crate::McpBridgeAdapter;

/// A script waits so long for servers that are still starting.
const STARTING: Duration = Duration::from_secs(30);

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
        named.iter().any(|(wanted, _)| Pattern::parse(wanted).matches(server))
    }

    pub(crate) fn takes(&self, id: &ToolId) -> bool {
        let Some(named) = &self.0 else { return true };
        named.iter().any(|(server, tool)| {
            Pattern::parse(server).matches(id.server()) && Pattern::parse(tool).matches(id.tool())
        })
    }

    /// The tools that were named in full.
    fn literal(&self) -> Vec<ToolId> {
        let is_literal = |text: &String| Pattern::parse(text).is_literal();
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
        let named: HashSet<String> = selection.literal().iter().map(ToString::to_string).collect();
        let mut injected =
            Self { tools: Vec::new(), ids: HashSet::new(), absent, refused: Vec::new(), invalid: None };
        for tool in bridge.list_tools().into_iter().filter(|tool| selection.takes(tool.id())) {
            match names::check(tool.id().server(), tool.id().tool()) {
                Ok(()) => {
                    injected.ids.insert(tool.id().to_string());
                    injected.tools.push(tool);
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

    /// Whether the script may call it at all. The worker is not trusted to ask only for what it was given.
    pub(super) fn allows(&self, server: &str, tool: &str) -> bool {
        const LONGEST: usize = 256;
        let is_absent = || self.absent.iter().any(|absent| absent == server);
        let may_be = || tool.len() <= LONGEST && names::check(server, tool).is_ok();
        self.ids.contains(&format!("{server}:{tool}")) || (is_absent() && may_be())
    }

    pub(super) fn definitions(&self) -> Vec<ToolDefinition> {
        let definition = |tool: &Arc<CatalogTool>| ToolDefinition {
            server: tool.id().server().to_owned(),
            name: tool.id().tool().to_owned(),
            description: tool.definition().description.clone(),
            input_schema: Some(tool.definition().input_schema.clone()),
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
        let mut counted: HashMap<String, usize> = HashMap::new();
        self.refused.iter().for_each(|error| *counted.entry(error.to_string()).or_default() += 1);
        let line = |text: String| LogLine { level: "warn".into(), text: format!("left out: {text}") };
        counted.into_keys().map(line).collect()
    }
}

async fn wait(bridge: &McpBridgeAdapter, selection: &Selection) {
    let names = bridge.health().into_iter().map(|server| server.name.to_string());
    let concerned: Vec<String> = names.filter(|name| selection.concerns(name)).collect();
    let starts = concerned.iter().map(|name| bridge.first_start_of(name, STARTING));
    futures_util::future::join_all(starts).await;
}

fn absent(bridge: &McpBridgeAdapter, selection: &Selection) -> Vec<String> {
    let world = bridge.common.world.load();
    let configured = world.settings.servers.iter().map(|server| server.name.as_str());
    let unlisted = configured.filter(|name| world.catalog.server(name).is_none());
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
