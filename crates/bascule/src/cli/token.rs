//! `bascule token`: shows the token of a configuration, or generates another one.

use std::process::ExitCode;

use super::context::CommandContext;
use super::error::{CommandError, CommandResult};
use super::printer::Printer;
use crate::token;

/// Show the token that HTTP clients of `bascule serve` send
///
/// The token belongs to the configuration file and is generated once. Clients send it as `Authorization: Bearer TOKEN`.
#[derive(Debug, clap::Args)]
pub(crate) struct TokenCommand {
    /// Generate a further token instead, to put into `bascule.tokens` of the configuration
    #[arg(long)]
    new: bool,
}

impl TokenCommand {
    /// `context` finds the configuration, which a new token does not need.
    pub(crate) fn run(
        &self,
        context: impl FnOnce() -> CommandResult<CommandContext>,
        printer: &Printer,
    ) -> CommandResult {
        let token = match self.new {
            true => token::generate(),
            false => {
                let context = context()?;
                context.load(printer)?;
                token::load_or_create(context.path()).map(|token| token.reveal().clone())
            }
        };
        let token = token.map_err(|error| CommandError::Usage(format!("could not get a token: {error}")))?;
        match printer.json {
            true => printer.print_json(&serde_json::json!({ "token": token })),
            false => printer.print_line(&token),
        }
        Ok(ExitCode::SUCCESS)
    }
}
