//! `install`, `uninstall` and `import` with the files of thirteen MCP clients.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::{Bascule, CommandOutput, demo_server, program};

/// The clients, the user's file of each in the home, and the text of the test file.
const FILES: [(&str, &str, &str); 13] = [
    (
        "claude-desktop",
        ".config/Claude/claude_desktop_config.json",
        include_str!("clients/files/claude-desktop.json"),
    ),
    ("claude-code", ".claude.json", include_str!("clients/files/claude-code.json")),
    ("cursor", ".cursor/mcp.json", include_str!("clients/files/cursor.json")),
    ("vscode", ".config/Code/User/mcp.json", include_str!("clients/files/vscode.json")),
    ("windsurf", ".codeium/windsurf/mcp_config.json", include_str!("clients/files/windsurf.json")),
    ("zed", ".config/zed/settings.json", include_str!("clients/files/zed.json")),
    ("codex", ".codex/config.toml", include_str!("clients/files/codex.toml")),
    ("gemini", ".gemini/settings.json", include_str!("clients/files/gemini.json")),
    ("goose", ".config/goose/config.yaml", include_str!("clients/files/goose.yaml")),
    ("continue", ".continue/config.yaml", include_str!("clients/files/continue.yaml")),
    ("opencode", ".config/opencode/opencode.jsonc", include_str!("clients/files/opencode.jsonc")),
    (
        "cline",
        ".config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
        include_str!("clients/files/cline.json"),
    ),
    ("copilot", ".copilot/mcp-config.json", include_str!("clients/files/copilot.json")),
];

/// A home with the files of clients, and a configuration with one server.
struct Home(Bascule);

impl Home {
    fn new() -> Self {
        Self::with_config(&json!({ "mcpServers": { "clock": demo_server("clock") } }).to_string())
    }

    fn with_config(text: &str) -> Self {
        let bascule = Bascule::with_text(text);
        let home = bascule.folder().join("home");
        fs::create_dir(&home).unwrap();
        let home = home.to_str().unwrap().to_owned();
        // An empty variable names nothing.
        let bascule = ["XDG_CONFIG_HOME", "CODEX_HOME", "CLAUDE_CONFIG_DIR"]
            .iter()
            .fold(bascule.env("HOME", &home).env("SHELL", "/bin/sh"), |bascule, name| bascule.env(name, ""));
        Self(bascule)
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.folder().join("home").join(path)
    }

    fn write(&self, path: &str, text: &str) -> PathBuf {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    #[track_caller]
    fn run(&self, arguments: &[&str]) -> CommandOutput {
        let output = self.0.run(arguments);
        assert_eq!(output.code, Some(0), "{arguments:?}: {output:?}");
        output
    }

    /// Expects exit code 2 and returns the message.
    #[track_caller]
    fn expect_refused(&self, arguments: &[&str]) -> String {
        let output = self.0.run(arguments);
        assert_eq!(output.code, Some(2), "{arguments:?}: {output:?}");
        output.stderr
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

/// Returns true if `new` is `old` with insertions of one or two parts.
fn is_extended(old: &str, new: &str) -> bool {
    let mut rest = new.chars();
    old.chars().all(|c| rest.any(|other| other == c))
}

// req: US-04
#[test]
fn installs_into_every_client_and_removes_without_a_trace() {
    let home = Home::new();
    let config = home.0.folder().join("mcp.json");
    for (client, file, text) in FILES {
        let path = home.write(file, text);
        let (code, document) = home.0.run_json(&["install", client, "--yes"]);
        assert_eq!(
            (code, &document["action"], &document["written"]),
            (0, &json!("added"), &json!(true)),
            "{document}"
        );
        let installed = read(&path);
        assert!(is_extended(text, &installed), "{client}: {installed}");
        assert!(installed.contains(program()) && installed.contains(config.to_str().unwrap()), "{installed}");
        assert_eq!(installed.contains("\r\n"), text.contains("\r\n"), "{client}");
        assert_eq!(
            document["backup"],
            json!(
                path.with_file_name(format!(
                    "{}.bascule-backup",
                    path.file_name().unwrap().to_str().unwrap()
                ))
            )
        );
        // The second time there is nothing to do.
        let (_, document) = home.0.run_json(&["install", client, "--yes"]);
        assert_eq!((&document["action"], read(&path)), (&json!("none"), installed.clone()), "{client}");
        home.run(&["uninstall", client, "--yes"]);
        assert_eq!(read(&path), text, "{client}");
        assert_eq!(
            fs::read_dir(path.parent().unwrap())
                .unwrap()
                .filter(|entry| entry.as_ref().unwrap().file_type().unwrap().is_file())
                .count(),
            1,
            "{client}: no backup is left"
        );
        // Without the backup, only the entry is known.
        fs::write(&path, &installed).unwrap();
        home.run(&["install", client, "--remove", "--yes"]);
        assert_eq!(read(&path), text, "{client}");
    }
}

// req: US-04
#[test]
fn updates_its_own_entry_over_http_and_back() {
    let home = Home::new();
    for (client, file, text) in FILES {
        if client == "claude-desktop" {
            assert!(
                home.expect_refused(&["install", client, "--http", "--yes"])
                    .contains("starts processes only")
            );
            continue;
        }
        let path = home.write(file, text);
        home.run(&["install", client, "--yes"]);
        let installed = read(&path);
        let output = home.run(&["install", client, "--http", "--yes"]);
        let token = home.run(&["token"]).stdout.trim().to_owned();
        let http = read(&path);
        assert!(http.contains("http://127.0.0.1:7420/mcp") && http.contains(&token), "{client}: {http}");
        assert!(!http.contains(program()), "{client}: {http}");
        assert!(
            output.stdout.contains("contains the token now") && !output.stdout.contains(&token),
            "{output:?}"
        );
        home.run(&["install", client, "--yes"]);
        assert_eq!(read(&path).matches(program()).count(), 1, "{client}");
        assert!(!read(&path).contains(&token), "{client}");
        assert_eq!(read(&path).lines().count(), installed.lines().count(), "{client}: {}", read(&path));
        home.run(&["uninstall", client, "--yes"]);
        assert_eq!(read(&path), text, "{client}");
    }
}

// req: US-04
#[test]
fn update_keeps_settings_that_the_user_changed() {
    let home = Home::new();
    let path = home.path(".config/goose/config.yaml");
    home.run(&["install", "goose", "--yes"]);
    let installed = read(&path);
    let changed = [("envs: {}", "envs: {A: b}"), ("enabled: true", "enabled: false"), ("300", "900")]
        .iter()
        .fold(installed.clone(), |text, (from, to)| text.replace(from, to));
    assert_eq!(changed.lines().zip(installed.lines()).filter(|(a, b)| a != b).count(), 3, "{installed}");
    fs::write(&path, changed.replace(program(), "/elsewhere/bascule")).unwrap();
    home.run(&["install", "goose", "--yes"]);
    assert_eq!(read(&path), changed);
}

// req: US-04
#[test]
fn creates_a_missing_file_and_deletes_it_again() {
    let home = Home::new();
    for (client, file, _) in FILES.into_iter().filter(|(client, ..)| *client != "opencode") {
        let path = home.path(file);
        home.run(&["install", client, "--yes"]);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600, "{client}");
        assert!(read(&path).contains("--stdio"), "{client}");
        let removed = home.run(&["uninstall", client, "--yes"]).stdout;
        assert!(removed.contains("leaves it out from its next start"), "{removed}");
        assert!(!path.exists(), "{client}");
    }
    let output = home.run(&["uninstall", "cursor", "--yes"]);
    assert!(output.stdout.contains("nothing to change"), "{output:?}");
}

// req: US-04
#[test]
fn shows_the_difference_without_a_terminal() {
    let home = Home::new();
    let text = "{ \"mcpServers\": { \"x\": { \"command\": \"y\", \"env\": { \"K\": \"hunter22\" } } } }\n";
    let path = home.write(".cursor/mcp.json", text);
    let output = home.0.run(&["install", "cursor"]);
    assert_eq!(output.code, Some(2), "{output:?}");
    assert!(output.stdout.contains("+ ") && output.stdout.contains("\"bascule\""), "{output:?}");
    assert!(output.stderr.contains("--yes") && !output.stdout.contains("hunter22"), "{output:?}");
    let (code, document) = home.0.run_json(&["install", "cursor"]);
    assert_eq!((code, &document["written"], &document["error"]["code"]), (2, &json!(false), &json!("USAGE")));
    assert!(!document["difference"].as_array().unwrap().is_empty());
    home.run(&["install", "cursor", "--dry-run"]);
    assert_eq!(read(&path), text);
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing was written");
}

// req: US-04
#[test]
fn asks_on_a_terminal() {
    let home = Home::new();
    let path = home.write(".cursor/mcp.json", "{}");
    for (answer, code) in [("n\n", 2), ("y\n", 0)] {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/terminal.py");
        let mut python = std::process::Command::new("python3");
        python.arg(script).args([answer, "true", program(), "install", "cursor", "--config", "mcp.json"]);
        python.current_dir(home.0.folder()).env("HOME", home.path("")).env_remove("XDG_CONFIG_HOME");
        let document = CommandOutput::from(python.output().unwrap()).document();
        assert_eq!((&document["code"], &document["asked"]), (&json!(code), &json!(true)), "{document}");
        assert_eq!(read(&path).contains("bascule"), code == 0);
    }
}

// req: US-04
#[test]
fn refuses_files_that_it_cannot_change_safely() {
    let home = Home::new();
    let install = |text: &str| {
        let path = home.write(".cursor/mcp.json", text);
        let message = home.expect_refused(&["install", "cursor", "--yes"]);
        assert_eq!(read(&path), text);
        message
    };
    assert!(install("{\n  \"mcpServers\": {\n    \"a\": }\n}").contains("mcp.json:3:10: not JSON"));
    assert!(
        install("{ \"mcpServers\": [] }").contains("mcp.json:1:17: `mcpServers` must be a map, is a list")
    );
    assert!(install("[]").contains("must be a map"));
    assert!(install("{ \"mcpServers\": { \"bascule\": { \"command\": \"other\" } } }").contains("--name"));
    let path = home.write(".cursor/mcp.json", "{}");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    assert!(home.expect_refused(&["install", "cursor", "--yes"]).contains("read-only"));
    fs::remove_file(&path).unwrap();
    fs::File::create(&path).unwrap().set_len(100 << 20).unwrap();
    assert!(home.expect_refused(&["install", "cursor", "--yes"]).contains("larger than"));
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(home.expect_refused(&["install", "cursor", "--yes"]).contains("not a regular file"));
    let yaml = home.write(".config/goose/config.yaml", "extensions:\n\t- x\n");
    assert!(home.expect_refused(&["install", "goose", "--yes"]).contains("config.yaml:2:"));
    let toml = home.write(".codex/config.toml", "a = \n");
    assert!(home.expect_refused(&["install", "codex", "--yes"]).contains("config.toml:1:5: not TOML"));
    assert_eq!((read(&yaml).as_str(), read(&toml).as_str()), ("extensions:\n\t- x\n", "a = \n"));
}

// req: US-04
#[test]
fn follows_a_link_to_the_file() {
    let home = Home::new();
    let real = home.write("dotfiles/cursor.json", "{}\n");
    fs::create_dir(home.path(".cursor")).unwrap();
    symlink(&real, home.path(".cursor/mcp.json")).unwrap();
    home.run(&["install", "cursor", "--yes"]);
    assert!(home.path(".cursor/mcp.json").is_symlink() && read(&real).contains("--stdio"));
    home.run(&["uninstall", "cursor", "--yes"]);
    assert_eq!(read(&real), "{}\n");
}

// req: US-04
#[test]
fn installs_into_a_project() {
    let home = Home::new();
    for (client, file) in [
        ("claude-code", ".mcp.json"),
        ("cursor", ".cursor/mcp.json"),
        ("vscode", ".vscode/mcp.json"),
        ("zed", ".zed/settings.json"),
        ("codex", ".codex/config.toml"),
        ("gemini", ".gemini/settings.json"),
        ("opencode", "opencode.json"),
    ] {
        home.run(&["install", client, "--project", "--yes"]);
        assert!(read(&home.0.folder().join(file)).contains("--stdio"), "{client}");
    }
    // Copilot CLI reads the file of VS Code.
    let (_, document) = home.0.run_json(&["install", "copilot", "--project", "--yes"]);
    assert_eq!(document["action"], "none", "{document}");
    assert!(
        home.expect_refused(&["install", "goose", "--project", "--yes"]).contains("no file for a project")
    );
}

// req: US-04
#[test]
fn lists_the_clients_that_are_found() {
    let home = Home::new();
    home.write(".cursor/mcp.json", "{}");
    home.write(".codex/config.toml", "broken");
    fs::create_dir(home.path(".gemini")).unwrap();
    home.run(&["install", "cursor", "--yes"]);
    let (_, document) = home.0.run_json(&["install", "--list"]);
    let state = |id: &str| {
        let states = document.as_array().unwrap();
        assert_eq!(states.len(), 13);
        states.iter().find(|state| state["client"] == id).unwrap().clone()
    };
    assert_eq!((&state("cursor")["installed"], &state("cursor")["found"]), (&json!(true), &json!(true)));
    assert!(state("codex")["problem"].as_str().unwrap().contains("not TOML"));
    assert_eq!((&state("gemini")["installed"], &state("gemini")["found"]), (&json!(false), &json!(true)));
    assert_eq!(state("zed")["found"], json!(false));
    let output = home.run(&["install"]).stdout;
    assert!(output.contains("cursor          installed") && output.contains("not found here: "), "{output}");
}

// req: US-04
#[test]
fn the_installed_entry_starts_the_bridge() {
    let home = Home::new();
    home.run(&["install", "cursor", "--yes"]);
    let file: Value = serde_json::from_str(&read(&home.path(".cursor/mcp.json"))).unwrap();
    let entry = &file["mcpServers"]["bascule"];
    let words: Vec<&str> =
        entry["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
    assert_eq!(entry["command"], program());
    let request = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } } });
    let output = home.0.run_with_input(&words, &format!("{request}\n"));
    assert!(output.stdout.contains("\"serverInfo\""), "{output:?}");
}

/// The servers of an `mcp.json` without comments.
fn servers(path: &Path) -> Value {
    serde_json::from_str::<Value>(&read(path)).unwrap()["mcpServers"].clone()
}

// req: US-04
#[test]
fn imports_the_servers_of_every_client() {
    let home = Home::new();
    for (_, file, text) in FILES {
        home.write(file, text);
    }
    home.run(&["install", "cursor", "--yes"]);
    let bin = home.path("bin");
    fs::create_dir(&bin).unwrap();
    for name in ["npx", "uvx"] {
        fs::write(bin.join(name), "#!/usr/bin/env node\n").unwrap();
        fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    // Only the login shell has it in its PATH.
    home.write(".profile", &format!("PATH={}:$PATH\n", bin.display()));
    let (code, document) = home.0.run_json(&["import", "--yes"]);
    assert_eq!(code, 0, "{document}");
    let servers = servers(&home.0.folder().join("mcp.json"));
    let server = |name: &str| servers.get(name).unwrap_or_else(|| panic!("no `{name}`: {servers:#}"));
    assert_eq!(server("filesystem")["command"], json!(bin.join("npx")));
    assert_eq!(server("filesystem")["env"]["PATH"], json!(format!("{}:${{PATH}}", bin.display())));
    assert_eq!(server("github")["headers"]["Authorization"], "Bearer ghp_0123456789");
    assert_eq!(server("search")["env"]["API_KEY"], "${API_KEY}");
    assert_eq!(server("search")["disabled"], json!(true));
    assert_eq!(server("remote")["url"], "https://example.com/mcp");
    // Of Codex, another one than that of Windsurf.
    assert_eq!(server("remote-codex")["headers"]["Authorization"], "Bearer ${REMOTE_TOKEN}");
    assert_eq!(server("docs")["env"]["KEY"], "[not.a.table]");
    assert_eq!((&server("a")["type"], &server("b")["type"]), (&json!("http"), &json!("sse")));
    assert_eq!(server("c")["args"], json!(["${HOME}/c.py"]));
    assert_eq!(
        (&server("fetch")["disabled"], &server("fetch")["args"][0]),
        (&json!(true), &json!("mcp-server-fetch"))
    );
    assert_eq!(server("remote-one")["headers"]["Authorization"], "Bearer abcdef123");
    assert_eq!(server("local")["env"]["K"], "${HOME}");
    assert_eq!(server("off")["disabled"], json!(true));
    assert_eq!(server("playwright")["allowedTools"], json!(["browser_click"]));
    assert!(servers.get("bascule").is_none() && servers.get("developer").is_none());
    let notes = document["notes"].to_string();
    assert!(
        notes.contains("`github`: `Authorization` of its `headers` stands in the file as text"),
        "{notes}"
    );
    assert!(notes.contains("it is Bascule itself") && notes.contains("built into Goose"), "{notes}");
    assert!(!document["difference"].to_string().contains("ghp_0123456789"), "{document}");
    // Again: everything is there.
    let (_, document) = home.0.run_json(&["import", "--yes"]);
    assert_eq!((&document["added"], &document["written"]), (&json!([]), &json!(false)), "{document}");
}

// req: US-04
#[test]
fn import_leaves_out_broken_files_unless_they_are_named() {
    let home = Home::new();
    home.write(".cursor/mcp.json", "{");
    home.write(".gemini/settings.json", "{ \"mcpServers\": { \"g\": { \"httpUrl\": \"ftp://x\" } } }");
    let (code, document) = home.0.run_json(&["import", "--yes"]);
    assert_eq!((code, &document["added"]), (0, &json!([])), "{document}");
    let notes = document["notes"].to_string();
    assert!(
        notes.contains("mcp.json:1:1: not JSON") && notes.contains("left out `g` of Gemini CLI"),
        "{notes}"
    );
    assert!(home.expect_refused(&["import", "cursor", "--yes"]).contains("not JSON"));
}

// req: US-04, SB-08
#[test]
fn hostile_text_of_a_clients_file_is_shown_harmlessly() {
    let home = Home::new();
    let hostile = "\u{1b}[2J\u{202e}";
    let servers = json!({
        format!("a{hostile}"): {},
        format!("b{hostile}"): { "command": format!("x{hostile}"), "args": [hostile], "sandbox": "off" },
    });
    home.write(".cursor/mcp.json", &json!({ "mcpServers": servers }).to_string());
    home.write(".codex/config.toml", &format!("[mcp_servers.x]\nkey{hostile} = \n"));
    for arguments in [&["import", "cursor", "--yes"][..], &["import", "--dry-run"], &["install"]] {
        let output = home.run(arguments);
        let shown = output.stdout + &output.stderr;
        assert!(!shown.contains('\u{1b}') && !shown.contains('\u{202e}'), "{arguments:?}: {shown:?}");
    }
    assert!(!read(&home.0.folder().join("mcp.json")).contains("\"off\""), "an import confines its servers");
    let refused = home.expect_refused(&["import", "codex", "--yes"]);
    assert!(!refused.contains('\u{1b}') && !refused.contains('\u{202e}'), "{refused:?}");
}

// req: GW-07, US-04
#[test]
fn file_with_the_token_is_private() {
    let home = Home::new();
    let file = home.write(".cursor/mcp.json", "{\"mcpServers\":{}}");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o664)).unwrap();
    home.run(&["install", "cursor", "--yes"]);
    assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o664, "without the token it keeps its mode");
    home.run(&["install", "cursor", "--http", "--yes"]);
    assert!(read(&file).contains("Bearer "));
    assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o600);
}
