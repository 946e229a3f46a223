//! The audit log has every call, shows every later change, and refuses calls that it cannot hold.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::confinement::hostile_server::{HostileServer, quoted, users};
use crate::fleet::held_server::HeldServer;
use crate::fleet::serve_process::{ServeProcess, spawn};
use crate::gateway::client::Client;
use crate::support::{
    Bascule, CommandOutput, demo_server, eventually, program, signal, wait_for_output, with_settings,
};

const NOW: &str = r#"{"timezone":"UTC"}"#;

fn config(servers: &Value) -> String {
    json!({ "mcpServers": servers, "bascule": { "audit": { "path": "log/audit.jsonl" } } }).to_string()
}

fn clock() -> Value {
    json!({ "clock": with_settings(demo_server("clock"), json!({ "deniedTools": ["convert"] })) })
}

fn log_file(bascule: &Bascule) -> PathBuf {
    bascule.folder().join("log/audit.jsonl")
}

/// The complete lines of the log.
fn lines(bascule: &Bascule) -> Vec<Value> {
    let text = fs::read_to_string(log_file(bascule)).unwrap();
    let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn kinds(lines: &[Value]) -> Vec<String> {
    let kind = |line: &Value| {
        let parts = [&line["kind"], &line["tool"], &line["outcome"], &line["code"]];
        let known = parts.iter().filter_map(|part| part.as_str());
        known.collect::<Vec<_>>().join(" ")
    };
    lines.iter().map(kind).collect()
}

fn verify(bascule: &Bascule) -> (i32, Value) {
    bascule.run_json(&["audit", "verify"])
}

// req: TR-01
#[test]
fn every_call_is_logged_and_refused_ones_too() {
    let bascule = Bascule::with_text(&config(&clock()));
    bascule.call("clock:now", NOW);
    bascule.call_error("clock:convert", "{}");
    bascule.call_error("clock:nothing", "{}");
    bascule.call_error("clock:now", r#"{"timezone":7}"#);
    bascule.call_error("nowhere:x", "{}");
    let code = "try { await bascule.call('clock:convert' + '', {}) } catch {}
        await clock.now({ timezone: 'Europe/Zurich' })";
    assert_eq!(bascule.run_with_input(&["run", "-"], code).code, Some(0));
    let lines = lines(&bascule);
    assert_eq!(
        kinds(&lines),
        [
            "chain",
            "begin now",
            "end now ok",
            "refused convert error POLICY_DENIED",
            "refused nothing error TOOL_NOT_FOUND",
            "refused now error INVALID_INPUT",
            "refused x error TOOL_NOT_FOUND",
            "refused convert error POLICY_DENIED",
            "begin now",
            "end now ok",
        ]
    );
    let (begin, end) = (&lines[1], &lines[2]);
    for member in ["traceId", "spanId", "correlationId", "face", "server", "argumentBytes"] {
        assert!(!begin[member].is_null() && begin[member] == end[member], "{member}: {begin} {end}");
    }
    assert_eq!(begin["argumentBytes"], NOW.len());
    assert_eq!((&end["delivery"], &end["attempts"]), (&json!("answered"), &json!(1)));
    assert!(end["durationMs"].as_f64() > Some(0.0) && end["resultBytes"].as_u64() > Some(10), "{end}");
    assert_eq!(lines[9]["face"], "script");
    let text = fs::read_to_string(log_file(&bascule)).unwrap();
    assert!(!text.contains("UTC") && !text.contains("Zurich"), "no values: {text}");
    assert_eq!(lines[0]["configuration"], json!(bascule.folder().canonicalize().unwrap().join("mcp.json")));
    let (code, checked) = verify(&bascule);
    assert_eq!((code, &checked["valid"], &checked["lines"]), (0, &json!(true), &json!(10)), "{checked}");
    for name in ["log/audit.jsonl", "log/audit.jsonl.head"] {
        let mode = fs::metadata(bascule.folder().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

// req: TR-01
#[test]
fn verify_names_the_changed_line() {
    let bascule = Bascule::with_text(&config(&clock()));
    bascule.call("clock:now", NOW);
    bascule.call_error("clock:nothing", "{}");
    let (file, text) = (log_file(&bascule), fs::read_to_string(log_file(&bascule)).unwrap());
    fs::write(&file, text.replace(r#""outcome":"ok""#, r#""outcome":"no""#)).unwrap();
    let (code, checked) = verify(&bascule);
    assert_eq!((code, &checked["valid"], &checked["fault"]["line"]), (1, &json!(false), &json!(3)));
    let shown = bascule.run(&["audit", "verify", "log/audit.jsonl"]);
    assert!(shown.code == Some(1) && shown.stdout.contains("audit.jsonl:3: its hash"), "{shown:?}");
    let end = text.trim_end().rfind('\n').unwrap() + 1;
    fs::write(&file, &text[..end]).unwrap();
    let (code, checked) = verify(&bascule);
    assert_eq!((code, &checked["fault"]["line"]), (1, &json!(4)), "{checked}");
    let error = bascule.call_error("clock:now", NOW);
    assert_eq!((&error["code"], &error["delivery"]), (&json!("POLICY_DENIED"), &json!("not_sent")));
    assert!(error["message"].as_str().unwrap().contains("its end was cut off"), "{error}");
    fs::write(&file, text).unwrap();
    bascule.call("clock:now", NOW);
    assert_eq!(verify(&bascule).0, 0);
}

// req: TR-01
#[test]
fn call_is_logged_before_it_is_sent_and_after_it_was_cancelled() {
    let held = HeldServer::new();
    let bascule = Bascule::with_text(&config(&json!({ "held": held.entry() })));
    let child = spawn(&bascule, &["call", "held:x"]);
    held.wait_for_call();
    assert_eq!(kinds(&lines(&bascule)), ["chain", "begin x"]);
    signal(child.id(), "INT");
    assert_eq!(wait_for_output(child).code, Some(130));
    assert_eq!(kinds(&lines(&bascule)), ["chain", "begin x", "end x error CANCELLED"]);
}

// req: TR-01
#[test]
fn two_bridges_continue_one_chain() {
    let bridge = ServeProcess::start_with_config(&config(&clock()), &[]);
    let client = Client::connect(bridge.address(), "/mcp");
    std::thread::scope(|scope| {
        scope.spawn(|| (0..200).for_each(|_| drop(client.call("clock__now", &json!({ "timezone": "UTC" })))));
        scope.spawn(|| {
            for _ in 0..4 {
                assert_eq!(bridge.bascule.run_json(&["call", "clock:now", NOW, "--no-daemon"]).0, 0);
                // Also while both write.
                assert_eq!(verify(&bridge.bascule).0, 0);
            }
        });
    });
    let (code, checked) = verify(&bridge.bascule);
    assert_eq!((code, &checked["lines"], &checked["uncounted"]), (0, &json!(409), &json!(0)), "{checked}");
    let lines = lines(&bridge.bascule);
    let mcp = lines.iter().find(|line| line["face"] == "mcp").unwrap();
    assert_eq!((&mcp["client"]["name"], &mcp["tool"]), (&json!("t"), &json!("now")), "{mcp}");
}

// req: TR-01
#[test]
fn killed_bridge_leaves_a_log_that_goes_on() {
    let mut bridge = ServeProcess::start_with_config(&config(&clock()), &[]);
    for _ in 0..3 {
        let client = Client::connect(bridge.address(), "/mcp");
        let before = lines(&bridge.bascule).len();
        std::thread::scope(|scope| {
            // The bridge is killed in the middle of these.
            let calls = scope.spawn(|| {
                let call = || client.call("clock__now", &json!({ "timezone": "UTC" }));
                (0..10_000).for_each(|_| drop(call()));
            });
            eventually("calls are logged", || lines(&bridge.bascule).len() > before + 50);
            bridge.signal("KILL");
            assert!(calls.join().is_err(), "the bridge is gone");
        });
        bridge.wait_for_exit();
        assert_eq!(verify(&bridge.bascule).0, 0);
        bridge.start_again();
    }
    // A write that the kernel did not finish.
    bridge.signal("KILL");
    bridge.wait_for_exit();
    let text = fs::read_to_string(log_file(&bridge.bascule)).unwrap();
    fs::write(log_file(&bridge.bascule), text + r#"{"seq":99,"kind":"beg"#).unwrap();
    let (code, checked) = verify(&bridge.bascule);
    assert_eq!((code, &checked["incomplete"]), (0, &json!(true)), "{checked}");
    bridge.start_again();
    bridge.bascule.call("clock:now", NOW);
    let (code, checked) = verify(&bridge.bascule);
    assert_eq!((code, &checked["incomplete"], &checked["interrupted"]), (0, &json!(false), &json!(1)));
    assert!(lines(&bridge.bascule).iter().any(|line| line["kind"] == "repair"));
}

// req: TR-01
#[test]
fn full_disk_refuses_calls() {
    let text = json!({ "mcpServers": clock(), "bascule": {
        "audit": { "path": "log/audit.jsonl", "fsync": true }, "traces": { "off": true } } });
    let bascule = Bascule::with_text(&text.to_string());
    bascule.call("clock:now", NOW);
    // A confined server cannot start if files must be tiny.
    let code = "for (let i = 0; i < 150; i++) try { await bascule.call('clock:nothing' + '', {}) } catch {}";
    assert_eq!(bascule.run_with_input(&["run", "-"], code).code, Some(0));
    let length = fs::metadata(log_file(&bascule)).unwrap().len();
    // No file may grow beyond this. A write fails like one on a full disk, if the signal is ignored.
    let limited = format!("trap '' XFSZ; ulimit -f {}; exec \"$@\"", length / 512);
    let words = ["-c", &limited, "sh", program(), "call", "clock:now", NOW, "--json"];
    let mut command = std::process::Command::new("sh");
    command.args(words).args(["--config", "mcp.json"]).current_dir(bascule.folder());
    for name in ["XDG_DATA_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"] {
        command.env(name, bascule.data_folder());
    }
    let output = CommandOutput::from(command.output().unwrap());
    let error = &output.document()["error"];
    assert_eq!((output.code, &error["code"]), (Some(3), &json!("POLICY_DENIED")), "{output:?}");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("audit log") && message.contains("could not be written"), "{message}");
    assert_eq!(fs::metadata(log_file(&bascule)).unwrap().len(), length, "no part of a line is left");
    bascule.call("clock:now", NOW);
    assert_eq!(verify(&bascule).0, 0);
}

// req: TR-01
#[test]
fn incomplete_line_stays_until_its_repair_can_be_written() {
    let text = json!({ "mcpServers": clock(), "bascule": {
        "audit": { "path": "log/audit.jsonl" }, "traces": { "off": true } } });
    let bascule = Bascule::with_text(&text.to_string());
    bascule.call_error("clock:nothing", "{}");
    let text = fs::read_to_string(log_file(&bascule)).unwrap() + r#"{"seq":9,"kind":"beg"#;
    fs::write(log_file(&bascule), &text).unwrap();
    // The log may not grow.
    let limit = format!("--fsize={}", text.len());
    let arguments = ["call", "clock:nothing", "{}"];
    let output =
        bascule.command_prepared_by(&["prlimit", &limit], "trap '' XFSZ", &arguments).output().unwrap();
    let output = CommandOutput::from(output);
    assert!(output.stderr.contains("the audit log cannot be written"), "{output:?}");
    assert_eq!(fs::read_to_string(log_file(&bascule)).unwrap(), text);
    bascule.call_error("clock:nothing", "{}");
    let (code, checked) = verify(&bascule);
    assert_eq!((code, &checked["interrupted"]), (0, &json!(1)), "{checked}");
}

// req: TR-01
#[test]
fn running_bridge_refuses_calls_while_the_disk_is_full_and_counts_lost_lines() {
    let text = json!({ "mcpServers": clock(), "bascule": {
        "audit": { "path": "log/audit.jsonl" }, "traces": { "off": true } } });
    // The soft limit alone, which can be raised again.
    let bridge = ServeProcess::start_with_ulimit(&text.to_string(), "-S -f 100 && trap '' XFSZ");
    let client = Client::connect(bridge.address(), "/mcp");
    let call = || client.call("clock__now", &json!({ "timezone": "UTC" })).to_string();
    eventually("the log is full", || call().contains("POLICY_DENIED"));
    assert!(call().contains("could not be written"));
    assert_eq!(verify(&bridge.bascule).0, 0);
    let full = lines(&bridge.bascule).len();
    let raised = std::process::Command::new("prlimit")
        .args(["--fsize=unlimited:unlimited", "--pid", &bridge.pid().to_string()])
        .status();
    assert!(raised.unwrap().success());
    assert!(!call().contains("POLICY_DENIED"));
    let lines = lines(&bridge.bascule);
    assert_eq!(kinds(&lines[full..]), ["lost", "begin now", "end now ok"]);
    assert!(lines[full]["lines"].as_u64() >= Some(2), "{}", lines[full]);
    assert_eq!(verify(&bridge.bascule).0, 0);
}

// req: TR-01
#[test]
fn unusable_log_refuses_calls_and_not_commands() {
    let text =
        json!({ "mcpServers": clock(), "bascule": { "audit": { "path": "/proc/bascule/audit.jsonl" } } });
    let bascule = Bascule::with_text(&text.to_string());
    assert_eq!(bascule.call_error("clock:now", NOW)["code"], "POLICY_DENIED");
    assert_eq!(bascule.run(&["tools"]).code, Some(0));
    assert_eq!(bascule.run(&["audit", "verify"]).code, Some(2));
}

// req: TR-01
#[test]
fn audit_that_is_off_leaves_no_file() {
    let bascule = Bascule::with_servers(clock());
    bascule.call("clock:now", NOW);
    assert!(!bascule.folder().join("log").exists());
    let output = bascule.run(&["audit", "verify"]);
    assert!(output.code == Some(2) && output.stderr.contains("has no `bascule.audit`"), "{output:?}");
}

// req: SB-04, TR-01
#[test]
fn server_cannot_access_the_log_in_its_own_folder() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({}));
        let mut config: Value = serde_json::from_slice(&fs::read(hostile.path("mcp.json")).unwrap()).unwrap();
        config["bascule"] = json!({ "audit": { "path": "work/audit.jsonl" } });
        fs::write(hostile.path("mcp.json"), config.to_string()).unwrap();
        hostile.expect_ok("print(1)");
        for name in ["work/audit.jsonl", "work/audit.jsonl.head"] {
            let file = quoted(&hostile.path(name));
            hostile.expect_denied(&format!("open({file}, 'rb').read()"));
            hostile.expect_denied(&format!("open({file}, 'ab').write(b'x')"));
            hostile.attempt(&format!("os.unlink({file})")).unwrap_err();
            let moved = quoted(&hostile.path("work/moved"));
            hostile.attempt(&format!("os.rename({file}, {moved})")).unwrap_err();
        }
    }
}
