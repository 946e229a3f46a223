//! `bascule connect`: an MCP server on stdio whose tools live behind the bus.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bascule_agent::{McpToolProxy, McpToolsAvailableHandler, ProxyError, ProxyOptions};
use bascule_bus::{AgentName, Bus};
use bascule_mcp::{Endpoint, StdioServer};
use tokio_util::sync::CancellationToken;

use super::bus_options::{BusArguments, bus_error, bus_settings, read_agent};
use super::context::{CommandContext, Signals};
use super::error::{CommandError, CommandResult};
use super::printer::Printer;
use crate::remote_bridge::RemoteBridge;

/// The time for calls in progress after the client has gone.
const GRACE: Duration = Duration::from_secs(5);

/// Serve the tools of an agent's bridge on the bus to one MCP client, on stdin and stdout
///
/// Any MCP client can use a bridge on another machine this way: it starts this command. The tools are those that the bridge
/// of the agent publishes (`bascule serve --agent NAME --bus URL`).
#[derive(Debug, clap::Args)]
pub(crate) struct Connect {
    /// The agent whose tools are served [default: `bascule.bus.agent` of the configuration]
    #[arg(long, value_name = "NAME", value_parser = read_agent)]
    agent: Option<AgentName>,
    #[command(flatten)]
    bus: BusArguments,
}

impl Connect {
    pub(crate) async fn run(
        self,
        find: impl Fn() -> CommandResult<CommandContext>,
        printer: &Printer,
    ) -> CommandResult {
        let settings = bus_settings(&self.bus, find, printer)?;
        let missing = "name the agent with `--agent NAME`, or in the configuration with `bascule.bus.agent`";
        let agent = self.agent.or_else(|| settings.agent.clone());
        let agent = agent.ok_or_else(|| CommandError::Usage(missing.into()))?;
        let connection = self.bus.connection(&settings, &format!("bascule connect --agent {agent}"))?;
        let bus = Bus::connect(&connection).await.map_err(bus_error)?;
        let options = ProxyOptions {
            timeout: settings.agent_timeout,
            bridge_timeout: settings.timeout,
            ..ProxyOptions::default()
        };
        let proxy = McpToolProxy::connect(&bus, &agent, options).await.map_err(proxy_error)?;
        let tools = McpToolsAvailableHandler::connect(&bus, &agent).await.map_err(proxy_error)?;
        let first_tools = settings.agent_timeout.saturating_sub(settings.timeout);
        serve(RemoteBridge::new(proxy, tools, first_tools)).await;
        bus.close().await;
        Ok(ExitCode::SUCCESS)
    }
}

/// Serves until the client closes stdin, or a signal.
async fn serve(bridge: Arc<RemoteBridge>) {
    let (mut signals, stop) = (Signals::new(), CancellationToken::new());
    let server = StdioServer { shutdown_grace: GRACE, ..StdioServer::default() };
    let (stdin, stdout) = (tokio::io::stdin(), tokio::io::stdout());
    let serving = server.serve(bridge.clone(), Endpoint::All, stdin, stdout, stop.clone());
    tokio::pin!(serving);
    tokio::select! {
        () = &mut serving => {}
        () = signals.recv() => {
            stop.cancel();
            serving.await;
        }
    }
    bridge.close().await;
}

fn proxy_error(error: ProxyError) -> CommandError {
    match error {
        ProxyError::Bus(error) => bus_error(error),
        error => CommandError::failed_operation("connect to the bus", crate::normalise::error_chain(&error)),
    }
}
