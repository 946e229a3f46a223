//! Measures how many of the right tools a search finds.

#![allow(clippy::print_stdout, reason = "the measurements are printed")]
#![allow(clippy::unwrap_used, reason = "test helpers may panic")]

mod encoder;
mod external_sets;
mod own_intents;

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use bascule_model::ToolDefinition;
use bascule_search::SearchIndex;
use encoder::Encoder;
use serde::Deserialize;
use serde_json::value::RawValue;

/// The number of tools that a search returns.
const K: usize = 5;

/// A searchable catalog and its tools' ids.
struct Tools {
    index: SearchIndex,
    encoder: Encoder,
    ids: Vec<Vec<String>>,
}

impl Tools {
    fn new(servers: Vec<(String, Vec<ToolDefinition>)>) -> Self {
        Self::with_encoder(servers, Encoder::BuiltIn)
    }

    fn with_encoder(servers: Vec<(String, Vec<ToolDefinition>)>, encoder: Encoder) -> Self {
        let index = servers.iter().map(|(name, tools)| Arc::new(encoder.index(name, tools))).collect();
        let ids = |(name, tools): &(String, Vec<ToolDefinition>)| {
            tools.iter().map(|tool| format!("{name}:{}", tool.name)).collect()
        };
        Self { index, encoder, ids: servers.iter().map(ids).collect() }
    }

    fn search(&self, text: &str, k: usize) -> Vec<&str> {
        let ranked = self.index.search(&self.encoder.intent(text), k, |_, _| true);
        ranked.into_iter().map(|found| self.ids[found.server][found.tool].as_str()).collect()
    }

    fn has(&self, id: &str) -> bool {
        self.ids.iter().flatten().any(|known| known == id)
    }
}

/// Returns the share of groups of which a member is among the first `K`. Further members of a group do not take a place.
fn recall(ranked: &[&str], groups: &[Vec<String>]) -> f64 {
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

#[derive(Deserialize)]
struct Listing {
    server: String,
    tools: Vec<Box<RawValue>>,
}

fn parse_tools(tools: Vec<Box<RawValue>>) -> Vec<ToolDefinition> {
    tools.into_iter().map(|tool| ToolDefinition::parse(tool).unwrap()).collect()
}

/// Reads the tools of 25 real servers.
fn real_catalogs() -> Tools {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bascule-catalog/tests/catalogs");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let read = |file: &std::path::PathBuf| {
        let Listing { server, tools } = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        (server, parse_tools(tools))
    };
    Tools::new(files.iter().map(read).collect())
}
