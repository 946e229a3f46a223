//! Checks the ranking of a small catalog.

#![allow(clippy::unwrap_used, reason = "test helpers may panic")]

use std::sync::Arc;

use bascule_model::ToolDefinition;
use bascule_search::{Embedding, Intent, SearchIndex, ServerIndex};
use serde_json::value::RawValue;

fn tools(listed: &[(&str, &str)]) -> Vec<ToolDefinition> {
    let parse = |(name, description): &(&str, &str)| {
        let text = format!(r#"{{"name":"{name}","description":"{description}"}}"#);
        ToolDefinition::parse(RawValue::from_string(text).unwrap()).unwrap()
    };
    listed.iter().map(parse).collect()
}

fn server(name: &str, listed: &[(&str, &str)]) -> Arc<ServerIndex> {
    Arc::new(ServerIndex::new(name, &tools(listed)))
}

fn files() -> Arc<ServerIndex> {
    server("files", &[("read_file", "Reads a text file from disk"), ("delete_file", "Deletes a file")])
}

fn mail() -> Arc<ServerIndex> {
    server(
        "mail",
        &[("send_message", "Sends an e-mail to somebody"), ("list_folders", "Lists the mailboxes")],
    )
}

fn ranked(index: &SearchIndex, intent: &str, k: usize) -> Vec<(usize, usize)> {
    let found = index.search(&Intent::new(intent), k, |_, _| true);
    assert!(found.is_sorted_by(|a, b| a.score >= b.score));
    assert!(found.iter().all(|tool| (0.0..=1.0).contains(&tool.score)));
    found.iter().map(|tool| (tool.server, tool.tool)).collect()
}

// req: SE-01
#[test]
fn finds_by_words_and_by_meaning() {
    let index: SearchIndex = [files(), mail()].into_iter().collect();
    assert_eq!(ranked(&index, "deleteFile", 1), [(0, 1)]);
    assert_eq!(ranked(&index, "write a letter to my colleague", 1), [(1, 0)]);
    assert_eq!(ranked(&index, "read a document, then mail it to somebody", 2), [(1, 0), (0, 0)]);
}

// req: SE-01
#[test]
fn returns_only_wanted_tools() {
    let index: SearchIndex = [files(), mail()].into_iter().collect();
    let found = index.search(&Intent::new("delete a file"), 10, |server, tool| (server, tool) != (0, 1));
    let found: Vec<_> = found.iter().map(|tool| (tool.server, tool.tool)).collect();
    assert_eq!(found.len(), 3);
    assert!(!found.contains(&(0, 1)));
    assert!(index.search(&Intent::new("delete a file"), 0, |_, _| true).is_empty());
}

// req: SE-01
#[test]
fn ranks_anything_without_failing() {
    let empty = SearchIndex::default();
    let one: SearchIndex = [server("", &[("", "")])].into_iter().collect();
    let odd = ["", " ", "…", "🦀 日本語", "the and of", "\u{0}", &"word, ".repeat(10_000)];
    for intent in odd {
        assert!(ranked(&empty, intent, 5).is_empty());
        assert_eq!(ranked(&one, intent, 5), [(0, 0)]);
    }
}

// req: SE-02
#[test]
fn change_of_one_server_keeps_the_others() {
    let (files, mail) = (files(), mail());
    let before: SearchIndex = [files.clone(), mail].into_iter().collect();
    let changed = server("mail", &[("draw_chart", "Draws a chart of numbers")]);
    let after: SearchIndex = [files, changed].into_iter().collect();
    assert_eq!(ranked(&before, "send a message", 1), [(1, 0)]);
    assert_eq!(ranked(&after, "plot numbers as a diagram", 1), [(1, 0)]);
    assert_eq!(ranked(&after, "delete a file", 1), [(0, 1)]);
}

// req: SE-01
#[test]
fn vectors_of_another_encoder_replace_the_built_in_ones() {
    let listed = tools(&[("a", "x"), ("b", "x")]);
    let axis = |index: usize| Embedding::new((0..3).map(|at| f32::from(u8::from(at == index))).collect());
    let index = ServerIndex::with_embeddings("s", &listed, &[axis(0), axis(1)]);
    let index: SearchIndex = [Arc::new(index)].into_iter().collect();
    let intent = Intent::without_embeddings("zzz").with_embeddings([axis(1)]);
    assert_eq!(index.search(&intent, 1, |_, _| true)[0].tool, 1);
    // The built-in vector has another width: words alone decide.
    assert_eq!(ranked(&index, "zzz", 1), [(0, 0)]);
}
