//! The demo server `notes`: notes in memory, with search.

use std::collections::BTreeMap;
use std::sync::Mutex;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::reply::{Reply, ReplyResult, parse_arguments};
use crate::serve::{DemoCall, DemoServer};
use crate::tool::{ToolDeclaration, integer, list_of, object, text};

#[derive(Default)]
pub(crate) struct Notes(Mutex<Notebook>);

#[derive(Default)]
struct Notebook {
    notes: BTreeMap<u64, Note>,
    last: u64,
}

#[derive(Clone, Serialize)]
struct Note {
    id: u64,
    title: String,
    text: String,
    tags: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AddArguments {
    title: String,
    text: String,
    #[serde(default)]
    tags: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoteId {
    id: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SearchArguments {
    query: String,
    limit: Option<usize>,
}

impl Notes {
    /// Returns a server with a few notes to search.
    pub(crate) fn with_examples() -> Notes {
        let notes = Notes::default();
        for (title, text, tag) in EXAMPLES {
            let tags = vec![tag.to_owned()];
            notes.notebook().add(AddArguments { title: title.to_owned(), text: text.to_owned(), tags });
        }
        notes
    }

    fn notebook(&self) -> std::sync::MutexGuard<'_, Notebook> {
        self.0.lock().expect("no code panics while it holds the lock")
    }
}

const EXAMPLES: [(&str, &str, &str); 3] = [
    ("What a bascule is", "A drawbridge with a counterweight: little force moves a heavy leaf.", "bridge"),
    (
        "Tower Bridge",
        "London's bascule bridge opens about 800 times a year, for whoever asks a day ahead.",
        "bridge",
    ),
    ("Sourdough", "Flour, water, salt and patience. Feed the starter the evening before.", "kitchen"),
];

impl DemoServer for Notes {
    fn name(&self) -> &'static str {
        "notes"
    }

    fn tools(&self) -> Vec<ToolDeclaration> {
        let title = json!({"id": integer(), "title": text(), "tags": list_of(text())});
        let hit = json!({"id": integer(), "title": text(), "score": integer()});
        let limit = json!({"type": "integer", "minimum": 1, "maximum": 100, "default": 5});
        vec![
            returning_note(ToolDeclaration::new("add_note", "Adds a note and returns it with its id"))
                .required("title", json!({"type": "string", "minLength": 1}))
                .required("text", text())
                .optional("tags", list_of(text()))
                .additive(),
            returning_note(ToolDeclaration::new("get_note", "Returns one note"))
                .required("id", integer())
                .read_only(),
            ToolDeclaration::new("list_notes", "Lists all notes without their text")
                .returns("notes", list_of(object(title, json!(["id", "title", "tags"]))))
                .read_only(),
            ToolDeclaration::new("search_notes", "Finds notes by words in title, tags and text, best first")
                .required("query", json!({"type": "string", "minLength": 1}))
                .optional("limit", limit)
                .returns("matches", list_of(object(hit, json!(["id", "title", "score"]))))
                .read_only(),
            ToolDeclaration::new("delete_note", "Deletes a note")
                .required("id", integer())
                .returns("id", integer())
                .destructive(true),
        ]
    }

    fn call(&self, tool: &str, arguments: &Value, _call: &DemoCall) -> ReplyResult {
        let mut notebook = self.notebook();
        match tool {
            "add_note" => Ok(Reply::structured(json!(notebook.add(parse_arguments(arguments)?)))),
            "get_note" => notebook.get(parse_arguments(arguments)?),
            "list_notes" => Ok(notebook.list()),
            "search_notes" => Ok(notebook.search(&parse_arguments(arguments)?)),
            "delete_note" => notebook.delete(parse_arguments(arguments)?),
            _ => Err(Reply::unknown_tool(tool)),
        }
    }
}

impl Notebook {
    fn add(&mut self, draft: AddArguments) -> Note {
        self.last += 1;
        let AddArguments { title, text, tags } = draft;
        let note = Note { id: self.last, title, text, tags };
        self.notes.insert(note.id, note.clone());
        note
    }

    fn get(&self, NoteId { id }: NoteId) -> ReplyResult {
        let note = self.notes.get(&id).ok_or_else(|| note_not_found(id))?;
        Ok(Reply::structured(json!(note)))
    }

    fn delete(&mut self, NoteId { id }: NoteId) -> ReplyResult {
        let note = self.notes.remove(&id).ok_or_else(|| note_not_found(id))?;
        Ok(Reply::structured(json!({"id": note.id})))
    }

    fn list(&self) -> Reply {
        let entry = |note: &Note| json!({"id": note.id, "title": note.title, "tags": note.tags});
        Reply::structured(json!({"notes": self.notes.values().map(entry).collect::<Vec<_>>()}))
    }

    fn search(&self, search: &SearchArguments) -> Reply {
        let wanted = words(&search.query);
        let scored = self.notes.values().map(|note| (note.score(&wanted), note));
        let mut found: Vec<(usize, &Note)> = scored.filter(|(score, _)| *score > 0).collect();
        found.sort_by_key(|(score, note)| (std::cmp::Reverse(*score), note.id));
        found.truncate(search.limit.unwrap_or(5));
        let entry =
            |(score, note): (usize, &Note)| json!({"id": note.id, "title": note.title, "score": score});
        Reply::structured(json!({"matches": found.into_iter().map(entry).collect::<Vec<_>>()}))
    }
}

impl Note {
    /// Counts the words that match by prefix: three points in the title, two in a tag, one in the text.
    fn score(&self, wanted: &[String]) -> usize {
        let hits = |text: &str| {
            let own = words(text);
            wanted.iter().filter(|wanted| own.iter().any(|word| word.starts_with(*wanted))).count()
        };
        3 * hits(&self.title) + 2 * hits(&self.tags.join(" ")) + hits(&self.text)
    }
}

fn words(text: &str) -> Vec<String> {
    let parts = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    parts.map(str::to_lowercase).collect()
}

fn note_not_found(id: u64) -> Reply {
    Reply::failure(format!("there is no note {id}"))
}

fn returning_note(tool: ToolDeclaration) -> ToolDeclaration {
    let tool = tool.returns("id", integer()).returns("title", text());
    tool.returns("text", text()).returns("tags", list_of(text()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::tests::TestClient;

    fn search(query: &str) -> Vec<u64> {
        let found =
            TestClient::with(Notes::with_examples()).call_structured("search_notes", json!({"query": query}));
        found["matches"].as_array().unwrap().iter().map(|note| note["id"].as_u64().unwrap()).collect()
    }

    #[test]
    fn search_ranks_title_matches_first() {
        assert_eq!(search("bascule"), [1, 2]);
        assert_eq!(search("Bridge!"), [2, 1]);
        assert_eq!(search("flour patience"), [3]);
        assert!(search("submarine").is_empty());
    }

    #[test]
    fn adds_finds_and_deletes_a_note() {
        let client = TestClient::with(Notes::with_examples());
        let note = json!({"title": "Submarine", "text": "Dives.", "tags": ["sea"]});
        assert_eq!(client.call_structured("add_note", note)["id"], 4);
        assert_eq!(client.call_structured("get_note", json!({"id": 4}))["tags"], json!(["sea"]));
        assert_eq!(
            client.call_structured("search_notes", json!({"query": "sub", "limit": 1}))["matches"][0]["score"],
            3
        );
        assert_eq!(client.call_structured("delete_note", json!({"id": 4})), json!({"id": 4}));
        assert_eq!(client.failure("get_note", json!({"id": 4})), "there is no note 4");
        assert_eq!(client.call_structured("list_notes", json!({}))["notes"].as_array().unwrap().len(), 3);
    }

    #[test]
    fn invalid_arguments_fail_and_are_named() {
        let client = TestClient::with(Notes::default());
        assert_eq!(
            client.failure("add_note", json!({"title": "x"})),
            "invalid arguments: missing field `text`"
        );
    }
}
