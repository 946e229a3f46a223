//! A searchable catalog, and the share of the right tools that a search finds.

use std::collections::HashSet;
use std::sync::Arc;

use bascule_model::ToolDefinition;
use bascule_search::SearchIndex;
use serde_json::value::RawValue;

use crate::encoder::Encoder;

/// The number of tools that a search returns.
pub(crate) const K: usize = 5;

/// A searchable catalog and its tools' ids.
pub(crate) struct Tools {
    index: SearchIndex,
    encoder: Encoder,
    ids: Vec<Vec<String>>,
}

impl Tools {
    pub(crate) fn new(servers: Vec<(String, Vec<ToolDefinition>)>) -> Self {
        let encoder = Encoder::from_environment();
        let index = servers.iter().map(|(name, tools)| Arc::new(encoder.index(name, tools))).collect();
        let ids = |(name, tools): &(String, Vec<ToolDefinition>)| {
            tools.iter().map(|tool| format!("{name}:{}", tool.name)).collect()
        };
        Self { index, encoder, ids: servers.iter().map(ids).collect() }
    }

    pub(crate) fn search(&self, text: &str, k: usize) -> Vec<&str> {
        let ranked = self.index.search(&self.encoder.intent(text), k, |_, _| true);
        ranked.into_iter().map(|found| self.ids[found.server][found.tool].as_str()).collect()
    }

    pub(crate) fn has(&self, id: &str) -> bool {
        self.ids.iter().flatten().any(|known| known == id)
    }
}

/// Returns the share of groups of which a member is among the first `K`. Further members of a group do not take a place.
pub(crate) fn recall(ranked: &[&str], groups: &[Vec<String>]) -> f64 {
    let (mut found, mut places) = (HashSet::new(), 0);
    for id in ranked {
        let group = groups.iter().position(|group| group.iter().any(|member| member == id));
        if group.is_some_and(|group| found.contains(&group)) {
            continue;
        }
        places += 1;
        if places > K {
            break;
        }
        found.extend(group);
    }
    found.len() as f64 / groups.len() as f64
}

pub(crate) fn parse_tools(tools: Vec<Box<RawValue>>) -> Vec<ToolDefinition> {
    tools.into_iter().map(|tool| ToolDefinition::parse(tool).unwrap()).collect()
}
