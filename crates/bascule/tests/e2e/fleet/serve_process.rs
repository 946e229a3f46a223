//! A running `bascule serve` process with its stderr and its events.

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

use crate::support::{Bascule, eventually, signal};

/// Upper bound for the next line of a command.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A running bridge and its folder. Commands run in that folder find the bridge. Killed when dropped.
pub struct ServeProcess {
    pub bascule: Bascule,
    pub child: Child,
    stderr: Arc<Mutex<String>>,
    /// `XDG_RUNTIME_DIR`, which holds the control socket.
    runtime: TempDir,
}

/// A command whose stdout is read line by line. Killed when dropped.
pub struct LineStream {
    pub child: Child,
    lines: Receiver<String>,
}

impl ServeProcess {
    pub fn start(servers: Value) -> Self {
        Self::start_with(servers, &[])
    }

    pub fn start_with(servers: Value, options: &[&str]) -> Self {
        Self::start_with_config(&config_text(&servers), options)
    }

    pub fn start_with_config(text: &str, options: &[&str]) -> Self {
        Self::start_at(text, "127.0.0.1:0", options)
    }

    /// Starts with this configuration text and listens at this address. Clients need no token unless the text has tokens.
    pub fn start_at(text: &str, address: &str, options: &[&str]) -> Self {
        let arguments = [&["serve", "--listen", address], authentication(text), options].concat();
        Self::spawn(text, |bascule| bascule.command(&arguments))
    }

    /// Starts with these environment variables.
    pub fn start_with_env(servers: Value, variables: &[(&str, &str)]) -> Self {
        let arguments = ["serve", "--listen", "127.0.0.1:0", "--auth", "none"];
        Self::spawn(&config_text(&servers), |bascule| {
            let mut command = bascule.command(&arguments);
            command.envs(variables.iter().copied());
            command
        })
    }

    /// Starts with a client on stdin that sends nothing.
    pub fn start_stdio(servers: Value) -> Self {
        Self::spawn(&config_text(&servers), |bascule| {
            let mut command = bascule.command(&["serve", "--stdio"]);
            command.stdin(Stdio::piped());
            command
        })
    }

    /// Starts with these arguments of the shell's `ulimit`.
    pub fn start_with_ulimit(text: &str, ulimit: &str) -> Self {
        let arguments = [&["serve", "--listen", "127.0.0.1:0"], authentication(text)].concat();
        Self::spawn(text, |bascule| bascule.command_with_ulimit(&arguments, ulimit))
    }

    /// Starts after `preparation` by a shell, which `before` starts.
    pub fn start_prepared_by(text: &str, before: &[&str], preparation: &str) -> Self {
        let arguments = [&["serve", "--listen", "127.0.0.1:0"], authentication(text)].concat();
        Self::spawn(text, |bascule| bascule.command_prepared_by(before, preparation, &arguments))
    }

    fn spawn(text: &str, command: impl FnOnce(&Bascule) -> Command) -> Self {
        let (bascule, runtime) = folders(text);
        let (child, stderr) = spawn_bridge(&mut command(&bascule));
        let bridge = Self { bascule, child, stderr, runtime };
        bridge.wait_for_stderr("serving ");
        bridge
    }

    /// Starts another bridge in the folder of this one, which has ended.
    pub fn start_again(&mut self) {
        let text = fs::read_to_string(self.config_file()).unwrap();
        let arguments = [&["serve", "--listen", "127.0.0.1:0"], authentication(&text)].concat();
        (self.child, self.stderr) = spawn_bridge(&mut self.bascule.command(&arguments));
        self.wait_for_stderr("serving ");
    }

    /// Address of the HTTP listener.
    pub fn address(&self) -> SocketAddr {
        self.wait_for_stderr("/mcp\n");
        let stderr = self.stderr();
        let (_, rest) = stderr.split_once(" at http://").unwrap();
        rest.split_once("/mcp").unwrap().0.parse().unwrap()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn stderr(&self) -> String {
        self.stderr.lock().unwrap().clone()
    }

    pub fn wait_for_stderr(&self, part: &str) {
        eventually(&format!("stderr contains `{part}`"), || self.stderr().contains(part));
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address())
    }

    pub fn config_file(&self) -> PathBuf {
        self.bascule.folder().join("mcp.json")
    }

    /// Replaces the servers in the configuration file.
    pub fn configure(&self, servers: &Value) {
        fs::write(self.config_file(), config_text(servers)).unwrap();
    }

    /// Output of `status --json`.
    pub fn status(&self) -> Value {
        let (code, status) = self.bascule.run_json(&["status"]);
        assert_eq!(code, 0, "{status:#}");
        status
    }

    /// Status of one server; null if it is not listed.
    pub fn server_status(&self, name: &str) -> Value {
        let status = self.status();
        let servers = status["servers"].as_array().unwrap();
        servers.iter().find(|server| server["name"] == name).cloned().unwrap_or(Value::Null)
    }

    /// Follows the events, from the first one on.
    pub fn events(&self) -> LineStream {
        self.follow(&["events", "--json", "--replay", "1000"])
    }

    /// Starts a command that prints lines until it is killed.
    pub fn follow(&self, arguments: &[&str]) -> LineStream {
        let mut child = self.bascule.command(arguments).stderr(Stdio::null()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        LineStream { child, lines }
    }

    /// Path of the control socket (`sock`) or of its token file (`token`).
    pub fn socket_file(&self, extension: &str) -> PathBuf {
        let files = fs::read_dir(self.runtime.path().join("bascule")).unwrap();
        let mut paths = files.map(|file| file.unwrap().path());
        paths.find(|path| path.extension().is_some_and(|own| own == extension)).unwrap()
    }

    pub fn signal(&self, name: &str) {
        signal(self.pid(), name);
    }

    pub fn wait_for_exit(&mut self) -> ExitStatus {
        eventually("the bridge exits", || self.child.try_wait().unwrap().is_some());
        self.child.wait().unwrap()
    }
}

impl Drop for ServeProcess {
    fn drop(&mut self) {
        // Fails if the process has exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl LineStream {
    /// The next line; none after the command has exited.
    pub fn next_line(&self) -> Option<String> {
        match self.lines.recv_timeout(TIMEOUT) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("no further line within {TIMEOUT:?}"),
        }
    }

    /// Parses lines as JSON until one matches.
    pub fn find_json(&self, matches: impl Fn(&Value) -> bool) -> Value {
        loop {
            let line = self.next_line().expect("the command exited before a line matched");
            let value: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
            if matches(&value) {
                return value;
            }
        }
    }

    /// Waits for the next event of this kind and returns its body.
    pub fn wait_for_event(&self, kind: &str) -> Value {
        let kind = format!("provider.mcp.{kind}");
        self.find_json(|event| event["type"] == kind)["body"].clone()
    }
}

impl Drop for LineStream {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn config_text(servers: &Value) -> String {
    json!({ "mcpServers": servers }).to_string()
}

pub fn spawn(bascule: &Bascule, arguments: &[&str]) -> Child {
    bascule.command(arguments).spawn().unwrap()
}

fn folders(config: &str) -> (Bascule, TempDir) {
    let runtime = tempfile::tempdir().unwrap();
    let bascule = Bascule::with_text(config).env("XDG_RUNTIME_DIR", runtime.path().to_str().unwrap());
    (bascule, runtime)
}

fn spawn_bridge(command: &mut Command) -> (Child, Arc<Mutex<String>>) {
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    let stderr = collect(child.stderr.take().unwrap());
    (child, stderr)
}

/// Collects a stream in the background.
fn collect(mut from: impl Read + Send + 'static) -> Arc<Mutex<String>> {
    let text = Arc::<Mutex<String>>::default();
    let shared = text.clone();
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(read @ 1..) = from.read(&mut buffer) {
            shared.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..read]));
        }
    });
    text
}

/// Most tests are not about tokens.
fn authentication(config: &str) -> &'static [&'static str] {
    if config.contains("\"tokens\"") || config.contains("\"auth\"") { &[] } else { &["--auth", "none"] }
}
