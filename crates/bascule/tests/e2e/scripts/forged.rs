//! A worker that is not ours any more: what it says is checked, and what was not agreed on ends it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use bascule::{BridgeConfig, McpBridgeAdapter, ScriptOutcome};
use bascule_model::ProviderAdapter;
use serde_json::json;

use super::{demo_servers, error, run_with, value};
use crate::embedded::{settings, terminate, within_timeout};
use crate::support::{program as program_under_test, project_file};

/// A bridge whose workers are the forger; all else is as it should be.
async fn bridge(folder: &Path) -> McpBridgeAdapter {
    let program = folder.join("program");
    let (forger, bascule) = (project_file("tests/servers/forger.py"), program_under_test());
    let text = format!(
        "#!/bin/sh\nif [ \"$1\" = __worker ]; then exec '{}'; fi\nexec '{bascule}' \"$@\"\n",
        forger.display()
    );
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let settings = settings(&json!({ "mcpServers": demo_servers() }));
    let config = BridgeConfig { jailer: Some(program), ..BridgeConfig::new(settings) };
    within_timeout(McpBridgeAdapter::init(config)).await.unwrap()
}

async fn forge(bridge: &McpBridgeAdapter, what: &str) -> ScriptOutcome {
    forge_within(bridge, what, Duration::from_secs(60)).await
}

async fn forge_within(bridge: &McpBridgeAdapter, what: &str, timeout: Duration) -> ScriptOutcome {
    run_with(bridge, what, |request| {
        request.tools = bascule::ToolSelection::parse(["clock:*"]).unwrap();
        request.timeout = Some(timeout);
    })
    .await
}

// req: CM-01, CM-03, CM-04
#[tokio::test]
async fn a_worker_that_forges_messages_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let bridge = bridge(folder.path()).await;
    for what in ["forged id", "repeated id", "ready twice", "garbage", "unknown message", "too long"] {
        let outcome = forge(&bridge, what).await;
        assert_eq!(error(&outcome), "SandboxViolation", "{what}: {:?}", outcome.error);
    }
    for what in ["half a frame", "nothing at all"] {
        let outcome = forge_within(&bridge, what, Duration::from_secs(2)).await;
        assert_eq!(error(&outcome), "TimeLimitError", "{what}: {:?}", outcome.error);
    }
    for (what, name) in [
        ("long value", "OutputLimitError"),
        ("hangs up", "WorkerError"),
        ("exits", "WorkerError"),
        ("crashes", "WorkerError"),
    ] {
        let outcome = forge(&bridge, what).await;
        assert_eq!(error(&outcome), name, "{what}: {:?}", outcome.error);
    }
    terminate(&bridge).await;
}

// req: CM-02, CM-04
#[tokio::test]
async fn a_worker_gets_no_more_than_its_script_was_given() {
    let folder = tempfile::tempdir().unwrap();
    let bridge = bridge(folder.path()).await;
    assert_eq!(value(&forge(&bridge, "other tool").await), "TOOL_NOT_FOUND");
    assert_eq!(value(&forge(&bridge, "odd names").await), json!(vec!["TOOL_NOT_FOUND"; 3]));
    assert_eq!(value(&forge(&bridge, "after the end").await), "first");
    let outcome = forge(&bridge, "flood").await;
    assert_eq!(value(&outcome), 1);
    let kept: usize = outcome.logs.iter().map(|line| line.text.len()).sum();
    assert!(kept < 300 << 10, "{kept}");
    terminate(&bridge).await;
}
