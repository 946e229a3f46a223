//! A way between the bridge and a server that the test can cut, block and close.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

/// Passes on what comes, until it is told otherwise.
pub struct Proxy {
    address: SocketAddr,
    target: SocketAddr,
    way: watch::Sender<Way>,
    listening: Option<JoinHandle<()>>,
    /// Those opened since the last cut.
    connections: Arc<Mutex<TaskTracker>>,
}

/// What happens to connections.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Way {
    /// Those open at such a time end.
    cuts: u32,
    /// Nothing passes.
    stalled: bool,
}

impl Proxy {
    /// To the server at this address: `http://ADDRESS/…`.
    pub async fn to(url: &str) -> Self {
        let target: SocketAddr =
            url.trim_start_matches("http://").split('/').next().unwrap().parse().unwrap();
        // The server's address is its own: nobody else is given the port while we do not listen.
        let listener = TcpListener::bind((target.ip(), 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::default();
        let mut proxy = Self { address, target, way: watch::Sender::default(), listening: None, connections };
        proxy.listen(listener);
        proxy
    }

    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// Cuts every open connection, and returns when they are. New ones pass.
    pub async fn cut(&self) {
        let old = {
            let mut connections = self.connections.lock().unwrap();
            self.way.send_modify(|way| way.cuts += 1);
            std::mem::take(&mut *connections)
        };
        old.close();
        old.wait().await;
    }

    /// Nothing passes any more, and nothing ends.
    pub fn stall(&self) {
        self.way.send_modify(|way| way.stalled = true);
    }

    /// Cuts every connection and takes no new ones.
    pub async fn refuse(&mut self) {
        if let Some(listening) = self.listening.take() {
            listening.abort();
            let _ = listening.await;
        }
        self.cut().await;
    }

    /// All is well again. Connections that were stalled are cut.
    pub async fn recover(&mut self) {
        self.way.send_modify(|way| way.stalled = false);
        self.cut().await;
        if self.listening.is_none() {
            let listener = TcpListener::bind(self.address).await.unwrap();
            self.listen(listener);
        }
    }

    fn listen(&mut self, listener: TcpListener) {
        let (target, way, connections) = (self.target, self.way.clone(), self.connections.clone());
        self.listening = Some(tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let connections = connections.lock().unwrap();
                let way = way.subscribe();
                let begun = way.borrow().cuts;
                connections.spawn(pass(near, target, way, begun));
            }
        }));
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.listening.iter().for_each(JoinHandle::abort);
    }
}

async fn pass(mut near: TcpStream, target: SocketAddr, mut way: watch::Receiver<Way>, begun: u32) {
    let Ok(mut far) = TcpStream::connect(target).await else { return };
    loop {
        let now = *way.borrow_and_update();
        if now.cuts != begun {
            return;
        }
        let passing = async {
            match now.stalled {
                true => std::future::pending().await,
                false => copy_bidirectional(&mut near, &mut far).await,
            }
        };
        tokio::select! {
            _ = passing => return,
            changed = way.changed() => if changed.is_err() { return },
        }
    }
}
