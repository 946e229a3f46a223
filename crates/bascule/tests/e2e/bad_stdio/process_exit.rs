//! Servers that exit, are killed, stop answering or refuse to stop; their leftover processes and their environment.

use std::thread;

use bascule_testkit::{Behaviour, Script, ScriptedStdio};
use serde_json::{Value, json};

use super::{check, in_shell, scripted, scripted_with, tool_x};
use crate::embedded::{bridge, call, terminate};
use crate::support::{Bascule, eventually, is_running, with_settings};

const CRASHED: &str = "PROVIDER_CRASHED unknown true";

/// Error of a call during which `fault` happens.
fn call_with_fault(bascule: &Bascule, server: &ScriptedStdio, fault: impl FnOnce()) -> Value {
    thread::scope(|scope| {
        let calling = scope.spawn(|| bascule.call_error("s:x", "{}"));
        server.wait_for("tools/call");
        fault();
        calling.join().unwrap()
    })
}

// req: BR-05
// req: SB-03
// req: SB-06
#[test]
fn crash_error_has_exit_code_and_stderr() {
    let (bascule, _server) = scripted(tool_x([Behaviour::exit(3)]).stderr("out of cheese\n"));
    let error = bascule.call_error("s:x", "{}");
    check(&error, CRASHED, &["exit code 3"]);
    assert_eq!((&error["exit"], &error["stderr"]), (&json!("exit code 3"), &json!("out of cheese")));
    assert_eq!((&error["server"], &error["tool"]), (&json!("s"), &json!("s:x")));
    assert_eq!(error["attempts"], 1, "a call that may have run is not retried");
}

// req: BR-05
// req: SB-03
#[test]
fn crash_error_names_the_signal() {
    let error = scripted(tool_x([Behaviour::abort()])).0.call_error("s:x", "{}");
    check(&error, CRASHED, &["SIGABRT"]);
    assert_eq!(error["exit"], "signal 6, SIGABRT");
}

// req: BR-05
// req: SB-03
#[test]
fn killed_server_is_a_crash() {
    let (bascule, server) = scripted(tool_x([Behaviour::silence()]).stderr("busy\n"));
    let error = call_with_fault(&bascule, &server, || server.kill());
    check(&error, CRASHED, &["SIGKILL"]);
    assert_eq!((&error["exit"], &error["stderr"]), (&json!("signal 9, SIGKILL"), &json!("busy")));
}

// req: BR-05
#[test]
fn accepts_response_written_before_exit() {
    let bascule = Bascule::with_server("s", in_shell(r#"answer '{"content":[]}'; exit 1"#, "hasty"));
    assert_eq!(bascule.call("s:x", "{}"), json!({ "content": [] }));
}

// req: BR-10
#[tokio::test]
async fn call_fails_immediately_after_crash() {
    let server = ScriptedStdio::new(tool_x([Behaviour::exit(3)]).stderr("out of cheese\n"));
    let bridge = bridge(with_settings(server.entry(), json!({ "reconnectBackoffMs": 30_000 }))).await;
    check(&call(&bridge, "s:x", "{}").await.unwrap_err(), CRASHED, &[]);
    let error = call(&bridge, "s:x", "{}").await.unwrap_err();
    check(&error, "PROVIDER_UNAVAILABLE not_sent true", &["`s` is down", "exit code 3"]);
    assert_eq!(error["stderr"], "out of cheese");
    terminate(&bridge).await;
}

// req: BR-05
// req: SB-05
#[test]
fn stops_server_that_closes_stdout() {
    let bascule =
        Bascule::with_server("s", in_shell("echo $$ > ~/pid; read -r call; exec sleep 600 >&-", "sh"));
    let error = bascule.call_error("s:x", "{}");
    check(&error, "OUTCOME_UNKNOWN unknown false", &["closed its output"]);
    let pid = std::fs::read_to_string(bascule.file_of("s", "pid").unwrap()).unwrap().trim().parse().unwrap();
    assert!(!is_running(pid), "process {pid} still runs");
}

// req: BR-05
// req: CL-07
#[test]
fn cancels_unanswered_call_at_deadline() {
    let (bascule, server) = scripted_with(tool_x([Behaviour::silence()]), json!({ "timeoutMs": 300 }));
    let error = bascule.call_error("s:x", "{}");
    check(&error, "PROVIDER_TIMEOUT unknown true", &["s:x", "300 ms", "`timeoutMs`"]);
    let read = |part| serde_json::from_str::<Value>(&server.wait_for(part)).unwrap();
    let (called, cancelled) = (read("tools/call"), read("notifications/cancelled"));
    assert_eq!(cancelled["params"]["requestId"], called["id"]);
    let count = |method: &str| server.methods().iter().filter(|own| *own == method).count();
    assert_eq!((count("tools/call"), count("notifications/cancelled")), (1, 1));
}

// req: SB-05
// req: BR-11
#[test]
fn leaves_no_process_after_any_outcome() {
    let (long, late) = (json!({}), json!({ "timeoutMs": 300 }));
    let late_start = json!({ "startTimeoutMs": 5000 });
    let outcomes = [
        (tool_x([Behaviour::text("fine")]), &long, 0),
        (tool_x([Behaviour::silence()]), &late, 3),
        (tool_x([Behaviour::exit(1)]), &long, 3),
        (tool_x([Behaviour::text("fine")]).outlives_stdin(), &long, 0),
        (Script::new().on("initialize", [Behaviour::silence()]).outlives_stdin(), &late_start, 3),
        (Script::new().on("tools/list", [Behaviour::silence()]).outlives_stdin(), &late_start, 3),
    ];
    for (script, times, code) in outcomes {
        let (bascule, server) = scripted_with(script, times.clone());
        let output = bascule.run(&["call", "s:x"]);
        assert_eq!(output.code, Some(code), "{output:?}");
        let left: Vec<u32> = server.started().into_iter().filter(|pid| is_running(*pid)).collect();
        assert!(left.is_empty() && server.started().len() == 1, "{left:?} of {:?}", server.started());
    }
}

// req: SB-05
#[test]
fn stops_descendants_of_server() {
    let server = ScriptedStdio::new(tool_x([Behaviour::text("fine"), Behaviour::exit(1)]));
    let command = server.entry();
    // A wrapper such as `npx`: the server is its child, and another process runs beside it.
    let wrapper = r#"sleep 600 & echo $! >> ~/pids; "$@""#;
    let args = json!(["-c", wrapper, "sh", command["command"], command["args"][0], command["args"][1]]);
    let bascule = Bascule::with_server("s", json!({ "command": "sh", "args": args }));
    for code in [0, 3] {
        assert_eq!(bascule.run(&["call", "s:x"]).code, Some(code));
    }
    let siblings = std::fs::read_to_string(bascule.file_of("s", "pids").unwrap()).unwrap();
    let all: Vec<u32> = siblings.lines().map(|pid| pid.parse().unwrap()).chain(server.started()).collect();
    // These processes have no parent here that could wait for them, so their end is polled.
    eventually(&format!("none of {all:?} runs"), || !all.iter().any(|pid| is_running(*pid)));
}

// req: SB-04
#[test]
fn passes_only_safe_and_configured_variables() {
    const SAFE: [&str; 12] = [
        "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ", "TERM",
        "TMPDIR",
    ];
    // Settings of package managers and version managers, where the machine has any.
    const TOOLS: [&str; 13] = [
        "NPM_CONFIG_",
        "npm_config_",
        "PIP_",
        "UV_",
        "SSL_CERT_",
        "NODE_EXTRA_CA_CERTS",
        "REQUESTS_CA_BUNDLE",
        "XDG_CONFIG_DIRS",
        "PYENV_ROOT",
        "NVM_DIR",
        "PYTHONUSERBASE",
        "RUSTUP_HOME",
        "GIT_CONFIG_GLOBAL",
    ];
    let (server, folder) = (ScriptedStdio::new(tool_x([])), tempfile::tempdir().unwrap());
    let file = folder.path().join("environment");
    let command = server.entry();
    // `/proc` shows the initial environment, without what the shell adds.
    let script = r#"tr '\0' '\n' < /proc/$$/environ > "$0"; exec "$@""#;
    let args = json!(["-c", script, file, command["command"], command["args"][0]]);
    let env = json!({ "TOKEN": "${SOURCE}", "HOME": "/elsewhere" });
    let entry = json!({ "command": "sh", "args": args, "env": env, "cwd": folder.path() });
    let bascule = Bascule::with_server("s", entry).env("SOURCE", "hunter2").env("SECRET", "swordfish");
    bascule.call("s:x", "{}");
    let got = std::fs::read_to_string(file).unwrap();
    let names: Vec<&str> = got.lines().filter_map(|line| line.split('=').next()).collect();
    let is_of_tool = |name: &str| {
        TOOLS.iter().any(|prefix| name.starts_with(prefix)) || name.to_lowercase().ends_with("_proxy")
    };
    assert!(
        names.iter().all(|name| SAFE.contains(name) || is_of_tool(name) || *name == "TOKEN"),
        "{names:?}"
    );
    assert!(got.contains("TOKEN=hunter2\n") && names.contains(&"PATH"), "{names:?}");
    assert!(got.contains("HOME=/elsewhere\n"), "configured variables override inherited ones");
}

// req: SB-04
#[test]
fn never_prints_configured_variables() {
    let server = ScriptedStdio::new(tool_x([Behaviour::exit(1)]));
    let entry = with_settings(server.entry(), json!({ "env": { "TOKEN": "hunter2" } }));
    let bascule = Bascule::with_server("s", entry);
    for arguments in [&["call", "s:x", "-vvv"][..], &["check", "-vvv", "--json"], &["tools", "-vvv"]] {
        let output = bascule.run(arguments);
        assert!(!output.stdout.contains("hunter2") && !output.stderr.contains("hunter2"), "{output:?}");
    }
}
