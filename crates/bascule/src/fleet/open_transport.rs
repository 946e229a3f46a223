//! Opens the transport to a server: its own process, a relay process, or a remote connection.

use std::path::Path;

use bascule_mcp::{HttpEndpoint, ShutdownTimeouts, Transport};
use bascule_model::Secret;
use bascule_sandbox::TraceLog;

use super::upstream::StartContext;
use crate::config::{Isolation, ServerSettings, ServerUrl, TransportSettings};
use crate::launch::ConfinedProcess;
use crate::relay::RelayTarget;
use crate::{launch, relay};

/// Opens the transport to a server, and starts the process where the bridge starts one. May block.
pub(super) fn open_transport(
    settings: &ServerSettings,
    context: &StartContext,
) -> Result<(Transport, Option<ConfinedProcess>), String> {
    let jailer = context.jailer.as_deref();
    if let (Isolation::PerCall, Some(jailer)) = (settings.isolation, jailer)
        && let Some(target) = RelayTarget::from_settings(settings, context.message_limit)
    {
        return launch_relay(settings, &target, jailer);
    }
    match &settings.transport {
        TransportSettings::Stdio { .. } => {
            // A per-call process needs no time to end after its one call.
            let shutdown = match settings.isolation {
                Isolation::PerCall => ShutdownTimeouts::NONE,
                Isolation::Shared => ShutdownTimeouts::default(),
            };
            launch_process(settings, jailer, shutdown, context.trace.as_deref())
        }
        TransportSettings::Remote { protocol, url, headers } => {
            Ok((protocol.transport(parse_endpoint(url, headers)?), None))
        }
    }
}

fn launch_process(
    settings: &ServerSettings,
    jailer: Option<&Path>,
    shutdown: ShutdownTimeouts,
    trace: Option<&TraceLog>,
) -> Result<(Transport, Option<ConfinedProcess>), String> {
    let launched = launch::launch(settings, jailer, shutdown, trace).map_err(|error| error.to_string())?;
    Ok((Transport::Stdio(launched.child), launched.confined))
}

/// Reaches a remote server through a sandboxed relay process.
fn launch_relay(
    settings: &ServerSettings,
    target: &RelayTarget,
    jailer: &Path,
) -> Result<(Transport, Option<ConfinedProcess>), String> {
    let target = serde_json::to_string(target).map_err(|error| error.to_string())?;
    let relay = relay::relay_settings(settings, jailer, target);
    // The relay must end its session at the remote server.
    launch_process(&relay, Some(jailer), ShutdownTimeouts::default(), None)
}

fn parse_endpoint(url: &ServerUrl, headers: &[(String, Secret<String>)]) -> Result<HttpEndpoint, String> {
    let headers = headers.iter().map(|(name, value)| (name.as_str(), value.reveal().as_str()));
    HttpEndpoint::new(url.as_str(), headers).map_err(|error| error.to_string())
}
