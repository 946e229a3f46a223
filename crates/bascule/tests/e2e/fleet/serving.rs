//! A running `bascule serve`, what it says, and whoever follows its events.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::signal;
use crate::support::{Bascule, eventually};

/// Nothing that is waited for takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// A bridge that stays, and its folder, from which other commands find it.
pub struct Serving {
    pub bascule: Bascule,
    pub child: Child,
    said: Arc<Mutex<String>>,
    /// Where its socket is.
    runtime: TempDir,
}

/// A command whose lines are read as they come. Dropped, it is killed.
pub struct Lines {
    pub child: Child,
    lines: Receiver<String>,
}

impl Serving {
    /// With these servers.
    pub fn start(servers: Value) -> Self {
        Self::start_with(servers, &[])
    }

    /// With these servers and options.
    pub fn start_with(servers: Value, options: &[&str]) -> Self {
        Self::start_configured(&configuration(&servers), options)
    }

    /// With this configuration.
    pub fn start_configured(text: &str, options: &[&str]) -> Self {
        Self::start_listening(text, "127.0.0.1:0", options)
    }

    /// At this address.
    pub fn start_listening(text: &str, address: &str, options: &[&str]) -> Self {
        let runtime = tempfile::tempdir().unwrap();
        let bascule = Bascule::with_text(text).variable("XDG_RUNTIME_DIR", runtime.path().to_str().unwrap());
        let mut child = bascule
            .command(&[&["serve", "--listen", address], options].concat())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let said = collect(child.stderr.take().unwrap());
        let serving = Self { bascule, child, said, runtime };
        serving.wait_said("serving ");
        serving
    }

    /// Where it serves clients over HTTP.
    pub fn address(&self) -> SocketAddr {
        self.wait_said("/mcp\n");
        let said = self.said();
        let (_, after) = said.split_once(" at http://").unwrap();
        after.split_once("/mcp").unwrap().0.parse().unwrap()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has said on stderr.
    pub fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    pub fn wait_said(&self, part: &str) {
        eventually(&format!("`{part}` is said"), || self.said().contains(part));
    }

    /// Where clients find this over HTTP.
    pub fn url(&self, path: &str) -> String {
        let said = self.said();
        let (_, rest) = said.split_once(" at http://").expect("it has said where it listens");
        let (address, _) = rest.split_once("/mcp").unwrap();
        format!("http://{address}{path}")
    }

    /// The configuration file.
    pub fn file(&self) -> PathBuf {
        self.bascule.folder().join("mcp.json")
    }

    /// Writes other servers into the configuration file.
    pub fn configure(&self, servers: &Value) {
        fs::write(self.file(), configuration(servers)).unwrap();
    }

    /// How the servers are, by `status --json`.
    pub fn status(&self) -> Value {
        let (code, status) = self.bascule.json(&["status"]);
        assert_eq!(code, 0, "{status:#}");
        status
    }

    /// How one server is.
    pub fn server(&self, name: &str) -> Value {
        let status = self.status();
        let servers = status["servers"].as_array().unwrap();
        servers.iter().find(|server| server["name"] == name).cloned().unwrap_or(Value::Null)
    }

    /// Follows its events, from the first one on.
    pub fn events(&self) -> Lines {
        self.lines(&["events", "--json", "--replay", "1000"])
    }

    /// Runs a command whose lines are waited for.
    pub fn lines(&self, arguments: &[&str]) -> Lines {
        let mut child = self.bascule.command(arguments).stderr(Stdio::null()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Lines { child, lines }
    }

    /// A file beside the socket: `sock` or `token`. There is one of each.
    pub fn place(&self, extension: &str) -> PathBuf {
        let files = fs::read_dir(self.runtime.path().join("bascule")).unwrap();
        let mut paths = files.map(|file| file.unwrap().path());
        paths.find(|path| path.extension().is_some_and(|own| own == extension)).unwrap()
    }

    pub fn signal(&self, name: &str) {
        signal(self.pid(), name);
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        eventually("it ends", || self.child.try_wait().unwrap().is_some());
        self.child.wait().unwrap()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Lines {
    /// The next line, or none when the command has ended.
    pub fn next(&self) -> Option<String> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("it says nothing more"),
        }
    }

    /// The next line that is such, as JSON.
    pub fn until(&self, such: impl Fn(&Value) -> bool) -> Value {
        loop {
            let line = self.next().expect("it goes on until it is found");
            let value: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
            if such(&value) {
                return value;
            }
        }
    }

    /// The body of the next event of this kind.
    pub fn event(&self, kind: &str) -> Value {
        let kind = format!("provider.mcp.{kind}");
        self.until(|event| event["type"] == kind)["body"].clone()
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The text of a configuration file with these servers.
pub fn configuration(servers: &Value) -> String {
    json!({ "mcpServers": servers }).to_string()
}

/// Waits for the end of a command that prints little.
pub fn finish(mut child: Child) -> crate::support::Ran {
    eventually("the command ends", || child.try_wait().unwrap().is_some());
    child.wait_with_output().unwrap().into()
}

/// A command that is to be found running.
pub fn begin(bascule: &Bascule, arguments: &[&str]) -> Child {
    bascule.command(arguments).spawn().unwrap()
}

fn collect(mut from: impl Read + Send + 'static) -> Arc<Mutex<String>> {
    let said = Arc::<Mutex<String>>::default();
    let shared = said.clone();
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(read @ 1..) = from.read(&mut buffer) {
            shared.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..read]));
        }
    });
    said
}

/// The children of a process, by the system's account.
pub fn children(pid: u32) -> Vec<u32> {
    let listed = Command::new("ps").args(["-o", "pid=", "--ppid", &pid.to_string()]).output().unwrap();
    let text = String::from_utf8(listed.stdout).unwrap();
    text.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}
