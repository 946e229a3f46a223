//! `bascule __relay`: forwards requests to a remote server, in a confined process.
//!
//! To the bridge it is a stdio server. It forwards every request with its parameters unchanged, and returns the
//! response. If the connection to the remote server fails, it writes the reason to stderr and exits.

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use bascule_client::{ClientOptions, McpClient};
use bascule_mcp::{
    Failure, HttpEndpoint, Id, Message, RpcError, ServerMessage, Unsolicited, error_response,
    error_response_from, notification, success_response,
};
use bascule_model::Secret;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::io::{AsyncBufReadExt, BufReader, Split, Stdin};
use tokio::task::{AbortHandle, JoinSet};

use crate::config::{
    CustomProfile, HomeAccess, NetworkAccess, RemoteProtocol, Sandbox, SandboxPaths, ServerSettings,
    TransportSettings,
};

/// The environment variable with the `RelayTarget` as JSON. Arguments would be visible to other users.
pub(crate) const TARGET_VARIABLE: &str = "BASCULE_RELAY_TO";

/// Longer than any start should take: the bridge ends the relay at its own start timeout.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(600);

/// The remote server.
#[derive(Serialize, Deserialize)]
pub(crate) struct RelayTarget {
    pub(crate) protocol: RemoteProtocol,
    pub(crate) url: String,
    pub(crate) headers: Vec<(String, String)>,
    /// Maximum size of a message from the server, in bytes.
    pub(crate) message_limit: usize,
}

impl RelayTarget {
    /// Returns `None` for a stdio server, which needs no relay.
    pub(crate) fn from_settings(settings: &ServerSettings, message_limit: usize) -> Option<Self> {
        let TransportSettings::Remote { protocol, url, headers } = &settings.transport else { return None };
        let headers = headers.iter().map(|(name, value)| (name.clone(), value.reveal().clone())).collect();
        Some(Self { protocol: *protocol, url: url.as_str().to_owned(), headers, message_limit })
    }
}

/// Returns the settings of a relay process: `jailer` with the remote server in its environment. It may use the network and
/// read the resolver configuration, and nothing else.
pub(crate) fn relay_settings(settings: &ServerSettings, jailer: &Path, target: String) -> ServerSettings {
    const RESOLVER: [&str; 6] = [
        "/etc/resolv.conf",
        "/etc/hosts",
        "/etc/nsswitch.conf",
        "/etc/gai.conf",
        "/etc/host.conf",
        "/run/systemd/resolve",
    ];
    let read = RESOLVER.iter().map(PathBuf::from).filter(|path| path.exists()).collect();
    let sandbox = Sandbox::Custom {
        profile: CustomProfile::Strict,
        home: HomeAccess::None,
        read,
        write: Vec::new(),
        network: NetworkAccess::Full,
        unix_sockets: false,
        processes: None,
        files: None,
    };
    let transport = TransportSettings::Stdio {
        command: jailer.to_string_lossy().into_owned(),
        args: vec!["__relay".into()],
        env: vec![(TARGET_VARIABLE.to_owned(), Secret::new(target))],
        cwd: None,
    };
    // A remote server has no paths in the configuration.
    ServerSettings { sandbox, transport, paths: SandboxPaths::default(), ..settings.clone() }
}

/// Runs the relay until stdin ends.
pub(crate) fn main() -> ExitCode {
    let result = read_target().and_then(|target| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        let result = runtime.block_on(forward_messages(target));
        // A normal shutdown would wait for the thread that reads stdin, which the bridge keeps open until this process ends.
        runtime.shutdown_background();
        result
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

fn read_target() -> Result<RelayTarget, String> {
    let text = std::env::var(TARGET_VARIABLE).map_err(|_| format!("`{TARGET_VARIABLE}` is not set"))?;
    serde_json::from_str(&text).map_err(|error| format!("could not parse `{TARGET_VARIABLE}`: {error}"))
}

/// Forwards the messages on stdin until it ends.
async fn forward_messages(target: RelayTarget) -> Result<(), String> {
    let mut lines = BufReader::new(tokio::io::stdin()).split(b'\n');
    let mut remote: Option<McpClient> = None;
    let mut requests = JoinSet::new();
    let mut requests_by_id = HashMap::<String, AbortHandle>::new();
    while let Some(line) = next_line(&mut lines, &mut requests).await? {
        requests_by_id.retain(|_, request| !request.is_finished());
        match (Message::parse(&line), &remote) {
            (Ok(Message::Request { id, method, .. }), _) if method == "initialize" => {
                let client = connect(&target).await?;
                send(&success_response(id, client.info().raw.get()));
                remote = Some(client);
            }
            (Ok(Message::Request { id, method, params }), Some(client)) => {
                let id = id.as_json().to_owned();
                let request =
                    forward(client.clone(), id.clone(), method.into_owned(), params.map(ToOwned::to_owned));
                requests_by_id.insert(id, requests.spawn(request));
            }
            (Ok(Message::Notification { method, params }), _) if method == "notifications/cancelled" => {
                let request = cancelled_id(params).and_then(|id| requests_by_id.remove(&id));
                request.inspect(AbortHandle::abort);
            }
            _ => {}
        }
    }
    requests.shutdown().await;
    if let Some(client) = remote {
        client.close().await;
    }
    Ok(())
}

/// Returns the next line, or `None` at the end of stdin. Fails if a request has failed.
async fn next_line(
    lines: &mut Split<BufReader<Stdin>>,
    requests: &mut JoinSet<Result<(), String>>,
) -> Result<Option<Vec<u8>>, String> {
    loop {
        tokio::select! {
            line = lines.next_segment() => return line.map_err(|error| error.to_string()),
            // A cancelled request has no result.
            Some(result) = requests.join_next() => result.unwrap_or(Ok(()))?,
        }
    }
}

async fn connect(target: &RelayTarget) -> Result<McpClient, String> {
    let headers = target.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let endpoint = HttpEndpoint::new(&target.url, headers).map_err(|error| error.to_string())?;
    let transport = target.protocol.transport(endpoint);
    let options = ClientOptions {
        timeout: CONNECT_TIMEOUT,
        message_limit: target.message_limit,
        // Includes progress: the bridge chose its token.
        listener: Box::new(|message| {
            if let Unsolicited::Notification(ServerMessage { method, params, .. }) = message {
                send(&notification(method, params.map(RawValue::get)));
            }
        }),
        ..ClientOptions::default()
    };
    McpClient::connect(transport, options).await.map_err(|error| error.to_string())
}

/// Forwards one request. Aborting the task cancels the request at the remote server.
async fn forward(
    client: McpClient,
    id: String,
    method: String,
    params: Option<Box<RawValue>>,
) -> Result<(), String> {
    let Some(id) = Id::from_json(&id) else { return Ok(()) };
    match client
        .request(&method, |_| params.map(|params| params.get().to_owned()), None, None)
        .response()
        .await
    {
        Ok(result) => send(&success_response(id, result.get())),
        Err(Failure::ErrorResponse(RpcError { raw: Some(error), .. })) => {
            send(&error_response_from(id, error.get()));
        }
        Err(Failure::ErrorResponse(error)) => send(&error_response(id, error.code, &error.message)),
        Err(failure @ (Failure::TooLong { .. } | Failure::InvalidResponse)) => {
            send(&error_response(id, RpcError::INTERNAL_ERROR, &failure.to_string()));
        }
        Err(failure) => return Err(failure.to_string()),
    }
    Ok(())
}

fn cancelled_id(params: Option<&RawValue>) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Cancelled {
        request_id: Box<RawValue>,
    }
    let cancelled: Cancelled = serde_json::from_str(params?.get()).ok()?;
    Some(cancelled.request_id.get().to_owned())
}

/// Writes a message to the bridge. Blocks only briefly, because the bridge always reads.
fn send(frame: &[u8]) {
    let mut stdout = std::io::stdout().lock();
    let written = stdout
        .write_all(frame.trim_ascii_end())
        .and_then(|()| stdout.write_all(b"\n"))
        .and_then(|()| stdout.flush());
    if written.is_err() {
        // The bridge has ended.
        std::process::exit(0);
    }
}
