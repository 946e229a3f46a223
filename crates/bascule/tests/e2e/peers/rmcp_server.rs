//! A server built with rmcp, in memory or over HTTP. It records what happens to it.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bascule_mcp::Transport;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CancelledNotificationParam, ContentBlock,
    ErrorCode, ErrorData, Implementation, ListToolsResult, PaginatedRequestParams, ProgressNotificationParam,
    ServerCapabilities, ServerConfig, Tool, object,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{RoleServer, ServerHandler, ServiceExt};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::runtime::Runtime;

use crate::support::eventually;

/// The server. Clones share the journal.
#[derive(Clone, Default)]
pub(super) struct RmcpServer {
    journal: Arc<Mutex<Vec<String>>>,
}

impl RmcpServer {
    fn note(&self, line: impl Into<String>) {
        self.journal.lock().unwrap().push(line.into());
    }

    /// Waits until the journal contains this line this many times.
    pub(super) fn wait_for_line(&self, line: &str, times: usize) {
        let count = || self.journal.lock().unwrap().iter().filter(|noted| *noted == line).count();
        eventually(&format!("the journal contains `{line}` {times} times"), || count() == times);
    }

    async fn work(&self, arguments: Value, context: RequestContext<RoleServer>) -> CallToolResult {
        let pause = Duration::from_millis(arguments["pauseMs"].as_u64().unwrap());
        let token = context.meta.get_progress_token().expect("the caller asks for progress");
        let steps = arguments["steps"].as_u64().unwrap();
        for step in 1..=steps {
            tokio::time::sleep(pause).await;
            let report = ProgressNotificationParam::new(token.clone(), step as f64).with_total(steps as f64);
            context.peer.notify_progress(report.with_message("hammering")).await.unwrap();
        }
        text_result("finished")
    }

    /// Waits until the call is cancelled.
    async fn wait(&self, context: RequestContext<RoleServer>) -> CallToolResult {
        self.note("waiting");
        context.ct.cancelled().await;
        self.note("no longer waiting");
        text_result("nobody reads this")
    }
}

fn text_result(text: &str) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(text)])
}

impl ServerHandler for RmcpServer {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_tool_list_changed().build();
        ServerConfig::new(capabilities).with_server_info(Implementation::new("workshop", "3.8"))
    }

    /// Returns two pages.
    async fn list_tools(
        &self,
        page: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let mut tools = tools();
        let second = tools.split_off(3);
        if page.and_then(|page| page.cursor).is_some_and(|cursor| cursor == "second/page") {
            return Ok(ListToolsResult::with_all_items(second));
        }
        Ok(ListToolsResult {
            next_cursor: Some("second/page".into()),
            ..ListToolsResult::with_all_items(tools)
        })
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = Value::Object(call.arguments.unwrap_or_default());
        let number = |name: &str| arguments[name].as_f64().unwrap();
        let result = match &*call.name {
            "add" => CallToolResult::structured(json!({ "sum": number("a") + number("b") })),
            "lie" => CallToolResult::structured(json!({ "sum": "much" })),
            "fail" => CallToolResult::error(vec![ContentBlock::text("the anvil broke")]),
            "work" => self.work(arguments, context).await,
            "wait" => self.wait(context).await,
            "rename" => {
                context.peer.notify_tool_list_changed().await.unwrap();
                text_result("or so they say")
            }
            _ => return Err(ErrorData::new(ErrorCode(-32042), "out of iron", Some(json!({ "left": 0 })))),
        };
        Ok(result.into())
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let client = context.peer.peer_info().expect("the client is initialized");
        self.note(format!("hello {} {}", client.client_info.name, client.protocol_version));
    }

    async fn on_cancelled(&self, cancelled: CancelledNotificationParam, _: NotificationContext<RoleServer>) {
        self.note(format!("cancelled: {}", cancelled.reason.unwrap_or_default()));
    }
}

fn tools() -> Vec<Tool> {
    let tool = |name: &'static str, input: Value| {
        Tool::new(name, format!("The tool {name}"), Arc::new(object(input)))
    };
    let sum = || {
        Arc::new(object(
            json!({ "type": "object", "properties": { "sum": { "type": "number" } }, "required": ["sum"] }),
        ))
    };
    let takes = |names: &[&str]| {
        let properties: serde_json::Map<_, _> =
            names.iter().map(|name| ((*name).to_owned(), json!({ "type": "number" }))).collect();
        json!({ "type": "object", "properties": properties, "required": names })
    };
    vec![
        tool("add", takes(&["a", "b"])).with_raw_output_schema(sum()),
        tool("lie", takes(&[])).with_raw_output_schema(sum()),
        tool("fail", takes(&[])),
        tool("refuse", takes(&[])),
        tool("work", takes(&["steps", "pauseMs"])),
        tool("wait", takes(&[])),
        tool("rename", takes(&[])),
    ]
}

/// A transport to a server in this process: the bytes of rmcp on one side, our messages on the other.
pub(super) fn in_memory(server: RmcpServer) -> Transport {
    let (transport, mut peer) = Transport::pair();
    let (local, remote) = tokio::io::duplex(1 << 16);
    tokio::spawn(async move { server.serve(remote).await.unwrap().waiting().await });
    let (read, mut write) = tokio::io::split(local);
    tokio::spawn(async move {
        while let Some(mut frame) = peer.incoming.recv().await {
            frame.push(b'\n');
            write.write_all(&frame).await.unwrap();
        }
    });
    tokio::spawn(async move {
        let mut lines = BufReader::new(read).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            if peer.outgoing.send(line.into_bytes()).await.is_err() {
                return;
            }
        }
    });
    transport
}

/// A server on a loopback port with its own runtime. Stops when dropped.
pub(super) struct RmcpHttpServer {
    pub(super) server: RmcpServer,
    pub(super) url: String,
    runtime: Option<Runtime>,
}

impl RmcpHttpServer {
    /// Uses sessions and event streams.
    pub(super) fn with_sessions() -> Self {
        Self::start(StreamableHttpServerConfig::default())
    }

    /// Uses no sessions and answers with JSON.
    pub(super) fn stateless() -> Self {
        Self::start(
            StreamableHttpServerConfig::default().with_legacy_session_mode(false).with_json_response(true),
        )
    }

    fn start(config: StreamableHttpServerConfig) -> Self {
        let server = RmcpServer::default();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let handler = server.clone();
        let service = StreamableHttpService::new(move || Ok(handler.clone()), Arc::default(), config);
        runtime.spawn(accept(listener, service));
        Self { server, url, runtime: Some(runtime) }
    }
}

impl Drop for RmcpHttpServer {
    fn drop(&mut self) {
        // A test may run in a runtime, which must not block on the shutdown of another.
        self.runtime.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

async fn accept(
    listener: std::net::TcpListener,
    service: StreamableHttpService<RmcpServer, LocalSessionManager>,
) {
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    while let Ok((stream, _)) = listener.accept().await {
        let service = service.clone();
        let answer = service_fn(move |request| {
            let service = service.clone();
            async move { Ok::<_, Infallible>(service.handle(request).await) }
        });
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
    }
}
