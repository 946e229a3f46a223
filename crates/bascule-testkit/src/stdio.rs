//! A scripted server as a real child process: what a test holds of it.
//!
//! The process itself is started by whoever is tested, from [`ScriptedStdio::command`] or
//! [`ScriptedStdio::entry`]; it does what `serve` says.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::folder::Folder;
use crate::{Script, binary, watch};

/// A script in a temporary folder, and all that its processes received. The folder goes when this does.
#[derive(Debug)]
pub struct ScriptedStdio {
    folder: Folder,
}

impl ScriptedStdio {
    /// Writes the script down. No process is started.
    pub fn new(script: Script) -> ScriptedStdio {
        let folder = Folder::create();
        folder.change(&script);
        ScriptedStdio { folder }
    }

    /// The program and its arguments.
    pub fn command(&self) -> Command {
        let mut command = Command::new(binary("scripted-server"));
        command.arg(self.folder.script_file());
        command
    }

    /// The same for an `mcp.json`: `{"command": …, "args": […]}`.
    pub fn entry(&self) -> Value {
        json!({"command": binary("scripted-server"), "args": [self.folder.script_file()]})
    }

    /// Plays another script from the next message on, in the running process and in later ones.
    pub fn change(&self, script: Script) {
        self.folder.change(&script);
    }

    /// Every line received so far, by all processes of this script.
    pub fn received(&self) -> Vec<String> {
        self.folder.lines("received")
    }

    /// The methods of all that was received.
    pub fn methods(&self) -> Vec<String> {
        watch::methods(&self.received())
    }

    /// Waits until a received line contains this, and returns it.
    ///
    /// # Panics
    /// After a minute in vain.
    pub fn wait_for(&self, part: &str) -> String {
        watch::wait(&format!("`{part}`"), || self.received(), |lines| watch::containing(lines, part))
    }

    /// Waits until a received line is such, and returns it.
    ///
    /// # Panics
    /// After a minute in vain.
    pub fn wait_until(&self, such: impl Fn(&str) -> bool) -> String {
        let find = |lines: &[String]| lines.iter().find(|line| such(line)).cloned();
        watch::wait("such a line", || self.received(), find)
    }

    /// The ids of all processes that were started, oldest first.
    pub fn started(&self) -> Vec<u32> {
        self.folder.lines("started").iter().filter_map(|line| line.parse().ok()).collect()
    }

    /// Kills every running process of this script with SIGKILL.
    pub fn kill(&self) {
        let own: Vec<u32> = self.started().into_iter().filter(|pid| self.is_ours(*pid)).collect();
        for pid in own {
            let kill =
                Command::new("sh").args(["-c", &format!("kill -9 {pid}")]).stderr(Stdio::null()).status();
            kill.expect("there is a shell");
        }
    }

    /// A process that ended may have left its id to a stranger: only ours has our script among its arguments.
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
