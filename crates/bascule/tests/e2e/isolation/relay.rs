//! Remote servers in per-call isolation: a confined relay process makes each call.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use bascule::{BridgeConfig, McpBridgeAdapter};
use bascule_model::ProviderAdapter;
use bascule_testkit::{Behaviour, HttpFault, Script, ScriptedHttp};
use serde_json::{Value, json};

use crate::embedded::{call, call_with_timeout, confined, settings, terminate, within_timeout};
use crate::support::{is_running, program, text};

/// A scripted server with a tool `x`, and a bridge to it as server `s`. `settings` extend its entry.
async fn relayed(script: Script, settings: Value) -> (McpBridgeAdapter, ScriptedHttp) {
    let server = ScriptedHttp::start(script.tools(["x"]));
    let mut entry = server.entry();
    entry["isolation"] = "per-call".into();
    entry.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    (confined(json!({ "s": entry })).await, server)
}

fn tool_with<const N: usize>(behaviours: [Behaviour; N]) -> Script {
    Script::new().calls("x", behaviours)
}

// req: SB-01
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_is_made_from_relay_process() {
    let (bridge, server) = relayed(Script::new(), json!({})).await;
    let pid = bridge.health()[0].pid.expect("a relay waits");
    assert!(is_running(pid) && pid != std::process::id());
    let confinement = bridge.confinement("s").expect("it is confined");
    assert!(!serde_json::to_value(&confinement).unwrap().is_null());
    for n in 0..3 {
        // Numbers keep their spelling in both directions.
        let answer = call(&bridge, "s:x", &format!(r#"{{"n":{n}.0}}"#)).await.unwrap();
        assert_eq!(text(&answer), format!(r#"{{"n":{n}.0}}"#));
    }
    assert_eq!(server.methods().iter().filter(|method| *method == "tools/call").count(), 3);
    terminate(&bridge).await;
    assert!(!is_running(pid));
}

// req: SB-01
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relay_sends_headers_and_ends_every_session() {
    let settings = json!({ "headers": { "Authorization": "Bearer of-the-relay" } });
    let (bridge, server) = relayed(Script::new().session("the-session"), settings).await;
    call(&bridge, "s:x", "{}").await.unwrap();
    call(&bridge, "s:x", "{}").await.unwrap();
    terminate(&bridge).await;
    let requests = server.requests();
    assert!(requests.iter().all(|request| request.header("authorization") == Some("Bearer of-the-relay")));
    let sessions = server.methods().iter().filter(|method| *method == "initialize").count();
    let ended = requests.iter().filter(|request| request.method == "DELETE");
    let ended: Vec<_> = ended.map(|request| request.header("mcp-session-id").unwrap_or_default()).collect();
    // The session that listed the tools made the first call. There is one for the second, and one for each waiting relay.
    assert_eq!(ended, vec!["the-session"; sessions]);
    assert!(sessions >= 2);
}

// req: SB-01
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn progress_extends_deadline_of_relayed_call() {
    // All steps together take longer than the timeout, each one much less.
    let slow = (0..6).fold(Behaviour::echo().as_sse(), |behaviour, _| {
        behaviour.after_delay(Duration::from_secs(1)).after_progress(1)
    });
    let (bridge, _server) = relayed(tool_with([slow]), json!({ "timeoutMs": 5_000 })).await;
    assert_eq!(text(&call(&bridge, "s:x", r#"{"a":1}"#).await.unwrap()), r#"{"a":1}"#);
    terminate(&bridge).await;
}

// req: SB-01
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timed_out_call_is_cancelled_at_remote_server() {
    let (bridge, server) = relayed(tool_with([Behaviour::silence().as_sse()]), json!({})).await;
    let error = call_with_timeout(&bridge, "s:x", "{}", Some(Duration::from_secs(3))).await.unwrap_err();
    assert_eq!((&error["code"], &error["delivery"]), (&json!("PROVIDER_TIMEOUT"), &json!("unknown")));
    let server = tokio::task::spawn_blocking(move || {
        let sent = server.wait_for("tools/call");
        let cancelled = server.wait_for("notifications/cancelled");
        let id = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        assert_eq!(id(&cancelled)["params"]["requestId"], id(&sent)["id"]);
        server
    })
    .await
    .unwrap();
    terminate(&bridge).await;
    drop(server);
}

// req: SB-01
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn error_of_remote_server_keeps_code_and_data() {
    let fault =
        json!({ "code": -32042, "message": "not \"today\"", "data": { "why": [1.5, null], "ü": "\n" } });
    // Also if it spans several lines.
    for text in [fault.to_string(), format!("{fault:#}")] {
        let (bridge, _server) = relayed(tool_with([Behaviour::error(text)]), json!({})).await;
        let error = call(&bridge, "s:x", "{}").await.unwrap_err();
        assert_eq!(
            (&error["code"], &error["delivery"]),
            (&json!("PROVIDER_ERROR"), &json!("answered")),
            "{error:#}"
        );
        assert_eq!(error["providerError"], fault);
        terminate(&bridge).await;
    }
}

// req: SB-01, SB-03
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failure_of_remote_server_fails_one_call_only() {
    let (bridge, server) = relayed(Script::new(), json!({ "headers": { "X-Key": "very-secret-key" } })).await;
    server.fail_next("tools/call", HttpFault::status(503, "very-secret-key is busy"));
    let error = call(&bridge, "s:x", "{}").await.unwrap_err();
    assert!(error.to_string().contains("503") && !error.to_string().contains("very-secret"), "{error:#}");
    call(&bridge, "s:x", "{}").await.unwrap();
    terminate(&bridge).await;
}

// req: SB-01, SB-04
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relay_is_confined() {
    let (bridge, _server) = relayed(Script::new(), json!({})).await;
    let relay = bridge.health()[0].pid.unwrap();
    let status = fs::read_to_string(format!("/proc/{relay}/status")).unwrap();
    for line in ["NoNewPrivs:\t1", "Seccomp:\t2"] {
        assert!(status.contains(line), "no `{line}` in {status}");
    }
    terminate(&bridge).await;
}

/// Replaces the relay program, and tries what a compromised relay could try.
const COMPROMISED: &str = r#"#!/bin/sh
[ "$1" = __jail ] && exec BASCULE "$@"
exec >&2
echo "begin"
cat FOLDER/secret; ls FOLDER; ls "$HOME/" && echo "the home is open"
echo x > FOLDER/written; echo x > /tmp/bascule-relay-was-here
exit 3
"#;

// req: SB-01, SB-04
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relay_cannot_read_secrets_or_write() {
    let [home, folder] = [(); 2].map(|()| tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap());
    fs::write(home.path().join("secret"), "the-secret-itself").unwrap();
    let jailer = folder.path().join("relay");
    let script = COMPROMISED.replace("BASCULE", program()).replace("FOLDER", home.path().to_str().unwrap());
    fs::write(&jailer, script).unwrap();
    fs::set_permissions(&jailer, fs::Permissions::from_mode(0o755)).unwrap();
    // A script may read its project: without a mark of its own, that is the checkout, which may hold the build folder.
    fs::write(folder.path().join("package.json"), "{}").unwrap();
    let servers = json!({ "s": { "url": "http://127.0.0.1:9/mcp", "isolation": "per-call" } });
    let settings = settings(&json!({ "mcpServers": servers }));
    let config = BridgeConfig { jailer: Some(jailer), ..BridgeConfig::new(settings) };
    let bridge = within_timeout(McpBridgeAdapter::init(config)).await.unwrap();
    let failure = bridge.start_failure("s").unwrap();
    let stderr = failure.stderr.as_deref().unwrap();
    assert!(stderr.contains("begin") && failure.exit.as_deref() == Some("exit code 3"), "{failure:?}");
    assert!(!stderr.contains("the-secret-itself") && !stderr.contains("the home is open"), "{stderr}");
    assert!(stderr.matches("ermission denied").count() >= 4, "{stderr}");
    assert!(!home.path().join("written").exists());
    terminate(&bridge).await;
}
