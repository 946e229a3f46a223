//! Tests `bascule search` with servers, with saved lists of tools and with many intents at once.

use std::path::Path;

use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};

use crate::support::Bascule;

fn catalog(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bascule-catalog/tests/catalogs");
    folder.join(format!("{name}.json")).to_string_lossy().into_owned()
}

fn file(folder: &TempDir, name: &str, content: &Value) -> String {
    let file = folder.path().join(name);
    std::fs::write(&file, content.to_string()).unwrap();
    file.to_string_lossy().into_owned()
}

// req: SE-01
#[test]
fn finds_tools_of_configured_servers() {
    let bascule = Bascule::with_demo_servers();
    let ran = bascule.run(&["search", "what time is it", "-k", "3", "--json"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let found = ran.document();
    assert_eq!(found.as_array().unwrap().len(), 3);
    let first = &found[0];
    assert_eq!(
        (&first["id"], &first["server"], &first["name"]),
        (&json!("clock:now"), &json!("clock"), &json!("now"))
    );
    assert!(
        first["description"].is_string() && first["score"].is_number() && first["down"] == false,
        "{found:#}"
    );
    let ran = bascule.run(&["search", "what time is it", "--detail", "names", "-k", "1"]);
    assert_eq!(ran.stdout.trim(), "clock:now");
}

// req: SE-01
#[test]
fn searches_saved_lists_without_configuration_or_servers() {
    let bascule = Bascule::with_text("this is no configuration");
    let (git, slack) = (catalog("git"), catalog("slack"));
    let intent = "post a message to a channel";
    for arguments in [
        vec!["search", intent, "--catalog", &git, &slack, "--json"],
        vec!["search", "--catalog", &git, &slack, intent, "--json"],
        vec!["search", "--catalog", &git, "--catalog", &slack, "--json", intent],
    ] {
        let ran = bascule.run(&arguments);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        assert_eq!(ran.document()[0]["id"], "slack:slack_post_message", "{arguments:?}");
        assert_eq!(ran.document().as_array().unwrap().len(), 5);
    }
    let types = bascule.run(&["search", intent, "--catalog", &slack, "--detail", "types", "--json"]);
    assert!(types.document()[0]["inputSchema"]["properties"]["channel_id"].is_object());
    let signature =
        "mcp.slack.slackPostMessage(args: { channel_id: string; text: string }): Promise<unknown>";
    assert_eq!(types.document()[0]["signature"], signature);
    let types = bascule.run(&["search", intent, "--catalog", &slack, "--detail", "types", "-k", "1"]);
    assert_eq!(types.stdout.lines().nth(1), Some(format!("  {signature}").as_str()));
}

// req: SE-01
#[test]
fn reads_list_result_and_response() {
    let (bascule, folder) = (Bascule::with_text(""), tempdir().unwrap());
    let tools = json!([{ "name": "read_file" }, { "name": "send_mail" }]);
    for content in
        [tools.clone(), json!({ "tools": tools }), json!({ "id": 1, "result": { "tools": tools } })]
    {
        let saved = file(&folder, "saved.json", &content);
        let ran = bascule.run(&["search", "send a mail", "--catalog", &saved, "--json"]);
        assert_eq!(ran.document()[0]["id"], "saved:send_mail", "{content}");
    }
}

// req: SE-01
#[test]
fn answers_many_intents_at_once() {
    let (bascule, folder) = (Bascule::with_text(""), tempdir().unwrap());
    let queries =
        json!([{ "id": "a", "query": "post a message" }, { "id": 7, "query": "show the commit log" }]);
    let queries = file(&folder, "queries.json", &queries);
    let (git, slack) = (catalog("git"), catalog("slack"));
    let ran = bascule.run(&["search", "--catalog", &git, &slack, "--batch", &queries, "-k", "2", "--json"]);
    let found = ran.document();
    assert_eq!(found["a"][0], "slack:slack_post_message", "{found:#}");
    assert_eq!(found["7"][0], "git:git_log", "{found:#}");
    assert!(found.as_object().unwrap().values().all(|list| list.as_array().unwrap().len() == 2));
}

// req: SE-01
#[test]
fn reports_wrong_usage() {
    let (bascule, folder) = (Bascule::with_text(""), tempdir().unwrap());
    let (git, wrong) = (catalog("git"), file(&folder, "wrong.json", &json!({ "a": 1 })));
    for arguments in [
        vec!["search", "--catalog", &git],
        vec!["search", " ", "--catalog", &git],
        vec!["search", "x", "--catalog", "/nowhere.json"],
        vec!["search", "x", "--catalog", &wrong],
        vec!["search", "--catalog", &git, "--batch", &wrong],
        vec!["search", "x", "-k", "0", "--catalog", &git],
    ] {
        assert_eq!(bascule.run(&arguments).code, Some(2), "{arguments:?}");
    }
}

// req: SE-01
#[test]
fn repeated_id_of_a_batch_is_an_error() {
    let (folder, slack) = (tempdir().unwrap(), catalog("slack"));
    let batch = json!([{ "id": "a", "query": "x" }, { "id": 7, "query": "y" }, { "id": "7", "query": "z" }]);
    let batch = file(&folder, "batch.json", &batch);
    let ran = Bascule::with_text("").run(&["search", "--catalog", &slack, "--batch", &batch]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
    assert!(ran.stderr.contains("the id `7` occurs twice"), "{ran:?}");
}
