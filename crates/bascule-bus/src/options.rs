//! The address of a bus, and the proof of identity that its broker asks for.

use std::fmt;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

use bascule_model::Secret;

use crate::BusError;

/// The settings of a connection to a broker.
#[derive(Debug, Clone, PartialEq)]
pub struct BusOptions {
    pub url: BusUrl,
    pub credentials: BusCredentials,
    /// A file with certificates (PEM) that are trusted instead of the machine's own.
    pub ca_file: Option<PathBuf>,
    /// The client's certificate and key (PEM), for brokers that require them.
    pub client_certificate: Option<ClientCertificate>,
    /// The name that the broker shows for the connection.
    pub connection_name: String,
    /// The largest message that is published as one. `None`: the broker's own limit.
    pub max_message_bytes: Option<usize>,
    /// The beginning of the subjects of this connection's inboxes, for a user who may read no others; NATS only. `None`: `_INBOX`,
    /// as in all clients.
    pub inbox_prefix: Option<InboxPrefix>,
}

/// The beginning of the subjects of inboxes: `_INBOX_` and a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxPrefix(String);

/// The text cannot be the beginning of inboxes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the prefix of inboxes is `_INBOX_` and 1 to 64 letters, digits, `_` or `-`")]
pub struct InboxPrefixError;

impl InboxPrefix {
    /// The first characters of all subjects of inboxes.
    #[cfg(feature = "nats")]
    pub(crate) const START: &'static str = "_INBOX";

    pub fn parse(text: &str) -> Result<Self, InboxPrefixError> {
        let is_legal = |c: u8| c.is_ascii_alphanumeric() || c == b'_' || c == b'-';
        match text.strip_prefix("_INBOX_") {
            Some(name) if (1..=64).contains(&name.len()) && name.bytes().all(is_legal) => {
                Ok(Self(text.to_owned()))
            }
            Some(_) | None => Err(InboxPrefixError),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// The proof of identity.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum BusCredentials {
    /// None, or those in the URL.
    #[default]
    None,
    Password {
        user: String,
        password: Secret<String>,
    },
    /// NATS only.
    Token(Secret<String>),
    /// The seed of an NKey; NATS only.
    NKey(Secret<String>),
    /// A `.creds` file; NATS only.
    CredentialsFile(PathBuf),
}

/// The kind of broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BusKind {
    Embedded,
    Nats,
    RabbitMq,
}

/// The address of a bus: `embedded`, `nats://…` or `tls://…` (several may be joined by commas), `amqp://…` or `amqps://…`.
#[derive(Clone, PartialEq, Eq)]
pub struct BusUrl {
    kind: BusKind,
    text: Secret<String>,
}

/// The text is not the address of a bus. No message repeats the text: it may hold a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BusUrlError {
    #[error(
        "a bus is `embedded`, `nats://HOST:PORT`, `tls://HOST:PORT` (NATS with TLS), `amqp://HOST:PORT` or `amqps://HOST:PORT`"
    )]
    Scheme,
    #[error("the host in the address of the bus is missing, or has characters that no host has")]
    Host,
    #[error(
        "the port in the address of the bus must be a number from 1 to 65535; in a password write `/`, `?`, `#`, `@` and `:` as `%2F`, `%3F`, `%23`, `%40` and `%3A`"
    )]
    Port,
    #[error("`%` in the address of the bus must begin a code such as `%40`; write `%` itself as `%25`")]
    Encoding,
}

impl BusOptions {
    /// Options without credentials beside those in the URL.
    pub fn new(url: BusUrl) -> Self {
        Self {
            url,
            credentials: BusCredentials::None,
            ca_file: None,
            client_certificate: None,
            connection_name: "bascule".into(),
            max_message_bytes: None,
            inbox_prefix: None,
        }
    }

    /// Checks what needs no broker: the address, the files, and the kind of credentials. A failure stays one, however often
    /// a connection is tried.
    pub fn check(&self) -> Result<(), BusError> {
        let unusable = |reason| BusError::Unusable { url: self.url.clone(), reason };
        self.files().try_for_each(check_readable).map_err(unusable)?;
        match self.url.kind() {
            #[cfg(feature = "rabbitmq")]
            BusKind::RabbitMq => crate::rabbitmq::check(self),
            _ => Ok(()),
        }
    }

    fn files(&self) -> impl Iterator<Item = &Path> {
        let credentials = match &self.credentials {
            BusCredentials::CredentialsFile(file) => Some(file.as_path()),
            _ => None,
        };
        let certificate = self.client_certificate.iter();
        let certificate = certificate.flat_map(|client| [client.certificate.as_path(), client.key.as_path()]);
        credentials.into_iter().chain(self.ca_file.as_deref()).chain(certificate)
    }
}

fn check_readable(file: &Path) -> Result<(), String> {
    let opened = std::fs::File::open(file);
    opened.map(drop).map_err(|error| format!("could not read `{}`: {error}", file.display()))
}

impl BusUrl {
    pub fn parse(text: &str) -> Result<Self, BusUrlError> {
        let kind = match text.split_once("://") {
            None if text == "embedded" => BusKind::Embedded,
            Some(("nats" | "tls", rest)) if !rest.is_empty() => {
                text.split(',').map(str::trim).filter(|one| !one.is_empty()).try_for_each(check_nats)?;
                BusKind::Nats
            }
            Some(("amqp" | "amqps", rest)) if !rest.is_empty() => {
                check_address(rest)?;
                BusKind::RabbitMq
            }
            _ => return Err(BusUrlError::Scheme),
        };
        Ok(Self { kind, text: Secret::new(text.to_owned()) })
    }

    pub fn kind(&self) -> BusKind {
        self.kind
    }

    /// The whole text. It may hold a password.
    pub fn reveal(&self) -> &str {
        self.text.reveal()
    }
}

/// Checks one of several addresses. One without a scheme has the first one's.
fn check_nats(address: &str) -> Result<(), BusUrlError> {
    match address.split_once("://") {
        Some(("nats" | "tls", rest)) => check_address(rest),
        Some(_) => Err(BusUrlError::Scheme),
        None => check_address(address),
    }
}

/// Checks an address without its scheme: `USER:PASSWORD@HOST:PORT/PATH`, of which only the host is required.
fn check_address(text: &str) -> Result<(), BusUrlError> {
    let authority = text.split(['/', '?', '#']).next().unwrap_or_default();
    let (user, place) = authority.rsplit_once('@').unwrap_or(("", authority));
    let (host, port) = match place.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, port)) => (host, port),
        None => place.split_at(place.find(':').unwrap_or(place.len())),
    };
    match port.strip_prefix(':') {
        Some(port) if !port.parse().is_ok_and(|port: u16| port > 0) => return Err(BusUrlError::Port),
        None if !port.is_empty() => return Err(BusUrlError::Port),
        Some(_) | None => {}
    }
    match is_host(host, place.starts_with('[')) {
        false => Err(BusUrlError::Host),
        true if has_wrong_encoding(user) => Err(BusUrlError::Encoding),
        true => Ok(()),
    }
}

fn is_host(text: &str, is_ipv6: bool) -> bool {
    match is_ipv6 {
        true => text.parse::<Ipv6Addr>().is_ok(),
        false => {
            let is_legal = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_');
            !text.is_empty() && text.chars().all(is_legal)
        }
    }
}

fn has_wrong_encoding(text: &str) -> bool {
    let is_code = |rest: &str| rest.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2;
    text.split('%').skip(1).any(|rest| !is_code(rest))
}

/// Prints the address without user and password.
impl fmt::Display for BusUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.reveal().split(',').map(|url| match url.split_once("://") {
            Some((scheme, rest)) => {
                let authority_end = rest.find('/').unwrap_or(rest.len());
                let host = rest[..authority_end].rfind('@').map_or(0, |at| at + 1);
                format!("{scheme}://{}", &rest[host..])
            }
            None => url.rsplit('@').next().unwrap_or_default().to_owned(),
        });
        f.write_str(&shown.collect::<Vec<_>>().join(","))
    }
}

impl fmt::Debug for BusUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{self}`")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: BU-01
    #[test]
    fn reads_the_kind_of_a_bus_and_hides_its_password() {
        let check = |text: &str, kind, shown: &str| {
            let url = BusUrl::parse(text).unwrap();
            assert_eq!((url.kind(), url.to_string(), url.reveal()), (kind, shown.to_owned(), text));
        };
        check("embedded", BusKind::Embedded, "embedded");
        check("nats://localhost:4222", BusKind::Nats, "nats://localhost:4222");
        check("tls://u:p@a:1,tls://u:p@b:2", BusKind::Nats, "tls://a:1,tls://b:2");
        check("amqp://u:p%40@h:5672/vhost", BusKind::RabbitMq, "amqp://h:5672/vhost");
        check("amqps://u:p@x@h/v", BusKind::RabbitMq, "amqps://h/v");
    }

    // req: BU-01
    #[test]
    fn prefix_of_inboxes_is_one_segment() {
        assert_eq!(InboxPrefix::parse("_INBOX_research").unwrap().as_str(), "_INBOX_research");
        for text in ["", "_INBOX", "_INBOX_", "research", "_INBOX.a", "_INBOX_a.b", "_INBOX_>", "_INBOX_ä"] {
            assert_eq!(InboxPrefix::parse(text), Err(InboxPrefixError), "{text}");
        }
    }

    #[test]
    fn refuses_other_addresses() {
        for text in ["", "nats", "nats://", "http://x", "kafka://x", "embedded://", "nats://a,ws://b"] {
            assert_eq!(BusUrl::parse(text), Err(BusUrlError::Scheme), "{text}");
        }
    }

    // req: BU-01
    #[test]
    fn names_the_part_that_is_wrong() {
        for text in
            ["nats://h:0", "nats://h:65536", "nats://h:x", "nats://h:", "amqp://h:-1/v", "tls://a:1,b:x"]
        {
            assert_eq!(BusUrl::parse(text), Err(BusUrlError::Port), "{text}");
        }
        // Without `@` the password looks like a port. It is not repeated.
        let error = BusUrl::parse("amqp://user:secret/word@host").unwrap_err();
        assert!(error == BusUrlError::Port && !error.to_string().contains("secret"));
        for text in
            ["nats://:4222", "amqp:///v", "amqp://u:p@", "nats://a b:1", "nats://[::x]:1", "nats://a:1,@"]
        {
            assert_eq!(BusUrl::parse(text), Err(BusUrlError::Host), "{text}");
        }
        assert_eq!(BusUrl::parse("amqp://u:p%w@h"), Err(BusUrlError::Encoding));
        for text in [
            "nats://h",
            "nats://h:1/",
            "tls://u:p%40@[::1]:1, b:2,",
            "amqp://h:1/v?heartbeat=5",
            "nats://tök.example:1",
        ] {
            assert!(BusUrl::parse(text).is_ok(), "{text}");
        }
    }
}
