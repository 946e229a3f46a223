//! `bascule audit verify`: checks the audit log.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;

use super::context::CommandContext;
use super::error::{CommandError, CommandResult};
use super::printer::Printer;
use crate::audit::{Fault, Verified, verify};
use crate::sanitize::sanitize_line;

/// Check the audit log
#[derive(Debug, clap::Args)]
pub(crate) struct Audit {
    #[command(subcommand)]
    command: AuditCommand,
}

#[derive(Debug, clap::Subcommand)]
enum AuditCommand {
    /// Find the first line that was changed, removed, inserted or moved; exit code 1 if there is one
    Verify {
        /// The log [default: `bascule.audit.path` of the configuration]
        file: Option<PathBuf>,
    },
}

impl Audit {
    pub(crate) fn run(
        self,
        find: impl Fn() -> CommandResult<CommandContext>,
        printer: &Printer,
    ) -> CommandResult {
        let AuditCommand::Verify { file } = self.command;
        let path = match file {
            Some(path) => path,
            None => configured(&find()?, printer)?,
        };
        let read = verify(&path);
        let checked = read.map_err(|error| {
            CommandError::failed_operation(&format!("read the audit log `{}`", path.display()), error)
        })?;
        match &checked {
            Ok(verified) => print_verified(&path, verified, printer),
            Err(fault) => print_fault(&path, fault, printer),
        }
        Ok(if checked.is_ok() { ExitCode::SUCCESS } else { ExitCode::from(1) })
    }
}

fn configured(context: &CommandContext, printer: &Printer) -> CommandResult<PathBuf> {
    let audit = context.load(printer)?.settings.bridge.audit;
    let off = || CommandError::Usage("the configuration has no `bascule.audit`: name the file".into());
    audit.map(|audit| audit.path).ok_or_else(off)
}

fn print_verified(path: &Path, verified: &Verified, printer: &Printer) {
    let Verified { chain, lines, hash, interrupted, uncounted, is_incomplete } = verified;
    if printer.json {
        return printer.print_json(&json!({
            "path": path,
            "valid": true,
            "chain": chain,
            "lines": lines,
            "hash": hash,
            "interrupted": interrupted,
            "uncounted": uncounted,
            "incomplete": is_incomplete,
        }));
    }
    printer.print_line(&format!("`{}` is intact: {lines} lines, chain {chain}", path.display()));
    printer.print_line(&format!("last hash {hash}"));
    if *interrupted > 0 {
        printer.print_line(&format!(
            "{interrupted} incomplete lines of killed bridges were removed by later runs"
        ));
    }
    if *uncounted > 0 {
        printer.print_line(&format!(
            "the side file does not count the last {uncounted} lines: a bridge was killed after it wrote them, or somebody appended them"
        ));
    }
    if *is_incomplete {
        printer.print_line("the last line is incomplete: a bridge was killed while it wrote it");
    }
}

fn print_fault(path: &Path, fault: &Fault, printer: &Printer) {
    let Fault { line, reason } = fault;
    if printer.json {
        let fault = json!({ "line": line, "reason": reason });
        return printer.print_json(&json!({ "path": path, "valid": false, "fault": fault }));
    }
    let place = line.map(|line| format!(":{line}")).unwrap_or_default();
    printer.print_line(&format!("{}{place}: {}", path.display(), sanitize_line(reason)));
}
