//! `connect_to_server` and `call_tool`: the library in two functions.

use std::sync::Arc;
use std::time::Duration;

use bascule_mcp::{HttpEndpoint, Transport, redact_url};
use serde_json::value::RawValue;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::log::Log;
use crate::retry::delay_after;
use crate::timeout::{self as timeouts, Environment};
use crate::{CallToolResult, Cause, Client, ClientOptions, Logger, McpBridgeError};

/// Makes a transport for an address.
pub type TransportFactory =
    Arc<dyn Fn(&str) -> Result<Transport, Box<dyn std::error::Error + Send + Sync>> + Send + Sync>;

/// How to connect.
#[derive(Clone, Default)]
pub struct ConnectOptions {
    /// Makes the transport; Streamable HTTP where there is none.
    pub transport: Option<TransportFactory>,
    /// For the handshake; else `BASCULE_MCP_TIMEOUT`, else 30 s.
    pub timeout: Option<Duration>,
    /// Replaces the process environment for configuration look-ups.
    pub environment: Option<Environment>,
    /// Takes the log lines; else `tracing` where a subscriber is set, else stderr.
    pub logger: Option<Logger>,
}

/// How to call.
#[derive(Clone, Default)]
pub struct CallToolOptions {
    /// For each attempt; else `BASCULE_MCP_TIMEOUT`, else 30 s.
    pub timeout: Option<Duration>,
    /// How often it is tried at most; 3 where not said.
    pub max_attempts: Option<u32>,
    /// Replaces the process environment for configuration look-ups.
    pub environment: Option<Environment>,
}

const MAX_ATTEMPTS: u32 = 3;

/// A connection to one server.
pub struct McpBridge {
    client: Client,
    url: String,
    closed: CancellationToken,
    log: Log,
}

impl McpBridge {
    /// The client beneath, for what goes beyond calls.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The address connected to.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Ends the connection. May be called any number of times; calls after it fail at once.
    pub async fn close(&self) {
        self.closed.cancel();
        self.client.close().await;
    }
}

/// Connects over Streamable HTTP (or whatever the factory makes) and does the handshake. Never retried.
pub async fn connect_to_server(url: &str, options: ConnectOptions) -> Result<McpBridge, McpBridgeError> {
    let failed = |cause| McpBridgeError::new(cause, 1);
    let log = Log(options.logger);
    let timeout = timeouts::resolve(options.timeout, options.environment.as_ref());
    let timeout = timeout.map_err(|error| failed(Cause::Settings(error)))?;
    let shown = redact_url(url);
    log.info(&format!("connecting to {shown}"));
    let transport = match &options.transport {
        Some(factory) => factory(url).map_err(|error| error.to_string()),
        None => HttpEndpoint::new(url, []).map(Transport::Http).map_err(|error| error.to_string()),
    };
    let transport = transport.map_err(|error| failed(Cause::Address(error)))?;
    let client = Client::connect(transport, ClientOptions { timeout, ..ClientOptions::default() });
    let client = client.await.map_err(|error| failed(Cause::Connect(error)))?;
    log.info(&format!("connected to {shown}"));
    Ok(McpBridge { client, url: url.to_owned(), closed: CancellationToken::new(), log })
}

/// Calls a tool, trying again where that may help: after failure n it waits 1 s × 2^(n-1).
///
/// `arguments` is the JSON text of an object. A tool that reports failure is a result, not an error.
/// Trying again may run a tool twice: where that matters, set `max_attempts` to 1.
pub async fn call_tool(
    bridge: &McpBridge,
    name: &str,
    arguments: &str,
    options: CallToolOptions,
) -> Result<CallToolResult, McpBridgeError> {
    let at_once = |cause| McpBridgeError::new(cause, 0);
    let timeout = timeouts::resolve(options.timeout, options.environment.as_ref());
    let timeout = timeout.map_err(|error| at_once(Cause::Settings(error)))?;
    check_arguments(arguments).map_err(at_once)?;
    let most = options.max_attempts.unwrap_or(MAX_ATTEMPTS).max(1);
    let mut attempt = 1;
    loop {
        if bridge.closed.is_cancelled() {
            return Err(McpBridgeError::new(Cause::Closed, attempt - 1));
        }
        bridge.log.info(&format!("callTool {name} attempt {attempt}/{most}"));
        let cause = match attempt_call(bridge, name, arguments, timeout).await {
            Ok(result) => return Ok(result),
            Err(cause) => cause,
        };
        if !cause.is_retryable() {
            bridge.log.error(&format!("callTool {name} non-retryable error: {cause}"));
            return Err(McpBridgeError::new(cause, attempt));
        }
        if attempt == most {
            bridge.log.error(&format!("callTool {name} failed after {attempt} attempt(s)"));
            return Err(McpBridgeError::new(cause, attempt));
        }
        let delay = delay_after(attempt);
        bridge.log.warn(&format!("retrying in {}ms (error: {cause})", delay.as_millis()));
        // Closing ends the wait, and the next look says so.
        let _ = bridge.closed.run_until_cancelled(sleep(delay)).await;
        attempt += 1;
    }
}

async fn attempt_call(
    bridge: &McpBridge,
    name: &str,
    arguments: &str,
    limit: Duration,
) -> Result<CallToolResult, Cause> {
    let mut pending = bridge.client.call(name, arguments);
    match timeout(limit, pending.answer()).await {
        Ok(Ok(result)) => CallToolResult::parse(result).map_err(|error| Cause::Malformed(error.to_string())),
        Ok(Err(failure)) => Err(Cause::Failed(failure)),
        Err(_) => {
            pending.abandon("the time-out was reached");
            Err(Cause::TimedOut(limit))
        }
    }
}

fn check_arguments(arguments: &str) -> Result<(), Cause> {
    let wrong = |why: String| Cause::Arguments(why);
    let raw: &RawValue = serde_json::from_str(arguments).map_err(|error| wrong(error.to_string()))?;
    match raw.get().starts_with('{') {
        true => Ok(()),
        false => Err(wrong(format!("`{}`", raw.get().chars().take(40).collect::<String>()))),
    }
}
