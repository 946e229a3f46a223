//! Reads `bascule.bus`: the message bus on which a bridge serves an agent.

use std::path::PathBuf;
use std::time::Duration;

use bascule_bus::{AgentName, BusCredentials, BusOptions, BusUrl, ClientCertificate, InboxPrefix};
use bascule_model::Secret;

use super::expand::VariableExpander;
use super::reader::{FieldReader, ObjectReader};
use super::transport::{expand, read_parsed};
use crate::BusServiceOptions;

/// Smaller messages would not hold the fields of an envelope.
const MIN_MESSAGE_BYTES: u32 = 16 << 10;

/// The settings of the bus.
#[derive(Debug, Clone, PartialEq)]
pub struct BusSettings {
    pub url: Option<BusUrl>,
    /// The agent that the bridge serves. `None`: the bridge is not on the bus unless the command line says so.
    pub agent: Option<AgentName>,
    pub credentials: BusCredentials,
    /// Certificates that are trusted instead of the machine's own.
    pub ca_file: Option<PathBuf>,
    pub client_certificate: Option<ClientCertificate>,
    /// The most requests that are handled at the same time.
    pub prefetch: usize,
    /// The longest time of one call.
    pub timeout: Duration,
    /// The time that the agent waits for an answer.
    pub agent_timeout: Duration,
    /// The largest message that is published as one. `None`: the broker's own limit.
    pub max_message_bytes: Option<usize>,
    /// The beginning of the inboxes that the user may read. `None`: that of all clients.
    pub inbox_prefix: Option<InboxPrefix>,
}

impl Default for BusSettings {
    fn default() -> Self {
        Self {
            url: None,
            agent: None,
            credentials: BusCredentials::None,
            ca_file: None,
            client_certificate: None,
            prefetch: BusServiceOptions::PREFETCH,
            timeout: BusServiceOptions::TIMEOUT,
            agent_timeout: BusServiceOptions::AGENT_TIMEOUT,
            max_message_bytes: None,
            inbox_prefix: None,
        }
    }
}

impl BusSettings {
    /// Returns the options of a connection to the bus at `url`. Credentials are for the configured bus alone.
    pub fn connection(&self, url: BusUrl, name: String) -> BusOptions {
        let is_configured = self.url.as_ref().is_none_or(|configured| *configured == url);
        let credentials = if is_configured { self.credentials.clone() } else { BusCredentials::None };
        BusOptions {
            credentials,
            ca_file: self.ca_file.clone(),
            client_certificate: self.client_certificate.clone().filter(|_| is_configured),
            connection_name: name,
            max_message_bytes: self.max_message_bytes,
            inbox_prefix: self.inbox_prefix.clone(),
            ..BusOptions::new(url)
        }
    }
}

pub(super) fn read_bus(field: FieldReader, variables: &VariableExpander) -> Option<BusSettings> {
    let mut object = field.read_object()?;
    let default = BusSettings::default();
    let path = |field: FieldReader| {
        let path = expand(&field, field.read_string()?, variables)?;
        Some(variables.absolute_path(&path))
    };
    let settings = BusSettings {
        url: object.read("url", |field| read_url(&field, variables)),
        agent: object.read("agent", |field| read_agent(&field, variables)),
        credentials: read_credentials(&mut object, variables),
        ca_file: object.read("caFile", path),
        client_certificate: read_certificate(&mut object, path),
        prefetch: object.read_positive_or("prefetch", default.prefetch),
        timeout: object.read_millis_or("timeoutMs", default.timeout),
        agent_timeout: object.read_millis_or("agentTimeoutMs", default.agent_timeout),
        max_message_bytes: object.read("maxMessageBytes", read_message_bytes),
        inbox_prefix: object.read("inboxPrefix", |field| read_inbox_prefix(&field, variables)),
    };
    if settings.timeout >= settings.agent_timeout {
        object.field().error(format!(
            "`timeoutMs` ({}) must be shorter than `agentTimeoutMs` ({}): the agent would give up before the bridge answers",
            settings.timeout.as_millis(),
            settings.agent_timeout.as_millis()
        ));
    }
    object.warn_unknown_keys();
    Some(settings)
}

fn read_url(field: &FieldReader, variables: &VariableExpander) -> Option<BusUrl> {
    read_parsed(field, field.read_secret_string()?, variables, BusUrl::parse)
}

fn read_agent(field: &FieldReader, variables: &VariableExpander) -> Option<AgentName> {
    read_parsed(field, field.read_string()?, variables, AgentName::parse)
}

fn read_inbox_prefix(field: &FieldReader, variables: &VariableExpander) -> Option<InboxPrefix> {
    read_parsed(field, field.read_string()?, variables, InboxPrefix::parse)
}

fn read_message_bytes(field: FieldReader) -> Option<usize> {
    let bytes = field.read_number(f64::from(MIN_MESSAGE_BYTES), f64::from(u32::MAX))?;
    Some(bytes as usize)
}

/// Reads the one proof of identity that the file has.
fn read_credentials(object: &mut ObjectReader, variables: &VariableExpander) -> BusCredentials {
    let secret = |field: FieldReader| expand(&field, field.read_secret_string()?, variables).map(Secret::new);
    let user = object.read("user", |field| expand(&field, field.read_string()?, variables));
    let password = object.read("password", secret);
    let token = object.read("token", secret);
    let nkey = object.read("nkey", secret);
    let file = object.read("credentialsFile", |field| {
        let path = expand(&field, field.read_string()?, variables)?;
        Some(variables.absolute_path(&path))
    });
    if user.is_some() != password.is_some() {
        object.field().error("`user` and `password` belong together: add the other one");
    }
    let given = [user.is_some(), token.is_some(), nkey.is_some(), file.is_some()];
    if given.iter().filter(|is_given| **is_given).count() > 1 {
        object.field().error("use one of `user` with `password`, `token`, `nkey` and `credentialsFile`");
    }
    let by_password = user.zip(password).map(|(user, password)| BusCredentials::Password { user, password });
    by_password
        .or(token.map(BusCredentials::Token))
        .or(nkey.map(BusCredentials::NKey))
        .or(file.map(BusCredentials::CredentialsFile))
        .unwrap_or_default()
}

fn read_certificate(
    object: &mut ObjectReader,
    path: impl Fn(FieldReader) -> Option<PathBuf>,
) -> Option<ClientCertificate> {
    let (certificate, key) = (object.read("clientCertificate", &path), object.read("clientKey", &path));
    if certificate.is_some() != key.is_some() {
        object.field().error("`clientCertificate` and `clientKey` belong together: add the other one");
    }
    certificate.zip(key).map(|(certificate, key)| ClientCertificate { certificate, key })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, settings};
    use super::*;

    fn bus(text: &str) -> BusSettings {
        settings(&format!(r#"{{"servers": {{}}, "bascule": {{"bus": {text}}}}}"#)).bridge.bus
    }

    #[track_caller]
    fn wrong(text: &str, expected: &str) {
        check(&format!(r#"{{"servers": {{}}, "bascule": {{"bus": {text}}}}}"#), expected);
    }

    // req: BU-01
    #[test]
    fn reads_the_bus() {
        assert_eq!(bus("{}"), BusSettings::default());
        let full =
            bus(r#"{"url": "nats://h:1", "agent": "a", "user": "u", "password": "hunter2", "caFile": "/ca",
                "clientCertificate": "/c", "clientKey": "/k", "prefetch": 7, "timeoutMs": 1000,
                "agentTimeoutMs": 2000, "maxMessageBytes": 65536, "inboxPrefix": "_INBOX_a"}"#);
        assert_eq!(full.agent.as_ref().map(AgentName::as_str), Some("a"));
        assert!(!format!("{full:?}").contains("hunter2"));
        let options = full.connection(full.url.clone().unwrap(), "n".into());
        assert!(matches!(&options.credentials, BusCredentials::Password { user, .. } if user == "u"));
        assert_eq!((options.ca_file, options.max_message_bytes), (Some("/ca".into()), Some(65_536)));
        assert_eq!(options.inbox_prefix.unwrap().as_str(), "_INBOX_a");
        assert_eq!(
            (full.prefetch, full.timeout.as_millis(), full.agent_timeout.as_millis()),
            (7, 1000, 2000)
        );
        assert!(matches!(bus(r#"{"token": "t"}"#).credentials, BusCredentials::Token(_)));
        assert!(matches!(bus(r#"{"nkey": "S"}"#).credentials, BusCredentials::NKey(_)));
    }

    // req: BU-01
    #[test]
    fn credentials_are_for_the_configured_bus() {
        let settings = bus(r#"{"url": "nats://h:1", "token": "t"}"#);
        let other = settings.connection(BusUrl::parse("nats://other:1").unwrap(), "n".into());
        assert_eq!(other.credentials, BusCredentials::None);
    }

    // req: BU-08
    #[test]
    fn refuses_a_bridge_that_is_slower_than_its_agent() {
        wrong(
            r#"{"timeoutMs": 60000}"#,
            "1:36: bascule.bus: `timeoutMs` (60000) must be shorter than `agentTimeoutMs` (60000): the agent would give up before the bridge answers",
        );
    }

    // req: BU-02
    #[test]
    fn reports_wrong_values() {
        wrong(
            r#"{"url": "http://hunter2", "agent": "refresh"}"#,
            "1:44: bascule.bus.url: a bus is `embedded`, `nats://HOST:PORT`, `tls://HOST:PORT` (NATS with TLS), `amqp://HOST:PORT` or `amqps://HOST:PORT`\n\
             1:71: bascule.bus.agent: no agent may be called `refresh`: `tool.meta.mcp.refresh` is the topic of refresh requests",
        );
        wrong(
            r#"{"inboxPrefix": "inbox"}"#,
            "1:52: bascule.bus.inboxPrefix: the prefix of inboxes is `_INBOX_` and 1 to 64 letters, digits, `_` or `-`",
        );
        wrong(
            r#"{"user": "u"}"#,
            "1:36: bascule.bus: `user` and `password` belong together: add the other one",
        );
        wrong(
            r#"{"token": "t", "nkey": "n"}"#,
            "1:36: bascule.bus: use one of `user` with `password`, `token`, `nkey` and `credentialsFile`",
        );
    }
}
