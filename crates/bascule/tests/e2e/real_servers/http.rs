//! `server-everything` over HTTP on a free port.

use std::fs::{self, File};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::support::{eventually, test_env};

/// A running server. Killed when dropped.
pub(super) struct HttpServer {
    process: Child,
    port: u16,
    kind: TransportKind,
    folder: TempDir,
}

/// Transport of the server.
#[derive(Clone, Copy)]
struct TransportKind {
    argument: &'static str,
    path: &'static str,
    ready: &'static str,
}

const STREAMABLE: TransportKind =
    TransportKind { argument: "streamableHttp", path: "/mcp", ready: "listening on port" };
const SSE: TransportKind = TransportKind { argument: "sse", path: "/sse", ready: "running on port" };

impl HttpServer {
    /// Starts a Streamable HTTP server and waits until it listens.
    pub(super) fn start() -> Self {
        Self::start_kind(STREAMABLE)
    }

    /// Starts an HTTP+SSE server and waits until it listens.
    pub(super) fn start_sse() -> Self {
        Self::start_kind(SSE)
    }

    fn start_kind(kind: TransportKind) -> Self {
        // Another process may take the free port before the server listens on it.
        let server = (0..10).find_map(|_| Self::start_on(free_port(), kind));
        server.expect("`node` starts server-everything over HTTP")
    }

    fn start_on(port: u16, kind: TransportKind) -> Option<Self> {
        let script = test_env("node/node_modules/@modelcontextprotocol/server-everything/dist/index.js");
        let folder = tempfile::tempdir().unwrap();
        let log = File::create(folder.path().join("log")).unwrap();
        let mut command = Command::new("node");
        command.arg(script).arg(kind.argument).env("PORT", port.to_string()).stdin(Stdio::null());
        command.stdout(log.try_clone().unwrap()).stderr(log);
        let process = command.spawn().expect("`node` is installed");
        let mut server = Self { process, port, kind, folder };
        server.wait_until_listening().then_some(server)
    }

    /// Waits until the server listens or exits. Returns true if it listens.
    fn wait_until_listening(&mut self) -> bool {
        let ready = format!("{} {}", self.kind.ready, self.port);
        eventually("the server listens or exits", || self.log().contains(&ready) || self.has_exited());
        !self.has_exited()
    }

    fn has_exited(&mut self) -> bool {
        self.process.try_wait().unwrap().is_some()
    }

    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}{}", self.port, self.kind.path)
    }

    /// Waits until the log contains this text this many times.
    pub(super) fn wait_for_log(&self, part: &str, times: usize) {
        eventually(&format!("the log contains `{part}` {times} times"), || {
            self.log().matches(part).count() == times
        });
    }

    pub(super) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap()
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
