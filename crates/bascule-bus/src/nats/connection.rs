//! The connection to NATS: its settings, its losses, and messages that nobody acknowledges.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_nats::{Client, ConnectError, ConnectErrorKind, ConnectOptions, Event, HeaderMap, ServerAddr};
use bascule_model::{Secret, error_chain};
use bytes::Bytes;
use futures_util::StreamExt;
use percent_encoding::percent_decode_str;
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::{debug, warn};

use crate::{BusCredentials, BusError, BusOptions};

/// Every operation waits at most this long, also for a lost broker.
pub(super) const OPERATION_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A silent connection is noticed after two of them.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const SYNCHRONISE_TIMEOUT: Duration = Duration::from_secs(1);
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// The messages of one subscription that the client holds before a task takes them.
const SUBSCRIPTION_CAPACITY: usize = 4096;

/// A connection to NATS, which comes back for ever. Clones share it.
#[derive(Clone)]
pub(super) struct NatsConnection {
    client: Client,
    link: Arc<watch::Sender<LinkState>>,
}

/// The state of the connection. Numbers tell apart what happened before and after a loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct LinkState {
    pub(super) is_connected: bool,
    pub(super) is_closed: bool,
    pub(super) losses: u64,
}

/// The connections that one reader has not heard of.
pub(crate) struct NatsReconnections {
    link: watch::Receiver<LinkState>,
    /// The losses before the last connection that it has heard of.
    losses: u64,
}

impl NatsReconnections {
    pub(crate) async fn next(&mut self) {
        let losses = self.losses;
        let back = self.link.wait_for(|state| state.is_connected && state.losses > losses);
        match back.await.map(|state| *state) {
            Ok(state) if !state.is_closed => self.losses = state.losses,
            // A closed bus never comes back.
            Ok(_) | Err(_) => std::future::pending().await,
        }
    }
}

impl NatsConnection {
    pub(super) async fn open(options: &BusOptions) -> Result<Self, BusError> {
        let connect_error = |reason| BusError::Connect { url: options.url.clone(), reason };
        let link = Arc::new(watch::Sender::new(LinkState { is_connected: true, ..LinkState::default() }));
        let servers = server_addresses(options.url.reveal()).map_err(connect_error)?;
        let credentials = credentials(options, &servers);
        let settings = connect_options(options, &credentials, &link).map_err(connect_error)?;
        let connected = timeout(2 * CONNECT_TIMEOUT, settings.connect(servers)).await;
        let client = connected.map_err(|_| connect_error("it did not respond in time".into()))?;
        let client = client.map_err(|error| connect_error(describe(&error, options)))?;
        Ok(Self { client, link })
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// The largest payload with headers that the server takes.
    pub(super) fn max_payload(&self) -> usize {
        self.client.max_payload()
    }

    pub(super) fn is_connected(&self) -> bool {
        self.link.borrow().is_connected
    }

    pub(super) fn watch(&self) -> watch::Receiver<LinkState> {
        self.link.subscribe()
    }

    /// Tells of the connections after the present or lost one.
    pub(super) fn reconnections(&self) -> NatsReconnections {
        let link = self.watch();
        let state = *link.borrow();
        // A loss that is not over is still to be told of.
        let losses = state.losses.saturating_sub(u64::from(!state.is_connected));
        NatsReconnections { link, losses }
    }

    /// Publishes without an acknowledgement.
    pub(super) async fn publish(
        &self,
        subject: &str,
        headers: HeaderMap,
        payload: Bytes,
    ) -> Result<(), BusError> {
        const OPERATION: &str = "publish";
        self.connected(OPERATION).await?;
        let subject = subject.to_owned();
        let published = async {
            match headers.is_empty() {
                true => self.client.publish(subject, payload).await,
                false => self.client.publish_with_headers(subject, headers, payload).await,
            }
        };
        within(OPERATION, published).await?.map_err(|error| refused(OPERATION, &error))
    }

    /// Publishes without an acknowledgement, and waits until the server has handled the message. One that may have been written
    /// to a connection that was lost is sent again.
    pub(super) async fn publish_surely(
        &self,
        subject: &str,
        headers: HeaderMap,
        payload: Bytes,
    ) -> Result<(), BusError> {
        const OPERATION: &str = "publish";
        let published = async {
            loop {
                let connection = self.identity();
                self.publish(subject, headers.clone(), payload.clone()).await?;
                self.synchronise().await;
                // The client learns the new identity before it writes to a new connection.
                if self.is_connected() && self.identity() == connection {
                    return Ok(());
                }
            }
        };
        within(OPERATION, published).await?
    }

    /// The server and its number of this connection.
    fn identity(&self) -> (String, u64) {
        let info = self.client.server_info();
        (info.server_id, info.client_id)
    }

    /// Waits until the server has handled what was sent: it handles a connection's messages in order, so a message to itself
    /// comes last. A server that permits none is given a moment.
    pub(super) async fn synchronise(&self) {
        let round_trip = async {
            let inbox = self.client.new_inbox();
            let mut echo = self.client.subscribe(inbox.clone()).await.ok()?;
            self.client.publish(inbox, Bytes::new()).await.ok()?;
            echo.next().await
        };
        let (mut link, losses) = (self.watch(), self.link.borrow().losses);
        let lost = link.wait_for(|state| state.losses != losses);
        let finished = async {
            tokio::select! {
                _ = round_trip => {}
                // The message to itself is lost too.
                _ = lost => {}
            }
        };
        let _ = timeout(SYNCHRONISE_TIMEOUT, finished).await;
    }

    /// Waits for a lost broker, and returns the state of the link.
    pub(super) async fn connected(&self, operation: &'static str) -> Result<LinkState, BusError> {
        let state = *self.link.borrow();
        let state = match state.is_connected || state.is_closed {
            true => state,
            false => {
                let mut link = self.watch();
                let back = link.wait_for(|state| state.is_connected || state.is_closed);
                *within(operation, back).await?.map_err(|_| BusError::Closed)?
            }
        };
        if state.is_closed { Err(BusError::Closed) } else { Ok(state) }
    }

    /// Sends what is pending and disconnects.
    pub(super) async fn close(&self) {
        let is_new = self.link.send_if_modified(|state| !std::mem::replace(&mut state.is_closed, true));
        if is_new {
            self.synchronise().await;
            let _ = timeout(CLOSE_TIMEOUT, self.client.drain()).await;
        }
    }
}

/// Bounds the time of an operation.
pub(super) async fn within<T>(operation: &'static str, work: impl Future<Output = T>) -> Result<T, BusError> {
    let seconds = OPERATION_TIMEOUT.as_secs();
    timeout(OPERATION_TIMEOUT, work).await.map_err(|_| BusError::Timeout { operation, seconds })
}

pub(super) fn refused(operation: &'static str, error: &dyn std::error::Error) -> BusError {
    BusError::Refused { operation, reason: error_chain(error) }
}

/// Splits `nats://a:1,b:2`. An address without a scheme has the first one's.
fn server_addresses(text: &str) -> Result<Vec<ServerAddr>, String> {
    let scheme = text.split("://").next().unwrap_or("nats");
    let parse = |address: &str| {
        let address = match address.contains("://") {
            true => address.to_owned(),
            false => format!("{scheme}://{address}"),
        };
        // The error of the parser could repeat a password.
        let parsed = address.parse::<ServerAddr>().ok();
        let parsed = parsed.filter(|address| matches!(address.scheme(), "nats" | "tls"));
        parsed.ok_or_else(|| "an address is no `nats://HOST:PORT` or `tls://HOST:PORT`".to_owned())
    };
    text.split(',').map(str::trim).filter(|address| !address.is_empty()).map(parse).collect()
}

/// The credentials of the options, or else those of the first address that has some: a user with a password, or a token.
/// The client does not read them there.
fn credentials(options: &BusOptions, servers: &[ServerAddr]) -> BusCredentials {
    let decode = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    match (&options.credentials, servers.iter().find(|server| server.has_user_pass())) {
        (BusCredentials::None, Some(server)) => {
            let user = decode(server.username().unwrap_or_default());
            match server.password() {
                Some(password) => BusCredentials::Password { user, password: Secret::new(decode(password)) },
                None => BusCredentials::Token(Secret::new(user)),
            }
        }
        (credentials, _) => credentials.clone(),
    }
}

fn connect_options(
    options: &BusOptions,
    credentials: &BusCredentials,
    link: &Arc<watch::Sender<LinkState>>,
) -> Result<ConnectOptions, String> {
    let link = link.clone();
    let mut settings = authenticate(ConnectOptions::new(), credentials)?
        .name(&options.connection_name)
        .connection_timeout(CONNECT_TIMEOUT)
        .request_timeout(Some(OPERATION_TIMEOUT))
        .ping_interval(PING_INTERVAL)
        .subscription_capacity(SUBSCRIPTION_CAPACITY)
        .max_reconnects(None)
        .reconnect_delay_callback(reconnect_delay)
        .event_callback(move |event| {
            note_event(&link, &event);
            std::future::ready(())
        });
    if let Some(prefix) = &options.inbox_prefix {
        settings = settings.custom_inbox_prefix(prefix.as_str());
    }
    if let Some(file) = &options.ca_file {
        settings = settings.add_root_certificates(readable(file)?);
    }
    if let Some(client) = &options.client_certificate {
        settings = settings.add_client_certificate(readable(&client.certificate)?, readable(&client.key)?);
    }
    Ok(settings)
}

fn authenticate(settings: ConnectOptions, credentials: &BusCredentials) -> Result<ConnectOptions, String> {
    match credentials {
        BusCredentials::None => Ok(settings),
        BusCredentials::Password { user, password } => {
            Ok(settings.user_and_password(user.clone(), password.reveal().clone()))
        }
        BusCredentials::Token(token) => Ok(settings.token(token.reveal().clone())),
        BusCredentials::NKey(seed) => Ok(settings.nkey(seed.reveal().trim().to_owned())),
        BusCredentials::CredentialsFile(path) => {
            let text = std::fs::read_to_string(path);
            let text = text.map_err(|error| format!("could not read `{}`: {error}", path.display()))?;
            // The error of the parser could repeat a part of the file.
            let wrong = |_| format!("`{}` has no JWT and NKey seed", path.display());
            settings.credentials(&text).map_err(wrong)
        }
    }
}

/// Fails early with the path, which the client leaves out.
fn readable(path: &std::path::Path) -> Result<std::path::PathBuf, String> {
    match std::fs::File::open(path) {
        Ok(_) => Ok(path.to_owned()),
        Err(error) => Err(format!("could not read `{}`: {error}", path.display())),
    }
}

/// At once, then 50 ms, doubled up to 2 s. The first attempt has number 1.
fn reconnect_delay(attempt: usize) -> Duration {
    match attempt {
        0 | 1 => Duration::ZERO,
        attempt => Duration::from_millis(50 << (attempt - 2).min(6)).min(Duration::from_secs(2)),
    }
}

fn note_event(link: &watch::Sender<LinkState>, event: &Event) {
    match event {
        Event::Connected => {
            link.send_modify(|state| state.is_connected = true);
        }
        Event::Disconnected => {
            link.send_modify(|state| {
                state.is_connected = false;
                state.losses += 1;
            });
            warn!("lost the NATS server; reconnecting");
        }
        Event::ServerError(error) => warn!(%error, "the NATS server reports an error"),
        Event::SlowConsumer(subscription) => warn!(subscription, "dropped a message of a full subscription"),
        other => debug!(event = %other, "NATS"),
    }
}

/// Says what the operator can change.
fn describe(error: &ConnectError, options: &BusOptions) -> String {
    match error.kind() {
        ConnectErrorKind::AuthorizationViolation => {
            let given = match &options.credentials {
                BusCredentials::None if options.url.reveal().contains('@') => "the user in the address",
                BusCredentials::None => "a connection without credentials",
                BusCredentials::Password { .. } => "the user and password",
                BusCredentials::Token(_) => "the token",
                BusCredentials::NKey(_) => "the NKey",
                BusCredentials::CredentialsFile(_) => "the credentials file",
            };
            format!("the server refused {given}")
        }
        ConnectErrorKind::Authentication => "the NKey seed cannot sign: it is malformed".into(),
        _ => error_chain(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_several_addresses() {
        let read = |text: &str| {
            server_addresses(text)
                .map(|all| all.iter().map(|one| one.as_url_str().to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(read("tls://a:1,b:2").unwrap(), ["tls://a:1", "tls://b:2"]);
        assert_eq!(read("nats://a:1, tls://b:2,").unwrap(), ["nats://a:1", "tls://b:2"]);
        let error = read("nats://u:secret@:::").unwrap_err();
        assert!(!error.contains("secret"), "{error}");
        assert!(read("nats://a,ws://b").is_err());
    }

    // req: BU-01
    #[test]
    fn reads_credentials_of_an_address() {
        let read = |text: &str| {
            let options = BusOptions::new(crate::BusUrl::parse(text).unwrap());
            credentials(&options, &server_addresses(text).unwrap())
        };
        let password = |user: &str, password: &str| BusCredentials::Password {
            user: user.into(),
            password: Secret::new(password.into()),
        };
        assert_eq!(read("nats://u:p%40ss@a:1"), password("u", "p@ss"));
        assert_eq!(read("nats://a:1,nats://u:p@b:2"), password("u", "p"));
        assert_eq!(read("nats://token@a:1"), BusCredentials::Token(Secret::new("token".into())));
        assert_eq!(read("nats://a:1"), BusCredentials::None);
    }

    #[test]
    fn reconnects_sooner_than_every_two_seconds() {
        let delays: Vec<_> = (1..=9).map(|attempt| reconnect_delay(attempt).as_millis()).collect();
        assert_eq!(delays, [0, 50, 100, 200, 400, 800, 1600, 2000, 2000]);
        assert_eq!(reconnect_delay(usize::MAX), Duration::from_secs(2));
    }
}
