//! The options `--config`, `--json` and `--no-daemon`: their values, and the commands that accept them.
//!
//! They may stand before the command or among its own arguments.

use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches};

/// The options that most commands share.
#[derive(Debug, clap::Args)]
pub(super) struct SharedOptions {
    /// Configuration file to use
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Print exactly one JSON document on stdout, also for errors
    #[arg(long)]
    pub(super) json: bool,
    /// Start the servers for this command instead of using a running bridge
    #[arg(long)]
    pub(super) no_daemon: bool,
}

const SHARED: [&str; 3] = ["config", "json", "no_daemon"];

/// Returns true if the command accepts the option.
fn is_accepted(command: &str, option: &str) -> bool {
    match command {
        "completions" | "man" | "help" => false,
        "serve" | "status" | "events" | "refresh" | "token" | "trust" | "traces" | "trace" | "stats"
        | "logs" | "graph" | "related" | "audit" | "deadletters" => option != "no_daemon",
        // Its stdout belongs to the protocol.
        "connect" => option == "config",
        _ => true,
    }
}

/// Adds the shared options to the commands that accept them.
pub(super) fn add_shared_options(command: clap::Command) -> clap::Command {
    let is_shared = |option: &&Arg| SHARED.contains(&option.get_id().as_str());
    let options: Vec<Arg> = command.get_arguments().filter(is_shared).cloned().collect();
    let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    names.into_iter().fold(command, |command, name| {
        let accepted = options.iter().filter(|option| is_accepted(&name, option.get_id().as_str()));
        // The number lists it after the command's own options.
        let list_last = |option: &Arg| option.clone().hide(is_implied(&name, option)).display_order(900);
        let accepted: Vec<Arg> = accepted.map(list_last).collect();
        command.mut_subcommand(&name, |sub| add_options(sub, &accepted))
    })
}

/// `check` always starts the servers itself: it accepts the option, and its help does not list it.
fn is_implied(command: &str, option: &Arg) -> bool {
    command == "check" && option.get_id() == "no_daemon"
}

fn add_options(command: clap::Command, options: &[Arg]) -> clap::Command {
    let nested: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    let command = nested
        .iter()
        .fold(command, |command, name| command.mut_subcommand(name, |sub| add_options(sub, options)));
    let is_new = |option: &&Arg| command.get_arguments().all(|own| own.get_id() != option.get_id());
    let new: Vec<Arg> = options.iter().filter(is_new).cloned().collect();
    command.args(new)
}

impl SharedOptions {
    /// Adds the options that stand after the command to those before it. Fails if the command does not accept one of the
    /// latter.
    pub(super) fn merge_after_command(&mut self, matches: &ArgMatches) -> Result<(), String> {
        let Some((name, mut command)) = matches.subcommand() else { return Ok(()) };
        let is_given = |option: &&&str| matches.value_source(option) == Some(ValueSource::CommandLine);
        if let Some(option) = SHARED.iter().filter(is_given).find(|option| !is_accepted(name, option)) {
            return Err(format!("`--{}` means nothing to `{name}`", option.replace('_', "-")));
        }
        loop {
            let flag =
                |option| command.try_get_one::<bool>(option).ok().flatten().copied().unwrap_or_default();
            self.json |= flag("json");
            self.no_daemon |= flag("no_daemon");
            if let Ok(Some(config)) = command.try_get_one::<PathBuf>("config") {
                self.config = Some(config.clone());
            }
            match command.subcommand() {
                Some((_, nested)) => command = nested,
                None => return Ok(()),
            }
        }
    }
}
