//! Opens connections to a broker: URL, credentials and TLS.

use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lapin::tcp::{AMQPUriTcpExt, AsyncTcpStream, RustlsConnector, RustlsConnectorConfig, TLSConfig};
use lapin::uri::{AMQPScheme, AMQPUri};
use lapin::{Connection, ConnectionProperties};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::{BusCredentials, BusError, BusOptions, BusUrl, ClientCertificate};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The broker closes a connection that is silent for twice as long, and gives its requests to others.
const HEARTBEAT_SECONDS: u16 = 10;
/// The client has a buffer of 32 frames in each direction.
const MAX_FRAME_BYTES: u32 = 32 * 1024;

/// The address of a broker and the means to be admitted.
pub(super) struct BrokerAddress {
    uri: AMQPUri,
    tls: Option<RustlsConnector>,
    url: BusUrl,
    connection_name: String,
}

impl BrokerAddress {
    pub(super) fn new(options: &BusOptions) -> Result<Self, BusError> {
        let refuse = |reason| BusError::Unusable { url: options.url.clone(), reason };
        let uri = read_uri(options).map_err(refuse)?;
        let tls = match uri.scheme {
            AMQPScheme::AMQP => None,
            AMQPScheme::AMQPS => Some(tls_connector(options).map_err(refuse)?),
        };
        let (url, connection_name) = (options.url.clone(), options.connection_name.clone());
        Ok(Self { uri, tls, url, connection_name })
    }

    pub(super) fn url(&self) -> &BusUrl {
        &self.url
    }

    /// Connects and logs in.
    pub(super) async fn connect(&self) -> Result<Connection, BusError> {
        self.try_connect().await.map_err(|reason| BusError::Connect { url: self.url.clone(), reason })
    }

    async fn try_connect(&self) -> Result<Connection, String> {
        let runtime = lapin::runtime::default_runtime().map_err(|error| error.to_string())?;
        let name = self.connection_name.as_str().into();
        let properties = ConnectionProperties::default().with_connection_name(name);
        let socket = SocketGuard::default();
        let (slot, tls) = (socket.slot(), self.tls.clone());
        let connection = Connection::connector(
            self.uri.clone(),
            runtime,
            async move |uri, runtime| {
                // The client's own TLS would trust the machine's certificates too.
                let plain = AMQPUri { scheme: AMQPScheme::AMQP, ..uri.clone() };
                let stream = within_timeout(plain.connect_with_config_async(TLSConfig::default(), &runtime));
                let stream = stream.await?;
                if let AsyncTcpStream::Plain(socket) = &stream {
                    slot.hold(socket.get_ref())?;
                }
                match &tls {
                    Some(tls) => {
                        let secured = within_timeout(stream.into_rustls(tls, &uri.authority.host)).await;
                        Ok(secured.map_err(tls_failure)?)
                    }
                    None => Ok(stream),
                }
            },
            properties,
        );
        match tokio::time::timeout(CONNECT_TIMEOUT, connection).await {
            Ok(Ok(connection)) => {
                socket.release();
                Ok(connection)
            }
            Ok(Err(error)) => Err(super::describe(&error)),
            Err(_) => Err(no_response()),
        }
    }
}

/// The words of TLS alone do not say that they are about TLS.
fn tls_failure(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("no TLS connection: {error}"))
}

async fn within_timeout<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let timeout = |_| Err(io::Error::new(io::ErrorKind::TimedOut, no_response()));
    tokio::time::timeout(CONNECT_TIMEOUT, work).await.unwrap_or_else(timeout)
}

fn no_response() -> String {
    format!("no response within {} s", CONNECT_TIMEOUT.as_secs())
}

/// The socket of a connection that is being opened. Dropped before the end, it shuts the socket down: the client's thread
/// would wait for ever for a broker that accepts and says nothing.
#[derive(Default)]
struct SocketGuard(Arc<SocketSlot>);

#[derive(Default)]
struct SocketSlot(Mutex<SocketState>);

#[derive(Default)]
enum SocketState {
    #[default]
    Opening,
    Open(TcpStream),
    /// The connection is complete, or given up.
    Over,
}

impl SocketGuard {
    fn slot(&self) -> Arc<SocketSlot> {
        self.0.clone()
    }

    /// The connection is complete.
    fn release(&self) {
        self.0.replace(SocketState::Over);
    }
}

impl Drop for SocketGuard {
    fn drop(&mut self) {
        if let SocketState::Open(socket) = self.0.replace(SocketState::Over) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

impl SocketSlot {
    /// Fails if the connection was given up.
    fn hold(&self, socket: &impl AsFd) -> io::Result<()> {
        let duplicate = TcpStream::from(socket.as_fd().try_clone_to_owned()?);
        match self.replace(SocketState::Open(duplicate)) {
            SocketState::Over => Err(io::Error::other("the connection was given up")),
            SocketState::Opening | SocketState::Open(_) => Ok(()),
        }
    }

    fn replace(&self, state: SocketState) -> SocketState {
        std::mem::replace(&mut *self.0.lock().expect("no code panics while it holds the lock"), state)
    }
}

fn read_uri(options: &BusOptions) -> Result<AMQPUri, String> {
    let text = options.url.reveal();
    let mut uri: AMQPUri = text.parse().map_err(|error| {
        // Scheme, host and port were checked before.
        format!("its virtual host, or a parameter after `?`, is wrong: {error}")
    })?;
    if let Some(host) = ipv6_host(text) {
        uri.authority.host = host.to_owned();
    }
    // `amqp://host/` names an empty virtual host, which no broker has.
    if uri.vhost.is_empty() {
        uri.vhost = "/".to_owned();
    }
    match &options.credentials {
        BusCredentials::None => {}
        BusCredentials::Password { user, password } => {
            uri.authority.userinfo.username = user.clone();
            uri.authority.userinfo.password = password.reveal().clone();
        }
        BusCredentials::Token(_) | BusCredentials::NKey(_) | BusCredentials::CredentialsFile(_) => {
            return Err("RabbitMQ takes a user and a password, or a client certificate".to_owned());
        }
    }
    uri.query.heartbeat.get_or_insert(HEARTBEAT_SECONDS);
    uri.query.frame_max.get_or_insert(MAX_FRAME_BYTES);
    Ok(uri)
}

/// The parser of the client takes no IPv6 address: it would connect to `localhost`.
fn ipv6_host(url: &str) -> Option<&str> {
    let authority = url.split_once("://")?.1.split(['/', '?']).next()?;
    let host = authority.rsplit('@').next()?.strip_prefix('[')?;
    host.split_once(']').map(|(host, _)| host)
}

fn tls_connector(options: &BusOptions) -> Result<RustlsConnector, String> {
    let roots = match &options.ca_file {
        Some(file) => RustlsConnectorConfig::default().with_parsable_certificates(read_certificates(file)?),
        None => RustlsConnectorConfig::new_with_native_certs().map_err(|error| error.to_string())?,
    };
    let connector = match &options.client_certificate {
        Some(ClientCertificate { certificate, key }) => {
            let certificates = read_certificates(certificate)?;
            let key = PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable(key, &error))?;
            roots.connector_with_single_cert(certificates, key)
        }
        None => roots.connector_with_no_client_auth(),
    };
    connector.map_err(|error| format!("TLS cannot be set up: {error}"))
}

fn read_certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    let certificates: Vec<_> = certificates.map_err(|error| unreadable(file, &error))?;
    match certificates.is_empty() {
        true => Err(format!("`{}` contains no certificate", file.display())),
        false => Ok(certificates),
    }
}

fn unreadable(file: &Path, error: &rustls::pki_types::pem::Error) -> String {
    format!("could not read `{}`: {error}", file.display())
}

#[cfg(test)]
mod tests {
    use bascule_model::Secret;

    use super::*;

    fn uri(url: &str) -> AMQPUri {
        read_uri(&BusOptions::new(BusUrl::parse(url).unwrap())).unwrap()
    }

    // req: BU-01
    #[test]
    fn reads_host_port_and_virtual_host() {
        let check = |url: &str, host: &str, port, vhost: &str| {
            let uri = uri(url);
            assert_eq!((&*uri.authority.host, uri.authority.port, &*uri.vhost), (host, port, vhost), "{url}");
        };
        check("amqp://broker", "broker", 5672, "/");
        check("amqp://127.0.0.1:1/", "127.0.0.1", 1, "/");
        check("amqps://broker/%2f", "broker", 5671, "/");
        check("amqp://u:p@broker/team", "broker", 5672, "team");
        check("amqp://u:p@[::1]:7/team", "::1", 7, "team");
    }

    // req: BU-01
    #[test]
    fn wrong_parameters_and_credentials_are_no_matter_of_the_broker() {
        let check = |url: &str, credentials, part: &str| {
            let options = BusOptions { credentials, ..BusOptions::new(BusUrl::parse(url).unwrap()) };
            let error = options.check().unwrap_err();
            assert!(!error.is_retryable() && error.to_string().contains(part), "{error}");
        };
        check("amqp://h/v?heartbeat=often", BusCredentials::None, "a parameter after `?`");
        check("amqp://h", BusCredentials::Token(Secret::new("t".into())), "a user and a password");
        let mut options = BusOptions::new(BusUrl::parse("amqps://h").unwrap());
        options.ca_file = Some("/nowhere/ca.pem".into());
        assert!(options.check().unwrap_err().to_string().contains("/nowhere/ca.pem"));
    }

    // req: BU-01
    #[test]
    fn credentials_of_the_options_replace_those_of_the_url() {
        let mut options = BusOptions::new(BusUrl::parse("amqp://a:b@broker").unwrap());
        let password = Secret::new("d".to_owned());
        options.credentials = BusCredentials::Password { user: "c".into(), password: password.clone() };
        let info = read_uri(&options).unwrap().authority.userinfo;
        assert_eq!((&*info.username, &*info.password), ("c", "d"));
        options.credentials = BusCredentials::Token(password);
        assert!(read_uri(&options).unwrap_err().contains("takes a user and a password"));
    }

    #[test]
    fn names_the_file_that_cannot_be_read() {
        let mut options = BusOptions::new(BusUrl::parse("amqps://broker").unwrap());
        options.ca_file = Some("/nowhere/ca.pem".into());
        let error = BrokerAddress::new(&options).err().unwrap().to_string();
        assert!(
            error.starts_with("the bus at `amqps://broker` cannot be used: could not read `/nowhere"),
            "{error}"
        );
    }
}
