//! Errors that name the setting behind a refusal of the sandbox.

use std::fs;

use serde_json::{Value, json};

use super::hostile_server::{HostileServer, quoted, users};
use crate::support::CommandOutput;

/// Has the server run code that fails. Returns the hint of the result.
fn hint(hostile: &HostileServer, code: &str) -> String {
    let document = call(hostile, code).document();
    document["hint"].as_str().unwrap_or_else(|| panic!("no hint: {document:#}")).to_owned()
}

fn call(hostile: &HostileServer, code: &str) -> CommandOutput {
    let arguments = json!({ "code": code }).to_string();
    CommandOutput::from(hostile.command(&["call", "h:try", &arguments, "--json"]).output().unwrap())
}

fn check(hint: &str, parts: &[&str]) {
    for part in parts {
        assert!(hint.contains(part), "`{part}` is missing: {hint}");
    }
}

/// The entry of the configuration in a hint, as the value of `key`.
fn proposed(hint: &str, key: &str) -> Value {
    let start = hint.find(&format!("`\"{key}\": ")).unwrap_or_else(|| panic!("no {key}: {hint}")) + 1;
    let line = hint[start..].split('`').next().unwrap();
    let document: Value = serde_json::from_str(&format!("{{{line}}}")).unwrap();
    document[key].clone()
}

// req: SB-09
#[test]
fn refused_file_is_explained_and_the_proposed_entry_allows_it() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({}));
        let plain = quoted(&hostile.path("other/plain"));
        let code = format!("open({plain}).read()");
        let read = hint(&hostile, &code);
        check(&read, &["the sandbox may have refused", "other/plain", "granted: reading the system", "work"]);
        let sandbox = proposed(&read, "sandbox");
        assert_eq!(sandbox, json!({ "profile": "standard", "read": [hostile.path("other/plain")] }));
        hostile.configure(&json!({ "h": { "sandbox": sandbox } }));
        hostile.expect_ok(&code);

        let code = format!("open({plain}, 'w').write('x')");
        let sandbox = proposed(&hint(&hostile, &code), "sandbox");
        assert_eq!(sandbox["write"], json!([hostile.path("other/plain")]));
        hostile.configure(&json!({ "h": { "sandbox": sandbox } }));
        hostile.expect_ok(&code);

        let code = format!("os.mkdir({})", quoted(&hostile.path("other/new")));
        let sandbox = proposed(&hint(&hostile, &code), "sandbox");
        hostile.configure(&json!({ "h": { "sandbox": sandbox } }));
        hostile.expect_ok(&code);
    }
}

/// Many servers answer with a failure without a reason, and write the reason to stderr.
// req: SB-09
#[test]
fn reason_that_a_server_writes_to_stderr_during_the_call_is_explained() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({}));
        let plain = quoted(&hostile.path("other/plain"));
        let refused = |report: &str| {
            format!(
                "import sys, time\ntry: open({plain})\nexcept OSError as e:\n    {report}\n    time.sleep(0.2)\n    raise Exception('Error executing tool fetch') from None"
            )
        };
        let explained = hint(&hostile, &refused("print(e, file=sys.stderr, flush=True)"));
        check(&explained, &["the sandbox may have refused", "other/plain"]);
        let silent = call(&hostile, &refused("pass")).document();
        assert!(silent["hint"].is_null(), "{silent:#}");
    }
}

// req: SB-09
#[test]
fn shared_folders_are_named() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({}));
        let code = "open('/dev/shm/bascule-hint-test', 'w')";
        let sandbox = proposed(&hint(&hostile, code), "sandbox");
        assert_eq!(sandbox["write"], json!(["/dev/shm"]));
        hostile.configure(&json!({ "h": { "sandbox": sandbox } }));
        hostile.expect_ok(&format!("{code}; os.unlink('/dev/shm/bascule-hint-test')"));
        let shared = hint(&hostile, "open('/tmp/bascule-hint-test', 'w')");
        check(&shared, &["`/tmp` is shared with other programs", "\"/tmp\""]);
    }
}

// req: SB-09
#[test]
fn folder_in_home_is_to_be_created_and_secrets_are_marked() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({}));
        let code = format!("os.makedirs({})", quoted(&hostile.path(".app/cache")));
        let missing = hint(&hostile, &code);
        check(&missing, &["create it, then configure"]);
        assert_eq!(proposed(&missing, "sandbox")["write"], json!([hostile.path(".app")]));
        let secret = hint(&hostile, &format!("open({}).read()", quoted(&hostile.path(".ssh/id_test"))));
        check(&secret, &["holds secrets and is closed", "only if this server may have them"]);
    }
}

// req: SB-09
#[test]
fn folder_with_closed_file_is_explained() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({}));
        fs::write(hostile.path("work/.env"), "TOKEN=x").unwrap();
        hostile.set_owner();
        let locked = hint(&hostile, &format!("open({}, 'w')", quoted(&hostile.path("work/new"))));
        check(&locked, &["directly in `", "/work`", "the closed `.env`", "subfolder"]);
        check(&hint(&hostile, "os.scandir('/')"), &["`/` cannot be listed"]);
        let config = hint(&hostile, &format!("open({}, 'w')", quoted(&hostile.path("mcp.json"))));
        check(&config, &["the configuration file is closed to every server"]);
    }
}

// req: SB-09
#[test]
fn sockets_and_system_calls_are_explained() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({}));
        let unix = "import socket\ntry: socket.socket(socket.AF_UNIX)\nexcept OSError as e: raise OSError(f'socket: {e}')";
        let sockets = hint(&hostile, unix);
        let sandbox = proposed(&sockets, "sandbox");
        assert_eq!(sandbox, json!({ "profile": "standard", "unixSockets": true }));
        hostile.configure(&json!({ "h": { "sandbox": sandbox } }));
        hostile.expect_ok(unix);
        let unknown = hint(
            &hostile,
            "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nlibc.unshare(0x10000000)\nraise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))",
        );
        check(&unknown, &["the sandbox may have refused this", "bascule check --server h --trace"]);
        let killed = hostile.call_error("os.kill(os.getpid(), 31)");
        check(killed["hint"].as_str().unwrap(), &["SIGSYS", "--trace"]);
        check(killed["message"].as_str().unwrap(), &["SIGSYS", "--trace"]);
    }
}

// req: SB-09
#[test]
fn failed_start_is_explained() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({}));
        let plain = hostile.path("other/plain");
        let code = format!("open({})", quoted(&plain));
        hostile.configure(&json!({ "h": { "args": ["-c", code] } }));
        let message = hostile.start_error();
        check(&message, &["could not start server `h`", "the sandbox may have refused", "\"read\": [\""]);
        let checked = CommandOutput::from(hostile.command(&["check"]).output().unwrap());
        check(&checked.stdout, &["the sandbox may have refused"]);
    }
}

// req: SB-03
#[test]
fn survived_allocation_names_its_limit() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({ "limits": { "maxMemoryMb": 200 } }));
        let hint = hint(&hostile, "bytearray(8 << 30)");
        check(&hint, &["`maxMemoryMb` probably met", "200 MB", "\"maxMemoryMb\": 400"]);
    }
}

// req: SB-03
#[test]
fn failed_allocation_without_text_is_explained() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({}));
        // The text of the error is then as empty as that of a `MemoryError` in most servers.
        let code =
            "try: bytearray(1 << 40)\nexcept MemoryError: raise type('', (Exception,), {})() from None";
        check(&hint(&hostile, code), &["gives no reason", "the limit is 256 MB", "\"maxMemoryMb\""]);
    }
}

// req: SB-09
#[test]
fn server_without_sandbox_and_other_failures_get_no_hint() {
    let hostile = HostileServer::new(users()[0], json!({ "sandbox": "off" }));
    for code in ["raise PermissionError(13, 'Permission denied', '/opt/x')", "raise ValueError('no')"] {
        assert_eq!(call(&hostile, code).document()["hint"], Value::Null);
    }
    let hostile = HostileServer::new(users()[0], json!({}));
    // The sandbox allows this, so something else must have refused it.
    let code = format!("raise PermissionError(13, 'Permission denied', {})", quoted(&hostile.path("work/x")));
    assert_eq!(call(&hostile, &code).document()["hint"], Value::Null);
}

// req: SB-09
#[test]
fn failure_without_a_reason_names_the_closed_path() {
    let hostile = HostileServer::new(users()[0], json!({}));
    let fail = |path: &str| format!("raise ValueError({})", quoted(&hostile.path(path)));
    let closed = hint(&hostile, &fail("other/plain"));
    check(&closed, &["the sandbox may have refused to read", "is not granted"]);
    assert_eq!(proposed(&closed, "sandbox")["read"], json!([hostile.path("other/plain")]));
    for path in ["work", "other/missing"] {
        assert_eq!(call(&hostile, &fail(path)).document()["hint"], Value::Null);
    }
    // A call that succeeds.
    let code = format!("print({})", quoted(&hostile.path("other/plain")));
    assert_eq!(call(&hostile, &code).document()["hint"], Value::Null);
}

// req: SB-09, GW-03
#[test]
fn script_error_has_the_hint_and_the_result_stays_verbatim() {
    let hostile = HostileServer::new(users()[0], json!({}));
    let code = format!("open({})", quoted(&hostile.path("other/plain")));
    let script = format!(
        "const call = mcp.h.try({{ code: {code:?} }}); const raw = await bascule.raw(call);\n\
         try {{ await call; }} catch (error) {{ return [error.message, raw]; }}"
    );
    fs::write(hostile.path("script.ts"), script).unwrap();
    let ran = CommandOutput::from(hostile.command(&["run", "script.ts", "--json"]).output().unwrap());
    let result = &ran.document()["result"];
    check(result[0].as_str().unwrap(), &["PermissionError", "the sandbox may have refused"]);
    let text = result[1]["content"][0]["text"].as_str().unwrap();
    assert!(text.starts_with("PermissionError") && !text.contains("sandbox"), "{text}");
}
