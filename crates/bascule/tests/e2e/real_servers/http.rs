//! `server-everything` over HTTP, on a port of its own for as long as a test needs it.

use std::fs::{self, File};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::support::{eventually, test_env};

/// A running server. It ends with this value, also when a test panics.
pub(super) struct HttpServer {
    process: Child,
    port: u16,
    kind: Kind,
    folder: TempDir,
}

/// Which transport a server speaks. It speaks no other.
#[derive(Clone, Copy)]
struct Kind {
    argument: &'static str,
    path: &'static str,
    ready: &'static str,
}

const STREAMABLE: Kind = Kind { argument: "streamableHttp", path: "/mcp", ready: "listening on port" };
const SSE: Kind = Kind { argument: "sse", path: "/sse", ready: "running on port" };

impl HttpServer {
    /// Starts one of Streamable HTTP, and waits until it listens.
    pub(super) fn start() -> Self {
        Self::start_kind(STREAMABLE)
    }

    /// Starts one of HTTP+SSE.
    pub(super) fn start_sse() -> Self {
        Self::start_kind(SSE)
    }

    fn start_kind(kind: Kind) -> Self {
        // Between looking for a free port and listening on it, somebody else may take it.
        let server = (0..10).find_map(|_| Self::start_on(free_port(), kind));
        server.expect("`node` starts server-everything over HTTP")
    }

    fn start_on(port: u16, kind: Kind) -> Option<Self> {
        let script = test_env("node/node_modules/@modelcontextprotocol/server-everything/dist/index.js");
        let folder = tempfile::tempdir().unwrap();
        let log = File::create(folder.path().join("log")).unwrap();
        let mut command = Command::new("node");
        command.arg(script).arg(kind.argument).env("PORT", port.to_string()).stdin(Stdio::null());
        command.stdout(log.try_clone().unwrap()).stderr(log);
        let process = command.spawn().expect("there is `node`");
        let mut server = Self { process, port, kind, folder };
        server.is_listening().then_some(server)
    }

    /// Waits until it listens, or has given up.
    fn is_listening(&mut self) -> bool {
        let ready = format!("{} {}", self.kind.ready, self.port);
        eventually("the server listens or ends", || self.log().contains(&ready) || self.has_ended());
        !self.has_ended()
    }

    fn has_ended(&mut self) -> bool {
        self.process.try_wait().unwrap().is_some()
    }

    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}{}", self.port, self.kind.path)
    }

    /// Waits until the server has logged this so many times.
    pub(super) fn logs(&self, part: &str, times: usize) {
        eventually(&format!("the server logs `{part}` {times} times"), || {
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
