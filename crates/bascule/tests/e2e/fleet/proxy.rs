//! A TCP proxy between the bridge and a server that a test can cut, stall and close.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

/// Forwards bytes in both directions.
pub struct Proxy {
    address: SocketAddr,
    target: SocketAddr,
    state: watch::Sender<ProxyState>,
    listening: Option<JoinHandle<()>>,
    /// Connections opened since the last cut.
    connections: Arc<Mutex<TaskTracker>>,
}

/// Commands to the open connections.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct ProxyState {
    /// Number of cuts; a change ends every open connection.
    cuts: u32,
    /// Bytes are not forwarded.
    stalled: bool,
}

impl Proxy {
    /// Starts a proxy to the server at `http://ADDRESS/…`.
    pub async fn start(url: &str) -> Self {
        let target: SocketAddr =
            url.trim_start_matches("http://").split('/').next().unwrap().parse().unwrap();
        // Each server has its own loopback address, so that nobody else takes the port while the proxy does not listen.
        let listener = TcpListener::bind((target.ip(), 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::default();
        let mut proxy =
            Self { address, target, state: watch::Sender::default(), listening: None, connections };
        proxy.listen(listener);
        proxy
    }

    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// Closes every open connection and waits until they are closed. New connections are accepted.
    pub async fn cut(&self) {
        let old = {
            let mut connections = self.connections.lock().unwrap();
            self.state.send_modify(|state| state.cuts += 1);
            std::mem::take(&mut *connections)
        };
        old.close();
        old.wait().await;
    }

    /// Stops forwarding without closing connections.
    pub fn stall(&self) {
        self.state.send_modify(|state| state.stalled = true);
    }

    /// Closes every connection and accepts no new ones.
    pub async fn refuse(&mut self) {
        if let Some(listening) = self.listening.take() {
            listening.abort();
            let _ = listening.await;
        }
        self.cut().await;
    }

    /// Accepts and forwards again. Stalled connections are closed.
    pub async fn recover(&mut self) {
        self.state.send_modify(|state| state.stalled = false);
        self.cut().await;
        if self.listening.is_none() {
            let listener = TcpListener::bind(self.address).await.unwrap();
            self.listen(listener);
        }
    }

    fn listen(&mut self, listener: TcpListener) {
        let (target, state, connections) = (self.target, self.state.clone(), self.connections.clone());
        self.listening = Some(tokio::spawn(async move {
            while let Ok((downstream, _)) = listener.accept().await {
                let connections = connections.lock().unwrap();
                let state = state.subscribe();
                let cuts_at_start = state.borrow().cuts;
                connections.spawn(forward(downstream, target, state, cuts_at_start));
            }
        }));
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.listening.iter().for_each(JoinHandle::abort);
    }
}

async fn forward(
    mut downstream: TcpStream,
    target: SocketAddr,
    mut state: watch::Receiver<ProxyState>,
    cuts_at_start: u32,
) {
    let Ok(mut upstream) = TcpStream::connect(target).await else { return };
    loop {
        let current = *state.borrow_and_update();
        if current.cuts != cuts_at_start {
            return;
        }
        let forwarding = async {
            match current.stalled {
                true => std::future::pending().await,
                false => copy_bidirectional(&mut downstream, &mut upstream).await,
            }
        };
        tokio::select! {
            _ = forwarding => return,
            changed = state.changed() => if changed.is_err() { return },
        }
    }
}
