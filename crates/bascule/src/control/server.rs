//! Accepts connections on the control socket and admits those that present the token.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use bascule_bus::EmbeddedBus;
use bascule_mcp::{is_large, run_large};
use bascule_model::{BridgeError, Delivery, ErrorCode, Secret};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use super::client::RunningBridge;
use super::handler::{ControlHandler, send};
use super::{ControlRequest, MAX_REQUEST_BYTES, Operation, SocketPath};
use crate::{McpBridgeAdapter, token};

/// The time for the token after the connection, and for the request after the token.
const TOKEN_TIMEOUT: Duration = Duration::from_secs(2);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_TOKEN_BYTES: u64 = 128;
/// The time for clients to read their last response when the bridge stops.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Requests that are handled at the same time; further ones wait.
const MAX_REQUESTS: usize = 64;
/// Connections that have not presented the token yet; further ones are closed. A sandboxed server can open all of them, so
/// they do not count as requests.
const MAX_UNAUTHENTICATED: usize = 512;

/// A listening control socket. Dropping it closes and removes the socket.
pub(crate) struct ControlServer {
    path: SocketPath,
    tasks: TaskTracker,
    /// Stops accepting, and ends event streams.
    closing: CancellationToken,
    /// Ends all connections.
    stop: CancellationToken,
    _claim: SocketClaim,
}

/// The exclusive right to listen on a socket path.
pub(crate) struct SocketClaim(#[allow(dead_code, reason = "held, not used")] std::fs::File);

struct Acceptor {
    handler: ControlHandler,
    token: Secret<String>,
    requests: Semaphore,
    /// Requests that wait for changes do not take permits from those that do work.
    subscriptions: Semaphore,
    unauthenticated: Arc<Semaphore>,
}

impl ControlServer {
    /// Claims the socket path. Fails if another bridge serves the same configuration file.
    pub(crate) async fn claim(path: &SocketPath) -> io::Result<SocketClaim> {
        match path.lock() {
            Ok(lock) => Ok(SocketClaim(lock)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let process = RunningBridge::connect(path).await;
                let process = process.map_or_else(String::new, |other| format!(" (process {})", other.pid));
                let message = format!("a bridge for `{}` is already running{process}", path.config.display());
                Err(io::Error::new(io::ErrorKind::AddrInUse, message))
            }
            Err(error) => Err(error),
        }
    }

    /// Claims the socket path, if no other bridge has it.
    pub(crate) fn try_claim(path: &SocketPath) -> Option<SocketClaim> {
        path.lock().ok().map(SocketClaim)
    }

    /// Starts to listen. Removes the files of an earlier bridge.
    pub(crate) fn start(
        path: SocketPath,
        claim: SocketClaim,
        bridge: Arc<McpBridgeAdapter>,
        bus: Arc<EmbeddedBus>,
    ) -> io::Result<Self> {
        path.remove_files();
        let token = Secret::new(token::generate()?);
        path.write_token(&token)?;
        let listener = UnixListener::bind(path.socket())?;
        std::fs::set_permissions(path.socket(), std::fs::Permissions::from_mode(0o600))?;
        let (tasks, closing, stop) = (TaskTracker::new(), CancellationToken::new(), CancellationToken::new());
        let acceptor = Arc::new(Acceptor {
            handler: ControlHandler { bridge, bus, config: path.config.clone(), closing: closing.clone() },
            token,
            requests: Semaphore::new(MAX_REQUESTS),
            subscriptions: Semaphore::new(MAX_REQUESTS),
            unauthenticated: Arc::new(Semaphore::new(MAX_UNAUTHENTICATED)),
        });
        tasks.spawn(acceptor.accept_connections(listener, tasks.clone(), stop.clone()));
        Ok(Self { path, tasks, closing, stop, _claim: claim })
    }

    /// Stops accepting and ends event streams. Other requests in flight still get a response.
    pub(crate) fn stop_accepting(&self) {
        self.closing.cancel();
    }

    /// Waits for all connections to end. Clients that do not read their response are disconnected.
    pub(crate) async fn close(&self) {
        self.stop_accepting();
        self.tasks.close();
        let _ = timeout(CLOSE_TIMEOUT, self.tasks.wait()).await;
        self.stop.cancel();
        self.tasks.wait().await;
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        self.closing.cancel();
        self.stop.cancel();
        self.path.remove_files();
    }
}

impl Acceptor {
    async fn accept_connections(
        self: Arc<Self>,
        listener: UnixListener,
        tasks: TaskTracker,
        stop: CancellationToken,
    ) {
        while let Some(accepted) = self.handler.closing.run_until_cancelled(listener.accept()).await {
            match accepted {
                Ok((stream, _)) => {
                    if is_confined_server(&stream) {
                        continue;
                    }
                    let Ok(permit) = self.unauthenticated.clone().try_acquire_owned() else { continue };
                    let (acceptor, stop) = (self.clone(), stop.clone());
                    tasks.spawn(async move {
                        let served = stop.run_until_cancelled(acceptor.serve(stream, permit)).await;
                        if let Some(Err(error)) = served {
                            debug!(%error, "control connection failed");
                        }
                    });
                }
                Err(error) => {
                    warn!(%error, "could not accept a control connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    /// Serves one request. If the client disconnects meanwhile, the request is cancelled.
    async fn serve(&self, stream: UnixStream, unauthenticated: OwnedSemaphorePermit) -> io::Result<()> {
        let (reader, mut writer) = stream.into_split();
        let mut reader = BufReader::new(reader);
        let token = read_line(&mut reader, MAX_TOKEN_BYTES, TOKEN_TIMEOUT).await?;
        if !self.token.matches(token.trim_ascii_end()) {
            let message = "the token is not the one of the running bridge";
            let error = BridgeError::new(ErrorCode::PolicyDenied, Delivery::NotSent, message);
            return send(&mut writer, Err(error)).await;
        }
        drop(unauthenticated);
        let line = read_line(&mut reader, MAX_REQUEST_BYTES, REQUEST_TIMEOUT).await?;
        let request: ControlRequest = match is_large(line.len()) {
            false => serde_json::from_slice(&line)?,
            true => run_large(move || serde_json::from_slice(&line)).await?,
        };
        let permits = match request.operation {
            // A busy bridge must still identify itself.
            Operation::Identity => None,
            Operation::Events | Operation::Status => Some(&self.subscriptions),
            _ => Some(&self.requests),
        };
        let _permit = match permits {
            Some(permits) => Some(permits.acquire().await),
            None => None,
        };
        let mut unexpected = [0; 1];
        tokio::select! {
            handled = self.handler.handle(request, &mut writer) => handled,
            // The client sends nothing more: any byte, or the end, cancels the request.
            _ = reader.read(&mut unexpected) => Ok(()),
        }
    }
}

/// Returns true if the peer is a confined server, of any bridge: it gets no attempt at the token.
fn is_confined_server(stream: &UnixStream) -> bool {
    let pid = stream.peer_cred().ok().and_then(|peer| peer.pid()).and_then(|pid| u32::try_from(pid).ok());
    // A process in another PID namespace has no id here; then only the token decides.
    pid.is_some_and(|pid| pid > 0 && bascule_sandbox::is_confined(pid))
}

async fn read_line(
    reader: &mut (impl AsyncBufReadExt + Unpin),
    max_bytes: u64,
    within: Duration,
) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    timeout(within, reader.take(max_bytes).read_until(b'\n', &mut line)).await??;
    Ok(line)
}
