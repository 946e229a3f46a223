//! A TCP proxy on loopback whose connections a test can cut.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// Forwards connections to a port of this machine. Dropping it cuts them.
pub struct TcpProxy {
    port: u16,
    shared: Arc<ProxyState>,
}

struct ProxyState {
    target: u16,
    is_blocked: AtomicBool,
    has_ended: AtomicBool,
    sockets: Mutex<Vec<TcpStream>>,
}

impl TcpProxy {
    /// # Panics
    /// If no port is free.
    pub fn start(target: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let shared = Arc::new(ProxyState {
            target,
            is_blocked: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            sockets: Mutex::default(),
        });
        let state = shared.clone();
        thread::spawn(move || state.accept(&listener));
        Self { port, shared }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Cuts all connections. New ones are accepted.
    pub fn cut(&self) {
        for socket in self.shared.lock().drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Cuts all connections, and closes new ones at once until [`Self::unblock`].
    pub fn block(&self) {
        self.shared.is_blocked.store(true, Ordering::SeqCst);
        self.cut();
    }

    pub fn unblock(&self) {
        self.shared.is_blocked.store(false, Ordering::SeqCst);
    }
}

impl Drop for TcpProxy {
    fn drop(&mut self) {
        self.shared.has_ended.store(true, Ordering::SeqCst);
        self.block();
        // The thread looks whether it shall end once it has accepted.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

impl ProxyState {
    fn accept(self: Arc<Self>, listener: &TcpListener) {
        for client in listener.incoming().flatten() {
            if self.has_ended.load(Ordering::SeqCst) {
                return;
            }
            if !self.is_blocked.load(Ordering::SeqCst) {
                // A target that is not there closes the client.
                let _ = self.forward(client);
            }
        }
    }

    fn forward(&self, client: TcpStream) -> io::Result<()> {
        let server = TcpStream::connect((Ipv4Addr::LOCALHOST, self.target))?;
        let (up, down) =
            ((client.try_clone()?, server.try_clone()?), (server.try_clone()?, client.try_clone()?));
        let mut sockets = self.lock();
        sockets.extend([client, server]);
        // A block since the look above found nothing to cut.
        if self.is_blocked.load(Ordering::SeqCst) {
            for socket in sockets.drain(..) {
                let _ = socket.shutdown(Shutdown::Both);
            }
        }
        drop(sockets);
        thread::spawn(move || copy(up));
        thread::spawn(move || copy(down));
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<TcpStream>> {
        self.sockets.lock().expect("no code panics while it holds the lock")
    }
}

/// Copies until one side ends, and ends the other.
fn copy((mut from, mut to): (TcpStream, TcpStream)) {
    let mut block = [0; 16 * 1024];
    while let Ok(count) = from.read(&mut block) {
        if count == 0 || to.write_all(&block[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn echo_server() -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                thread::spawn(move || copy((stream.try_clone().unwrap(), stream)));
            }
        });
        port
    }

    fn echoes(stream: &mut TcpStream) -> bool {
        let mut answer = [0; 2];
        stream.write_all(b"hi").is_ok() && stream.read_exact(&mut answer).is_ok() && answer == *b"hi"
    }

    #[test]
    fn tcp_proxy_forwards_until_it_cuts_or_blocks() {
        let proxy = TcpProxy::start(echo_server());
        let connect = || TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port())).unwrap();
        let mut first = connect();
        assert!(echoes(&mut first));
        proxy.cut();
        assert!(!echoes(&mut first));
        assert!(echoes(&mut connect()));
        proxy.block();
        assert!(!echoes(&mut connect()));
        proxy.unblock();
        assert!(echoes(&mut connect()));
    }
}
