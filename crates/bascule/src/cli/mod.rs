//! The command line: arguments, and the command that each of them runs.

mod bridge;
mod call;
mod check;
mod context;
mod describe;
mod error;
mod logging;
mod pretty_json;
mod printer;
mod run;
mod serve;
mod status;
mod terminal;
mod token;
mod tools;
mod waterfall;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use context::CommandContext;
use error::{CommandError, CommandResult};
use printer::Printer;

/// Connects AI agents to MCP servers
///
/// The servers are configured in mcp.json: the file given with --config, else ./mcp.json, ./.mcp.json, or
/// ~/.config/bascule/mcp.json ($XDG_CONFIG_HOME instead of ~/.config if it is set).
#[derive(Debug, Parser)]
#[command(name = "bascule", version, max_term_width = 110, disable_help_subcommand = true, after_help = EXIT_CODES)]
struct Arguments {
    #[command(flatten)]
    options: GlobalOptions,
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str =
    "Exit codes: 0 success, 1 the tool or script reported failure, 2 wrong usage or configuration,
3 the bridge or a server failed, 130 interrupted.";

/// Options of every command, before or after its own arguments.
#[derive(Debug, clap::Args)]
struct GlobalOptions {
    /// Configuration file to use
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print exactly one JSON document on stdout, also for errors
    #[arg(long, global = true)]
    json: bool,
    /// Start the servers for this command instead of using a running bridge
    #[arg(long, global = true)]
    no_daemon: bool,
    /// Log more on stderr: -v information, -vv debug, -vvv trace
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Validate the configuration, connect to every server, and report tools, confinement and problems
    Check,
    Tools(tools::Tools),
    Describe(describe::Describe),
    Call(call::Call),
    Run(run::Run),
    Serve(serve::Serve),
    Status(status::StatusCommand),
    Events(status::Events),
    Refresh(status::Refresh),
    Token(token::TokenCommand),
}

/// Runs the program.
pub fn main() -> ExitCode {
    let typed: Vec<OsString> = std::env::args_os().collect();
    // Internal, and therefore not clap commands: every start of a server waits for `__jail`.
    if let [_, jail, policy, _, command @ ..] = &*typed
        && jail == "__jail"
    {
        return bascule_sandbox::jail::main(&policy.to_string_lossy(), command);
    }
    if let [_, relay] = &*typed
        && relay == "__relay"
    {
        return crate::relay::main();
    }
    if let [_, worker, arguments @ ..] = &*typed
        && worker == crate::script::worker::NAME
    {
        return crate::script::worker::main(arguments);
    }
    match Arguments::try_parse_from(&typed) {
        Ok(arguments) => run(arguments),
        Err(error) => report_usage_error(&error, typed.iter().any(|word| word == "--json")),
    }
}

fn run(Arguments { options, command }: Arguments) -> ExitCode {
    logging::start(options.verbose);
    let printer = Printer::new(options.json);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ended = match runtime {
        Ok(runtime) => {
            let ended = runtime.block_on(run_command(&options, command, &printer));
            // A thread may still read stdin, which the parent process may never close.
            runtime.shutdown_background();
            ended
        }
        Err(error) => Err(CommandError::Usage(format!("could not start the runtime: {error}"))),
    };
    let code = ended.unwrap_or_else(|error| printer.print_error(&error));
    printer.exit_code(code)
}

async fn run_command(options: &GlobalOptions, command: Command, printer: &Printer) -> CommandResult {
    let load = || CommandContext::load(options.config.as_deref(), options.no_daemon, printer);
    if let Command::Token(token) = command {
        return token.run(load, printer);
    }
    let context = load()?;
    match command {
        Command::Check => check::run(context, printer).await,
        Command::Tools(tools) => tools.run(context, printer).await,
        Command::Describe(describe) => describe.run(context, printer).await,
        Command::Call(call) => call.run(context, printer).await,
        Command::Run(run) => run.run(context, printer).await,
        Command::Serve(serve) => serve.run(context, printer).await,
        Command::Status(status) => status.run(context, printer).await,
        Command::Events(events) => events.run(context, printer).await,
        Command::Refresh(refresh) => refresh.run(context, printer).await,
        Command::Token(_) => unreachable!("returned above"),
    }
}

/// Prints a usage error or the help, as text or JSON.
fn report_usage_error(error: &clap::Error, json: bool) -> ExitCode {
    use clap::error::ErrorKind::{DisplayHelp, DisplayVersion};
    if !json || matches!(error.kind(), DisplayHelp | DisplayVersion) {
        let _ = error.print();
        return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
    }
    let text = error.render().to_string();
    let message = text.trim().strip_prefix("error: ").unwrap_or(text.trim()).to_owned();
    Printer::new(true).print_error(&CommandError::Usage(message))
}

/// The clap definition of the command line, for tests.
#[doc(hidden)]
pub fn command() -> clap::Command {
    Arguments::command()
}

#[cfg(test)]
mod tests {
    #[test]
    fn command_line_definition_is_valid() {
        super::command().debug_assert();
    }
}
