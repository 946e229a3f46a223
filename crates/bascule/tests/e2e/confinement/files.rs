//! Which files a confined server reaches.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use super::hostile::{Hostile, quoted, users};

fn read(hostile: &Hostile, name: &str) -> String {
    format!("print(open({}).read())", quoted(&hostile.path(name)))
}

fn write(hostile: &Hostile, name: &str) -> String {
    format!("open({}, 'w').write('x')", quoted(&hostile.path(name)))
}

// req: SB-04
#[test]
fn secrets_cannot_be_read_by_any_way() {
    for user in users() {
        let hostile = Hostile::new(user, json!({}));
        hostile.must_not(&read(&hostile, ".ssh/id_test"));
        hostile.must_not(&format!("os.listdir({})", quoted(&hostile.path(".ssh"))));
        let (secret, link) = (hostile.path(".ssh/id_test"), hostile.path("work/link"));
        let by_link = format!("os.symlink({}, {1}); open({1}).read()", quoted(&secret), quoted(&link));
        hostile.must_not(&by_link);
        for (way, name) in [("link", ".ssh/id_test"), ("rename", ".ssh")] {
            let there = quoted(&hostile.path("work/moved"));
            let failed =
                hostile.attempt(&format!("os.{way}({}, {there})", quoted(&hostile.path(name)))).unwrap_err();
            // Landlock answers as if it were another disk, so that programs copy instead, which fails too.
            assert!(failed.contains("cross-device") || failed.starts_with("PermissionError"), "{failed}");
        }
        assert_eq!(hostile.may(&read(&hostile, "other/plain")), "no secret");
    }
}

// req: SB-04
#[test]
fn writes_stay_below_its_folder_and_the_temporary_one() {
    for user in users() {
        let hostile = Hostile::new(user, json!({}));
        hostile.may(&write(&hostile, "work/mine"));
        hostile.may("import tempfile; tempfile.TemporaryFile().write(b'x')");
        hostile.must_not(&write(&hostile, "other/plain"));
        hostile.must_not(&write(&hostile, "new"));
        hostile.must_not(&format!("os.truncate({}, 0)", quoted(&hostile.path("other/plain"))));
        hostile.must_not(&format!("os.unlink({})", quoted(&hostile.path("other/plain"))));
        hostile.must_not(&write(&hostile, "mcp.json"));
    }
}

// req: SB-04
#[test]
fn folders_named_in_its_arguments_may_be_written() {
    for user in users() {
        let hostile = Hostile::new(user, json!({ "args": ["server.py", "--data=../other"] }));
        hostile.may(&write(&hostile, "other/plain"));
        hostile.must_not(&write(&hostile, "new"));
    }
}

// req: SB-04
#[test]
fn a_home_named_in_its_arguments_does_not_open_the_secrets() {
    for user in users() {
        let hostile = Hostile::new(user, json!({ "args": ["server.py", ".."] }));
        hostile.may(&write(&hostile, "other/plain"));
        hostile.must_not(&read(&hostile, ".ssh/id_test"));
    }
}

// req: SB-04
#[test]
fn under_strict_only_what_is_listed_is_there() {
    for user in users() {
        let hostile = Hostile::new(user, json!({ "sandbox": "strict" }));
        assert_eq!(hostile.may("print(1 + 1)"), "2");
        hostile.must_not(&read(&hostile, "other/plain"));
        hostile.must_not(&write(&hostile, "work/mine"));
        hostile.must_not("open('/etc/passwd').read()");
    }
}

// req: SB-04
#[test]
fn a_program_in_the_home_does_not_open_the_home_under_strict() {
    for user in users() {
        let hostile =
            Hostile::new(user, json!({ "command": "../bin/server", "args": [], "sandbox": "strict" }));
        let server = hostile.path("bin/server");
        fs::create_dir(hostile.path("bin")).unwrap();
        fs::write(&server, format!("#!/usr/bin/env python3\n{}", include_str!("../hostile.py"))).unwrap();
        fs::set_permissions(&server, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(hostile.may("print(1 + 1)"), "2");
        hostile.must_not(&read(&hostile, ".ssh/id_test"));
        hostile.must_not(&read(&hostile, "other/plain"));
    }
}

// req: SB-04
#[test]
fn a_policy_of_ones_own_lists_what_may_be_read_and_written() {
    for user in users() {
        let sandbox = json!({ "read": ["work", "other"], "write": ["work"] });
        let hostile = Hostile::new(user, json!({ "sandbox": sandbox }));
        assert_eq!(hostile.may(&read(&hostile, "other/plain")), "no secret");
        hostile.may(&write(&hostile, "work/mine"));
        hostile.must_not(&write(&hostile, "other/plain"));
        hostile.must_not(&read(&hostile, ".ssh/id_test"));
    }
}

// req: SB-04
#[test]
fn sandbox_off_is_off() {
    for user in users() {
        let hostile = Hostile::new(user, json!({ "sandbox": "off" }));
        assert_eq!(hostile.may(&read(&hostile, ".ssh/id_test")), "the secret");
    }
}

// req: SB-02
#[test]
fn open_files_are_counted() {
    let hoard = "held = [open('/dev/null') for _ in range(500)]";
    for user in users() {
        let hostile = Hostile::new(user, json!({ "limits": { "maxOpenFiles": 64 } }));
        let failed = hostile.attempt(hoard).unwrap_err();
        assert!(failed.contains("Too many open files"), "{failed}");
        Hostile::new(user, json!({})).may(hoard);
    }
}
