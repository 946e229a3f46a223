//! `bascule completions SHELL` and `bascule man`: texts for the shell and for `man`, made from the command line's definition.

use std::path::PathBuf;
use std::process::ExitCode;

use super::error::{CommandError, CommandResult};
use super::printer::Printer;

/// Print the completion script of a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  bascule completions bash > ~/.local/share/bash-completion/completions/bascule
  bascule completions zsh > ~/.zfunc/_bascule
  bascule completions fish > ~/.config/fish/completions/bascule.fish")]
pub(crate) struct Completions {
    shell: clap_complete::Shell,
}

impl Completions {
    pub(crate) fn run(&self, printer: &Printer) -> CommandResult {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut super::command(), "bascule", &mut script);
        print(&script, printer)
    }
}

/// Print the manual page, or write the pages of all commands
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  bascule man | man -l -
  bascule man call | man -l -
  bascule man --out ~/.local/share/man/man1")]
pub(crate) struct Man {
    /// Print the page of this command
    #[arg(value_name = "COMMAND", conflicts_with = "out")]
    command: Option<String>,
    /// Write the pages of all commands to this folder
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

impl Man {
    pub(crate) fn run(&self, printer: &Printer) -> CommandResult {
        let failed = |error| CommandError::Usage(format!("could not write the manual: {error}"));
        if let Some(folder) = &self.out {
            std::fs::create_dir_all(folder).map_err(failed)?;
            clap_mangen::generate_to(super::command(), folder).map_err(failed)?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut page = Vec::new();
        clap_mangen::Man::new(self.page_of()?).render(&mut page).map_err(failed)?;
        print(&page, printer)
    }

    fn page_of(&self) -> CommandResult<clap::Command> {
        let mut all = super::command();
        all.build();
        let Some(name) = &self.command else { return Ok(all) };
        let missing =
            || CommandError::Usage(format!("there is no command `{name}`: `bascule help` lists them"));
        all.find_subcommand(name).cloned().ok_or_else(missing)
    }
}

fn print(text: &[u8], printer: &Printer) -> CommandResult {
    printer.print_line(String::from_utf8_lossy(text).trim_end());
    Ok(ExitCode::SUCCESS)
}
