//! `bascule token`: generates a token for HTTP clients.

use std::process::ExitCode;

use super::error::{CommandError, CommandResult};
use super::printer::Printer;

/// Prints a token of 256 random bits.
pub(crate) fn run(printer: &Printer) -> CommandResult {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| {
        CommandError::Usage(format!("could not generate a token: no random source available: {error}"))
    })?;
    let token: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    match printer.json {
        true => printer.print_json(&serde_json::json!({ "token": token })),
        false => printer.print_line(&token),
    }
    Ok(ExitCode::SUCCESS)
}
