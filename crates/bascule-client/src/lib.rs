//! An MCP client for any Rust program.
//!
//! The main functions are [`connect_to_server`] and [`call_tool`]. Calls are retried after transient failures. A tool
//! that *reports* a failure returns a result, not an error.
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
//! [`McpClient`] is the layer below: one connected server, without retries. Bascule uses it directly, with the types
//! of `bascule_mcp`.
//!
//! The library writes nothing to stdout and depends on no server, bus or database.

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
pub use client::{ClientOptions, ConnectError, ListError, McpClient, OpenedClient, ServerInfo};
pub use error::{ErrorCause, McpBridgeError};
pub use log::{LOG_TARGET, LogLevel, Logger};
pub use result::CallToolResult;
pub use timeout::{Environment, InvalidTimeout};

/// Types of `bascule_mcp` that appear in [`TransportFactory`] and [`ErrorCause`].
pub use bascule_mcp::{Failure, HttpEndpoint, RpcError, Transport, TransportError};
