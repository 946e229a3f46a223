//! `bascule init`: makes a first configuration file.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;

use super::import::{Collected, collect, merge};
use super::install::this_machine;
use super::own_file::OwnFile;
use crate::cli::error::{CommandError, CommandResult};
use crate::cli::printer::Printer;
use crate::cli::question;
use crate::cli::terminal::sanitize_line;
use crate::config::{self, ConfigError, ConfigLocation, ConfigOrigin};

/// The first file. Its comments name the keys that most people need.
const TEMPLATE: &str = r#"{
  // MCP servers by name. `bascule add NAME -- COMMAND` adds one, `bascule check` starts each once.
  "mcpServers": {
    // "time": { "command": "uvx", "args": ["mcp-server-time"] },
    // "files": {
    //   "command": "npx",
    //   "args": ["-y", "@modelcontextprotocol/server-filesystem", "/folder/to/share"],
    //   "env": { "TOKEN": "${TOKEN}" },          // a server inherits nothing else; ${…} keeps secrets out of this file
    //   "sandbox": "standard",                   // "strict", "off", or { "read": […], "write": […], "network": "none" }
    //   "limits": { "maxMemoryMb": 256 },
    //   "deniedTools": ["*delete*"]
    // },
    // "remote": { "url": "https://example.com/mcp", "headers": { "Authorization": "Bearer ${TOKEN}" } }
  },
  // `bascule serve` listens here. MCP clients of this machine use it over stdio: `bascule install`.
  "bascule": { "listen": "127.0.0.1:7420" }
}
"#;

/// Make a first configuration file
///
/// Writes ./mcp.json with comments that explain it, or the file given with --config. On a terminal it offers to import
/// the servers of the MCP clients that are found here. The file is trusted at once.
#[derive(Debug, clap::Args)]
pub(crate) struct Init {
    /// Make your own file in ~/.config/bascule, which is used in every folder without one
    #[arg(long)]
    user: bool,
    /// Import the servers of the MCP clients that are found here, without asking
    #[arg(long)]
    import: bool,
}

impl Init {
    pub(crate) fn run(self, config: Option<&Path>, printer: &Printer) -> CommandResult {
        let location = self.location(config)?;
        let path = location.path.clone();
        let own = OwnFile::open(location)?;
        if own.file.exists() {
            let path = path.display();
            return Err(CommandError::Usage(format!(
                "`{path}` exists already: `bascule add` adds a server to it"
            )));
        }
        let machine = this_machine(&config::process_environment)?;
        let may_ask = !printer.json && question::has_user();
        let collected = match self.import || may_ask {
            true => collect(&[], false, &machine, &path)?,
            false => Collected::default(),
        };
        let is_wanted = !collected.is_empty()
            && (self.import || question::ask(&format!("Import {}?", collected.describe())));
        let collected = if is_wanted { collected } else { Collected::default() };
        let merged = merge(&own, TEMPLATE, collected)?;
        let (change, origin) = own.into_change(merged.text, &[]);
        OwnFile::write(&change, origin)?;
        if printer.json {
            printer.print_json(
                &json!({ "file": path, "added": merged.added, "notes": merged.notes, "written": true }),
            );
            return Ok(ExitCode::SUCCESS);
        }
        printer.print_line(&format!("made {}", path.display()));
        merged.notes.iter().for_each(|note| printer.print_line(&format!("note: {}", sanitize_line(note))));
        match merged.added.is_empty() {
            true => printer.print_line("next: `bascule add NAME -- COMMAND`, or `bascule import`; then `bascule check` and `bascule install`"),
            false => printer.print_line(&format!("imported {}; next: `bascule check`", merged.added.join(", "))),
        }
        Ok(ExitCode::SUCCESS)
    }

    fn location(&self, config: Option<&Path>) -> CommandResult<ConfigLocation> {
        match config {
            Some(path) => Ok(ConfigLocation { path: path.into(), origin: ConfigOrigin::Named }),
            None if self.user => {
                let path: Option<PathBuf> = config::user_file(&config::process_environment);
                let path =
                    path.ok_or_else(|| CommandError::Config(ConfigError::NotFound { paths: Vec::new() }))?;
                Ok(ConfigLocation { path, origin: ConfigOrigin::UserFolder })
            }
            None => Ok(ConfigLocation { path: "mcp.json".into(), origin: ConfigOrigin::WorkingFolder }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::SourceFile;

    // req: US-04
    #[test]
    fn first_file_is_valid() {
        let source = SourceFile { name: "mcp.json".into(), directory: "/".into() };
        let loaded = config::parse(TEMPLATE, &source, &|_| None).unwrap();
        assert!(loaded.settings.servers.is_empty() && loaded.warnings.is_empty());
    }
}
