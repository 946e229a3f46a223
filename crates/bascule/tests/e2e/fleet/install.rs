//! Servers that a package manager installs at their first start.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use super::serve_process::ServeProcess;
use super::with_settings;
use crate::support::{Bascule, demo_program};

/// A folder with an `npx` that downloads until a line is written to its pipe, and then starts a server as its child.
struct SlowPackageManager {
    folder: tempfile::TempDir,
}

impl SlowPackageManager {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("npx");
        fs::write(&program, "#!/bin/sh\necho 'fetching the package' >&2\nread line < pipe\n\"$@\"\n")
            .unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(Command::new("mkfifo").arg(folder.path().join("pipe")).status().unwrap().success());
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn entry(&self) -> Value {
        json!({ "command": self.path("npx"), "args": [demo_program(), "clock"], "cwd": self.folder.path() })
    }

    fn finish(&self) {
        fs::OpenOptions::new().write(true).open(self.path("pipe")).unwrap().write_all(b"\n").unwrap();
    }
}

// req: US-02
#[test]
fn package_manager_that_hangs_is_named() {
    let manager = SlowPackageManager::new();
    let entry = with_settings(manager.entry(), json!({ "installTimeoutMs": 500 }));
    let bascule = Bascule::with_server("s", entry);
    let error = bascule.call_error("s:now", "{}");
    assert_eq!(
        (&error["code"], &error["retryable"]),
        (&json!("PROVIDER_INIT_FAILED"), &json!(true)),
        "{error:#}"
    );
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("`npx` was still installing it after 500 ms"), "{message}");
    assert!(message.contains("`installTimeoutMs`") && error["stderr"] == "fetching the package", "{error:#}");
}

// req: US-02
#[test]
fn commands_show_progress_of_installation() {
    let manager = SlowPackageManager::new();
    let entry = with_settings(manager.entry(), json!({ "installTimeoutMs": 5_000 }));
    let bascule = Bascule::with_server("s", entry);
    let progress = "server `s`: `npx` is installing it (fetching the package), for ";
    for arguments in [&["check"][..], &["call", "s:now"]] {
        let output = bascule.run(arguments);
        assert!(output.code == Some(3) && output.stderr.contains(progress), "{output:?}");
    }
}

// req: US-02
#[test]
fn running_bridge_shows_progress_and_waits_for_installation() {
    let manager = SlowPackageManager::new();
    let bridge = ServeProcess::start(json!({ "s": manager.entry() }));
    bridge.wait_for_stderr("server `s`: `npx` is installing it (fetching the package), for ");
    let server = bridge.server_status("s");
    let installing = "`npx` is installing it (fetching the package)";
    assert_eq!((&server["health"], &server["installing"]), (&json!("starting"), &json!(installing)));
    let status = bridge.bascule.run(&["status"]).stdout;
    assert!(status.contains(&format!("starting        0 tools  {installing}")), "{status}");
    let late = bridge.bascule.run(&["call", "s:now", "--timeout-ms", "50", "--json"]).document();
    assert!(late["error"]["message"].as_str().unwrap().contains(installing), "{late:#}");
    manager.finish();
    bridge.wait_for_stderr("server `s` is up: 3 tools");
    assert_eq!(bridge.server_status("s")["installing"], json!(null));
    bridge.bascule.call("s:now", "{}");
}
