//! The handle of a scripted server that runs as a child process.
//!
//! The code under test starts the process from [`ScriptedStdio::command`] or [`ScriptedStdio::entry`]. The process is the
//! program `scripted-server`.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::folder::ScriptFolder;
use crate::{Script, binary, wait};

/// A script in a temporary folder with a log of all received lines. Dropping it removes the folder.
#[derive(Debug)]
pub struct ScriptedStdio {
    folder: ScriptFolder,
}

impl ScriptedStdio {
    /// Writes the script to a folder. Starts no process.
    pub fn new(script: Script) -> ScriptedStdio {
        let folder = ScriptFolder::create();
        folder.set_script(&script);
        ScriptedStdio { folder }
    }

    /// Returns the program with its arguments.
    pub fn command(&self) -> Command {
        let mut command = Command::new(binary("scripted-server"));
        command.arg(self.folder.script_file());
        command
    }

    /// Returns the entry for an `mcp.json`: `{"command": …, "args": […]}`.
    pub fn entry(&self) -> Value {
        // The folder is an argument too, so that a sandbox lets the process write its logs.
        json!({"command": binary("scripted-server"), "args": [self.folder.script_file(), self.folder.path()]})
    }

    /// Replaces the script from the next message on, for running and later processes.
    pub fn set_script(&self, script: Script) {
        self.folder.set_script(&script);
    }

    /// Returns the lines received by all processes of this script.
    pub fn received(&self) -> Vec<String> {
        self.folder.lines("received")
    }

    /// Returns the methods of all received messages.
    pub fn methods(&self) -> Vec<String> {
        wait::methods(&self.received())
    }

    /// Waits for a line that contains `part`.
    ///
    /// # Panics
    /// After a minute.
    pub fn wait_for(&self, part: &str) -> String {
        wait::wait(&format!("`{part}`"), || self.received(), |lines| wait::find_containing(lines, part))
    }

    /// Waits for a line that satisfies the predicate.
    ///
    /// # Panics
    /// After a minute.
    pub fn wait_until(&self, is_wanted: impl Fn(&str) -> bool) -> String {
        let find = |lines: &[String]| lines.iter().find(|line| is_wanted(line)).cloned();
        wait::wait("the expected line", || self.received(), find)
    }

    /// Returns the ids of all started processes, oldest first.
    pub fn started(&self) -> Vec<u32> {
        self.folder.lines("started").iter().filter_map(|line| line.parse().ok()).collect()
    }

    /// Kills every running process of this script with SIGKILL.
    pub fn kill(&self) {
        let running: Vec<u32> = self.started().into_iter().filter(|pid| self.is_ours(*pid)).collect();
        for pid in running {
            let kill =
                Command::new("sh").args(["-c", &format!("kill -9 {pid}")]).stderr(Stdio::null()).status();
            kill.expect("a shell exists");
        }
    }

    /// Returns true if the process has this script among its arguments. The system may have reused the id.
    fn is_ours(&self, pid: u32) -> bool {
        let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let script = self.folder.script_file();
        arguments.split(|byte| *byte == 0).any(|argument| argument == script.as_os_str().as_encoded_bytes())
    }
}

impl Drop for ScriptedStdio {
    fn drop(&mut self) {
        self.folder.remove();
    }
}

#[cfg(test)]
mod tests;
