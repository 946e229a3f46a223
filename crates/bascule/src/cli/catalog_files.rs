//! Reads saved `tools/list` results, so that commands work without servers.

use std::fs;
use std::path::{Path, PathBuf};

use bascule_catalog::{Catalog, ServerTools, ToolFilter};
use bascule_model::{ServerName, ToolDefinition};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::error::{CommandError, CommandResult};

/// Reads the files as one catalog. Each file is a server of the file's name without `.json`.
pub(crate) fn read_catalog(files: &[PathBuf]) -> CommandResult<Catalog> {
    files.iter().map(|file| read_server(file)).collect()
}

fn read_server(file: &Path) -> CommandResult<ServerTools> {
    let refuse = |reason: String| {
        CommandError::Usage(format!("could not read the tools of `{}`: {reason}", file.display()))
    };
    let text = fs::read_to_string(file).map_err(|error| refuse(error.to_string()))?;
    let name = file.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let name = ServerName::parse(name.strip_suffix(".json").unwrap_or(&name))
        .map_err(|error| refuse(error.to_string()))?;
    let definitions = parse_tools(&text).map_err(|error| refuse(error.to_string()))?;
    Ok(ServerTools::new(name, ToolFilter::default(), definitions))
}

/// Accepts the list of tools, the result of `tools/list`, or the whole response.
fn parse_tools(text: &str) -> Result<Vec<ToolDefinition>, serde_json::Error> {
    #[derive(Deserialize)]
    struct SavedListing<'a> {
        #[serde(borrow)]
        tools: Option<Vec<&'a RawValue>>,
        #[serde(borrow)]
        result: Option<&'a RawValue>,
    }
    let parse = |tools: Vec<&RawValue>| {
        tools.into_iter().map(|tool| ToolDefinition::parse(tool.to_owned())).collect()
    };
    if text.trim_start().starts_with('[') {
        return parse(serde_json::from_str(text)?);
    }
    match serde_json::from_str(text)? {
        SavedListing { tools: Some(tools), .. } => parse(tools),
        SavedListing { result: Some(result), .. } => parse_tools(result.get()),
        _ => Err(serde::de::Error::custom("expected the result of `tools/list`: an object with `tools`")),
    }
}
