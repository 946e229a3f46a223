//! PyPI `mcp-server-time` and `mcp-server-git`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use bascule_model::ProviderAdapter;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{check_catalog, check_rejected, list_directly, python};
use crate::commands::library::{call, start};
use crate::support::{Bascule, text};

fn time() -> Bascule {
    Bascule::with_server("time", python("mcp-server-time", &["--local-timezone", "Etc/UTC"]))
}

// req: BR-03
#[test]
fn catalog_of_time_server_matches() {
    check_catalog(
        &time(),
        "time",
        "mcp-time",
        &list_directly(&python("mcp-server-time", &["--local-timezone", "Etc/UTC"])),
    );
}

// req: BR-04
#[test]
fn converts_times() {
    let bascule = time();
    let arguments =
        json!({ "source_timezone": "Asia/Kolkata", "time": "12:00", "target_timezone": "Asia/Tokyo" });
    let answer = bascule.call("time:convert_time", &arguments.to_string());
    let times = &answer["structuredContent"];
    assert_eq!(
        (&times["time_difference"], &times["target"]["is_dst"]),
        (&json!("+3.5h"), &json!(false)),
        "{answer}"
    );
    assert!(times["target"]["datetime"].as_str().unwrap().ends_with("T15:30:00+09:00"), "{answer}");
    let written: Value = serde_json::from_str(&text(&answer)).unwrap();
    assert_eq!(&written, times, "text and structured content are equal");
    let (code, document) =
        bascule.run_json(&["call", "time:get_current_time", r#"{"timezone":"Europe/Atlantis"}"#]);
    assert_eq!((code, &document["result"]["isError"]), (1, &json!(true)), "{document}");
    assert!(text(&document["result"]).contains("Europe/Atlantis"), "{document}");
    check_rejected(
        &bascule,
        "time:convert_time",
        r#"{"time":12}"#,
        &["/source_timezone", "/target_timezone", "/time"],
    );
}

/// A repository with one commit.
struct Repository {
    _folder: TempDir,
    path: PathBuf,
}

impl Repository {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap();
        let repository = Self { _folder: folder, path };
        repository.git(&["init", "--quiet", "--initial-branch=main"]);
        repository.git(&["config", "user.name", "Tester"]);
        repository.git(&["config", "user.email", "tester@localhost"]);
        repository.git(&["commit", "--quiet", "--allow-empty", "--message=the beginning"]);
        repository
    }

    fn git(&self, arguments: &[&str]) -> String {
        let output =
            Command::new("git").args(arguments).current_dir(&self.path).output().expect("`git` is installed");
        assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn entry(&self) -> Value {
        python("mcp-server-git", &["--repository", self.path.to_str().unwrap()])
    }

    /// Adds the repository path to arguments.
    fn arguments(&self, mut more: Value) -> Value {
        more["repo_path"] = json!(self.path);
        more
    }
}

// req: BR-03
#[test]
fn catalog_of_git_server_matches() {
    let repository = Repository::new();
    let bascule = Bascule::with_server("git", repository.entry());
    check_catalog(&bascule, "git", "mcp-git", &list_directly(&repository.entry()));
    check_rejected(
        &bascule,
        "git:git_add",
        &repository.arguments(json!({ "files": [] })).to_string(),
        &["/files"],
    );
    check_rejected(&bascule, "git:git_log", r#"{"max_count":"two"}"#, &["/max_count", "/repo_path"]);
}

// req: BR-04, BR-16
#[tokio::test]
async fn creates_real_commit() {
    let repository = Repository::new();
    fs::write(repository.path.join("leaf.txt"), "heavy\n").unwrap();
    let bascule = Bascule::with_server("git", repository.entry());
    let (bridge, _) = start(bascule.folder()).await;
    let call_text =
        async |tool: &str, more: Value| text(&call(&bridge, tool, repository.arguments(more)).await);
    assert!(call_text("git:git_status", json!({})).await.contains("leaf.txt"));
    call_text("git:git_add", json!({ "files": ["leaf.txt"] })).await;
    assert!(call_text("git:git_diff_staged", json!({})).await.contains("+heavy"));
    call_text("git:git_commit", json!({ "message": "little force moves a heavy leaf" })).await;
    call_text("git:git_create_branch", json!({ "branch_name": "side" })).await;
    bridge.terminate().await;

    assert_eq!(repository.git(&["log", "--format=%s"]), "little force moves a heavy leaf\nthe beginning\n");
    assert_eq!(repository.git(&["show", "HEAD:leaf.txt"]), "heavy\n");
    assert!(repository.git(&["branch"]).contains("side"));
    let log = bascule.call("git:git_log", &repository.arguments(json!({ "max_count": 1 })).to_string());
    assert!(text(&log).contains("little force moves a heavy leaf"), "{log}");
    check_no_repository(&bascule, &repository.path.join("elsewhere"));
}

fn check_no_repository(bascule: &Bascule, path: &Path) {
    let (code, document) =
        bascule.run_json(&["call", "git:git_status", &json!({ "repo_path": path }).to_string()]);
    assert_eq!((code, &document["result"]["isError"]), (1, &json!(true)), "{document}");
}
