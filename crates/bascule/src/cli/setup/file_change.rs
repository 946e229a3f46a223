//! Shows the change of a file, asks, and makes it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::{Value, json};

use super::difference::difference;
use crate::cli::error::{CommandError, CommandResult};
use crate::cli::printer::Printer;
use crate::cli::question;
use crate::document::{Document, DocumentError, Format};
use crate::redaction::SecretForms;
use crate::settings_file::{FileError, SettingsFile};

/// Options of every command that shows a change first.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct WriteOptions {
    /// Write without asking
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Only show the difference
    #[arg(long, conflicts_with = "yes")]
    pub(crate) dry_run: bool,
}

/// A change of a file that was not made yet.
pub(crate) struct FileChange {
    pub(crate) file: SettingsFile,
    /// `None` deletes the file.
    pub(crate) text: Option<String>,
    pub(crate) difference: Vec<String>,
    /// The new text holds the bridge's token, so no other user may read the file.
    pub(crate) is_private: bool,
}

/// The decision about a change.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Decision {
    Write,
    /// The user wanted to see it only.
    Show,
    /// Nobody agreed to it, for this reason.
    Refuse(String),
}

impl FileChange {
    /// `more_secrets` are hidden in the difference, besides those of the file.
    pub(crate) fn new(
        file: SettingsFile,
        text: Option<String>,
        format: Format,
        more_secrets: &[String],
    ) -> Self {
        let new = text.as_deref().unwrap_or_default();
        let mut secrets = more_secrets.to_vec();
        for text in [file.text(), new] {
            if let Ok(document) = Document::parse(format, text) {
                collect_secrets(&document.to_json(), false, &mut secrets);
            }
        }
        let forms = SecretForms::new(secrets.iter().map(String::as_str));
        let difference = difference(file.text(), new, &forms);
        Self { file, text, difference, is_private: false }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.file.exists() && self.text.as_deref() == Some(self.file.text())
    }

    /// Prints the difference, and asks on a terminal.
    pub(crate) fn decide(&self, options: WriteOptions, printer: &Printer) -> Decision {
        self.print(printer);
        if options.dry_run {
            return Decision::Show;
        }
        let path = self.file.path.display();
        match options.yes {
            true => Decision::Write,
            false if printer.json || !question::has_user() => Decision::Refuse(
                "nothing was written: there is no terminal to ask on; add `--yes` to write it".into(),
            ),
            false if question::ask(&format!("Change `{path}`?")) => Decision::Write,
            false => Decision::Refuse("nothing was written".into()),
        }
    }

    pub(crate) fn print(&self, printer: &Printer) {
        if printer.json {
            return;
        }
        let state = match (self.file.exists(), &self.text) {
            (false, _) => " (new)",
            (true, None) => " (deleted)",
            (true, Some(_)) => "",
        };
        printer.print_line(&printer.style.bold(&format!("{}{state}", self.file.path.display())));
        for line in &self.difference {
            let style = printer.style;
            printer.print_line(&match line.as_bytes().first() {
                Some(b'+') => style.green(line),
                Some(b'-') => style.red(line),
                _ => style.dim(line),
            });
        }
    }

    /// Makes the change. Returns the path of the backup.
    pub(crate) fn write(&self, keeps_backup: bool) -> CommandResult<Option<PathBuf>> {
        let backup = match keeps_backup {
            true => self.file.back_up().map_err(|error| failed(&error))?,
            false => None,
        };
        let written = match &self.text {
            Some(text) if self.is_private => self.file.write_private(text),
            Some(text) => self.file.write(text),
            None => self.file.delete(),
        };
        written.map_err(|error| failed(&error))?;
        Ok(backup)
    }
}

/// Returns the exit code of a decision, and reports a refusal that is not in the JSON document.
pub(crate) fn finish(decision: &Decision, printer: &Printer) -> CommandResult {
    match decision {
        Decision::Refuse(_) if printer.json => Ok(ExitCode::from(2)),
        Decision::Refuse(reason) => Err(CommandError::Usage(reason.clone())),
        Decision::Show | Decision::Write => Ok(ExitCode::SUCCESS),
    }
}

/// Adds the members that each document of a change has.
pub(crate) fn add_decision(document: &mut Value, decision: &Decision) {
    document["written"] = json!(*decision == Decision::Write);
    if let Decision::Refuse(reason) = decision {
        document["error"] =
            json!({ "code": "USAGE", "message": reason, "retryable": false, "delivery": "not_sent" });
    }
}

pub(crate) fn read_file(path: &Path) -> CommandResult<SettingsFile> {
    SettingsFile::read(path).map_err(|error| failed(&error))
}

/// Parses a file. The error begins with its path, the line and the column.
pub(crate) fn parse_file(file: &SettingsFile, format: Format) -> CommandResult<Document<'_>> {
    Document::parse(format, file.text()).map_err(|error| at_file(file, &error))
}

pub(crate) fn at_file(file: &SettingsFile, error: &DocumentError) -> CommandError {
    let path = file.path.display();
    CommandError::Usage(match error {
        DocumentError::Unsupported { .. } => format!("{path}: {error}"),
        _ => format!("{path}:{error}"),
    })
}

fn failed(error: &FileError) -> CommandError {
    CommandError::Usage(error.to_string())
}

/// Collects the texts in maps that usually hold secrets.
fn collect_secrets(value: &Value, is_secret: bool, secrets: &mut Vec<String>) {
    const KEYS: [&str; 5] = ["env", "envs", "environment", "headers", "http_headers"];
    match value {
        Value::String(text) if is_secret && !text.contains("${") => secrets.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| collect_secrets(item, is_secret, secrets)),
        Value::Object(members) => {
            for (key, value) in members {
                collect_secrets(value, is_secret || KEYS.contains(&key.as_str()), secrets);
            }
        }
        _ => {}
    }
}
