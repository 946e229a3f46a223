//! Tests with real files and links.

use std::fs;
use std::os::unix::fs::symlink;

use super::*;
use crate::config;

/// A folder with files and links, and a configuration beside it.
struct Setup {
    folder: tempfile::TempDir,
}

impl Setup {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for file in ["job/server.py", "job/data/x", "other/x", "third/x"] {
            fs::create_dir_all(folder.path().join(file).parent().unwrap()).unwrap();
            fs::write(folder.path().join(file), "").unwrap();
        }
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(name)
    }

    fn link(&self, from: &str, to: &str) {
        symlink(self.path(to), self.path(from)).unwrap();
    }

    fn load(&self, servers: &str) -> Settings {
        let file = self.path("mcp.json");
        fs::write(&file, format!(r#"{{"mcpServers": {{{servers}}}}}"#)).unwrap();
        config::load(&file, &|_| None).unwrap().settings
    }

    /// The granted paths of a server, `!` before writable ones, or the error.
    fn grants(&self, servers: &str) -> Result<Vec<String>, String> {
        let settings = self.load(servers);
        let paths = settings.servers[0].resolved_paths();
        paths.check().map_err(|reason| reason.replace(self.path("").to_str().unwrap(), "~/"))?;
        let granted = paths.grants().into_iter().filter(|grant| grant.path.starts_with(self.path("")));
        let short = |grant: Grant| {
            let path = grant.path.strip_prefix(self.path("")).unwrap().display().to_string();
            format!("{}{path}", if grant.access == Access::Write { "!" } else { "" })
        };
        let mut names: Vec<String> = granted.map(short).collect();
        names.sort();
        names.dedup();
        Ok(names)
    }
}

const STANDARD: &str = r#""s": {"command": "python3", "args": ["server.py", "--data=data"], "cwd": "job"}"#;

// req: SB-07
#[test]
fn grants_folder_and_arguments_and_only_reads_programs() {
    let setup = Setup::new();
    assert_eq!(setup.grants(STANDARD).unwrap(), ["!job", "!job/data", "job", "job/server.py"]);
}

// req: SB-07
#[test]
fn refuses_link_that_a_server_may_have_placed() {
    let setup = Setup::new();
    setup.link("job/linked", "other");
    let refused =
        setup.grants(r#""s": {"command": "python3", "args": ["linked"], "cwd": "job"}"#).unwrap_err();
    assert_eq!(
        refused,
        "`~/job/linked` leads through the link `~/job/linked` to `~/other`, and a server that may write `~/job` \
         could change the link: name the target itself"
    );
    let lists = r#""b": {"command": "python3", "sandbox": {"read": ["job/linked"]}},
                   "a": {"command": "python3", "cwd": "job"}"#;
    assert!(setup.grants(lists).unwrap_err().contains("could change the link"), "another server's folder");
}

// req: SB-07
#[test]
fn accepts_links_that_gain_nothing() {
    let setup = Setup::new();
    setup.link("job/inside", "job/data");
    setup.link("link", "other");
    let servers = r#""s": {"command": "python3", "args": ["inside", "../link"], "cwd": "job"}"#;
    assert_eq!(setup.grants(servers).unwrap(), ["!job", "!job/data", "!other"]);
}

// req: SB-07
#[test]
fn refuses_start_after_path_was_replaced() {
    let setup = Setup::new();
    let settings = setup.load(STANDARD);
    let paths = settings.servers[0].resolved_paths();
    paths.check().unwrap();
    fs::write(setup.path("job/new"), "").unwrap();
    fs::rename(setup.path("job/new"), setup.path("job/server.py")).unwrap();
    paths.check().expect("an editor replaces a file");
    fs::rename(setup.path("job/data"), setup.path("job/old")).unwrap();
    paths.check().expect("a missing path grants nothing");
    setup.link("job/data", "other");
    assert!(paths.check().unwrap_err().contains("leads to another file"));
    fs::remove_file(setup.path("job/data")).unwrap();
    fs::create_dir(setup.path("job/data")).unwrap();
    assert!(paths.check().unwrap_err().contains("leads to another file"));
}

// req: SB-07
#[test]
fn installation_may_be_replaced_and_a_link_in_its_place_opens_nothing() {
    let setup = Setup::new();
    fs::create_dir_all(setup.path("app/lib")).unwrap();
    for file in ["app/package.json", "app/lib/main.py"] {
        fs::write(setup.path(file), "").unwrap();
    }
    let settings = setup.load(r#""s": {"command": "python3", "args": ["../app/lib/main.py"], "cwd": "job"}"#);
    let paths = settings.servers[0].resolved_paths();
    let has_app = || paths.grants().iter().any(|grant| grant.path == setup.path("app"));
    assert!(has_app());
    fs::rename(setup.path("app"), setup.path("old")).unwrap();
    fs::create_dir_all(setup.path("app/lib")).unwrap();
    fs::write(setup.path("app/lib/main.py"), "").unwrap();
    paths.check().unwrap();
    assert!(has_app());
    fs::remove_dir_all(setup.path("app")).unwrap();
    setup.link("app", "other");
    paths.check().unwrap();
    assert!(!has_app());
}

// req: SB-08
#[test]
fn configuration_is_never_granted() {
    let setup = Setup::new();
    let settings = setup.load(r#""s": {"command": "python3", "args": ["mcp.json"]}"#);
    assert_eq!(settings.servers[0].resolved_paths().config, [setup.path("mcp.json"), setup.path("mcp.json")]);
    let grants = setup
        .grants(r#""s": {"command": "python3", "args": ["mcp.json"], "sandbox": {"write": ["mcp.json"]}}"#);
    assert_eq!(grants.unwrap(), [] as [String; 0]);
}

// req: SB-08, TR-01
#[test]
fn folder_of_traces_is_closed_before_it_exists() {
    let setup = Setup::new();
    let text = r#"{"mcpServers": {"s": {"command": "python3", "args": ["job"]}}, "bascule": {"traces": {"path": "job/t"}}}"#;
    fs::write(setup.path("mcp.json"), text).unwrap();
    let settings = config::load(&setup.path("mcp.json"), &|_| None).unwrap().settings;
    assert!(settings.servers[0].resolved_paths().config.contains(&setup.path("job/t")));
}

// req: SB-08, TR-01
#[test]
fn audit_log_is_closed_before_it_exists() {
    let setup = Setup::new();
    let text = r#"{"mcpServers": {"s": {"command": "python3", "args": ["job"]}}, "bascule": {"audit": {"path": "job/log"}}}"#;
    fs::write(setup.path("mcp.json"), text).unwrap();
    let settings = config::load(&setup.path("mcp.json"), &|_| None).unwrap().settings;
    let closed = settings.servers[0].resolved_paths().config.clone();
    assert!(closed.contains(&setup.path("job/log")) && closed.contains(&setup.path("job/log.head")));
}

// req: SB-07
#[test]
fn finds_links_on_the_way() {
    let setup = Setup::new();
    setup.link("one", "job");
    setup.link("job/two", "one");
    assert_eq!(
        crossed_links(&setup.path("one/two/data")),
        [setup.path("one"), setup.path("job/two"), setup.path("one")]
    );
    assert_eq!(crossed_links(&setup.path("job/../other")), [] as [PathBuf; 0]);
}
