//! The home of a confined server, and the user's home, which it cannot read.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::hostile_server::{HostileServer, User, quoted, require_root, users};
use crate::support::{CommandOutput, program, text};

fn read(path: &Path) -> String {
    format!("print(open({}).read())", quoted(path))
}

/// Creates a file in the home, and its folders.
fn put(hostile: &HostileServer, name: &str, content: &str) {
    let path = hostile.path(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
    hostile.set_owner();
}

// req: SB-07
#[test]
fn server_has_home_and_temporary_folder_of_its_own() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({}));
        let home = hostile.expect_ok(
            "open(os.path.expanduser('~/.state'), 'w').write('kept'); os.makedirs(os.path.expanduser('~/.config/app')); print(os.environ['HOME'])",
        );
        assert!(home.starts_with(hostile.path(".local/share/bascule").to_str().unwrap()), "{home}");
        assert_eq!(hostile.expect_ok("print(open(os.path.expanduser('~/.state')).read())"), "kept");
        let make = "import tempfile; f = tempfile.mkstemp()[1]; open('left', 'w'); print(f)";
        let temporary = hostile.expect_ok(make);
        assert!(temporary.contains("/servers/h-"), "{temporary}");
        assert!(!Path::new(temporary.trim()).exists(), "temporary files are removed with their process");
        for folder in ["/tmp", "/var/tmp", "/dev/shm"] {
            hostile.expect_denied(&format!("open('{folder}/bascule-test', 'w')"));
        }
    }
}

// req: SB-07
#[test]
fn server_reads_nothing_else_of_the_users_home() {
    const PRIVATE: [&str; 24] = [
        ".vscode/settings.json",
        ".config/Code/User/globalStorage/state.vscdb",
        ".config/JetBrains/options.xml",
        ".config/nvim/init.lua",
        ".claude/history.jsonl",
        ".codex/auth.json",
        ".gemini/oauth_creds.json",
        ".config/goose/config.yaml",
        ".config/opencode/opencode.json",
        ".aider.conf.yml",
        ".bash_history",
        ".zsh_history",
        ".sqlite_history",
        ".lesshst",
        ".env",
        "project/.env",
        ".aws/credentials",
        ".config/gcloud/credentials.db",
        ".config/doctl/config.yaml",
        ".oci/config",
        ".npmrc",
        ".config/rclone/rclone.conf",
        "Documents/taxes.txt",
        ".cache/app/token",
    ];
    for user in users() {
        let hostile = HostileServer::new(user, json!({}));
        PRIVATE.iter().for_each(|name| put(&hostile, name, "private"));
        let paths: Vec<String> = PRIVATE.iter().map(|name| quoted(&hostile.path(name))).collect();
        let code = format!(
            "for path in [{}]:\n    try: print('read', path, open(path).read())\n    except PermissionError: pass",
            paths.join(", ")
        );
        assert_eq!(hostile.expect_ok(&code), "");
        hostile.expect_denied(&format!("os.listdir({})", quoted(&hostile.path(""))));
    }
}

// req: SB-07
#[test]
fn servers_do_not_share_their_homes_or_caches() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({}));
        hostile.configure(&json!({ "h": {}, "other": {} }));
        put(&hostile, ".npm/_npx/abc/index.js", "honest code");
        let home = |server: &str| {
            let arguments = json!({ "code": "print(os.environ['HOME'])" }).to_string();
            let ran = hostile
                .command(&["call", "--config", "mcp.json", &format!("{server}:try"), &arguments, "--json"])
                .output();
            text(&CommandOutput::from(ran.unwrap()).document()["result"])
        };
        let other = home("other");
        assert_ne!(home("h"), other);
        let planted = Path::new(other.trim()).join(".npm");
        hostile.expect_denied(&format!("os.mkdir({})", quoted(&planted)));
        hostile.expect_denied(&format!("os.listdir({})", quoted(Path::new(other.trim()))));
        let cached = hostile.path(".npm/_npx/abc/index.js");
        hostile.expect_denied(&read(&cached));
        hostile.expect_denied(&format!("open({}, 'w')", quoted(&cached)));
    }
}

// req: SB-07
#[test]
fn users_home_is_open_on_request_without_its_secrets() {
    for user in users() {
        let sandbox = json!({ "profile": "standard", "home": "user" });
        let hostile = HostileServer::new(user, json!({ "sandbox": sandbox }));
        put(&hostile, ".npm/x", "");
        assert_eq!(hostile.expect_ok("print(os.environ['HOME'])"), hostile.path("").display().to_string());
        assert_eq!(hostile.expect_ok(&read(&hostile.path("other/plain"))), "no secret");
        hostile.expect_ok(&format!("open({}, 'w').write('x')", quoted(&hostile.path(".npm/x"))));
        hostile.expect_denied(&read(&hostile.path(".ssh/id_test")));
        hostile.expect_denied(&format!("open({}, 'w')", quoted(&hostile.path("other/plain"))));
        hostile.expect_ok("import tempfile; tempfile.TemporaryFile().write(b'x')");
        hostile.expect_ok(&format!("os.mkdir({})", quoted(&hostile.path(".cache/x"))));
    }
}

// req: SB-07
#[test]
fn folder_of_programs_that_a_server_replaced_is_closed() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({}));
        put(&hostile, "work/.venv/bin/python", "");
        put(&hostile, ".local/share/uv/tools/x", "");
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", hostile.path("work/.venv/bin").display());
        let user_home = json!({ "profile": "standard", "home": "user" });
        hostile.configure(&json!({ "h": { "env": { "PATH": path } }, "u": { "sandbox": user_home } }));
        let ssh = hostile.path(".ssh");
        hostile.expect_ok(&format!(
            "os.rename('.venv', '.old'); os.mkdir('.venv'); os.symlink({}, '.venv/bin')",
            quoted(&ssh)
        ));
        hostile.expect_denied(&read(&ssh.join("id_test")));
        fs::remove_dir_all(hostile.path(".local/share/uv/tools")).unwrap();
        symlink(&ssh, hostile.path(".local/share/uv/tools")).unwrap();
        hostile.expect_denied(&read(&ssh.join("id_test")));
    }
}

// req: SB-07
#[test]
fn program_that_a_server_replaced_opens_nothing() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({}));
        let private = hostile.path("private/bin/tool");
        put(&hostile, "private/bin/tool", "#!/bin/sh\n");
        put(&hostile, "private/diary", "private");
        put(&hostile, "work/package.json", "");
        put(&hostile, "package.json", "");
        let secret = hostile.path(".ssh/id_test");
        let server = hostile.path("work/server.py").display().to_string();
        let first_lines = [
            format!("#!/usr/bin/env -S -u {} /usr/bin/python3 {server}", secret.display()),
            format!("#!/usr/bin/env -S -u {} /usr/bin/python3 {server}", private.display()),
        ];
        for line in first_lines {
            fs::write(hostile.path("work/run"), format!("{line}\n")).unwrap();
            fs::set_permissions(
                hostile.path("work/run"),
                std::os::unix::fs::PermissionsExt::from_mode(0o755),
            )
            .unwrap();
            hostile.configure(&json!({ "h": { "command": "./run", "args": [] } }));
            hostile.expect_denied(&read(&secret));
            hostile.expect_denied(&read(&hostile.path("private/diary")));
        }
        // A file that is named like an option, and a marker that is gone.
        symlink(&private, hostile.path("work/--verbose")).unwrap();
        hostile.configure(&json!({ "h": { "args": ["server.py", "--verbose"] } }));
        assert!(hostile.start_error().contains("could change the link"));
        fs::remove_file(hostile.path("work/--verbose")).unwrap();
        fs::remove_file(hostile.path("work/package.json")).unwrap();
        hostile.expect_denied(&read(&hostile.path("package.json")));
    }
}

// req: SB-07
#[test]
fn home_that_is_a_link_is_closed() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({}));
        let link = tempfile::tempdir_in(hostile.path("").parent().unwrap()).unwrap();
        fs::set_permissions(link.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let home = link.path().join("home");
        symlink(hostile.path(""), &home).unwrap();
        let entry = json!({ "command": "python3", "args": [hostile.path("work/server.py")], "startTimeoutMs": 60_000 });
        fs::write(hostile.path("mcp.json"), json!({ "mcpServers": { "h": entry } }).to_string()).unwrap();
        let arguments = json!({ "code": read(&hostile.path("other/plain")) }).to_string();
        let mut command = hostile.command(&["call", "--config", "mcp.json", "h:try", &arguments, "--json"]);
        let ran = CommandOutput::from(command.env("HOME", &home).output().unwrap());
        assert!(text(&ran.document()["result"]).starts_with("PermissionError"), "{user:?}: {ran:?}");
    }
}

// req: SB-07
#[test]
fn folders_that_the_environment_moves_are_closed() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({}));
        let moved = tempfile::tempdir_in(hostile.path("").parent().unwrap()).unwrap();
        let file = moved.path().join("gh/hosts.yml");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, "token").unwrap();
        fs::set_permissions(moved.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let arguments = json!({ "code": read(&file) }).to_string();
        for variable in ["XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"] {
            let mut command =
                hostile.command(&["call", "--config", "mcp.json", "h:try", &arguments, "--json"]);
            let ran = CommandOutput::from(command.env(variable, moved.path()).output().unwrap());
            assert!(text(&ran.document()["result"]).starts_with("PermissionError"), "{user:?}: {ran:?}");
        }
    }
}

// req: SB-07
#[test]
fn many_secrets_of_a_project_do_not_stop_servers() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({}));
        let fill = "[open(f'many/.env.{n:0200}', 'w').close() for n in range(3000)]";
        fs::create_dir(hostile.path("work/many")).unwrap();
        hostile.set_owner();
        hostile.expect_ok(fill);
        hostile.expect_denied(&read(&hostile.path(&format!("work/many/.env.{:0200}", 7))));
    }
}

// req: SB-07
#[test]
fn database_in_arguments_can_be_written() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({ "args": ["server.py", "--db=../data/birds.sqlite"] }));
        fs::create_dir(hostile.path("data")).unwrap();
        hostile.set_owner();
        let code = "import sqlite3; c = sqlite3.connect('../data/birds.sqlite'); c.execute('create table if not exists t (x)'); c.execute('insert into t values (1)'); c.commit()";
        hostile.expect_ok(code);
        hostile.expect_ok(code);
    }
}

/// Removes the data that hostile servers leave in the home of the user database, which their user cannot choose.
struct LeftData(Vec<PathBuf>);

impl LeftData {
    fn new() -> Self {
        Self(Self::files())
    }

    fn files() -> Vec<PathBuf> {
        let data = bascule_sandbox::own_home().map(|home| home.join(".local/share/bascule"));
        let folders = data.iter().flat_map(|data| ["servers", "listings"].map(|name| data.join(name)));
        let entries = folders.filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    }

    /// Returns true for the folder or the listing of a hostile server.
    fn is_hostile(path: &Path) -> bool {
        let is_folder = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("h-"));
        is_folder || fs::read_to_string(path).is_ok_and(|text| text.contains("\"hostile\""))
    }
}

impl Drop for LeftData {
    fn drop(&mut self) {
        let new = Self::files().into_iter().filter(|path| !self.0.contains(path) && Self::is_hostile(path));
        for path in new {
            // The observed results of a server are in a file of the same name as its listing.
            let observed = path.components().map(|part| match part.as_os_str().to_str() {
                Some("listings") => "observed".as_ref(),
                _ => part.as_os_str(),
            });
            let _ = fs::remove_file(observed.collect::<PathBuf>());
            let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
        }
    }
}

// req: SB-07
#[test]
fn server_starts_without_a_usable_home() {
    let _left = LeftData::new();
    for user in users() {
        let hostile = HostileServer::new(user, json!({}));
        let arguments =
            json!({ "code": "import tempfile; tempfile.TemporaryFile(); print(os.environ['HOME'])" })
                .to_string();
        for home in ["/", "/dev/null", "/dev/null/none"] {
            let mut command =
                hostile.command(&["call", "--config", "mcp.json", "h:try", &arguments, "--json"]);
            let data = hostile.path("other");
            let command = command.env("HOME", home).env("TMPDIR", &data);
            let ran = CommandOutput::from(command.output().unwrap());
            assert_eq!(ran.code, Some(0), "{user:?}: {ran:?}");
        }
    }
}

// req: SB-07
#[test]
fn secrets_are_closed_whatever_the_environment_says() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({}));
        let secret = hostile.path(".ssh/id_test");
        // Explicitly granted folders lead to the secret by other names.
        hostile.configure(&json!({ "h": { "args": ["server.py", ".."] } }));
        fs::hard_link(&secret, hostile.path("work/hard")).unwrap();
        symlink(&secret, hostile.path("work/soft")).unwrap();
        for name in ["work/hard", "work/soft", ".ssh/id_test"] {
            hostile.expect_denied(&read(&hostile.path(name)));
        }
        let configured = hostile.path("xdg/bascule/mcp.json");
        put(&hostile, "xdg/bascule/mcp.json", &fs::read_to_string(hostile.path("mcp.json")).unwrap());
        let arguments = json!({ "code": read(&configured) }).to_string();
        let mut command = hostile.command(&["call", "--config", "mcp.json", "h:try", &arguments, "--json"]);
        let ran = CommandOutput::from(command.env("XDG_CONFIG_HOME", hostile.path("xdg")).output().unwrap());
        assert_eq!(ran.code, Some(1), "{ran:?}");
    }
}

// req: SB-07
#[test]
fn bind_mount_of_home_is_closed() {
    require_root("the test mounts its home a second time");
    let hostile = HostileServer::new(User::Current, json!({}));
    let mount = tempfile::tempdir_in("/srv").unwrap();
    let arguments = json!({ "code": read(&mount.path().join(".ssh/id_test")) }).to_string();
    let script = "mount --make-rprivate / && mount --bind \"$HOME\" \"$1\" && exec \"$2\" call --json --config mcp.json h:try \"$3\"";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script, "sh"]).arg(mount.path()).arg(program()).arg(&arguments);
    let home = hostile.path("");
    let ran = CommandOutput::from(command.current_dir(&home).env("HOME", &home).output().unwrap());
    assert!(text(&ran.document()["result"]).starts_with("PermissionError"), "{ran:?}");
}

// req: SB-07
#[test]
fn secrets_of_project_are_closed_unless_named() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({}));
        put(&hostile, "work/.env", "TOKEN=1");
        put(&hostile, "work/sub/.env.local", "TOKEN=2");
        put(&hostile, "work/.git/config", "[remote \"o\"]\n url = https://me:token@host/x\n");
        put(&hostile, "work/.env.example", "TOKEN=");
        for name in ["work/.env", "work/sub/.env.local", "work/.git/config"] {
            hostile.expect_denied(&read(&hostile.path(name)));
            hostile.expect_denied(&format!("os.rename({}, 'moved')", quoted(&hostile.path(name))));
        }
        hostile.expect_ok(&read(&hostile.path("work/.env.example")));
        hostile.expect_ok("open('server.py', 'a').close(); print(os.listdir('.'))");
        let sandbox = json!({ "profile": "standard", "read": ["work/.env"] });
        hostile.configure(&json!({ "h": { "sandbox": sandbox } }));
        assert_eq!(hostile.expect_ok(&read(&hostile.path("work/.env"))), "TOKEN=1");
    }
}

// req: SB-07
#[test]
fn file_that_a_server_planted_does_not_hide_secrets() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({}));
        put(&hostile, "work/sub/plain", "");
        hostile.expect_ok(
            "for f in ['pyvenv.cfg', 'CACHEDIR.TAG', 'package.json']: open('sub/' + f, 'w').write('home = /usr')",
        );
        put(&hostile, "work/sub/.env", "TOKEN=1");
        hostile.expect_denied(&read(&hostile.path("work/sub/.env")));
    }
}

// req: SB-07, GW-07
#[test]
fn token_in_the_projects_file_of_a_client_is_closed() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({}));
        let entry =
            |token: &str| json!({ "headers": { "Authorization": format!("Bearer {token}") } }).to_string();
        put(&hostile, "work/.cursor/mcp.json", &entry("0123456789abcdef"));
        put(&hostile, "work/.vscode/mcp.json", &entry("${TOKEN}"));
        hostile.expect_denied(&read(&hostile.path("work/.cursor/mcp.json")));
        hostile.expect_ok(&read(&hostile.path("work/.vscode/mcp.json")));
    }
}

// req: SB-07
#[test]
fn hard_link_to_a_configuration_is_closed() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({}));
        put(&hostile, ".config/bascule/mcp.json", "{}");
        fs::hard_link(hostile.path(".config/bascule/mcp.json"), hostile.path("work/linked")).unwrap();
        hostile.expect_denied(&read(&hostile.path("work/linked")));
        hostile.expect_denied(&format!("open({}, 'a')", quoted(&hostile.path("work/linked"))));
    }
}

// req: SB-07
#[test]
fn folder_that_another_user_made_among_temporary_files_is_refused() {
    require_root("the bridge runs as a user without a home");
    let hostile = HostileServer::new(User::Nobody, json!({}));
    let temporary = hostile.path("tmp");
    let planted = temporary.join("bascule-65534");
    fs::create_dir_all(&planted).unwrap();
    for (folder, mode) in [(&temporary, 0o1777), (&planted, 0o777)] {
        fs::set_permissions(folder, fs::Permissions::from_mode(mode)).unwrap();
    }
    let call = || {
        let mut command = hostile.command(&["call", "h:try", r#"{"code":"print(1)"}"#, "--json"]);
        // The account has no home either.
        let ran = command.env("HOME", "/nonexistent").env("TMPDIR", &temporary).output().unwrap();
        CommandOutput::from(ran)
    };
    let refused = call().document()["error"]["message"].to_string();
    assert!(refused.contains("others can write") && refused.contains("bascule-65534"), "{refused}");
    assert_eq!(fs::read_dir(&planted).unwrap().count(), 0);
    fs::remove_dir(&planted).unwrap();
    assert_eq!(call().code, Some(0));
}

// req: SB-08
#[test]
fn configuration_in_the_servers_folder_cannot_be_changed() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({}));
        // The layout of the README: the configuration is in the folder that the server may write.
        let config = hostile.path("work/mcp.json");
        fs::copy(hostile.path("mcp.json"), &config).unwrap();
        fs::write(hostile.path("work/data"), "").unwrap();
        fs::create_dir(hostile.path("work/sub")).unwrap();
        hostile.set_owner();
        let attempt = |code: &str| {
            let arguments = json!({ "code": code }).to_string();
            let mut command =
                hostile.command(&["call", "--json", "--config", "work/mcp.json", "h:try", &arguments]);
            let ran = CommandOutput::from(command.output().unwrap());
            text(&ran.document()["result"])
        };
        for code in [
            "open('mcp.json', 'w')",
            "open('mcp.json').read()",
            "os.unlink('mcp.json')",
            "os.rename('data', 'mcp.json')",
            "os.rename('mcp.json', 'sub/mcp.json')",
            "os.truncate('mcp.json', 0)",
            "os.symlink('/etc/passwd', 'mcp2.json')",
            "os.rename('.', '../elsewhere')",
            "os.link('mcp.json', 'sub/hard')",
        ] {
            let result = attempt(code);
            let is_refused = ["PermissionError", "OSError"].iter().any(|error| result.starts_with(error));
            assert!(is_refused, "{code}: {result}");
        }
        assert_eq!(
            attempt("open('data', 'w').write('x'); open('sub/new', 'w'); print(sorted(os.listdir('.'))[:1])"),
            "['data']"
        );
        assert!(fs::read_to_string(config).unwrap().contains("server.py"));
    }
}

// req: SB-07
#[test]
fn link_that_a_server_placed_widens_nothing() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({ "args": ["server.py", "--data=data"] }));
        put(&hostile, "work/data/x", "");
        hostile.expect_ok("os.rename('data', 'old'); os.symlink('..', 'data')");
        let error = hostile.start_error();
        assert!(error.contains("could change the link"), "{error}");
        let sandbox = json!({ "read": ["work/data", "work"], "write": ["work"] });
        hostile.configure(&json!({ "h": { "sandbox": sandbox } }));
        let error = hostile.start_error();
        assert!(error.contains("could change the link"), "{error}");
        fs::remove_file(hostile.path("work/data")).unwrap();
        symlink(hostile.path(".ssh"), hostile.path("work/data")).unwrap();
        let error = hostile.start_error();
        assert!(error.contains("is a link to the secret"), "{error}");
    }
}

// req: SB-07
#[test]
fn named_secret_is_open() {
    for user in users() {
        let sandbox = json!({ "read": ["work", ".ssh"] });
        let hostile = HostileServer::new(user, json!({ "sandbox": sandbox }));
        assert_eq!(hostile.expect_ok(&read(&hostile.path(".ssh/id_test"))), "the secret");
    }
}

// req: SB-07
#[test]
fn size_of_own_home_is_limited() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({ "limits": { "maxHomeMb": 4 } }));
        let fill =
            "import time; open(os.path.expanduser('~/big'), 'wb').write(b'x' * (16 << 20)); time.sleep(20)";
        let error = hostile.call_error(fill);
        assert_eq!(error["code"], "PROVIDER_CRASHED", "{error:#}");
        assert!(error["limit"].as_str().unwrap().contains("`maxHomeMb` exceeded"), "{error:#}");
    }
}

// req: SB-07
#[test]
fn private_registry_is_passed_on_without_credentials() {
    for user in users() {
        let hostile = HostileServer::new(user, json!({}));
        put(&hostile, ".npmrc", "registry=http://127.0.0.1:9/private/\n//127.0.0.1:9/:_authToken=hunter2\n");
        put(&hostile, ".config/pip/pip.conf", "[global]\nindex-url = http://me:hunter2@127.0.0.1:9/simple\n");
        let run = |command: &str| {
            hostile.expect_ok(&format!("import subprocess; print(subprocess.run({command}.split(), capture_output=True, text=True).stdout)"))
        };
        assert_eq!(run("'npm config get registry'").trim(), "http://127.0.0.1:9/private/");
        let shown = run("'npm config list'");
        assert!(!shown.contains("hunter2"), "{shown}");
        let shown = run("'python3 -m pip config list'");
        assert!(shown.contains("global.index-url='http://127.0.0.1:9/simple'"), "{shown}");
        hostile.expect_denied(&read(&hostile.path(".npmrc")));
        let sandbox = json!({ "profile": "standard", "read": [".npmrc"] });
        hostile.configure(&json!({ "h": { "sandbox": sandbox } }));
        assert!(run("'npm config get userconfig'").contains(hostile.path(".npmrc").to_str().unwrap()));
    }
}

// req: SB-07
#[test]
fn script_reads_its_project_and_cannot_change_it() {
    for user in users() {
        let entry: Value = json!({ "args": ["../app/src/main.py"] });
        let hostile = HostileServer::new(user, entry);
        put(&hostile, "app/pyproject.toml", "");
        put(&hostile, "app/src/main.py", include_str!("../hostile.py"));
        put(&hostile, "app/src/helper.py", "answer = 42");
        put(&hostile, "app/.env", "TOKEN=1");
        assert_eq!(
            hostile.expect_ok("sys.path.insert(0, '../app/src'); import helper; print(helper.answer)"),
            "42"
        );
        hostile.expect_denied("open('../app/src/main.py', 'a')");
        hostile.expect_denied("open('../app/src/new.py', 'w')");
        hostile.expect_denied("open('../app/.env').read()");
    }
}
