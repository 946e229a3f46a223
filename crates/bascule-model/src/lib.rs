//! The types that all crates share: names, tools, calls, outcomes, errors and events.
//!
//! This crate does no I/O, reads no clock and uses no random source. Constructors check every invariant, so
//! users of a value need not check it again.

mod call;
mod clip;
mod error;
mod error_chain;
mod event;
mod lookalike;
mod names;
mod provider;
mod secret;
mod tool;
mod trace;

pub use call::{CallOutcome, CallRequest, CallTimeout, ToolResult};
pub use clip::clip;
pub use error::{BridgeError, BridgeResult, Delivery, ErrorCode, ProviderFault, Violation};
pub use error_chain::error_chain;
pub use event::{DiscardEvents, Event, EventSink, ExpectedResult};
pub use lookalike::{are_confusable, differ_only_in_case};
pub use names::{CorrelationId, NameError, ServerName, ToolId};
pub use provider::{Health, ProviderAdapter, ServerHealth};
pub use secret::Secret;
pub use tool::{ToolDefinition, ToolHints};
pub use trace::{SpanContext, SpanId, TraceId, TraceParent};
