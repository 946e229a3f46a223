//! The measured processes (the bridge and the echo server) and their CPU time and memory.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bascule_testkit::binary;

/// Timeout for the start of all servers.
const START: Duration = Duration::from_secs(30);

/// A process id.
#[derive(Clone, Copy)]
pub(super) struct Process(pub(super) u32);

impl Process {
    /// CPU time of all threads since the start.
    pub(super) fn cpu_time(self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0)).unwrap_or_default();
        // The name is in brackets and may contain anything; the times are fields 14 and 15.
        let fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest).split(' ').skip(11).take(2);
        Duration::from_millis(fields.map(|ticks| ticks.parse::<u64>().unwrap_or(0) * 10).sum())
    }

    /// Resident memory in MB.
    pub(super) fn resident(self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0)).unwrap_or_default();
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let kilobytes = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
        kilobytes.map_or(f64::NAN, |kilobytes| kilobytes * 1024.0 / 1e6)
    }
}

/// `bascule serve` on a free port in a temporary folder.
pub(super) struct ServeProcess {
    bridge: Child,
    folder: PathBuf,
    address: String,
}

impl ServeProcess {
    /// Starts with these echo servers (name and arguments). Returns after all are healthy.
    pub(super) fn start(servers: &[(&str, &[&str])]) -> Self {
        let folder = std::env::temp_dir().join(format!("bascule-bench-gateway-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("mcp.json"), configuration(servers)).unwrap();
        let mut bridge = bascule(&folder, &["serve", "--auth", "none", "--listen", "127.0.0.1:0"])
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = BufReader::new(bridge.stderr.take().unwrap());
        let address = read_address(&mut stderr);
        // Drains the pipe.
        std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
        let process = Self { bridge, folder, address };
        let begin = Instant::now();
        while process.healthy_servers() < servers.len() {
            assert!(begin.elapsed() < START, "the bridge's servers do not start");
            std::thread::sleep(Duration::from_millis(50));
        }
        process
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.address)
    }

    pub(super) fn process(&self) -> Process {
        Process(self.bridge.id())
    }

    fn healthy_servers(&self) -> usize {
        let status = bascule(&self.folder, &["status", "--json"]).stderr(Stdio::null()).output().unwrap();
        let status = String::from_utf8_lossy(&status.stdout);
        status.split_whitespace().collect::<String>().matches(r#""health":"healthy""#).count()
    }
}

impl Drop for ServeProcess {
    fn drop(&mut self) {
        // SIGTERM, so that the bridge stops its servers and removes its socket.
        let _ = Command::new("kill").arg(self.bridge.id().to_string()).status();
        let _ = self.bridge.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn configuration(servers: &[(&str, &[&str])]) -> String {
    let command = binary("echo-server");
    let mut entries = String::new();
    for (name, arguments) in servers {
        let comma = if entries.is_empty() { "" } else { "," };
        write!(entries, r#"{comma}"{name}":{{"command":{command:?},"args":{arguments:?}}}"#).unwrap();
    }
    format!(r#"{{"mcpServers":{{{entries}}}}}"#)
}

/// Reads stderr until a line contains `http://HOST:PORT`.
fn read_address(stderr: &mut impl BufRead) -> String {
    let mut text = String::new();
    loop {
        let start = text.len();
        assert!(stderr.read_line(&mut text).unwrap() > 0, "the bridge does not listen:\n{text}");
        if let Some((_, url)) = text[start..].split_once("http://") {
            return format!("http://{}", url.split('/').next().unwrap_or(url).trim());
        }
    }
}

fn bascule(folder: &Path, arguments: &[&str]) -> Command {
    let other = std::env::var_os("BASCULE_BENCH_BINARY");
    let mut command = Command::new(other.unwrap_or_else(|| env!("CARGO_BIN_EXE_bascule").into()));
    command.args(["--config", "mcp.json"]).args(arguments).current_dir(folder);
    command.envs(["XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"].map(|name| (name, folder)));
    command
}

/// An echo server over HTTP.
pub(super) struct Echo {
    server: Child,
    address: String,
}

pub(super) fn listening_echo(arguments: &[&str]) -> Echo {
    let mut server = Command::new(binary("echo-server"))
        .args(["http", "127.0.0.1:0"])
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(server.stderr.take().unwrap()).read_line(&mut line).unwrap();
    Echo { server, address: line.trim().to_owned() }
}

impl Echo {
    pub(super) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
