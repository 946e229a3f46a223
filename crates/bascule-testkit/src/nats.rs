//! A real `nats-server` with JetStream for a test, on a loopback port, with a folder of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::folder::ScriptFolder;
use crate::port::lasting_port;

/// A NATS server. Dropping it kills the process and removes its folder.
pub struct NatsServer {
    folder: ScriptFolder,
    port: u16,
    settings: Vec<NatsSetting>,
    process: Option<Child>,
}

/// A setting of the server beside address and storage.
#[derive(Debug, Clone)]
pub enum NatsSetting {
    /// Clients name this user and password.
    Password { user: String, password: String },
    /// Clients name this token.
    Token(String),
    /// Clients prove that they own the seed of this public NKey.
    NKey(String),
    /// Clients speak TLS, and have a certificate of `client_ca` if it is there.
    Tls { certificate: PathBuf, key: PathBuf, client_ca: Option<PathBuf> },
    /// Lines for the configuration file.
    Lines(String),
}

impl NatsServer {
    /// Starts a server that accepts everybody.
    ///
    /// # Panics
    /// If `nats-server` is not installed, or does not start.
    pub fn start() -> Self {
        Self::start_with([])
    }

    /// # Panics
    /// If `nats-server` is not installed, or does not start with these settings.
    pub fn start_with(settings: impl IntoIterator<Item = NatsSetting>) -> Self {
        let settings = settings.into_iter().collect();
        let mut server = Self { folder: ScriptFolder::create(), port: 0, settings, process: None };
        // A port that was free may be taken by now.
        for _ in 0..3 {
            server.port = lasting_port();
            if server.launch() {
                return server;
            }
        }
        panic!("`nats-server` does not accept connections; its log:\n{}", server.log());
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn url(&self) -> String {
        let has_tls = self.settings.iter().any(|setting| matches!(setting, NatsSetting::Tls { .. }));
        let scheme = if has_tls { "tls" } else { "nats" };
        format!("{scheme}://127.0.0.1:{}", self.port)
    }

    /// The folder of the configuration, the log (`log`) and the streams.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Ends the process as an operator would, and waits for its end.
    pub fn stop(&mut self) {
        let Some(mut process) = self.process.take() else { return };
        let command = format!("kill -TERM {}", process.id());
        let sent = Command::new("sh").args(["-c", &command]).status();
        assert!(sent.is_ok_and(|status| status.success()), "could not signal the server");
        process.wait().expect("the server is a child");
    }

    /// Kills the process (`kill -9`). Its streams stay on the disk.
    pub fn kill(&mut self) {
        let Some(mut process) = self.process.take() else { return };
        let _ = process.kill();
        let _ = process.wait();
    }

    /// Starts the process again, with the same port and streams.
    ///
    /// # Panics
    /// If it does not start.
    pub fn restart(&mut self) {
        self.kill();
        assert!(self.launch(), "`nats-server` does not start again; its log:\n{}", self.log());
    }

    /// Returns false if the server has ended instead.
    fn launch(&mut self) -> bool {
        let configuration = self.folder().join("nats.conf");
        fs::write(&configuration, self.configuration()).expect("the temporary folder is writable");
        let mut command = Command::new(broker_program("nats-server"));
        command.arg("--config").arg(&configuration).arg("--ports_file_dir").arg(self.folder());
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let process = process.unwrap_or_else(|error| panic!("could not start `nats-server`: {error}"));
        // The server writes the file once it accepts connections.
        let ports = self.folder().join(format!("nats-server_{}.ports", process.id()));
        self.process = Some(process);
        self.wait_for(&ports)
    }

    fn wait_for(&mut self, ports: &Path) -> bool {
        const TIMEOUT: Duration = Duration::from_secs(60);
        let start = Instant::now();
        while !ports.exists() {
            let process = self.process.as_mut().expect("it was just started");
            let has_ended = process.try_wait().expect("the server is a child").is_some();
            if has_ended || start.elapsed() > TIMEOUT {
                self.kill();
                return false;
            }
            thread::sleep(Duration::from_millis(5));
        }
        true
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder().join("log")).unwrap_or_default()
    }

    fn configuration(&self) -> String {
        let folder = self.folder().display();
        let port = self.port;
        let mut lines = vec![
            format!("listen: \"127.0.0.1:{port}\""),
            format!("log_file: \"{folder}/log\""),
            format!("jetstream: {{ store_dir: \"{folder}/streams\" }}"),
        ];
        lines.extend(self.settings.iter().map(NatsSetting::to_lines));
        lines.join("\n")
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        self.kill();
        self.folder.remove();
    }
}

impl NatsSetting {
    fn to_lines(&self) -> String {
        match self {
            Self::Password { user, password } => {
                format!("authorization: {{ user: \"{user}\", password: \"{password}\" }}")
            }
            Self::Token(token) => format!("authorization: {{ token: \"{token}\" }}"),
            Self::NKey(public) => format!("authorization: {{ users: [ {{ nkey: {public} }} ] }}"),
            Self::Tls { certificate, key, client_ca } => {
                let ca = client_ca.as_ref().map(|ca| format!("ca_file: \"{}\", verify: true", ca.display()));
                let (certificate, key) = (certificate.display(), key.display());
                let ca = ca.unwrap_or_default();
                format!("tls: {{ cert_file: \"{certificate}\", key_file: \"{key}\", {ca} }}")
            }
            Self::Lines(lines) => lines.clone(),
        }
    }
}

/// Returns the path of a program beside the brokers in the test environment, such as `python`, which has their clients.
///
/// # Panics
/// If it is not installed.
pub fn broker_program(name: &str) -> PathBuf {
    let path = test_environment().join("brokers/bin").join(name);
    assert!(path.exists(), "there is no `{}`: run `scripts/test-env`", path.display());
    path
}

/// The folder of programs that `scripts/test-env` installs.
fn test_environment() -> PathBuf {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.testenv");
    std::env::var_os("BASCULE_TESTENV").map_or_else(default, PathBuf::from)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::net::TcpStream;

    use super::*;

    fn greeting(server: &NatsServer) -> String {
        let stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        line
    }

    #[test]
    fn nats_server_keeps_its_port_when_it_is_killed_or_stopped() {
        let mut server = NatsServer::start();
        let port = server.port();
        assert!(greeting(&server).contains(r#""jetstream":true"#));
        server.restart();
        assert_eq!(server.port(), port);
        server.stop();
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
        server.restart();
        assert!(greeting(&server).starts_with("INFO "));
    }

    #[test]
    fn nats_server_asks_for_a_password() {
        let setting = NatsSetting::Password { user: "u".into(), password: "p".into() };
        let server = NatsServer::start_with([setting]);
        assert!(greeting(&server).contains(r#""auth_required":true"#));
    }
}
