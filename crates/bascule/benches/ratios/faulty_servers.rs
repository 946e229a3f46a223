//! Servers that flood the bridge, lie, hang and take long, all called without a pause.

use std::time::{Duration, Instant};

use bascule::McpBridgeAdapter;
use bascule::config::{ServerSettings, SourceFile, parse};
use bascule_model::{CallRequest, CallTimeout, ProviderAdapter, ToolId};
use bascule_testkit::{Behaviour, Script, ScriptedStdio, binary};
use futures_util::future::join_all;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::time::sleep;

/// A server that sends responses to unknown ids and invalid lines before the right response.
pub(crate) fn lying_server() -> ScriptedStdio {
    let lie =
        Behaviour::echo().after_stray_response().after_line("no JSON {").after_line(r#"{"id":7,"result":"#);
    ScriptedStdio::new(
        Script::new().tools(["x"]).junk_between(["junk", "{}", "[]"]).calls("x", [lie.twice()]),
    )
}

pub(crate) fn faulty_servers(lying: &ScriptedStdio) -> Vec<ServerSettings> {
    let hangs = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/hostile.py");
    let trouble = json!({ "command": binary("bascule-demo"), "args": ["trouble"] });
    let servers = json!({ "mcpServers": {
        "floods": trouble,
        "lies": lying.entry(),
        "hangs": {
            "command": "python3", "args": [hangs], "cancelGraceMs": 100, "reconnectBackoffMs": 10
        },
        "slow": trouble,
    } });
    let origin = SourceFile { name: "mcp.json".into(), directory: std::env::temp_dir() };
    parse(&servers.to_string(), &origin, &|_| None).unwrap().settings.servers
}

/// Calls the faulty servers in an endless loop.
pub(crate) async fn call_faulty_servers(bridge: &McpBridgeAdapter) {
    let again = async |tool: &str, arguments: &str, timeout_ms: u64| loop {
        let arguments = RawValue::from_string(arguments.to_owned()).unwrap();
        let duration = Duration::from_millis(timeout_ms);
        let timeout = Some(CallTimeout { since: Instant::now(), duration });
        let request = CallRequest { tool: ToolId::parse(tool).unwrap(), arguments, timeout };
        let _ = bridge.execute(request, None).await;
        // Limits the rate of calls that fail immediately.
        sleep(Duration::from_millis(1)).await;
    };
    let slow = (0..8).map(|_| again("slow:sleep", r#"{"ms":200}"#, 10_000));
    tokio::join!(
        again("floods:junk", r#"{"lines":10000}"#, 10_000),
        again("floods:flood_stderr", r#"{"kb":100000}"#, 10_000),
        again("lies:x", "{}", 1_000),
        again("hangs:try", r#"{"code":"import time; time.sleep(600)"}"#, 100),
        join_all(slow),
    );
}

/// Waits until a faulty server has received this many calls: by then all faults are under way.
pub(crate) async fn wait_for_calls(server: &ScriptedStdio, calls: usize) {
    while server.methods().iter().filter(|method| *method == "tools/call").count() < calls {
        sleep(Duration::from_millis(10)).await;
    }
}
