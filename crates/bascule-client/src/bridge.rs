//! Connects to a server and calls its tools with retries.

use std::sync::Arc;
use std::time::Duration;

use bascule_mcp::{HttpEndpoint, Transport, redact_url};
use serde_json::value::RawValue;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::log::LogOutput;
use crate::retry::backoff_delay;
use crate::timeout::{Environment, resolve_timeout};
use crate::{CallToolResult, ClientOptions, ErrorCause, Logger, McpBridgeError, McpClient};

/// Creates the transport for a URL.
pub type TransportFactory =
    Arc<dyn Fn(&str) -> Result<Transport, Box<dyn std::error::Error + Send + Sync>> + Send + Sync>;

/// Options of [`connect_to_server`].
#[derive(Clone, Default)]
pub struct ConnectOptions {
    /// Default: Streamable HTTP.
    pub transport: Option<TransportFactory>,
    /// The timeout of the handshake. Default: `BASCULE_MCP_TIMEOUT`, else 30 s.
    pub timeout: Option<Duration>,
    /// Read for `BASCULE_MCP_TIMEOUT` instead of the process environment.
    pub environment: Option<Environment>,
    /// Default: `tracing` if a subscriber is set, else stderr.
    pub logger: Option<Logger>,
}

/// Options of [`call_tool`].
#[derive(Clone, Default)]
pub struct CallToolOptions {
    /// The timeout of each attempt. Default: `BASCULE_MCP_TIMEOUT`, else 30 s.
    pub timeout: Option<Duration>,
    /// Default: 3.
    pub max_attempts: Option<u32>,
    /// Read for `BASCULE_MCP_TIMEOUT` instead of the process environment.
    pub environment: Option<Environment>,
}

const DEFAULT_MAX_ATTEMPTS: u32 = 3;

/// A connection to one server.
pub struct McpBridge {
    client: McpClient,
    url: String,
    closed: CancellationToken,
    log: LogOutput,
}

impl McpBridge {
    /// Returns the underlying client, for requests other than calls.
    pub fn client(&self) -> &McpClient {
        &self.client
    }

    /// Returns the URL as it was passed to [`connect_to_server`].
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Closes the connection. Later calls fail at once. Closing again has no effect.
    pub async fn close(&self) {
        self.closed.cancel();
        self.client.close().await;
    }
}

/// Connects over Streamable HTTP, or over the factory's transport, and does the handshake. Never retries.
pub async fn connect_to_server(url: &str, options: ConnectOptions) -> Result<McpBridge, McpBridgeError> {
    let after_one_attempt = |cause| McpBridgeError::new(cause, 1);
    let log = LogOutput(options.logger);
    let timeout = resolve_timeout(options.timeout, options.environment.as_ref());
    let timeout = timeout.map_err(|error| after_one_attempt(ErrorCause::InvalidTimeout(error)))?;
    let redacted_url = redact_url(url);
    log.info(&format!("connecting to {redacted_url}"));
    let transport = match &options.transport {
        Some(factory) => factory(url).map_err(|error| error.to_string()),
        None => HttpEndpoint::new(url, []).map(Transport::Http).map_err(|error| error.to_string()),
    };
    let transport = transport.map_err(|error| after_one_attempt(ErrorCause::InvalidUrl(error)))?;
    let client = McpClient::connect(transport, ClientOptions { timeout, ..ClientOptions::default() });
    let client = client.await.map_err(|error| after_one_attempt(ErrorCause::Connect(error)))?;
    log.info(&format!("connected to {redacted_url}"));
    Ok(McpBridge { client, url: url.to_owned(), closed: CancellationToken::new(), log })
}

/// Calls a tool. Retries transient failures after 1 s × 2^(n-1), where n is the number of failures.
///
/// `arguments` is the JSON text of an object. A tool that reports a failure returns a result, not an error.
/// A retry may run the tool twice. To prevent that, set `max_attempts` to 1.
pub async fn call_tool(
    bridge: &McpBridge,
    name: &str,
    arguments: &str,
    options: CallToolOptions,
) -> Result<CallToolResult, McpBridgeError> {
    let not_attempted = |cause| McpBridgeError::new(cause, 0);
    let timeout = resolve_timeout(options.timeout, options.environment.as_ref());
    let timeout = timeout.map_err(|error| not_attempted(ErrorCause::InvalidTimeout(error)))?;
    check_arguments(arguments).map_err(not_attempted)?;
    let max_attempts = options.max_attempts.unwrap_or(DEFAULT_MAX_ATTEMPTS).max(1);
    let mut attempt = 1;
    loop {
        if bridge.closed.is_cancelled() {
            return Err(McpBridgeError::new(ErrorCause::Closed, attempt - 1));
        }
        bridge.log.info(&format!("callTool {name} attempt {attempt}/{max_attempts}"));
        let cause = match attempt_call(bridge, name, arguments, timeout).await {
            Ok(result) => return Ok(result),
            Err(cause) => cause,
        };
        if !cause.is_retryable() {
            bridge.log.error(&format!("callTool {name} non-retryable error: {cause}"));
            return Err(McpBridgeError::new(cause, attempt));
        }
        if attempt == max_attempts {
            bridge.log.error(&format!("callTool {name} failed after {attempt} attempt(s)"));
            return Err(McpBridgeError::new(cause, attempt));
        }
        let delay = backoff_delay(attempt);
        bridge.log.warn(&format!("retrying in {}ms (error: {cause})", delay.as_millis()));
        // `close` ends the wait; the check at the start of the loop then returns.
        let _ = bridge.closed.run_until_cancelled(sleep(delay)).await;
        attempt += 1;
    }
}

async fn attempt_call(
    bridge: &McpBridge,
    name: &str,
    arguments: &str,
    limit: Duration,
) -> Result<CallToolResult, ErrorCause> {
    let mut pending = bridge.client.call(name, arguments);
    match timeout(limit, pending.response()).await {
        Ok(Ok(result)) => {
            CallToolResult::parse(result).map_err(|error| ErrorCause::InvalidResult(error.to_string()))
        }
        Ok(Err(failure)) => Err(ErrorCause::Failed(failure)),
        Err(_) => {
            pending.cancel("the timeout was reached");
            Err(ErrorCause::TimedOut(limit))
        }
    }
}

fn check_arguments(arguments: &str) -> Result<(), ErrorCause> {
    let invalid = ErrorCause::InvalidArguments;
    let raw: &RawValue = serde_json::from_str(arguments).map_err(|error| invalid(error.to_string()))?;
    match raw.get().starts_with('{') {
        true => Ok(()),
        false => Err(invalid(format!("`{}`", raw.get().chars().take(40).collect::<String>()))),
    }
}
