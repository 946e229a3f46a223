//! The words Bascule speaks: names, tools, calls, outcomes, errors and events.
//!
//! Nothing here does anything: no I/O, no clock, no chance. Whatever these types promise was checked when
//! they were made, so nobody checks it again.

mod call;
mod error;
mod event;
mod names;
mod provider;
mod secret;
mod tool;

pub use call::{CallOutcome, CallRequest, Patience, ToolResult};
pub use error::{BridgeError, BridgeResult, Delivery, ErrorCode, ProviderFault, Violation};
pub use event::{DiscardEvents, Event, EventSink};
pub use names::{CorrelationId, NameError, ServerName, ToolId};
pub use provider::{Health, ProviderAdapter, ServerHealth};
pub use secret::Secret;
pub use tool::{ToolDefinition, ToolHints};
