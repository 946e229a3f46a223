//! A scripted HTTP server on a loopback port in the process of the test.
//!
//! HTTP/1.1 over threads: `request` reads, `connection` and `legacy` (the deprecated transport) respond,
//! `response_writer` and `sse` write, and `fault` lists the faults below the protocol.

mod connection;
mod fault;
mod legacy;
mod request;
mod response_writer;
mod sse;
mod state;

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::{Value, json};

use crate::{Script, wait};
pub use fault::HttpFault;
pub use request::RecordedRequest;
use state::HttpServerState;

/// A server with its own loopback address and a port chosen by the system. Dropping it stops the server.
#[derive(Debug)]
pub struct ScriptedHttp {
    address: SocketAddr,
    server: Arc<HttpServerState>,
    acceptor: Option<JoinHandle<()>>,
}

impl ScriptedHttp {
    pub fn start(script: Script) -> ScriptedHttp {
        let listener = TcpListener::bind((own_address(), 0)).expect("a port is free");
        let address = listener.local_addr().expect("a bound listener has an address");
        let server = Arc::new(HttpServerState::new(script));
        ScriptedHttp { address, acceptor: Some(accept_connections(listener, server.clone())), server }
    }

    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// Returns the entry for an `mcp.json`: `{"url": …}`.
    pub fn entry(&self) -> Value {
        json!({"url": self.url()})
    }

    /// Replaces the script from the next request on.
    pub fn set_script(&self, script: Script) {
        self.server.set_script(script);
    }

    /// Applies the fault to the next matching request: a JSON-RPC method, an HTTP method or `*`.
    pub fn fail_next(&self, matching: &str, fault: HttpFault) {
        self.server.faults().fail_next(matching, fault);
    }

    /// Applies the fault to every matching request.
    pub fn fail_always(&self, matching: &str, fault: HttpFault) {
        self.server.faults().fail_always(matching, fault);
    }

    /// Returns the received requests.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.server.requests()
    }

    /// Returns the non-empty bodies of the received requests.
    pub fn received(&self) -> Vec<String> {
        let bodies = self.requests().into_iter().map(|request| request.body);
        bodies.filter(|body| !body.is_empty()).collect()
    }

    /// Returns the methods of the received JSON-RPC messages.
    pub fn methods(&self) -> Vec<String> {
        wait::methods(&self.received())
    }

    /// Waits for a body that contains `part`.
    ///
    /// # Panics
    /// After a minute.
    pub fn wait_for(&self, part: &str) -> String {
        wait::wait(&format!("`{part}`"), || self.received(), |lines| wait::find_containing(lines, part))
    }

    /// Waits for a request that satisfies the predicate.
    ///
    /// # Panics
    /// After a minute.
    pub fn wait_until(&self, is_wanted: impl Fn(&RecordedRequest) -> bool) -> RecordedRequest {
        let describe = || self.requests().iter().map(RecordedRequest::to_string).collect();
        wait::wait("the expected request", describe, |_| self.requests().into_iter().find(&is_wanted))
    }

    /// Returns the number of received requests with this HTTP method.
    pub fn count(&self, method: &str) -> usize {
        self.requests().iter().filter(|request| request.method == method).count()
    }

    /// Returns the number of connections so far, the closed ones included.
    pub fn accepted(&self) -> u64 {
        self.server.accepted()
    }

    /// Returns the number of open connections.
    pub fn open_connections(&self) -> usize {
        self.server.open_connections()
    }

    /// Closes all connections and accepts new ones.
    pub fn drop_connections(&self) {
        self.server.drop_connections();
    }

    /// Closes the port and all connections.
    pub fn stop(&mut self) {
        let Some(acceptor) = self.acceptor.take() else { return };
        self.server.close();
        // One more connection ends the blocking `accept`.
        let _ = TcpStream::connect(self.address);
        acceptor.join().expect("the acceptor does not panic");
        self.server.drop_connections();
    }

    /// Serves another script on the same port. Keeps the received requests.
    pub fn restart(&mut self, script: Script) {
        self.stop();
        self.server.set_script(script);
        self.server.open();
        self.acceptor = Some(accept_connections(bind_again(self.address), self.server.clone()));
    }
}

impl Drop for ScriptedHttp {
    fn drop(&mut self) {
        self.stop();
    }
}

fn accept_connections(listener: TcpListener, server: Arc<HttpServerState>) -> JoinHandle<()> {
    thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            if server.is_closed() {
                return;
            }
            // Registered before its thread runs, so that `stop` closes it.
            let number = server.register(&connection);
            let server = server.clone();
            thread::spawn(move || connection::serve(&server, &connection, number));
        }
    })
}

/// Returns an unused loopback address, so that no other server gets the port of a stopped one.
fn own_address() -> Ipv4Addr {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 1 + (number % 250) as u8, high, low.clamp(1, 254))
}

/// Retries, because the system may not release the port at once.
fn bind_again(address: SocketAddr) -> TcpListener {
    for _ in 0..200 {
        if let Ok(listener) = TcpListener::bind(address) {
            return listener;
        }
        thread::sleep(Duration::from_millis(20));
    }
    panic!("could not bind {address} again")
}

#[cfg(test)]
mod tests;
