//! The command line: arguments, and the command that each of them runs.

mod audit;
mod bridge;
mod bus_options;
mod call;
mod catalog_files;
mod check;
mod completions;
mod connect;
mod context;
mod deadletters;
mod describe;
mod doctor;
mod error;
mod intent_servers;
mod logging;
mod operator_pages;
mod options;
mod pretty_json;
mod printer;
mod progress;
mod question;
mod run;
mod search;
mod serve;
mod setup;
mod spinner;
mod status;
mod terminal;
mod token;
mod tokens;
mod tools;
mod trace;
mod traces;
mod trust;
mod types;
mod waterfall;

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use bascule_model::{BridgeError, Delivery, ErrorCode};
use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use context::CommandContext;
use error::{CommandError, CommandResult};
use logging::LogPurpose;
use options::SharedOptions;
use printer::Printer;

/// Connects AI agents to MCP servers
///
/// The servers are configured in mcp.json: the file given with --config, else ./mcp.json, ./.mcp.json, or
/// ~/.config/bascule/mcp.json ($XDG_CONFIG_HOME instead of ~/.config if it is set). A file that was found in the working
/// folder is used after you have trusted it.
#[derive(Debug, Parser)]
#[command(name = "bascule", version, max_term_width = 110, after_help = EXIT_CODES)]
struct Arguments {
    #[command(flatten)]
    options: SharedOptions,
    /// Log more on stderr: -v information, -vv debug, -vvv trace
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str =
    "Exit codes: 0 success, 1 the tool or script reported failure, 2 wrong usage or configuration,
3 the call failed with an error of the bridge (wrong arguments, unknown or denied tool, failed server or bridge),
130 interrupted.";

#[derive(Debug, Subcommand)]
enum Command {
    Check(check::Check),
    Tools(tools::Tools),
    Describe(describe::Describe),
    Call(call::Call),
    Run(run::Run),
    Search(search::Search),
    Serve(serve::Serve),
    Connect(connect::Connect),
    #[command(name = "deadletters")]
    DeadLetters(deadletters::DeadLetters),
    Status(status::StatusCommand),
    Events(status::Events),
    Refresh(status::Refresh),
    Traces(traces::Traces),
    Trace(traces::TraceCommand),
    Stats(traces::Stats),
    Logs(traces::Logs),
    Graph(traces::Graph),
    Related(traces::Related),
    Audit(audit::Audit),
    Token(token::TokenCommand),
    Trust(trust::TrustCommand),
    Completions(completions::Completions),
    Man(completions::Man),
    #[command(flatten)]
    Setup(setup::SetupCommand),
    Doctor(doctor::Doctor),
    Types(types::Types),
    Tokens(tokens::Tokens),
}

/// Runs the program.
pub fn main() -> ExitCode {
    let typed: Vec<OsString> = std::env::args_os().collect();
    // Internal, and therefore not clap commands: every start of a server waits for `__jail`.
    if let [_, jail, _, command @ ..] = &*typed
        && jail == "__jail"
    {
        return bascule_sandbox::jail::main(command);
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
    match parse(&typed) {
        Ok(arguments) => run(arguments),
        Err(error) => report_usage_error(&error, typed.iter().any(|word| word == "--json")),
    }
}

fn parse(typed: &[OsString]) -> Result<Arguments, clap::Error> {
    let mut definition = command();
    let matches = definition.try_get_matches_from_mut(typed)?;
    let mut arguments = Arguments::from_arg_matches(&matches)?;
    let accepted = arguments.options.merge_after_command(&matches);
    accepted.map_err(|message| definition.error(ErrorKind::ArgumentConflict, message))?;
    Ok(arguments)
}

fn run(Arguments { options, verbose, command }: Arguments) -> ExitCode {
    let purpose = match command {
        Command::Serve(_) => LogPurpose::Operations,
        _ => LogPurpose::Command,
    };
    logging::start(verbose, purpose);
    let printer = Printer::new(options.json);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ended = match runtime {
        Ok(runtime) => {
            let ended = runtime.block_on(run_command(&options, command, &printer));
            // A thread may still read stdin, which the parent process may never close.
            runtime.shutdown_background();
            ended
        }
        Err(error) => Err(runtime_error(&error)),
    };
    let code = ended.unwrap_or_else(|error| printer.print_error(&error));
    printer.exit_code(code)
}

fn runtime_error(error: &io::Error) -> CommandError {
    let message = format!("could not start the runtime: {error}");
    BridgeError::new(ErrorCode::ProviderUnavailable, Delivery::NotSent, message).into()
}

async fn run_command(options: &SharedOptions, command: Command, printer: &Printer) -> CommandResult {
    let find = || CommandContext::find(options.config.as_deref(), options.no_daemon);
    match command {
        Command::Check(check) => check.run(find()?, printer).await,
        Command::Tools(tools) => tools.run(find()?, printer).await,
        Command::Describe(describe) => describe.run(find()?, printer).await,
        Command::Call(call) => call.run(find()?, printer).await,
        Command::Run(run) => run.run(find()?, printer).await,
        Command::Search(search) if search.has_catalog() => search.run_on_files(printer),
        Command::Search(search) => search.run(find()?, printer).await,
        Command::Serve(serve) => serve.run(find()?, printer).await,
        Command::Connect(connect) => connect.run(find, printer).await,
        Command::DeadLetters(letters) => letters.run(find, printer).await,
        Command::Status(status) => status.run(find()?, printer).await,
        Command::Events(events) => events.run(find()?, printer).await,
        Command::Refresh(refresh) => refresh.run(find()?, printer).await,
        Command::Traces(traces) => traces.run(find()?, printer).await,
        Command::Trace(trace) => trace.run(find()?, printer).await,
        Command::Stats(stats) => stats.run(find()?, printer).await,
        Command::Logs(logs) => logs.run(find()?, printer).await,
        Command::Graph(graph) => graph.run(&find()?, printer),
        Command::Related(related) => related.run(&find()?, printer),
        Command::Audit(audit) => audit.run(find, printer),
        Command::Token(token) => token.run(find, printer),
        Command::Trust(trust) => trust.run(options.config.clone(), printer),
        Command::Completions(completions) => completions.run(printer),
        Command::Man(man) => man.run(printer),
        Command::Setup(setup) => setup.run(options.config.as_deref(), find, printer),
        Command::Doctor(doctor) => doctor.run(options.config.as_deref(), printer).await,
        Command::Types(types) => types.run(find, printer).await,
        Command::Tokens(tokens) => tokens.run(find()?, printer).await,
    }
}

/// Prints a usage error or the help, as text or JSON.
fn report_usage_error(error: &clap::Error, json: bool) -> ExitCode {
    if !json || matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        let _ = error.print();
        return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
    }
    let text = error.render().to_string();
    let message = text.trim().strip_prefix("error: ").unwrap_or(text.trim()).to_owned();
    Printer::new(true).print_error(&CommandError::Usage(message))
}

/// The clap definition of the command line.
#[doc(hidden)]
pub fn command() -> clap::Command {
    options::add_shared_options(Arguments::command())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_definition_is_valid() {
        command().debug_assert();
    }

    fn options_of(line: &str) -> Result<(bool, bool, Option<String>), String> {
        let typed: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let SharedOptions { config, json, no_daemon } =
            parse(&typed).map_err(|error| error.to_string())?.options;
        Ok((json, no_daemon, config.map(|path| path.display().to_string())))
    }

    // req: US-04
    #[test]
    fn shared_options_stand_before_or_after_the_command() {
        let expected = Ok((true, true, Some("f".to_owned())));
        assert_eq!(options_of("bascule --json --no-daemon --config f call a:b"), expected);
        assert_eq!(options_of("bascule call --json a:b --no-daemon --config f"), expected);
        assert_eq!(options_of("bascule --config e call a:b --config f --json --no-daemon"), expected);
        assert_eq!(options_of("bascule check --no-daemon"), Ok((false, true, None)));
    }

    // req: US-04
    #[test]
    fn options_without_meaning_are_refused() {
        let refused = options_of("bascule --json completions bash").unwrap_err();
        assert!(refused.contains("`--json` means nothing to `completions`"), "{refused}");
        for line in
            ["bascule completions bash --json", "bascule man --config f", "bascule status --no-daemon"]
        {
            assert!(options_of(line).unwrap_err().contains("unexpected argument"), "{line}");
        }
    }
}
