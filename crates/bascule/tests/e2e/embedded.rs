//! The bridge as a library, in the test's own process: for what must happen on one connection.

use std::time::{Duration, Instant};

use bascule::config::{Origin, Settings, parse};
use bascule::{BridgeConfig, McpBridgeAdapter};
use bascule_model::{CallRequest, CallTimeout, ProviderAdapter, ToolId};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::support::program;

/// Nothing a test waits for may take longer.
const PATIENCE: Duration = Duration::from_secs(120);

/// A bridge with one server, `s`, of this entry.
pub async fn bridge(entry: Value) -> McpBridgeAdapter {
    bridge_of(json!({ "mcpServers": { "s": entry } })).await
}

/// A bridge of this configuration.
pub async fn bridge_of(configuration: Value) -> McpBridgeAdapter {
    init(BridgeConfig::new(settings(&configuration))).await
}

/// A bridge with these servers, confined by the program under test.
pub async fn confined(servers: Value) -> McpBridgeAdapter {
    let settings = settings(&json!({ "mcpServers": servers }));
    init(BridgeConfig { jailer: Some(program().into()), ..BridgeConfig::new(settings) }).await
}

/// What a configuration means.
pub fn settings(configuration: &Value) -> Settings {
    let origin = Origin { name: "mcp.json".into(), folder: std::env::temp_dir() };
    parse(&configuration.to_string(), &origin, &|_| None).unwrap().settings
}

async fn init(config: BridgeConfig) -> McpBridgeAdapter {
    patiently(McpBridgeAdapter::init(config)).await.unwrap()
}

/// Calls a tool: its result as `Ok`, the normalised error as `Err`, both as JSON has them.
pub async fn call(bridge: &McpBridgeAdapter, tool: &str, arguments: &str) -> Result<Value, Value> {
    call_within(bridge, tool, arguments, None).await
}

/// The same, with a caller who does not wait longer than this.
pub async fn call_within(
    bridge: &McpBridgeAdapter,
    tool: &str,
    arguments: &str,
    timeout: Option<Duration>,
) -> Result<Value, Value> {
    let arguments = RawValue::from_string(arguments.to_owned()).unwrap();
    let timeout = timeout.map(|duration| CallTimeout { since: Instant::now(), duration });
    let request = CallRequest { tool: ToolId::parse(tool).unwrap(), arguments, timeout };
    match patiently(bridge.execute(request, None)).await {
        Ok(outcome) => Ok(serde_json::from_str(outcome.result.raw.get()).unwrap()),
        Err(error) => Err(serde_json::to_value(&error).unwrap()),
    }
}

/// Ends the bridge and all that belongs to it.
pub async fn terminate(bridge: &McpBridgeAdapter) {
    patiently(bridge.terminate()).await;
}

/// Awaits something that may take its time, but not for ever.
pub async fn patiently<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.expect("it does not hang")
}
