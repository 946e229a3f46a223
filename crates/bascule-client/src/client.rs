//! A client of one server: connects, does the handshake, lists and calls tools. Never retries.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use bascule_mcp::{
    Connection, DEFAULT_MESSAGE_LIMIT, Failure, Listener, OnProgress, PendingRequest, ProtocolVersion,
    RequestHandler, RpcError, Transport, TransportError, UnknownVersion, Unsolicited,
};
use bascule_model::ToolDefinition;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Longer tool lists are treated as endless.
const MAX_PAGES: usize = 1_000;
const MAX_TOOLS: usize = 100_000;

/// Options of [`McpClient::connect`].
pub struct ClientOptions {
    /// The timeout of the handshake.
    pub timeout: Duration,
    /// The maximum length of a received message.
    pub message_limit: usize,
    /// Receives unsolicited messages of the server. Must return at once.
    pub listener: Listener,
    /// Cancels the handshake.
    pub cancel: CancellationToken,
    /// The client's capabilities: the JSON text of an object.
    pub capabilities: String,
    /// Receives the server's requests.
    pub request_handler: Option<RequestHandler>,
    /// The counter of request ids. Clients that share it never use the same id.
    pub request_ids: Arc<AtomicU64>,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            timeout: crate::timeout::DEFAULT_TIMEOUT,
            message_limit: DEFAULT_MESSAGE_LIMIT,
            listener: Box::new(log_unsolicited),
            cancel: CancellationToken::new(),
            capabilities: "{}".into(),
            request_handler: None,
            request_ids: Arc::new(AtomicU64::new(1)),
        }
    }
}

/// A connected server after the handshake. Clones share the connection.
#[derive(Clone)]
pub struct McpClient {
    connection: Connection,
    info: ServerInfo,
    message_limit: usize,
}

/// A connection before its handshake.
pub struct OpenedClient {
    connection: Connection,
    capabilities: String,
    cancel: CancellationToken,
    message_limit: usize,
}

impl OpenedClient {
    /// Opens the connection. The timeout of the options is left to the caller.
    pub fn open(transport: Transport, options: ClientOptions) -> Self {
        let ClientOptions { message_limit, listener, request_handler, request_ids, .. } = options;
        let connection =
            Connection::open_with_ids(transport, message_limit, listener, request_handler, request_ids);
        Self { connection, capabilities: options.capabilities, cancel: options.cancel, message_limit }
    }

    /// Does the handshake. A failure closes the connection.
    pub async fn handshake(&self) -> Result<McpClient, ConnectError> {
        let handshake = handshake(&self.connection, &self.capabilities);
        match self.cancel.run_until_cancelled(handshake).await.unwrap_or(Err(ConnectError::Cancelled)) {
            Ok(info) => {
                Ok(McpClient { connection: self.connection.clone(), info, message_limit: self.message_limit })
            }
            Err(error) => {
                self.connection.close().await;
                Err(error)
            }
        }
    }

    /// Returns the last output of the server's process on stderr; empty if there is no process.
    pub fn stderr(&self) -> String {
        self.connection.stderr()
    }

    /// Returns the process id of a stdio server.
    pub fn pid(&self) -> Option<u32> {
        self.connection.pid()
    }

    /// Closes the connection, and ends the server's process.
    pub async fn close(&self) {
        self.connection.close().await;
    }
}

/// The server's response to `initialize`.
#[derive(Debug, Clone)]
pub struct ServerInfo {
    /// The server's own name, unrelated to its name in the configuration.
    pub name: String,
    pub version: String,
    pub protocol: ProtocolVersion,
    /// The whole result, byte for byte.
    pub raw: Box<RawValue>,
}

/// The failure of a connection attempt.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ConnectError {
    /// The request or the connection failed.
    #[error("the handshake failed: {failure}")]
    Failed {
        failure: Failure,
        /// The last output of the server's process on stderr.
        stderr: String,
    },
    #[error("the server did not respond to `initialize` within {} ms", .limit.as_millis())]
    TimedOut {
        limit: Duration,
        /// The last output of the server's process on stderr.
        stderr: String,
    },
    #[error("connecting was cancelled")]
    Cancelled,
    /// Client and server have no protocol version in common.
    #[error(transparent)]
    Version(#[from] UnknownVersion),
    #[error("the response to `initialize` is invalid: {0}")]
    Malformed(String),
}

/// The failure to list the tools.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ListError {
    /// The request or the connection failed.
    #[error("`tools/list` failed: {0}")]
    Failed(Failure),
    #[error("the response to `tools/list` is invalid: {0}")]
    Malformed(String),
    /// More pages, tools or bytes than allowed, or a repeated cursor.
    #[error("the tool list does not end: {0}")]
    Endless(String),
}

impl McpClient {
    /// Connects and does the handshake within the timeout. A failure closes the connection.
    pub async fn connect(transport: Transport, options: ClientOptions) -> Result<Self, ConnectError> {
        let limit = options.timeout;
        let opened = OpenedClient::open(transport, options);
        match timeout(limit, opened.handshake()).await {
            Ok(result) => result,
            Err(_) => {
                let stderr = opened.stderr();
                opened.close().await;
                Err(ConnectError::TimedOut { limit, stderr })
            }
        }
    }

    pub fn info(&self) -> &ServerInfo {
        &self.info
    }

    /// Lists the tools of all pages. The second value has warnings about invalid entries, which are skipped.
    pub async fn list_tools(&self) -> Result<(Vec<ToolDefinition>, Vec<String>), ListError> {
        let (mut tools, mut skipped) = (Vec::new(), SkippedEntries::default());
        let (mut seen, mut cursor, mut bytes) = (HashSet::new(), None::<String>, 0);
        for _ in 0..MAX_PAGES {
            let Some(page) = self.list_page(cursor.as_deref()).await? else {
                return Ok((tools, skipped.into_warnings()));
            };
            for entry in page.tools {
                bytes += entry.get().len();
                match ToolDefinition::parse(entry) {
                    Ok(tool) => tools.push(tool),
                    Err(error) => skipped.add(&error),
                }
            }
            // The limit of one message applies to all pages together.
            if bytes > self.message_limit || tools.len() > MAX_TOOLS {
                return Err(ListError::Endless(format!("{bytes} bytes and {} tools so far", tools.len())));
            }
            let Some(next) = page.next_cursor else { return Ok((tools, skipped.into_warnings())) };
            if !seen.insert(next.clone()) {
                return Err(ListError::Endless(format!("cursor `{}` is repeated", truncate(&next))));
            }
            cursor = Some(next);
        }
        Err(ListError::Endless(format!("{MAX_PAGES} pages and {} tools so far", tools.len())))
    }

    /// Returns `None` if the server has no tools.
    async fn list_page(&self, cursor: Option<&str>) -> Result<Option<ToolPage>, ListError> {
        let params = cursor.map(|cursor| serde_json::json!({ "cursor": cursor }).to_string());
        match self.connection.request("tools/list", |_| params).response().await {
            Ok(result) => match serde_json::from_str(result.get()) {
                Ok(page) => Ok(Some(page)),
                Err(error) => Err(ListError::Malformed(error.to_string())),
            },
            Err(Failure::ErrorResponse(error))
                if cursor.is_none() && error.code == RpcError::METHOD_NOT_FOUND =>
            {
                Ok(None)
            }
            Err(failure) => Err(ListError::Failed(failure)),
        }
    }

    /// Sends a tool call. Over HTTP it is sent when the result is first polled. `arguments` must be the JSON text of an
    /// object and is sent unchanged.
    pub fn call(&self, tool: &str, arguments: &str) -> PendingRequest {
        let name = serde_json::Value::from(tool);
        self.connection.request("tools/call", |id| {
            Some(format!(r#"{{"name":{name},"arguments":{arguments},"_meta":{{"progressToken":{id}}}}}"#))
        })
    }

    /// Checks that the server responds. An error response counts too.
    pub async fn ping(&self) -> Result<(), Failure> {
        match self.connection.request("ping", |_| None).response().await {
            Ok(_) | Err(Failure::ErrorResponse(_)) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// Sends any request. Over HTTP it is sent when the result is first polled. `params` receives the request id, which is
    /// also the progress token. The parameters and `extra_members`, further members of the JSON-RPC message, are sent
    /// unchanged.
    pub fn request(
        &self,
        method: &str,
        params: impl FnOnce(u64) -> Option<String>,
        on_progress: Option<OnProgress>,
        extra_members: Option<&str>,
    ) -> PendingRequest {
        self.connection.request_with_progress(method, params, on_progress, extra_members)
    }

    /// Sends a whole message that has no response: the response to a request of the server, or a notification.
    pub fn send_frame(&self, frame: Vec<u8>) {
        self.connection.send_frame(frame);
    }

    /// Waits until the connection is closed, for any reason.
    pub async fn closed(&self) {
        self.connection.closed().await;
    }

    /// Returns the last output of the server's process on stderr; empty if there is no process.
    pub fn stderr(&self) -> String {
        self.connection.stderr()
    }

    /// Returns the number of bytes that the server's process has written to stderr.
    pub fn stderr_position(&self) -> u64 {
        self.connection.stderr_position()
    }

    /// Returns what the server's process has written to stderr after a position, as far as it is kept.
    pub fn stderr_after(&self, position: u64) -> String {
        self.connection.stderr_after(position)
    }

    /// Returns the process id of a stdio server.
    pub fn pid(&self) -> Option<u32> {
        self.connection.pid()
    }

    /// Returns the size of all messages that the server sent without a request, as the time to read them at the permitted rate.
    pub fn unsolicited_load(&self) -> Duration {
        self.connection.unsolicited_load()
    }

    /// Returns the error that closed the connection, or `None` if it is open.
    pub fn close_reason(&self) -> Option<Arc<TransportError>> {
        self.connection.close_reason()
    }

    /// Closes the connection: session, tasks and process. Closing again has no effect.
    pub async fn close(&self) {
        self.connection.close().await;
    }
}

/// Invalid entries of a tool list: the first few errors and the total count.
#[derive(Default)]
struct SkippedEntries {
    first: Vec<String>,
    count: usize,
}

impl SkippedEntries {
    fn add(&mut self, error: &serde_json::Error) {
        self.count += 1;
        if self.first.len() < 5 {
            self.first.push(format!("the tool list has an invalid entry: {error}"));
        }
    }

    fn into_warnings(mut self) -> Vec<String> {
        if self.count > self.first.len() {
            self.first.push(format!("the tool list has {} invalid entries", self.count));
        }
        self.first
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolPage {
    tools: Vec<Box<RawValue>>,
    next_cursor: Option<String>,
}

async fn handshake(connection: &Connection, capabilities: &str) -> Result<ServerInfo, ConnectError> {
    let failed = |failure| ConnectError::Failed { failure, stderr: connection.stderr() };
    let raw = connection
        .request("initialize", |_| Some(initialize_params(capabilities)))
        .response()
        .await
        .map_err(failed)?;
    let info = parse_initialize_result(raw)?;
    connection.set_version(info.protocol);
    connection.notify("notifications/initialized", None).await.map_err(failed)?;
    connection.open_server_stream();
    Ok(info)
}

fn initialize_params(capabilities: &str) -> String {
    let (version, own) = (ProtocolVersion::LATEST.as_str(), env!("CARGO_PKG_VERSION"));
    format!(
        r#"{{"protocolVersion":"{version}","capabilities":{capabilities},"clientInfo":{{"name":"bascule","version":"{own}"}}}}"#
    )
}

fn parse_initialize_result(raw: Box<RawValue>) -> Result<ServerInfo, ConnectError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct InitializeResult {
        protocol_version: String,
        #[serde(default)]
        server_info: Implementation,
    }
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Implementation {
        name: String,
        version: String,
    }
    let result: InitializeResult =
        serde_json::from_str(raw.get()).map_err(|error| ConnectError::Malformed(error.to_string()))?;
    let protocol = ProtocolVersion::negotiate(&result.protocol_version)?;
    Ok(ServerInfo { name: result.server_info.name, version: result.server_info.version, protocol, raw })
}

/// The default listener.
fn log_unsolicited(message: Unsolicited<'_>) {
    match message {
        Unsolicited::Notification(_) => {}
        Unsolicited::Invalid { line, reason } => {
            tracing::debug!(bytes = line.len(), reason, "ignoring invalid message")
        }
        Unsolicited::Unmatched { id } => tracing::debug!(id, "ignoring response without a pending request"),
        Unsolicited::TooLong { limit } => tracing::warn!(limit, "ignoring message over the length limit"),
    }
}

fn truncate(text: &str) -> String {
    text.chars().take(60).collect()
}
