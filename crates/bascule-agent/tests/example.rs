//! The example agent over NATS, with a bridge of the demo servers.

#![allow(clippy::unwrap_used, reason = "test helpers may panic")]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bascule::config::{SourceFile, parse};
use bascule::{BridgeConfig, BusService, BusServiceOptions, McpBridgeAdapter};
use bascule_agent::{AgentName, Bus, BusOptions, BusUrl};
use bascule_model::ProviderAdapter;
use bascule_testkit::NatsServer;

/// Cargo builds examples before tests, beside the folder of the tests.
fn example() -> PathBuf {
    let folder = std::env::current_exe().unwrap().parent().unwrap().join("../examples");
    folder.join("agent").canonicalize().expect("run `cargo build -p bascule-agent --examples`")
}

async fn demo_bridge() -> Arc<McpBridgeAdapter> {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../demo/mcp.json");
    let origin = SourceFile { name: "mcp.json".into(), directory: std::env::temp_dir() };
    let program = bascule_testkit::binary("bascule-demo").display().to_string();
    let lookup = |name: &str| (name == "BASCULE_DEMO").then(|| program.clone());
    let settings = parse(&std::fs::read_to_string(file).unwrap(), &origin, &lookup).unwrap().settings;
    Arc::new(McpBridgeAdapter::init(BridgeConfig::new(settings)).await.unwrap())
}

// req: BU-01
// req: BU-07
#[tokio::test(flavor = "multi_thread")]
async fn example_agent_answers_over_nats() {
    let server = NatsServer::start();
    let bus = Bus::connect(&BusOptions::new(BusUrl::parse(&server.url()).unwrap())).await.unwrap();
    let bridge = demo_bridge().await;
    let options = BusServiceOptions::new(AgentName::parse("demo").unwrap());
    let service = BusService::start(bridge.clone(), bus, options).await.unwrap();
    let mut agent = tokio::process::Command::new(example());
    let output = agent.args([&server.url(), "demo"]).kill_on_drop(true).output();
    let output = tokio::time::timeout(Duration::from_secs(120), output).await.expect("it ends").unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    for expected in
        ["What a bascule is", "Asia/Tokyo", "failed with `tool_not_found`", "I have seen 3 results"]
    {
        assert!(text.contains(expected), "no «{expected}» in\n{text}");
    }
    service.close(Duration::from_secs(5)).await;
    bridge.terminate().await;
}
