//! `bascule trust`: records that the user trusts a configuration file. Also the question that other commands ask.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;

use super::error::{CommandError, CommandResult};
use super::printer::Printer;
use super::question;
use super::terminal::sanitize_line;
use crate::config::{self, ConfigError, ConfigLocation, ConfigOrigin, LoadedConfig, TrustSummary};
use crate::trust_store;

/// Trust the configuration file of this folder
///
/// A file in the working folder (./mcp.json or ./.mcp.json) runs programs, and somebody else may have written it. Bascule
/// asks before its first use, and again when the file runs other programs or confines them less. Without a terminal it
/// refuses the file. This command prints what the file does and records that you trust it; a running bridge then applies
/// it. Files named with --config, and your own file in ~/.config/bascule, need no trust.
#[derive(Debug, clap::Args)]
pub(crate) struct TrustCommand {
    /// File to trust [default: ./mcp.json or ./.mcp.json]
    #[arg(conflicts_with_all = ["list", "remove"])]
    file: Option<PathBuf>,
    /// List the trusted files
    #[arg(long)]
    list: bool,
    /// Forget a file
    #[arg(long, value_name = "FILE", conflicts_with = "list")]
    remove: Option<PathBuf>,
}

impl TrustCommand {
    /// `named` is the value of `--config`.
    pub(crate) fn run(self, named: Option<PathBuf>, printer: &Printer) -> CommandResult {
        match self.remove {
            _ if self.list => list(printer)?,
            Some(file) => remove(&file, printer)?,
            None => trust(self.file.or(named), printer)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn trust(file: Option<PathBuf>, printer: &Printer) -> CommandResult<()> {
    let location = locate(file)?;
    let loaded =
        config::load_located(&location, &config::process_environment).map_err(CommandError::Config)?;
    let lines = loaded.summary.describe_beyond(&TrustSummary::default());
    let entry = record(&location.path, &loaded.summary)?;
    let entry = sanitize_line(&entry.display().to_string());
    match printer.json {
        true => printer.print_json(&json!({ "trusted": entry, "permissions": lines })),
        false => {
            printer.print_line(&format!("you trust {entry}:"));
            lines.iter().for_each(|line| printer.print_line(&format!("  {line}")));
            if lines.is_empty() {
                printer.print_line("  it runs nothing");
            }
        }
    }
    Ok(())
}

/// Returns the named file, or the one of the working folder.
fn locate(file: Option<PathBuf>) -> CommandResult<ConfigLocation> {
    let found = match file {
        Some(path) => return Ok(ConfigLocation { path, origin: ConfigOrigin::WorkingFolder }),
        None => {
            config::find(None, Path::new(""), &config::process_environment).map_err(CommandError::Config)?
        }
    };
    match found.origin {
        ConfigOrigin::UserFolder => Err(CommandError::Usage(format!(
            "this folder has no `mcp.json` to trust; `{}` is your own file, which needs no trust",
            sanitize_line(&found.path.display().to_string())
        ))),
        _ => Ok(found),
    }
}

fn list(printer: &Printer) -> CommandResult<()> {
    let records = trust_store::list()
        .map_err(|error| CommandError::failed_operation("list the trusted files", &error))?;
    if printer.json {
        let record = |record: &trust_store::TrustRecord| json!({ "file": record.file, "servers": record.summary.servers().collect::<Vec<_>>() });
        printer.print_json(&records.iter().map(record).collect::<Vec<_>>());
        return Ok(());
    }
    for record in &records {
        let servers: Vec<&str> = record.summary.servers().collect();
        printer.print_line(&format!("{}  ({})", sanitize_line(&record.file), servers.join(", ")));
    }
    Ok(())
}

fn remove(file: &Path, printer: &Printer) -> CommandResult<()> {
    let removed = trust_store::remove(file)
        .map_err(|error| CommandError::failed_operation("forget the file", &error))?;
    let file = sanitize_line(&file.display().to_string());
    match (printer.json, removed) {
        (true, _) => printer.print_json(&json!({ "file": file, "removed": removed })),
        (false, true) => printer.print_line(&format!("you no longer trust {file}")),
        (false, false) => return Err(CommandError::Usage(format!("`{file}` was not trusted"))),
    }
    Ok(())
}

/// Fails unless the user trusts the file, and asks where a user can answer. The file is not read again: what was shown is
/// what is recorded and used.
pub(crate) fn require_trust(
    location: &ConfigLocation,
    loaded: &LoadedConfig,
    may_ask: bool,
    printer: &Printer,
) -> CommandResult<()> {
    match trust_store::check(location, loaded) {
        Err(ConfigError::NotTrusted { path, is_known, changes })
            if may_ask && !printer.json && question::has_user() =>
        {
            ask_for_trust(&path, is_known, &changes, printer)?;
            record(&path, &loaded.summary).map(|_| ())
        }
        checked => checked.map_err(CommandError::Config),
    }
}

fn record(file: &Path, summary: &TrustSummary) -> CommandResult<PathBuf> {
    trust_store::record(file, summary).map_err(|error| {
        CommandError::failed_operation("record the trust (`--config FILE` needs none)", &error)
    })
}

fn ask_for_trust(path: &Path, is_known: bool, changes: &[String], printer: &Printer) -> CommandResult<()> {
    let path = sanitize_line(&path.display().to_string());
    let reason = match is_known {
        true => "does more than you have trusted it with",
        false => "you have not used it before",
    };
    printer.print_note(&format!("`{path}` was found in this folder, and {reason}:"));
    changes.iter().for_each(|line| printer.print_note(&format!("  {line}")));
    match question::ask("Trust it, now and later?") {
        true => Ok(()),
        false => Err(CommandError::Usage(format!("`{path}` is not trusted: nothing was started"))),
    }
}
