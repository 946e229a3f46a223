//! The control socket: commands reach a running bridge through a Unix socket that only its user can open, with a token that
//! a confined server cannot read.
//!
//! Landlock does not prevent connections to a socket in the file system. So each connection presents a token, stored beside
//! the socket in a folder that no sandbox grants and replaced at every start. The protocol is lines: the token, one
//! [`ControlRequest`], then one or more [`ControlResponse`]s. The operations themselves are in `api`.

mod client;
mod handler;
mod server;
mod socket_path;

pub(crate) use client::RunningBridge;
pub(crate) use server::{ControlServer, SocketClaim};
pub(crate) use socket_path::{SocketPath, config_hash};

use std::sync::Arc;

use bascule_catalog::{CatalogTool, StoredObservation};
use bascule_model::{BridgeError, CorrelationId, ServerName, ToolDefinition, ToolId};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::api::{AvailableTools, CallLimits, FoundTool};

/// The largest request, which contains the arguments of a call.
const MAX_REQUEST_BYTES: u64 = 64 << 20;

#[derive(Serialize, Deserialize)]
struct ControlRequest {
    #[serde(rename = "what")]
    operation: Operation,
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<Box<RawValue>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Operation {
    /// The process id and the configuration file of the bridge.
    Identity,
    /// The status of the servers; with `watch`, once more after every change.
    Status,
    /// Lists the tools of one server again, or of all.
    Refresh,
    /// Events from now on, and recent ones.
    Events,
    Tools,
    /// One tool, or the error that a call of it would meet.
    Tool,
    /// A call. Closing the connection cancels it.
    Call,
    /// A script. Closing the connection kills it.
    Run,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum ControlResponse {
    Ok(Box<RawValue>),
    Error(Box<BridgeError>),
    /// The parameters of a progress notification. The response to the call follows.
    Progress(Box<RawValue>),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CallOperation {
    tool: ToolId,
    arguments: Box<RawValue>,
    timeout_ms: Option<u64>,
    /// The part of the timeout that passed before the request was sent.
    #[serde(default)]
    waited_ms: u64,
    correlation_id: Option<CorrelationId>,
    /// The caller wants progress notifications before the response.
    #[serde(default)]
    progress: bool,
}

/// A tool on the socket: its server and its definition, as the server wrote it.
#[derive(Serialize, Deserialize)]
struct ToolRecord {
    server: ServerName,
    definition: Box<RawValue>,
    #[serde(default)]
    from_last_listing: bool,
    /// The type of the tool's answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    observed: Option<StoredObservation>,
}

#[derive(Serialize, Deserialize)]
struct ToolListingRecord {
    tools: Vec<ToolRecord>,
    #[serde(rename = "missing")]
    start_failures: Vec<BridgeError>,
    requested: usize,
    #[serde(default)]
    disabled: Vec<ServerName>,
}

#[derive(Serialize, Deserialize)]
struct FoundToolRecord {
    tool: ToolRecord,
    limits: CallLimits,
}

impl FoundToolRecord {
    fn new(found: &FoundTool) -> Self {
        Self { tool: ToolRecord::new(&found.tool), limits: found.limits }
    }
}

impl ToolRecord {
    fn new(tool: &CatalogTool) -> Self {
        let server = ServerName::parse(tool.id().server()).expect("a tool id begins with a server name");
        let (from_last_listing, observed) = (tool.is_from_last_listing(), tool.observed().to_stored());
        Self { server, definition: tool.definition().raw.clone(), from_last_listing, observed }
    }

    fn parse(self) -> serde_json::Result<Arc<CatalogTool>> {
        let tool = CatalogTool::new(&self.server, ToolDefinition::parse(self.definition)?);
        self.observed.iter().for_each(|stored| tool.observed().add_stored(stored));
        Ok(Arc::new(if self.from_last_listing { tool.from_last_listing() } else { tool }))
    }
}

impl ToolListingRecord {
    fn new(listing: AvailableTools) -> Self {
        let tools = listing.tools.iter().map(|tool| ToolRecord::new(tool)).collect();
        let AvailableTools { start_failures, requested, disabled, .. } = listing;
        Self { tools, start_failures, requested, disabled }
    }

    fn parse(self) -> serde_json::Result<AvailableTools> {
        let tools = self.tools.into_iter().map(ToolRecord::parse).collect::<Result<_, _>>()?;
        let Self { start_failures, requested, disabled, .. } = self;
        Ok(AvailableTools { tools, start_failures, requested, disabled })
    }
}
