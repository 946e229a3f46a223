//! The demo server `counter`: counts its side effects, so that a test can prove that nothing ran twice.
//!
//! If `BASCULE_DEMO_COUNTER_FILE` is set, the server appends each increment to that file as one JSON line and reads
//! the file at its start.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::reply::{Reply, ReplyResult, parse_arguments};
use crate::serve::{DemoCall, DemoServer};
use crate::tool::{ToolDeclaration, described, integer, text};

#[derive(Default)]
pub(crate) struct Counter(Mutex<Count>);

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
struct SeenArguments {
    token: String,
}

fn one() -> i64 {
    1
}

impl Counter {
    /// Restores the count from the file in `BASCULE_DEMO_COUNTER_FILE`, or starts at zero.
    pub(crate) fn open() -> Result<Counter, String> {
        match std::env::var_os("BASCULE_DEMO_COUNTER_FILE") {
            Some(path) => Counter::with_file(path.into()),
            None => Ok(Counter::default()),
        }
    }

    fn with_file(path: PathBuf) -> Result<Counter, String> {
        let problem = |error| format!("could not use `{}`: {error}", path.display());
        let mut count = Count::default();
        for line in read_or_empty(&path).map_err(problem)?.lines() {
            // A killed process may have left an incomplete line.
            let _ = serde_json::from_str(line).map(|increment| count.add(&increment));
        }
        count.file = Some(OpenOptions::new().create(true).append(true).open(&path).map_err(problem)?);
        Ok(Counter(Mutex::new(count)))
    }

    fn count(&self) -> MutexGuard<'_, Count> {
        self.0.lock().expect("no code panics while it holds the lock")
    }
}

impl DemoServer for Counter {
    fn name(&self) -> &'static str {
        "counter"
    }

    fn tools(&self) -> Vec<ToolDeclaration> {
        vec![
            ToolDeclaration::new("increment", "Adds to the counter")
                .optional("by", described(integer(), "Default: 1"))
                .optional("token", described(text(), "Recorded; `seen` reports how often it was used"))
                .returns("value", integer())
                .returns("increments", integer())
                .additive(),
            ToolDeclaration::new("read", "Returns the value and the number of increments")
                .returns("value", integer())
                .returns("increments", integer())
                .read_only(),
            ToolDeclaration::new("seen", "Returns how often `increment` was called with this token")
                .required("token", text())
                .returns("token", text())
                .returns("times", integer())
                .read_only(),
        ]
    }

    fn call(&self, tool: &str, arguments: &Value, _call: &DemoCall) -> ReplyResult {
        match tool {
            "increment" => self.count().increment(&parse_arguments(arguments)?),
            "read" => Ok(self.count().read()),
            "seen" => Ok(self.count().seen(parse_arguments(arguments)?)),
            _ => Err(Reply::unknown_tool(tool)),
        }
    }
}

impl Count {
    fn increment(&mut self, increment: &Increment) -> ReplyResult {
        self.append(increment)
            .map_err(|error| Reply::failure(format!("could not write the counter file: {error}")))?;
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

    /// Appends one line with one write, so that a reader sees only whole lines.
    fn append(&mut self, increment: &Increment) -> std::io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        file.write_all(format!("{}\n", json!(increment)).as_bytes())
    }

    fn read(&self) -> Reply {
        Reply::structured(json!({"value": self.value, "increments": self.increments}))
    }

    fn seen(&self, SeenArguments { token }: SeenArguments) -> Reply {
        let times = self.tokens.get(&token).copied().unwrap_or(0);
        Reply::structured(json!({"token": token, "times": times}))
    }
}

fn read_or_empty(path: &PathBuf) -> std::io::Result<String> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
        read => read,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::tests::TestClient;

    #[test]
    fn counts_increments_and_tokens() {
        let client = TestClient::with(Counter::default());
        client.call_structured("increment", json!({}));
        client.call_structured("increment", json!({"by": -3, "token": "t"}));
        client.call_structured("increment", json!({"token": "t"}));
        assert_eq!(client.call_structured("read", json!({})), json!({"value": -1, "increments": 3}));
        assert_eq!(client.call_structured("seen", json!({"token": "t"}))["times"], 2);
        assert_eq!(client.call_structured("seen", json!({"token": "u"}))["times"], 0);
    }

    #[test]
    fn restores_count_from_file() {
        let path = std::env::temp_dir().join(format!("bascule-counter-{}", std::process::id()));
        let _ = fs::remove_file(&path);
        TestClient::with(Counter::with_file(path.clone()).unwrap())
            .call_structured("increment", json!({"token": "t"}));
        fs::write(&path, fs::read_to_string(&path).unwrap() + "{\"by\":").unwrap();
        let client = TestClient::with(Counter::with_file(path.clone()).unwrap());
        assert_eq!(client.call_structured("seen", json!({"token": "t"}))["times"], 1);
        fs::remove_file(&path).unwrap();
    }
}
