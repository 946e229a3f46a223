//! The agent's side of the bus.
//!
//! [`McpToolProxy`] calls the tools of an agent through its bridge. [`McpToolsAvailableHandler`] keeps a [`ToolRegistry`] in step
//! with the tools that the bridge offers. A [`ToolOutput`] is untrusted text: it becomes a [`ToolResultBlock`] and nothing else,
//! and a [`Conversation`] renders that block in the message shapes of Anthropic and OpenAI.
//!
//! The crate knows bus and messages, no bridge and no MCP.

mod availability;
mod call;
mod conversation;
mod error;
mod options;
mod output;
mod pending;
mod proxy;
mod registry;
mod request;
mod result_block;

pub use availability::{AvailabilityCounts, McpToolsAvailableHandler, NotReadyError};
pub use bascule_bus::{
    AgentName, Bus, BusCredentials, BusError, BusOptions, BusUrl, ContentTrust, EmbeddedBus, InboxPrefix,
    ToolError,
};
pub use call::{PendingToolCall, ToolProgressUpdate};
pub use conversation::{AssistantTurn, Conversation, ModelText, SystemText, ToolUse, Turn, UserText};
pub use error::{ErrorOrigin, ToolCallError};
pub use options::{ProxyOptions, ProxyOptionsError};
pub use output::ToolOutput;
pub use proxy::{McpToolProxy, ProxyCounts, ProxyError};
pub use registry::{AvailableTool, ToolChange, ToolChanges, ToolRegistry, ToolSet};
pub use request::ToolRequest;
pub use result_block::{AnthropicToolResult, OpenAiToolMessage, ToolResultBlock};
