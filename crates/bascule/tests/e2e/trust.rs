//! A configuration file that is found in the working folder is used after the user has trusted it.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::support::{
    Bascule, CommandOutput, children, demo_program, eventually, is_running, program, wait_for_output,
    with_settings,
};

/// A folder with an `mcp.json` that commands find. Its trust is forgotten when it is dropped.
struct FoundFolder(Bascule);

impl FoundFolder {
    fn new(config: &Value) -> Self {
        let bascule = Bascule::with_text(&config.to_string()).finding_config();
        let runtime = bascule.folder().join("runtime").to_str().unwrap().to_owned();
        Self(bascule.env("XDG_RUNTIME_DIR", &runtime))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.folder().join(name)
    }

    fn configure(&self, config: &Value) {
        fs::write(self.path("mcp.json"), config.to_string()).unwrap();
    }

    fn trust(&self) -> CommandOutput {
        let output = self.0.run(&["trust"]);
        assert_eq!(output.code, Some(0), "{output:?}");
        output
    }

    /// Expects that a command starts no server, and returns the message.
    #[track_caller]
    fn expect_refused(&self, arguments: &[&str]) -> String {
        let output = self.0.run(arguments);
        assert_eq!((output.code, output.stdout.as_str()), (Some(2), ""), "{arguments:?}: {output:?}");
        let (code, document) = self.0.run_json(arguments);
        assert_eq!((code, &document["error"]["code"]), (2, &json!("CONFIG_INVALID")), "{document}");
        assert!(!self.path("ran").exists(), "{arguments:?} started a server");
        document["error"]["message"].as_str().unwrap().to_owned()
    }

    #[track_caller]
    fn expect_works(&self) {
        let output = self.0.run(&["tools"]);
        assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""), "{output:?}");
    }

    /// Runs a command on a terminal. Returns the exit code, the output and whether it asked.
    fn run_on_terminal(&self, answer: &str, hook: &str, command: &[&str]) -> (i64, String, bool) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/terminal.py");
        let mut python = Command::new("python3");
        python.arg(script).args([answer, hook]).args(command).current_dir(self.0.folder());
        python.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let document = wait_for_output(python.spawn().unwrap()).document();
        let output = document["output"].as_str().unwrap().to_owned();
        (document["code"].as_i64().unwrap(), output, document["asked"].as_bool().unwrap())
    }

    /// Runs `tools` on a terminal.
    fn list_on_terminal(&self, answer: &str) -> (i64, String, bool) {
        self.run_on_terminal(answer, "true", &[program(), "tools"])
    }
}

impl Drop for FoundFolder {
    fn drop(&mut self) {
        for file in ["mcp.json", ".mcp.json"] {
            self.0.run(&["trust", "--remove", file]);
        }
    }
}

/// A server that leaves the file `ran`.
fn marking_server() -> Value {
    let script = "touch ran; exec \"$0\" clock";
    json!({ "command": "sh", "args": ["-c", script, demo_program()], "sandbox": "off" })
}

fn config(servers: Value) -> Value {
    json!({ "mcpServers": servers })
}

fn is_root() -> bool {
    rustix::process::getuid().is_root()
}

const STARTING_COMMANDS: [&[&str]; 8] = [
    &["check"],
    &["tools"],
    &["tools", "s"],
    &["describe", "s:now"],
    &["call", "s:now", "{}"],
    &["run", "-"],
    &["serve", "--listen", "127.0.0.1:0"],
    &["serve", "--stdio"],
];

// req: SB-08
#[test]
fn untrusted_file_starts_no_server() {
    let folder = FoundFolder::new(&config(json!({ "s": marking_server() })));
    for name in ["mcp.json", ".mcp.json"] {
        for arguments in STARTING_COMMANDS {
            let message = folder.expect_refused(arguments);
            for part in [
                &format!("`./{name}` was found in this folder, and you have not trusted it yet"),
                "new server `s` runs WITHOUT A SANDBOX: `sh -c 'touch ran; ",
                "`bascule trust`",
                &format!("`--config ./{name}`"),
            ] {
                assert!(message.contains(part), "no `{part}` in: {message}");
            }
        }
        fs::rename(folder.path("mcp.json"), folder.path(".mcp.json")).unwrap_or_default();
    }
}

// req: SB-08
#[test]
fn commands_that_start_nothing_need_no_trust() {
    let folder = FoundFolder::new(&config(json!({ "s": marking_server() })));
    assert_eq!(folder.0.run(&["token"]).code, Some(0));
    assert_eq!(folder.0.run(&["trust", "--list"]).code, Some(0));
    for command in ["status", "events", "refresh"] {
        let output = folder.0.run(&[command]);
        assert!(output.stderr.contains("no running bridge"), "{output:?}");
    }
    assert!(!folder.path("ran").exists());
}

// req: SB-08
#[test]
fn named_file_and_users_own_file_need_no_trust() {
    let folder = FoundFolder::new(&config(json!({ "s": marking_server() })));
    assert_eq!(folder.0.run(&["tools", "--config", "./mcp.json"]).code, Some(0));
    assert!(folder.path("ran").exists());
    let own = folder.path("bascule");
    fs::create_dir(&own).unwrap();
    fs::rename(folder.path("mcp.json"), own.join("mcp.json")).unwrap();
    for cwd in [folder.0.folder(), &own] {
        let mut command = folder.0.command(&["tools"]);
        command.current_dir(cwd).env("XDG_CONFIG_HOME", folder.0.folder());
        let output = CommandOutput::from(command.output().unwrap());
        assert_eq!(output.code, Some(0), "{output:?}");
    }
}

// req: SB-08
#[test]
fn trusted_file_works_until_it_does_more() {
    let folder = FoundFolder::new(&config(json!({ "s": marking_server(), "t": marking_server() })));
    let output = folder.trust();
    assert!(output.stdout.contains("new server `s` runs WITHOUT A SANDBOX"), "{output:?}");
    folder.expect_works();
    // Harmless changes, or fewer servers.
    let slower = with_settings(marking_server(), json!({ "timeoutMs": 5_000, "deniedTools": ["list_*"] }));
    folder.configure(&config(json!({ "s": slower })));
    folder.expect_works();

    fs::remove_file(folder.path("ran")).unwrap();
    folder.configure(&config(json!({ "s": slower, "evil": { "command": "touch", "args": ["ran"] } })));
    let message = folder.expect_refused(&["tools"]);
    assert!(message.contains("does more than you have trusted it with"), "{message}");
    assert!(message.contains("new server `evil`") && !message.contains("server `s`"), "{message}");
    folder
        .configure(&config(json!({ "s": with_settings(marking_server(), json!({ "env": { "A": "b" } })) })));
    assert!(folder.expect_refused(&["call", "s:now"]).contains("environment variables `A=***`"));
    folder.trust();
    folder.expect_works();
}

// req: SB-08
#[test]
fn trust_is_listed_and_forgotten() {
    let folder = FoundFolder::new(&config(json!({ "s": marking_server() })));
    let (code, document) = folder.0.run_json(&["trust"]);
    let file = folder.0.folder().canonicalize().unwrap().join("mcp.json");
    assert_eq!((code, &document["trusted"]), (0, &json!(file)));
    assert_eq!(document["permissions"].as_array().unwrap().len(), 1, "{document}");
    let listed = || folder.0.run_json(&["trust", "--list"]).1.as_array().unwrap().clone();
    assert!(listed().contains(&json!({ "file": file, "servers": ["s"] })), "{:?}", listed());
    let (code, document) = folder.0.run_json(&["trust", "--remove", "mcp.json"]);
    assert_eq!((code, &document["removed"]), (0, &json!(true)));
    assert!(!listed().iter().any(|record| record["file"] == json!(file)));
    folder.expect_refused(&["tools"]);
    // From another folder, by path.
    let elsewhere = Bascule::with_text("").finding_config();
    assert_eq!(elsewhere.run(&["trust", file.to_str().unwrap()]).code, Some(0));
    folder.expect_works();
}

// req: SB-08
#[test]
fn trust_command_reports_unusable_files() {
    let folder = FoundFolder::new(&json!({ "mcpServers": 7 }));
    assert!(folder.expect_refused(&["trust"]).contains("must be an object"));
    fs::remove_file(folder.path("mcp.json")).unwrap();
    let mut command = folder.0.command(&["trust"]);
    let output = CommandOutput::from(command.env("XDG_CONFIG_HOME", folder.path("none")).output().unwrap());
    assert!(output.code == Some(2) && output.stderr.contains("no configuration file found"), "{output:?}");
}

// req: SB-08
#[test]
fn asks_once_on_a_terminal() {
    let folder = FoundFolder::new(&config(json!({ "s": marking_server() })));
    for answer in ["\n", "n\n", "x\n", "yy\n", "\u{4}"] {
        let (code, output, asked) = folder.list_on_terminal(answer);
        assert_eq!((code, asked), (2, true), "{answer:?}: {output}");
        assert!(
            output.contains("new server `s` runs WITHOUT A SANDBOX")
                && output.contains("nothing was started")
        );
        assert!(!folder.path("ran").exists());
    }
    let (code, output, asked) = folder.list_on_terminal("y\n");
    assert_eq!((code, asked), (0, true), "{output}");
    assert!(output.contains("s:now") && folder.path("ran").exists(), "{output}");
    let (code, output, asked) = folder.list_on_terminal("");
    assert_eq!((code, asked), (0, false), "{output}");
    folder.expect_works();
}

// req: SB-08
#[test]
fn interrupts_the_question() {
    let folder = FoundFolder::new(&config(json!({ "s": marking_server() })));
    // Ctrl-C.
    let (code, output, asked) = folder.list_on_terminal("\u{3}");
    assert_eq!((code, asked), (-2, true), "{output}");
    assert!(!folder.path("ran").exists());
}

// req: SB-08
#[test]
fn does_not_ask_where_stdin_is_not_the_users() {
    let folder = FoundFolder::new(&config(json!({ "s": marking_server() })));
    let program = program();
    for command in [
        format!("echo {{}} | {program} call s:now -"),
        format!("{program} tools --json"),
        format!("{program} serve --stdio"),
        format!("{program} tools 2>errors; e=$?; cat errors; exit $e"),
        // In the background a question would stop the process.
        format!("set -m; {program} tools & wait $!"),
    ] {
        let (code, output, asked) = folder.run_on_terminal("y\n", "true", &["bash", "-c", &command]);
        assert_eq!((code, asked), (2, false), "{command}: {output}");
        assert!(output.contains("--config ./mcp.json"), "{command}: {output}");
    }
    assert!(!folder.path("ran").exists());
}

// req: SB-08
#[test]
fn hostile_text_cannot_imitate_the_terminal() {
    let evil = json!({
        "command": "sh\u{1b}[2J\u{1b}[H", "args": ["\r\u{9b}1A", "\u{202e}gnitirw", "\u{8}\u{8}", "a\nTrust it? [y/N] y"],
        "env": { "\u{1b}]0;title\u{7}": "x" }, "cwd": "a\u{2066}b", "\u{1b}[31mkey": 1,
    });
    let folder = FoundFolder::new(&config(json!({ "s": evil })));
    let (code, output, _) = folder.list_on_terminal("n\n");
    assert_eq!(code, 2);
    // Line breaks and the colours of the program itself remain.
    let rest = output.replace("\r\n", "\n").replace("\u{1b}[31;1merror:\u{1b}[0m", "error:");
    let hostile = rest.chars().find(|c| (c.is_control() && *c != '\n') || "\u{202e}\u{2066}".contains(*c));
    assert_eq!(hostile, None, "{rest:?}");
    let errors = folder.expect_refused(&["tools"]);
    assert!(!errors.chars().any(|c| c.is_control() && c != '\n'), "{errors:?}");
}

// req: SB-08
#[test]
fn uses_the_text_that_was_shown() {
    let folder = FoundFolder::new(&config(json!({ "s": { "command": demo_program(), "args": ["clock"] } })));
    fs::write(folder.path("evil.json"), config(json!({ "s": marking_server() })).to_string()).unwrap();
    let (code, output, asked) = folder.run_on_terminal("y\n", "mv evil.json mcp.json", &[program(), "tools"]);
    assert_eq!((code, asked), (0, true), "{output}");
    assert!(output.contains("s:now"), "{output}");
    // Neither run nor trusted.
    assert!(folder.expect_refused(&["tools"]).contains("instead of"));
}

/// A running bridge, whose log is read from a file. Killed when dropped.
struct FoundBridge<'a> {
    folder: &'a FoundFolder,
    child: Child,
}

impl<'a> FoundBridge<'a> {
    fn start(folder: &'a FoundFolder, options: &[&str]) -> Self {
        let mut command = folder.0.command(&[&["serve", "--listen", "127.0.0.1:0", "-v"], options].concat());
        command.stdout(Stdio::null()).stderr(fs::File::create(folder.path("log")).unwrap());
        let bridge = Self { folder, child: command.spawn().unwrap() };
        bridge.wait_for_log("serving ");
        bridge
    }

    fn wait_for_log(&self, part: &str) {
        let log = self.folder.path("log");
        eventually(&format!("the log contains `{part}`"), || {
            fs::read_to_string(&log).unwrap().contains(part)
        });
    }

    fn servers(&self) -> Vec<String> {
        let status = self.folder.0.run_json(&["status"]).1;
        let servers = status["servers"].as_array().unwrap_or_else(|| panic!("{status:#}"));
        servers.iter().map(|server| server["name"].as_str().unwrap().to_owned()).collect()
    }
}

impl Drop for FoundBridge<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn clock() -> Value {
    json!({ "command": demo_program(), "args": ["clock"] })
}

// req: SB-08, BR-13
#[test]
fn reload_waits_for_trust() {
    let folder = FoundFolder::new(&config(json!({ "a": clock() })));
    folder.trust();
    let bridge = FoundBridge::start(&folder, &[]);
    // A harmless change is applied.
    folder.configure(&config(json!({ "a": with_settings(clock(), json!({ "timeoutMs": 5_000 })) })));
    bridge.wait_for_log("configuration reloaded");
    folder.configure(&config(json!({ "a": clock(), "evil": marking_server() })));
    bridge.wait_for_log("not trusted: new server `evil` runs WITHOUT A SANDBOX");
    bridge.wait_for_log("run `bascule trust mcp.json`, then it is reloaded");
    assert_eq!(bridge.servers(), ["a"]);
    assert_eq!(folder.0.run(&["call", "a:now"]).code, Some(0), "the bridge still serves");
    assert!(!folder.path("ran").exists());
    folder.trust();
    eventually("the trusted file is applied", || bridge.servers() == ["a", "evil"]);
    eventually("the new server runs", || folder.path("ran").exists());
}

// req: SB-08, BR-13
#[test]
fn reload_after_hangup_waits_for_trust() {
    let folder = FoundFolder::new(&config(json!({})));
    // A file that runs nothing needs no trust.
    let bridge = FoundBridge::start(&folder, &[]);
    folder.configure(&config(json!({ "s": marking_server() })));
    crate::support::signal(bridge.child.id(), "HUP");
    bridge.wait_for_log("not trusted: new server `s`");
    folder.trust();
    eventually("the trusted file is applied", || bridge.servers() == ["s"]);
}

// req: SB-08, BR-13
#[test]
fn bridge_of_named_file_reloads_and_serves_without_trust() {
    let folder = FoundFolder::new(&config(json!({ "a": clock() })));
    let bridge = FoundBridge::start(&folder, &["--config", "mcp.json"]);
    // The bridge runs already, so the command starts nothing.
    assert_eq!(folder.0.run(&["call", "a:now"]).code, Some(0));
    folder.configure(&config(json!({ "a": clock(), "b": clock() })));
    eventually("the file is applied", || bridge.servers() == ["a", "b"]);
    assert_eq!(folder.0.run(&["tools"]).code, Some(0));
    folder.expect_refused(&["tools", "--no-daemon"]);
    folder.expect_refused(&["check"]);
}

// req: SB-08
#[test]
fn link_to_a_trusted_file_is_not_trusted() {
    let trusted = FoundFolder::new(&config(json!({ "s": { "command": "./server" } })));
    trusted.trust();
    // Relative paths start in the folder of the link.
    let other = FoundFolder::new(&config(json!({})));
    fs::remove_file(other.path("mcp.json")).unwrap();
    symlink(trusted.path("mcp.json"), other.path("mcp.json")).unwrap();
    fs::write(other.path("server"), "#!/bin/sh\ntouch ran\n").unwrap();
    fs::set_permissions(other.path("server"), fs::Permissions::from_mode(0o755)).unwrap();
    assert!(other.expect_refused(&["tools"]).contains("you have not trusted it yet"));
    // A link whose target is replaced.
    other.trust();
    fs::write(trusted.path("mcp.json"), config(json!({ "s": marking_server() })).to_string()).unwrap();
    assert!(other.expect_refused(&["tools"]).contains("does more than"));
    // A folder that is reached through a link is the same folder.
    let alias = FoundFolder::new(&config(json!({})));
    symlink(other.0.folder(), alias.path("alias")).unwrap();
    let output = alias.0.run(&["trust", "alias/mcp.json"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    other.expect_works();
}

// req: SB-08
#[test]
fn refuses_file_that_others_can_replace() {
    let folder = FoundFolder::new(&config(json!({ "s": marking_server() })));
    folder.trust();
    let inner = folder.path("inner");
    fs::create_dir(&inner).unwrap();
    fs::copy(folder.path("mcp.json"), inner.join("mcp.json")).unwrap();
    fs::set_permissions(folder.0.folder(), fs::Permissions::from_mode(0o777)).unwrap();
    for cwd in [folder.0.folder(), &inner] {
        for arguments in [&["tools"][..], &["trust"], &["serve", "--stdio"]] {
            let output = CommandOutput::from(folder.0.command(arguments).current_dir(cwd).output().unwrap());
            assert_eq!(output.code, Some(2), "{output:?}");
            assert!(output.stderr.contains("could be replaced by another user"), "{output:?}");
        }
    }
    assert!(!folder.path("ran").exists());
    fs::set_permissions(folder.0.folder(), fs::Permissions::from_mode(0o1777)).unwrap();
    folder.expect_works();
}

/// An attacker plants a file where the user works.
// req: SB-08
#[test]
fn refuses_planted_files() {
    let folder = FoundFolder::new(&config(json!({ "s": marking_server() })));
    let (own, planted) = (folder.path("mcp.json"), folder.path(".mcp.json"));
    folder.trust();
    if is_root() {
        const ATTACKER: Option<u32> = Some(65533);
        // The attacker's folder, with the attacker's file.
        chown(folder.0.folder(), ATTACKER, None).unwrap();
        chown(&own, ATTACKER, None).unwrap();
        assert!(folder.expect_refused(&["tools"]).contains("another user"));
        // The attacker's folder, with a file of the user, or a link to one.
        chown(&own, Some(0), None).unwrap();
        assert!(folder.expect_refused(&["tools"]).contains("could be replaced"));
        let elsewhere = FoundFolder::new(&config(json!({ "s": marking_server() })));
        fs::remove_file(&own).unwrap();
        symlink(elsewhere.path("mcp.json"), &own).unwrap();
        assert!(folder.expect_refused(&["tools"]).contains("could be replaced"));
        fs::remove_file(&own).unwrap();
        chown(folder.0.folder(), Some(0), None).unwrap();
        // The user's folder, with a file of the attacker.
        fs::write(&planted, config(json!({ "s": marking_server() })).to_string()).unwrap();
        chown(&planted, ATTACKER, None).unwrap();
        assert!(folder.expect_refused(&["tools"]).contains("another user"));
        fs::remove_file(&planted).unwrap();
    } else {
        fs::remove_file(&own).unwrap();
    }
    // A pipe has no owner who matters, and would block the command.
    assert!(Command::new("mkfifo").arg(&planted).status().unwrap().success());
    assert!(folder.expect_refused(&["tools"]).contains("not a regular file"));
}

// req: SB-08
#[test]
fn trust_records_are_private() {
    let folder = FoundFolder::new(&config(
        json!({ "s": with_settings(clock(), json!({ "env": { "A": "hunter2" } })) }),
    ));
    let home = tempfile::tempdir().unwrap();
    let mut command = folder.0.command(&["trust", "-vvv"]);
    let output = CommandOutput::from(command.env("HOME", home.path()).output().unwrap());
    assert!(output.code == Some(0) && !output.stdout.contains("hunter2"), "{output:?}");
    assert!(!output.stderr.contains("hunter2"), "{output:?}");
    // `HOME` does not move the records of a user in the user database.
    if is_root() {
        folder.expect_works();
        let home = Command::new("sh").args(["-c", "getent passwd 0 | cut -d: -f6"]).output().unwrap();
        let records =
            Path::new(std::str::from_utf8(&home.stdout).unwrap().trim()).join(".local/share/bascule/trust");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&records), 0o700);
        for record in fs::read_dir(records).unwrap().flatten() {
            assert_eq!(mode(&record.path()), 0o600);
        }
    }
}

// req: QA-01
#[test]
fn killed_terminal_test_leaves_no_process() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/terminal.py");
    let folder = tempfile::tempdir().unwrap();
    // The shell stands for a test program. It tells the command's process id.
    let ask = "echo $$ > asking; printf '[y/N] '; exec sleep 1000";
    let test = "python3 \"$0\" '' true sh -c \"$1\" & wait";
    let mut parent = Command::new("sh");
    parent.args(["-c", test]).arg(script).arg(ask).current_dir(folder.path());
    let mut parent = parent.stdout(Stdio::null()).spawn().unwrap();
    let asking = || std::fs::read_to_string(folder.path().join("asking")).ok()?.trim().parse().ok();
    eventually("the command runs", || asking().is_some());
    let python = children(parent.id());
    parent.kill().unwrap();
    parent.wait().unwrap();
    for pid in python.into_iter().chain(asking()) {
        eventually("the process has ended", || !is_running(pid));
    }
}
