//! Tests the bridge against a worker that violates the protocol.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use bascule::{BridgeConfig, McpBridgeAdapter, ScriptOutcome};
use bascule_model::ProviderAdapter;
use serde_json::json;

use super::{demo_servers, error_name, run_with, value};
use crate::embedded::{settings, terminate, within_timeout};
use crate::support::{program as program_under_test, project_file};

/// Starts a bridge whose workers are `hostile_worker.py`.
async fn bridge(folder: &Path) -> McpBridgeAdapter {
    let program = folder.join("program");
    let (worker, bascule) = (project_file("tests/servers/hostile_worker.py"), program_under_test());
    let text = format!(
        "#!/bin/sh\nif [ \"$1\" = __worker ]; then exec '{}'; fi\nexec '{bascule}' \"$@\"\n",
        worker.display()
    );
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let settings = settings(&json!({ "mcpServers": demo_servers() }));
    let config = BridgeConfig { jailer: Some(program), ..BridgeConfig::new(settings) };
    within_timeout(McpBridgeAdapter::init(config)).await.unwrap()
}

async fn attack(bridge: &McpBridgeAdapter, name: &str) -> ScriptOutcome {
    attack_within(bridge, name, Duration::from_secs(60)).await
}

async fn attack_within(bridge: &McpBridgeAdapter, name: &str, timeout: Duration) -> ScriptOutcome {
    run_with(bridge, name, |request| {
        request.tools = bascule::ToolSelection::parse(["clock:*"]).unwrap();
        request.timeout = Some(timeout);
    })
    .await
}

// req: CM-01, CM-03, CM-04
#[tokio::test]
async fn kills_worker_that_violates_protocol() {
    let folder = tempfile::tempdir().unwrap();
    let bridge = bridge(folder.path()).await;
    for attack_name in ["forged id", "repeated id", "ready twice", "garbage", "unknown message", "too long"] {
        let outcome = attack(&bridge, attack_name).await;
        assert_eq!(error_name(&outcome), "SandboxViolation", "{attack_name}: {:?}", outcome.error);
    }
    for attack_name in ["half a frame", "nothing at all"] {
        let outcome = attack_within(&bridge, attack_name, Duration::from_secs(2)).await;
        assert_eq!(error_name(&outcome), "TimeLimitError", "{attack_name}: {:?}", outcome.error);
    }
    for (attack_name, error) in [
        ("long value", "OutputLimitError"),
        ("hangs up", "WorkerError"),
        ("exits", "WorkerError"),
        ("crashes", "WorkerError"),
    ] {
        let outcome = attack(&bridge, attack_name).await;
        assert_eq!(error_name(&outcome), error, "{attack_name}: {:?}", outcome.error);
    }
    terminate(&bridge).await;
}

// req: CM-02, CM-04
#[tokio::test]
async fn limits_hold_for_hostile_worker() {
    let folder = tempfile::tempdir().unwrap();
    let bridge = bridge(folder.path()).await;
    assert_eq!(value(&attack(&bridge, "other tool").await), "TOOL_NOT_FOUND");
    assert_eq!(value(&attack(&bridge, "odd names").await), json!(vec!["TOOL_NOT_FOUND"; 3]));
    assert_eq!(value(&attack(&bridge, "after the end").await), "first");
    let outcome = attack(&bridge, "flood").await;
    assert_eq!(value(&outcome), 1);
    let kept: usize = outcome.logs.iter().map(|line| line.text.len()).sum();
    assert!(kept < 300 << 10, "{kept}");
    terminate(&bridge).await;
}
