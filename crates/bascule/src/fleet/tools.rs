//! Filters a server's tools and compares its listings.

use bascule_catalog::{NamePattern, ServerTools, ToolFilter};
use bascule_model::{Event, ServerName, ToolDefinition};

use crate::config::ServerSettings;

/// Returns the filter that the configuration sets.
pub(crate) fn tool_filter(settings: &ServerSettings) -> ToolFilter {
    let patterns = |texts: &Vec<String>| texts.iter().map(|text| NamePattern::parse(text)).collect();
    ToolFilter {
        allowed: settings.allowed_tools.as_ref().map(patterns),
        denied: patterns(&settings.denied_tools),
    }
}

/// Builds the event of a listing.
pub(crate) fn discovered(server: &ServerName, tools: &[ToolDefinition]) -> Event {
    let names: Vec<String> = tools.iter().map(|tool| tool.name.clone()).collect();
    Event::ToolsDiscovered { server: server.clone(), count: names.len(), names }
}

/// Returns true if a new listing is the same as the old one.
pub(crate) fn is_empty_change(event: &Event) -> bool {
    matches!(event, Event::ToolsRefreshed { added, removed, .. } if added.is_empty() && removed.is_empty())
}

/// Builds the event of a new listing. A tool whose definition differs counts as removed and added.
pub(crate) fn changes(old: &ServerTools, new: &ServerTools) -> Event {
    let is_same = |name: &str, other: &ServerTools, own: &str| {
        other.get(name).is_some_and(|tool| tool.definition().raw.get() == own)
    };
    let differing = |these: &ServerTools, those: &ServerTools| {
        let definitions = these.tools().iter().map(|tool| tool.definition());
        let changed = definitions.filter(|tool| !is_same(&tool.name, those, tool.raw.get()));
        changed.map(|tool| tool.name.clone()).collect::<Vec<_>>()
    };
    let (added, removed) = (differing(new, old), differing(old, new));
    let unchanged = new.tools().len() - added.len();
    Event::ToolsRefreshed { server: new.name().clone(), added, removed, unchanged }
}
