//! The bridge as a library inside the test process, for tests that need one connection across several calls.

use std::time::{Duration, Instant};

use bascule::config::{Settings, SourceFile, parse};
use bascule::{BridgeConfig, McpBridgeAdapter};
use bascule_model::{CallRequest, CallTimeout, ProviderAdapter, ToolId};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::support::program;

/// Upper bound of every wait.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Starts a bridge with one server, `s`.
pub async fn bridge(entry: Value) -> McpBridgeAdapter {
    bridge_with_config(json!({ "mcpServers": { "s": entry } })).await
}

/// Starts a bridge with this configuration.
pub async fn bridge_with_config(configuration: Value) -> McpBridgeAdapter {
    init(BridgeConfig::new(settings(&configuration))).await
}

/// Starts a bridge whose servers are sandboxed by the program under test.
pub async fn confined(servers: Value) -> McpBridgeAdapter {
    let settings = settings(&json!({ "mcpServers": servers }));
    init(BridgeConfig { jailer: Some(program().into()), ..BridgeConfig::new(settings) }).await
}

pub fn settings(configuration: &Value) -> Settings {
    let origin = SourceFile { name: "mcp.json".into(), directory: std::env::temp_dir() };
    parse(&configuration.to_string(), &origin, &|_| None).unwrap().settings
}

async fn init(config: BridgeConfig) -> McpBridgeAdapter {
    within_timeout(McpBridgeAdapter::init(config)).await.unwrap()
}

/// Calls a tool and returns its result or the normalised error, both as JSON.
pub async fn call(bridge: &McpBridgeAdapter, tool: &str, arguments: &str) -> Result<Value, Value> {
    call_with_timeout(bridge, tool, arguments, None).await
}

/// Like [`call`], with a caller's timeout.
pub async fn call_with_timeout(
    bridge: &McpBridgeAdapter,
    tool: &str,
    arguments: &str,
    timeout: Option<Duration>,
) -> Result<Value, Value> {
    let arguments = RawValue::from_string(arguments.to_owned()).unwrap();
    let timeout = timeout.map(|duration| CallTimeout { since: Instant::now(), duration });
    let request = CallRequest { tool: ToolId::parse(tool).unwrap(), arguments, timeout };
    match within_timeout(bridge.execute(request, None)).await {
        Ok(outcome) => Ok(serde_json::from_str(outcome.result.raw.get()).unwrap()),
        Err(error) => Err(serde_json::to_value(&error).unwrap()),
    }
}

/// Stops the bridge and its servers.
pub async fn terminate(bridge: &McpBridgeAdapter) {
    within_timeout(bridge.terminate()).await;
}

/// Awaits a future for at most [`TIMEOUT`].
pub async fn within_timeout<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(TIMEOUT, work).await.expect("the operation timed out")
}
