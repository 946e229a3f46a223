//! The commands that change configuration files: `install`, `uninstall`, `import`, `add`, `remove` and `init`.
//!
//! `crate::document` edits the text, `crate::settings_file` reads and writes the file. `file_change` shows a change and asks,
//! `own_file` is the file of Bascule.

mod add;
mod difference;
mod file_change;
mod import;
mod init;
mod install;
mod own_file;

use std::path::Path;

use super::context::CommandContext;
use super::error::CommandResult;
use super::printer::Printer;

/// A command that changes a configuration file.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum SetupCommand {
    Init(init::Init),
    Add(add::Add),
    Remove(add::Remove),
    Import(import::Import),
    Install(install::Install),
    Uninstall(install::Uninstall),
}

impl SetupCommand {
    /// `config` is the value of `--config`; `find` finds the configuration, which not every command needs.
    pub(crate) fn run(
        self,
        config: Option<&Path>,
        find: impl FnOnce() -> CommandResult<CommandContext>,
        printer: &Printer,
    ) -> CommandResult {
        match self {
            Self::Init(init) => init.run(config, printer),
            Self::Add(add) => add.run(config, printer),
            Self::Remove(remove) => remove.run(config, printer),
            Self::Import(import) => import.run(config, printer),
            Self::Install(install) => install.run(find, printer),
            Self::Uninstall(uninstall) => uninstall.run(printer),
        }
    }
}
