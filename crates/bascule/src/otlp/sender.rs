//! Delivers one message to a collector: over gRPC or HTTP, again after a transient failure.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bascule_mcp::{GrpcClient, HttpEndpoint, PostClient};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::message::OtlpMessage;
use super::settings::{OtlpProtocol, Signal, SignalSettings};
use crate::blocking::run_blocking;
use crate::normalise::error_chain;
use crate::unique_number::random_u64;

/// The size limit of a response.
const MAX_RESPONSE: usize = 64 << 10;
/// The waits before further attempts. Each is shortened by up to a half, so that bridges do not return all at once.
const RETRY_DELAYS: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4)];

/// Sends the messages of one signal.
pub(super) struct OtlpSender {
    signal: Signal,
    endpoint: HttpEndpoint,
    protocol: OtlpProtocol,
    transport: OtlpTransport,
    timeout: Duration,
    /// The last message was lost.
    is_failing: AtomicBool,
}

enum OtlpTransport {
    Http(PostClient),
    Grpc(GrpcClient),
}

/// A failed attempt.
struct AttemptError {
    reason: String,
    is_transient: bool,
}

impl OtlpSender {
    pub(super) fn new(signal: Signal, settings: SignalSettings) -> Self {
        let SignalSettings { endpoint, protocol, timeout } = settings;
        let transport = match protocol {
            OtlpProtocol::Grpc => OtlpTransport::Grpc(GrpcClient::new(endpoint.clone(), MAX_RESPONSE)),
            _ => OtlpTransport::Http(PostClient::new(endpoint.clone(), MAX_RESPONSE)),
        };
        Self { signal, endpoint, protocol, transport, timeout, is_failing: AtomicBool::new(false) }
    }

    /// Sends a message, which is built on another thread. Returns false if it is lost. After `stop` there is one attempt.
    pub(super) async fn send(
        &self,
        build: impl FnOnce() -> OtlpMessage + Send + 'static,
        stop: &CancellationToken,
    ) -> bool {
        let protocol = self.protocol;
        let body = run_blocking(move || encode(&build(), protocol)).await;
        let sent = self.send_with_retries(body, stop).await;
        self.log(&sent);
        sent.is_ok()
    }

    async fn send_with_retries(&self, body: Vec<u8>, stop: &CancellationToken) -> Result<(), String> {
        for delay in RETRY_DELAYS {
            match self.attempt(&body).await {
                Ok(()) => return Ok(()),
                Err(error) if !error.is_transient || stop.is_cancelled() => return Err(error.reason),
                Err(_) => _ = stop.run_until_cancelled(sleep(shortened(delay))).await,
            }
        }
        self.attempt(&body).await.map_err(|error| error.reason)
    }

    async fn attempt(&self, body: &[u8]) -> Result<(), AttemptError> {
        match timeout(self.timeout, self.post(body)).await {
            Ok(done) => done,
            Err(_) => Err(AttemptError {
                reason: format!("no response within {:?}", self.timeout),
                is_transient: true,
            }),
        }
    }

    async fn post(&self, body: &[u8]) -> Result<(), AttemptError> {
        match &self.transport {
            OtlpTransport::Http(client) => {
                let sent = client.post(self.protocol.media_type(), body.to_vec()).await;
                let failed = |error: bascule_mcp::TransportError| AttemptError {
                    is_transient: error.is_transient(),
                    reason: error_chain(&error),
                };
                sent.map(drop).map_err(failed)
            }
            OtlpTransport::Grpc(client) => {
                let sent = client.call(self.signal.grpc_method(), body).await;
                let failed = |error: bascule_mcp::GrpcError| AttemptError {
                    is_transient: error.is_transient(),
                    reason: error_chain(&error),
                };
                sent.map(drop).map_err(failed)
            }
        }
    }

    /// Logs the first of several equal results.
    fn log(&self, sent: &Result<(), String>) {
        let (noun, was_failing) =
            (self.signal.noun(), self.is_failing.swap(sent.is_err(), Ordering::Relaxed));
        match sent {
            Ok(()) if was_failing => info!("{noun} are sent to {:?} again", self.endpoint),
            Err(reason) if !was_failing => {
                warn!("could not send {noun} to {:?}, and dropped them: {reason}", self.endpoint);
            }
            _ => {}
        }
    }
}

fn encode(message: &OtlpMessage, protocol: OtlpProtocol) -> Vec<u8> {
    match protocol {
        OtlpProtocol::HttpJson => message.to_json().to_string().into_bytes(),
        OtlpProtocol::Grpc | OtlpProtocol::HttpProtobuf => message.to_protobuf(),
    }
}

fn shortened(delay: Duration) -> Duration {
    let half = delay / 2;
    half + half.mul_f64((random_u64() % 1_000) as f64 / 1_000.0)
}

impl OtlpProtocol {
    /// The type of a body over HTTP.
    fn media_type(self) -> &'static str {
        if self == Self::HttpJson { "application/json" } else { "application/x-protobuf" }
    }
}

impl Signal {
    fn grpc_method(self) -> &'static str {
        match self {
            Self::Traces => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
            Self::Metrics => "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
        }
    }

    fn noun(self) -> &'static str {
        match self {
            Self::Traces => "spans",
            Self::Metrics => "metrics",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_shortened_by_at_most_a_half() {
        let second = Duration::from_secs(1);
        assert!((0..100).all(|_| (second / 2..second).contains(&shortened(second))));
    }
}
