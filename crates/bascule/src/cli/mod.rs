//! The command line: what may be typed, and where it leads.

mod bridge;
mod call;
mod check;
mod describe;
mod failure;
mod logging;
mod output;
mod pretty;
mod run;
mod serve;
mod session;
mod status;
mod terminal;
mod token;
mod tools;
mod waterfall;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use failure::Failure;
use output::Output;
use session::Session;

/// The drawbridge between AI agents and MCP tools.
///
/// Servers come from `mcp.json`: the file named by --config, else ./mcp.json, ./.mcp.json, or bascule/mcp.json
/// in your configuration folder.
#[derive(Debug, Parser)]
#[command(name = "bascule", version, max_term_width = 110, disable_help_subcommand = true)]
struct Arguments {
    #[command(flatten)]
    fleet: Fleet,
    #[command(subcommand)]
    command: Command,
}

/// What every command understands, before or after its own arguments.
#[derive(Debug, clap::Args)]
struct Fleet {
    /// The configuration to use
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print exactly one JSON document on stdout, for errors too
    #[arg(long, global = true)]
    json: bool,
    /// Never use a running bridge, even if it serves the same configuration
    #[arg(long, global = true)]
    no_daemon: bool,
    /// Say more on stderr: -v what happens, -vv every detail
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Validate the configuration, connect to every server, and report
    Check,
    /// List the tools of all servers, or of one
    Tools(tools::Tools),
    /// Show one tool: what it does, its schemas, the limits in force
    Describe(describe::Describe),
    /// Call one tool
    Call(call::Call),
    Run(run::Run),
    Serve(serve::Serve),
    Status(status::ShowStatus),
    Events(status::Events),
    Refresh(status::Refresh),
    /// Make a token for clients over HTTP (`bascule.tokens` in the configuration)
    Token,
    /// One of the servers that `make demo` uses, on stdin and stdout
    #[command(name = "__demo", hide = true)]
    Demo {
        /// Which one
        name: String,
    },
}

/// Runs the program.
pub fn main() -> ExitCode {
    let typed: Vec<OsString> = std::env::args_os().collect();
    // Not a command: nobody types it, and every server's start waits for it.
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
        Err(error) => misunderstood(&error, typed.iter().any(|word| word == "--json")),
    }
}

fn run(Arguments { fleet, command }: Arguments) -> ExitCode {
    if let Command::Demo { name } = command {
        return crate::demo::run(&name);
    }
    logging::start(fleet.verbose);
    let output = Output::new(fleet.json);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ended = match runtime {
        Ok(runtime) => {
            let ended = runtime.block_on(perform(&fleet, command, &output));
            // A thread may wait for stdin, which whoever started us may keep open for ever.
            runtime.shutdown_background();
            ended
        }
        Err(error) => Err(Failure::Usage(format!("could not start: {error}"))),
    };
    let code = ended.unwrap_or_else(|failure| output.failure(&failure));
    output.unless_lost(code)
}

async fn perform(fleet: &Fleet, command: Command, output: &Output) -> Result<ExitCode, Failure> {
    if let Command::Token = command {
        return token::run(output);
    }
    let session = Session::load(fleet.config.as_deref(), fleet.no_daemon, output)?;
    match command {
        Command::Check => check::run(session, output).await,
        Command::Tools(tools) => tools.run(session, output).await,
        Command::Describe(describe) => describe.run(session, output).await,
        Command::Call(call) => call.run(session, output).await,
        Command::Run(run) => run.run(session, output).await,
        Command::Serve(serve) => serve.run(session, output).await,
        Command::Status(status) => status.run(session, output).await,
        Command::Events(events) => events.run(session, output).await,
        Command::Refresh(refresh) => refresh.run(session, output).await,
        Command::Demo { .. } | Command::Token => unreachable!("these need no configuration"),
    }
}

/// A usage error, or a request for help, in the form that was asked for.
fn misunderstood(error: &clap::Error, json: bool) -> ExitCode {
    use clap::error::ErrorKind::{DisplayHelp, DisplayVersion};
    if !json || matches!(error.kind(), DisplayHelp | DisplayVersion) {
        let _ = error.print();
        return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
    }
    let said = error.render().to_string();
    let said = said.trim().strip_prefix("error: ").unwrap_or(said.trim()).to_owned();
    Output::new(true).failure(&Failure::Usage(said))
}

/// The command's own description of itself, for tests.
#[doc(hidden)]
pub fn command() -> clap::Command {
    Arguments::command()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_sound() {
        super::command().debug_assert();
    }
}
