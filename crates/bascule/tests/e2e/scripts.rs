//! Tests scripts in confined workers with real servers.

mod agent_tasks;
mod attacks;
mod builtins;
mod concurrent;
mod hostile_worker;
mod interfaces;
mod kept_results;
mod limits;
mod real_servers;
mod traces;

use std::time::Duration;

use bascule::{BridgeConfig, McpBridgeAdapter, ScriptOutcome, ScriptRequest};
use bascule_model::ProviderAdapter;
use serde_json::{Value, json};

use crate::embedded::{settings, within_timeout};
pub use crate::support::demo_servers;
use crate::support::program;

/// Starts a bridge in this process that can run scripts.
pub async fn bridge(configuration: Value) -> McpBridgeAdapter {
    let settings = settings(&configuration);
    let config = BridgeConfig { jailer: Some(program().into()), ..BridgeConfig::new(settings) };
    within_timeout(McpBridgeAdapter::init(config)).await.unwrap()
}

pub async fn demo_bridge() -> McpBridgeAdapter {
    bridge(json!({ "mcpServers": demo_servers() })).await
}

pub async fn empty_bridge() -> McpBridgeAdapter {
    bridge(json!({ "mcpServers": {} })).await
}

pub async fn run(bridge: &McpBridgeAdapter, code: &str) -> ScriptOutcome {
    run_with(bridge, code, |_| {}).await
}

pub async fn run_with(
    bridge: &McpBridgeAdapter,
    code: &str,
    change: impl FnOnce(&mut ScriptRequest),
) -> ScriptOutcome {
    let mut request = ScriptRequest::new(code);
    change(&mut request);
    within_timeout(bridge.run_script(request)).await.unwrap()
}

pub fn value(outcome: &ScriptOutcome) -> Value {
    assert!(outcome.success, "{:?} {:?}", outcome.error, outcome.logs);
    outcome.result.as_ref().map_or(Value::Null, |result| serde_json::from_str(result.get()).unwrap())
}

pub fn error_name(outcome: &ScriptOutcome) -> String {
    outcome
        .error
        .as_ref()
        .unwrap_or_else(|| panic!("the script succeeded: {:?}", outcome.result))
        .name
        .clone()
}

/// Sets a short time limit.
pub fn short(request: &mut ScriptRequest) {
    request.timeout = Some(Duration::from_millis(1500));
}
