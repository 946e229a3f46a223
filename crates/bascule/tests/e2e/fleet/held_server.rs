//! A server that answers its one call when the test releases it.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::bad_stdio::in_shell;
use crate::support::{eventually, with_settings};

/// Has one tool, `x`, which answers `finished`.
pub struct HeldServer {
    folder: TempDir,
}

impl HeldServer {
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub fn entry(&self) -> Value {
        let then = r#"
            read -r line
            id=$(expr "$line" : '.*"id":\([0-9]*\)')
            echo $$ > "$0.new"; mv "$0.new" "$0.called"
            while [ ! -e "$0" ]; do sleep 0.02; done
            printf '{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"finished"}]}}\n' "$id"
            while read -r line; do :; done
        "#;
        let entry = in_shell(then, self.file("go").to_str().unwrap());
        with_settings(entry, json!({ "cwd": self.folder.path() }))
    }

    /// Waits until the tool is called and returns the process id.
    pub fn wait_for_call(&self) -> u32 {
        let file = self.file("go.called");
        eventually("the tool is called", || file.exists());
        fs::read_to_string(file).unwrap().trim().parse().unwrap()
    }

    /// Lets the call finish.
    pub fn release(&self) {
        fs::write(self.file("go"), "").unwrap();
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}
