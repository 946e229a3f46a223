//! `bascule doctor`: looks for everything that commonly goes wrong, and names the command that mends it.

mod checks;
mod servers;

use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;
use serde_json::json;

use super::context::CommandContext;
use super::error::{CommandError, CommandResult};
use super::printer::Printer;
use super::terminal::{pad, sanitize_line};
use crate::config::{self, ConfigLocation};
use crate::normalise::error_chain;
use crate::trust_store;

/// Check the installation and print the command that fixes each problem
///
/// Checks the kernel, the programs that servers need, the port, the permissions of files, the entries in MCP clients, the
/// configuration, and each server, which is started once. Each line is ok, warn or fail. Exit code 2: the configuration is
/// wrong; 3: another check failed.
#[derive(Debug, clap::Args)]
pub(crate) struct Doctor {
    /// Do not start the servers
    #[arg(long)]
    no_servers: bool,
}

/// The result of one check.
#[derive(Debug, Serialize)]
pub(crate) struct DoctorFinding {
    check: String,
    status: FindingStatus,
    message: String,
    /// The command or the change that mends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum FindingStatus {
    Ok,
    Warn,
    Fail,
}

impl DoctorFinding {
    fn ok(check: impl Into<String>, message: impl Into<String>) -> Self {
        Self { check: check.into(), status: FindingStatus::Ok, message: message.into(), fix: None }
    }

    fn warn(check: impl Into<String>, message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { status: FindingStatus::Warn, fix: Some(fix.into()), ..Self::ok(check, message) }
    }

    fn fail(check: impl Into<String>, message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { status: FindingStatus::Fail, fix: Some(fix.into()), ..Self::ok(check, message) }
    }
}

impl Doctor {
    pub(crate) async fn run(self, config: Option<&Path>, printer: &Printer) -> CommandResult {
        let mut report = Report { findings: Vec::new(), printer };
        report.extend(checks::machine());
        let loaded = CommandContext::find(config, true).and_then(|context| {
            let loaded = config::load_located(&context.location, &config::process_environment)
                .map_err(CommandError::Config)?;
            Ok((context, loaded))
        });
        let is_valid = loaded.is_ok();
        match loaded {
            Ok((context, config)) => {
                report.extend(checks::configuration(&context.location, &config));
                let is_trusted = report.check_trust(&context.location, &config);
                if is_trusted && !self.no_servers {
                    report.extend(servers::check(context, config, printer).await?);
                }
            }
            Err(CommandError::Config(error)) => {
                report.extend(checks::programs(&[]));
                let fix = match &error {
                    config::ConfigError::NotFound { .. } => "bascule init",
                    _ => "correct the file",
                };
                report.push(DoctorFinding::fail("configuration", error_chain(&error), fix));
            }
            Err(error) => return Err(error),
        }
        report.extend(checks::clients());
        report.finish(is_valid)
    }
}

/// Prints each finding as soon as it is there.
struct Report<'a> {
    findings: Vec<DoctorFinding>,
    printer: &'a Printer,
}

impl Report<'_> {
    fn push(&mut self, finding: DoctorFinding) {
        if !self.printer.json {
            print_finding(&finding, self.printer);
        }
        self.findings.push(finding);
    }

    fn extend(&mut self, findings: Vec<DoctorFinding>) {
        findings.into_iter().for_each(|finding| self.push(finding));
    }

    fn check_trust(&mut self, location: &ConfigLocation, loaded: &config::LoadedConfig) -> bool {
        let trusted = trust_store::check(location, loaded);
        if trusted.is_err() {
            let message =
                "the file was found in this folder and is not trusted: its servers were not started";
            self.push(DoctorFinding::warn("trust", message, "bascule trust"));
        }
        trusted.is_ok()
    }

    fn finish(self, is_valid: bool) -> CommandResult {
        let count = |status| self.findings.iter().filter(|finding| finding.status == status).count();
        let (failures, warnings) = (count(FindingStatus::Fail), count(FindingStatus::Warn));
        match self.printer.json {
            true => self.printer.print_json(&json!({ "ok": failures == 0, "findings": self.findings })),
            false => self.printer.print_line(&format!("failures: {failures}, warnings: {warnings}")),
        }
        Ok(match (is_valid, failures) {
            (false, _) => ExitCode::from(2),
            (true, 0) => ExitCode::SUCCESS,
            (true, _) => ExitCode::from(3),
        })
    }
}

fn print_finding(finding: &DoctorFinding, printer: &Printer) {
    let status = match finding.status {
        FindingStatus::Ok => printer.style.green("ok  "),
        FindingStatus::Warn => printer.style.bold("warn"),
        FindingStatus::Fail => printer.style.red("fail"),
    };
    let mut lines = finding.message.lines().map(sanitize_line);
    let first = lines.next().unwrap_or_default();
    printer.print_line(&format!("{status}  {}  {first}", pad(&sanitize_line(&finding.check), 20)));
    lines.for_each(|line| printer.print_line(&format!("        {line}")));
    if let Some(fix) = &finding.fix {
        printer.print_line(&format!("      → {}", sanitize_line(fix)));
    }
}

/// Returns the message of an error that belongs into a finding.
fn error_message(error: CommandError) -> CommandResult<String> {
    match error {
        CommandError::Interrupted(_) => Err(error),
        CommandError::Usage(message) => Ok(message),
        CommandError::Config(error) => Ok(error_chain(&error)),
        CommandError::Bridge(error) | CommandError::Arguments(error) => Ok(error.message.clone()),
    }
}
