//! A scripted server on a loopback port, in the test's own process: what a test holds of it.
//!
//! HTTP/1.1 by hand over threads: `request` reads, `connection` decides (`legacy` where the script wants the older
//! transport), `answer` and `sse` write, and `trouble` is what goes wrong below the protocol.

mod answer;
mod connection;
mod legacy;
mod request;
mod server;
mod sse;
mod trouble;

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::{Value, json};

use crate::{Script, watch};
pub use request::Request;
use server::Server;
pub use trouble::Trouble;

/// A server on a loopback address of its own, and a port chosen by the system. It stops when this is dropped.
#[derive(Debug)]
pub struct ScriptedHttp {
    address: SocketAddr,
    server: Arc<Server>,
    acceptor: Option<JoinHandle<()>>,
}

impl ScriptedHttp {
    /// Starts to serve.
    pub fn start(script: Script) -> ScriptedHttp {
        let listener = TcpListener::bind((own_address(), 0)).expect("there is a free port");
        let address = listener.local_addr().expect("a bound listener has an address");
        let server = Arc::new(Server::new(script));
        ScriptedHttp { address, acceptor: Some(open(listener, server.clone())), server }
    }

    /// Where it serves, or served.
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// The same for an `mcp.json`: `{"url": …}`.
    pub fn entry(&self) -> Value {
        json!({"url": self.url()})
    }

    /// Plays another script from the next request on.
    pub fn change(&self, script: Script) {
        self.server.change(script);
    }

    /// Makes trouble for the next request that matches: a JSON-RPC method, an HTTP method or `*`.
    pub fn next(&self, matching: &str, trouble: Trouble) {
        self.server.troubles().next(matching, trouble);
    }

    /// Makes trouble for every request that matches, until [`ScriptedHttp::behave`].
    pub fn always(&self, matching: &str, trouble: Trouble) {
        self.server.troubles().always(matching, trouble);
    }

    /// Makes no trouble any more.
    pub fn behave(&self) {
        self.server.troubles().clear();
    }

    /// Every request received so far.
    pub fn requests(&self) -> Vec<Request> {
        self.server.requests()
    }

    /// The bodies of all requests that had one.
    pub fn received(&self) -> Vec<String> {
        let bodies = self.requests().into_iter().map(|request| request.body);
        bodies.filter(|body| !body.is_empty()).collect()
    }

    /// The methods of all JSON-RPC messages received.
    pub fn methods(&self) -> Vec<String> {
        watch::methods(&self.received())
    }

    /// Waits until a received body contains this, and returns it.
    ///
    /// # Panics
    /// After a minute in vain.
    pub fn wait_for(&self, part: &str) -> String {
        watch::wait(&format!("`{part}`"), || self.received(), |lines| watch::containing(lines, part))
    }

    /// Waits until a received request is such, and returns it.
    ///
    /// # Panics
    /// After a minute in vain.
    pub fn wait_until(&self, such: impl Fn(&Request) -> bool) -> Request {
        let describe = || self.requests().iter().map(Request::to_string).collect();
        watch::wait("such a request", describe, |_| self.requests().into_iter().find(&such))
    }

    /// How many requests of this HTTP method were received.
    pub fn count(&self, method: &str) -> usize {
        self.requests().iter().filter(|request| request.method == method).count()
    }

    /// Cuts every open connection. New ones are welcome.
    pub fn drop_connections(&self) {
        self.server.drop_connections();
    }

    /// Closes the port and cuts every connection: from now on it refuses.
    pub fn stop(&mut self) {
        let Some(acceptor) = self.acceptor.take() else { return };
        self.server.close();
        // The acceptor is blocked in `accept`; one more connection makes it look up.
        let _ = TcpStream::connect(self.address);
        acceptor.join().expect("the acceptor does not panic");
        self.server.drop_connections();
    }

    /// Serves on the same port again, with another script. What was received is kept.
    pub fn start_again(&mut self, script: Script) {
        self.stop();
        self.server.change(script);
        self.server.open();
        self.acceptor = Some(open(bind_again(self.address), self.server.clone()));
    }
}

impl Drop for ScriptedHttp {
    fn drop(&mut self) {
        self.stop();
    }
}

fn open(listener: TcpListener, server: Arc<Server>) -> JoinHandle<()> {
    thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            if server.is_closed() {
                return;
            }
            // Known before its thread runs: `stop` must not miss it.
            let number = server.enter(&connection);
            let server = server.clone();
            thread::spawn(move || connection::serve(&server, &connection, number));
        }
    })
}

/// A loopback address that no other server of ours has: while one is away, nobody is given its port.
fn own_address() -> Ipv4Addr {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 1 + (number % 250) as u8, high, low.clamp(1, 254))
}

/// The system may take a moment until it gives the port out again.
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
