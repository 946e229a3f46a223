//! The bodies of the messages between agents and bridges. `docs/asyncapi.yaml` describes them for other programs.

use bascule_model::{CorrelationId, Health, ServerName};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{AgentName, MessageId, Timestamp};

/// The body of a message, with its `type` in the envelope.
pub trait MessageBody: Serialize + for<'de> Deserialize<'de> {
    const KIND: &'static str;
}

macro_rules! impl_message_body {
    ($($name:ident),*) => {$(
        impl MessageBody for $name {
            const KIND: &'static str = stringify!($name);
        }
    )*};
}
impl_message_body!(
    ToolInvokeRequest,
    ToolInvokeResponse,
    ToolError,
    ToolCancelRequest,
    ToolProgress,
    ToolResultPart,
    McpToolsAvailable,
    McpMetadataRefreshRequest,
    DeadLetter
);

/// An agent's request to call a tool.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolInvokeRequest {
    /// The agent's own id of the call. Answers repeat it.
    pub tool_call_id: String,
    /// `server:tool`.
    pub tool_name: String,
    /// An object; `{}` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Box<RawValue>>,
    /// The call must be answered by then: a later one is not run, and one that still runs is ended, with the error `timeout`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// The agent wants `ToolProgress` messages.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub progress: bool,
}

/// The result of a call. A tool that reports a failure has a result too, with `isError`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolInvokeResponse {
    pub tool_call_id: String,
    pub tool_name: String,
    pub is_error: bool,
    /// The `CallToolResult`, byte for byte. Absent if it is too long for one message: then one of the next fields is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_object: Option<ResultObject>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_parts: Option<ResultParts>,
}

/// A result in an object store of JetStream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultObject {
    pub bucket: String,
    pub name: String,
    pub bytes: u64,
}

/// A result that follows in `count` messages of type `ToolResultPart`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultParts {
    pub count: u32,
    pub bytes: u64,
}

/// A part of a long result. All texts in the order of `index`, which begins at 0, are the JSON of the result.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolResultPart {
    pub tool_call_id: String,
    pub index: u32,
    pub text: String,
}

/// The error of a call that has no result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolError {
    pub tool_call_id: String,
    pub tool_name: String,
    /// `timeout`, or the bridge's error code in lower case.
    pub code: String,
    pub message: String,
    pub is_retryable: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<CorrelationId>,
    /// The delay before a repetition makes sense.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// The normalised error of the bridge with all its fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<ErrorDetails>,
}

/// JSON that compares by its text.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ErrorDetails(pub Box<RawValue>);

impl PartialEq for ErrorDetails {
    fn eq(&self, other: &Self) -> bool {
        self.0.get() == other.0.get()
    }
}

impl Eq for ErrorDetails {}

/// An agent's request to end a call, which is then answered with the error `cancelled`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolCancelRequest {
    pub tool_call_id: String,
    /// The `messageId` of the request. Without it the next request with this `toolCallId` is meant, if none is there now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_message_id: Option<MessageId>,
}

/// The progress of a call whose request asked for it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolProgress {
    pub tool_call_id: String,
    /// The parameters of the server's `notifications/progress`, without the token.
    pub progress: Box<RawValue>,
}

/// The tools of an agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct McpToolsAvailable {
    pub agent: AgentName,
    /// As `bascule tools --json` prints them. Empty if they are too long for one message: then one of the last fields is there.
    pub tools: Vec<Box<RawValue>>,
    pub servers: Vec<ServerState>,
    /// The list of tools as an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools_object: Option<ResultObject>,
    /// The list of tools follows in parts on the same topic. Their `toolCallId` is the id of this message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools_parts: Option<ResultParts>,
}

/// A server behind an agent's bridge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerState {
    pub name: ServerName,
    pub health: Health,
}

/// A request to list tools again and to publish them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct McpMetadataRefreshRequest {
    /// Null: the bridges of all agents.
    pub agent: Option<AgentName>,
    /// Null: all servers.
    #[serde(default)]
    pub server: Option<ServerName>,
}

/// A message that could not be handled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetter {
    pub reason: String,
    /// The topic of the message.
    pub topic: String,
    /// The message as it came, if it is UTF-8, else in base64.
    pub message: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub base64: bool,
    /// The length of a message that was too long to be kept whole. It cannot be queued again.
    #[serde(default, rename = "originalBytes", skip_serializing_if = "Option::is_none")]
    pub original_bytes: Option<u64>,
}
