//! The demo server `counter`: counts its side effects, so that a test can prove that nothing ran twice.
//!
//! With `BASCULE_DEMO_COUNTER_FILE` every increment is appended to that file, one JSON line each, and read
//! again at the start.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::reply::{Attempt, Reply, arguments};
use super::serve::{Call, Demo};
use super::tool::{Tool, described, integer, text};

/// The counter.
#[derive(Default)]
pub(super) struct Counter(Mutex<Count>);

#[derive(Default)]
struct Count {
    value: i64,
    increments: u64,
    tokens: BTreeMap<String, u64>,
    file: Option<File>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Increment {
    #[serde(default = "one")]
    by: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Seen {
    token: String,
}

fn one() -> i64 {
    1
}

impl Counter {
    /// A counter that starts at nought, or where its file ended.
    pub(super) fn open() -> Result<Counter, String> {
        match std::env::var_os("BASCULE_DEMO_COUNTER_FILE") {
            Some(path) => Counter::with_file(path.into()),
            None => Ok(Counter::default()),
        }
    }

    fn with_file(path: PathBuf) -> Result<Counter, String> {
        let problem = |error| format!("could not use `{}`: {error}", path.display());
        let mut count = Count::default();
        for line in earlier(&path).map_err(problem)?.lines() {
            // A process that was killed may have left half a line.
            let _ = serde_json::from_str(line).map(|increment| count.add(&increment));
        }
        count.file = Some(OpenOptions::new().create(true).append(true).open(&path).map_err(problem)?);
        Ok(Counter(Mutex::new(count)))
    }

    fn count(&self) -> MutexGuard<'_, Count> {
        self.0.lock().expect("nothing panics while it counts")
    }

    fn attempt(&self, tool: &str, given: &Value) -> Attempt {
        match tool {
            "increment" => self.count().increment(&arguments(given)?),
            "read" => Ok(self.count().read()),
            "seen" => Ok(self.count().seen(arguments(given)?)),
            _ => Err(Reply::unknown_tool(tool)),
        }
    }
}

impl Demo for Counter {
    fn name(&self) -> &'static str {
        "counter"
    }

    fn tools(&self) -> Vec<Tool> {
        vec![
            Tool::new("increment", "Adds to the counter: a side effect that can be counted")
                .may_take("by", described(integer(), "1 where it is not given"))
                .may_take("token", described(text(), "Remembered, to be asked for with `seen`"))
                .returns("value", integer())
                .returns("increments", integer())
                .additive(),
            Tool::new("read", "The value, and how many increments made it")
                .returns("value", integer())
                .returns("increments", integer())
                .read_only(),
            Tool::new("seen", "How often `increment` was called with this token")
                .takes("token", text())
                .returns("token", text())
                .returns("times", integer())
                .read_only(),
        ]
    }

    fn call(&self, tool: &str, arguments: &Value, _call: &Call) -> Reply {
        self.attempt(tool, arguments).unwrap_or_else(|failure| failure)
    }
}

impl Count {
    fn increment(&mut self, increment: &Increment) -> Attempt {
        self.append(increment)
            .map_err(|error| Reply::failure(format!("could not write the file: {error}")))?;
        self.add(increment);
        Ok(self.read())
    }

    fn add(&mut self, increment: &Increment) {
        self.value = self.value.saturating_add(increment.by);
        self.increments += 1;
        if let Some(token) = &increment.token {
            *self.tokens.entry(token.clone()).or_default() += 1;
        }
    }

    /// Written before it counts, in one write: whoever reads the file sees whole lines.
    fn append(&mut self, increment: &Increment) -> std::io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        file.write_all(format!("{}\n", json!(increment)).as_bytes())
    }

    fn read(&self) -> Reply {
        Reply::structured(json!({"value": self.value, "increments": self.increments}))
    }

    fn seen(&self, Seen { token }: Seen) -> Reply {
        let times = self.tokens.get(&token).copied().unwrap_or(0);
        Reply::structured(json!({"token": token, "times": times}))
    }
}

fn earlier(path: &PathBuf) -> std::io::Result<String> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
        read => read,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::serve::tests::Talk;

    #[test]
    fn every_increment_counts_and_every_token_is_remembered() {
        let talk = Talk::with(Counter::default());
        talk.structure("increment", json!({}));
        talk.structure("increment", json!({"by": -3, "token": "t"}));
        talk.structure("increment", json!({"token": "t"}));
        assert_eq!(talk.structure("read", json!({})), json!({"value": -1, "increments": 3}));
        assert_eq!(talk.structure("seen", json!({"token": "t"}))["times"], 2);
        assert_eq!(talk.structure("seen", json!({"token": "u"}))["times"], 0);
    }

    #[test]
    fn the_file_outlives_the_process() {
        let path = std::env::temp_dir().join(format!("bascule-counter-{}", std::process::id()));
        let _ = fs::remove_file(&path);
        Talk::with(Counter::with_file(path.clone()).unwrap()).structure("increment", json!({"token": "t"}));
        fs::write(&path, fs::read_to_string(&path).unwrap() + "{\"by\":").unwrap();
        let talk = Talk::with(Counter::with_file(path.clone()).unwrap());
        assert_eq!(talk.structure("seen", json!({"token": "t"}))["times"], 1);
        fs::remove_file(&path).unwrap();
    }
}
