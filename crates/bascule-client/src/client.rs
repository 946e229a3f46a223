//! One connected server: the handshake done, its tools to be listed and called. Nothing is tried twice here.

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

/// A tool list may have this many pages; a longer one is taken for endless.
const MOST_PAGES: usize = 1_000;

/// And this many tools.
const MOST_TOOLS: usize = 100_000;

/// How to connect.
pub struct ClientOptions {
    /// How long the handshake may take.
    pub timeout: Duration,
    /// The longest message that is read.
    pub message_limit: usize,
    /// Hears what the server says unasked. Must return at once.
    pub listener: Listener,
    /// Ends the handshake when it is cancelled.
    pub stop: CancellationToken,
    /// What the server is told that we can do for it: the JSON text of an object.
    pub capabilities: String,
    /// Takes what the server then asks of us.
    pub asked: Option<RequestHandler>,
    /// Where its requests have their numbers from. Clients that share this never use one twice.
    pub numbers: Arc<AtomicU64>,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            timeout: crate::timeout::DEFAULT,
            message_limit: DEFAULT_MESSAGE_LIMIT,
            listener: Box::new(log_what_is_odd),
            stop: CancellationToken::new(),
            capabilities: "{}".into(),
            asked: None,
            numbers: Arc::new(AtomicU64::new(1)),
        }
    }
}

/// A server that has answered the handshake.
#[derive(Clone)]
pub struct Client {
    connection: Connection,
    info: ServerInfo,
    message_limit: usize,
}

/// What a server said of itself.
#[derive(Debug, Clone)]
pub struct ServerInfo {
    /// Its own name, which has nothing to do with the one in the configuration.
    pub name: String,
    /// Its version, in whatever scheme it likes.
    pub version: String,
    /// The dialect agreed on.
    pub protocol: ProtocolVersion,
    /// The whole answer to `initialize`, byte for byte.
    pub raw: Box<RawValue>,
}

/// Why there is no connection.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ConnectError {
    /// The request or the connection failed.
    #[error("the handshake failed: {failure}")]
    Failed {
        /// What happened.
        failure: Failure,
        /// The end of what the server's process wrote to stderr.
        stderr: String,
    },
    /// No answer in time.
    #[error("the server did not answer `initialize` within {} ms", .limit.as_millis())]
    TimedOut {
        /// How long we waited.
        limit: Duration,
        /// The end of what the server's process wrote to stderr.
        stderr: String,
    },
    /// Somebody did not want it any more.
    #[error("the start was called off")]
    Stopped,
    /// The two sides have no dialect in common.
    #[error(transparent)]
    Version(#[from] UnknownVersion),
    /// An answer that makes no sense.
    #[error("the answer to `initialize` is not understood: {0}")]
    Malformed(String),
}

/// Why there is no tool list.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ListError {
    /// The request or the connection failed.
    #[error("`tools/list` failed: {0}")]
    Failed(Failure),
    /// A page that makes no sense.
    #[error("the answer to `tools/list` is not understood: {0}")]
    Malformed(String),
    /// It never ends.
    #[error("the tool list does not end: {0}")]
    Endless(String),
}

impl Client {
    /// Does the handshake. When it fails, nothing of the connection is left.
    pub async fn connect(transport: Transport, options: ClientOptions) -> Result<Self, ConnectError> {
        let ClientOptions { message_limit, listener, asked, numbers, .. } = options;
        let connection = Connection::open_with_ids(transport, message_limit, listener, asked, numbers);
        let shaking = options.stop.run_until_cancelled(handshake(&connection, &options.capabilities));
        let shaken = match timeout(options.timeout, shaking).await {
            Ok(Some(shaken)) => shaken,
            Ok(None) => Err(ConnectError::Stopped),
            Err(_) => Err(ConnectError::TimedOut { limit: options.timeout, stderr: connection.stderr() }),
        };
        match shaken {
            Ok(info) => Ok(Self { connection, info, message_limit }),
            Err(error) => {
                connection.close().await;
                Err(error)
            }
        }
    }

    /// What the server said of itself.
    pub fn info(&self) -> &ServerInfo {
        &self.info
    }

    /// All pages of the server's tools, and what is wrong with entries that had to be left out.
    pub async fn list_tools(&self) -> Result<(Vec<ToolDefinition>, Vec<String>), ListError> {
        let (mut tools, mut left_out) = (Vec::new(), LeftOut::default());
        let (mut seen, mut cursor, mut bytes) = (HashSet::new(), None::<String>, 0);
        for _ in 0..MOST_PAGES {
            let Some(page) = self.list_page(cursor.as_deref()).await? else {
                return Ok((tools, left_out.told()));
            };
            for entry in page.tools {
                bytes += entry.get().len();
                match ToolDefinition::parse(entry) {
                    Ok(tool) => tools.push(tool),
                    Err(error) => left_out.add(&error),
                }
            }
            // All pages together may be as long as one message.
            if bytes > self.message_limit || tools.len() > MOST_TOOLS {
                return Err(ListError::Endless(format!("{bytes} bytes and {} tools so far", tools.len())));
            }
            let Some(next) = page.next_cursor else { return Ok((tools, left_out.told())) };
            if !seen.insert(next.clone()) {
                return Err(ListError::Endless(format!("cursor `{}` came twice", short(&next))));
            }
            cursor = Some(next);
        }
        Err(ListError::Endless(format!("{MOST_PAGES} pages and {} tools so far", tools.len())))
    }

    /// One page; none from a server that has no tools.
    async fn list_page(&self, cursor: Option<&str>) -> Result<Option<ToolPage>, ListError> {
        let params = cursor.map(|cursor| serde_json::json!({ "cursor": cursor }).to_string());
        match self.connection.request("tools/list", |_| params).answer().await {
            Ok(result) => match serde_json::from_str(result.get()) {
                Ok(page) => Ok(Some(page)),
                Err(error) => Err(ListError::Malformed(error.to_string())),
            },
            Err(Failure::Answered(error)) if cursor.is_none() && error.code == RpcError::METHOD_NOT_FOUND => {
                Ok(None)
            }
            Err(failure) => Err(ListError::Failed(failure)),
        }
    }

    /// Sends a call. `arguments` must be the JSON text of an object; it goes out as it is spelled.
    pub fn call(&self, tool: &str, arguments: &str) -> PendingRequest {
        let name = serde_json::Value::from(tool);
        self.connection.request("tools/call", |id| {
            Some(format!(r#"{{"name":{name},"arguments":{arguments},"_meta":{{"progressToken":{id}}}}}"#))
        })
    }

    /// Asks whether the server is still there. Any answer says that it is, a refusal too.
    pub async fn ping(&self) -> Result<(), Failure> {
        match self.connection.request("ping", |_| None).answer().await {
            Ok(_) | Err(Failure::Answered(_)) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// Sends any request. `params` is told the id, which also serves as progress token, and is sent as it is spelled;
    /// so are the members that stand in the request besides.
    pub fn request(
        &self,
        method: &str,
        params: impl FnOnce(u64) -> Option<String>,
        hear: Option<OnProgress>,
        more: Option<&str>,
    ) -> PendingRequest {
        self.connection.request_with_progress(method, params, hear, more)
    }

    /// Sends any notification.
    pub async fn notify(&self, method: &str, params: Option<&str>) -> Result<(), Failure> {
        self.connection.notify(method, params).await
    }

    /// Answers a request of the server's: the whole frame, as it is to be sent.
    pub fn answer(&self, frame: Vec<u8>) {
        self.connection.answer(frame);
    }

    /// Returns when the connection is over, for whatever reason.
    pub async fn over(&self) {
        self.connection.over().await;
    }

    /// The end of what the server's process wrote to stderr; empty where there is no process.
    pub fn stderr(&self) -> String {
        self.connection.stderr()
    }

    /// The server's process, where it is one.
    pub fn pid(&self) -> Option<u32> {
        self.connection.pid()
    }

    /// Why the connection is over, if it is.
    pub fn ended(&self) -> Option<std::sync::Arc<TransportError>> {
        self.connection.ended()
    }

    /// Ends the connection: session, tasks, process. Any number of times.
    pub async fn close(&self) {
        self.connection.close().await;
    }
}

/// Entries that are no tools: the first few, and how many.
#[derive(Default)]
struct LeftOut {
    first: Vec<String>,
    count: usize,
}

impl LeftOut {
    fn add(&mut self, error: &serde_json::Error) {
        self.count += 1;
        if self.first.len() < 5 {
            self.first.push(format!("an entry of the tool list is no tool: {error}"));
        }
    }

    fn told(mut self) -> Vec<String> {
        if self.count > self.first.len() {
            self.first.push(format!("{} entries of the tool list are no tools", self.count));
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
    let raw =
        connection.request("initialize", |_| Some(offer(capabilities))).answer().await.map_err(failed)?;
    let info = understand(raw)?;
    connection.set_version(info.protocol);
    connection.notify("notifications/initialized", None).await.map_err(failed)?;
    connection.listen();
    Ok(info)
}

fn offer(capabilities: &str) -> String {
    let (version, own) = (ProtocolVersion::LATEST.as_str(), env!("CARGO_PKG_VERSION"));
    format!(
        r#"{{"protocolVersion":"{version}","capabilities":{capabilities},"clientInfo":{{"name":"bascule","version":"{own}"}}}}"#
    )
}

fn understand(raw: Box<RawValue>) -> Result<ServerInfo, ConnectError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Answer {
        protocol_version: String,
        #[serde(default)]
        server_info: Named,
    }
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Named {
        name: String,
        version: String,
    }
    let answer: Answer =
        serde_json::from_str(raw.get()).map_err(|error| ConnectError::Malformed(error.to_string()))?;
    let protocol = ProtocolVersion::agree(&answer.protocol_version)?;
    Ok(ServerInfo { name: answer.server_info.name, version: answer.server_info.version, protocol, raw })
}

/// The listener of those who have none of their own.
fn log_what_is_odd(heard: Unsolicited<'_>) {
    match heard {
        Unsolicited::Notification(_) => {}
        Unsolicited::Junk { line, why } => {
            tracing::debug!(bytes = line.len(), why, "passed over what is no message")
        }
        Unsolicited::Unmatched { id } => tracing::debug!(id, "an answer that nobody waits for"),
        Unsolicited::TooLong { limit } => tracing::warn!(limit, "a message was too long to be read"),
    }
}

fn short(text: &str) -> String {
    text.chars().take(60).collect()
}
