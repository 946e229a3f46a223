//! The address of a bus, and the proof of identity that its broker asks for.

use std::fmt;
use std::path::PathBuf;

use bascule_model::Secret;

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

/// The text is not the address of a bus.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "a bus is `embedded`, `nats://HOST:PORT`, `tls://HOST:PORT` (NATS with TLS), `amqp://HOST:PORT` or `amqps://HOST:PORT`"
)]
pub struct BusUrlError;

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
        }
    }
}

impl BusUrl {
    pub fn parse(text: &str) -> Result<Self, BusUrlError> {
        let kind = match text.split_once("://") {
            None if text == "embedded" => BusKind::Embedded,
            Some(("nats" | "tls", host)) if !host.is_empty() => BusKind::Nats,
            Some(("amqp" | "amqps", host)) if !host.is_empty() => BusKind::RabbitMq,
            _ => return Err(BusUrlError),
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

    #[test]
    fn refuses_other_addresses() {
        for text in ["", "nats", "nats://", "http://x", "kafka://x", "embedded://"] {
            assert_eq!(BusUrl::parse(text), Err(BusUrlError), "{text}");
        }
    }
}
