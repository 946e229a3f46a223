//! File access of confined servers.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use super::hostile_server::{HostileServer, quoted, users};

fn read(hostile: &HostileServer, name: &str) -> String {
    format!("print(open({}).read())", quoted(&hostile.path(name)))
}

fn write(hostile: &HostileServer, name: &str) -> String {
    format!("open({}, 'w').write('x')", quoted(&hostile.path(name)))
}

// req: SB-04
#[test]
fn server_cannot_read_secrets() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({}));
        hostile.expect_denied(&read(&hostile, ".ssh/id_test"));
        hostile.expect_denied(&format!("os.listdir({})", quoted(&hostile.path(".ssh"))));
        let (secret, link) = (hostile.path(".ssh/id_test"), hostile.path("work/link"));
        let by_link = format!("os.symlink({}, {1}); open({1}).read()", quoted(&secret), quoted(&link));
        hostile.expect_denied(&by_link);
        for (function, name) in [("link", ".ssh/id_test"), ("rename", ".ssh")] {
            let target = quoted(&hostile.path("work/moved"));
            let failed = hostile
                .attempt(&format!("os.{function}({}, {target})", quoted(&hostile.path(name))))
                .unwrap_err();
            // Landlock reports another file system, so that programs copy the file, which fails as well.
            assert!(failed.contains("cross-device") || failed.starts_with("PermissionError"), "{failed}");
        }
        hostile.expect_denied(&read(&hostile, "other/plain"));
    }
}

// req: SB-04
#[test]
fn server_writes_only_in_its_folder_and_temporary_folder() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({}));
        hostile.expect_ok(&write(&hostile, "work/mine"));
        hostile.expect_ok("import tempfile; tempfile.TemporaryFile().write(b'x')");
        hostile.expect_denied(&write(&hostile, "other/plain"));
        hostile.expect_denied(&write(&hostile, "new"));
        hostile.expect_denied(&format!("os.truncate({}, 0)", quoted(&hostile.path("other/plain"))));
        hostile.expect_denied(&format!("os.unlink({})", quoted(&hostile.path("other/plain"))));
        hostile.expect_denied(&write(&hostile, "mcp.json"));
    }
}

// req: SB-04
#[test]
fn server_may_write_folders_in_its_arguments() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({ "args": ["server.py", "--data=../other"] }));
        hostile.expect_ok(&write(&hostile, "other/plain"));
        hostile.expect_denied(&write(&hostile, "new"));
    }
}

// req: SB-04, TR-01
#[test]
fn home_in_arguments_does_not_open_traces() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({ "args": ["server.py", ".."] }));
        hostile.expect_ok("print(1)");
        let folder = hostile.path(".local/state/bascule/traces");
        let file = fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
        hostile.expect_denied(&format!("os.listdir({})", quoted(&folder)));
        hostile.expect_denied(&format!("open({}, 'rb').read()", quoted(&file)));
    }
}

// req: SB-04
#[test]
fn home_in_arguments_does_not_open_secrets() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({ "args": ["server.py", ".."] }));
        hostile.expect_ok(&write(&hostile, "other/plain"));
        hostile.expect_denied(&read(&hostile, ".ssh/id_test"));
    }
}

// req: SB-08
#[test]
fn server_cannot_trust_configurations() {
    for user in users() {
        let sandbox = json!({ "profile": "standard", "write": [".", "/root"] });
        let hostile = HostileServer::new(user, json!({ "args": ["server.py", ".."], "sandbox": sandbox }));
        assert!(hostile.command(&["trust"]).output().unwrap().status.success());
        // Root has its home in the user database, `nobody` in `HOME`.
        let folders = [hostile.path(""), "/root".into()].map(|home| home.join(".local/share/bascule/trust"));
        let records: Vec<_> = folders.iter().filter(|folder| folder.exists()).collect();
        assert!(!records.is_empty());
        for folder in records {
            hostile.expect_denied(&format!("os.listdir({})", quoted(folder)));
            hostile.expect_denied(&format!("open({}, 'w')", quoted(&folder.join("new.json"))));
        }
        assert!(hostile.command(&["trust", "--remove", "mcp.json"]).output().unwrap().status.success());
    }
}

// req: SB-04
#[test]
fn strict_policy_opens_only_listed_paths() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({ "sandbox": "strict" }));
        assert_eq!(hostile.expect_ok("print(1 + 1)"), "2");
        hostile.expect_denied(&read(&hostile, "other/plain"));
        hostile.expect_denied(&write(&hostile, "work/mine"));
        hostile.expect_denied("open('/etc/passwd').read()");
    }
}

// req: SB-04
#[test]
fn program_in_home_does_not_open_home_under_strict_policy() {
    for user in users() {
        let hostile =
            HostileServer::new(user, json!({ "command": "../bin/server", "args": [], "sandbox": "strict" }));
        let server = hostile.path("bin/server");
        fs::create_dir(hostile.path("bin")).unwrap();
        fs::write(&server, format!("#!/usr/bin/env python3\n{}", include_str!("../hostile.py"))).unwrap();
        fs::set_permissions(&server, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(hostile.expect_ok("print(1 + 1)"), "2");
        hostile.expect_denied(&read(&hostile, ".ssh/id_test"));
        hostile.expect_denied(&read(&hostile, "other/plain"));
    }
}

// req: SB-04
#[test]
fn custom_policy_lists_readable_and_writable_paths() {
    for user in users() {
        let sandbox = json!({ "read": ["work", "other"], "write": ["work"] });
        let hostile = HostileServer::new(user, json!({ "sandbox": sandbox }));
        assert_eq!(hostile.expect_ok(&read(&hostile, "other/plain")), "no secret");
        hostile.expect_ok(&write(&hostile, "work/mine"));
        hostile.expect_denied(&write(&hostile, "other/plain"));
        hostile.expect_denied(&read(&hostile, ".ssh/id_test"));
    }
}

// req: SB-04
#[test]
fn sandbox_off_allows_secrets() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({ "sandbox": "off" }));
        assert_eq!(hostile.expect_ok(&read(&hostile, ".ssh/id_test")), "the secret");
    }
}

// req: SB-02
#[test]
fn open_files_are_limited() {
    let hoard = "held = [open('/dev/null') for _ in range(500)]";
    for user in users() {
        let hostile = HostileServer::new(user, json!({ "limits": { "maxOpenFiles": 64 } }));
        let failed = hostile.attempt(hoard).unwrap_err();
        assert!(failed.contains("Too many open files"), "{failed}");
        HostileServer::new(user, json!({})).expect_ok(hoard);
    }
}
