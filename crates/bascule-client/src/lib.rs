//! An MCP client for any Rust program.
//!
//! Two functions do most of it: [`connect_to_server`] and [`call_tool`]. A call that fails in a way that may
//! pass is tried again; a tool that *reports* failure is a result like any other, because it has worked.
//!
//! ```no_run
//! use bascule_client::{CallToolOptions, ConnectOptions, call_tool, connect_to_server};
//!
//! # async fn example() -> Result<(), bascule_client::McpBridgeError> {
//! let bridge = connect_to_server("http://127.0.0.1:3001/mcp", ConnectOptions::default()).await?;
//! let result = call_tool(&bridge, "echo", r#"{"message":"hello"}"#, CallToolOptions::default()).await?;
//! println!("{} (failed: {})", result.text(), result.is_error());
//! bridge.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! Beneath them, [`Client`] is one connected server: the handshake is done, tools can be listed and called,
//! and nothing is ever tried twice. Bascule itself is built on that.
//!
//! The library writes nothing to stdout, and depends on no server, bus or database.

mod bridge;
mod client;
mod error;
mod log;
mod result;
mod retry;
mod timeout;

pub use bridge::{
    CallToolOptions, ConnectOptions, McpBridge, TransportFactory, call_tool, connect_to_server,
};
pub use client::{Client, ClientOptions, ConnectError, ListError, ServerInfo};
pub use error::{Cause, McpBridgeError};
pub use log::{LogLevel, Logger, TARGET};
pub use result::CallToolResult;
pub use timeout::{Environment, InvalidTimeout};

pub use bascule_mcp::{
    Exit, Failure, Grace, HttpEndpoint, Id, Lifeline, Listener, Message, OnProgress, PendingEvent,
    PendingRequest, ProtocolVersion, RequestHandler, RequestResult, RpcError, ServerMessage, StdioChild,
    Transport, TransportError, Unsolicited, error_response, notification, patch, request_with_id,
    success_response, success_response_from, with_extras,
};
