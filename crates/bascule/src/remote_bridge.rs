//! An MCP server for one client whose tools live behind a message bus: it has no servers of its own.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bascule_agent::{
    AvailableTool, McpToolProxy, McpToolsAvailableHandler, ToolCallError, ToolRequest, ToolSet,
};
use bascule_mcp::{
    CallParams, ClientMessage, Endpoint, Host, Message, PeerId, ProtocolVersion, QualifiedIndex,
    QualifiedNames, ResponseStream, notification, patch,
};
use bascule_model::{BridgeError, Delivery, ErrorCode};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::warn;

use crate::gateway::reply::{ErrorReply, Reply, call_failure, finish, frame, into_text};

/// A listing waits this long for a bridge to publish its tools.
const FIRST_TOOLS: Duration = Duration::from_secs(10);
/// The bytes of notifications that wait for the client.
const STREAM_LIMIT: usize = 1 << 20;

/// The tools of an agent's bridge, as an MCP server.
pub(crate) struct RemoteBridge {
    proxy: McpToolProxy,
    tools: McpToolsAvailableHandler,
    /// A call waits this long for a bridge to publish its tools. Then there is still time for the call.
    first_tools_for_call: Duration,
    names: Mutex<QualifiedNames>,
    listed: Mutex<LastListing>,
    client: Mutex<Option<Arc<RemoteClient>>>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// The listing that the client has seen last.
#[derive(Default)]
enum LastListing {
    #[default]
    None,
    /// It failed: no bridge had published tools.
    Failed,
    Tools(Arc<ToolSet>),
}

/// The one client.
pub(crate) struct RemoteClient {
    session: String,
    stream: Mutex<Option<ResponseStream>>,
    /// The calls in progress by the id of their request, as JSON.
    calls: Mutex<HashMap<String, CancellationToken>>,
}

impl RemoteBridge {
    pub(crate) fn new(
        proxy: McpToolProxy,
        tools: McpToolsAvailableHandler,
        first_tools_for_call: Duration,
    ) -> Arc<Self> {
        let bridge = Arc::new(Self {
            proxy,
            tools,
            first_tools_for_call,
            names: Mutex::default(),
            listed: Mutex::default(),
            client: Mutex::default(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        });
        let watching = bridge.clone().announce_changes();
        bridge.tasks.spawn(bridge.stop.clone().run_until_cancelled_owned(watching));
        bridge
    }

    /// Ends all calls.
    pub(crate) async fn close(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Tells the client of changed tools.
    async fn announce_changes(self: Arc<Self>) {
        let mut changes = self.tools.registry().watch();
        while changes.next().await.is_some() {
            let tools = self.tools.registry().snapshot();
            let is_new = match &*lock(&self.listed) {
                // A client that has not listed the tools yet will see the new ones.
                LastListing::None => false,
                LastListing::Failed => true,
                LastListing::Tools(listed) => !has_equal_tools(listed, &tools),
            };
            if let (true, Some(client)) = (is_new, self.current()) {
                client.notify(notification("notifications/tools/list_changed", None));
            }
        }
    }

    async fn answer(&self, client: &RemoteClient, id: &str, request: RemoteRequest<'_>) -> Option<Reply> {
        let RemoteRequest { method, params, stream } = request;
        match method {
            "ping" => Some(Ok("{}".into())),
            "tools/list" => Some(self.list().await),
            "tools/call" => self.call(client, id, params, stream).await,
            _ => Some(Err(ErrorReply::unknown_method(method))),
        }
    }

    async fn list(&self) -> Reply {
        // Set before the wait, so that tools that come at its end are announced.
        *lock(&self.listed) = LastListing::Failed;
        let tools = self.first_tools(FIRST_TOOLS).await?;
        *lock(&self.listed) = LastListing::Tools(tools.clone());
        let index = self.index(&tools);
        let entry = |tool: &Arc<AvailableTool>| {
            let name = index.qualified(tool.id.server(), tool.id.tool())?;
            let mut entry = json!({ "name": name, "inputSchema": tool.input_schema });
            if let Some(description) = &tool.description {
                entry["description"] = json!(description);
            }
            if let Some(schema) = &tool.output_schema {
                entry["outputSchema"] = json!(schema);
            }
            Some(entry)
        };
        Ok(json!({ "tools": tools.iter().filter_map(entry).collect::<Vec<Value>>() }).to_string())
    }

    /// Waits until a bridge has published its tools.
    async fn first_tools(&self, timeout: Duration) -> Result<Arc<ToolSet>, Box<BridgeError>> {
        let ready = self.tools.wait_until_ready(timeout).await;
        ready.map_err(|error| {
            warn!("{error}");
            let message =
                format!("{error} Start it with `bascule serve --agent {} --bus URL`", error.agent());
            let mut error = BridgeError::new(ErrorCode::ProviderUnavailable, Delivery::NotSent, message);
            error.retryable = true;
            error
        })
    }

    fn index(&self, tools: &ToolSet) -> QualifiedIndex {
        lock(&self.names).index(tools.iter().map(|tool| (tool.id.server(), tool.id.tool())))
    }

    /// Calls a tool. Returns `None` if the client has cancelled the call.
    async fn call(
        &self,
        client: &RemoteClient,
        id: &str,
        params: Option<&RawValue>,
        stream: &ResponseStream,
    ) -> Option<Reply> {
        let parsed = params.map_or_else(|| Ok(CallParams::default()), CallParams::parse);
        let params = match parsed {
            Ok(params) => params,
            Err(error) => return Some(Err(invalid_params(&error))),
        };
        let call = CancelGuard::new(client, id);
        tokio::select! {
            reply = self.run(params, stream) => Some(reply),
            () = call.cancelled.cancelled() => None,
            () = stream.closed() => None,
            () = self.stop.cancelled() => None,
        }
    }

    async fn run(&self, params: CallParams<'_>, stream: &ResponseStream) -> Reply {
        let Some(name) = params.name.as_deref() else { return Err(invalid_params("`name` is missing")) };
        let token = params.progress_token;
        // Before the first list no name is known.
        let tools = match self.first_tools(self.first_tools_for_call).await {
            Ok(tools) => tools,
            Err(error) => return call_failure(error),
        };
        let index = self.index(&tools);
        let Some((server, tool)) = index.original(name) else {
            return Err(ErrorReply::unknown_tool(name, &[], None));
        };
        let empty = RawValue::from_string("{}".into()).expect("it is JSON");
        let arguments = params.arguments.unwrap_or(empty.as_ref());
        let request = ToolRequest::new(format!("{server}:{tool}"), &arguments);
        let request = if token.is_some() { request.with_progress() } else { request };
        let ended = async {
            let mut call = self.proxy.start(request).await?;
            while let Some(progress) = call.next_progress().await {
                let Some(token) = token else { continue };
                let params = progress.as_relayed_params().get();
                let params = patch::insert(params, &["progressToken"], token);
                stream.push(notification("notifications/progress", Some(&params)));
            }
            call.finish().await
        };
        match ended.await {
            Ok(output) => Ok(into_text(output.into_relayed_result())),
            Err(error) => call_failure(bridge_error(&error)),
        }
    }

    fn current(&self) -> Option<Arc<RemoteClient>> {
        lock(&self.client).clone()
    }
}

/// Compares what a listing shows.
fn has_equal_tools(one: &ToolSet, other: &ToolSet) -> bool {
    let is_equal = |(one, other): (&Arc<AvailableTool>, &Arc<AvailableTool>)| {
        let schema = |tool: &AvailableTool| tool.output_schema.as_ref().map(|schema| schema.get().to_owned());
        one.id == other.id
            && one.description == other.description
            && one.input_schema.get() == other.input_schema.get()
            && schema(one) == schema(other)
    };
    one.len() == other.len() && one.iter().zip(other.iter()).all(is_equal)
}

/// A request of the client.
struct RemoteRequest<'a> {
    method: &'a str,
    params: Option<&'a RawValue>,
    stream: &'a ResponseStream,
}

fn invalid_params(reason: &str) -> ErrorReply {
    ErrorReply::invalid_params(format!("the parameters are invalid: {reason}"))
}

/// Returns the normalised error of the bridge, or one with the same meaning for an error of the bus.
fn bridge_error(error: &ToolCallError) -> Box<BridgeError> {
    let error = error.as_tool_error();
    let details = error.details.as_ref().and_then(|details| serde_json::from_str(details.0.get()).ok());
    details.unwrap_or_else(|| {
        let code = match error.code.as_str() {
            "timeout" => ErrorCode::ProviderTimeout,
            code => {
                serde_json::from_value(code.to_ascii_uppercase().into()).unwrap_or(ErrorCode::OutcomeUnknown)
            }
        };
        let mut bridge_error = BridgeError::new(code, Delivery::Unknown, error.message.clone());
        bridge_error.retryable = error.is_retryable;
        bridge_error.correlation_id.clone_from(&error.correlation_id);
        bridge_error.retry_after_ms = error.retry_after_ms;
        bridge_error
    })
}

impl RemoteClient {
    fn notify(&self, frame: Vec<u8>) {
        if let Some(stream) = &*lock(&self.stream) {
            stream.push(frame);
        }
    }
}

/// A call that the client can cancel.
struct CancelGuard<'a> {
    client: &'a RemoteClient,
    id: &'a str,
    cancelled: CancellationToken,
}

impl<'a> CancelGuard<'a> {
    fn new(client: &'a RemoteClient, id: &'a str) -> Self {
        let cancelled = CancellationToken::new();
        lock(&client.calls).insert(id.to_owned(), cancelled.clone());
        Self { client, id, cancelled }
    }
}

impl Drop for CancelGuard<'_> {
    fn drop(&mut self) {
        lock(&self.client.calls).remove(self.id);
    }
}

impl Host for RemoteBridge {
    type Client = RemoteClient;

    async fn initialize(
        self: &Arc<Self>,
        _: Endpoint,
        _: PeerId,
        request: Vec<u8>,
        stream: ResponseStream,
    ) -> Option<String> {
        let Ok(Message::Request { id, params, .. }) = Message::parse(&request) else { return None };
        let params = params.map_or("{}", RawValue::get);
        let requested = patch::find_string(params, &["protocolVersion"]).unwrap_or_default();
        let version = ProtocolVersion::negotiate(&requested).unwrap_or(ProtocolVersion::LATEST);
        let result = json!({
            "protocolVersion": version.to_string(),
            "capabilities": { "tools": { "listChanged": true } },
            "serverInfo": { "name": "bascule", "version": env!("CARGO_PKG_VERSION") },
        });
        stream.finish(frame(id, Ok(result.to_string())));
        let session = "stdio".to_owned();
        let client =
            RemoteClient { session: session.clone(), stream: Mutex::default(), calls: Mutex::default() };
        *lock(&self.client) = Some(Arc::new(client));
        Some(session)
    }

    fn find_session(&self, _: &Endpoint, session: &str) -> Option<Arc<RemoteClient>> {
        self.current().filter(|client| client.session == session)
    }

    fn deliver(
        self: &Arc<Self>,
        client: Arc<RemoteClient>,
        message: ClientMessage<'_>,
        stream: ResponseStream,
    ) {
        match message.message {
            Message::Request { id, method, params } => {
                let (id, method, params) =
                    (id.as_json().to_owned(), method.into_owned(), params.map(ToOwned::to_owned));
                let bridge = self.clone();
                self.tasks.spawn(async move {
                    let request =
                        RemoteRequest { method: &method, params: params.as_deref(), stream: &stream };
                    match bridge.answer(&client, &id, request).await {
                        Some(reply) => finish(&stream, &id, reply, None),
                        None => stream.close(),
                    }
                });
            }
            Message::Notification { method, params } if method == "notifications/cancelled" => {
                let id = params.and_then(|params| patch::find(params.get(), &["requestId"]));
                if let Some(cancelled) = id.and_then(|id| lock(&client.calls).get(id).cloned()) {
                    cancelled.cancel();
                }
            }
            Message::Notification { .. } | Message::Response { .. } => {}
        }
    }

    fn open_stream(self: &Arc<Self>, client: &Arc<RemoteClient>) -> ResponseStream {
        let stream = ResponseStream::new(STREAM_LIMIT);
        *lock(&client.stream) = Some(stream.clone());
        stream
    }

    fn end_session(self: &Arc<Self>, _: &Endpoint, _: &str) -> bool {
        lock(&self.client).take().is_some()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no code panics while it holds the lock")
}
