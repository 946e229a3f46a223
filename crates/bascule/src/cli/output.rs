//! What reaches the user: one JSON document, or text for people. Everything that is no result goes to stderr.

use std::cell::Cell;
use std::io::{self, Write};
use std::process::ExitCode;

use bascule_model::{BridgeError, Delivery};
use serde::Serialize;

use super::failure::{Failure, said};
use super::terminal::{Paint, clean_line};

/// Where a command's words go.
pub(crate) struct Output {
    pub(crate) json: bool,
    /// For results.
    pub(crate) paint: Paint,
    /// For errors and remarks.
    pub(crate) aside: Paint,
    /// Whether a result could not be written.
    failed: Cell<bool>,
    /// Whether nobody reads them any more.
    unread: Cell<bool>,
}

impl Output {
    pub(crate) fn new(json: bool) -> Self {
        let no = || Cell::new(false);
        Self { json, paint: Paint::for_stdout(), aside: Paint::for_stderr(), failed: no(), unread: no() }
    }

    /// Prints the command's one JSON document.
    pub(crate) fn document(&self, document: &impl Serialize) {
        match serde_json::to_string(document) {
            Ok(text) => self.line(&text),
            Err(error) => self.remark(&format!("could not print the result: {error}")),
        }
    }

    /// Prints a line of a result. Whoever reads may stop reading: that is not our failure.
    pub(crate) fn line(&self, line: &str) {
        match writeln!(io::stdout().lock(), "{line}") {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                self.remark(&format!("could not write the result: {error}"));
                self.failed.set(true);
            }
            Err(_) => self.unread.set(true),
            Ok(()) => {}
        }
    }

    /// Whether whoever read the results has stopped to.
    pub(crate) fn nobody_reads(&self) -> bool {
        self.unread.get()
    }

    /// The exit code of a command that did its job, if its result could be written.
    pub(crate) fn unless_lost(&self, code: ExitCode) -> ExitCode {
        if self.failed.get() { ExitCode::from(2) } else { code }
    }

    /// Says something on the side.
    pub(crate) fn remark(&self, remark: &str) {
        let _ = writeln!(io::stderr().lock(), "{remark}");
    }

    /// Reports why the command failed.
    pub(crate) fn failure(&self, failure: &Failure) -> ExitCode {
        match failure {
            _ if self.json => self.document(failure),
            Failure::Usage(said) => self.error(said),
            Failure::Config(error) => self.error(&said(error)),
            Failure::Bridge(error) | Failure::Arguments(error) => self.bridge_error(error),
            Failure::Interrupted(error) => self.remark(&error.message),
        }
        failure.exit_code()
    }

    fn error(&self, said: &str) {
        self.remark(&format!("{} {said}", self.aside.bad("error:")));
    }

    fn bridge_error(&self, error: &BridgeError) {
        let code = serde_json::to_value(error.code).unwrap_or_default();
        let code = code.as_str().unwrap_or_default();
        self.error(&format!("{} ({})", clean_line(&error.message), self.aside.strong(code)));
        // The sentence shows the first few; here are the rest.
        for violation in error.violations.iter().skip(3) {
            self.remark(&format!("  {}: {}", clean_line(&violation.pointer), clean_line(&violation.message)));
        }
        self.remark(&format!("  {}", self.aside.faint(&circumstances(error))));
        for line in error.stderr.iter().flat_map(|text| text.lines()) {
            self.remark(&format!("  {} {}", self.aside.faint("stderr |"), clean_line(line)));
        }
    }
}

fn circumstances(error: &BridgeError) -> String {
    let mut facts = vec![
        match error.delivery {
            Delivery::NotSent => "the tool surely did not run",
            Delivery::Unknown => "the request was sent; whether it ran is not known",
            Delivery::Answered => "the server answered",
        }
        .to_owned(),
    ];
    facts.push(if error.retryable { "may be tried again" } else { "trying again will not help" }.to_owned());
    if let Some(id) = &error.correlation_id {
        facts.push(format!("correlation id {id}"));
    }
    facts.join(" · ")
}
