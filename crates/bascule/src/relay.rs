//! `bascule __relay`: makes the calls to a remote server from a process of its own, which is confined (SB-01).
//!
//! On stdin and stdout it is a server to the bridge; every request goes on to the remote one as it is spelled, and
//! what comes of it comes back. Without the remote server there is nothing for it to do: then it ends and says why.

use std::collections::HashMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use bascule_client::{Client, ClientOptions};
use bascule_mcp::{
    Failure, HttpEndpoint, Id, Message, ServerMessage, Transport, Unsolicited, error_answer, notification,
    success_answer,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::task::{AbortHandle, JoinSet};

use crate::config::{Network, Sandbox, ServerSettings, TransportSettings};

/// Where it is told whom to relay to: its environment, which nobody else can read.
pub(crate) const TARGET: &str = "BASCULE_RELAY_TO";

/// The bridge has bounds of its own for a start; this one is for a relay that was forgotten.
const CONNECT_WITHIN: Duration = Duration::from_secs(600);

/// The remote server.
#[derive(Serialize, Deserialize)]
pub(crate) struct Target {
    pub(crate) kind: Kind,
    pub(crate) url: String,
    pub(crate) headers: Vec<(String, String)>,
    /// The longest message that is read.
    pub(crate) message_limit: usize,
}

impl Target {
    /// What a server's settings say; none for one that is a process already.
    pub(crate) fn of(settings: &ServerSettings, message_limit: usize) -> Option<Self> {
        let (kind, url, headers) = match &settings.transport {
            TransportSettings::Stdio { .. } => return None,
            TransportSettings::Http { url, headers } => (Kind::Http, url, headers),
            TransportSettings::Sse { url, headers } => (Kind::Sse, url, headers),
            TransportSettings::HttpOrSse { url, headers } => (Kind::HttpOrSse, url, headers),
        };
        let headers = headers.iter().map(|(name, value)| (name.clone(), value.reveal().clone())).collect();
        Some(Self { kind, url: url.as_str().to_owned(), headers, message_limit })
    }
}

/// The settings under which a relay runs: it may reach the network, and read what it takes to find a name there.
pub(crate) fn confined(settings: &ServerSettings) -> ServerSettings {
    const RESOLVER: [&str; 6] = [
        "/etc/resolv.conf",
        "/etc/hosts",
        "/etc/nsswitch.conf",
        "/etc/gai.conf",
        "/etc/host.conf",
        "/run/systemd/resolve",
    ];
    let read = RESOLVER.iter().map(PathBuf::from).filter(|path| path.exists()).collect();
    let sandbox =
        Sandbox::Custom { read, write: Vec::new(), network: Network::Full, processes: None, files: None };
    ServerSettings { sandbox, ..settings.clone() }
}

/// What it speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    Http,
    Sse,
    HttpOrSse,
}

/// The whole program.
pub(crate) fn main() -> ExitCode {
    let ended = target().and_then(|target| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        let ended = runtime.block_on(relay(target));
        // It would wait for the thread that reads stdin, which the bridge keeps open as long as we are there.
        runtime.shutdown_background();
        ended
    });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            let _ = writeln!(std::io::stderr(), "{why}");
            ExitCode::FAILURE
        }
    }
}

fn target() -> Result<Target, String> {
    let text = std::env::var(TARGET).map_err(|_| format!("{TARGET} is not set"))?;
    serde_json::from_str(&text).map_err(|error| format!("{TARGET} is not understood: {error}"))
}

async fn relay(target: Target) -> Result<(), String> {
    let mut lines = BufReader::new(tokio::io::stdin()).split(b'\n');
    let mut remote: Option<Client> = None;
    let mut calls = JoinSet::new();
    let mut by_id = HashMap::<String, AbortHandle>::new();
    loop {
        let line = tokio::select! {
            line = lines.next_segment() => line.map_err(|error| error.to_string())?,
            Some(ended) = calls.join_next() => {
                // What was called off has nothing to say.
                ended.unwrap_or(Ok(()))?;
                continue;
            }
        };
        let Some(line) = line else { break };
        match (Message::parse(&line), &remote) {
            (Ok(Message::Request { id, method, .. }), _) if method == "initialize" => {
                let client = connect(&target).await?;
                print(&success_answer(id, client.info().raw.get()));
                remote = Some(client);
            }
            (Ok(Message::Request { id, method, params }), Some(client)) => {
                let id = id.as_json().to_owned();
                let call =
                    hand_on(client.clone(), id.clone(), method.into_owned(), params.map(ToOwned::to_owned));
                by_id.insert(id, calls.spawn(call));
            }
            (Ok(Message::Notification { method, params }), _) if method == "notifications/cancelled" => {
                cancelled(params).and_then(|id| by_id.remove(&id)).into_iter().for_each(|call| call.abort());
            }
            _ => {}
        }
    }
    calls.shutdown().await;
    if let Some(client) = remote {
        client.close().await;
    }
    Ok(())
}

async fn connect(target: &Target) -> Result<Client, String> {
    let headers = target.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let endpoint = HttpEndpoint::new(&target.url, headers).map_err(|error| error.to_string())?;
    let transport = match target.kind {
        Kind::Http => Transport::Http(endpoint),
        Kind::Sse => Transport::Sse(endpoint),
        Kind::HttpOrSse => Transport::HttpOrSse(endpoint),
    };
    let options = ClientOptions {
        timeout: CONNECT_WITHIN,
        message_limit: target.message_limit,
        // Progress too: its token is the bridge's own.
        listener: Box::new(|heard| {
            if let Unsolicited::Notification(ServerMessage { method, params, .. }) = heard {
                print(&notification(method, params.map(RawValue::get)));
            }
        }),
        ..ClientOptions::default()
    };
    Client::connect(transport, options).await.map_err(|error| error.to_string())
}

/// One request to the remote server. Aborted, it is cancelled there.
async fn hand_on(
    client: Client,
    id: String,
    method: String,
    params: Option<Box<RawValue>>,
) -> Result<(), String> {
    let Some(id) = Id::from_json(&id) else { return Ok(()) };
    match client.request(&method, |_| params.map(|params| params.get().to_owned()), None, None).answer().await
    {
        Ok(result) => print(&success_answer(id, result.get())),
        Err(Failure::Answered(fault)) => {
            let data = fault.data.map_or_else(String::new, |data| format!(r#","data":{data}"#));
            let (code, message) = (fault.code, serde_json::Value::from(fault.message));
            let error = format!(r#"{{"code":{code},"message":{message}{data}}}"#);
            print(format!(r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#, id.as_json()).as_bytes());
        }
        Err(failure @ (Failure::TooLong { .. } | Failure::Garbled)) => {
            print(&error_answer(id, -32603, &failure.to_string()));
        }
        Err(failure) => return Err(failure.to_string()),
    }
    Ok(())
}

fn cancelled(params: Option<&RawValue>) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Cancelled {
        request_id: Box<RawValue>,
    }
    let cancelled: Cancelled = serde_json::from_str(params?.get()).ok()?;
    Some(cancelled.request_id.get().to_owned())
}

/// The bridge reads at once, so writing does not wait for long.
fn print(frame: &[u8]) {
    let mut stdout = std::io::stdout().lock();
    let written = stdout
        .write_all(frame.trim_ascii_end())
        .and_then(|()| stdout.write_all(b"\n"))
        .and_then(|()| stdout.flush());
    if written.is_err() {
        // There is no bridge any more.
        std::process::exit(0);
    }
}
