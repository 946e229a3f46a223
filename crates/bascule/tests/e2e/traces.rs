//! Every call leaves one span, from every face, and it is there after a restart, a crash, or a problem with the disk.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::fleet::serve_process::ServeProcess;
use crate::gateway::client::Client;
use crate::support::{Bascule, CommandOutput, demo_server, eventually, program, with_settings};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

fn traces(bascule: &Bascule, options: &[&str]) -> Vec<Value> {
    let (code, document) = bascule.run_json(&[&["traces", "--limit", "100000"], options].concat());
    assert_eq!(code, 0, "{document:#}");
    document.as_array().unwrap().clone()
}

/// The spans of a running bridge, once there are this many.
fn wait_for_traces(bascule: &Bascule, count: usize) -> Vec<Value> {
    let mut found = Vec::new();
    eventually(&format!("{count} spans are written"), || {
        found = traces(bascule, &[]);
        found.len() >= count
    });
    found
}

fn store_files(bascule: &Bascule) -> Vec<PathBuf> {
    let folder = bascule.data_folder().join("bascule/traces");
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn config(servers: &Value, traces: &Value) -> String {
    json!({ "mcpServers": servers, "bascule": { "traces": traces } }).to_string()
}

fn servers() -> Value {
    json!({
        "clock": with_settings(demo_server("clock"), json!({ "deniedTools": ["convert"] })),
        "counter": with_settings(demo_server("counter"), json!({ "limits": { "ratePerSecond": 0.001 } })),
        "notes": with_settings(demo_server("notes"), json!({ "deniedTools": ["*"] })),
    })
}

fn now() -> &'static str {
    r#"{"timezone":"UTC"}"#
}

// req: TR-01
#[test]
fn command_line_records_calls_and_their_refusals() {
    let bascule = Bascule::with_servers(servers());
    bascule.call("clock:now", now());
    bascule.call_error("clock:convert", "{}");
    bascule.call_error("clock:nothing", "{}");
    bascule.call_error("clock:now", r#"{"timezone":7}"#);
    bascule.call_error("nowhere:x", "{}");
    let spans = traces(&bascule, &[]);
    let fields =
        |span: &Value| format!("{} {} {}", span["tool"], span["outcome"], span["code"]).replace('"', "");
    let listed: Vec<String> = spans.iter().map(fields).collect();
    assert_eq!(
        listed,
        [
            "nowhere:x error TOOL_NOT_FOUND",
            "clock:now error INVALID_INPUT",
            "clock:nothing error TOOL_NOT_FOUND",
            "clock:convert error POLICY_DENIED",
            "clock:now ok null"
        ]
    );
    let call = &spans[4];
    assert_eq!(
        (&call["kind"], &call["face"], &call["client"]),
        (&json!("call"), &json!("cli"), &Value::Null)
    );
    assert_eq!(
        (&call["attempts"], &call["delivery"], &call["isolation"]),
        (&json!(1), &json!("answered"), &json!("shared"))
    );
    assert_eq!(call["argumentBytes"], now().len());
    assert!(
        call["resultBytes"].as_u64().unwrap() > 50 && call["durationMs"].as_f64().unwrap() > 0.0,
        "{call}"
    );
    assert!(call["startedAt"].as_str().unwrap().ends_with('Z') && call["arguments"].is_null(), "{call}");
    assert_eq!(traces(&bascule, &["--failed"]).len(), 4);
    assert_eq!(traces(&bascule, &["--tool", "now", "--since", "1h"]).len(), 2);
    assert_eq!(traces(&bascule, &["--server", "nowhere"]).len(), 1);
    assert_eq!(traces(&bascule, &["--slow", "3600000"]).len(), 0);
    let (_, stats) = bascule.run_json(&["stats", "--tool", "clock:now"]);
    assert_eq!(
        (&stats["tools"][0]["calls"], &stats["tools"][0]["errors"]),
        (&json!(2), &json!(1)),
        "{stats}"
    );
    assert_eq!(stats["dropped"], 0);
    let none = bascule.run(&["traces", "--tool", "clock:other"]);
    assert!(none.code == Some(0) && none.stderr.contains("no recorded call matches"), "{none:?}");
}

// req: TR-01, BR-06
#[test]
fn script_is_the_parent_of_its_calls() {
    let bascule = Bascule::with_servers(servers());
    let code = "await clock.now({ timezone: 'UTC' });
        const codes = [];
        for (const tool of ['clock:convert', 'clock:nothing', 'nowhere:x']) {
            try { await bascule.call(tool + '', {}) } catch (error) { codes.push(error.code) }
        }
        try { await clock.now(JSON.parse('7')) } catch (error) { codes.push(error.code) }
        return codes";
    let ran = bascule.run_with_input(&["run", "-", "--json"], code).document();
    let expected = json!(["POLICY_DENIED", "TOOL_NOT_FOUND", "TOOL_NOT_FOUND", "INVALID_INPUT"]);
    assert_eq!(ran["result"], expected, "{ran:#}");
    assert_eq!(ran["traces"].as_array().unwrap().len(), 10, "refused calls have traces too: {ran:#}");
    let spans = traces(&bascule, &[]);
    let script = spans.iter().find(|span| span["kind"] == "script").unwrap();
    assert_eq!(
        (&script["face"], &script["outcome"], &script["script"]),
        (&json!("cli"), &json!("ok"), &json!("script.ts"))
    );
    let calls: Vec<&Value> = spans.iter().filter(|span| span["kind"] == "call").collect();
    assert_eq!(calls.len(), 5, "{spans:#?}");
    for call in &calls {
        assert_eq!((&call["face"], &call["parentSpanId"]), (&json!("script"), &script["spanId"]));
        assert_eq!(call["traceId"], script["traceId"]);
    }
    // Oldest first.
    let codes: Vec<&Value> = calls.iter().rev().map(|call| &call["code"]).skip(1).collect();
    assert_eq!(json!(codes), expected);
    let shown = bascule.run(&["trace", script["traceId"].as_str().unwrap()]);
    for part in ["script script.ts", "  clock:now", "✗ POLICY_DENIED", "is denied by the configuration"] {
        assert!(shown.stdout.contains(part), "{part}: {shown:?}");
    }
    let by_span = bascule.run_json(&["trace", &script["spanId"].as_str().unwrap()[..10]]);
    assert_eq!((by_span.0, by_span.1.as_array().unwrap().len()), (0, 6));
    assert_eq!(bascule.run(&["trace", "nothing-like-this"]).code, Some(2));
}

// req: TR-01
#[test]
fn script_that_is_refused_before_it_runs_leaves_its_refused_call() {
    let bascule = Bascule::with_servers(servers());
    for (code, tool, expected) in [
        ("await clock.convert({})", "clock:convert", "POLICY_DENIED"),
        ("await clock.nothing({})", "clock:nothing", "TOOL_NOT_FOUND"),
        // All tools of this server are denied, and the script spells this one in its own way.
        ("await mcp.notes.addNote({})", "notes:add_note", "POLICY_DENIED"),
    ] {
        let ran = bascule.run_with_input(&["run", "-", "--json"], code).document();
        assert_eq!(ran["error"]["code"], expected, "{ran:#}");
        let spans = traces(&bascule, &[]);
        assert_eq!((&spans[0]["kind"], &spans[0]["code"]), (&json!("script"), &json!(expected)));
        assert_eq!((&spans[1]["kind"], &spans[1]["code"]), (&json!("call"), &json!(expected)));
        assert_eq!(spans[1]["tool"], tool);
        assert_eq!(spans[1]["parentSpanId"], spans[0]["spanId"]);
    }
}

/// Calls every face makes in [`refused_calls_leave_one_event_and_one_span`].
fn call_every_face(bridge: &ServeProcess) {
    let all = Client::connect(bridge.address(), "/mcp");
    let alone = Client::connect(bridge.address(), "/servers/clock/mcp");
    let call = |client: &Client, id: &str, tool: &str, arguments: Value| {
        let meta = json!({ "bascule/correlationId": id });
        client.request("tools/call", &json!({ "name": tool, "arguments": arguments, "_meta": meta }));
    };
    for (client, face, prefix) in [(&all, "all", "clock__"), (&alone, "alone", "")] {
        call(client, &format!("{face}-denied"), &format!("{prefix}convert"), json!({}));
        call(client, &format!("{face}-unknown"), &format!("{prefix}nothing"), json!({}));
        call(client, &format!("{face}-invalid"), &format!("{prefix}now"), json!({ "timezone": 7 }));
    }
    call(&all, "all-nowhere", "nowhere__x", json!({}));
    call(&all, "all-unnamed", "", json!({}));
    // Other decoders may take the second name.
    let ambiguous = r#"{"name":"now","Name":"x","_meta":{"bascule/correlationId":"alone-ambiguous"}}"#;
    alone.send_request("1", "tools/call", ambiguous).last_message();
    call(&all, "all-first", "counter__read", json!({}));
    call(&all, "all-limited", "counter__read", json!({}));
    for (id, tool, arguments) in [
        ("cli-denied", "clock:convert", "{}"),
        ("cli-unknown", "clock:nothing", "{}"),
        ("cli-invalid", "clock:now", r#"{"timezone":7}"#),
        ("cli-limited", "counter:read", "{}"),
    ] {
        bridge.bascule.run(&["call", tool, arguments, "--correlation-id", id]);
    }
    let code = "for (const tool of ['clock:convert', 'clock:nothing', 'notes:addNote', 'nowhere:x', 'counter:read']) {
        try { await bascule.call(tool + '', {}) } catch {} }
        try { await clock.now({ timezone: JSON.parse('7') }) } catch {}";
    call(&all, "script", "execute_code", json!({ "code": code }));
}

// req: TR-01, BR-07
#[test]
fn refused_calls_leave_one_event_and_one_span() {
    let bridge = ServeProcess::start(servers());
    bridge.bascule.call("clock:now", now());
    call_every_face(&bridge);
    let expected = [
        ("all-denied", "POLICY_DENIED"),
        ("all-unknown", "TOOL_NOT_FOUND"),
        ("all-invalid", "INVALID_INPUT"),
        ("all-nowhere", "TOOL_NOT_FOUND"),
        ("all-unnamed", "INVALID_INPUT"),
        ("all-limited", "RATE_LIMITED"),
        ("alone-denied", "POLICY_DENIED"),
        ("alone-unknown", "TOOL_NOT_FOUND"),
        ("alone-invalid", "INVALID_INPUT"),
        ("alone-ambiguous", "INVALID_INPUT"),
        ("cli-denied", "POLICY_DENIED"),
        ("cli-unknown", "TOOL_NOT_FOUND"),
        ("cli-invalid", "INVALID_INPUT"),
        ("cli-limited", "RATE_LIMITED"),
        ("script-refused-1", "POLICY_DENIED"),
        ("script-refused-2", "TOOL_NOT_FOUND"),
        ("script-refused-3", "POLICY_DENIED"),
        ("script-refused-4", "TOOL_NOT_FOUND"),
        ("script-1", "RATE_LIMITED"),
        ("script-2", "INVALID_INPUT"),
    ];
    // The first two calls and the script itself.
    let spans = wait_for_traces(&bridge.bascule, expected.len() + 3);
    assert_eq!(spans.len(), expected.len() + 3, "{spans:#?}");
    let of = |id: &str| -> Vec<&Value> { spans.iter().filter(|span| span["correlationId"] == id).collect() };
    let events = bridge.events();
    let ids: Vec<&Value> = spans.iter().map(|span| &span["correlationId"]).collect();
    assert!(ids.contains(&&json!("script-2")), "{ids:?}");
    let mut told: Vec<Value> = Vec::new();
    while told.iter().filter(|event| event["correlationId"] == "script-2").count() == 0 {
        told.push(
            events.find_json(|event| event["type"].as_str().unwrap().contains(".tool."))["body"].clone(),
        );
    }
    for (id, code) in expected {
        let own = of(id);
        assert_eq!((own.len(), &own[0]["code"]), (1, &json!(code)), "{id}: {own:?}");
        let events: Vec<_> = told.iter().filter(|event| event["correlationId"] == id).collect();
        assert_eq!((events.len(), &events[0]["code"]), (1, &json!(code)), "{id}: {events:?}");
        assert_eq!(own[0]["attempts"], 0, "{id}");
    }
    let tools = ["all-unnamed", "alone-ambiguous", "script-refused-3", "script-refused-4"];
    let tools = tools.map(|id| of(id)[0]["tool"].as_str().unwrap());
    assert_eq!(tools, ["bascule:unnamed", "clock:now", "notes:add_note", "nowhere:x"]);
    let client = &of("all-denied")[0]["client"];
    assert_eq!((&client["name"], client["session"].as_str().unwrap().len()), (&json!("t"), 12), "{client}");
}

// req: TR-01, BR-06
#[test]
fn clients_trace_is_continued_and_survives_a_restart() {
    let mut bridge = ServeProcess::start(servers());
    let client = Client::connect(bridge.address(), "/mcp");
    let meta = json!({ "traceparent": format!("00-{TRACE}-{PARENT}-01") });
    let arguments = json!({ "timezone": "UTC" });
    client.request("tools/call", &json!({ "name": "clock__now", "arguments": arguments, "_meta": meta }));
    let code = json!({ "code": "await clock.now({ timezone: 'UTC' })" });
    client.request("tools/call", &json!({ "name": "execute_code", "arguments": code, "_meta": meta }));
    bridge.bascule.call("clock:now", now());
    let before = wait_for_traces(&bridge.bascule, 4);
    assert_eq!((&before[3]["traceId"], &before[3]["parentSpanId"]), (&json!(TRACE), &json!(PARENT)));
    let script = before.iter().find(|span| span["kind"] == "script").unwrap();
    assert_eq!((&script["traceId"], &script["parentSpanId"]), (&json!(TRACE), &json!(PARENT)));
    let call = before.iter().find(|span| span["face"] == "script").unwrap();
    assert_eq!((&call["traceId"], &call["parentSpanId"]), (&json!(TRACE), &script["spanId"]));
    bridge.signal("TERM");
    bridge.wait_for_exit();
    assert_eq!(traces(&bridge.bascule, &[]), before, "no bridge runs");
    bridge.start_again();
    assert_eq!(traces(&bridge.bascule, &[]), before);
    let (_, otlp) = bridge.bascule.run_json(&["traces", "--otlp", "--tool", "clock:now"]);
    let exported = otlp["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap();
    assert_eq!(exported.len(), 3);
    assert!(
        exported.iter().any(|span| span["parentSpanId"] == PARENT && span["traceId"] == TRACE),
        "{otlp:#}"
    );
}

// req: TR-01
#[test]
fn follow_shows_calls_as_they_end() {
    let bridge = ServeProcess::start(servers());
    bridge.bascule.call("clock:now", now());
    let lines = bridge.follow(&["traces", "--follow", "--json"]);
    lines.find_json(|span| span["outcome"] == "ok");
    bridge.bascule.call_error("clock:nothing", "{}");
    let span = lines.find_json(|span| span["outcome"] == "error");
    assert_eq!(span["tool"], "clock:nothing");
}

// req: TR-01
#[test]
fn killed_bridge_loses_the_last_calls_and_no_written_span() {
    /// Far more than the calls of the last 100 ms, which are not written yet.
    const MAX_LOST: usize = 500;
    let mut bridge = ServeProcess::start(json!({ "clock": demo_server("clock") }));
    for _ in 0..2 {
        let client = Client::connect(bridge.address(), "/mcp");
        let answered = AtomicUsize::new(0);
        let before = traces(&bridge.bascule, &[]).len();
        let seen = std::thread::scope(|scope| {
            // The bridge is killed in the middle of these.
            let calls = scope.spawn(|| {
                for _ in 0..100_000 {
                    client.call("clock__now", &json!({ "timezone": "UTC" }));
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
            eventually("many calls are answered", || answered.load(Ordering::Relaxed) >= 2 * MAX_LOST);
            let seen = traces(&bridge.bascule, &[]).len();
            bridge.signal("KILL");
            assert!(calls.join().is_err(), "the bridge is gone");
            seen
        });
        bridge.wait_for_exit();
        let (after, answered) = (traces(&bridge.bascule, &[]).len(), answered.into_inner());
        // The call that was under way may be recorded too.
        let expected = (before + answered - MAX_LOST).max(seen)..=before + answered + 1;
        assert!(expected.contains(&after), "{after} of {expected:?}");
        bridge.start_again();
        let client = Client::connect(bridge.address(), "/mcp");
        client.call("clock__now", &json!({ "timezone": "UTC" }));
        wait_for_traces(&bridge.bascule, after + 1);
    }
    let is_damaged = |file: &PathBuf| file.to_string_lossy().contains("damaged");
    assert!(!store_files(&bridge.bascule).iter().any(is_damaged));
}

fn warnings(output: &CommandOutput) -> usize {
    output.stderr.matches("could not write traces").count()
}

// req: TR-01
#[test]
fn unusable_folder_stops_tracing_and_not_calling() {
    let (clock, unusable) =
        (json!({ "clock": demo_server("clock") }), json!({ "path": "/proc/bascule-traces" }));
    let bascule = Bascule::with_text(&config(&clock, &unusable));
    let output = bascule.run(&["call", "clock:now", now()]);
    assert_eq!((output.code, warnings(&output)), (Some(0), 1), "{output:?}");
    let bridge = ServeProcess::start_with_config(&config(&clock, &unusable), &[]);
    (0..5).for_each(|_| drop(bridge.bascule.call("clock:now", now())));
    eventually("all spans are dropped", || bridge.status()["traces"]["dropped"].as_u64() >= Some(5));
    assert!(bridge.status()["traces"]["stopped"].is_string());
    assert_eq!(bridge.stderr().matches("could not write traces").count(), 1, "{}", bridge.stderr());
}

// req: TR-01
#[test]
fn file_that_may_not_grow_stops_tracing_and_not_calling() {
    let bascule = Bascule::with_servers(json!({ "clock": demo_server("clock") }));
    bascule.call("clock:now", now());
    // No file may grow beyond 30 kB. A write fails like one on a full disk, if the signal is ignored.
    let limited = "trap '' XFSZ; ulimit -f 60; exec \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", limited, "sh", program(), "call", "clock:now", now(), "--config", "mcp.json"]);
    command.current_dir(bascule.folder()).stdin(Stdio::null());
    for name in ["XDG_DATA_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"] {
        command.env(name, bascule.data_folder());
    }
    let output = CommandOutput::from(command.output().unwrap());
    assert_eq!((output.code, warnings(&output)), (Some(0), 1), "{output:?}");
    bascule.call("clock:now", now());
    assert_eq!(traces(&bascule, &[]).len(), 2);
}

/// A bridge whose traces are on a file system of 16 MB of its own.
struct SmallDisk {
    bridge: ServeProcess,
    /// Enters the mount namespace of the bridge.
    enter: Vec<String>,
}

impl SmallDisk {
    /// Mounts it with this further option, as root or in a user namespace.
    fn start(option: &str) -> Self {
        let folder = "\"$XDG_STATE_HOME/bascule/traces\"";
        let mount =
            format!("mkdir -p {folder} && mount -t tmpfs -o size=16m,mode=700,{option} none {folder}");
        let text = json!({ "mcpServers": { "clock": demo_server("clock") } }).to_string();
        let before = [&["unshare", "-m"][..], &["unshare", "-rm"]].into_iter().find(|before| {
            let probe =
                Bascule::with_text(&text).command_prepared_by(before, &mount, &["--version"]).output();
            probe.is_ok_and(|output| output.status.success())
        });
        let before = before.expect("cannot mount: run as root or enable user namespaces");
        let bridge = ServeProcess::start_prepared_by(&text, before, &mount);
        let enter = format!("nsenter -m -t {}", bridge.pid());
        let user = if before.contains(&"-rm") { " -U --preserve-credentials" } else { "" };
        let enter = format!("{enter}{user}").split(' ').map(str::to_owned).collect();
        Self { bridge, enter }
    }

    /// Runs a line of the shell in the folder of the traces. Returns its output.
    fn shell(&self, line: &str) -> String {
        let folder = self.bridge.bascule.data_folder().join("bascule/traces");
        let line = format!("cd '{}' && {line}", folder.display());
        let output =
            Command::new(&self.enter[0]).args(&self.enter[1..]).args(["sh", "-c", &line]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn traces(&self) -> Value {
        self.bridge.status()["traces"].clone()
    }

    /// Calls until the store has stopped, or works again. Every call must succeed.
    fn call_until(&self, is_stopped: bool) {
        eventually(&format!("writing has stopped: {is_stopped}"), || {
            self.bridge.bascule.call("clock:now", now());
            self.traces()["stopped"].is_string() == is_stopped
        });
    }

    /// Checks that the trouble stops tracing alone, and that tracing goes on after its end.
    fn check_trouble(&self, end: &str) {
        self.call_until(true);
        assert!(self.traces()["dropped"].as_u64() > Some(0));
        self.shell(end);
        self.call_until(false);
        let written = self.traces()["written"].as_u64();
        self.bridge.bascule.call("clock:now", now());
        eventually("further calls are written", || self.traces()["written"].as_u64() > written);
        let stderr = self.bridge.stderr();
        assert_eq!(stderr.matches("calls go on without them").count(), 1, "{stderr}");
        let files = self.shell("ls");
        assert!(files.contains(".db") && !files.contains("damaged"), "{files}");
    }
}

// req: TR-01
#[test]
fn full_disk_stops_tracing_and_not_calling() {
    let disk = SmallDisk::start("rw");
    disk.bridge.bascule.call("clock:now", now());
    eventually("the first call is written", || disk.traces()["written"].as_u64() >= Some(1));
    disk.shell("cat /dev/zero > filler; true");
    assert!(disk.shell("df . | tail -1").contains(" 100% "), "{}", disk.shell("df ."));
    disk.check_trouble("rm filler");
}

// req: TR-01
#[test]
fn read_only_folder_stops_tracing_and_not_calling() {
    let disk = SmallDisk::start("ro");
    disk.check_trouble("mount -o remount,rw .");
}

// req: TR-01
#[test]
fn damaged_file_is_set_aside_with_a_message() {
    let bascule = Bascule::with_servers(json!({ "clock": demo_server("clock") }));
    bascule.call("clock:now", now());
    let file = store_files(&bascule)[0].clone();
    // The write-ahead log alone would repair it.
    let others = store_files(&bascule).into_iter().filter(|other| *other != file);
    others.for_each(|other| fs::remove_file(other).unwrap());
    fs::write(&file, "no database any more, but long enough to be read as one").unwrap();
    let output = bascule.run(&["call", "clock:now", now()]);
    assert_eq!(output.code, Some(0));
    assert!(output.stderr.contains("are damaged") && output.stderr.contains(".damaged-"), "{output:?}");
    assert_eq!(traces(&bascule, &[]).len(), 1);
    assert!(store_files(&bascule).iter().any(|file| file.to_string_lossy().contains(".db.damaged-")));
}

// req: TR-01
#[test]
fn two_bridges_record_in_one_file() {
    let bridge = ServeProcess::start(json!({ "clock": demo_server("clock") }));
    let client = Client::connect(bridge.address(), "/mcp");
    std::thread::scope(|scope| {
        scope.spawn(|| (0..300).for_each(|_| drop(client.call("clock__now", &json!({ "timezone": "UTC" })))));
        scope.spawn(|| {
            for _ in 0..5 {
                let (code, _) = bridge.bascule.run_json(&["call", "clock:now", now(), "--no-daemon"]);
                assert_eq!(code, 0);
            }
        });
    });
    let spans = wait_for_traces(&bridge.bascule, 305);
    let by = |face: &str| spans.iter().filter(|span| span["face"] == face).count();
    assert_eq!((by("mcp"), by("cli")), (300, 5));
}

// req: TR-01
#[test]
fn captured_content_has_no_secrets() {
    let counter = json!({ "counter": demo_server("counter") });
    let bascule = Bascule::with_text(&config(&counter, &json!({ "capture": "all" })));
    bascule.call("counter:increment", r#"{"by":2,"token":"hunter2-hunter2"}"#);
    let span = &traces(&bascule, &[])[0];
    assert_eq!(span["arguments"], json!({ "by": 2, "token": "***" }));
    assert!(span["result"]["content"].is_array(), "{span}");
    for file in store_files(&bascule) {
        assert!(
            !String::from_utf8_lossy(&fs::read(&file).unwrap()).contains("hunter2"),
            "{}",
            file.display()
        );
    }
}

// req: TR-01
#[test]
fn tracing_that_is_off_leaves_no_file() {
    let clock = json!({ "clock": demo_server("clock") });
    let bascule = Bascule::with_text(&config(&clock, &json!({ "off": true })));
    bascule.call("clock:now", now());
    assert_eq!(traces(&bascule, &[]), Vec::<Value>::new());
    assert!(!bascule.data_folder().join("bascule/traces").exists());
    for command in [&["traces"][..], &["stats"], &["graph"], &["logs", "clock"]] {
        let output = bascule.run(command);
        assert!(
            output.code == Some(0) && output.stderr.contains("`bascule.traces.off`"),
            "{command:?}: {output:?}"
        );
    }
}

// req: TR-01
#[test]
fn shows_the_stderr_of_a_healthy_server() {
    let script = "echo 'ready with s3cret-value' >&2; exec \"$0\" clock";
    let entry = json!({ "command": "sh", "args": ["-c", script, crate::support::demo_program()], "sandbox": "off",
        "env": { "KEY": "s3cret-value" } });
    let bascule = Bascule::with_server("noisy", entry);
    bascule.call("noisy:now", now());
    let (code, lines) = bascule.run_json(&["logs", "noisy"]);
    assert_eq!((code, lines.as_array().unwrap().len()), (0, 1), "{lines}");
    assert_eq!((&lines[0]["source"], &lines[0]["text"]), (&json!("stderr"), &json!("ready with ***")));
    assert!(bascule.run(&["logs", "noisy"]).stdout.contains("stderr | ready with ***"));
    for options in [&["logs", "nosy"][..], &["logs", "nosy", "--follow"]] {
        let unknown = bascule.run(options);
        assert!(unknown.code == Some(2) && unknown.stderr.contains("noisy"), "{unknown:?}");
    }
    let none = bascule.run(&["logs", "noisy", "--since", "2999-01-01"]);
    assert!(none.stderr.contains("no lines of `noisy` are that new"), "{none:?}");
}

// req: TR-01
#[test]
fn following_logs_goes_on_in_a_new_file() {
    let script = "for i in $(seq 400); do echo first >&2; done
        while sleep 0.1; do i=$((i + 1)); echo tick $i >&2; done & exec \"$0\" clock";
    let entry =
        json!({ "command": "sh", "args": ["-c", script, crate::support::demo_program()], "sandbox": "off" });
    let bridge = ServeProcess::start(json!({ "noisy": entry }));
    let lines = bridge.follow(&["logs", "noisy", "--follow", "--json"]);
    lines.find_json(|line| line["text"].as_str().unwrap().starts_with("tick"));
    store_files(&bridge.bascule).iter().for_each(|file| fs::remove_file(file).unwrap());
    let mut recorded = Value::Null;
    eventually("lines are in a new file", || {
        let output = bridge.bascule.run(&["logs", "noisy", "--json"]);
        recorded = serde_json::from_str(&output.stdout).unwrap_or_default();
        recorded[0]["text"].is_string()
    });
    assert_ne!(recorded[0]["text"], "first");
    lines.find_json(|line| *line == recorded[0]);
}
