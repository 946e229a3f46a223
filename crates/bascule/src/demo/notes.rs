//! The demo server `notes`: a notebook in memory, with search.

use std::collections::BTreeMap;
use std::sync::Mutex;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::reply::{Attempt, Reply, arguments};
use super::serve::{Call, Demo};
use super::tool::{Tool, integer, list_of, object, text};

/// The notebook.
#[derive(Default)]
pub(super) struct Notes(Mutex<Book>);

#[derive(Default)]
struct Book {
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
struct Draft {
    title: String,
    text: String,
    #[serde(default)]
    tags: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Which {
    id: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Search {
    query: String,
    limit: Option<usize>,
}

impl Notes {
    /// A notebook in which there is something to find.
    pub(super) fn with_examples() -> Notes {
        let notes = Notes::default();
        for (title, text, tag) in EXAMPLES {
            let tags = vec![tag.to_owned()];
            notes.book().add(Draft { title: title.to_owned(), text: text.to_owned(), tags });
        }
        notes
    }

    fn book(&self) -> std::sync::MutexGuard<'_, Book> {
        self.0.lock().expect("nothing panics while it writes into the book")
    }

    fn attempt(&self, tool: &str, given: &Value) -> Attempt {
        let mut book = self.book();
        match tool {
            "add_note" => Ok(Reply::structured(json!(book.add(arguments(given)?)))),
            "get_note" => book.get(arguments(given)?),
            "list_notes" => Ok(book.list()),
            "search_notes" => Ok(book.search(&arguments(given)?)),
            "delete_note" => book.delete(arguments(given)?),
            _ => Err(Reply::unknown_tool(tool)),
        }
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

impl Demo for Notes {
    fn name(&self) -> &'static str {
        "notes"
    }

    fn tools(&self) -> Vec<Tool> {
        let title = json!({"id": integer(), "title": text(), "tags": list_of(text())});
        let hit = json!({"id": integer(), "title": text(), "score": integer()});
        let limit = json!({"type": "integer", "minimum": 1, "maximum": 100, "default": 5});
        vec![
            returns_note(Tool::new("add_note", "Writes a note down and returns it with its id"))
                .takes("title", json!({"type": "string", "minLength": 1}))
                .takes("text", text())
                .may_take("tags", list_of(text()))
                .additive(),
            returns_note(Tool::new("get_note", "One note, whole")).takes("id", integer()).read_only(),
            Tool::new("list_notes", "All notes, without their text")
                .returns("notes", list_of(object(title, json!(["id", "title", "tags"]))))
                .read_only(),
            Tool::new("search_notes", "Finds notes by words in title, tags and text, best first")
                .takes("query", json!({"type": "string", "minLength": 1}))
                .may_take("limit", limit)
                .returns("matches", list_of(object(hit, json!(["id", "title", "score"]))))
                .read_only(),
            Tool::new("delete_note", "Deletes a note for good")
                .takes("id", integer())
                .returns("id", integer())
                .destructive(true),
        ]
    }

    fn call(&self, tool: &str, arguments: &Value, _call: &Call) -> Reply {
        self.attempt(tool, arguments).unwrap_or_else(|failure| failure)
    }
}

impl Book {
    fn add(&mut self, draft: Draft) -> Note {
        self.last += 1;
        let Draft { title, text, tags } = draft;
        let note = Note { id: self.last, title, text, tags };
        self.notes.insert(note.id, note.clone());
        note
    }

    fn get(&self, Which { id }: Which) -> Attempt {
        let note = self.notes.get(&id).ok_or_else(|| missing(id))?;
        Ok(Reply::structured(json!(note)))
    }

    fn delete(&mut self, Which { id }: Which) -> Attempt {
        let note = self.notes.remove(&id).ok_or_else(|| missing(id))?;
        Ok(Reply::structured(json!({"id": note.id})))
    }

    fn list(&self) -> Reply {
        let entry = |note: &Note| json!({"id": note.id, "title": note.title, "tags": note.tags});
        Reply::structured(json!({"notes": self.notes.values().map(entry).collect::<Vec<_>>()}))
    }

    fn search(&self, search: &Search) -> Reply {
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
    /// A word in the title counts three times, a tag twice, and in the text once; its beginning is enough.
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

fn missing(id: u64) -> Reply {
    Reply::failure(format!("there is no note {id}"))
}

fn returns_note(tool: Tool) -> Tool {
    let tool = tool.returns("id", integer()).returns("title", text());
    tool.returns("text", text()).returns("tags", list_of(text()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::serve::tests::Talk;

    fn search(query: &str) -> Vec<u64> {
        let found = Talk::with(Notes::with_examples()).structure("search_notes", json!({"query": query}));
        found["matches"].as_array().unwrap().iter().map(|note| note["id"].as_u64().unwrap()).collect()
    }

    #[test]
    fn a_word_in_the_title_counts_most() {
        assert_eq!(search("bascule"), [1, 2]);
        assert_eq!(search("Bridge!"), [2, 1]);
        assert_eq!(search("flour patience"), [3]);
        assert!(search("submarine").is_empty());
    }

    #[test]
    fn a_note_that_was_added_is_found_and_one_deleted_is_not() {
        let talk = Talk::with(Notes::with_examples());
        let note = json!({"title": "Submarine", "text": "Dives.", "tags": ["sea"]});
        assert_eq!(talk.structure("add_note", note)["id"], 4);
        assert_eq!(talk.structure("get_note", json!({"id": 4}))["tags"], json!(["sea"]));
        assert_eq!(
            talk.structure("search_notes", json!({"query": "sub", "limit": 1}))["matches"][0]["score"],
            3
        );
        assert_eq!(talk.structure("delete_note", json!({"id": 4})), json!({"id": 4}));
        assert_eq!(talk.failure("get_note", json!({"id": 4})), "there is no note 4");
        assert_eq!(talk.structure("list_notes", json!({}))["notes"].as_array().unwrap().len(), 3);
    }

    #[test]
    fn bad_arguments_are_a_failure_that_names_them() {
        let talk = Talk::with(Notes::default());
        assert_eq!(talk.failure("add_note", json!({"title": "x"})), "bad arguments: missing field `text`");
    }
}
