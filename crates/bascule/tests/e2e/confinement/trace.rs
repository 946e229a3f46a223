//! `bascule check --server NAME --trace`: recorded refusals and the proposed entry.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use serde_json::{Value, json};

use super::hostile_server::{HostileServer, quoted, users};
use crate::support::CommandOutput;

fn run(hostile: &HostileServer, arguments: &[&str]) -> CommandOutput {
    let arguments = [&["check", "--server", "h", "--trace"], arguments].concat();
    CommandOutput::from(hostile.command(&arguments).output().unwrap())
}

/// Traces the start of the server.
fn trace_start(hostile: &HostileServer, code: i32) -> Value {
    let ran = run(hostile, &["--json"]);
    assert_eq!(ran.code, Some(code), "{ran:?}");
    ran.document()
}

/// Traces a call that runs Python code.
fn trace_call(hostile: &HostileServer, python: &str, code: i32) -> Value {
    let ran = run(hostile, &["--json", "--call", "try", &json!({ "code": python }).to_string()]);
    assert_eq!(ran.code, Some(code), "{ran:?}");
    ran.document()
}

/// The first refusal of an object.
fn refusal(document: &Value, object: &str) -> Value {
    let refusals = document["refusals"].as_array().unwrap();
    let found = refusals.iter().find(|refusal| refusal["object"] == object);
    found.unwrap_or_else(|| panic!("no refusal of {object}: {document:#}")).clone()
}

// req: SB-09
#[test]
fn proposed_entry_allows_the_call() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({}));
        let plain = hostile.path("other/plain");
        let code = format!("open({}, 'a').write('x')", quoted(&plain));
        let traced = trace_call(&hostile, &code, 1);
        let refused = refusal(&traced, plain.to_str().unwrap());
        assert_eq!(refused["operation"], "write", "{refused:#}");
        assert_eq!((&refused["refusedBy"], &refused["phase"]), (&json!("sandbox"), &json!("call")));
        let sandbox = &traced["proposal"]["sandbox"];
        assert_eq!(*sandbox, json!({ "profile": "standard", "write": [plain] }), "{traced:#}");
        hostile.configure(&json!({ "h": { "sandbox": sandbox } }));
        let again = trace_call(&hostile, &code, 0);
        assert_eq!(again["proposal"], Value::Null, "{again:#}");
    }
}

// req: SB-09
#[test]
fn start_that_fails_in_the_home_is_explained_with_a_folder_to_create() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({}));
        let folder = hostile.path(".app");
        let code = format!("import os; os.mkdir({})", quoted(&folder));
        hostile.configure(&json!({ "h": { "args": ["-c", code] } }));
        let traced = trace_start(&hostile, 3);
        assert_eq!(traced["started"], false);
        assert_eq!(refusal(&traced, folder.to_str().unwrap())["operation"], "create or remove");
        assert_eq!(traced["proposal"]["sandbox"]["write"], json!([folder]), "{traced:#}");
        assert!(traced["warnings"].to_string().contains("first"), "{traced:#}");
    }
}

// req: SB-09
#[test]
fn children_of_the_server_are_traced() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({}));
        let plain = hostile.path("other/plain");
        let code = format!(
            "import subprocess; subprocess.run(['sh', '-c', 'exec cat \"$0\"', {}], check=True)",
            quoted(&plain)
        );
        let traced = trace_call(&hostile, &code, 1);
        assert_eq!(refusal(&traced, plain.to_str().unwrap())["operation"], "read", "{traced:#}");
        assert_eq!(traced["proposal"]["sandbox"]["read"], json!([plain]), "{traced:#}");
    }
}

// req: SB-09
#[test]
fn secrets_are_left_out_with_a_warning() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({}));
        let secret = hostile.path(".ssh/id_test");
        let traced = trace_call(&hostile, &format!("open({}).read()", quoted(&secret)), 1);
        assert_eq!(traced["proposal"], Value::Null, "{traced:#}");
        assert!(traced["warnings"].to_string().contains("holds secrets"), "{traced:#}");
    }
}

// req: SB-09
#[test]
fn sockets_and_refused_system_calls_are_named() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({}));
        let traced = trace_call(&hostile, "import socket; socket.socket(socket.AF_UNIX)", 1);
        let sandbox = &traced["proposal"]["sandbox"];
        assert_eq!(*sandbox, json!({ "profile": "standard", "unixSockets": true }), "{traced:#}");
        let unshare = "import ctypes; libc = ctypes.CDLL(None, use_errno=True)\n\
             if libc.unshare(0x10000000): raise OSError(ctypes.get_errno(), 'x')";
        let traced = trace_call(&hostile, unshare, 1);
        assert_eq!(refusal(&traced, "unshare")["error"], "EPERM");
        assert_eq!(traced["proposal"], Value::Null, "{traced:#}");

        let network = "import socket; socket.socket(socket.AF_INET)";
        hostile
            .configure(&json!({ "h": { "sandbox": { "network": "none", "read": [hostile.path("work")] } } }));
        let sandbox = &trace_call(&hostile, network, 1)["proposal"]["sandbox"];
        assert_eq!(*sandbox, json!({ "read": [hostile.path("work")] }));
        hostile.configure(&json!({ "h": { "sandbox": sandbox } }));
        hostile.expect_ok(network);
    }
}

// req: SB-03, SB-09
#[test]
fn refused_allocation_names_the_limit() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({ "limits": { "maxMemoryMb": 200 } }));
        let traced = trace_call(&hostile, "bytearray(8 << 30)", 1);
        assert_eq!(refusal(&traced, "8192 MB")["refusedBy"], "limit", "{traced:#}");
        assert_eq!(traced["proposal"], json!({ "limits": { "maxMemoryMb": 400 } }), "{traced:#}");
    }
}

// req: SB-09
#[test]
fn server_that_works_needs_no_change() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({}));
        let traced = trace_start(&hostile, 0);
        assert_eq!((&traced["started"], &traced["proposal"]), (&json!(true), &Value::Null), "{traced:#}");
        let plain = quoted(&hostile.path("other/plain"));
        let tolerant = format!("try: open({plain})\nexcept OSError: print('went on')");
        let ran = run(&hostile, &["--call", "h:try", &json!({ "code": tolerant }).to_string()]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(ran.stdout.contains("nothing needs to change") && ran.stdout.contains("plain"), "{ran:?}");
    }
}

// req: SB-09
#[cfg(target_arch = "x86_64")]
#[test]
fn killed_program_of_another_architecture_is_named() {
    let source = r#"int main(void) { int r; __asm__ volatile("int $0x80" : "=a"(r) : "a"(20)); return 0; }"#;
    for user in users() {
        let hostile = HostileServer::new(user, json!({}));
        fs::write(hostile.path("work/old.c"), source).unwrap();
        let program = hostile.path("work/old");
        let compiled = Command::new("cc").arg("-o").arg(&program).arg(hostile.path("work/old.c")).status();
        assert!(compiled.unwrap().success());
        let outside = Command::new(&program).status().unwrap();
        hostile.set_owner();
        let code = format!("import subprocess; subprocess.run([{}], check=True)", quoted(&program));
        // A kernel without 32-bit system calls refuses the call itself, in the sandbox as well as outside.
        if !outside.success() {
            assert_eq!(outside.signal(), Some(11), "{outside}");
            let failed = hostile.attempt(&code).unwrap_err();
            assert!(failed.contains("SIGSEGV"), "{failed}");
            continue;
        }
        let traced = trace_call(&hostile, &code, 1);
        let refused = refusal(&traced, "a system call of another architecture");
        assert_eq!(refused["error"], "SIGSYS", "{traced:#}");
        let killed = hostile.call_error(&format!("os.execv({0}, [{0}])", quoted(&program)));
        assert!(killed["hint"].as_str().unwrap().contains("SIGSYS"), "{killed:#}");
    }
}

// req: SB-05
#[test]
fn traced_server_leaves_no_process() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({}));
        let daemon = "
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0: os.execvp('sleep', ['sleep', '600'])
    os._exit(0)
os.wait(); import signal; os.kill(os.getpid(), signal.SIGKILL)";
        let traced = trace_call(&hostile, daemon, 3);
        assert_eq!(traced["call"]["error"]["exit"], "signal 9, SIGKILL", "{traced:#}");
        assert_eq!(hostile.processes(), [] as [u32; 0], "as {user:?}");
    }
}

// req: SB-09
#[test]
fn trace_needs_a_confined_server() {
    let hostile = HostileServer::new(users()[0], json!({ "sandbox": "off" }));
    let ran = run(&hostile, &[]);
    assert!(ran.code == Some(2) && ran.stderr.contains("not in a sandbox"), "{ran:?}");
}

// req: SB-09
#[test]
fn check_warns_of_folders_with_closed_files() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({}));
        let ran = CommandOutput::from(hostile.command(&["check", "--server", "h"]).output().unwrap());
        assert!(!ran.stdout.contains("directly in"), "{ran:?}");
        fs::write(hostile.path("work/.env"), "TOKEN=x").unwrap();
        hostile.set_owner();
        let ran = CommandOutput::from(hostile.command(&["check", "--server", "h"]).output().unwrap());
        let warnings = ran.stdout.lines().filter(|line| line.contains("directly in")).collect::<Vec<_>>();
        assert!(
            warnings.len() == 1 && warnings[0].contains("/work`, which contains the closed `.env`"),
            "{ran:?}"
        );
        let ran = CommandOutput::from(hostile.command(&["check", "--json"]).output().unwrap());
        assert_eq!(
            ran.document()["servers"][0]["lockedFolders"][0]["closed"],
            json!(hostile.path("work/.env"))
        );
    }
}
