//! Servers with tools for unit tests.

use std::sync::Arc;

use bascule_catalog::{ServerTools, ToolFilter};
use bascule_model::{ServerName, ToolDefinition};
use serde_json::value::RawValue;

/// Returns the tools of a server, which have names alone.
pub(crate) fn server_of(name: &str, tools: &[&str]) -> Arc<ServerTools> {
    let parse = |tool: &&str| {
        let text = format!(r#"{{"name":"{tool}"}}"#);
        ToolDefinition::parse(RawValue::from_string(text).unwrap()).unwrap()
    };
    let tools = tools.iter().map(parse).collect();
    Arc::new(ServerTools::new(ServerName::parse(name).unwrap(), ToolFilter::default(), tools))
}
